package zklockprom_test

// The helpers of the tests: a server with its clients in virtual time, and the output of a Metrics.

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/contrib/zklockprom"
	"github.com/zklock/zklock/internal/hook"
	"github.com/zklock/zklock/internal/oneway"
	"github.com/zklock/zklock/zktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// virtual is a server, a connection to it and a Metrics in one bubble: time passes when all
// goroutines wait.
type virtual struct {
	t       *testing.T
	net     *zktest.Network
	srv     *zktest.Server
	metrics *zklockprom.Metrics
}

func inVirtualTime(t *testing.T, f func(t *testing.T, v *virtual)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		n := zktest.NewNetwork()
		f(t, &virtual{t, n, zktest.Start(t, zktest.WithNetwork(n)), zklockprom.New()})
	})
}

// connect opens a Session that is traced, watched, and closed with the test. Its timeout is 10 s.
func (v *virtual) connect(opts ...zklock.Option) *zklock.Session {
	v.t.Helper()
	return v.connectAfter(nil, opts...)
}

// connectAfter is connect with options whose traces are called before those of the metrics.
func (v *virtual) connectAfter(first []zklock.Option, opts ...zklock.Option) *zklock.Session {
	v.t.Helper()
	ctx := hook.With(context.Background(), hook.Session{SuspendedTime: func() time.Duration { return 0 }}) // the machine does not sleep
	s, err := zklock.Connect(ctx, v.srv.Addr(), slices.Concat([]zklock.Option{zklock.WithDialer(v.net.Dial), zklock.WithSessionTimeout(10 * time.Second),
		zklock.WithLogger(slog.New(slog.DiscardHandler))}, first, []zklock.Option{v.metrics.Option()}, opts)...)
	require.NoError(v.t, err)
	v.t.Cleanup(func() { require.NoError(v.t, s.Close()) })
	v.metrics.Watch(s)
	return s
}

func startServer(t testing.TB) *zktest.Server {
	t.Helper()
	return zktest.Start(t)
}

// connectTo opens a Session in real time, which the caller closes.
func connectTo(t testing.TB, srv *zktest.Server, opts ...zklock.Option) *zklock.Session {
	t.Helper()
	s, err := zklock.Connect(context.Background(), srv.Addr(), append(opts, zklock.WithLogger(slog.New(slog.DiscardHandler)))...)
	require.NoError(t, err)
	return s
}

// shown is what the Metrics shows, by series as the text format spells it: `zklock_holds`,
// `zklock_is_leader{lock="/job"}`.
type shown map[string]float64

func (v *virtual) shown() shown { v.t.Helper(); return shownBy(v.t, v.metrics) }

func shownBy(t testing.TB, m prometheus.Collector) shown {
	t.Helper()
	registry := prometheus.NewPedanticRegistry() // it checks what is collected
	require.NoError(t, registry.Register(m))
	families, err := registry.Gather()
	require.NoError(t, err)
	var text strings.Builder
	for _, family := range families {
		_, err := expfmt.MetricFamilyToText(&text, family)
		require.NoError(t, err)
	}
	all := make(shown)
	for line := range strings.Lines(text.String()) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		at := strings.LastIndex(line, " ")
		all[line[:at]], err = strconv.ParseFloat(strings.TrimSpace(line[at:]), 64)
		require.NoError(t, err)
	}
	return all
}

func (s shown) acquires(lock, kind, outcome string) float64 {
	return s[fmt.Sprintf("zklock_acquire_duration_seconds_count{kind=%q,lock=%q,outcome=%q}", kind, lock, outcome)]
}

func (s shown) lost(lock string, reason zklock.Loss) float64 {
	return s[fmt.Sprintf("zklock_holds_lost_total{lock=%q,reason=%q}", lock, reason)]
}

// sum adds up the series whose names begin so.
func (s shown) sum(prefix string) (sum float64) {
	for series, value := range s {
		if strings.HasPrefix(series, prefix) {
			sum += value
		}
	}
	return sum
}

// cut stops all data between a client and its servers.
func cut(way *oneway.Way) {
	way.LoseAnswers()
	way.LoseRequests()
}

func newMutex(t testing.TB, s *zklock.Session, path string, opts ...zklock.MutexOption) *zklock.Mutex {
	t.Helper()
	m, err := zklock.NewMutex(s, path, opts...)
	require.NoError(t, err)
	return m
}

func acquire(t testing.TB, l zklock.Lock) *zklock.Hold {
	t.Helper()
	return acquireIn(t, context.Background(), l)
}

func acquireIn(t testing.TB, ctx context.Context, l zklock.Lock) *zklock.Hold {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, time.Hour)
	defer cancel()
	h, err := l.Acquire(ctx)
	require.NoError(t, err)
	return h
}

func release(t testing.TB, h *zklock.Hold) {
	t.Helper()
	require.NoError(t, h.Release(context.Background()))
}
