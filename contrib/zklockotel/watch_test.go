package zklockotel_test

// These tests attack New and Watch with every input, and with many goroutines that acquire,
// re-enter, try and lose at once.

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/contrib/zklockotel"
)

func TestNew_RefusesNil(t *testing.T) {
	_, err := zklockotel.New(nil)
	require.ErrorContains(t, err, "nil Option")
	_, err = zklockotel.New(zklockotel.WithTracerProvider(nil))
	require.ErrorContains(t, err, "nil provider")
	_, err = zklockotel.New(zklockotel.WithMeterProvider(nil))
	require.ErrorContains(t, err, "nil provider")
	_, err = zklockotel.New(zklockotel.WithMeterProvider(noop.NewMeterProvider()))
	require.NoError(t, err)
}

// A Telemetry has one Session at a time, and another when that is closed.
func TestWatch_OneSessionAtATime(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, sc *scene) {
		require.ErrorContains(t, sc.telemetry().Watch(nil), "nil or zero Session")
		require.ErrorContains(t, sc.telemetry().Watch(new(zklock.Session)), "nil or zero Session")
		s, tel := sc.watched()
		require.ErrorContains(t, tel.Watch(s), "make another")
		other := sc.connect(tel.Option())
		require.ErrorContains(t, tel.Watch(other), "make another")
		require.Equal(t, 1.0, sc.numbers()["sessions.attached{}"])
		require.NoError(t, s.Close())
		require.NoError(t, tel.Watch(other))
		require.Equal(t, 1.0, sc.numbers()["sessions.attached{}"])
		require.NoError(t, other.Close())
		require.ErrorContains(t, tel.Watch(other), "is closed")
		require.Empty(t, sc.numbers().of("sessions.attached"))
	})
}

// meters counts the callbacks that are registered.
type meters struct {
	metric.MeterProvider
	n *atomic.Int32
}

func (m meters) Meter(string, ...metric.MeterOption) metric.Meter {
	return meter{m.MeterProvider.Meter("test"), m.n}
}

type meter struct {
	metric.Meter
	n *atomic.Int32
}

func (m meter) RegisterCallback(f metric.Callback, in ...metric.Observable) (metric.Registration, error) {
	r, err := m.Meter.RegisterCallback(f, in...)
	m.n.Add(1)
	return registration{r, m.n}, err
}

type registration struct {
	metric.Registration
	n *atomic.Int32
}

func (r registration) Unregister() error {
	r.n.Add(-1)
	return r.Registration.Unregister()
}

// A closed Session is dropped.
func TestWatch_Closed_CallbackIsGone(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, sc *scene) {
		var n atomic.Int32
		tel := sc.telemetry(zklockotel.WithMeterProvider(meters{sc.meters, &n}))
		s := sc.connect(tel.Option())
		require.NoError(t, tel.Watch(s))
		require.EqualValues(t, 1, n.Load())
		require.NoError(t, s.Close())
		synctest.Wait()
		require.Zero(t, n.Load())
	})
}

// Without Watch, acquires and holds are still recorded.
func TestWatch_LeftOut(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, sc *scene) {
		s := sc.connect(sc.telemetry().Option())
		sc.release(sc.acquire(t.Context(), sc.mutex(s, "/a")))
		sc.one("mutex /a")
		n := sc.numbers()
		require.Len(t, n.of("hold.duration"), 1)
		require.Empty(t, n.of("waiting"))
	})
}

// Twenty goroutines act at random while sessions and nodes end, and a collector runs: every span
// that started has ended, each acquire is counted once, and nothing is kept.
func TestMany_EverySpanEnds_NothingIsRemembered(t *testing.T) {
	seed := rand.Uint64()
	t.Log("seed", seed)
	inVirtualTime(t, func(t *testing.T, sc *scene) {
		s, tel := sc.watched()
		var wg sync.WaitGroup
		until := time.Now().Add(10 * time.Minute)
		acquires := make([]int, 20)
		for i := range acquires {
			wg.Go(func() {
				r := rand.New(rand.NewPCG(seed, uint64(i)))
				m := sc.mutex(s, []string{"/a", "/b", "/c"}[r.IntN(3)])
				for time.Now().Before(until) {
					ctx, cancel := context.WithTimeout(context.Background(), time.Duration(r.IntN(20_000))*time.Millisecond)
					acquires[i] += work(ctx, m, r)
					cancel()
				}
			})
		}
		r := rand.New(rand.NewPCG(seed, 99))
		for time.Now().Before(until) {
			time.Sleep(time.Duration(r.IntN(30_000)) * time.Millisecond)
			switch nodes := sc.srv.Children("/a"); {
			case r.IntN(3) == 0:
				sc.srv.ExpireSession(s.Stats().SessionID)
			case r.IntN(2) == 0:
				sc.srv.DropConnection(s.Stats().SessionID)
			case len(nodes) > 0:
				_ = sc.srv.Delete("/a/" + nodes[r.IntN(len(nodes))])
			}
			sc.numbers()
		}
		wg.Wait()
		n := sc.numbers() // waits for losses that are still being reported
		require.Zero(t, zklockotel.Remembered(tel))
		require.Len(t, sc.spans.Ended(), len(sc.spans.Started()))
		var want, got float64
		for _, a := range acquires {
			want += float64(a)
		}
		for _, count := range n.of("acquire.duration") {
			got += count
		}
		require.Equal(t, want, got)
		require.NotEmpty(t, n.of("holds.lost"), "nothing was lost")
	})
}

// work acquires or tries, sometimes once more under the hold, and releases. It returns the number
// of acquires that are no re-entries.
func work(ctx context.Context, m *zklock.Mutex, r *rand.Rand) int {
	get := m.Acquire
	if r.IntN(3) == 0 {
		get = m.TryAcquire
	}
	hold, err := get(ctx)
	if err != nil {
		time.Sleep(time.Duration(1+r.IntN(500)) * time.Millisecond)
		return 1
	}
	defer func() { _ = hold.Release(ctx) }()
	time.Sleep(time.Duration(r.IntN(5000)) * time.Millisecond)
	if r.IntN(2) == 0 {
		return 1
	}
	again, err := m.Acquire(zklock.WithOwner(hold.Context(), hold.Owner()))
	if err != nil {
		return 2
	}
	time.Sleep(time.Duration(r.IntN(5000)) * time.Millisecond)
	_ = again.Release(ctx)
	return 1
}
