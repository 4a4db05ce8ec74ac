// Package link is what a Session knows of its servers: the connection, the current ZooKeeper session, the state that follows, and
// requests. It promises that a request goes out in its own ZooKeeper session or not at all, that holds end when the lease does, and
// that all that it started has ended when End returns.
//
// It must not know what locks are. What they have in a ZooKeeper session stands behind Inside.
//
// Read era.go first, then link.go, state.go, report.go and hangup.go; holds.go, beat.go and loop.go are the lease at work.
package link

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/zklock/internal/clock"
	"github.com/zklock/zklock/internal/dial"
	"github.com/zklock/zklock/internal/eventlog"
	"github.com/zklock/zklock/internal/lastzxid"
	"github.com/zklock/zklock/internal/lease"
	"github.com/zklock/zklock/internal/sasl"
	"github.com/zklock/zklock/internal/secret"
	"github.com/zklock/zklock/internal/tap"
	"github.com/zklock/zklock/internal/wire"
)

// Options is what a link is made with.
type Options struct {
	Addrs        []string
	Dial         dial.Config
	Timeout      time.Duration // to ask for
	HandshakeCap time.Duration // for one try, from the lookup to the credentials
	Mode         lease.Mode
	SASL         sasl.Start     // nil for none
	Digests      []secret.Bytes // "user:password"
	Log          *eventlog.Log
	Clock        *clock.Clock

	// Open makes what locks have in a new ZooKeeper session. Told hears of each step of the state, in order: when it does, the link
	// already shows that. Both are called under the link's lock, and must neither block nor call back.
	Open func(*Era) Inside
	Told func(Step)
	// Closed hears that the link is closed. It is called once, under no lock.
	Closed func()
}

// Link is what a Session knows of its servers: the current connection, the current ZooKeeper session, whether requests can
// be sent, and the state that follows from that.
type Link struct {
	Options
	dials *dial.Dialer
	zxids lastzxid.Seen // kept in the client's place
	xids  tap.Xids      // of our requests, never used twice

	client   *zk.Conn
	served   atomic.Bool    // a server has answered a request: no rejection is final
	wake     chan struct{}  // has the loop look again; holds one
	work     sync.WaitGroup // all goroutines of the link and of who asks in it; none starts after the link is closed
	loopDone chan struct{}

	mu struct {
		sync.Mutex             // never held across a channel that blocks, a callback or a ZooKeeper call
		conn       *connection // the current one; nil before the first
		conns      uint64      // how many there were
		era        *Era        // the current one; nil before the first and after an expiry
		state      stateMachine
		at         string        // the server where we are attached, or were last; "" before
		unended    *Era          // a session that was left to expire: when a server has answered us, they are asked again to end it
		asking     bool          // they are being asked
		hungUpOn   int           // how long the request was over which the last connection ended unanswered
		hangUps    int           // on how many connections in a row
		waiting    int           // how many wait for a connection
		wanted     clock.Instant // when somebody last asked for one, and there was none
		why        error         // why it is closed
		changed    chan struct{} // closed at each change of the above

		unknown map[wire.Op]int // how many connections servers have ended at a request of this kind, and responded to none (hangup.go)
	}
}

// connection is one connection to a server. Requests can be sent while the state is attached; on the way there, from left to right:
//
//	dial ──▶ connected ──▶ authenticated ─┬─▶ attached: watches are restored, and then requests go
//	              └──▶ the client's handshake is done ─┘
type connection struct {
	tap    *tap.Tap
	addr   string // of the server, as given to Connect
	sasl   sasl.Exchange
	shaken bool // the client has finished its handshake; guarded by link.mu
	authed bool // the server took the credentials; guarded by link.mu
	served bool // it has answered a request; of the goroutine that reads
}

// New returns a link that has not started.
func New(o Options) *Link {
	l := &Link{Options: o, wake: make(chan struct{}, 1), loopDone: make(chan struct{})}
	o.Dial.Log = o.Log
	l.dials = dial.New(o.Dial, o.Clock, o.Addrs, l.Spawn)
	l.mu.changed, l.mu.unknown = make(chan struct{}), make(map[wire.Op]int)
	return l
}

