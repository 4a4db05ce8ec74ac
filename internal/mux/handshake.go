package mux

import (
	"fmt"
	"time"

	"github.com/zklock/zklock/internal/clock"
	"github.com/zklock/zklock/internal/expire"
	"github.com/zklock/zklock/internal/sasl"
	"github.com/zklock/zklock/internal/wire"
)

// Approach is the mux's treatment of the client's connect request.
type Approach int

const (
	Attach Approach = iota // forward it
	// End the session, because we have given it up, and notify the client that it expired.
	EndIt
	SayItsEnded // notify the client that the session expired; send the server nothing
)

// Response is the server's connect response; a session id of 0 means that the session has expired.
type Response struct {
	Timeout   time.Duration
	SessionID int64
	Password  []byte
}

// handshake is the beginning of a connection, up to the replies to the credentials:
//
//	connect request ──▶ Attach: forwarded ──▶ response ──▶ SASL ──▶ credentials ──▶ their replies
//	     ├──▶ EndIt: the session is ended ──▶ the client is notified that it expired
//	     └──▶ SayItsEnded ──▶ the client is notified that it expired
//
// The client runs it on one goroutine; only the replies to the credentials arrive on its reading
// goroutine. SASL ends before the client sees the response, because a server that requires SASL
// accepts no other request before.
type handshake struct {
	deadline time.Time     // the handshake must end by then
	begun    bool          // the connect request has been sent
	isNew    bool          // it requests a new session
	sent     clock.Instant // the time of that
	auths    int           // credentials without a reply so far
}

// connectRequest handles the client's connect request.
func (t *Mux) connectRequest(f []byte, at clock.Instant) error {
	var r wire.ConnectRequest
	d := wire.NewDecoder(f[4:])
	if r.Decode(d); d.Err() != nil {
		return fmt.Errorf("zklock: the client's connect request: %w", d.Err())
	}
	t.handshake.begun, t.handshake.isNew, t.handshake.sent = true, r.SessionID == 0, at
	switch t.sink.Connecting(r.SessionID) {
	case EndIt:
		return t.endSession(r)
	case SayItsEnded:
		t.in.stream.Add(expiredReply())
		return nil
	}
	t.zxids.ConnectRequest(f[4:])
	_, err := t.Conn.Write(f)
	return err
}

// endSession ends the session instead of attaching the client to it. If the server does not
// respond, the client may try the next one. After any response to the close, none of our requests
// touches the session again: the client is notified that it expired.
func (t *Mux) endSession(r wire.ConnectRequest) error {
	there, err := expire.Close(t.Conn, r, t.sink.Credentials())
	outcome := expire.OutcomeOf(there, err)
	t.sink.AskedToEnd(outcome)
	if outcome == expire.NoAnswer {
		return err
	}
	t.in.stream.Add(expiredReply())
	return nil
}

// connectResponse reads the connect response.
func (t *Mux) connectResponse(body []byte) (r Response, err error) {
	t.zxids.ConnectResponse(body)
	var w wire.ConnectResponse
	d := wire.NewDecoder(body)
	if w.Decode(d); d.Err() != nil {
		return r, fmt.Errorf("zklock: the connect response: %w", d.Err())
	}
	if w.SessionID != 0 && w.Timeout <= 0 { // the client would panic
		return r, fmt.Errorf("zklock: the server granted a session timeout of %d ms", w.Timeout)
	}
	return Response{time.Duration(w.Timeout) * time.Millisecond, w.SessionID, w.Password}, nil
}

// sasl performs the connection's exchange, if it has one. Its replies do not prove that the session
// is alive, because the server does not touch the session for them.
func (t *Mux) sasl(exchange sasl.Exchange) error {
	if exchange == nil {
		return nil
	}
	err := exchange(sasl.Over(t.Conn, t.xids.next, func() ([]byte, error) {
		f, err := t.nextFrame()
		if err != nil {
			return nil, err
		}
		return f[4:], nil
	}))
	if err != nil {
		err = fmt.Errorf("SASL: %w", err)
		t.sink.Authenticated(err)
		t.endNew()
	}
	return err
}

// endNew ends a session that the server has just created, and that no request will use. A server
// that requires SASL rejects a close before it: there the session expires.
func (t *Mux) endNew() {
	if !t.handshake.isNew {
		return
	}
	if _, err := t.Conn.Write(wire.Frame(wire.RequestHeader{Xid: t.xids.next(), Op: wire.OpClose})); err == nil {
		_, _ = t.nextFrame() // closing the connection before the response could discard the request
	}
}

// authenticate sends the credentials before the client can send anything. The client's own method
// (AddAuth) can block the client indefinitely if a write fails while it authenticates again.
func (t *Mux) authenticate(creds []wire.AuthRequest) error {
	t.handshake.auths = len(creds)
	for _, c := range creds {
		if _, err := t.Conn.Write(authFrame(c)); err != nil {
			return fmt.Errorf("zklock: sending credentials: %w", err)
		}
	}
	if len(creds) == 0 {
		t.sink.Authenticated(nil)
	}
	return nil
}

// authReply handles the reply to one of the credentials. An error ends the connection.
func (t *Mux) authReply(code wire.Code) error {
	if code != wire.OK {
		t.sink.Authenticated(code)
		return fmt.Errorf("the server rejected the credentials (code %d)", code)
	}
	if t.handshake.auths--; t.handshake.auths == 0 {
		t.sink.Authenticated(nil)
	}
	return nil
}

// authFrame returns an auth request with the xid that the protocol reserves for it.
func authFrame(c wire.AuthRequest) []byte {
	return wire.Frame(wire.RequestHeader{Xid: wire.XidAuth, Op: wire.OpAuth}, c)
}

// expiredReply returns the connect response with which a server reports that the session has
// expired.
func expiredReply() []byte { return wire.Frame(wire.ConnectResponse{Password: make([]byte, 16)}) }
