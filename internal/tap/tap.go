// Package tap is the connection that the ZooKeeper client talks through, and what is sent over it between the client's frames.
package tap

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

// Sink hears from one tap. Its methods are called on the ZooKeeper client's goroutines, in the order of the frames in each
// direction: they must not block and must not call the client.
type Sink interface {
	// Connecting says what is to become of the client's connect request for a session.
	Connecting(session int64) Approach
	// AskedToEnd reports what a server answered when it was asked to end the session.
	AskedToEnd(outcome expire.Outcome)
	// Connected reports the connect response. An error refuses the connection.
	Connected(r Response, sent, answered clock.Instant) error
	// Credentials are sent first on every connection, before the client's own requests. It is called once a connection.
	Credentials() expire.Credentials
	// Authenticated reports that the server took the last of them (nil), or that it did not: an error that is a wire.Code is its refusal.
	Authenticated(err error)
	// Event reports that a watch of ours or of the client's has fired.
	Event(ev wire.WatcherEvent)
	// Answered reports an answer that shows that the server serves this session.
	Answered(sent, at clock.Instant)
	// Quorum reports that an operation sent at that time succeeded, which takes the leader and a majority.
	Quorum(sent clock.Instant)
	// Refused reports an error code that says that the session is over, or in trouble, or that the
	// server serves it only with other credentials: in the answer to op.
	Refused(op wire.Op, code wire.Code)
	// Flush calls WriteOut, on a goroutine that may wait.
	Flush()
	// Disconnected reports, once, that nothing more comes from this connection. It returns the Answer.Why of the requests of the kind
	// HangUp.At.
	Disconnected(h HangUp) (why error)
}

// HangUp is what a server left unanswered of ours when it ended the connection. The zero value: nothing, or it did not end it.
type HangUp struct {
	Longest int     // the longest Answer.HungUpOn
	At      wire.Op // the oldest request, if the server had not responded to one of that kind on this connection; otherwise 0
}

// Tap is the connection that the ZooKeeper client talks through. It passes the client's frames on, and sends requests of ours
// between them; the client never sees the replies to ours. It notes what was sent when, what was answered, and the session
// and its timeout. It adds the credentials after the handshake. It caps the handshake's time, because the client has no useful
// limit for that. It keeps the last zxid in the client's place. And it answers the connect request of a session that was
// given up.
//
// The client writes a whole frame at a time, on one goroutine, and reads on another. The first goroutine that has something
// to write writes for all, until nothing is left: the client's own, or one of the Session's for our requests.
type Tap struct {
	net.Conn
	Seq   uint64   // which connection of the Session this is
	raw   net.Conn // the same without TLS
	sink  Sink
	clock *clock.Clock
	zxids *lastzxid.Conn
	traffic
	handshake handshake

	in       inbound
	toClient []byte      // of the last frame, what the client has not read
	out      wire.Stream // what the client wrote, of the goroutine that writes
}

// MaxReply is the longest frame that is read from a server, for us and for the client. During the
// handshake the limit is wire.MaxHandshake.
const MaxReply = 64 << 20

// New returns the tap of a connection that has just been made; raw is the same connection without TLS. The sink hears of all
// that happens. seq is the number of the connection in its Session. The handshake must be done by handshakeDeadline.
func New(c, raw net.Conn, sink Sink, clk *clock.Clock, zxids *lastzxid.Conn, xids *Xids, seq uint64, handshakeDeadline time.Time) *Tap {
	t := &Tap{Conn: c, raw: raw, sink: sink, clock: clk, zxids: zxids, Seq: seq, traffic: traffic{xids: xids}}
	t.mu.pending = make(map[int32]outstanding)
	t.mu.patience = time.Until(handshakeDeadline)
	t.in = inbound{conn: c, clock: clk, traffic: &t.traffic, stream: wire.Stream{Limit: wire.MaxHandshake}}
	t.handshake = handshake{conn: c, sink: sink, zxids: zxids, in: &t.in, xids: xids, deadline: handshakeDeadline}
	if l, ok := raw.(interface{ SetLinger(sec int) error }); ok {
		// What is still in the socket when it is closed must not arrive later: it would touch a session that we have given
		// up, or make a node in it.
		_ = l.SetLinger(0)
	}
	_ = c.SetDeadline(handshakeDeadline)
	return t
}

