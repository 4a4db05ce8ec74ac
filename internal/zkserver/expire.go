package zkserver

import (
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/zklock/zklock/internal/expire"
)

// ErrNoSession is returned if the session does not exist on the server, or if the server derives
// passwords in its own way.
var ErrNoSession = errors.New("the server does not know the session")

// ExpireSession ends the session on the ensemble of the server at addr: its ephemeral nodes are
// deleted and its client is notified that it expired, in milliseconds instead of a session timeout.
func ExpireSession(addr string, sessionID int64) error {
	was, err := expire.Session(func(timeout time.Duration) (net.Conn, error) { return net.DialTimeout("tcp", addr, timeout) }, sessionID, nil)
	if err == nil && !was {
		err = fmt.Errorf("session 0x%x: %w", sessionID, ErrNoSession)
	}
	if err != nil {
		return fmt.Errorf("at %s: %w", addr, err)
	}
	return nil
}
