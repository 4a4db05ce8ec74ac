package zktest

import (
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/zklock/zklock/internal/wire"
)

// ExpireSession ends a session on any ZooKeeper server, as if it had run out: its nodes are gone when
// ExpireSession returns, and its client learns of it when it next attaches. All it needs is the id, because
// servers from 3.4 on derive a session's password from it.
//
// It attaches to the session, which cuts the client's connection, and closes it, in one write; it does so again
// until the server says that there is no such session, since the client may take it back in between. A session
// that was gone to begin with is not an error.
func ExpireSession(addr string, session int64) error {
	dial := func(network, addr string, timeout time.Duration) (net.Conn, error) {
		return net.DialTimeout(network, addr, timeout)
	}
	return expireSession(dial, addr, session)
}

// Dialer opens connections; [Network.Dial] is one.
type Dialer = func(network, address string, timeout time.Duration) (net.Conn, error)

const (
	expireAttempts = 100
	expireTimeout  = 10 * time.Second // of one attempt
)

func expireSession(dial Dialer, addr string, session int64) error {
	if session == 0 {
		return errors.New("zktest: expire session 0: there is no such session")
	}
	var err error
	for range expireAttempts {
		var gone bool
		gone, err = closeOnce(dial, addr, session)
		switch {
		case gone:
			return nil
		case err != nil && !errors.Is(err, errCut):
			return fmt.Errorf("zktest: expire session %#x: %w", session, err)
		}
	}
	if err == nil {
		err = errors.New("it was still there")
	}
	return fmt.Errorf("zktest: expire session %#x: %w after %d attempts", session, err, expireAttempts)
}

// errCut says that the server closed our connection before it said whether there is such a session: its client took it
// back at that very moment.
var errCut = errors.New("the connection was closed without an answer")

// closeOnce attaches and closes. It returns true if there was no session to attach to.
func closeOnce(dial Dialer, addr string, session int64) (gone bool, err error) {
	nc, err := dial("tcp", addr, expireTimeout)
	if err != nil {
		return false, err
	}
	defer nc.Close()
	if err := nc.SetDeadline(time.Now().Add(expireTimeout)); err != nil {
		return false, err
	}
	hello := wire.Frame(wire.ConnectRequest{
		Timeout: 10_000, SessionID: session, Password: wire.SessionPassword(session), HasReadOnly: true,
	})
	farewell := wire.Frame(wire.RequestHeader{Xid: 1, Op: wire.OpClose})
	var body []byte
	if _, err = nc.Write(append(hello, farewell...)); err == nil {
		body, err = wire.ReadFrame(nc, wire.MaxFrame)
	}
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
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
	// Whatever comes now, events or the answer to the close: the connection ends when the session has. It may
	// also be cut because the client has taken the session back. The next attempt tells.
	for err == nil {
		_, err = wire.ReadFrame(nc, wire.MaxFrame)
	}
	return false, nil
}
