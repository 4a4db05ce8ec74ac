package zklock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/zklock/internal/clock"
	"github.com/zklock/zklock/internal/lastzxid"
	"github.com/zklock/zklock/internal/tap"
)

// link is what a Session knows of its servers: the current connection, the current ZooKeeper session, whether requests can
// be sent, and the state that follows from that.
type link struct {
	opts  *sessionOptions
	log   *eventLog
	clock *clock.Clock
	dials *dialer
	zxids lastzxid.Seen // kept in the client's place
	xids  tap.Xids      // of our requests, never used twice

	wake chan struct{}  // has the Session's loop look again; holds one
	work sync.WaitGroup // all goroutines of the Session except its loop, its log and a user's callback; none starts after the link is closed
	feed changeFeed     // of the state's steps

	mu struct {
		sync.Mutex             // never held across a channel that blocks, a callback or a ZooKeeper call
		conn       *connection // the current one; nil before the first
		conns      uint64      // how many there were
		era        *era        // the current ZooKeeper session; nil before the first and after an expiry
		state      stateMachine
		why        error         // why it is closed
		changed    chan struct{} // closed at each change of the above
		askedAfter clock.Instant // when a server, asked after a session that had been silent for long, last said that it is there
	}
}

// connection is one connection to a server. Requests can be sent while the state is attached; on the way there, from left to right:
//
//	dial ──▶ connected ──▶ authenticated ─┬─▶ attached: watches are restored, and then requests go
//	              └──▶ the client's handshake is done ─┘
type connection struct {
	tap    *tap.Tap
	addr   string // of the server, as given to Connect
	shaken bool   // the client has finished its handshake; guarded by link.mu
	authed bool   // the server took the credentials; guarded by link.mu
}

func newLink(opts *sessionOptions, log *eventLog, clk *clock.Clock, addrs []string) *link {
	l := &link{opts: opts, log: log, clock: clk, wake: make(chan struct{}, 1)}
	l.dials = newDialer(opts, clk, addrs, l.spawn)
	l.mu.changed = make(chan struct{})
	return l
}

// broadcastLocked wakes everybody who waits for a change of the link.
func (l *link) broadcastLocked() {
	close(l.mu.changed)
	l.mu.changed = make(chan struct{})
}

// stepLocked runs the state machine and tells the readers of the step, if there was one. Only here does the state change, so
// readers hear of the steps in order, and State already shows a step when they hear of it (R51).
func (l *link) stepLocked(ev stateEvent) {
	defer l.nudge()
	m, changed := l.mu.state.next(ev)
	if !changed {
		return
	}
	l.mu.state = m
	c := Change{State: m.state, SessionID: m.session, Time: time.Now(), Err: ev.err}
	attrs := []any{"state", m.state.String(), "session", fmt.Sprintf("%#x", m.session)}
	if ev.err != nil && ev.err != ErrClosed { // Close is no failure
		attrs = append(attrs, "err", ev.err)
	}
	l.log.info("zklock: connection state", attrs...)
	l.feed.tell(c)
	l.broadcastLocked()
}

// now returns the link's present state. conn is the number of the connection over which requests go, or 0 if none can go.
func (l *link) now() (e *era, t *tap.Tap, conn uint64, state State) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c := l.mu.conn; c != nil {
		if t = c.tap; l.mu.state.state.Attached() {
			conn = t.Seq
		}
	}
	return l.mu.era, t, conn, l.mu.state.state
}

// era returns the current ZooKeeper session, nil if there is none.
func (l *link) era() *era {
	e, _, _, _ := l.now()
	return e
}

// attachedNow returns the ZooKeeper session in which requests go out, nil if none can be sent now. err says why the link is
// closed.
func (l *link) attachedNow() (e *era, changed <-chan struct{}, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.why == nil && l.mu.state.state.Attached() && !l.mu.era.isOver() {
		e = l.mu.era
	}
	return e, l.mu.changed, l.mu.why
}

// attachedEra waits until requests can be sent, and returns the ZooKeeper session they will go out in.
func (l *link) attachedEra(ctx context.Context) (*era, error) {
	for {
		e, changed, err := l.attachedNow()
		if e != nil || err != nil {
			return e, err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, errCtxEnded
		}
	}
}

