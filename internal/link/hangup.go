package link

import (
	"fmt"
	"maps"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/zklock/internal/mux"
	"github.com/zklock/zklock/internal/wire"
)

// Disconnected counts how often servers have ended the connection instead of responding. They do so
// at a request above their jute.maxbuffer and at a request that they do not support.
func (c *connection) Disconnected(h mux.HangUp) (why error) {
	l := c.link
	l.mu.Lock()
	if h.Longest > LongRequest {
		h.At = 0 // it may be too long
	} else {
		h.Longest = 0
	}
	if h.Longest == 0 || h.Longest != l.mu.hungUpOn {
		l.mu.hangUps = 0
	}
	if h.Longest > 0 {
		l.mu.hangUps++
	}
	if l.mu.hangUps == 2 {
		l.Log.Warn("zklock: the server closes the connection before it has answered a long request; is it longer than the server's jute.maxbuffer?", "server", c.server(), "bytes", h.Longest)
	}
	l.mu.hungUpOn = h.Longest
	why = c.unknownLocked(h.At)
	l.mu.Unlock()
	c.detached()
	return why
}

// detached reports to the state machine that the connection has ended.
func (c *connection) detached() {
	l := c.link
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.conn == c {
		c.shaken, c.authed = false, false
		l.stepLocked(stateEvent{kind: detached, err: whyDetached(c.mux.Why())})
	}
}

// unknownLocked counts the connections that servers have ended at a request of that kind, since one
// responded to such a request or is known to have executed it. From the third on it returns an
// error. Only requests that ZooKeeper has since 3.5 count: all servers support older ones, so a
// connection that ends at one of those is an outage.
func (c *connection) unknownLocked(at wire.Op) error {
	l := c.link
	maps.DeleteFunc(l.mu.unknown, func(op wire.Op, _ int) bool { return c.mux.Answers(op) })
	if at != wire.OpCreate2 && at != wire.OpCreateContainer {
		return nil
	}
	l.mu.unknown[at]++
	n := l.mu.unknown[at]
	if n < 3 {
		return nil
	}
	if n == 3 {
		l.Log.Warn("zklock: the server closes the connection at each request of one kind; is it ZooKeeper 3.5 or later?", "server", c.server(), "request", at.String())
	}
	return fmt.Errorf("%w: %w: %v, %d times in a row, the last was %s: use ZooKeeper 3.5 or later, and look at what is between it and this process",
		zk.ErrConnectionClosed, ErrHungUp, at, n, c.server())
}

// HangUps counts how many times in a row servers have ended the connection instead of responding to
// a long request.
type HangUps int

// Count adds the fate of one more long request. After three disconnections in a row it returns an
// error: a server closes the connection, without a reply, on requests above its jute.maxbuffer,
// although other servers may accept them. The link counts requests of a kind that servers do not
// support.
func (n *HangUps) Count(a mux.Reply) error {
	if a.Why != nil {
		return a.Why
	}
	if *n++; a.HungUpOn <= LongRequest {
		*n = 0
	}
	if *n < 3 {
		return nil
	}
	return fmt.Errorf("%w: %d times in a row, over a request of %d bytes, which is perhaps longer than the servers' jute.maxbuffer: give less data, or raise that", zk.ErrConnectionClosed, int(*n), a.HungUpOn)
}
