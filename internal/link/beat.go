package link

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/zklock/internal/answer"
	"github.com/zklock/zklock/internal/wire"
)

// beatNow says whether a beat is wanted at once, and can be sent over conn.
func (z *Era) beatNow(conn uint64) bool {
	z.mu.Lock()
	defer z.mu.Unlock()
	return conn != 0 && z.mu.soon && z.mu.beating != conn
}

// beat sends the heartbeat if something is held, else a cheap read, and says whether it did. It takes the wish for a beat back
// first, and only then asks what is held: so the beat checks every hold that has wished for one.
//
// There is one beat at a time on a connection. Answers come in order. So if the quorum is gone, the unanswered heartbeat holds
// back all later answers, and nothing reassures falsely. If the answer takes longer than the interval, the next beat follows
// at once.
func (z *Era) beat(conn uint64) bool {
	z.mu.Lock()
	if z.mu.beating == conn {
		z.mu.Unlock()
		return false
	}
	z.mu.beating, z.mu.soon = conn, false
	z.mu.Unlock()
	return z.Carrier.Spawn(func() {
		if nodes := z.checkedNodes(); len(nodes) > 0 {
			z.checkHolds(nodes)
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

// checkHolds checks the held nodes in one transaction, or in several if they are very many. The tap sees its success and
// renews the lease. If a node is not there, or we may not read it, its hold ends. The servers stop at the first failure, so
// checkHolds asks about the rest again at once (R68).
func (z *Era) checkHolds(nodes []string) {
	const maxBytes = 256 << 10 // servers close the connection at 1 MB
	for len(nodes) > 0 {
		n, size := 0, 0
		for n < len(nodes) && (n == 0 || size < maxBytes) {
			size += len(nodes[n]) + 32
			n++
		}
		nodes = append(z.checkNodes(nodes[:n]), nodes[n:]...)
	}
}

// checkNodes returns the nodes that must be asked about again.
func (z *Era) checkNodes(nodes []string) (again []string) {
	failed, err := z.Check(context.Background(), nodes...)
	switch {
	case failed == "":
		z.noteBeat(err)
		return nil
	case errors.Is(err, zk.ErrNoNode):
		z.LoseNode(failed, ErrNodeGone)
	default:
		z.LoseNode(failed, fmt.Errorf("%w: %w", ErrUnreadable, answer.Denied(err, "check", "READ", failed)))
	}
	for _, n := range nodes {
		if n != failed && z.IsHeld(n) {
			again = append(again, n)
		}
	}
	return again
}

// noteBeat logs that the servers refuse the heartbeat, once until they accept one again. Without an answer, nothing has changed.
func (z *Era) noteBeat(err error) {
	refused := answer.IsRefusal(err)
	if err != nil && !refused {
		return
	}
	z.mu.Lock()
	before := z.mu.refused
	z.mu.refused = refused
	z.mu.Unlock()
	if refused && !before {
		z.Log.Error("zklock: the servers refuse the heartbeat; the holds end with the lease", "err", err)
	}
}
