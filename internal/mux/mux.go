// Package mux provides the connection that the ZooKeeper client uses, and over which zklock also
// sends frames of its own.
package mux

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"syscall"
	"time"

	"github.com/zklock/zklock/internal/clock"
	"github.com/zklock/zklock/internal/expire"
	"github.com/zklock/zklock/internal/lastzxid"
	"github.com/zklock/zklock/internal/wire"
)

// Sink is notified by one mux. Its methods are called on the ZooKeeper client's goroutines, in the
// order of the frames in each direction. They must not block and must not call the client.
type Sink interface {
	// Connecting decides the treatment of the client's connect request for a session.
	Connecting(session int64) Approach
	// AskedToEnd reports a server's response to our request to end the session.
	AskedToEnd(outcome expire.Outcome)
	// Ended reports that a server has confirmed the client's end of its session.
	Ended()
	// Connected reports the connect response. An error rejects the connection.
	Connected(r Response, sent, answered clock.Instant) error
	// Credentials are sent first on every connection, before the client's own requests. It is
	// called once per connection.
	Credentials() expire.Credentials
	// Authenticated reports that the server accepted all of them (nil), or rejected one: a
	// wire.Code is the server's error.
	Authenticated(err error)
	// Event reports that a watch has fired, one of ours or one of the client's.
	Event(ev wire.WatcherEvent)
	// Answered reports a reply that shows that the server serves this session.
	Answered(sent, at clock.Instant)
	// Quorum reports that an operation sent at that time succeeded, which needs the leader and a
	// majority.
	Quorum(sent clock.Instant)
	// Refused reports an error code in the reply to op: the session has ended, or is in trouble, or
	// the server serves it only with other credentials.
	Refused(op wire.Op, code wire.Code)
	// Disconnected reports, once, that nothing more arrives on this connection. It returns the
	// Reply.Why of the requests of the kind HangUp.At.
	Disconnected(h HangUp) (why error)
}

// HangUp describes our unanswered requests when a server ended the connection. It is zero if there
// are none, or if the server did not end it.
type HangUp struct {
	Longest int // the longest Reply.HungUpOn
	// The oldest request, if the server has not replied to one of that kind on this connection;
	// otherwise 0.
	At wire.Op
}

// Mux is the connection that the ZooKeeper client uses. It forwards the client's frames, and sends
// our requests between them; the client never sees the replies to ours, or the events of our
// watches. It notes the times of requests and replies, and the session and its timeout. It limits
// the duration of the handshake, for which the client has no useful limit, and adds the credentials
// after it. It tracks the last zxid for the client, and responds to the connect request of a
// session that was given up.
//
// The client writes a whole frame at a time on one goroutine, and reads on another. The first
// goroutine that has something to write writes for all, until nothing is left: the client's, or the
// goroutine of WriteRequests for our requests.
type Mux struct {
	net.Conn
	Seq   uint64   // the number of this connection in the Session
	raw   net.Conn // the same without TLS
	sink  Sink
	clock *clock.Clock
	zxids *lastzxid.Conn
	traffic
	handshake handshake

	in       inbound
	toClient []byte      // the part of the last frame that the client has not read
	out      wire.Stream // the client's writes, used by its writing goroutine
}

// MaxReply is the longest frame that is read from a server, for us and for the client. During the
// handshake the limit is wire.MaxHandshake.
const MaxReply = 64 << 20

// New returns the mux of a new connection, the seq-th of its Session; raw is the same connection
// without TLS. The handshake must end by handshakeDeadline. The sink is notified of all events.
func New(c, raw net.Conn, sink Sink, clk *clock.Clock, zxids *lastzxid.Conn, xids *Xids, seq uint64, handshakeDeadline time.Time) *Mux {
	t := &Mux{Conn: c, raw: raw, sink: sink, clock: clk, zxids: zxids, Seq: seq, traffic: traffic{xids: xids, toWrite: make(chan struct{}, 1)}}
	t.mu.pending = make(map[int32]outstanding)
	t.mu.patience = time.Until(handshakeDeadline)
	t.in.stream.Limit, t.handshake.deadline = wire.MaxHandshake, handshakeDeadline
	if l, ok := raw.(interface{ SetLinger(sec int) error }); ok {
		// Data that is still in the socket at the close must not arrive later: it would touch a
		// session that we have given up, or create a node in it.
		_ = l.SetLinger(0)
	}
	_ = c.SetDeadline(handshakeDeadline)
	return t
}

// Before returns the last zxid seen when the connection was opened.
func (t *Mux) Before() int64 { return t.zxids.Before() }

// SetReadDeadline limits how long the client waits for the handshake, including the replies to the
// credentials.
func (t *Mux) SetReadDeadline(d time.Time) error {
	if (!t.isShaken() || t.handshake.auths > 0) && (d.IsZero() || d.After(t.handshake.deadline)) {
		d = t.handshake.deadline
	}
	return t.Conn.SetReadDeadline(d)
}

