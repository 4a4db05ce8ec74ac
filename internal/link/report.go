package link

import (
	"fmt"
	"net"
	"time"

	"github.com/zklock/zklock/internal/clock"
	"github.com/zklock/zklock/internal/dial"
	"github.com/zklock/zklock/internal/lease"
	"github.com/zklock/zklock/internal/tap"
	"github.com/zklock/zklock/internal/wire"
)

// report is the tap's sink: it passes on to the link what the tap of one connection reports. Answers and events go on to the
// ZooKeeper session while the connection is the current one (era), and to nobody afterwards.
type report struct {
	*connection
	link *Link
}

// dialServer is the client's dialer: it makes the connection, over TLS if so configured, and puts the tap in it. It ignores the
// client's own time-out of a second: name look-up, dial, TLS and handshake together have the handshake timeout.
func (l *Link) dialServer(network, addr string, _ time.Duration) (net.Conn, error) {
	l.mu.Lock()
	why, old, z := l.mu.why, l.mu.conn, l.mu.era
	l.mu.Unlock()
	if why != nil {
		return nil, why
	}
	d := dial.To{Network: network, Addr: addr}
	if old != nil {
		_ = old.tap.Close()           // when the client learns of an expiry, it leaves that connection open
		report{old, l}.Disconnected() // the goroutine that ended it says so too, but perhaps too late
		d.Last = old.tap.RemoteAddr().String()
	}
	timeout := l.Timeout
	if z != nil {
		timeout = z.Timeout()
	}
	d.Deadline = time.Now().Add(l.HandshakeCap)
	c, raw, err := l.dials.Dial(d, lease.Heartbeat(timeout))
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.why != nil {
		_ = raw.Close()
		return nil, l.mu.why
	}
	r := l.connectLocked(c, raw, d.Deadline)
	r.addr = addr
	return r.tap, nil
}

// connectLocked makes a connection the current one.
func (l *Link) connectLocked(c, raw net.Conn, handshakeDeadline time.Time) report {
	r := report{new(connection), l}
	l.mu.conns++
	r.tap = tap.New(c, raw, r, l.Clock, l.zxids.Connect(), &l.xids, l.mu.conns, handshakeDeadline)
	l.mu.conn = r.connection
	return r
}

func (r report) server() string { return r.tap.RemoteAddr().String() }

// era returns the ZooKeeper session that the connection carries, nil if it is not the current connection.
func (r report) era() *Era {
	r.link.mu.Lock()
	defer r.link.mu.Unlock()
	if r.link.mu.conn != r.connection {
		return nil
	}
	return r.link.mu.era
}

// Connecting decides about the client's connect request. If we have given the session up and it may be alive, we end it: its
// nodes keep the lock from others until it is over, and the client would attach to it again. We try until a server has
// answered, also with a refusal, or a few have hung up. From then on nothing of ours touches the session, and it is gone T
// and a tick later (R65). The next try goes on after a silent server: mostly it has no quorum, and the try has touched nothing.
// If it is only too slow for the handshake, the tries keep the session alive for as long as that lasts. To leave the session
// alone would be no better: then its nodes and those of the next session stand in one queue (I2).
//
// If no server has answered in the session for long, we ask after it. A server refuses a client that has seen more than the
// server has, without saying whether the session is over. If the servers came back from an older snapshot (F23), all of them
// refuse, and the client would stay out until they have caught up. To ask is a sign of life for the session, so we ask only
// once in a while.
func (r report) Connecting(session int64) tap.Approach {
	l := r.link
	l.mu.Lock()
	z, askedAfter := l.mu.era, l.mu.askedAfter
	l.mu.Unlock()
	if z == nil || z.ID != session {
		return tap.Attach
	}
	switch {
	case z.IsOver() && z.leftToExpire():
		return tap.SayItsEnded
	case z.IsOver():
		return tap.EndIt
	case z.overdue(l.Clock.Now(), askedAfter):
		return tap.AskAfter
	}
	return tap.Attach
}