// Start has the ZooKeeper client connect, and begins to look after what is held. It returns the client's connection.
func (l *Link) Start() (*zk.Conn, error) {
	conn, events, err := zk.Connect(l.Addrs, l.Timeout,
		zk.WithDialer(l.dialServer), zk.WithHostProvider(l.dials.Hosts()), zk.WithEventCallback(l.clientEvent),
		zk.WithLogger(l.Log), zk.WithMaxBufferSize(tap.MaxReply))
	if err != nil {
		l.dials.Close()
		return nil, err
	}
	l.client = conn
	l.work.Add(1)
	go l.watchClient(events)
	go l.loop()
	return conn, nil
}

// watchClient drains the client's event channel. The channel can lose events (the event callback cannot), so they are
// ignored; but it closes when the client has ended.
func (l *Link) watchClient(events <-chan zk.Event) {
	defer l.work.Done()
	for range events {
	}
	l.close(errConnClosed)
}

// End closes the link, ends the ZooKeeper session, and waits for all goroutines. It is called once, after Start.
//
// The client sends the end of the session if it is attached. If it is not, because it hears nothing perhaps, End does.
func (l *Link) End(why error) {
	z, _, conn, _ := l.now()
	l.close(why)
	if z != nil && conn == 0 && !z.leftToExpire() {
		l.endApart(z, "", time.Now().Add(apart*3/4))
	}
	l.client.Close()
	if _, t, _, _ := l.now(); t != nil {
		t.Cut()
	}
	l.work.Wait()
	<-l.loopDone
}

// broadcastLocked wakes everybody who waits for a change of the link.
func (l *Link) broadcastLocked() {
	close(l.mu.changed)
	l.mu.changed = make(chan struct{})
}

// stepLocked runs the state machine and tells of the step, if there was one. Only here does the state change, so
// readers hear of the steps in order, and the state already shows a step when they hear of it (R51).
func (l *Link) stepLocked(ev stateEvent) {
	defer l.Nudge()
	m, changed := l.mu.state.next(ev)
	if !changed {
		return
	}
	l.mu.state = m
	if m.state.Attached() { // the present connection may be one to a server that says nothing
		l.mu.at = l.mu.conn.addr
	}
	attrs := []any{"state", m.state.String(), "session", fmt.Sprintf("%#x", m.session)}
	if l.mu.at != "" {
		attrs = append(attrs, "server", l.mu.at)
	}
	if ev.err != nil && ev.err != ErrClosed { // Close is no failure
		attrs = append(attrs, "err", ev.err)
	}
	l.Log.Info("zklock: connection state", attrs...)
	l.Told(Step{m.state, m.session, l.mu.at, time.Now(), ev.err})
	l.broadcastLocked()
}

// now returns the link's present state. conn is the number of the connection over which requests go, or 0 if none can go.
func (l *Link) now() (z *Era, t *tap.Tap, conn uint64, state State) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c := l.mu.conn; c != nil {
		if t = c.tap; l.mu.state.state.Attached() {
			conn = t.Seq
		}
	}
	return l.mu.era, t, conn, l.mu.state.state
}

// Era returns the current ZooKeeper session, nil if there is none.
func (l *Link) Era() *Era {
	z, _, _, _ := l.now()
	return z
}

// State returns the present state.
func (l *Link) State() State {
	_, _, _, state := l.now()
	return state
}

// Server returns the server over which requests go now, as given; "" if none can go.
func (l *Link) Server() string {
	_, server := l.At()
	return server
}

// At returns the present state, and what Server does.
func (l *Link) At() (State, string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.mu.state.state.Attached() {
		return l.mu.state.state, ""
	}
	return l.mu.state.state, l.mu.conn.addr
}

// AttachedNow returns the ZooKeeper session in which requests go out, nil if none can be sent now. err says why the link is
// closed.
func (l *Link) AttachedNow() (z *Era, changed <-chan struct{}, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.why == nil && l.mu.state.state.Attached() && !l.mu.era.IsOver() {
		z = l.mu.era
	} else {
		l.mu.wanted = l.Clock.Now()
	}
	return z, l.mu.changed, l.mu.why
}

