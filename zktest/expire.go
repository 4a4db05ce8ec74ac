package zktest

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/zklock/internal/expire"
)

// ExpireSession ends a session on any ZooKeeper server, as if it had timed out. When it returns,
// the session's nodes are deleted; the session's client is notified when it next attaches. It needs
// only the id, because servers from 3.4 on derive a session's password from it. If the session has
// already ended, ExpireSession returns nil. A server that requires credentials rejects the request,
// and the session continues; zklock expire takes credentials.
//
// ExpireSession attaches to the session, which cuts the client's connection, and closes the session
// in the same write. The client may re-attach in between, and a server may end the session without
// a response. So ExpireSession tries again, for at most ten seconds, until the server reports that
// the session does not exist.
func ExpireSession(addr string, session int64) error {
	return expireSession(net.DialTimeout, addr, session)
}

func expireSession(dial zk.Dialer, addr string, session int64) error {
	lookup := func(ctx context.Context) ([]string, error) { return expire.Addresses(ctx, addr) }
	_, err := expire.Session(expire.InTurn(lookup, func(at string, timeout time.Duration) (net.Conn, error) { return dial("tcp", at, timeout) }), session, nil)
	if err != nil {
		return fmt.Errorf("zktest: %w", err)
	}
	return nil
}
