package zkserver

import (
	"net"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/zklock/internal/lastzxid"
	"github.com/zklock/zklock/internal/wire"
)

// LastZxids is for a test's own go-zookeeper client. It tracks the last zxid for the client, as the
// library does. Otherwise the watches that the client restores after a reconnect may miss an event
// (package lastzxid).
func LastZxids(dial zk.Dialer) zk.Dialer {
	seen := new(lastzxid.Seen)
	return func(network, addr string, timeout time.Duration) (net.Conn, error) {
		c, err := dial(network, addr, timeout)
		if err != nil {
			return nil, err
		}
		return &zxidConn{Conn: c, zxids: seen.Connect()}, nil
	}
}

type zxidConn struct {
	net.Conn
	zxids    *lastzxid.Conn
	out, in  wire.Stream
	greeted  bool   // the connect request is written
	welcomed bool   // the connect response is read
	pass     []byte // the part of the last frame that the client has not read
}

// Write inserts zxids, frame by frame.
func (c *zxidConn) Write(p []byte) (int, error) {
	c.out.Add(p)
	for {
		f, err := c.out.Next()
		if f == nil || err != nil {
			return len(p), err
		}
		if !c.greeted {
			c.greeted = true
			c.zxids.ConnectRequest(f[4:])
		} else {
			c.zxids.Request(f[4:])
		}
		if _, err := c.Conn.Write(f); err != nil {
			return 0, err
		}
	}
}

// Read notes zxids, frame by frame.
func (c *zxidConn) Read(p []byte) (int, error) {
	for len(c.pass) == 0 {
		f, err := c.in.Next()
		if f == nil && err == nil {
			_, err = c.in.Fill(c.Conn)
		}
		if err != nil {
			return 0, err
		}
		switch {
		case f == nil:
		case !c.welcomed:
			c.welcomed = true
			c.zxids.ConnectResponse(f[4:])
		default:
			c.zxids.Reply(f[4:])
		}
		c.pass = f
	}
	n := copy(p, c.pass)
	c.pass = c.pass[n:]
	return n, nil
}
