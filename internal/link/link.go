// Package link connects a Session to its servers: it owns the connection, the current ZooKeeper
// session, the state that follows from them, and the requests. It promises that a request is sent
// in its own ZooKeeper session or not at all, that holds end when the lease does, and that
// everything it started has ended when End returns.
//
// It must not depend on what a lock is. Inside is its interface to the locks of a ZooKeeper
// session.
//
// Read zksession.go first, then link.go, state.go, report.go, ending.go and hangup.go; holds.go
// and heartbeat.go apply the lease.
package link

import (
	"cmp"
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
	"github.com/zklock/zklock/internal/mux"
	"github.com/zklock/zklock/internal/sasl"
	"github.com/zklock/zklock/internal/secret"
	"github.com/zklock/zklock/internal/sessionkey"
	"github.com/zklock/zklock/internal/wire"
)

// Options are the settings of a link.
type Options struct {
	Addrs        []string
	Dial         dial.Config
	Timeout      time.Duration // requested session timeout
	HandshakeCap time.Duration // for one try, from the lookup to the credentials
	Mode         lease.Mode
	SASL         sasl.Start     // nil for none
	Digests      []secret.Bytes // "user:password"
	Log          *eventlog.Log
	Clock        *clock.Clock

	// Open creates the locks' part of a new ZooKeeper session. Told is called with each step of the
	// state, in order; the link already shows that step. Both are called under the link's mutex,
	// and must neither block nor call back.
	Open func(*ZKSession) Inside
	Told func(Step)
	// Opened is called with each new ZooKeeper session before the client is notified of it, and so
	// before its first node. Over is called when a server has confirmed that a session has ended.
	// Both are called without a mutex on a goroutine that reads responses, and may be nil.
	Opened func(sessionkey.Key)
	Over   func(session int64)
	// Closed is called once when the link is closed, without a mutex.
	Closed func()
}

// Link is a Session's view of its servers: the current connection, the current ZooKeeper session,
// whether requests can be sent, and the state that follows.
type Link struct {
	Options
	dials *dial.Dialer
	zxids lastzxid.Seen // kept on the client's behalf
	xids  mux.Xids      // of our requests, never reused

	client *zk.Conn
	served atomic.Bool    // a server has responded to a request: no rejection is final
	wake   chan struct{}  // makes the loop check again; holds one
	work   sync.WaitGroup // all goroutines of the link and of its callers; none starts after the link is closed

	mu struct {
		sync.Mutex             // never held across a channel that blocks, a callback or a ZooKeeper call
		conn       *connection // the current one; nil before the first
		conns      uint64      // how many there were
		session    *ZKSession  // the current one; nil before the first and after an expiry
		state      stateMachine
		at         string        // the server to which we are attached, or were last; "" before
		unended    *ZKSession    // a session left to expire: when a server has responded to us, the servers are asked again to end it
		asking     bool          // they are being asked
		hungUpOn   int           // length of the request at which the last connection ended without a response
		hangUps    int           // on how many connections in a row
		waiting    int           // how many callers wait for a connection
		wanted     clock.Instant // when a caller last needed a connection and there was none
		clamped    bool          // it was logged that the granted timeout is shorter than the requested one
		why        error         // why it is closed
		changed    chan struct{} // closed at each change of the fields above

		unknown map[wire.Op]int // connections that servers ended at a request of this kind, without responding to any (hangup.go)
	}
}

// New returns a link that has not started.
func New(o Options) *Link {
	l := &Link{Options: o, wake: make(chan struct{}, 1)}
	o.Dial.Log = o.Log
	l.dials = dial.New(o.Dial, o.Clock, o.Addrs, l.Spawn)
	l.mu.changed, l.mu.unknown = make(chan struct{}), make(map[wire.Op]int)
	return l
}

// Start makes the ZooKeeper client connect, and starts the loop. It returns the client's
// connection.
func (l *Link) Start() (*zk.Conn, error) {
	conn, events, err := zk.Connect(l.Addrs, l.Timeout,
		zk.WithDialer(l.dialServer), zk.WithHostProvider(l.dials.Hosts()), zk.WithEventCallback(l.clientEvent),
		zk.WithLogger(l.Log), zk.WithMaxBufferSize(mux.MaxReply))
	if err != nil {
		l.dials.Close()
		return nil, err
	}
	l.client = conn
	l.work.Go(func() { l.watchClient(events) })
	l.Spawn(l.loop)
	return conn, nil
}

