package sim

// The checks of single recipes: the permits of a semaphore, work that is done once, and the
// lock-delay.

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/zktest"
)

// mostAllowed returns the largest limit of a semaphore in an interval of the record.
func (r *record) mostAllowed(lock int, from, to int64) (most int) {
	before := usualLimit // as the interval begins
	for _, c := range r.limits {
		switch {
		case c.lock != lock || c.from >= to:
		case c.to <= from:
			before = c.n
		default:
			most = max(most, c.n)
		}
	}
	return max(most, before)
}

// patience is how long a call of a semaphore may wait after the faults have ended: all sessions
// that were cut off have expired, and each other caller may hold once.
const patience = 150 * time.Second

// checkPermits: I1, the leases of believed holds, up to the last lease of a grant, are never more
// than the limit allowed during the call. Later leases are behind it, and earlier ones are only
// deleted.
// F48: once the faults have ended, each call that waits is granted.
func (r *record) checkPermits(byPath map[string]*lockNode, checked map[string]int) (violations []string) {
	grants := map[int][]*op{}
	for _, o := range r.ops {
		switch {
		case o.permits == 0:
		case o.granted():
			grants[o.lock] = append(grants[o.lock], o)
		case o.did == acquired && errors.Is(o.err, context.DeadlineExceeded) && o.end.Sub(r.healed) > patience:
			violations = append(violations, fmt.Sprintf("F48: waited in vain for %v after the faults (%v)", o.end.Sub(r.healed), o))
		}
		if o.permits > 0 && o.granted() && o.end.After(r.healed) {
			checked[sawWaits]++
		}
	}
	intact := func(g *op) bool { // no admin took a lease
		return !slices.ContainsFunc(g.nodes, func(node string) bool { n := byPath[node]; return n == nil || n.touched })
	}
	for lock, all := range grants {
		slices.SortFunc(all, func(a, b *op) int { return cmp.Compare(a.ret, b.ret) })
		for i, g := range all {
			if len(g.nodes) != g.permits {
				violations = append(violations, fmt.Sprintf("I1: %d leases for %d permits (%v)", len(g.nodes), g.permits, g))
			}
			if g.until != 0 && g.until < g.ret || g.lost && r.asleep(g) || !intact(g) {
				continue
			}
			checked[sawPermits]++
			used, last := 0, numberOf(slices.MaxFunc(g.nodes, func(a, b string) int { return strings.Compare(numberOf(a), numberOf(b)) }))
			for _, h := range all[:i+1] {
				if (h.until == 0 || h.until > g.ret) && intact(h) && !r.firstLook(h, g.ret) {
					for _, node := range h.nodes {
						if numberOf(node) <= last {
							used++
						}
					}
				}
			}
			if most := r.mostAllowed(lock, g.call, g.ret); used > most {
				violations = append(violations, fmt.Sprintf("I1: %d permits in use, and a limit of at most %d since the call (%v)", used, most, g))
			}
		}
	}
	return violations
}

// asleep reports whether the client was paused when its call returned.
func (r *record) asleep(g *op) bool { _, yes := r.paused(g.client, g.ret); return yes }

func keyOf(work int) string { return fmt.Sprint("work-", work) }

// checkOnce: no holder begins work that a call has reported as done, and no call reports work as
// done that no holder has begun. A holder whose node an admin had deleted by then, or with its
// session, cannot be notified in time, so it may begin.
func (r *record) checkOnce(byPath map[string]*lockNode, checked map[string]int) (violations []string) {
	type work struct{ lock, key int }
	done, begun := map[work]int64{}, map[work]int64{}
	earliest := func(m map[work]int64, w work, at int64) {
		if first, ok := m[w]; !ok || at < first {
			m[w] = at
		}
	}
	for _, o := range r.ops {
		if w := (work{o.lock, o.value}); o.did == once {
			if o.err == nil {
				earliest(done, w, o.ret)
			}
			if o.point != 0 {
				earliest(begun, w, o.point)
			}
		}
	}
	for _, o := range r.ops {
		if o.did != once {
			continue
		}
		w := work{o.lock, o.value}
		if at, ok := done[w]; ok && o.ret > at {
			checked[sawOnce]++
			if o.point > at && o.believed && !byPath[o.grant.node].takenBy(o.grant.end) {
				violations = append(violations, fmt.Sprintf("%s is begun again (%v)", keyOf(o.value), o))
			}
		}
		if at, ok := begun[w]; o.err == nil && (!ok || at > o.ret) {
			violations = append(violations, fmt.Sprintf("%s is reported as done, and was not begun (%v)", keyOf(o.value), o))
		}
	}
	return violations
}

