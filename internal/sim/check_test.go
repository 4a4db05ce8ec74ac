package sim

// The checks of the record against the promises.

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/zktest"
)

// The checks of the promises, by the name under which they are counted.
const (
	sawBounds       = "calls within their bounds (I6)"
	sawReleases     = "confirmed releases whose node was gone (I4)"
	sawTries        = "tries in vain with somebody ahead"
	sawGrants       = "grants on the own live node of the session (I2, I3)"
	sawOrder        = "grants in the order of the queue (I8)"
	sawTokens       = "tokens (I1)"
	sawBeliefs      = "beliefs apart (I5)"
	sawFirstLooks   = "losses seen at the first look after a pause (F18)"
	sawOwners       = "owners with one node at a time (I2)"
	sawBehindItself = "owners behind a node that they had given up (I2)"
	sawLeft         = "owners behind a node of a session that was left to expire (I2)"
	sawPermits      = "grants within the limit (I1)"
	sawWaits        = "waits of a semaphore that ended after the faults (F48)"
	sawDelays       = "grants after a holder disappeared (F47)"
	sawOnce         = "works that were not begun again (I1)"
	sawLeaders      = "observers that agree"
	sawRoots        = "roots left empty (I4)"
	sawMutex        = "operations linearized (mutex)"
	sawRegister     = "operations linearized (register)"
)

// sawAll lists the checks that must have run after some dozens of worlds: a check without any input
// has checked nothing.
var sawAll = []string{sawBounds, sawReleases, sawTries, sawGrants, sawOrder, sawTokens, sawBeliefs, sawFirstLooks, sawOwners, sawBehindItself, sawRoots, sawMutex, sawRegister}

// simGrace is how long a call may exceed its limit: the library's grace, and a little more.
const simGrace = 510 * time.Millisecond

// check compares the history with I1–I6 and I8, and counts its checks.
func (r *record) check(checked map[string]int) (violations []string) {
	failf := func(o *op, format string, args ...any) {
		violations = append(violations, fmt.Sprintf("%s (%v, %v after the start)", fmt.Sprintf(format, args...), o, o.at.Sub(r.start)))
	}
	byPath, queue := r.nodes()
	grants := map[string][]*op{}
	for _, o := range r.ops {
		if o.granted() && o.permits == 0 {
			grants[path.Dir(o.node)] = append(grants[path.Dir(o.node)], o)
		}
		r.checkCall(o, byPath, queue, checked, failf)
	}
	violations = append(violations, r.checkPermits(byPath, checked)...)
	violations = append(violations, r.checkOnce(byPath, checked)...)
	for lock, q := range queue {
		if !slices.IsSortedFunc(slices.DeleteFunc(slices.Clone(q), func(n *lockNode) bool { return n.beside }), func(a, b *lockNode) int { return cmp.Compare(a.czxid, b.czxid) }) {
			violations = append(violations, "the servers' history is out of order")
		}
		r.checkGrants(grants[lock], byPath, q, checked, failf)
	}
	violations = append(violations, r.checkOwners(byPath, checked)...)
	return violations
}

// checkCall: I6, and the node that the call's result implies.
func (r *record) checkCall(o *op, byPath map[string]*lockNode, queue map[string][]*lockNode, checked map[string]int, failf func(*op, string, ...any)) {
	if o.did == wrote || o.did == readBack {
		return
	}
	checked[sawBounds]++
	if took := o.end.Sub(o.at); took > o.bound+simGrace {
		failf(o, "I6: took %v with a bound of %v", took, o.bound)
	}
	switch {
	case o.did == reentered && o.err == nil:
		if o.node != o.grant.node || o.token != o.grant.token {
			failf(o, "I2: re-entered on another node than %s", o.grant.node)
		}
	case o.did == released && o.err == nil && o.call == o.grant.until:
		if w := o.grant.beside; w != nil && (w.until == 0 || w.until > o.call) {
			return // the reader's node goes after the writer's
		}
		checked[sawReleases]++
		for _, node := range o.grant.all() {
			if n := byPath[node]; n == nil || n.there() || n.deleted.After(o.end) {
				failf(o, "I4: confirmed, and %s was there", node)
			}
		}
	case o.did == tried && errors.Is(o.err, zklock.ErrNotAcquired) && o.permits == 0 && !o.amid:
		checked[sawTries]++
		var made, ahead bool
		for _, q := range queue {
			for i, n := range q {
				if n.owner == o.owner {
					made = true
					ahead = ahead || slices.ContainsFunc(q[:i], func(m *lockNode) bool { return m.blocks(n) && (m.there() || m.dzxid > n.czxid) })
				}
			}
		}
		var e *zklock.Error
		hasDetails := errors.As(o.err, &e)
		if !made && hasDetails { // it checked first, and created no node
			ahead = slices.ContainsFunc(queue[e.Path], func(m *lockNode) bool {
				return !m.made.After(o.end) && (m.there() || !m.deleted.Before(o.at))
			})
		}
		if hasDetails && e.DelayUntil.After(o.at) { // the lock-delay lasts
			ahead = ahead || r.disappeared(byPath, e.Path, o.end)
		}
		if !ahead {
			failf(o, "refused, and nobody was ahead")
		}
	}
}

// disappeared reports whether the node that the lock root's data names was deleted, and its name
// was not: the holder did not release.
func (r *record) disappeared(byPath map[string]*lockNode, lock string, until time.Time) bool {
	held := ""
	for _, a := range r.applied {
		if a.Kind == zktest.DataSet && a.Path == lock && !a.Time.After(until) {
			held = holderIn(a.Data)
		}
	}
	n := byPath[lock+"/"+held]
	return n != nil && !n.there() && !n.deleted.After(until)
}