// loop owns the heartbeat and the lease's timer, and detects servers that do not respond or are
// unreachable. It ends when the state is Closed.
func (l *Link) loop() {
	l.Nudge() // the first check
	next, expiry := time.NewTimer(time.Hour), time.NewTimer(time.Hour)
	var seen wakeups
	for {
		select {
		case <-l.wake:
		case <-next.C:
		case <-expiry.C:
		}
		if _, state, _ := l.At(); state == Closed {
			return
		}
		again, end := l.checkState(&seen)
		next.Reset(max(again, time.Millisecond))
		expiry.Reset(end)
	}
}

// wakeups is the state that the loop keeps between two checks.
type wakeups struct {
	lastBeat clock.Instant // when the last heartbeat was sent
	quiet    lease.Silence
	out      lease.Outage
}

// checkState does all that is due. It returns when to check again (again), and when the session
// ends for us (end): because the lease of a hold ends, or because no server responds. Whatever
// changes these times wakes the loop earlier. While something is held, end is at most ClockCheck: a
// holder that only waits for its context must be notified soon after a suspend.
func (l *Link) checkState(seen *wakeups) (again, end time.Duration) {
	const never = time.Hour
	z, t, conn := l.now()
	now := l.Clock.Now()
	next := seen.out.NextLook(now, conn != 0, func(d time.Duration) {
		if l.dials.Refusal() != nil { // a rejection is no outage, and was logged
			return
		}
		l.Log.Warn("zklock: no server has accepted the session", "for", d.Round(time.Second), "tried", cmp.Or(l.dials.Tried(), "none since the last connection ended"))
	})
	if z != nil {
		z.LoseIfLate(now)
		z.LoseIfUnheard(now)
	}
	if z == nil || z.HasEnded() {
		return next.Sub(now), never
	}
	held, kept, queued, busy, ends := z.plan()
	end = ends.Sub(now) + time.Millisecond
	if held > 0 {
		end = min(end, lease.ClockCheck)
	}
	tenth, interval, h := lease.Heartbeat(z.Timeout()), lease.IdleRead(z.Timeout()), z.heartbeat()
	switch {
	case held+kept > 0:
		interval = h
	case queued > 0:
		interval = min(interval, max(h, tenth))
	}
	if conn == 0 {
		return min(next.Sub(now), interval), end
	}
	due := seen.lastBeat.Add(interval)
	if now >= due || z.heartbeatNow(conn) {
		if z.sendHeartbeat(conn) {
			seen.lastBeat = now
		}
		due = now.Add(interval)
	}
	if why := z.heartbeatsFail(conn); why != nil {
		t.Leave(why)
		return tenth, end
	}
	if heard, asked, owes := t.Silence(); owes && (held+kept > 0 || busy) {
		leave, look := seen.quiet.Look(now, heard, asked, tenth, held > 0)
		if leave {
			silent := now.Sub(heard).Round(time.Millisecond)
			l.Log.Warn("zklock: the server is silent; trying another", "server", t.RemoteAddr().String(),
				"session", fmt.Sprintf("%#x", z.ID), "for", silent)
			t.Leave(fmt.Errorf("the server was silent for %v", silent))
			return tenth, end
		}
		due = min(due, look)
	}
	return min(due.Sub(now), tenth), end
}

// Nudge wakes the loop. It implements Carrier.
func (l *Link) Nudge() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// broadcastLocked wakes all goroutines that wait for a change of the link.
func (l *Link) broadcastLocked() {
	close(l.mu.changed)
	l.mu.changed = make(chan struct{})
}

// stepLocked runs the state machine and reports the step, if there was one. The state changes only
// here, so callbacks see the steps in order, and never before the state shows them (R51).
func (l *Link) stepLocked(ev stateEvent) {
	defer l.Nudge()
	m, changed := l.mu.state.next(ev)
	if !changed {
		return
	}
	l.mu.state = m
	if m.state.Attached() { // the present connection may lead to a server that does not respond
		l.mu.at = l.mu.conn.addr
	}
	attrs := []any{"state", m.state.String(), "session", fmt.Sprintf("%#x", m.session)}
	if l.mu.at != "" {
		attrs = append(attrs, "server", l.mu.at)
	}
	if m.state.Attached() {
		attrs = append(attrs, l.grantedLocked()...)
	}
	if ev.err != nil && ev.err != ErrClosed { // Close is no failure
		attrs = append(attrs, "err", ev.err)
	}
	l.Log.Info("zklock: connection state", attrs...)
	if m.state.Attached() && !l.mu.clamped && l.mu.session.Timeout() < l.Timeout.Truncate(time.Millisecond) {
		l.mu.clamped = true
		l.Log.Warn("zklock: the servers' maxSessionTimeout is shorter than the requested session timeout",
			append([]any{"requested", l.Timeout}, l.grantedLocked()...)...)
	}
	l.Told(Step{m.state, m.session, l.mu.at, time.Now(), ev.err})
	l.broadcastLocked()
}

