package link

import (
	"maps"
	"slices"

	"github.com/zklock/zklock/internal/invariants"
)

// invariantsOf returns the check that is run when the session's mutex is unlocked. It also
// compares the state with the state of the previous unlock.
func invariantsOf(z *ZKSession) (check func()) {
	if !invariants.Enabled {
		return nil
	}
	end, timeout, heard, served := z.mu.lease.End(), z.mu.lease.Timeout(), z.mu.heard, z.mu.served
	return func() {
		l := &z.mu.lease
		invariants.Check(l.Timeout() <= timeout, "the session timeout never grows in a ZooKeeper session (F45)", "from %v to %v", timeout, l.Timeout())
		invariants.Check(l.End() >= end || l.Timeout() < timeout, "the lease's end never moves back in a ZooKeeper session, unless its timeout shrinks (I5)",
			"by %v, with the timeout %v", end.Sub(l.End()), timeout)
		invariants.Check(z.mu.heard >= heard && z.mu.served >= served && z.mu.heard >= z.mu.served, "the last response is never followed by an earlier one (F51)",
			"heard %v, then %v; served %v, then %v", heard, z.mu.heard, served, z.mu.served)
		end, timeout, heard, served = l.End(), l.Timeout(), z.mu.heard, z.mu.served

		held, kept := z.mu.held, z.mu.kept
		isOver := z.HasEnded()
		invariants.Check(isOver == (z.mu.cause != nil), "a ZooKeeper session ends with a cause", "ended %t, cause %v", isOver, z.mu.cause)
		if isOver && len(held)+len(kept) > 0 {
			invariants.Check(false, "nothing is held in a ZooKeeper session that has ended (I3)",
				"held %q, kept %q", slices.Collect(maps.Keys(held)), slices.Collect(maps.Keys(kept)))
		}
		for node, by := range invariants.Sample(held) {
			invariants.Check(by != nil && kept[node] == nil, "a node is held, or kept without a caller that relies on it", "%s is both, or has no holder", node)
		}
	}
}