// Before returns the last zxid that was seen when the connection was opened.
func (t *Tap) Before() int64 { return t.zxids.Before() }

// SetReadDeadline keeps the client from waiting for the handshake, the answers to the credentials included, longer than we
// allow.
func (t *Tap) SetReadDeadline(d time.Time) error {
	if (!t.isShaken() || t.handshake.auths > 0) && (d.IsZero() || d.After(t.handshake.deadline)) {
		d = t.handshake.deadline
	}
	return t.Conn.SetReadDeadline(d)
}

// SetWriteDeadline does nothing: the tap has limits of its own, and the client would take them away after each frame.
func (t *Tap) SetWriteDeadline(time.Time) error { return nil }

// Write takes frames of the client's. It notes their time before they go out: a lease is anchored at send times, and too
// early is the safe side.
//
// Write hides a failure from the client: the client hears of the end when it reads. If Write returned the error, the client
// would answer the request twice: once for the failed write, and once more when it clears away what the connection left
// unanswered. A request made while the client was being closed would get a third answer, into a channel with room for two
// and without a reader. The client would stand still for ever, and Close with it (I6).
func (t *Tap) Write(p []byte) (int, error) {
	at := t.clock.Now()
	t.out.Add(p)
	for {
		f, err := t.out.Next()
		switch {
		case err != nil:
		case f == nil:
			return len(p), nil
		case !t.handshake.begun:
			err = t.handshake.begin(f, at)
		default:
			t.zxids.Request(f[4:])
			if t.pass(f, at) {
				t.WriteOut()
			}
		}
		if err != nil {
			t.Cut()
			return len(p), nil
		}
	}
}

// Enqueue takes a request of ours, and returns false if nothing more goes over this connection. If write is set, the caller
// must call WriteOut, on a goroutine that may wait.
func (t *Tap) Enqueue(r *Request) (ok, write bool) { return t.enqueue(r, t.clock.Now()) }

// writePiece is how many bytes even a slow network must take within the time that one write may take.
const writePiece = 64 << 10

// WriteOut writes until nothing is left to write.
func (t *Tap) WriteOut() {
	p, patience := t.toWrite(nil)
	for len(p) > 0 {
		for left := p; len(left) > 0; {
			n := min(len(left), writePiece)
			_ = t.Conn.SetWriteDeadline(time.Now().Add(patience))
			if _, err := t.Conn.Write(left[:n]); err != nil { // a part of a frame may be out
				_ = t.raw.Close()
				t.disconnect(isHangUp(err), err)
				return
			}
			left = left[n:]
		}
		p, patience = t.toWrite(p)
	}
}

