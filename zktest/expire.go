package zktest

import (
	"fmt"
	"net"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/zklock/internal/expire"
)

// ExpireSession ends a session on any ZooKeeper server, as if it had run out. Its nodes are gone
// when ExpireSession returns, and its client learns of it when it next attaches. The id is enough,
// because servers from 3.4 on derive a session's password from it. If the session was gone before,
// that is not an error. A server that requires credentials rejects the end, and the session lives
// on: zklock expire takes credentials.
//
// ExpireSession attaches to the session, which cuts the client's connection, and closes the session
// in the same write. The client may take the session back in between, and a server may end the
// session without a response. So ExpireSession tries again until the server reports that there is
// no such session, for ten seconds.
func ExpireSession(addr string, session int64) error {
	return expireSession(net.DialTimeout, addr, session)
}

func expireSession(dial zk.Dialer, addr string, session int64) error {
	_, err := expire.Session(func(timeout time.Duration) (net.Conn, error) { return dial("tcp", addr, timeout) }, session, nil)
	if err != nil {
		return fmt.Errorf("zktest: %w", err)
	}
	return nil
}