// tryLimit returns how long a try waits for its answers: two heartbeats. While nothing can be sent, it returns the error that
// the try gets at once.
func (l *link) tryLimit() (time.Duration, error) {
	e, _, err := l.attachedNow()
	switch {
	case err != nil:
		return 0, err
	case e != nil:
		return 2 * heartbeat(e.sessionTimeout()), nil
	}
	err = ErrNotConnected
	if tried := l.dials.whatWasTried(); tried != "" {
		err = fmt.Errorf("%w; tried %s", err, tried)
	}
	return 0, err
}

// carriesLocked says whether requests can be sent in z.
func (l *link) carriesLocked(z *zkSession) bool {
	return l.mu.why == nil && l.mu.state.state.Attached() && l.mu.era.zkSession == z
}

// attachedConn is the number of the connection over which z is attached now, 0 if it is not.
func (l *link) attachedConn(z *zkSession) (seq uint64, changed <-chan struct{}, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.carriesLocked(z) {
		seq = l.mu.conn.tap.Seq
	}
	return seq, l.mu.changed, l.mu.why
}

// send hands a request to the connection over which z is attached. It returns false, and forgets the request, if there is
// none.
func (l *link) send(z *zkSession, r *tap.Request) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.carriesLocked(z) && l.sendLocked(r)
}

func (l *link) sendLocked(r *tap.Request) bool {
	t := l.mu.conn.tap
	ok, write := t.Enqueue(r)
	if !ok {
		l.stepLocked(stateEvent{kind: detached}) // the connection ends; the tap says so next
	}
	if write {
		l.spawnLocked(t.WriteOut)
	}
	return ok
}

// spawn runs f on a goroutine that Close waits for. It returns false, and does not run f, when the link is closed.
func (l *link) spawn(f func()) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.spawnLocked(f)
}

func (l *link) spawnLocked(f func()) bool {
	if l.mu.why != nil {
		return false
	}
	l.work.Add(1)
	go func() {
		defer l.work.Done()
		f()
	}()
	return true
}

// nudge makes the Session's loop look again at what is held and queued.
func (l *link) nudge() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// close makes the link unusable: nothing starts any more, and all who wait are told.
func (l *link) close(why error) {
	l.mu.Lock()
	if l.mu.why != nil {
		l.mu.Unlock()
		return
	}
	l.mu.why = why
	e := l.mu.era
	l.broadcastLocked()
	l.mu.Unlock()
	l.dials.close()
	if e != nil {
		e.lose(why)
	}
	l.mu.Lock()
	l.stepLocked(stateEvent{kind: closed, err: why})
	l.mu.Unlock()
	l.feed.close()
}

// closedErr says why the link is closed.
func (l *link) closedErr() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.why == nil {
		return ErrClosed
	}
	return l.mu.why
}

// clientEvent is the client's event callback, the only lossless source of its events. It runs on the client's
// goroutines: it must not block or call the client.
func (l *link) clientEvent(ev zk.Event) {
	if ev.Type != zk.EventSession || ev.State != zk.StateHasSession {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.conn.shaken = true
	l.attachLocked()
}

// attachLocked lets requests go as soon as the connection has all it needs. The first requests set the watches of the
// connection before it again.
func (l *link) attachLocked() {
	c, e, m := l.mu.conn, l.mu.era, l.mu.state
	if m.state.Attached() || !c.shaken || !c.authed || e == nil || e.isOver() || l.mu.why != nil {
		return
	}
	if m.session != e.id { // the old session is over; its holds may still be hearing of it, one by one
		l.stepLocked(stateEvent{kind: lost, session: m.session, err: errExpired})
	}
	l.stepLocked(stateEvent{kind: attached, session: e.id})
	l.dials.forgetTried()
	for _, r := range e.restore(c.tap.Before()) {
		if !l.sendLocked(r) {
			return // the connection has just ended
		}
	}
}

// lost takes note that z is over. If z was given up, it may still be alive at the servers. But Lost is final, so the client
// does not attach to it again (see report.Connecting).
func (l *link) lost(z *zkSession, cause error) {
	if errors.Is(cause, ErrClosed) || errors.Is(cause, ErrAuthFailed) {
		return // the Session is closed
	}
	l.mu.Lock()
	var t *tap.Tap
	if l.mu.era != nil && l.mu.era.zkSession == z && !errors.Is(cause, errExpired) { // the client knows of an expiry itself
		t = l.mu.conn.tap
	}
	l.stepLocked(stateEvent{kind: lost, session: z.id, err: cause})
	l.mu.Unlock()
	if t != nil {
		t.Cut()
	}
}