// doneKeys returns the last works of a lock that were reported as done. Once keeps a hundred.
func (r *record) doneKeys(lock int) (keys []int) {
	for _, o := range r.ops {
		if o.did == once && o.lock == lock && o.err == nil && !slices.Contains(keys, o.value) {
			keys = append(keys, o.value)
		}
	}
	return keys[max(0, len(keys)-50):]
}

// checkDelays reads the servers' history of the locks, and checks each grant that a record names.
func checkDelays(history []zktest.Applied, lock string, d time.Duration, checked map[string]int) (violations []string) {
	failf := func(zxid int64, format string, args ...any) {
		violations = append(violations, fmt.Sprintf("F47: %s, zxid %#x: %s", lock, zxid, fmt.Sprintf(format, args...)))
	}
	alive := map[string]bool{}
	held := ""
	var gone time.Time // when the last holder disappeared; zero if it released
	for i := 0; i < len(history); {
		zxid, at := history[i].Zxid, history[i].Time
		deleted, now, isSet := false, held, false
		for ; i < len(history) && history[i].Zxid == zxid; i++ {
			a := history[i]
			name := path.Base(a.Path)
			switch {
			case a.Kind == zktest.DataSet && a.Path == lock:
				now, isSet = holderIn(a.Data), true
			case path.Dir(a.Path) != lock:
			case a.Kind == zktest.Created:
				alive[name] = true
			case a.Kind == zktest.Deleted:
				delete(alive, name)
				deleted = deleted || name == held
			}
		}
		switch {
		case deleted && isSet && now == "":
			gone = time.Time{}
		case deleted:
			gone = at
			if now != held {
				failf(zxid, "the record of %s is overwritten with its node's deletion", held)
			}
		case now != held && now == "":
			failf(zxid, "the record of %s is deleted without its node", held)
		case now != held:
			if !alive[now] {
				failf(zxid, "the record names %s, which does not exist", now)
			}
			if alive[held] {
				failf(zxid, "%s is granted beside %s", now, held)
			}
			if !gone.IsZero() {
				checked[sawDelays]++
				if at.Sub(gone) < d {
					failf(zxid, "%s is granted %v after %s disappeared", now, at.Sub(gone), held)
				}
			}
			gone = time.Time{}
		}
		held = now
	}
	return violations
}

// holderIn returns the node that a record names.
func holderIn(data []byte) string {
	for word := range strings.FieldsSeq(string(data)) {
		if node, ok := strings.CutPrefix(word, "held="); ok {
			return node
		}
	}
	return ""
}

// withWord sets a word of data, and keeps all other words.
func withWord(data, word string) string {
	name, _, _ := strings.Cut(word, "=")
	words := []string{word}
	for w := range strings.FieldsSeq(data) {
		if !strings.HasPrefix(w, name+"=") {
			words = append(words, w)
		}
	}
	return strings.Join(words, " ")
}

// settleLock checks that a client can take a lock after all faults.
func (w *world) settleLock(wk *worker) {
	if w.kind.recipe == works {
		for _, key := range w.rec.doneKeys(wk.lock) {
			if o := wk.doOnce(key, time.Minute); o.err != nil {
				w.failf("after all faults: %v", o)
			}
		}
	}
	h, g := wk.acquire(false, time.Minute)
	if h == nil {
		w.failf("after all faults: %s cannot be had: %v", w.locks[wk.lock], g.err)
		return
	}
	if w.kind.recipe == election {
		w.leads(h)
	}
	if data, _ := w.ens.Get(w.locks[wk.lock]); w.kind.recipe == delayed && holderIn(data) != path.Base(h.Node()) {
		w.failf("F47: the record of %s is %q", h.Node(), data)
	}
	wk.release(h, g, time.Minute)
}

// leads checks that every observer sees the one leader.
func (w *world) leads(h *zklock.Hold) {
	time.Sleep(10 * time.Second)
	for _, c := range w.client {
		w.sum.checked[sawLeaders]++
		if seen := c.leader.Load(); seen == nil || seen.Node != h.Node() {
			w.failf("client %d sees the leader %+v, and %s leads", c.id, seen, h.Node())
		}
	}
}