// Read gives the client what is for it, and handles each frame before the client sees any of it.
func (t *Tap) Read(p []byte) (int, error) {
	for len(t.toClient) == 0 {
		f, err := t.in.next()
		if err == nil {
			t.toClient, err = t.received(f)
		}
		if err == nil && len(t.toClient) == 0 {
			err = t.beenPatient()
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

// beenPatient is called for a frame that the client will not see: it restarts the time that the client gives the server for
// its next frame. It does not do so for a server that answers only us, and not the client's pings: the client leaves that one.
func (t *Tap) beenPatient() error {
	patience, served := t.servesClient(t.clock.Now())
	if !served {
		return nil
	}
	return t.SetReadDeadline(time.Now().Add(patience))
}

// Close closes the connection; the sink hears of it once.
func (t *Tap) Close() error {
	err := t.Conn.Close()
	t.disconnect(false, nil)
	return err
}

// Cut closes the connection without a word, and without the wait that a TLS goodbye can take.
func (t *Tap) Cut() {
	_ = t.raw.Close()
	t.disconnect(false, nil)
}

// Leave cuts the connection, and notes why for Why.
func (t *Tap) Leave(why error) {
	t.noteWhy(why)
	t.Cut()
}

// isHangUp says whether the error of a read or a write says that the server has ended the connection.
func isHangUp(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// disconnect tells, once, that nothing more comes, and what became of our requests.
func (t *Tap) disconnect(byServer bool, why error) {
	left, oldest, first := t.stop(why)
	if !first {
		return
	}
	var h HangUp
	fates := make([]Answer, len(left))
	for i, r := range left {
		fates[i] = Answer{Fate: NeverSent, Conn: t.Seq}
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

// received handles a frame from the server, and returns what the client is to see of it.
func (t *Tap) received(f []byte) ([]byte, error) {
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
	case wire.XidEvent: // sent by the server on its own account: no sign that it heard us
		var ev wire.WatcherEvent
		if ev.Decode(d); d.Err() == nil {
			t.sink.Event(ev)
		}
		return f, nil
	case wire.XidAuth:
		return nil, t.handshake.authReply(h.Err)
	case wire.XidPing:
		t.pingReply(h.Err)
		return f, nil
	}

	x, asked, write := t.answered(h.Xid, t.in.now)
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
	if write {
		t.sink.Flush()
	}
	a := Answer{Fate: WasAnswered, Conn: t.Seq, Zxid: h.Zxid, Code: h.Err}
	switch h.Err {
	case wire.OK:
		a.Body = d.Rest()
	case wire.AuthRequired:
		// The server did not carry the request out, and the connection has ended: the request can go
		// to another server.
		a = Answer{Fate: NeverSent, Conn: t.Seq}
	}
	x.ours.Done(a)
	return nil, nil
}

// checked returns the response to a request of the client, or an error response if it is malformed.
// The client allocates memory for the number of items that a response claims: a few bytes could
// take all memory and end the process. With the error, only its caller's request fails.
func checked(f []byte, x outstanding, h wire.ReplyHeader, body []byte) []byte {
	if h.Err != wire.OK || wire.CheckResponse(x.op, x.size, body) == nil {
		return f
	}
	h.Zxid, h.Err = 0, wire.MarshallingError
	return wire.Frame(h)
}

// connected handles the connect response. It is not reported before SASL is over: a connection on which nothing can be asked is not there.
func (t *Tap) connected(body []byte) error {
	r, err := t.handshake.response(body)
	if err != nil {
		return err
	}
	answered, creds := t.clock.Now(), expire.Credentials{}
	if r.SessionID != 0 {
		creds = t.sink.Credentials()
		if err := t.handshake.sasl(creds.SASL); err != nil {
			return err
		}
	}
	t.in.stream.Limit = MaxReply
	t.shake(r.Timeout * 2 / 3) // as the client's
	if err := t.sink.Connected(r, t.handshake.sent, answered); err != nil || r.SessionID == 0 {
		return err
	}
	return t.handshake.authenticate(creds.Auths)
}

// judge reports what an answer says about the session.
func (t *Tap) judge(x outstanding, h wire.ReplyHeader, body []byte) {
	code := h.Err
	if x.op == wire.OpMulti && code == wire.OK {
		code = multiCode(body)
	}
	switch {
	case x.op == wire.OpAuth:
		return
	case code == wire.SessionExpired, code == wire.AuthRequired, code == wire.SessionMoved: // the last says nothing about the session's life
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
	}
}

// multiCode returns OK if the multi succeeded, and did anything. A failed multi has a clean header and begins with an error
// result, an empty one with the end mark: both have type −1, and neither proves anything. What the leader says about the session
// stands in one of the results, because it checks the session for each operation.
func multiCode(body []byte) wire.Code {
	if first := wire.NewDecoder(body); first.Int32() != int32(wire.OpError) && first.Err() == nil {
		return wire.OK
	}
	ofSession := wire.NewDecoder(body).MultiError(func(c wire.Code) bool { return c == wire.SessionExpired || c == wire.SessionMoved })
	return cmp.Or(ofSession, wire.RuntimeInconsistency)
}

func (t *Tap) pingReply(code wire.Code) {
	at, ok := t.pinged()
	switch {
	case code != wire.OK:
		t.sink.Refused(wire.OpPing, code)
	case ok:
		t.sink.Answered(at, t.in.now)
	}
}
