package link

// This test attacks heartbeat.go: a heartbeat checks all that is held when it is sent.

import (
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock/internal/clock"
	"github.com/zklock/zklock/internal/eventlog"
	"github.com/zklock/zklock/internal/lease"
	"github.com/zklock/zklock/internal/mux"
	"github.com/zklock/zklock/internal/reply"
	"github.com/zklock/zklock/internal/wire"
)

// laterOn delays the functions that it is to spawn, and answers every request alike.
type laterOn struct {
	Carrier
	answer mux.Reply
	run    []func()
}

func (c *laterOn) Spawn(f func()) bool { c.run = append(c.run, f); return true }
func (c *laterOn) Nudge()              {}
func (c *laterOn) AttachedConn(*ZKSession) (uint64, <-chan struct{}, error) {
	return c.answer.Conn, nil, nil
}
func (c *laterOn) Send(_ *ZKSession, r *mux.Request) bool { r.Done(c.answer); return true }

// sessionOver is a session that is attached over the carrier's connection.
func sessionOver(c *laterOn) *ZKSession {
	r := mux.Response{Timeout: 10 * time.Second, SessionID: 7}
	z := NewZKSession(c, &eventlog.Log{}, clock.New(nil), lease.SingleServer(), r, "10.0.0.1:2181", c.answer.Conn, lease.Exchange{})
	z.Inside = &lodger{}
	return z
}

// lossOf notes the nodes of lost holds.
type lossOf struct{ nodes []string }

func (l *lossOf) Lose(node string, _ error, _ clock.Instant) bool {
	l.nodes = append(l.nodes, node)
	return true
}

// I5: a hold begins just after the loop has checked for holds. It requests a heartbeat, and this
// heartbeat clears that request: so this heartbeat must check the hold.
func TestHeartbeat_HeldSinceTheCheck_IsChecked(t *testing.T) {
	const conn, node = 3, "/locks/a/own"
	gone := multiBody(wire.MultiResult{Op: wire.OpError, Err: wire.NoNode})
	c := &laterOn{answer: mux.Reply{Fate: mux.WasAnswered, Conn: conn, Body: gone}}
	z := sessionOver(c)
	require.True(t, z.sendHeartbeat(conn))
	require.False(t, z.sendHeartbeat(conn), "one at a time on a connection")
	lost := &lossOf{}
	ok, err := z.Hold(node, lost)
	require.NoError(t, err)
	require.True(t, ok)
	require.Len(t, c.run, 1)
	c.run[0]()
	require.Equal(t, []string{node}, lost.nodes, "the beat's answer is about what is held")
	z.mu.soon = true
	require.True(t, z.heartbeatNow(conn))
	require.False(t, z.heartbeatNow(0), "there is no connection")
	require.True(t, z.sendHeartbeat(conn))
	require.False(t, z.heartbeatNow(conn))
}

// R111: heartbeats have failed over a connection, and all holds were released before the Session
// left it. The next hold does not end the connection, and a loss of it does not name those errors.
// A hold besides the first forgets nothing.
func TestHeartbeatsFail_BeforeTheHold_ReportsNothing(t *testing.T) {
	const conn = 3
	z := sessionOver(&laterOn{answer: mux.Reply{Conn: conn}})
	hold := func() {
		ok, err := z.Hold("/locks/a/own", &lossOf{})
		require.NoError(t, err)
		require.True(t, ok)
	}
	hold()
	for range 2 {
		z.noteHeartbeat(conn, wire.Throttled)
	}
	hold() // besides the first
	require.ErrorIs(t, z.heartbeatsFail(conn), wire.Throttled)
	clear(z.mu.held)
	require.NoError(t, z.heartbeatsFail(conn))
	hold()
	require.NoError(t, z.heartbeatsFail(conn))
	require.NoError(t, z.mu.failing.err)
}

func multiBody(results ...wire.MultiResult) []byte {
	return wire.Frame(wire.MultiResponse{Results: results})[4:]
}

// I1, I5: a server answers a heartbeat with more or fewer results than it has nodes, or without the
// missing node. No hold ends for it.
func TestCheck_MalformedAnswer(t *testing.T) {
	for name, a := range map[string]mux.Reply{
		"no results":          {Body: multiBody()},
		"one":                 {Body: multiBody(wire.MultiResult{Op: wire.OpCheck})},
		"three, one an error": {Body: multiBody(wire.MultiResult{Op: wire.OpCheck}, wire.MultiResult{Op: wire.OpCheck}, wire.MultiResult{Op: wire.OpError, Err: wire.NoNode})},
		"NoNode of which":     {Code: wire.NoNode},
	} {
		t.Run(name, func(t *testing.T) {
			a.Fate, a.Conn = mux.WasAnswered, 3
			failed, err := sessionOver(&laterOn{answer: a}).Check(t.Context(), "/locks/a/own", "/locks/a/other")
			require.Error(t, err)
			require.Empty(t, failed, "it is nobody's fault")
		})
	}
}

// A request that servers would not read is refused here, and not tried again.
func TestTooLong(t *testing.T) {
	most := mux.NewRequest(wire.OpCreate, wire.Raw(make([]byte, wire.MaxFrame-8)), nil)
	require.NoError(t, TooLong(most, wire.MaxFrame))
	long := TooLong(most, wire.MaxFrame-1)
	require.ErrorIs(t, long, zk.ErrBadArguments)
	require.True(t, reply.IsRefusal(long), "and is not tried again")
}

// The *zk.Conn under the Session was closed: that closes the Session.
func TestErrConnClosed(t *testing.T) { require.ErrorIs(t, errConnClosed, ErrClosed) }
