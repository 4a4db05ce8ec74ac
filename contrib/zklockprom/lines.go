package zklockprom

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/zklock/zklock"
)

const acquired, failed = "acquired", "error" // AcquireEndInfo.Outcome

var (
	longestWaitDesc = describe("zklock_longest_wait_seconds", "How long the longest acquire under way has waited.", "lock", "kind")
	longestHoldDesc = describe("zklock_longest_hold_seconds", "How long the longest hold has not been released.", "lock", "kind")
	leaderDesc      = describe("zklock_is_leader", "Whether this process, which is a candidate, leads.", "lock")
	unreleasedDesc  = describe("zklock_holds_lost_unreleased", "Holds that were lost and are not released: work may run beside the next holder.")

	byLine = []*prometheus.Desc{longestWaitDesc, longestHoldDesc, leaderDesc, unreleasedDesc}
)

type lineKey struct{ lock, kind string }

// line counts the acquires under way and the holds of all locks with one label and one kind.
type line struct {
	lineKey
	waits map[*wait]struct{}
	holds map[*zklock.Hold]time.Time // by the first handle of each hold that has not ended: the time of the grant

	campaigns map[<-chan struct{}]campaign // of elections, by the end of their contexts

	acquired, held, overrun prometheus.Observer // looked up once
}

// wait is an acquire under way. AcquireEnd finds it in the context.
type wait struct{ since time.Time }

type waitKey struct{ m *Metrics }

// campaign is a call of Campaign, also one of Run.
type campaign struct {
	ctx  context.Context // ends with the call (zklock.Trace)
	path string
}

// hasFailed reports whether an error has ended the campaign, and not its caller, Resign or Close.
func (c campaign) hasFailed() bool {
	err, _ := context.Cause(c.ctx).(*zklock.Error)
	return err != nil && err.Op == "campaign" && err.Path == c.path && !errors.Is(err, zklock.ErrClosed)
}

// isLost reports whether a hold was lost, by its first handle, which may be released already. Err
// compares the clock with the lease. All handles share Lost.
func isLost(first *zklock.Hold) bool {
	_ = first.Err()
	select {
	case <-first.Lost():
		return true
	default:
		return false
	}
}

// lineLocked returns the line of an acquire. The first call for a label creates the series that
// alerts use, with 0. That helps from the next scrape on, because Prometheus sees no increase in a
// series whose first sample is 1. For an acquire that fails before that scrape, ZklockAcquireFails
// also looks at new series.
func (m *Metrics) lineLocked(a zklock.AcquireInfo) *line {
	key := lineKey{m.names.label(a), string(a.Kind)}
	l := m.lines[key]
	if l == nil {
		l = &line{lineKey: key, waits: make(map[*wait]struct{}), holds: make(map[*zklock.Hold]time.Time), campaigns: make(map[<-chan struct{}]campaign)}
		l.acquired, l.held, l.overrun = m.acquires.WithLabelValues(l.lock, l.kind, acquired), m.held.WithLabelValues(l.lock, l.kind), m.overrun.WithLabelValues(l.lock)
		m.acquires.WithLabelValues(l.lock, l.kind, failed)
		for _, reason := range reasons {
			m.lost.WithLabelValues(l.lock, string(reason))
		}
		m.lines[key] = l
	}
	return l
}

var reasons = []zklock.Loss{zklock.LossNoServer, zklock.LossNoQuorum, zklock.LossPaused, zklock.LossSession, zklock.LossNode, zklock.LossUnreadable,
	zklock.LossAuth, zklock.LossClosed, zklock.LossOther}

func (m *Metrics) acquireStart(ctx context.Context, a zklock.AcquireInfo) context.Context {
	m.mu.Lock()
	defer m.mu.Unlock()
	w, l := &wait{time.Now()}, m.lineLocked(a)
	if l.waits[w] = struct{}{}; a.Kind == zklock.KindElection {
		maps.DeleteFunc(l.campaigns, func(_ <-chan struct{}, c campaign) bool { return c.ctx.Err() != nil })
		l.campaigns[ctx.Done()] = campaign{ctx, a.Path}
	}
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
		m.acquires.WithLabelValues(l.lock, l.kind, a.Outcome).Observe(a.Waited.Seconds())
	case !a.Reentered:
		l.acquired.Observe(a.Waited.Seconds())
		l.holds[a.First] = time.Now()
	}
}

func (m *Metrics) holdLost(_ context.Context, i zklock.HoldInfo) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lost.WithLabelValues(m.lineLocked(i.AcquireInfo).lock, string(i.Reason)).Inc()
}

// holdEnd ends a hold with its last handle: until then it counts as held, or as overrunning.
func (m *Metrics) holdEnd(_ context.Context, i zklock.HoldInfo) {
	if !i.Last {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	l := m.lineLocked(i.AcquireInfo)
	for _, other := range m.lines { // the last handle may have re-entered the lock under another name
		if _, ok := other.holds[i.First]; ok {
			l = other
			delete(l.holds, i.First)
			break
		}
	}
	l.held.Observe(i.Held.Seconds())
	if i.Reason != "" {
		l.overrun.Observe(i.Overrun.Seconds())
	}
}

// longestLocked returns the duration of the longest wait and of the longest hold.
func (l *line) longestLocked(now time.Time) (waits, holds time.Duration) {
	for w := range l.waits {
		waits = max(waits, now.Sub(w.since))
	}
	for _, since := range l.holds {
		holds = max(holds, now.Sub(since))
	}
	return waits, holds
}

// collectLines asks the holds themselves. isOpen reports whether a watched Session is open. Their
// Session drops them when it is closed, and HoldLost may have to wait for another trace, but work
// that continues must show.
func (m *Metrics) collectLines(ch chan<- prometheus.Metric, isOpen bool) {
	var unreleased []*zklock.Hold              // the first handle of each hold
	leaders := make(map[string][]*zklock.Hold) // the holds among them that may lead
	var gauges []prometheus.Metric
	m.mu.Lock()
	now := time.Now()
	for _, l := range m.lines {
		waits, holds := l.longestLocked(now)
		gauges = append(gauges, gauge(longestWaitDesc, waits.Seconds(), l.lock, l.kind), gauge(longestHoldDesc, holds.Seconds(), l.lock, l.kind))
		first := len(unreleased)
		unreleased = slices.AppendSeq(unreleased, maps.Keys(l.holds))
		maps.DeleteFunc(l.campaigns, func(_ <-chan struct{}, c campaign) bool { return c.ctx.Err() != nil && !(isOpen && c.hasFailed()) })
		if l.kind == string(zklock.KindElection) && len(l.waits)+len(l.holds)+len(l.campaigns) > 0 { // a program without a candidate has no is_leader
			leaders[l.lock] = unreleased[first:]
		}
	}
	m.mu.Unlock()
	lost := 0
	for _, h := range unreleased {
		if isLost(h) {
			lost++
		}
	}
	gauges = append(gauges, gauge(unreleasedDesc, lost))
	for lock, holds := range leaders {
		leads := 0
		if slices.ContainsFunc(holds, func(h *zklock.Hold) bool { return h.Err() == nil }) { // Err compares the clock with the lease
			leads = 1
		}
		gauges = append(gauges, gauge(leaderDesc, leads, lock))
	}
	for _, g := range gauges {
		ch <- g
	}
}
