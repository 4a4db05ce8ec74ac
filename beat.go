package zklock

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/zklock/internal/wire"
)

// beats is the heartbeat of a ZooKeeper session: requests that ask whether its holds stand. Their answers renew the lease.
type beats struct {
	z     *zkSession
	holds checkedHolds

	mu struct {
		sync.Mutex        // never held across a channel, a callback or a ZooKeeper call
		under      uint64 // the connection over which a beat is under way
		soon       bool   // a beat is wanted at once
	}
}

// checkedHolds are the holds that the heartbeat looks after.
type checkedHolds interface {
	heldNodes() []string
	holds(node string) bool
	loseNode(node string, cause error)
}

// hurry says whether a beat is wanted at once.
func (b *beats) hurry(soon bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.soon = soon
}

// beatNow says whether a beat is wanted at once, and can be sent over conn.
func (b *beats) beatNow(conn uint64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return conn != 0 && b.mu.soon && b.mu.under != conn
}

// beat sends the heartbeat if something is held, else a cheap read, and says whether it did. It takes the wish for a beat back
// first, and only then asks what is held: so the beat checks every hold that has wished for one.
//
// There is one beat at a time on a connection. Answers come in order. So if the quorum is gone, the unanswered heartbeat holds
// back all later answers, and nothing reassures falsely. If the answer takes longer than the interval, the next beat follows
// at once.
func (b *beats) beat(conn uint64) bool {
	b.mu.Lock()
	if b.mu.under == conn {
		b.mu.Unlock()
		return false
	}
	b.mu.under, b.mu.soon = conn, false
	b.mu.Unlock()
	return b.z.carrier.spawn(func() {
		if nodes := b.holds.heldNodes(); len(nodes) > 0 {
			b.checkHolds(nodes)
		} else {
			_, _ = b.z.askAs(context.Background(), wire.OpExists, wire.PathWatchRequest{Path: "/"}, true)
		}
		b.mu.Lock()
		if b.mu.under == conn {
			b.mu.under = 0
		}
		b.mu.Unlock()
		b.z.carrier.nudge()
	})
}

// checkHolds checks the held nodes in one transaction, or in several if they are very many. The tap sees its success and
// renews the lease. If a node is not there, or we may not read it, its hold ends. The servers stop at the first failure, so
// checkHolds asks about the rest again at once (R68).
func (b *beats) checkHolds(nodes []string) {
	const maxBytes = 256 << 10 // servers close the connection at 1 MB
	for len(nodes) > 0 {
		n, size := 0, 0
		for n < len(nodes) && (n == 0 || size < maxBytes) {
			size += len(nodes[n]) + 32
			n++
		}
		nodes = append(b.checkNodes(nodes[:n]), nodes[n:]...)
	}
}

// checkNodes returns the nodes that must be asked about again.
func (b *beats) checkNodes(nodes []string) (again []string) {
	failed, err := b.z.check(context.Background(), nodes...)
	switch {
	case failed == "":
		if isRefusal(err) {
			b.z.log.error("zklock: the servers refuse the heartbeat; the holds end with the lease", "err", err)
		}
		return nil
	case errors.Is(err, zk.ErrNoNode):
		b.holds.loseNode(failed, errNodeGone)
	default:
		b.holds.loseNode(failed, fmt.Errorf("%w: %w", errUnreadable, denied(err, "check", "READ", failed)))
	}
	for _, n := range nodes {
		if n != failed && b.holds.holds(n) {
			again = append(again, n)
		}
	}
	return again
}
