package zktest

import (
	"fmt"
	"net"
	"time"

	"github.com/zklock/zklock/internal/expire"
)

// ExpireSession ends a session on any ZooKeeper server, as if it had run out: its nodes are gone when
// ExpireSession returns, and its client learns of it when it next attaches. All it needs is the id, because
// servers from 3.4 on derive a session's password from it. A session that was gone to begin with is not an error.
//
// It attaches to the session, which cuts the client's connection, and closes it, in one write; it does so again
// until the server says that there is no such session, since the client may take it back in between.
func ExpireSession(addr string, session int64) error {
	return expireSession(net.DialTimeout, addr, session)
}

// Dialer opens connections; [Network.Dial] is one.
type Dialer = func(network, address string, timeout time.Duration) (net.Conn, error)

func expireSession(dial Dialer, addr string, session int64) error {
	_, err := expire.Session(func(timeout time.Duration) (net.Conn, error) { return dial("tcp", addr, timeout) }, session, "")
	if err != nil {
		return fmt.Errorf("zktest: %w", err)
	}
	return nil
}
