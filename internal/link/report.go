package link

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/zklock/internal/clock"
	"github.com/zklock/zklock/internal/dial"
	"github.com/zklock/zklock/internal/expire"
	"github.com/zklock/zklock/internal/lease"
	"github.com/zklock/zklock/internal/mux"
	"github.com/zklock/zklock/internal/sasl"
	"github.com/zklock/zklock/internal/wire"
)

// connection is one connection to a server. Requests can be sent in the state attached, which it
// reaches from left to right:
//
//	dial ──▶ connected ──▶ authenticated ─┬─▶ attached: watches are restored, and then requests go
//	              └──▶ the client's handshake is done ─┘
//
// It is the sink of its mux, and passes the reports to the link. Responses and events go to the
// ZooKeeper session while the connection is the current one (zkSession), and are dropped
// afterwards.
type connection struct {
	link   *Link
	mux    *mux.Mux
	addr   string // of the server, as given to Connect
	sasl   sasl.Exchange
	shaken bool // the client has finished its handshake; guarded by link.mu
	authed bool // the server accepted the credentials; guarded by link.mu
	served bool // it has responded to a request; owned by the goroutine that reads
}

// dialServer is the client's dialer: it opens the connection, over TLS if so configured, and wraps
// it in the mux. It ignores the client's own timeout of one second: the lookup, the dial, TLS and
// the handshake each have the Dialer's limit, and share the handshake timeout.
func (l *Link) dialServer(network, addr string, _ time.Duration) (net.Conn, error) {
	l.mu.Lock()
	why, old, z := l.mu.why, l.mu.conn, l.mu.session
	l.mu.Unlock()
	if why != nil {
		return nil, why
	}
	d := dial.To{Network: network, Addr: addr}
	if old != nil {
		_ = old.mux.Close() // when the client is notified of an expiry, it leaves that connection open
		old.detached()      // the goroutine that ended it reports this too, but perhaps too late
		d.Last = old.mux.RemoteAddr().String()
	}
	timeout := l.Timeout
	if z != nil {
		timeout = z.Timeout()
	}
	if err := l.dials.Rest(l.longestPause); err != nil {
		return nil, err
	}
	d.Limit, d.Deadline = l.dials.Limit(lease.Heartbeat(timeout)), time.Now().Add(l.HandshakeCap)
	c, raw, err := l.dials.Dial(d)
	if err != nil {
		return nil, err
	}
	ctx, cancel := l.dials.Until(d.Deadline)
	defer cancel()
	exchange, err := l.startSASL(ctx, addr) // before the connect request, so as not to keep a useless session alive
	if err != nil {
		_ = raw.Close()
		l.unauthenticated(addr, addr, fmt.Errorf("SASL: %w", err))
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.why != nil {
		_ = raw.Close()
		return nil, l.mu.why
	}
	deadline := time.Now().Add(d.Limit)
	if deadline.After(d.Deadline) {
		deadline = d.Deadline
	}
	r := l.connectLocked(c, raw, deadline)
	r.addr, r.sasl = addr, exchange
	return r.mux, nil
}

// startSASL begins the exchange of one connection. It returns nil without SASL.
func (l *Link) startSASL(ctx context.Context, addr string) (sasl.Exchange, error) {
	if l.SASL == nil {
		return nil, nil
	}
	return l.SASL(ctx, addr)
}

// longestPause returns how long to pause before the next dial, by what may be lost. Servers that
// all reject us, or lack SASL, accept us only after a configuration change. A waiting caller does
// not shorten these pauses, because each try can leave a session on the server.
func (l *Link) longestPause(laps, servers int) time.Duration {
	now := l.Clock.Now()
	l.mu.Lock()
	z, timeout := l.mu.session, l.Timeout
	if z == nil {
		z = l.mu.unended
	}
	wanted := l.mu.waiting > 0 || l.mu.wanted != 0 && now.Sub(l.mu.wanted) < timeout
	l.mu.Unlock()
	var s lease.Stake
	if z != nil {
		s = z.atStake(now)
		timeout = z.Timeout()
	}
	s.Wanted = (s.Wanted || wanted) && !l.dials.All(ErrAuthFailed, sasl.ErrUnfit)
	return s.Pause(timeout, laps, servers)
}

func (l *Link) connectLocked(c, raw net.Conn, handshakeDeadline time.Time) *connection {
	r := &connection{link: l}
	l.mu.conns++
	r.mux = mux.New(c, raw, r, l.Clock, l.zxids.Connect(), &l.xids, l.mu.conns, handshakeDeadline)
	l.mu.conn = r
	l.spawnLocked(r.mux.WriteRequests)
	return r
}

func (c *connection) server() string { return c.mux.RemoteAddr().String() }

// zkSession returns the ZooKeeper session that the connection carries, nil if it is not the current
// connection.
func (c *connection) zkSession() *ZKSession {
	c.link.mu.Lock()
	defer c.link.mu.Unlock()
	if c.link.mu.conn != c {
		return nil
	}
	return c.link.mu.session
}

// Connecting decides about the client's connect request. If we have given the session up and it may
// be alive, we use the request to end it: its nodes block the lock for other clients, and the
// client would attach to it again. A server that reads a try has ended the session, even if its
// response does not reach us (F51).
//
// A server that rejects the close has extended the session. So we try until a server has responded,
// even with a rejection, or until a few tries got no response. The session is then left to expire:
// it ends T and a tick later (R65), and until then its nodes block the nodes of the next session
// (I2). When a server has responded in that next session, the servers are asked again: if they were
// unreachable, no try has reached them, and they begin to count T from the start.
func (c *connection) Connecting(session int64) mux.Approach {
	z := c.zkSession()
	switch {
	case z == nil || z.ID != session || !z.HasEnded():
		return mux.Attach
	case z.leftToExpire():
		return mux.SayItsEnded
	}
	return mux.EndIt
}

func (c *connection) Connected(resp mux.Response, sent, answered clock.Instant) error {
	l, shook := c.link, lease.Exchange{Sent: sent, Answered: answered}
	l.mu.Lock()
	old, why, isNew, isOver := l.mu.session, ErrExpired, false, false
	if l.mu.conn != c || l.mu.why != nil {
		l.mu.Unlock()
		return ErrClosed
	}
	switch {
	case resp.SessionID == 0 && old == nil: // not forgiven: the same rejection would follow at once
		l.mu.Unlock()
		l.dials.Note(c.addr, errNoneToExpire)
		return errNoneToExpire
	case resp.SessionID == 0:
		if old.leftToExpire() && l.mu.unended == nil {
			l.mu.unended = old
			l.Log.Warn("zklock: no server has said that it ended the given-up session; unless one does, it expires", "session", fmt.Sprintf("%#x", old.ID), "timeout", old.Timeout())
		}
		isOver = !old.HasEnded() // otherwise we wrote this response, and AskedToEnd has the server's
		l.mu.session = nil
		l.dials.Forgive()
	case old == nil || old.ID != resp.SessionID: // a change without an Expired event is an expiry too (F37)
		l.mu.session = NewZKSession(l, l.Log, l.Clock, l.Mode, resp, c.server(), c.mux.Seq, shook)
		l.mu.session.Inside = l.Open(l.mu.session)
		isNew = true
		if old != nil {
			why = fmt.Errorf("%w: %s did not know the session %#x that it was asked for, and gave another, %#x", ErrExpired, c.server(), old.ID, resp.SessionID)
		}
	case old.HasEnded(): // given up while the connect request was in flight
		l.mu.Unlock()
		return fmt.Errorf("zklock: session %#x was given up", resp.SessionID)
	default:
		old.reattach(c.server(), c.mux.Seq, shook, resp.Timeout)
		old = nil
	}
	z := l.mu.session
	l.mu.Unlock()
	if old != nil {
		old.Lose(why)
	}
	if isOver {
		l.over(old) // last, because it may wait for a guard that does not read
	}
	if isNew && l.Opened != nil {
		l.Opened(l.Key(z))
	}
	return nil
}

func (c *connection) Credentials() expire.Credentials {
	return expire.Credentials{SASL: c.sasl, Auths: c.link.digests()}
}

func (l *Link) digests() (auths []wire.AuthRequest) {
	for _, d := range l.Digests {
		auths = append(auths, wire.AuthRequest{Scheme: "digest", Auth: d.Reveal()})
	}
	return auths
}

func (c *connection) Authenticated(err error) {
	l := c.link
	if err != nil {
		l.unauthenticated(c.addr, c.server(), err)
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.conn == c {
		c.authed = true
		l.attachLocked()
	}
}

// clientEvent is the client's event callback, the only lossless source of its events. It runs on
// the client's goroutines: it must not block or call the client.
func (l *Link) clientEvent(ev zk.Event) {
	if ev.Type != zk.EventSession || ev.State != zk.StateHasSession {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.conn.shaken = true
	l.attachLocked()
}

// watchClient drains the client's event channel. The channel can lose events (the event callback
// cannot), so they are ignored; but it closes when the client has ended.
func (l *Link) watchClient(events <-chan zk.Event) {
	for range events {
	}
	l.close(errConnClosed)
}

// attachLocked lets requests be sent as soon as the connection is complete. The first requests
// restore the watches of the previous connection.
func (l *Link) attachLocked() {
	c, z, m := l.mu.conn, l.mu.session, l.mu.state
	if m.state.Attached() || !c.shaken || !c.authed || z == nil || z.HasEnded() || l.mu.why != nil {
		return
	}
	if l.mu.unended != nil {
		l.mu.asking = l.mu.asking || l.spawnLocked(l.askAgain)
		return
	}
	if m.session != z.ID { // the old session has ended; its holds may still be being notified, one by one
		l.stepLocked(stateEvent{kind: lost, session: m.session, err: ErrExpired})
	}
	l.stepLocked(stateEvent{kind: attached, session: z.ID})
	l.dials.Forget()
	for _, r := range z.Inside.Restore(c.mux.Before()) {
		if !l.sendLocked(r) {
			return // the connection has just ended
		}
	}
}

// unauthenticated notes that the server did not accept the handshake. A rejection before the link
// was ever attached closes it.
func (l *Link) unauthenticated(addr, server string, err error) {
	l.mu.Lock()
	isFirst := l.mu.at == ""
	l.mu.Unlock()
	var code wire.Code
	switch {
	case errors.As(err, &code):
		err = rejectedBy(server, code)
	case errors.Is(err, ErrAuthFailed):
		err = fmt.Errorf("%s: %w", server, err)
	default: // no response, or one that does not concern our credentials
		isFirst = false
	}
	l.dials.Note(addr, err)
	if isFirst {
		l.close(err)
	}
}

func rejectedBy(server string, code wire.Code) error {
	return fmt.Errorf("%w: %s rejected the credentials (code %d)", ErrAuthFailed, server, code)
}

// Unreached adds to an error the result of the last try at each server, if none has accepted the
// session since. A rejection that closed the link is in the error already.
func (l *Link) Unreached(err error) error {
	if IsClosing(err) {
		return err
	}
	return l.dials.Unreached(err)
}

// Because is Unreached for the reason of a loss, if a rejection is all that keeps us from the
// servers: otherwise, the reason itself states that they do not respond.
func (l *Link) Because(err error) error {
	if l.dials.Refusal() == nil {
		return err
	}
	return l.Unreached(err)
}

func (c *connection) Answered(sent, answered clock.Instant) {
	if !c.served {
		c.served = true
		c.link.served.Store(true)
		c.link.dials.Served()
	}
	if z := c.zkSession(); z != nil {
		z.answered(c.mux.Seq, lease.Exchange{Sent: sent, Answered: answered})
	}
}

func (c *connection) Quorum(sent clock.Instant) {
	if z := c.zkSession(); z != nil {
		z.quorum(c.mux.Seq, sent)
	}
}

func (c *connection) Refused(op wire.Op, code wire.Code) {
	if code == wire.AuthRequired { // whatever the request was
		why := rejectedBy(c.server(), code)
		c.link.dials.Note(c.addr, why)
		if !c.link.served.Load() {
			c.link.close(why)
		}
		c.mux.Leave(why)
		return
	}
	if code == wire.SessionMoved {
		// The server executes no more writes of this connection, and another connection takes the
		// session over. Servers since ZOOKEEPER-2886 close the connection themselves.
		c.mux.Leave(fmt.Errorf("%w (%d)", errMoved, code))
		return
	}
	err := ErrExpired
	if op == wire.OpPing {
		err = fmt.Errorf("%w: %s, code %d", errPingRefused, c.server(), code)
	}
	if z := c.zkSession(); z != nil {
		z.Lose(err)
	}
	c.mux.Cut()
}

// Executed notes that a server has executed a request of that kind, although the response was lost.
func (l *Link) Executed(op wire.Op) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.mu.unknown, op)
}

// Event is called by the mux when a watch has fired, in the order in which the server sent the
// events.
func (c *connection) Event(ev wire.WatcherEvent) {
	if z := c.zkSession(); z != nil {
		z.nodeEvent(ev)
	}
}
