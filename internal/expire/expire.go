// Package expire ends a session on any ZooKeeper server, without the client that owns it.
package expire

import (
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/zklock/zklock/internal/wire"
)

// Timeout bounds one attempt.
const Timeout = 10 * time.Second

// attempts bounds how often the client may take its session back before we give up.
const attempts = 100

// errCut says that the server closed our connection before it said whether there is such a session: its client took it
// back at that very moment.
var errCut = errors.New("the connection was closed without an answer")

// Session ends a session on the ensemble that the dialled server is part of: its ephemeral nodes are gone when it returns,
// and its client learns of it when it next attaches. It returns false if the server did not know the session to begin with,
// or makes passwords in a way of its own. digest is "user:password" for servers that do nothing without credentials, or
// empty.
//
// A server wants a session's password before it closes it, and makes that from the session's id (ZooKeeper 3.4 to at
// least 3.9). So we connect as the session and close it, in one write. The client, whose connection this cuts, may take
// the session back at any moment in between. Then the close was not ours to make and we go again, until the server says
// that the session is gone.
func Session(dial func(timeout time.Duration) (net.Conn, error), session int64, digest string) (was bool, err error) {
	if session == 0 {
		return false, errors.New("expire session 0: there is no such session")
	}
	for try := range attempts {
		var gone bool
		gone, err = closeOnce(dial, session, digest)
		switch {
		case gone:
			// After a connection that was cut, too: what was cut may have been the answer to the close.
			return try > 0, nil
		case err != nil && !errors.Is(err, errCut):
			return try > 0, fmt.Errorf("expire session %#x: %w", uint64(session), err)
		}
	}
	if err == nil {
		err = errors.New("it was still there")
	}
	return true, fmt.Errorf("expire session %#x: %w after %d attempts", uint64(session), err, attempts)
}

// closeOnce attaches and closes. It returns true if there was no session to attach to.
func closeOnce(dial func(timeout time.Duration) (net.Conn, error), session int64, digest string) (gone bool, err error) {
	nc, err := dial(Timeout)
	if err != nil {
		return false, err
	}
	defer nc.Close()
	if err := nc.SetDeadline(time.Now().Add(Timeout)); err != nil {
		return false, err
	}
	const closing = 1 // xid
	frames := wire.Frame(wire.ConnectRequest{
		Timeout: 10_000, SessionID: session, Password: wire.SessionPassword(session), HasReadOnly: true,
	})
	if digest != "" {
		frames = append(frames, wire.Frame(wire.RequestHeader{Xid: wire.XidAuth, Op: wire.OpAuth}, wire.AuthRequest{Scheme: "digest", Auth: []byte(digest)})...)
	}
	frames = append(frames, wire.Frame(wire.RequestHeader{Xid: closing, Op: wire.OpClose})...)
	var body []byte
	if _, err = nc.Write(frames); err == nil {
		body, err = wire.ReadFrame(nc, wire.MaxFrame)
	}
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, wire.ErrFrameLength):
		return false, err
	case err != nil:
		return false, fmt.Errorf("%w: %w", errCut, err)
	}
	var answer wire.ConnectResponse
	d := wire.NewDecoder(body)
	if answer.Decode(d); d.Err() != nil {
		return false, d.Err()
	}
	if answer.SessionID == 0 {
		return true, nil
	}
	// Whatever comes now, events or the answer to the close: the connection ends when the session has. It may also be cut
	// because the client has taken the session back. The next attempt tells.
	for {
		body, err := wire.ReadFrame(nc, wire.MaxFrame)
		if err != nil {
			return false, nil
		}
		var h wire.ReplyHeader
		h.Decode(wire.NewDecoder(body))
		if (h.Xid == closing || h.Xid == wire.XidAuth) && Refused(h.Err) {
			return false, h.Err
		}
	}
}

// Refused says of an error of Session that the server answered, and wants other credentials.
func Refused(err error) bool {
	return errors.Is(err, wire.AuthFailed) || errors.Is(err, wire.AuthRequired) || errors.Is(err, wire.NoAuth)
}
