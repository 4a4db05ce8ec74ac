package shards

// This test measures what docs/shards.md says that a group costs: requests, events and bytes, in
// virtual time.

import (
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/zktest"
)

// countedConn counts what a client sends and receives.
type countedConn struct {
	net.Conn
	bytes *atomic.Int64
}

func (c countedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.bytes.Add(int64(n))
	return n, err
}

func (c countedConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.bytes.Add(int64(n))
	return n, err
}

// counted wraps a way to the servers.
func counted(dial zk.Dialer, bytes *atomic.Int64) zk.Dialer {
	return func(network, address string, timeout time.Duration) (net.Conn, error) {
		conn, err := dial(network, address, timeout)
		if err != nil {
			return nil, err
		}
		return countedConn{conn, bytes}, nil
	}
}

// cost is what all members have sent and received.
type cost struct {
	requests, events int // without pings
	beats            int // transactions: heartbeats, and plans
	bytes            int64
	moves            int
}

// cost returns what f costs, without what is sent at rest.
func (w *world) cost(rest cost, f func()) cost {
	time.Sleep(time.Minute) // nothing of what was before is counted
	synctest.Wait()
	w.reset()
	w.srv.ResetRequests()
	bytes := w.bytes.Load()
	f()
	synctest.Wait()
	counts := w.srv.Requests()
	c := cost{requests: counts.Total(), events: counts.Events, bytes: w.bytes.Load() - bytes, beats: counts.Total(zktest.Multi)}
	c.moves, _ = w.reset()
	w.t.Logf("%+v; %v", c, counts)
	if rest.beats > 0 {
		beats := c.beats - 1 // a plan
		c.requests -= beats + counts.Total(zktest.Exists)
		c.bytes -= rest.bytes * int64(beats) / int64(rest.beats)
	}
	return c
}

// The page's numbers for 256 shards and 8 members, with the default session timeout and lease.
func TestVirtual_Cost(t *testing.T) {
	inWorld(t, 256, func(t *testing.T, w *world) {
		w.session = []zklock.Option{zklock.WithSessionTimeout(30 * time.Second), zklock.WithLease(zklock.QuorumLease(0))}
		w.started(8)
		rest := w.cost(cost{}, func() { time.Sleep(10 * time.Minute) })
		joined := (*proc)(nil)
		join := w.cost(rest, func() {
			joined = w.join("new")
			w.within(w.quiet+time.Second, "join", w.isEven)
			time.Sleep(time.Second)
		})
		leave := w.cost(rest, func() {
			joined.leave()
			w.within(time.Second, "leave", w.isEven)
			time.Sleep(time.Second)
		})
		for _, p := range slices.Clone(w.procs) { // each member has waited for its shards since, and watches their nodes
			p.leave()
			w.join(p.name)
			time.Sleep(time.Second)
		}
		w.within(w.quiet, "even", w.isEven)
		moved := w.cost(cost{}, func() { time.Sleep(10 * time.Minute) })
		for _, c := range []struct {
			what             string
			is               cost
			requests, events int
			kilobytes        float64
		}{
			{"10 minutes at rest", rest, 2090, 0, 5_800},
			{"10 minutes at rest after a rolling restart", moved, 2600, 0, 5_900},
			{"a member joins", join, 210, 100, 60},
			{"a member leaves", leave, 210, 130, 70},
		} {
			assert.Contains(t, []int{0, 28}, c.is.moves)
			t.Logf("%s: %d moves, %d requests, %d events, %.1f kB", c.what, c.is.moves, c.is.requests, c.is.events, float64(c.is.bytes)/1000)
			assert.InDelta(t, c.requests, c.is.requests, float64(c.requests)/8, "%s: requests", c.what)
			assert.LessOrEqual(t, c.is.events, c.events, "%s: events", c.what)
			assert.InDelta(t, c.kilobytes, float64(c.is.bytes)/1000, c.kilobytes/4, "%s: kB", c.what)
		}
	})
}
