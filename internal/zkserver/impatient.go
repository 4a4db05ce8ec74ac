package zkserver

import (
	"net"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"
)

// Impatient is for a test's own go-zookeeper client, whose server is stopped, killed or cut off.
// The client waits 6.7 session timeouts for a response from a server that has accepted its
// connection, and its requests wait with it: 200 s with a session timeout of 30 s (F17). Impatient
// limits this to five seconds.
func Impatient(dial zk.Dialer) zk.Dialer {
	return func(network, addr string, timeout time.Duration) (net.Conn, error) {
		c, err := dial(network, addr, timeout)
		if err != nil {
			return nil, err
		}
		return &impatientConn{Conn: c, until: time.Now().Add(5 * time.Second)}, nil
	}
}

type impatientConn struct {
	net.Conn
	until    time.Time
	answered atomic.Bool
}

func (c *impatientConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 {
		c.answered.Store(true)
	}
	return n, err
}

func (c *impatientConn) SetReadDeadline(t time.Time) error {
	if !c.answered.Load() && (t.IsZero() || t.After(c.until)) {
		t = c.until
	}
	return c.Conn.SetReadDeadline(t)
}
