package queue

// The explorer of a Multi's release: two locks, whose deletions share one transaction.

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock/internal/explore"
)

// The model: in each of two lock roots, a hold's node and, behind it, a node of a waiter of the
// same session. One transaction releases both holds (node.Reaper.Begin): for each root it checks
// the waiter's node and deletes the hold's. If it is rejected, or gets no response, each root
// continues by itself (node.Deletion). Between the steps, another client may delete any node, the
// servers may deny a transaction, and a response may be lost, with a request that was executed or
// was not.
//
// The explorer looks for: a handoff to a waiter whose node did not exist; a release that succeeds
// although the node exists, or although another client had deleted it; a loss that is none; a stop.
type (
	sRoot struct {
		hold, next     bool // the nodes exist
		stood          bool // the waiter's node existed when our request deleted the hold's
		ours, theirs   bool // who deleted the hold's
		waits          bool // the waiter may get the handoff
		told           Handoff
		alone          bool // the root continues by itself
		unanswered     bool // for the client: a request of this root got no response
		gotNone        bool // in fact
		released, lost bool // the release's result
	}
	sWorld struct {
		r      [2]sRoot
		faults uint8
	}
	sharedRelease struct {
		after                            func(done bool, failed int, noNode bool) Handoff
		rejectedIsDone, rejectedIsPassed bool
		unansweredIsForgotten            bool // the next NoNode is a loss
		unansweredIsDone                 bool
		noCheck                          bool // the transaction checks the first root's waiter alone
	}
)

// execute runs the requests of some roots as one transaction: all operations or none.
func (x *sharedRelease) execute(w *sWorld, roots []int) (failed int, ok bool) {
	op := 0
	for _, i := range roots {
		r := &w.r[i]
		if r.waits && !(x.noCheck && len(roots) > 1 && i == 1) {
			if op++; !r.next {
				return op - 1, false
			}
		}
		if op++; !r.hold {
			return op - 1, false
		}
	}
	for _, i := range roots {
		r := &w.r[i]
		r.hold, r.ours, r.stood = false, true, r.next
	}
	return -1, true
}

func (r *sRoot) end(lost bool) {
	r.released, r.lost = !lost, lost
	if r.waits && r.told == NoHandoff {
		r.told = HandoffUnknown
	}
}

func (x *sharedRelease) succeed(r *sRoot) {
	if r.waits {
		r.told = x.after(true, -1, false)
	}
	r.end(false)
}

func (x *sharedRelease) steps(w *sWorld, take func(next *sWorld, must bool, what func() string)) {
	step := func(must bool, what string, f func(n *sWorld)) {
		n := *w
		if !must {
			n.faults--
		}
		f(&n)
		take(&n, must, func() string { return what })
	}
	var requests [][]int
	if !w.r[0].alone && !w.r[0].released && !w.r[0].lost {
		requests = [][]int{{0, 1}}
	}
	for i, r := range w.r {
		if r.alone && !r.released && !r.lost {
			requests = append(requests, []int{i})
		}
	}
	for _, roots := range requests {
		each := func(n *sWorld, f func(r *sRoot)) {
			for _, i := range roots {
				f(&n.r[i])
			}
		}
		rejected := func(n *sWorld) {
			each(n, func(r *sRoot) {
				if r.alone = true; x.rejectedIsPassed && r.waits {
					r.told = x.after(true, -1, false)
				}
				if x.rejectedIsDone {
					r.end(false)
				}
			})
		}
		name := "the transaction"
		if len(roots) == 1 {
			name = "the delete of one"
		}
		step(true, name+" is answered", func(n *sWorld) {
			failed, ok := x.execute(n, roots)
			switch r := &n.r[roots[0]]; {
			case ok:
				each(n, x.succeed)
			case len(roots) > 1:
				rejected(n)
			case r.waits && x.after(false, failed, true) == NodeDeleted:
				r.told, r.waits = NodeDeleted, false
			default:
				r.end(!r.unanswered)
			}
		})
		if w.faults == 0 {
			continue
		}
		silent := func(n *sWorld) {
			each(n, func(r *sRoot) {
				r.alone, r.gotNone, r.unanswered = true, true, !x.unansweredIsForgotten
				if x.unansweredIsDone {
					x.succeed(r)
				}
			})
		}
		step(false, "FAULT "+name+" is lost", silent)
		step(false, "FAULT the answer to "+name+" is lost", func(n *sWorld) {
			_, _ = x.execute(n, roots)
			silent(n)
		})
		if len(roots) > 1 {
			step(false, "FAULT "+name+" is denied", rejected)
		}
	}
	for i := range w.r {
		if w.faults > 0 && w.r[i].hold {
			step(false, "FAULT another client deletes a hold's node", func(n *sWorld) { n.r[i].hold, n.r[i].theirs = false, true })
		}
		if w.faults > 0 && w.r[i].next {
			step(false, "FAULT another client deletes a waiter's node", func(n *sWorld) { n.r[i].next = false })
		}
	}
}

func (x *sharedRelease) broken(w *sWorld) string {
	for _, r := range w.r {
		switch {
		case r.told == HandoffIsOurs && (!r.ours || !r.stood):
			return "I1: a handoff to a waiter that was not next"
		case r.released && r.hold:
			return "I4: released, and the node exists"
		case r.released && r.theirs && !r.gotNone:
			return "I5: released, and another client had deleted the node"
		case r.lost && r.ours:
			return "I5: lost, and the node existed until the release"
		}
	}
	return ""
}

func (x sharedRelease) explore(waits [2]bool) explore.Found {
	if x.after == nil {
		x.after = HandoffAfter
	}
	first := sWorld{faults: 4}
	for i := range first.r {
		first.r[i] = sRoot{hold: true, next: waits[i], waits: waits[i]}
	}
	return explore.Model[sWorld]{First: first, Steps: x.steps, Broken: x.broken, Stuck: func(w *sWorld) string {
		for _, r := range w.r {
			if !r.released && !r.lost {
				return "a release has no result"
			}
		}
		return ""
	}}.Run()
}

// I1, I4, I5: the locks of a Multi are released in one transaction, or each by itself.
func TestExploreSharedRelease(t *testing.T) {
	for _, waits := range [][2]bool{{}, {true, false}, {true, true}} {
		found := sharedRelease{}.explore(waits)
		require.Empty(t, found.Broken, "%v", found)
		require.Greater(t, found.States, 30)
		t.Logf("waiters %v: %d states", waits, found.States)
	}
}

// Each mistake breaks a promise.
func TestExploreSharedRelease_WithoutAClause(t *testing.T) {
	for name, c := range map[string]struct {
		x      sharedRelease
		broken string
	}{
		"a rejected transaction is done":               {sharedRelease{rejectedIsDone: true}, "I4"},
		"a rejected transaction hands off":             {sharedRelease{rejectedIsPassed: true}, "I1"},
		"an unanswered transaction is done":            {sharedRelease{unansweredIsDone: true}, "I"},
		"NoNode after an unanswered transaction":       {sharedRelease{unansweredIsForgotten: true}, "I5"},
		"the waiter of the second lock is not checked": {sharedRelease{noCheck: true}, "I1"},
		"a missing waiter's node is a loss": {sharedRelease{after: func(done bool, _ int, _ bool) Handoff {
			if done {
				return HandoffIsOurs
			}
			return NoHandoff
		}}, "I4"},
	} {
		t.Run(name, func(t *testing.T) {
			found := c.x.explore([2]bool{true, true})
			t.Log(found)
			require.Contains(t, found.Broken, c.broken)
		})
	}
}