// SetWriteDeadline does nothing: the mux has its own limits, and the client would remove them after
// each frame.
func (t *Mux) SetWriteDeadline(time.Time) error { return nil }

// Write takes frames from the client. It notes their time before they are sent: a lease begins at a
// send time, and an early time is the safe side.
//
// Write hides a failure from the client, which notices the end when it reads. If Write returned the
// error, the client would complete the request twice: once for the failed write, and once more when
// it clears the unanswered requests of the connection. A request made while the client was being
// closed would be completed a third time, into a channel with a capacity of two and without a
// reader. The client would block indefinitely, and Close with it (I6).
func (t *Mux) Write(p []byte) (int, error) {
	at := t.clock.Now()
	t.out.Add(p)
	for {
		f, err := t.out.Next()
		switch {
		case err != nil:
		case f == nil:
			return len(p), nil
		case !t.handshake.begun:
			err = t.connectRequest(f, at)
		default:
			t.zxids.Request(f[4:])
			if t.pass(f, at) {
				t.writeOut()
			}
		}
		if err != nil {
			t.Cut()
			return len(p), nil
		}
	}
}

// Enqueue takes a request of ours. It returns false if this connection accepts no more requests.
func (t *Mux) Enqueue(r *Request) bool { return t.enqueue(r, t.clock.Now()) }

// WriteRequests writes our requests until the connection ends. It needs a goroutine of its own,
// because a write may block.
func (t *Mux) WriteRequests() {
	for range t.toWrite {
		t.writeOut()
	}
}

// writePiece is the number of bytes that even a slow network must accept within the time limit of
// one write.
const writePiece = 64 << 10

// writeOut writes until there is nothing left to write.
func (t *Mux) writeOut() {
	p, patience := t.nextToWrite(nil)
	for len(p) > 0 {
		for left := p; len(left) > 0; {
			n := min(len(left), writePiece)
			_ = t.Conn.SetWriteDeadline(time.Now().Add(patience))
			if _, err := t.Conn.Write(left[:n]); err != nil { // part of a frame may have been sent
				_ = t.raw.Close()
				t.disconnect(isHangUp(err), err)
				return
			}
			left = left[n:]
		}
		p, patience = t.nextToWrite(p)
	}
}

// Read returns the frames for the client, and handles each frame before the client sees any of it.
func (t *Mux) Read(p []byte) (int, error) {
	for len(t.toClient) == 0 {
		f, err := t.nextFrame()
		if err == nil {
			t.toClient, err = t.received(f)
		}
		if err == nil && len(t.toClient) == 0 {
			err = t.restartWait()
		}
		if err != nil {
			t.disconnect(isHangUp(err), err)
			_ = t.Conn.Close()
			return 0, err
		}
	}
	n := copy(p, t.toClient)
	t.toClient = t.toClient[n:]
	return n, nil
}

// restartWait is called for a frame that the client will not see. It restarts the client's wait for
// the server's next frame, unless the server replies only to us and not to the client's pings: the
// client leaves that server.
func (t *Mux) restartWait() error {
	patience, served := t.servesClient(t.clock.Now())
	if !served {
		return nil
	}
	return t.SetReadDeadline(time.Now().Add(patience))
}

// Close closes the connection; the sink is notified once.
func (t *Mux) Close() error {
	err := t.Conn.Close()
	t.disconnect(false, nil)
	return err
}

// Cut closes the connection at once, without the wait of a TLS close.
func (t *Mux) Cut() {
	_ = t.raw.Close()
	t.disconnect(false, nil)
}

// Leave cuts the connection, and stores the reason for Why.
func (t *Mux) Leave(why error) {
	t.noteWhy(why)
	t.Cut()
}

