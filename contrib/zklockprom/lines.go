package zklockprom

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/zklock/zklock"
)

// election is AcquireInfo.Kind of an election.
const election = "election"

var (
	longestWaitDesc = describe("zklock_longest_wait_seconds", "How long the longest acquire under way has waited.", "lock", "kind")
	longestHoldDesc = describe("zklock_longest_hold_seconds", "How long the longest hold has not been released.", "lock", "kind")
	leaderDesc      = describe("zklock_is_leader", "Whether this process, which is a candidate, leads.", "lock")
	unreleasedDesc  = describe("zklock_holds_lost_unreleased", "Holds that were lost and are not released: work may run beside the next holder.")

	byLine = []*prometheus.Desc{longestWaitDesc, longestHoldDesc, leaderDesc, unreleasedDesc}
)

// lineKey names a line: a label and AcquireInfo.Kind.
type lineKey struct{ lock, kind string }

// line is the acquires under way and the holds of the locks that have one label and one kind.
type line struct {
	lineKey
	waits map[*wait]struct{}
	holds map[string]*hold // by the lock node, which has a name of its own (Hold.Node)

	acquired, held, overrun prometheus.Observer // looked up once
}

// wait is an acquire under way. AcquireEnd finds it in the context.
type wait struct{ since time.Time }

type waitKey struct{ m *Metrics }

// hold is a hold that is not released.
type hold struct {
	first   *zklock.Hold // the handle that was seen first
	since   time.Time
	handles []*zklock.Hold // that are not released
	lost    bool           // counted as such
}

// lineLocked returns the line of an acquire. The first call for a label makes the series that alerts look at, with 0. That helps from the next scrape
// on: Prometheus sees no increase in a series in which its first scrape finds 1. For an acquire that fails before, ZklockAcquireFails looks at
// new series, too.
func (m *Metrics) lineLocked(a zklock.AcquireInfo) *line {
	key := lineKey{m.names.label(a), a.Kind}
	l := m.lines[key]
	if l == nil {
		l = &line{lineKey: key, waits: make(map[*wait]struct{}), holds: make(map[string]*hold)}
		l.acquired, l.held, l.overrun = m.acquires.WithLabelValues(l.lock, l.kind, acquired), m.held.WithLabelValues(l.lock, l.kind), m.overrun.WithLabelValues(l.lock)
		m.acquires.WithLabelValues(l.lock, l.kind, failed)
		for _, reason := range reasons {
			m.lost.WithLabelValues(l.lock, reason)
		}
		m.lines[key] = l
	}
	return l
}

var reasons = []string{zklock.LossNoServer, zklock.LossNoQuorum, zklock.LossPaused, zklock.LossSession, zklock.LossNode, zklock.LossUnreadable,
	zklock.LossAuth, zklock.LossClosed, zklock.LossOther}

func (m *Metrics) acquireStart(ctx context.Context, a zklock.AcquireInfo) context.Context {
	m.mu.Lock()
	defer m.mu.Unlock()
	w := &wait{time.Now()}
	m.lineLocked(a).waits[w] = struct{}{}
	return context.WithValue(ctx, waitKey{m}, w)
}

func (m *Metrics) acquireEnd(ctx context.Context, a zklock.AcquireEndInfo) {
	w, _ := ctx.Value(waitKey{m}).(*wait)
	m.mu.Lock()
	defer m.mu.Unlock()
	l := m.lineLocked(a.AcquireInfo)
	delete(l.waits, w)
	switch {
	case a.Err != nil:
		m.acquires.WithLabelValues(l.lock, l.kind, outcomeOf(a.Err)).Observe(a.Waited.Seconds())
	case !a.Reentered:
		l.acquired.Observe(a.Waited.Seconds())
	}
	if a.Hold != nil {
		l.addLocked(a.Hold)
	}
}

// addLocked adds a handle to its hold. A handle that re-enters may come, and go, before the one that it re-enters.
func (l *line) addLocked(handle *zklock.Hold) {
	h := l.holds[handle.Node()]
	if h == nil {
		h = &hold{first: handle, since: time.Now()}
		l.holds[handle.Node()] = h
	}
	h.handles = append(h.handles, handle)
}

// holdLost counts a hold with the first of its handles.
func (m *Metrics) holdLost(_ context.Context, i zklock.HoldInfo) {
	m.mu.Lock()
	defer m.mu.Unlock()
	l := m.lineLocked(i.AcquireInfo)
	if h := l.holds[i.Hold.Node()]; h != nil && !h.lost {
		h.lost = true
		m.lost.WithLabelValues(l.lock, i.Reason).Inc()
	}
}

// holdEnd ends a hold with the last of its handles: it was held, and overran, until then.
func (m *Metrics) holdEnd(_ context.Context, i zklock.HoldInfo) {
	m.mu.Lock()
	defer m.mu.Unlock()
	l := m.lineLocked(i.AcquireInfo)
	h := l.holds[i.Hold.Node()]
	if h == nil {
		return
	}
	h.handles = slices.DeleteFunc(h.handles, func(other *zklock.Hold) bool { return other == i.Hold })
	if len(h.handles) > 0 {
		return
	}
	delete(l.holds, i.Hold.Node())
	held := i.Held
	if h.first != i.Hold { // released before this one
		held = time.Since(h.since)
	}
	l.held.Observe(held.Seconds())
	if i.Reason != "" {
		l.overrun.Observe(i.Overrun.Seconds())
	}
}

// longestLocked returns how long the longest wait and the longest hold have lasted.
func (l *line) longestLocked(now time.Time) (waits, holds time.Duration) {
	for w := range l.waits {
		waits = max(waits, now.Sub(w.since))
	}
	for _, h := range l.holds {
		holds = max(holds, now.Sub(h.since))
	}
	return waits, holds
}

// collectLines asks the holds themselves how they stand, and neither their Session, which forgets them when it is closed, nor hold.lost, for
// which another trace may make it wait: work that goes on must show.
func (m *Metrics) collectLines(ch chan<- prometheus.Metric) {
	var unreleased []*zklock.Hold              // a handle of each hold
	leaders := make(map[string][]*zklock.Hold) // of those, the ones that may lead
	var gauges []prometheus.Metric
	m.mu.Lock()
	now := time.Now()
	for _, l := range m.lines {
		waits, holds := l.longestLocked(now)
		gauges = append(gauges, gauge(longestWaitDesc, waits.Seconds(), l.lock, l.kind), gauge(longestHoldDesc, holds.Seconds(), l.lock, l.kind))
		first := len(unreleased)
		for _, h := range l.holds {
			unreleased = append(unreleased, h.handles[0])
		}
		if l.kind == election && len(l.waits)+len(l.holds) > 0 { // a program that stands no more is not asked for a leader
			leaders[l.lock] = unreleased[first:]
		}
	}
	m.mu.Unlock()
	lost := 0
	for _, h := range unreleased {
		if errors.Is(h.Err(), zklock.ErrLost) {
			lost++
		}
	}
	gauges = append(gauges, gauge(unreleasedDesc, lost))
	for lock, holds := range leaders {
		leads := 0
		for _, h := range holds {
			if h.Err() == nil { // it compares the clock with the lease
				leads = 1
			}
		}
		gauges = append(gauges, gauge(leaderDesc, leads, lock))
	}
	for _, g := range gauges {
		ch <- g
	}
}
