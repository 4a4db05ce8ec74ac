package zklock

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/zklock/internal/clock"
	"github.com/zklock/zklock/internal/lastzxid"
	"github.com/zklock/zklock/internal/tap"
	"github.com/zklock/zklock/internal/wire"
)

// link is the connection as the ZooKeeper client's goroutines and the tap report it: which one it is, which ZooKeeper
// session it carries, whether requests can be sent, and the state that follows from that, of whose steps it tells.
//
// A request can be sent while the state is attached. On the way there, from left to right on each connection:
//
//	dial ──▶ connected ──▶ authenticated ─┬─▶ attached: watches are restored, and then requests go
//	              └──▶ the client's handshake is done ─┘
type link struct {
	opts  *sessionOptions
	log   *eventLog
	clock *clock.Clock
	dials *dialer
	zxids lastzxid.Seen // kept in the client's place
	xids  tap.Xids      // of our requests, never used twice
	// Servers before 3.6 close the connection when they are asked for a ZooKeeper session's own nodes. So they are asked no more when
	// they have said so, or did not answer a few times in a row, and not at all where that would end holds.
	ownListsFailed atomic.Int32

	wake chan struct{}  // what the Session's loop looks at has changed; holds one
	work sync.WaitGroup // every goroutine of the Session's but its loop, its log and a user's callback; none starts after the link is closed

	mu struct {
		sync.Mutex          // never held across a channel that blocks, a callback or a ZooKeeper call
		tap        *tap.Tap // the current connection
		conns      uint64   // how many connections there were
		era        *era     // the current ZooKeeper session; nil before the first and after an expiry
		shaken     bool     // the client has finished its handshake
		authed     bool     // the server took the credentials
		state      stateMachine
		why        error                       // why it is closed
		changed    chan struct{}               // closed at each change of the above
		askedAfter clock.Instant               // when a server last said that the session is still there, which was silent for long
		readers    map[chan Change]func() bool // of the steps; the function, if it is there yet, stops listening to the reader's context
	}
}

func newLink(opts *sessionOptions, log *eventLog, clk *clock.Clock, addrs []string) *link {
	l := &link{opts: opts, log: log, clock: clk, wake: make(chan struct{}, 1)}
	l.dials = newDialer(opts, clk, addrs, l.spawn)
	if opts.endOnSuspend {
		l.ownListsFailed.Store(mostOwnListsFailed)
	}
	l.mu.changed = make(chan struct{})
	l.mu.readers = make(map[chan Change]func() bool)
	return l
}

// broadcastLocked wakes everybody who waits for a change of the link.
func (l *link) broadcastLocked() {
	close(l.mu.changed)
	l.mu.changed = make(chan struct{})
}

// stepLocked runs the state machine, and tells of the step if there was one. It is the only place where the state changes, so
// that readers hear of the steps in order, and find them in State already (R51).
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
	for ch := range l.mu.readers {
		select {
		case ch <- c:
		default: // full: drop the oldest. Nobody else sends, so there is room then.
			select {
			case <-ch:
			default:
			}
			ch <- c
		}
	}
	l.broadcastLocked()
}

// changes is Session.Changes. The context is the user's: nothing of it is called under the lock, for it may ask the link (that of a
// hold does, when its lease has ended).
func (l *link) changes(ctx context.Context) <-chan Change {
	ch := make(chan Change, 64)
	if ctx == nil || ctx.Err() != nil {
		close(ch)
		return ch
	}
	l.mu.Lock()
	isClosed := l.mu.state.state == Closed
	if !isClosed {
		l.mu.readers[ch] = nil
	}
	l.mu.Unlock()
	if isClosed {
		close(ch)
		return ch
	}
	stop := context.AfterFunc(ctx, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if _, ok := l.mu.readers[ch]; ok {
			delete(l.mu.readers, ch)
			close(ch)
		}
	})
	l.mu.Lock()
	_, reads := l.mu.readers[ch]
	if reads {
		l.mu.readers[ch] = stop
	}
	l.mu.Unlock()
	if !reads { // closed in between
		stop()
	}
	return ch
}

// now returns what the link is at the moment: conn is the number of the connection over which requests go, 0 if they cannot.
func (l *link) now() (e *era, t *tap.Tap, conn uint64, state State) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.state.state.Attached() {
		conn = l.mu.tap.Seq
	}
	return l.mu.era, l.mu.tap, conn, l.mu.state.state
}

// era returns the current ZooKeeper session, nil if there is none.
func (l *link) era() *era {
	e, _, _, _ := l.now()
	return e
}

