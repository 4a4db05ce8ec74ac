package zklockotel

// What the Session itself says: its numbers at each collection, and the steps of its state.

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/zklock/zklock"
)

// Watch has the metrics of zklock.Stats collected from the Session, until that is closed, and puts the steps of its state on the spans of
// its holds and waits that are under way. The Session is the one that was connected with Option: call Watch right after Connect, and once.
// Holds that Close has ended are collected until they are released.
//
// It returns an error, and watches nothing, if the Session is nil, zero or closed, if another one is watched that is not closed, or if the meter refuses.
func (t *Telemetry) Watch(s *zklock.Session) error {
	if _, err := zklock.NewMutex(s, "/zklockotel"); err != nil { // it makes no node, and knows a zero Session
		return fmt.Errorf("zklockotel: %w", err)
	}
	if s.State() == zklock.Closed {
		return errors.New("zklockotel: the Session is closed")
	}
	t.watched.Lock()
	defer t.watched.Unlock()
	if before := t.watched.session; before != nil && before.State() != zklock.Closed {
		return errors.New("zklockotel: this Telemetry watches a Session: make another Telemetry for each")
	}
	observed, err := t.meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		t.observe(s, o)
		return nil
	}, t.inst.all()...)
	if err != nil {
		return fmt.Errorf("zklockotel: %w", err)
	}
	t.unregister() // the new callback observes what the one before has left
	t.setOver(false)
	t.watched.session, t.watched.observed = s, observed
	changes := s.Changes(context.Background())
	go func() { // ends with the Session
		for c := range changes {
			t.step(s, c)
		}
		t.closed(s)
	}()
	return nil
}

// closed says that a Session which was watched is closed.
func (t *Telemetry) closed(s *zklock.Session) {
	t.watched.Lock()
	if t.watched.session == s { // no other is watched by now
		t.setOver(true)
	}
	t.watched.Unlock()
	t.letGo()
}

func (t *Telemetry) setOver(isOver bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mu.isOver = isOver
}

// letGo ends the callback of a closed Session when all its holds are released.
func (t *Telemetry) letGo() {
	isOver := func() bool {
		t.mu.Lock()
		defer t.mu.Unlock()
		return t.mu.isOver && len(t.mu.grants) == 0
	}
	if !isOver() {
		return
	}
	t.watched.Lock()
	defer t.watched.Unlock()
	if isOver() { // still: Watch may have got another
		t.unregister()
	}
}

// unregister is called with watched locked.
func (t *Telemetry) unregister() {
	if t.watched.observed != nil {
		_ = t.watched.observed.Unregister() // an error leaves a callback that observes nothing more
		t.watched.observed = nil
	}
}

func (t *Telemetry) observe(s *zklock.Session, o metric.Observer) {
	g, of, st := &t.inst.gauges, t.series.alone, s.Stats()
	lost := t.lost()
	if st.State != zklock.Closed || lost > 0 {
		o.ObserveInt64(g.lostUnreleased, lost, of)
	}
	if st.State == zklock.Closed {
		return
	}
	attached := int64(0)
	if st.State.Attached() {
		attached = 1
	}
	o.ObserveInt64(g.waiting, int64(st.Waiting), of)
	o.ObserveInt64(g.holds, int64(st.Held), of)
	o.ObserveInt64(g.deletions, int64(st.Deleting), of)
	o.ObserveInt64(g.sessions, 1, of)
	o.ObserveInt64(g.attached, attached, of)
	o.ObserveInt64(g.reconnects, int64(st.Reconnects), of)
	if st.Held > 0 {
		o.ObserveFloat64(g.leaseLeft, st.LeaseLeft.Seconds(), of)
	}
	for lock, leads := range t.leaders() {
		o.ObserveInt64(g.isLeader, leads, t.series.of(key{lock: lock}))
	}
}

// lost counts the holds that were lost and are not released. It asks the holds: the Session forgets them when it is closed.
func (t *Telemetry) lost() (n int64) {
	t.mu.Lock()
	handles := make([]*zklock.Hold, 0, len(t.mu.grants))
	for _, g := range t.mu.grants {
		handles = append(handles, g.handles[0])
	}
	t.mu.Unlock()
	for _, h := range handles {
		if errors.Is(h.Err(), zklock.ErrLost) {
			n++
		}
	}
	return n
}

// stands notes a candidature, whose election has a gauge while it goes on.
func (t *Telemetry) stands(lock string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mu.standing[lock]++
}

// stood notes that it is over: the candidate is elected, or has given up.
func (t *Telemetry) stood(lock string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.mu.standing[lock]--; t.mu.standing[lock] == 0 {
		delete(t.mu.standing, lock)
	}
}

// leaders returns 1 for each election in which a hold stands, and 0 for the others with a candidate or a hold that is not released. It asks the
// holds, so that a pause of the process shows.
func (t *Telemetry) leaders() map[string]int64 {
	t.mu.Lock()
	elections := make(map[string][]*zklock.Hold, len(t.mu.elections))
	for lock := range t.mu.standing {
		elections[lock] = nil
	}
	for lock, holds := range t.mu.elections {
		elections[lock] = slices.Clone(holds)
	}
	t.mu.Unlock()
	leads := make(map[string]int64, len(elections))
	for lock, holds := range elections {
		leads[lock] = 0
		if slices.ContainsFunc(holds, func(h *zklock.Hold) bool { return h.Err() == nil }) {
			leads[lock] = 1
		}
	}
	return leads
}

// step puts a step of the Session's state on the spans that are open. That a hold is lost, holdLost says of each.
func (t *Telemetry) step(s *zklock.Session, c zklock.Change) {
	var name string
	attrs := []attribute.KeyValue{attribute.String("zklock.session", fmt.Sprintf("%#x", c.SessionID))}
	switch c.State {
	case zklock.Suspended:
		name = "suspended"
		if c.Err != nil {
			attrs = append(attrs, attribute.String("zklock.error", valid(c.Err.Error())))
		}
	case zklock.Reconnected, zklock.Connected:
		name = "back"
		if server := s.Stats().Server; server != "" {
			attrs = append(attrs, attribute.String("zklock.server", server))
		}
	default:
		return
	}
	t.mu.Lock()
	var open []*op
	for o := range t.mu.open {
		if !o.began.After(c.Time) {
			open = append(open, o)
		}
	}
	t.mu.Unlock()
	for _, o := range open {
		o.span.AddEvent(name, trace.WithTimestamp(c.Time), trace.WithAttributes(attrs...))
	}
}
