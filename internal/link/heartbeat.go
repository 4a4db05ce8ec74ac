package link

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/zklock/internal/reply"
	"github.com/zklock/zklock/internal/wire"
)

// heartbeatNow reports whether a heartbeat is due at once and can be sent over conn.
func (z *ZKSession) heartbeatNow(conn uint64) bool {
	z.mu.Lock()
	defer z.mu.Unlock()
	return conn != 0 && z.mu.soon && z.mu.beating != conn
}

// sendHeartbeat sends the heartbeat if something is held, otherwise a cheap read, and reports
// whether it sent one. It clears the request for a heartbeat before it collects the held nodes, so
// it checks every hold that has requested one.
//
// At most one heartbeat is in flight on a connection, and responses arrive in order. So if the
// quorum is lost, the unanswered heartbeat delays all later responses, and none falsely renews the
// lease. If the response takes longer than the interval, the next heartbeat follows at once.
func (z *ZKSession) sendHeartbeat(conn uint64) bool {
	z.mu.Lock()
	if z.mu.beating == conn {
		z.mu.Unlock()
		return false
	}
	z.mu.beating, z.mu.soon = conn, false
	z.mu.Unlock()
	return z.Carrier.Spawn(func() {
		if nodes := z.CheckedNodes(); len(nodes) > 0 {
			z.noteHeartbeat(conn, z.checkHolds(nodes))
		} else {
			_, _ = z.askAs(context.Background(), wire.OpExists, wire.PathWatchRequest{Path: "/"}, true)
		}
		z.mu.Lock()
		if z.mu.beating == conn {
			z.mu.beating = 0
		}
		z.mu.Unlock()
		z.Carrier.Nudge()
	})
}

// checkHolds checks the held nodes in one transaction, or in several if there are very many. The
// mux observes its success and renews the lease. The hold of a node that does not exist or may not
// be read ends. The servers stop at the first failure, so the remaining nodes are checked again at
// once (R68). checkHolds returns the error of the last transaction, unless one node is the reason
// for it.
func (z *ZKSession) checkHolds(nodes []string) (err error) {
	const each = 32 // maximum length of a node's entry, without its path
	most := min(256<<10, z.Longest)
	for len(nodes) > 0 {
		n, size := 0, 0
		for n < len(nodes) && (n == 0 || size+len(nodes[n])+each <= most) {
			size += len(nodes[n]) + each
			n++
		}
		var again []string
		again, err = z.checkNodes(nodes[:n])
		nodes = append(again, nodes[n:]...)
	}
	return err
}

// checkNodes returns the nodes that must be checked again, or an error that concerns all of them.
func (z *ZKSession) checkNodes(nodes []string) (again []string, err error) {
	failed, err := z.Check(context.Background(), nodes...)
	switch {
	case failed == "":
		return nil, err
	case errors.Is(err, zk.ErrNoNode):
		z.LoseNode(failed, ErrNodeGone)
	default:
		z.LoseNode(failed, fmt.Errorf("%w: %w", ErrUnreadable, reply.Denied(err, "check", "READ", failed)))
	}
	for _, n := range nodes {
		if n != failed && z.IsHeld(n) {
			again = append(again, n)
		}
	}
	return again, nil
}

// failing is a run of heartbeats without a success.
type failing struct {
	err   error  // of the last heartbeat; nil if there is no such run
	conn  uint64 // the connection that it was sent over
	times int    // how many have failed over that connection
}

// noteHeartbeat notes the outcome of a heartbeat that was sent over conn, and logs the first
// failure of a run. No response changes nothing.
func (z *ZKSession) noteHeartbeat(conn uint64, err error) {
	rejected := reply.IsRefusal(err)
	if z.HasEnded() || err != nil && !rejected && reply.IsAny(err, zk.ErrConnectionClosed, ErrClosed) {
		return
	}
	z.mu.Lock()
	before, server := z.mu.failing, z.mu.server
	switch {
	case err == nil:
		z.mu.failing = failing{}
	case conn == before.conn:
		z.mu.failing = failing{reply.WithCode(err), conn, before.times + 1}
	default:
		z.mu.failing = failing{reply.WithCode(err), conn, 1}
	}
	z.mu.Unlock()
	switch {
	case rejected && !reply.IsRefusal(before.err):
		z.Log.Error("zklock: the servers reject the heartbeat; the holds end with the lease", "err", err)
	case err != nil && before.err == nil:
		z.Log.Warn("zklock: heartbeats fail; unless one succeeds, the holds end with the lease", "server", server, "err", reply.WithCode(err))
	}
}

// heartbeatsFail returns an error if a hold is at stake and two heartbeats over conn have failed:
// another connection may serve them.
func (z *ZKSession) heartbeatsFail(conn uint64) error {
	z.mu.Lock()
	defer z.mu.Unlock()
	if f := z.mu.failing; len(z.mu.held) > 0 && f.conn == conn && f.times >= 2 {
		return fmt.Errorf("%d heartbeats have failed, the last with %w", f.times, f.err)
	}
	return nil
}