// attachedEra waits until requests can be sent, and returns the ZooKeeper session they will go out in.
func (l *link) attachedEra(ctx context.Context) (*era, error) {
	for {
		l.mu.Lock()
		e, ok, why, changed := l.mu.era, l.mu.state.state.Attached(), l.mu.why, l.mu.changed
		l.mu.Unlock()
		if why != nil {
			return nil, why
		}
		if ok && !e.isOver() {
			return e, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, causeOf(ctx)
		}
	}
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
		seq = l.mu.tap.Seq
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
	t := l.mu.tap
	ok, write := t.Enqueue(r)
	if !ok {
		l.detachLocked() // it ends; the tap says so next
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

// close makes the link unusable: nothing starts any more, everybody who waits is told.
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
	readers := l.mu.readers
	l.mu.readers = nil
	for ch := range readers {
		close(ch)
	}
	l.mu.Unlock()
	for _, stop := range readers {
		if stop != nil {
			stop()
		}
	}
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

// dial is the client's dialer: it makes the connection, over TLS if so configured, and puts the tap in it. The client's own
// time-out, a second, is not looked at: name look-up, dial, TLS and handshake together have the handshake timeout.
func (l *link) dial(network, addr string, _ time.Duration) (net.Conn, error) {
	l.mu.Lock()
	why, old, e := l.mu.why, l.mu.tap, l.mu.era
	l.mu.Unlock()
	if why != nil {
		return nil, why
	}
	d := dialing{network: network, addr: addr}
	if old != nil {
		_ = old.Close()     // the client leaves the connection open on which it learned of an expiry
		l.Disconnected(old) // who ended it may be about to say so, and come too late
		d.last = old.RemoteAddr().String()
	}
	d.deadline = time.Now().Add(l.opts.handshakeCap)
	timeout := l.opts.timeout
	if e != nil {
		timeout = e.sessionTimeout()
	}
	c, raw, err := l.dials.dial(d, heartbeat(timeout))
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.why != nil {
		_ = raw.Close()
		return nil, l.mu.why
	}
	l.mu.conns++
	l.mu.tap = tap.New(c, raw, l, l.clock, l.zxids.Connect(), &l.xids, l.mu.conns, d.deadline)
	return l.mu.tap, nil
}

// Connecting decides about the client's connect request. A session that we have given up but that may be alive is ended: its
// nodes keep the lock from others until it is over, and the client would attach to it again. This is tried until a server has
// answered, with a refusal too, or a few have hung up. From then on nothing of ours touches it, and it is gone T and a tick later
// (R65). A server that is silent has no quorum; then the try has touched nothing, and the next one goes on.
//
// A session of which nothing has been heard for long is asked after. A server refuses a client that has seen more than it
// has, without saying whether its session is over. If the servers came back from an older snapshot (F23), all of them do, and
// the client would stay out until they have caught up. To ask is a sign of life for the session, so it is done once in a
// while only.
func (l *link) Connecting(_ *tap.Tap, session int64) tap.Approach {
	l.mu.Lock()
	e, askedAfter := l.mu.era, l.mu.askedAfter
	l.mu.Unlock()
	if e == nil || e.id != session {
		return tap.Attach
	}
	switch {
	case e.isOver() && e.leftToExpire():
		return tap.SayItsEnded
	case e.isOver():
		return tap.EndIt
	case e.overdue(l.clock.Now(), askedAfter):
		return tap.AskAfter
	}
	return tap.Attach
}

func (l *link) Found(*tap.Tap) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.askedAfter = l.clock.Now()
}

func (l *link) HungUp(t *tap.Tap) {
	if e := l.eraOn(t); e != nil {
		e.noteHangUp()
	}
}

func (l *link) Ended(t *tap.Tap, outcome string) {
	l.log.info("zklock: asked a server to end the given-up session", "server", t.RemoteAddr().String(), "outcome", outcome)
}

func (l *link) Connected(t *tap.Tap, r tap.Response, sent, answered clock.Instant) error {
	shook := exchange{sent, answered}
	l.mu.Lock()
	old := l.mu.era
	if l.mu.tap != t || l.mu.why != nil {
		l.mu.Unlock()
		return ErrClosed
	}
	l.mu.shaken, l.mu.authed = false, false
	switch {
	case r.SessionID == 0:
		l.mu.era = nil
		l.dials.hosts.forgive()
	case old == nil || old.id != r.SessionID: // that it changes without an Expired event is an expiry (F37)
		l.mu.era = newEra(&zkSession{carrier: l, log: l.log, ownListsFailed: &l.ownListsFailed}, l.clock, l.opts.mode, l.opts.maxLockNodes, r, t.Seq, shook)
	case old.isOver(): // given up while the connect request was on its way
		l.mu.Unlock()
		return fmt.Errorf("zklock: session %#x was given up", r.SessionID)
	default:
		old.reattach(t.Seq, shook, r.Timeout)
		old = nil
	}
	l.mu.Unlock()
	if old != nil {
		old.lose(errExpired)
	}
	return nil
}

func (l *link) Credentials() (auths []wire.AuthRequest) {
	for _, c := range l.opts.auth {
		auths = append(auths, wire.AuthRequest{Scheme: c.scheme, Auth: c.auth.reveal()})
	}
	return auths
}

func (l *link) Authenticated(t *tap.Tap, code wire.Code) {
	if code != wire.OK {
		err := fmt.Errorf("%w: code %d", ErrAuthFailed, code)
		l.log.error("zklock: the server refused the credentials", "server", t.RemoteAddr().String(), "err", err)
		l.dials.noteTried(t.RemoteAddr().String(), err)
		l.close(err)
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.tap == t {
		l.mu.authed = true
		l.attachLocked()
	}
}

// clientEvent is the client's event callback, the only lossless source of its events. It runs on the client's
// goroutines: it must not block or call the client.
func (l *link) clientEvent(ev zk.Event) {
	if ev.Type != zk.EventSession || ev.State != zk.StateHasSession {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.shaken = true
	l.attachLocked()
}

// attachLocked opens the gate for requests when everything needed is there. The first to go are those that set the watches
// of the connection before.
func (l *link) attachLocked() {
	e, m := l.mu.era, l.mu.state
	if m.state.Attached() || !l.mu.shaken || !l.mu.authed || e == nil || e.isOver() || l.mu.why != nil {
		return
	}
	if m.session != e.id { // its holds may still be told of the end, one by one
		l.stepLocked(stateEvent{kind: lost, session: m.session, err: errExpired})
	}
	l.stepLocked(stateEvent{kind: attached, session: e.id})
	l.dials.forgetTried()
	for _, r := range e.restore(l.mu.tap.Before()) {
		if !l.sendLocked(r) {
			return // the connection has just ended
		}
	}
}

// detachLocked closes the gate for requests.
func (l *link) detachLocked() {
	l.stepLocked(stateEvent{kind: detached})
}

func (l *link) Disconnected(t *tap.Tap) {
	l.mu.Lock()
	if l.mu.tap != t {
		l.mu.Unlock()
		return
	}
	l.mu.shaken, l.mu.authed = false, false
	e := l.mu.era
	l.detachLocked()
	l.mu.Unlock()
	if e != nil && l.opts.endOnSuspend {
		e.loseHolds(errSuspended)
	}
}

// lost takes note that z is over. If it was given up, it may be alive at the servers: the client does not attach to it again
// (see Connecting), for Lost is final.
func (l *link) lost(z *zkSession, cause error) {
	if errors.Is(cause, ErrClosed) || errors.Is(cause, ErrAuthFailed) {
		return // the Session is closed
	}
	l.mu.Lock()
	var t *tap.Tap
	if l.mu.era != nil && l.mu.era.zkSession == z && !errors.Is(cause, errExpired) { // of an expiry the client knows
		t = l.mu.tap
	}
	l.stepLocked(stateEvent{kind: lost, session: z.id, err: cause})
	l.mu.Unlock()
	if t != nil {
		t.Cut()
	}
}

// eraOn returns the ZooKeeper session that the connection carries, if it is the current one.
func (l *link) eraOn(t *tap.Tap) *era {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.tap != t {
		return nil
	}
	return l.mu.era
}

func (l *link) Answered(t *tap.Tap, sent, answered clock.Instant) {
	if e := l.eraOn(t); e != nil {
		e.answered(t.Seq, exchange{sent, answered})
	}
}

func (l *link) Quorum(t *tap.Tap, sent clock.Instant) {
	if e := l.eraOn(t); e != nil {
		e.quorum(t.Seq, sent)
	}
}

func (l *link) Refused(t *tap.Tap, op wire.Op, code wire.Code) {
	err := errExpired
	if op == wire.OpPing {
		err = fmt.Errorf("%w: code %d", errPingRefused, code)
	}
	if e := l.eraOn(t); e != nil {
		e.lose(err)
	}
	t.Cut()
}

// Event is the tap's report that a watch has fired, in the order in which the server sent the events.
func (l *link) Event(t *tap.Tap, ev wire.WatcherEvent) {
	if e := l.eraOn(t); e != nil {
		e.nodeEvent(ev)
	}
}

// Flush has the tap write. When the link is closed, and only the client's last words are to go out, that is done here.
func (l *link) Flush(t *tap.Tap) {
	if !l.spawn(t.WriteOut) {
		t.WriteOut()
	}
}
