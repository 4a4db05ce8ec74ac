package zklock

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
)

func testHosts(t *testing.T, addrs ...string) *hosts {
	t.Helper()
	return newHosts(addrs, &clock{start: time.Now(), suspended: func() time.Duration { return 0 }})
}

// The client is handed host names, each of them once a lap, and pauses between laps.
func TestHosts_Laps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		addrs := []string{"zk1:2181", "zk2:2181", "zk3:2181"}
		h := testHosts(t, addrs...)
		require.NoError(t, h.Init([]string{"192.0.2.1:2181"}), "what the client resolved does not count")
		require.Equal(t, 3, h.Len())
		for lap := range 3 {
			var got []string
			for i := range addrs {
				addr, pause := h.Next()
				require.Equal(t, lap > 0 && i == 0, pause, "lap %d, server %d", lap, i)
				got = append(got, addr)
			}
			slices.Sort(got)
			require.Equal(t, addrs, got)
		}
		require.Equal(t, []string{"zk1:2181", "zk2:2181", "zk3:2181"}, addrs, "the caller's slice is the caller's")
	})
}

// After a connection that lasted, the next server is tried at once.
func TestHosts_AfterAConnection_NoPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := testHosts(t, "zk1:2181")
		_, pause := h.Next()
		require.False(t, pause)
		h.Connected()
		time.Sleep(time.Minute)
		_, pause = h.Next()
		require.False(t, pause)
		_, pause = h.Next()
		require.True(t, pause)
	})
}

// R50: a server that takes the client in and drops it at once is not asked again at once.
func TestHosts_DroppedAtOnce_Pauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := testHosts(t, "zk1:2181", "zk2:2181")
		for range 5 {
			h.Next()
			h.Connected()
			time.Sleep(10 * time.Millisecond)
			_, pause := h.Next()
			require.True(t, pause)
			h.Connected()
			time.Sleep(2 * time.Second)
		}
	})
}

// A server that answers "expired" is well: it is asked for a new session at once.
func TestHosts_Forgive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := testHosts(t, "zk1:2181", "zk2:2181")
		h.Next()
		last, _ := h.Next()
		h.forgive()
		again, pause := h.Next()
		require.Equal(t, last, again)
		require.False(t, pause)
	})
}

// R45: the client looks for its own end only when it pauses.
func TestHosts_Closed_AlwaysPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := testHosts(t, "zk1:2181", "zk2:2181")
		h.close()
		for range 3 {
			_, pause := h.Next()
			require.True(t, pause)
		}
	})
}

// F20, F21: the clock counts suspend, and does not follow the wall clock.
func TestClock_CountsSuspend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		suspended := 5 * time.Minute // before the Session was made
		c := &clock{start: time.Now(), suspended: func() time.Duration { return suspended }, suspended0: suspended}
		require.Zero(t, c.now())
		time.Sleep(time.Second)
		require.Equal(t, at(1), c.now())
		suspended += time.Hour
		require.Equal(t, at(3601), c.now())
		require.Equal(t, time.Now().Add(10*time.Second), c.wall(at(3611)), "for people: so long from now")
	})
}

// F20: somebody sets the wall clock. The lease's clock does not see it.
func TestClock_IgnoresTheWallClock(t *testing.T) {
	c := newClock()
	for _, step := range []int64{3600, -7200} {
		// A time.Time read from both clocks keeps the seconds of the wall clock above 30 bits of nanoseconds. To
		// shift those of the start one way is as good as to set the clock the other.
		before := c.start
		*(*uint64)(unsafe.Pointer(&c.start)) += uint64(step) << 30
		require.Equal(t, time.Duration(step)*time.Second, c.start.Round(0).Sub(before.Round(0)), "package time works otherwise: the wall clock was not set")
		require.InDelta(t, 0, time.Duration(c.now()).Seconds(), 60)
	}
}

// F20, on macOS: somebody sets the wall clock while the time since the boot is worked out, at any point of it, once or again
// and again. No instant is off by that step.
func TestSinceBoot_ClockStep(t *testing.T) {
	const tick = time.Millisecond // passes with each reading
	for _, step := range []time.Duration{time.Hour, -time.Hour} {
		for from := range 8 {
			for steps := range 4 { // so many, one at each reading from that one on
				up, set, readings := 10*time.Hour, time.Duration(0), 0 // set: by how much the wall clock was moved
				read := func() {
					if readings >= from && readings < from+steps {
						set += step
					}
					readings++
					up += tick
				}
				const start = 1000 * time.Hour // by the wall clock as it was
				began := up
				d, ok := sinceBoot(
					func() (time.Duration, bool) { read(); return start + set, true },
					func() time.Duration { read(); return start + up + set })
				require.True(t, ok)
				require.GreaterOrEqual(t, d, began, "steps of %v at %d readings from the %d. on", step, steps, from)
				require.LessOrEqual(t, d, up, "steps of %v at %d readings from the %d. on", step, steps, from)
			}
		}
	}
	_, ok := sinceBoot(func() (time.Duration, bool) { return 0, false }, func() time.Duration { return time.Hour })
	require.False(t, ok)
}

func TestSuspendedTime(t *testing.T) {
	a := suspendedTime()
	require.GreaterOrEqual(t, a, -time.Second)
	require.InDelta(t, a.Seconds(), suspendedTime().Seconds(), 1, "nobody slept in between")
}

func TestBackoff(t *testing.T) {
	b, sum := newBackoff(), time.Duration(0)
	last := time.Duration(0)
	for range 20 {
		d := b.next()
		require.GreaterOrEqual(t, d, last)
		last = d
		sum += d
	}
	require.Equal(t, 5*time.Second, last)
	require.Less(t, sum, 2*time.Minute)
}