// grantedLocked returns the granted session timeout and its margin, for the log.
func (l *Link) grantedLocked() []any {
	t := l.mu.session.Timeout()
	return []any{"timeout", t, "margin", l.Mode.Room(t).Round(time.Millisecond)}
}

// now returns the current ZooKeeper session, and the mux of the last connection. conn is the
// connection over which requests are sent, 0 if none can be sent.
func (l *Link) now() (z *ZKSession, t *mux.Mux, conn uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c := l.mu.conn; c != nil {
		if t = c.mux; l.mu.state.state.Attached() {
			conn = t.Seq
		}
	}
	return l.mu.session, t, conn
}

// ZKSession returns the current ZooKeeper session, or nil.
func (l *Link) ZKSession() *ZKSession {
	z, _, _ := l.At()
	return z
}

// At returns the current ZooKeeper session, or nil, the state, and the server to which requests are
// sent now, as given; "" if none can be sent.
func (l *Link) At() (z *ZKSession, state State, server string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.state.state.Attached() {
		server = l.mu.conn.addr
	}
	return l.mu.session, l.mu.state.state, server
}

// AttachedNow returns the ZooKeeper session in which requests are sent, nil if none can be. err is
// the reason why the link is closed.
func (l *Link) AttachedNow() (z *ZKSession, changed <-chan struct{}, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.why == nil && l.mu.state.state.Attached() && !l.mu.session.HasEnded() {
		z = l.mu.session
	} else {
		l.mu.wanted = l.Clock.Now()
	}
	return z, l.mu.changed, l.mu.why
}

// Attached waits until requests can be sent, and returns their ZooKeeper session.
func (l *Link) Attached(ctx context.Context) (*ZKSession, error) {
	l.addWaiting(1)
	defer l.addWaiting(-1)
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

// addWaiting counts the callers that wait for a connection.
func (l *Link) addWaiting(more int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.waiting += more
}

func (l *Link) carriesLocked(z *ZKSession) bool {
	return l.mu.why == nil && l.mu.state.state.Attached() && l.mu.session == z
}

// AttachedConn implements Carrier.
func (l *Link) AttachedConn(z *ZKSession) (seq uint64, changed <-chan struct{}, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.carriesLocked(z) {
		seq = l.mu.conn.mux.Seq
	}
	return seq, l.mu.changed, l.mu.why
}

// Send implements Carrier.
func (l *Link) Send(z *ZKSession, r *mux.Request) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.carriesLocked(z) && l.sendLocked(r)
}

func (l *Link) sendLocked(r *mux.Request) bool {
	t := l.mu.conn.mux
	ok := t.Enqueue(r)
	if !ok {
		l.stepLocked(stateEvent{kind: detached, err: whyDetached(t.Why())}) // the connection ends; the mux reports that next
	}
	return ok
}

// Spawn implements Carrier.
func (l *Link) Spawn(f func()) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.spawnLocked(f)
}

func (l *Link) spawnLocked(f func()) bool {
	if l.mu.why != nil {
		return false
	}
	l.work.Go(f)
	return true
}

// Lost implements Carrier. If z was given up, it may still live on the servers, but the client does
// not attach to it again (see connection.Connecting).
func (l *Link) Lost(z *ZKSession, cause error) {
	if IsClosing(cause) {
		return // the Session is closed
	}
	l.mu.Lock()
	var t *mux.Mux
	if l.mu.session == z && !errors.Is(cause, ErrExpired) { // the client detects an expiry itself
		t = l.mu.conn.mux
	}
	l.stepLocked(stateEvent{kind: lost, session: z.ID, err: cause})
	l.mu.Unlock()
	if t != nil {
		t.Cut()
	}
}
