package zklockprom_test

// These tests attack the numbers of a process: a Session that counts twice or forever, a counter
// that decreases, a gauge that drifts.

import (
	"context"
	"io"
	"net"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/contrib/zklockprom"
	"github.com/zklock/zklock/internal/guard"
	"github.com/zklock/zklock/internal/oneway"
	"github.com/zklock/zklock/zktest"
)

func newMetrics() *zklockprom.Metrics { return zklockprom.New() }

// Several Sessions are added up, each once, and a closed one is dropped, except for its reconnects.
func TestVirtual_Sessions_AddedUpAndForgotten(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		a, b := v.connect(), v.connect()
		v.metrics.Watch(a)
		h := acquire(t, newMutex(t, a, "/a"))
		acquire(t, newMutex(t, b, "/b"))
		now := v.shown()
		require.Equal(t, []float64{2, 2, 2, 0}, []float64{now["zklock_sessions"], now["zklock_sessions_attached"], now["zklock_holds"], now["zklock_reconnects_total"]})
		v.srv.DropConnection(b.Stats().SessionID)
		time.Sleep(10 * time.Second)
		require.Equal(t, 1.0, v.shown()["zklock_reconnects_total"])
		require.NoError(t, b.Close())
		now = v.shown()
		require.Equal(t, []float64{1, 1, 1, 1}, []float64{now["zklock_sessions"], now["zklock_sessions_attached"], now["zklock_holds"], now["zklock_reconnects_total"]})
		v.srv.DropConnection(a.Stats().SessionID)
		time.Sleep(10 * time.Second)
		require.Equal(t, 2.0, v.shown()["zklock_reconnects_total"])
		release(t, h)
		require.NoError(t, a.Close())
		now = v.shown()
		require.Equal(t, []float64{0, 0, 0, 2}, []float64{now["zklock_sessions"], now["zklock_sessions_attached"], now["zklock_holds"], now["zklock_reconnects_total"]})
		require.Equal(t, 2.0, v.shown()["zklock_reconnects_total"], "it is asked again")
	})
}

// A Session that is connected to a guard is counted.
func TestSession_Guarded_IsCounted(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sock")
	l, err := net.Listen("unix", path)
	require.NoError(t, err)
	defer l.Close()
	metrics := newMetrics()
	srv := zktest.Start(t)
	s := connectTo(t, srv, zklock.WithGuard(path))
	defer s.Close()
	metrics.Watch(s)
	require.Zero(t, shownBy(t, metrics)["zklock_sessions_guarded"])
	conn, err := l.Accept()
	require.NoError(t, err)
	defer conn.Close()
	changes := s.Changes(t.Context())
	_, err = io.WriteString(conn, guard.Welcome)
	require.NoError(t, err)
	for c := range changes {
		if c.Guarded {
			break
		}
	}
	require.Equal(t, 1.0, shownBy(t, metrics)["zklock_sessions_guarded"])
}

// While no server can be reached the Session is not attached, the lease of its hold runs down, and
// unconfirmed deletions and releases show, the releases also after Close.
func TestVirtual_NoServer_Shows(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		s := v.connect()
		require.NotContains(t, v.shown(), "zklock_lease_left_seconds", "nothing is held")
		a, b := acquire(t, newMutex(t, s, "/a")), acquire(t, newMutex(t, s, "/b"))
		time.Sleep(time.Minute + 100*time.Millisecond) // between two heartbeats
		before := v.shown()["zklock_lease_left_seconds"]
		require.Positive(t, before)
		v.srv.Stop()
		time.Sleep(time.Second)
		now := v.shown()
		require.Equal(t, []float64{1, 0}, []float64{now["zklock_sessions"], now["zklock_sessions_attached"]})
		require.InDelta(t, before-1, now["zklock_lease_left_seconds"], 0.001)
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		require.ErrorIs(t, a.Release(ctx), zklock.ErrNotConfirmed)
		require.Equal(t, 1.0, v.shown()["zklock_deletions_pending"])
		require.Equal(t, 1.0, v.shown()["zklock_releases_unconfirmed_total"])
		require.NoError(t, v.srv.Start())
		time.Sleep(10 * time.Second)
		now = v.shown()
		require.Zero(t, now["zklock_deletions_pending"])
		require.Equal(t, 1.0, now["zklock_sessions_attached"])
		_ = b.Release(context.Background())
		require.NoError(t, s.Close())
		for range 2 {
			require.Equal(t, 1.0, v.shown()["zklock_releases_unconfirmed_total"])
		}
	})
}

// The lease that is left is the shortest of several: it is of a Session whose connection is cut.
// All other Sessions renew theirs.
func TestVirtual_LeaseLeft_TheShortest(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		way := oneway.New(v.net.Dial)
		var first *zklock.Hold
		for i, path := range []string{"/a", "/b", "/c"} {
			dial := v.net.Dial
			if i == 0 {
				dial = way.Dial
			}
			h := acquire(t, newMutex(t, v.connect(zklock.WithDialer(dial), zklock.WithLease(zklock.SingleServerLease())), path))
			if i == 0 {
				first = h
			}
		}
		time.Sleep(time.Minute + 100*time.Millisecond) // between two heartbeats
		cut(way)
		time.Sleep(3 * time.Second)
		for range 20 { // in any order of the Sessions
			require.InDelta(t, time.Until(first.Deadline()).Seconds(), v.shown()["zklock_lease_left_seconds"], 0.001)
		}
		require.Equal(t, 3.0, v.shown()["zklock_holds"])
	})
}

func TestWatch_NilSession_PanicsThere(t *testing.T) {
	require.Panics(t, func() { newMetrics().Watch(nil) })
	require.Panics(t, func() { newMetrics().Watch(new(zklock.Session)) })
}

func TestNew_NilOption_PanicsWithAText(t *testing.T) {
	require.PanicsWithValue(t, "zklockprom: nil Option: leave it out", func() { zklockprom.New(nil) })
}

// A Metrics without Sessions shows zeros. Nothing of it runs.
func TestNew_ShowsZeros(t *testing.T) {
	now := shownBy(t, newMetrics())
	require.Len(t, now, 9)
	require.Zero(t, now.sum("zklock_"))
}

// A Session whose connections are cut repeatedly reports how often.
func TestVirtual_Reconnects_EachCounts(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		s := v.connect()
		for range 5 {
			v.srv.Inject(zktest.Before(zktest.Ping).Session(s.Stats().SessionID).Close().Once())
			time.Sleep(20 * time.Second)
			synctest.Wait()
		}
		require.Equal(t, 5.0, v.shown()["zklock_reconnects_total"])
	})
}
