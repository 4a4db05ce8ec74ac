package dial

// These tests attack dial.go: which server is next, and after what pause.

import (
	"context"
	"crypto/tls"
	"io"
	"net"
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

// R110: each address of a name is tried once a lap, the last connection's last, without a pause or
// a rest in between. Each may take one heartbeat interval, doubled in each lap.
func TestDial_SeveralAddresses_EachOnceALap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := map[string][]string{"zk1": strings.Fields("192.0.2.1 192.0.2.2 2001:db8::3"), "zk2": {"192.0.2.4"}}
		var tried []string
		how := Config{
			Lookup: func(_ context.Context, host string) ([]string, error) { return now[host], nil },
			Connect: func(ctx context.Context, _, addr string) (net.Conn, error) {
				tried = append(tried, addr)
				<-ctx.Done()
				return nil, ctx.Err()
			},
		}
		d := New(how, clock.New(func() time.Duration { return 0 }), []string{"zk1:2181", "zk2:2181"}, func(f func()) bool { go f(); return true })
		defer d.Close()
		d.hosts.mu.addrs = []string{"zk1:2181", "zk2:2181"} // shuffled otherwise
		for lap := range 3 {
			tried = nil
			for i := range 4 {
				server, pause := d.hosts.Next()
				require.Equal(t, lap > 0 && i == 0, pause, "lap %d, try %d", lap, i)
				began := time.Now()
				require.NoError(t, d.Rest(func(int, int) time.Duration { return time.Minute / 100 }))
				require.Equal(t, (lap == 0 || i > 0) && i != 3, time.Since(began) == 0, "lap %d, try %d: one rest before each server", lap, i)
				began = time.Now()
				limit := d.Limit(time.Second)
				require.Equal(t, time.Second<<lap, limit)
				_, _, err := d.Dial(To{Addr: server, Last: "192.0.2.1:2181", Limit: limit, Deadline: began.Add(time.Minute)})
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.Equal(t, limit, time.Since(began))
			}
			require.Equal(t, strings.Fields("192.0.2.2:2181 [2001:db8::3]:2181 192.0.2.1:2181 192.0.2.4:2181"), tried)
		}
		for _, ip := range append(now["zk1"], "192.0.2.4") {
			require.Contains(t, d.Tried(), " at "+ip+" (context deadline exceeded)")
		}
		now["zk1"] = []string{"192.0.2.9"}
		for range 2 {
			server, _ := d.hosts.Next()
			_, _, err := d.Dial(To{Addr: server, Limit: time.Second, Deadline: time.Now().Add(time.Minute)})
			require.Error(t, err)
		}
		require.Equal(t, "zk1:2181 at 192.0.2.9 (context deadline exceeded), zk2:2181 at 192.0.2.4 (context deadline exceeded)", d.Tried())
	})
}

// A server that has accepted the session is well: its other addresses are not the next to try.
func TestDial_SeveralAddresses_ConnectedEndsTheTurn(t *testing.T) {
	for _, well := range []func(h *hosts){(*hosts).Connected, (*hosts).forgive} {
		h := testHosts(t, "zk1:2181", "zk2:2181")
		h.Next()
		h.setUntried([]string{"a", "b"})
		require.Equal(t, "a", h.nextUntried())
		well(h)
		require.Empty(t, h.nextUntried())
	}
}

// Each step of a try has the limit to itself: a slow dial leaves TLS its time. All share the
// deadline.
func TestDial_EachStepHasItsLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, tt := range []struct{ deadline, ends time.Duration }{{time.Minute, 1900 * time.Millisecond}, {1200 * time.Millisecond, 1200 * time.Millisecond}} {
			how := Config{TLS: &tls.Config{}, Dialer: func(_, _ string, limit time.Duration) (net.Conn, error) {
				require.Equal(t, time.Second, limit)
				time.Sleep(900 * time.Millisecond)
				c, mute := net.Pipe()
				go func() { _, _ = io.Copy(io.Discard, mute) }()
				return c, nil
			}}
			d := New(how, clock.New(func() time.Duration { return 0 }), []string{"zk1:2181"}, nil)
			began := time.Now()
			_, _, err := d.Dial(To{Addr: "zk1:2181", Limit: time.Second, Deadline: began.Add(tt.deadline)})
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.Equal(t, tt.ends, time.Since(began))
			d.Close()
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

// The first try is at once, each further one after a rest of half to all of what the caller allows.
// In a long rest the client is sent back to its own pause, and then gets the same server again.
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
		d.hosts.Connected()
		d.hosts.Next()
		require.NoError(t, d.Rest(longest))
		require.NotZero(t, rested(), "two servers in a row have answered nothing")
		d.Served()
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
