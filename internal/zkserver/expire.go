package zkserver

import (
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/zklock/zklock/internal/expire"
)

// ErrNoSession says that the server does not know the session, or makes passwords in a way of its own.
var ErrNoSession = errors.New("the server does not know the session")

// ExpireSession ends the session on the ensemble that the server at addr is part of: its ephemeral
// nodes are gone and its client is told that it expired, in milliseconds instead of a session timeout.
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