// Attached waits until requests can be sent, and returns the ZooKeeper session they will go out in.
func (l *Link) Attached(ctx context.Context) (*Era, error) {
	l.await(1)
	defer l.await(-1)
	for {
		z, changed, err := l.AttachedNow()
		if z != nil || err != nil {
			return z, err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ErrCtxEnded
		}
	}
}

// await counts those who wait for a connection.
func (l *Link) await(more int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.waiting += more
}

// carriesLocked says whether requests can be sent in z.
func (l *Link) carriesLocked(z *Era) bool {
	return l.mu.why == nil && l.mu.state.state.Attached() && l.mu.era == z
}

// AttachedConn is the number of the connection over which z is attached now, 0 if it is not.
func (l *Link) AttachedConn(z *Era) (seq uint64, changed <-chan struct{}, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.carriesLocked(z) {
		seq = l.mu.conn.tap.Seq
	}
	return seq, l.mu.changed, l.mu.why
}

// Send hands a request to the connection over which z is attached. It returns false, and forgets the request, if there is
// none.
func (l *Link) Send(z *Era, r *tap.Request) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.carriesLocked(z) && l.sendLocked(r)
}

func (l *Link) sendLocked(r *tap.Request) bool {
	t := l.mu.conn.tap
	ok, write := t.Enqueue(r)
	if !ok {
		l.stepLocked(stateEvent{kind: detached, err: whyDetached(t.Why())}) // the connection ends; the tap says so next
	}
	if write {
		l.spawnLocked(t.WriteOut)
	}
	return ok
}

// Spawn runs f on a goroutine that Close waits for. It returns false, and does not run f, when the link is closed.
func (l *Link) Spawn(f func()) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.spawnLocked(f)
}

func (l *Link) spawnLocked(f func()) bool {
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

// Nudge makes the Session's loop look again at what is held and queued.
func (l *Link) Nudge() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// close makes the link unusable, once: nothing starts any more, and all who wait are told.
func (l *Link) close(why error) {
	l.mu.Lock()
	if l.mu.why != nil {
		l.mu.Unlock()
		return
	}
	l.mu.why = why
	z := l.mu.era
	l.broadcastLocked()
	l.mu.Unlock()
	l.dials.Close()
	if z != nil {
		z.Lose(why)
	}
	l.mu.Lock()
	l.stepLocked(stateEvent{kind: closed, err: why})
	l.mu.Unlock()
	l.Closed()
}

// ClosedErr says why the link is closed.
func (l *Link) ClosedErr() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.why == nil {
		return ErrClosed
	}
	return l.mu.why
}

// clientEvent is the client's event callback, the only lossless source of its events. It runs on the client's
// goroutines: it must not block or call the client.
func (l *Link) clientEvent(ev zk.Event) {
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
func (l *Link) attachLocked() {
	c, z, m := l.mu.conn, l.mu.era, l.mu.state
	if m.state.Attached() || !c.shaken || !c.authed || z == nil || z.IsOver() || l.mu.why != nil {
		return
	}
	if l.mu.unended != nil {
		l.mu.asking = l.mu.asking || l.spawnLocked(l.askAgain)
		return
	}
	if m.session != z.ID { // the old session is over; its holds may still be hearing of it, one by one
		l.stepLocked(stateEvent{kind: lost, session: m.session, err: ErrExpired})
	}
	l.stepLocked(stateEvent{kind: attached, session: z.ID})
	l.dials.Forget()
	for _, r := range z.Inside.Restore(c.tap.Before()) {
		if !l.sendLocked(r) {
			return // the connection has just ended
		}
	}
}

// Lost takes note that z is over. If z was given up, it may still be alive at the servers. But Lost is final, so the client
// does not attach to it again (see report.Connecting).
func (l *Link) Lost(z *Era, cause error) {
	if IsClosing(cause) {
		return // the Session is closed
	}
	l.mu.Lock()
	var t *tap.Tap
	if l.mu.era == z && !errors.Is(cause, ErrExpired) { // the client knows of an expiry itself
		t = l.mu.conn.tap
	}
	l.stepLocked(stateEvent{kind: lost, session: z.ID, err: cause})
	l.mu.Unlock()
	if t != nil {
		t.Cut()
	}
}