func (r report) Found() {
	l := r.link
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.askedAfter = l.Clock.Now()
}

func (r report) HungUp() {
	if z := r.era(); z != nil {
		z.noteHangUp()
	}
}

func (r report) Ended(outcome string) {
	r.link.Log.Info("zklock: asked a server to end the given-up session", "server", r.server(), "outcome", outcome)
}

func (r report) Connected(resp tap.Response, sent, answered clock.Instant) error {
	l, shook := r.link, lease.Exchange{Sent: sent, Answered: answered}
	l.mu.Lock()
	old := l.mu.era
	if l.mu.conn != r.connection || l.mu.why != nil {
		l.mu.Unlock()
		return ErrClosed
	}
	switch {
	case resp.SessionID == 0 && old == nil: // not forgiven: it would say so again at once
		l.mu.Unlock()
		l.dials.Note(r.addr, errNoneToExpire)
		return errNoneToExpire
	case resp.SessionID == 0:
		l.mu.era = nil
		l.dials.Forgive()
	case old == nil || old.ID != resp.SessionID: // a change without an Expired event is an expiry too (F37)
		l.mu.era = NewEra(l, l.Log, l.Clock, l.Mode, resp, r.server(), r.tap.Seq, shook)
		l.mu.era.Inside = l.Open(l.mu.era)
	case old.IsOver(): // given up while the connect request was on its way
		l.mu.Unlock()
		return fmt.Errorf("zklock: session %#x was given up", resp.SessionID)
	default:
		old.reattach(r.server(), r.tap.Seq, shook, resp.Timeout)
		old = nil
	}
	l.mu.Unlock()
	if old != nil {
		old.Lose(ErrExpired)
	}
	return nil
}

func (r report) Credentials() (auths []wire.AuthRequest) {
	for _, d := range r.link.Digests {
		auths = append(auths, wire.AuthRequest{Scheme: "digest", Auth: d.Reveal()})
	}
	return auths
}

func (r report) Authenticated(code wire.Code) {
	l := r.link
	if code != wire.OK {
		err := fmt.Errorf("%w: %s refused the credentials (code %d)", ErrAuthFailed, r.server(), code)
		l.Log.Error("zklock: the server refused the credentials", "server", r.server(), "err", err)
		l.dials.Note(r.addr, err)
		l.close(err)
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.conn == r.connection {
		r.authed = true
		l.attachLocked()
	}
}

func (r report) Disconnected() {
	l := r.link
	l.mu.Lock()
	if l.mu.conn != r.connection {
		l.mu.Unlock()
		return
	}
	r.shaken, r.authed = false, false
	l.stepLocked(stateEvent{kind: detached})
	l.mu.Unlock()
}

func (r report) Answered(sent, answered clock.Instant) {
	if z := r.era(); z != nil {
		z.answered(r.tap.Seq, lease.Exchange{Sent: sent, Answered: answered})
	}
}

func (r report) Quorum(sent clock.Instant) {
	if z := r.era(); z != nil {
		z.quorum(r.tap.Seq, sent)
	}
}

func (r report) Refused(op wire.Op, code wire.Code) {
	err := ErrExpired
	if op == wire.OpPing {
		err = fmt.Errorf("%w: %s, code %d", errPingRefused, r.server(), code)
	}
	if z := r.era(); z != nil {
		z.Lose(err)
	}
	r.tap.Cut()
}

// Event is the tap's report that a watch has fired, in the order in which the server sent the events.
func (r report) Event(ev wire.WatcherEvent) {
	if z := r.era(); z != nil {
		z.nodeEvent(ev)
	}
}

// Flush has the tap write, on a goroutine that may wait. When the link is closed, only the client's last words are left, and
// Flush writes them itself.
func (r report) Flush() {
	if !r.link.Spawn(r.tap.WriteOut) {
		r.tap.WriteOut()
	}
}
