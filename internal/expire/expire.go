// Package expire ends ZooKeeper sessions: it attaches to one and closes it, in one write.
package expire

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"github.com/zklock/zklock/internal/sasl"
	"github.com/zklock/zklock/internal/wire"
)

// Credentials are what servers may want before they end a session.
type Credentials struct {
	SASL  sasl.Exchange // of this connection; nil for none
	Auths []wire.AuthRequest
}

// Close attaches to a session over a new connection, and closes it. To attach is a sign of life for the session. So everything goes
// out in one write, and nothing is waited for before the close is on its way: a client that hears no answers ends its session all the
// same, and does not keep it alive (F51). The server sees a client that has seen nothing, so that no server is too far behind to take
// us in. With SASL there is no such write: the server's answers are needed first, because a server that wants SASL takes no close before it.
//
// there says that the server attached us. An error that is a wire.Code is the server's refusal. After any other error the
// session may have ended, or not.
func Close(conn io.ReadWriter, session wire.ConnectRequest, creds Credentials) (there bool, err error) {
	session.LastZxidSeen = 0
	connect, end := wire.Frame(session), []byte(nil)
	for _, a := range creds.Auths {
		end = append(end, wire.Frame(wire.RequestHeader{Xid: wire.XidAuth, Op: wire.OpAuth}, a)...)
	}
	end = append(end, wire.Frame(wire.RequestHeader{Xid: xidClose, Op: wire.OpClose})...)
	if creds.SASL == nil {
		connect, end = append(connect, end...), nil
	}
	if _, err := conn.Write(connect); err != nil {
		return false, err
	}
	var answer wire.ConnectResponse
	if err := read(conn, &answer); err != nil || answer.SessionID == 0 {
		return false, err
	}
	if creds.SASL != nil {
		xid := int32(xidClose)
		next := func() int32 { xid++; return xid }
		err := creds.SASL(sasl.Over(conn, next, func() ([]byte, error) { return wire.ReadFrame(conn, wire.MaxHandshake) }))
		if err != nil {
			return true, fmt.Errorf("SASL: %w", err)
		}
		if _, err := conn.Write(end); err != nil {
			return true, err
		}
	}
	return ended(conn)
}

const xidClose = 1 // the connection has one

// ended reads the answers up to that to the close.
func ended(conn io.Reader) (there bool, err error) {
	for {
		var h wire.ReplyHeader
		err := read(conn, &h)
		switch {
		case err != nil:
			return true, err
		case h.Err == wire.SessionExpired:
			return true, nil
		case h.Err != wire.OK:
			return true, h.Err
		case h.Xid == xidClose:
			return true, nil
		}
	}
}

// Outcome is what a server has answered to Close, for people.
type Outcome string

// NoAnswer: the session may have ended, or not.
const NoAnswer Outcome = "no answer"

// OutcomeOf says what the results of Close mean.
func OutcomeOf(there bool, err error) Outcome {
	var refusal wire.Code
	switch {
	case errors.As(err, &refusal):
		return Outcome(fmt.Sprintf("refused with code %d: it expires by itself", refusal))
	case err != nil:
		return NoAnswer
	case there:
		return "ended"
	}
	return "it was gone"
}

func read(conn io.Reader, into interface{ Decode(*wire.Decoder) }) error {
	body, err := wire.ReadFrame(conn, wire.MaxHandshake)
	if err != nil {
		return err
	}
	d := wire.NewDecoder(body)
	into.Decode(d)
	return d.Err()
}

// Timeout bounds one attempt.
const Timeout = 10 * time.Second

// attempts bounds how often the client may take its session back before we give up.
const attempts = 100

// Session ends a session on the ensemble that the dialled server is part of: its ephemeral nodes are gone when it returns,
// and its client learns of it when it next attaches. It returns false if the server did not know the session to begin with,
// or makes passwords in a way of its own. credentials is for servers that do nothing without, and may be nil. It is asked for each
// connection.
//
// A server wants a session's password before it closes it, and makes that from the session's id (ZooKeeper 3.4 to at
// least 3.9). The client, whose connection our attaching cuts, may take the session back before the server says that it is
// closed. The server then cuts our connection, and we go again.
func Session(dial func(timeout time.Duration) (net.Conn, error), session int64, credentials func() (Credentials, error)) (was bool, err error) {
	if session == 0 {
		return false, errors.New("expire session 0: there is no such session")
	}
	request := wire.ConnectRequest{Timeout: 10_000, SessionID: session, Password: wire.SessionPassword(session), HasReadOnly: true}
	for try := range attempts {
		var creds Credentials
		if credentials != nil {
			if creds, err = credentials(); err != nil {
				return try > 0, fmt.Errorf("expire session %#x: %w", uint64(session), err)
			}
		}
		var conn net.Conn
		if conn, err = dial(Timeout); err != nil {
			return try > 0, fmt.Errorf("expire session %#x: %w", uint64(session), err)
		}
		_ = conn.SetDeadline(time.Now().Add(Timeout))
		was, err = Close(conn, request, creds)
		_ = conn.Close()
		switch {
		case err == nil:
			return was || try > 0, nil // what was cut before may have been the answer to the close
		case Refused(err), errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, wire.ErrFrameLength):
			return try > 0, fmt.Errorf("expire session %#x: %w", uint64(session), err)
		}
	}
	return true, fmt.Errorf("expire session %#x: %d attempts without an answer: %w", uint64(session), attempts, err)
}

// Refused says of an error of Session that the server answered, and wants other credentials.
func Refused(err error) bool {
	return errors.Is(err, wire.AuthFailed) || errors.Is(err, wire.AuthRequired) || errors.Is(err, wire.NoAuth) ||
		errors.Is(err, sasl.ErrFailed)
}
