// Package lastzxid keeps the last seen zxid on behalf of the client. go-zookeeper's client writes
// it on the goroutine that reads replies, and reads it on the goroutine that restores watches after
// a reconnect. Nothing orders the two. So a reply that arrives early is a data race, and the
// restored watches then miss all changes up to that reply.
//
// lastzxid removes the zxids from the replies, so that the client's own stays 0. It puts the right
// one into the client's requests: into the connect request, and into setWatches. There it is the
// last zxid of the previous connection.
package lastzxid

import (
	"encoding/binary"
	"sync/atomic"

	"github.com/zklock/zklock/internal/wire"
)

// Seen is the last zxid seen over all connections of a client. It keeps two: one for all replies,
// and one for the replies to the client itself, because zklock sends requests on the client's
// connection too. The zero value is for a new client.
type Seen struct{ any, client atomic.Int64 }

// Conn has the zxids that the client sees on one connection. The client's next connection begins
// when the client has read the last frame of this one.
//
// The zxids of a connection count for the client's watches only once these are restored on it:
// otherwise the events of the time between would be lost with the connection (R78). The client
// restores them at some time after the handshake, and gives no sign if it has none. So the response
// to its first ping decides, which arrives a third of the session timeout later and behind the
// response to the restoring. If the connection is lost before, a watch that was set on it can fire
// for a change that it has seen.
type Conn struct {
	seen           *Seen
	before, client int64 // of the previous connections
	stand          bool  // the client's watches are set on this connection
	latest         int64 // that the client has seen on it
}

// Connect begins a connection.
func (s *Seen) Connect() *Conn {
	client := s.client.Load()
	return &Conn{seen: s, before: s.any.Load(), client: client, stand: client == 0} // a new session has no watches
}

// Before returns the last zxid of the previous connections.
func (c *Conn) Before() int64 { return c.before }

// ConnectRequest puts the zxid into the body of a connect request.
func (c *Conn) ConnectRequest(body []byte) {
	if len(body) >= 12 {
		binary.BigEndian.PutUint64(body[4:], uint64(c.Before())) // after the protocol version
	}
}

// Request puts the last zxid that the client itself has seen into the body of a later frame, if
// that is setWatches. Our own requests may have had responses on a connection on which the client's
// watches were not restored yet.
func (c *Conn) Request(body []byte) {
	if len(body) < 16 {
		return
	}
	if op := wire.Op(binary.BigEndian.Uint32(body[4:])); op == wire.OpSetWatches || op == wire.OpSetWatches2 {
		binary.BigEndian.PutUint64(body[8:], uint64(c.client))
	}
}

// ConnectResponse reads the body of a connect response. If the session has expired, nothing counts
// as seen any more.
func (c *Conn) ConnectResponse(body []byte) {
	if len(body) >= 16 && binary.BigEndian.Uint64(body[8:]) == 0 {
		c.seen.any.Store(0)
		c.seen.client.Store(0)
	}
}

// Reply notes the zxid in the body of a reply, and removes it. Events and pings have none that
// counts. Only the goroutine that reads calls it.
func (c *Conn) Reply(body []byte) {
	if len(body) < 12 {
		return
	}
	switch int32(binary.BigEndian.Uint32(body)) {
	case wire.XidPing:
		c.stand = true
	case wire.XidEvent, wire.XidAuth:
		return
	default:
		if zxid := int64(binary.BigEndian.Uint64(body[4:])); zxid > 0 {
			c.seen.any.Store(zxid)
			c.latest = zxid
		}
		clear(body[4:12])
	}
	if c.stand && c.latest > 0 {
		c.seen.client.Store(c.latest)
	}
}

// Hidden notes the zxid of a reply that the client does not see.
func (c *Conn) Hidden(zxid int64) {
	if zxid > 0 {
		c.seen.any.Store(zxid)
	}
}
