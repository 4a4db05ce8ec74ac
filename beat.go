package zklock

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/zklock/internal/wire"
)

// beats is the heartbeat of a ZooKeeper session: the requests by which it finds out whether its holds stand, whose answers renew the
// lease.
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

// beat sends the heartbeat if something is held, else a cheap read, and says whether it did. What is held is asked after the wish
// for a beat was taken back: a hold that wishes for one is in it. One at a time on a connection:
// answers come in order, so a quorum that is gone stops with the outstanding one all false reassurance. The next one follows
// as soon as it is answered, if that took longer than the interval.
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

// checkHolds checks the held nodes in one transaction (several if they are very many). Its success, which the tap
// sees, renews the lease. A node that is not there, or that we may not read, ends its hold, and the rest is asked again
// at once, because the servers stop at the first failure (R68).
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
		b.holds.loseNode(failed, fmt.Errorf("%w: %w", errUnreadable, err))
	}
	for _, n := range nodes {
		if n != failed && b.holds.holds(n) {
			again = append(again, n)
		}
	}
	return again
}