// checkGrants: I1, I3, I5 and I8, for the grants of one lock, in the order in which they were
// given.
func (r *record) checkGrants(grants []*op, byPath map[string]*lockNode, queue []*lockNode, checked map[string]int, failf func(*op, string, ...any)) {
	slices.SortFunc(grants, func(a, b *op) int { return cmp.Compare(a.ret, b.ret) })
	place, latest := map[string]int{}, latestAhead(queue)
	for i, n := range queue {
		place[n.path] = i
	}
	var before []*op // the last exclusive grant, and the shared grants after it
	for _, g := range grants {
		n := byPath[g.node]
		if n == nil {
			failf(g, "I3: granted on a node that never was")
			continue
		}
		if _, yes := r.paused(g.client, g.ret); yes && g.lost {
			continue // by a timer that a real pause stops; the first check saw the loss
		}
		checked[sawGrants]++
		switch {
		case n.owner != g.owner:
			failf(g, "I2: granted on the node of %s", n.owner)
		case g.session != 0 && n.session != g.session:
			failf(g, "I3: granted in session %#x on a node of session %#x", g.session, n.session)
		case !n.there() && n.deleted.Before(g.end) && !n.touched:
			failf(g, "I3: granted %v after its node was deleted", g.end.Sub(n.deleted))
		}
		checked[sawOrder]++
		if m := latest[place[g.node]]; !n.beside && m != nil && (m.there() || m.deleted.After(g.end)) {
			failf(g, "I1, I8: granted while %s of %s, which is ahead, was there", m.path, m.owner)
		}
		checked[sawTokens]++
		if n.beside && (g.beside == nil || g.token != g.beside.token) || !n.beside && g.token != n.czxid {
			failf(g, "I1: the token is not the czxid %#x", n.czxid)
		}
		if !n.there() && n.deleted.Before(g.end) {
			continue // the node was deleted under the grant: no client waits for the end of this hold
		}
		for _, old := range before {
			r.checkPair(old, g, byPath[old.node], checked, failf)
		}
		if !g.shared {
			before = nil
		}
		before = append(before, g)
	}
}

// latestAhead returns, for each node of a queue, the node ahead of it that blocks it and was
// deleted last, or that exists.
func latestAhead(queue []*lockNode) []*lockNode {
	var latest []*lockNode
	var any, alone *lockNode // of all nodes so far, and of those that block readers
	later := func(a, b *lockNode) *lockNode {
		if a == nil || a.there() || !b.there() && !b.deleted.After(a.deleted) {
			return cmp.Or(a, b)
		}
		return b
	}
	for _, n := range queue {
		if n.reads {
			latest = append(latest, alone)
		} else {
			latest, alone = append(latest, any), later(alone, n)
		}
		any = later(any, n)
	}
	return latest
}

// checkPair: I1 and I5, for a grant and an earlier one.
func (r *record) checkPair(old, g *op, its *lockNode, checked map[string]int, failf func(*op, string, ...any)) {
	if g.token < old.token && !old.shared || g.token <= old.token && !g.shared {
		failf(g, "I1: after the token %#x", old.token)
	}
	if !g.excludes(old) {
		return
	}
	checked[sawBeliefs]++
	if old.until != 0 && old.until <= g.ret {
		return
	}
	told := r.firstLook(old, g.ret)
	if told {
		checked[sawFirstLooks]++
	}
	if !told && !its.touched {
		failf(g, "I5: granted while the holder of %s with token %#x believed, for %v more", old.node, old.token, old.untilAt.Sub(g.end))
	}
}

// firstLook reports whether a holder was paused then, and was notified at the first check after the
// pause (F18).
func (r *record) firstLook(g *op, then int64) bool {
	to, paused := r.paused(g.client, then)
	return paused && g.until != 0 && g.until <= to
}

// checkOwners: I2, no owner has two nodes at a time. Exceptions are a node that it gave up and that
// was still being deleted, and a node whose session was left to expire because no server confirmed
// its end.
func (r *record) checkOwners(byPath map[string]*lockNode, checked map[string]int) (violations []string) {
	gaveUp := map[string]bool{} // attempts
	amid := map[string]bool{}   // attempts of a Multi, which gives up nodes while it waits for others
	for _, o := range r.ops {
		amid[o.owner] = amid[o.owner] || o.amid
		switch {
		case o.did == acquired || o.did == tried || o.did == once:
			gaveUp[o.owner] = o.err != nil
		case o.did == released && errors.Is(o.err, zklock.ErrNotConfirmed):
			gaveUp[o.owner] = true
		}
	}
	of := map[string][]*lockNode{}
	for _, n := range byPath {
		if owner, _, is := strings.Cut(n.owner, "/"); is && !n.beside { // the nodes of semaphores do not name their owners
			owner = path.Join(path.Dir(n.path), owner)
			of[owner] = append(of[owner], n)
		}
	}
	for _, all := range of {
		checked[sawOwners]++
		slices.SortFunc(all, func(a, b *lockNode) int { return cmp.Compare(a.czxid, b.czxid) })
		for i := 1; i < len(all); i++ {
			old, n := all[i-1], all[i]
			switch {
			case !old.there() && old.dzxid < n.czxid:
			case old.session == n.session && (old.owner != n.owner && gaveUp[old.owner] || amid[old.owner]):
				checked[sawBehindItself]++
			case r.left[old.session]:
				checked[sawLeft]++
			default:
				violations = append(violations, fmt.Sprintf("I2: %s made %s while its %s was there", n.owner, n.path, old.path))
			}
		}
	}
	return violations
}
