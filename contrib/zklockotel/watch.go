package zklockotel

// Watch: the Session's numbers at each collection, and the changes of its state.

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/zklock/zklock"
)

// Watch collects the metrics of zklock.Stats from the Session until it is closed, and adds the
// changes of its state to the open spans of its holds and waits. The Session is the one that was
// connected with Option. Call Watch once, right after Connect. Holds that Close has ended are
// collected until they are released.
//
// It returns an error, and watches nothing, if the Session is nil, zero or closed, if another open
// Session is already watched, or if the meter returns an error.
func (t *Telemetry) Watch(s *zklock.Session) error {
	if _, err := zklock.NewMutex(s, "/zklockotel"); err != nil { // creates no node, and detects a zero Session
		return fmt.Errorf("zklockotel: %w", err)
	}
	if s.Stats().State == zklock.StateClosed {
		return errors.New("zklockotel: the Session is closed")
	}
	t.watched.Lock()
	defer t.watched.Unlock()
	if before := t.watched.session; before != nil && before.Stats().State != zklock.StateClosed {
		return errors.New("zklockotel: this Telemetry watches a Session: make another Telemetry for each")
	}
	observed, err := t.meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		t.observe(s, o)
		return nil
	}, t.inst.all()...)
	if err != nil {
		return fmt.Errorf("zklockotel: %w", err)
	}
	t.unregister() // the new callback also observes the holds of the previous one
	t.setOver(false)
	t.watched.session, t.watched.observed = s, observed
	changes := s.Changes(context.Background())
	t.attachedTo(s.Stats().Server) // read after Changes: a later change of the server is in changes

	go func() { // ends with the Session
		last := zklock.Change{State: s.Stats().State, Guarded: s.Stats().Guarded}
		for c := range changes {
			if c.State != last.State || c.Guarded == last.Guarded { // otherwise only a guard came or went
				t.step(s, c)
			}
			last = c
		}
		t.closed(s)
	}()
	return nil
}

// attachedTo notes the server of the Session, and returns its attributes, or none if it is unknown.
func (t *Telemetry) attachedTo(server string) (attrs []attribute.KeyValue) {
	if host, port, err := net.SplitHostPort(server); err == nil {
		n, _ := strconv.Atoi(port)
		attrs = []attribute.KeyValue{attribute.String("server.address", valid(host)), attribute.Int("server.port", n)}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mu.server = attrs
	return attrs
}

// serverAttrs returns the attributes of the server to which the Session was last attached.
func (t *Telemetry) serverAttrs() []attribute.KeyValue {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.mu.server
}

// closed notes that the Session is closed, if it is the watched one.
func (t *Telemetry) closed(s *zklock.Session) {
	t.watched.Lock()
	if t.watched.session == s { // no other Session is watched by now
		t.setOver(true)
	}
	t.watched.Unlock()
	t.letGo()
}

func (t *Telemetry) setOver(isOver bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.mu.isOver = isOver; isOver {
		clear(t.mu.campaigns)
	}
}

// letGo ends the callback of a closed Session when all its holds are released.
func (t *Telemetry) letGo() {
	isOver := func() bool {
		t.mu.Lock()
		defer t.mu.Unlock()
		return t.mu.isOver && len(t.mu.holds) == 0
	}
	if !isOver() {
		return
	}
	t.watched.Lock()
	defer t.watched.Unlock()
	if isOver() { // check again: Watch may have a new Session
		t.unregister()
	}
}

// unregister requires that watched is locked.
func (t *Telemetry) unregister() {
	if t.watched.observed != nil {
		_ = t.watched.observed.Unregister() // after an error the callback still runs and observes nothing
		t.watched.observed = nil
	}
}

func (t *Telemetry) observe(s *zklock.Session, o metric.Observer) {
	g, of, st := &t.inst.gauges, t.series.alone, s.Stats()
	lost := t.lost()
	if st.State != zklock.StateClosed || lost > 0 {
		o.ObserveInt64(g.lostUnreleased, lost, of)
	}
	if st.State == zklock.StateClosed {
		return
	}
	attached := int64(0)
	if st.Server != "" {
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

// unreleased returns the holds with at least one handle that is not released.
func (t *Telemetry) unreleased() []hold {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Collect(maps.Values(t.mu.holds))
}

// lost counts the lost holds that are not released. It asks the holds, because the Session drops
// them when it is closed.
func (t *Telemetry) lost() (n int64) {
	for _, h := range t.unreleased() {
		if h.isLost() {
			n++
		}
	}
	return n
}

// campaign is a call of Campaign, also one of Run.
type campaign struct {
	ctx        context.Context // ends with the call (zklock.Trace)
	path, lock string
}

// hasFailed reports whether an error has ended the campaign, and not its caller, Resign or Close.
func (c campaign) hasFailed() bool {
	err, _ := context.Cause(c.ctx).(*zklock.Error)
	return err != nil && err.Op == "campaign" && err.Path == c.path && !errors.Is(err, zklock.ErrClosed)
}

// stands notes a campaign. It replaces the ones of this election that have ended.
func (t *Telemetry) stands(c campaign) {
	t.mu.Lock()
	defer t.mu.Unlock()
	maps.DeleteFunc(t.mu.campaigns, func(_ <-chan struct{}, other campaign) bool { return other.lock == c.lock && other.ctx.Err() != nil })
	t.mu.campaigns[c.ctx.Done()] = c
}

// leaders returns 1 for each election with a valid hold, and 0 for every other election that has a
// candidate or an unreleased hold, or whose candidate failed. It asks the holds, so a pause of the
// process shows.
func (t *Telemetry) leaders() map[string]int64 {
	leads := make(map[string]int64)
	t.mu.Lock()
	maps.DeleteFunc(t.mu.campaigns, func(_ <-chan struct{}, c campaign) bool { return c.ctx.Err() != nil && !c.hasFailed() })
	for _, c := range t.mu.campaigns {
		leads[c.lock] = 0
	}
	t.mu.Unlock()
	for _, h := range t.unreleased() {
		n := int64(0)
		if h.first.Err() == nil { // Err compares the clock with the lease
			n = 1
		}
		if h.kind == zklock.KindElection {
			leads[h.lock] = max(leads[h.lock], n)
		}
	}
	return leads
}

// step adds a change of the Session's state to the open spans. Losses of holds are reported by
// holdLost, one by one.
func (t *Telemetry) step(s *zklock.Session, c zklock.Change) {
	var name string
	attrs := []attribute.KeyValue{attribute.String("zklock.session", fmt.Sprintf("%#x", c.SessionID))}
	switch c.State {
	case zklock.StateSuspended:
		name = "suspended"
		if c.Err != nil {
			attrs = append(attrs, attribute.String("zklock.error", valid(c.Err.Error())))
		}
	case zklock.StateReconnected, zklock.StateConnected:
		name = "back"
		attrs = append(attrs, t.attachedTo(s.Stats().Server)...)
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
