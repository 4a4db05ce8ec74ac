// Package lastzxid keeps the last zxid seen in the client's place. go-zookeeper's client writes it on the goroutine that
// reads replies, and reads it on the goroutine that restores watches after a reconnect. Nothing orders the two. So a reply
// that comes early is a data race, and the restored watches then miss what happened up to that reply.
//
// lastzxid takes the zxids out of the replies, so that the client's own stays 0. It puts the right one into the client's
// requests: into the connect request, and into setWatches. There it is the last zxid of the connection before.
package lastzxid

import (
	"encoding/binary"
	"sync/atomic"

	"github.com/zklock/zklock/internal/wire"
)

// Seen is the last zxid seen over all connections of a client. It keeps two: that of all replies, and that of the replies to
// the client itself, because others make requests on the client's connection too. The zero value is for a new client.
type Seen struct{ any, client atomic.Int64 }

// Conn is what one connection of the client sees. The client's next connection begins when the client has read the last frame
// of this one.
type Conn struct {
	seen           *Seen
	before, client int64 // of the connections before
}

// Connect begins a connection.
func (s *Seen) Connect() *Conn { return &Conn{s, s.any.Load(), s.client.Load()} }

// Before returns the last zxid of the connections before.
func (c *Conn) Before() int64 { return c.before }

// ConnectRequest puts the zxid into the body of a connect request.
func (c *Conn) ConnectRequest(body []byte) {
	if len(body) >= 12 {
		binary.BigEndian.PutUint64(body[4:], uint64(c.Before())) // behind the protocol version
	}
}

// Request puts the last zxid that the client itself has seen into the body of a later frame, if that is setWatches. Others may
// have had answers on a connection on which the client's watches were not restored yet.
func (c *Conn) Request(body []byte) {
	if len(body) < 16 {
		return
	}
	if op := wire.Op(binary.BigEndian.Uint32(body[4:])); op == wire.OpSetWatches || op == wire.OpSetWatches2 {
		binary.BigEndian.PutUint64(body[8:], uint64(c.client))
	}
}

// ConnectResponse looks at the body of a connect response. If the session has expired, nothing counts as seen any more.
func (c *Conn) ConnectResponse(body []byte) {
	if len(body) >= 16 && binary.BigEndian.Uint64(body[8:]) == 0 {
		c.seen.any.Store(0)
		c.seen.client.Store(0)
	}
}

// Reply notes the zxid in the body of a reply, and takes it out. Events and pings have none that counts.
func (c *Conn) Reply(body []byte) {
	if len(body) < 12 {
		return
	}
	if xid := int32(binary.BigEndian.Uint32(body)); xid == wire.XidEvent || xid == wire.XidPing || xid == wire.XidAuth {
		return
	}
	if zxid := int64(binary.BigEndian.Uint64(body[4:])); zxid > 0 {
		c.seen.any.Store(zxid)
		c.seen.client.Store(zxid)
	}
	clear(body[4:12])
}

// Hidden notes the zxid of a reply that the client does not see.
func (c *Conn) Hidden(zxid int64) {
	if zxid > 0 {
		c.seen.any.Store(zxid)
	}
}
