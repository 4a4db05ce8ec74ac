package zklockprom_test

// These tests attack the number of series: thousands of paths, names that Prometheus does not
// accept, and metrics that its linter rejects.

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/contrib/zklockprom"
)

// locks returns the different values of the label lock.
func (s shown) locks() map[string]bool {
	all := make(map[string]bool)
	for series := range s {
		if _, rest, found := strings.Cut(series, `lock="`); found {
			value, _, _ := strings.Cut(rest, `"`)
			all[value] = true
		}
	}
	return all
}

// Ten thousand paths give a hundred labels and one for all other paths, in all metrics together,
// and the sums are complete.
func TestVirtual_TenThousandPaths_AHundredLabels(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		s := v.connect()
		over, cancel := context.WithCancel(context.Background())
		cancel()
		for i := range 10_000 {
			m := newMutex(t, s, fmt.Sprintf("/orders/%d", i))
			if i < 200 {
				release(t, acquire(t, m))
			} else {
				_, err := m.Acquire(over)
				require.ErrorIs(t, err, context.Canceled)
			}
		}
		now := v.shown()
		require.Len(t, now.locks(), 101)
		require.Equal(t, 1.0, now.acquires("/orders/99", "mutex", "acquired"))
		require.Zero(t, now.acquires("/orders/100", "mutex", "acquired"))
		require.Equal(t, 100.0, now.acquires("_others", "mutex", "acquired"))
		require.Equal(t, 9800.0, now.acquires("_others", "mutex", "canceled"))
		require.Equal(t, 10_000.0, now.sum("zklock_acquire_duration_seconds_count"))
		require.Equal(t, 200.0, now.sum("zklock_hold_duration_seconds_count"))
		require.Len(t, now, 101*71+15+9, "the package's comment says how many: 71 a lock, 15 for another outcome, and those of the process")
	})
}

// The locks of one name are one label, whatever their paths, beside others beyond the limit.
func TestVirtual_WithName_OneLabel(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		v.metrics = zklockprom.New(zklockprom.WithMaxLocks(2))
		s := v.connect()
		for i := range 5 {
			release(t, acquire(t, newMutex(t, s, fmt.Sprintf("/orders/%d", i), zklock.WithName("orders"))))
			release(t, acquire(t, newMutex(t, s, fmt.Sprintf("/jobs/%d", i))))
		}
		now := v.shown()
		require.Equal(t, map[string]bool{"orders": true, "/jobs/0": true, "_others": true}, now.locks())
		require.Equal(t, 5.0, now.acquires("orders", "mutex", "acquired"))
		require.Equal(t, 4.0, now.acquires("_others", "mutex", "acquired"))
	})
}

func TestVirtual_NoLocks_AllAreOthers(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		v.metrics = zklockprom.New(zklockprom.WithMaxLocks(0))
		release(t, acquire(t, newMutex(t, v.connect(), "/job")))
		require.Equal(t, map[string]bool{"_others": true}, v.shown().locks())
	})
}

// Prometheus accepts only UTF-8 as a label. Any other name is converted, and nothing panics.
func TestVirtual_NameIsNotUTF8_IsMadeSuch(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		s := v.connect()
		for range 2 {
			release(t, acquire(t, newMutex(t, s, "/job", zklock.WithName("caf\xe9"))))
		}
		require.Equal(t, 2.0, v.shown().acquires("caf\uFFFD", "mutex", "acquired"))
		require.Len(t, v.shown().locks(), 1)
	})
}

// A label that the registerer adds distinguishes the metrics of two ensembles.
func TestVirtual_TwoEnsembles_ALabelOfTheRegisterer(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		registry := prometheus.NewPedanticRegistry()
		for _, ensemble := range []string{"a", "b"} {
			v.metrics = zklockprom.New()
			prometheus.WrapRegistererWith(prometheus.Labels{"ensemble": ensemble}, registry).MustRegister(v.metrics)
			release(t, acquire(t, newMutex(t, v.connect(), "/job")))
		}
		n, err := testutil.GatherAndCount(registry, "zklock_sessions", "zklock_hold_duration_seconds")
		require.NoError(t, err)
		require.Equal(t, 4, n)
	})
}

// promlint objects to nothing, with a series of each metric there; and each histogram is a classic
// and a native one.
func TestVirtual_Lint(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		s := v.connect()
		h := acquire(t, newMutex(t, s, "/job"))
		time.Sleep(time.Second)
		e := newElection(t, s)
		ended := make(chan error)
		go func() { ended <- e.Campaign(t.Context(), lead(time.Minute)) }()
		time.Sleep(time.Second)
		problems, err := testutil.CollectAndLint(v.metrics)
		require.NoError(t, err)
		require.Empty(t, problems)

		registry := prometheus.NewPedanticRegistry()
		registry.MustRegister(v.metrics)
		families, err := registry.Gather()
		require.NoError(t, err)
		var names []string
		for _, f := range families {
			names = append(names, f.GetName())
			for _, m := range f.GetMetric() {
				if m.GetHistogram() != nil {
					require.Len(t, m.GetHistogram().GetBucket(), 12)
					require.NotNil(t, m.GetHistogram().Schema, "a native histogram too")
				}
			}
		}
		require.Len(t, names, 17, names)
		require.NoError(t, <-ended)
		release(t, h)
	})
}