// isHangUp reports whether the error of a read or a write means that the server has ended the
// connection.
func isHangUp(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// disconnect reports, once, that nothing more arrives, and reports the fates of our requests.
func (t *Mux) disconnect(byServer bool, why error) {
	left, oldest, first := t.stop(why)
	if !first {
		return
	}
	var h HangUp
	fates := make([]Reply, len(left))
	for i, r := range left {
		fates[i] = Reply{Fate: NeverSent, Conn: t.Seq}
		if r.written {
			fates[i].Fate = NoAnswer
		}
		if r.written && byServer {
			fates[i].HungUpOn = len(r.frame) - 4
			h.Longest, h.At = max(h.Longest, fates[i].HungUpOn), oldest
		}
	}
	why = t.sink.Disconnected(h)
	for i, r := range left {
		if fates[i].HungUpOn > 0 && r.op == h.At {
			fates[i].Why = why
		}
		r.Done(fates[i])
	}
}

// received handles a frame from the server, and returns the frame for the client, if any.
func (t *Mux) received(f []byte) ([]byte, error) {
	body := f[4:]
	if !t.isShaken() {
		f = slices.Clone(f) // further frames are read meanwhile
		return f, t.connected(f[4:])
	}
	d := wire.NewDecoder(body)
	var h wire.ReplyHeader
	if h.Decode(d); d.Err() != nil {
		return nil, fmt.Errorf("zklock: a reply of %d bytes has no header", len(body))
	}
	if isOurs(h.Xid) {
		t.zxids.Hidden(h.Zxid)
	} else {
		t.zxids.Reply(body)
	}
	switch h.Xid {
	case wire.XidEvent: // sent without a request: does not prove that the server receives ours
		var ev wire.WatcherEvent
		if ev.Decode(d); d.Err() == nil {
			t.sink.Event(ev)
			if !t.isWatched(ev.Path) {
				return nil, nil
			}
		}
		return f, nil
	case wire.XidAuth:
		return nil, t.authReply(h.Err)
	case wire.XidPing:
		t.pingReply(h.Err)
		return f, nil
	}

	x, asked := t.answered(h.Xid, t.in.now)
	switch {
	case !asked && isOurs(h.Xid):
		return nil, fmt.Errorf("zklock: the server answered request %d, which was not made", h.Xid)
	case !asked:
		return f, nil
	}
	t.judge(x, h, d.Rest())
	if x.ours == nil {
		return checked(f, x, h, d.Rest()), nil
	}
	a := Reply{Fate: WasAnswered, Conn: t.Seq, Zxid: h.Zxid, Code: h.Err}
	switch h.Err {
	case wire.OK:
		a.Body = d.Rest()
	case wire.AuthRequired:
		// The server did not execute the request, and the connection has ended. So the request can
		// be sent to another server.
		a = Reply{Fate: NeverSent, Conn: t.Seq}
	}
	x.ours.Done(a)
	return nil, nil
}

// checked returns the response to a request of the client, or an error response if it is malformed.
// The client allocates memory for the number of items that a response claims: a few bytes could
// exhaust the memory and end the process. With the error, only that request fails.
func checked(f []byte, x outstanding, h wire.ReplyHeader, body []byte) []byte {
	if h.Err != wire.OK || wire.CheckResponse(x.op, x.size, body) == nil {
		return f
	}
	h.Zxid, h.Err = 0, wire.MarshallingError
	return wire.Frame(h)
}

// connected handles the connect response. It reports the response only after SASL, because until
// then the connection serves no request.
func (t *Mux) connected(body []byte) error {
	r, err := t.connectResponse(body)
	if err != nil {
		return err
	}
	answered, creds := t.clock.Now(), expire.Credentials{}
	if r.SessionID != 0 {
		creds = t.sink.Credentials()
		if err := t.sasl(creds.SASL); err != nil {
			return err
		}
	}
	t.in.stream.Limit = MaxReply
	t.shake(r.Timeout * 2 / 3) // like the client's
	if err := t.sink.Connected(r, t.handshake.sent, answered); err != nil || r.SessionID == 0 {
		return err
	}
	return t.authenticate(creds.Auths)
}

// judge reports the meaning of a reply for the session.
func (t *Mux) judge(x outstanding, h wire.ReplyHeader, body []byte) {
	code := h.Err
	if x.op == wire.OpMulti && code == wire.OK {
		code = multiCode(body)
	}
	switch {
	case x.op == wire.OpAuth:
		return
	// SessionMoved does not mean that the session has ended.
	case code == wire.SessionExpired, code == wire.AuthRequired, code == wire.SessionMoved:
		t.sink.Refused(x.op, code)
		return
	}
	t.sink.Answered(x.at, t.in.now)
	if code != wire.OK {
		return
	}
	switch x.op {
	case wire.OpCreate, wire.OpCreate2, wire.OpDelete, wire.OpSetData, wire.OpMulti:
		t.sink.Quorum(x.at)
	case wire.OpClose:
		t.sink.Ended()
	}
}

// multiCode returns OK if the multi succeeded and was not empty. A failed multi has a header
// without an error and begins with an error result, and an empty one begins with the end mark. Both
// have type −1, and neither proves anything. The leader's verdict on the session is in one of the
// results, because it checks the session for each operation.
func multiCode(body []byte) wire.Code {
	if first := wire.NewDecoder(body); first.Int32() != int32(wire.OpError) && first.Err() == nil {
		return wire.OK
	}
	ofSession := wire.NewDecoder(body).MultiError(func(c wire.Code) bool { return c == wire.SessionExpired || c == wire.SessionMoved })
	return cmp.Or(ofSession, wire.RuntimeInconsistency)
}

func (t *Mux) pingReply(code wire.Code) {
	at, ok := t.pinged()
	switch {
	case code != wire.OK:
		t.sink.Refused(wire.OpPing, code)
	case ok:
		t.sink.Answered(at, t.in.now)
	}
}
