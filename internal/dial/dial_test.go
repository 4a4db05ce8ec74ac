package dial

// These tests attack dial.go: which server is next, and after what pause.

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock/internal/clock"
)

func testHosts(t *testing.T, addrs ...string) *hosts {
	t.Helper()
	return newHosts(addrs, clock.New(func() time.Duration { return 0 }))
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

// A name has seven addresses, and none answers within a share of the time. In every other lap one of them has all of it.
func TestDialing_ManyAddresses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		addrs := strings.Fields("a b c d e f g")
		longest := map[string]time.Duration{}
		for lap := range 2 * (1 + len(addrs)) {
			to := To{lap: lap, quick: 400 * time.Millisecond << min(lap, 10), Deadline: time.Now().Add(1300 * time.Millisecond), Last: "a:2181"}
			order := to.inTurn(addrs, "2181")
			require.ElementsMatch(t, addrs, order)
			for i, a := range order {
				d := to.limit(len(order) - i)
				longest[a] = max(longest[a], d)
				if to.shares() {
					require.InDelta(t, 185*time.Millisecond, d, float64(time.Millisecond))
				}
				time.Sleep(max(0, d))
			}
			require.False(t, time.Now().After(to.Deadline))
			if to.shares() {
				require.Equal(t, "a", order[6], "the last connection's")
			}
		}
		for _, a := range addrs {
			require.GreaterOrEqual(t, longest[a], 1300*time.Millisecond, a)
		}
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

// The first try is at once, each further one after a rest of half to all of what the caller allows. The client is sent away from a long
// rest for its own pause, and gets the same server again.
func TestHosts_Rests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := New(Config{}, clock.New(func() time.Duration { return 0 }), []string{"zk1:2181", "zk2:2181"}, nil)
		defer d.Close()
		longest := func(laps, servers int) time.Duration {
			require.Equal(t, 2, servers)
			return 800 * time.Millisecond
		}
		began := time.Now()
		rested := func() time.Duration { defer func() { began = time.Now() }(); return time.Since(began) }
		first, _ := d.hosts.Next()
		require.NoError(t, d.Rest(longest))
		require.Zero(t, rested())
		second, pause := d.hosts.Next()
		require.False(t, pause)
		require.NotEqual(t, first, second)
		require.NoError(t, d.Rest(longest))
		require.InDelta(t, 600*time.Millisecond, rested(), float64(200*time.Millisecond))

		third, _ := d.hosts.Next()
		tries := 0
		for ; d.Rest(func(int, int) time.Duration { return 20 * time.Second }) != nil; tries++ {
			again, pause := d.hosts.Next()
			require.True(t, pause)
			require.Equal(t, third, again)
			time.Sleep(time.Second)
		}
		require.InDelta(t, 15*time.Second, rested(), float64(5*time.Second))
		require.Greater(t, tries, 8)
		require.Equal(t, 1, d.hosts.lap(), "no try was made")

		d.hosts.Next()
		require.Error(t, d.Rest(func(int, int) time.Duration { return time.Hour }))
		d.hosts.Next()
		require.NoError(t, d.Rest(func(int, int) time.Duration { return 0 }), "there is something to lose now")
		require.Zero(t, rested())

		d.hosts.Next()
		d.hosts.Connected()
		d.hosts.Next()
		require.NoError(t, d.Rest(longest), "the server was well")
		require.Zero(t, rested())
	})
}

// Close ends a rest.
func TestHosts_Rest_Close(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := New(Config{}, clock.New(func() time.Duration { return 0 }), []string{"zk1:2181"}, nil)
		d.hosts.Next()
		require.NoError(t, d.Rest(func(int, int) time.Duration { return time.Second }))
		began := time.Now()
		d.hosts.Next()
		time.AfterFunc(time.Millisecond, d.Close)
		require.Error(t, d.Rest(func(int, int) time.Duration { return time.Second }))
		require.Equal(t, time.Millisecond, time.Since(began))
	})
}
