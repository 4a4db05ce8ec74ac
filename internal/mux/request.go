package mux

import (
	"encoding/binary"
	"sync/atomic"

	"github.com/zklock/zklock/internal/wire"
)

// Request is a request of ours: a frame that the mux sends between the client's frames. The client
// does not see the reply.
//
//	          ┌─▶ NeverSent                             the connection ended before
//	request ──┤
//	          └─▶ handed to the network ─▶ WasAnswered  on this connection, with this zxid and code
//	                                   └─▶ NoAnswer     the connection ended: a later read decides
type Request struct {
	op      wire.Op
	frame   []byte       // complete; the mux writes the xid into it
	encoder wire.Encoder // it encoded the frame; part of the request to save an allocation
	Urgent  bool         // does not wait for capacity: a heartbeat
	// Called once, on the goroutine that finds the fate: it must not block, nor keep the reply's
	// body.
	Done func(Reply)

	xid     int32 // set by the mux, like the next field
	written bool  // handed to the network
}

// NewRequest returns a request whose fate is passed to done.
func NewRequest[R wire.Record](op wire.Op, body R, done func(Reply)) *Request {
	r := &Request{op: op, Done: done}
	r.frame = wire.EncodeRequest(&r.encoder, op, body)
	return r
}

// Length returns the length that servers compare with their jute.maxbuffer (wire.MaxFrame). After a
// longer request they close the connection.
func (r *Request) Length() int { return len(r.frame) - 4 }

// Fate is the fate of a request.
type Fate int

const (
	NeverSent   Fate = iota // not a byte of it was sent
	WasAnswered             // with success or with an error code
	NoAnswer                // possibly sent, and the connection ended
)

// Reply is the fate of a request, with the server's reply, if any.
type Reply struct {
	Fate Fate
	Conn uint64 // the connection on which it was sent
	Zxid int64
	Code wire.Code
	Body []byte // valid until Done returns

	// Without a reply.
	HungUpOn int   // the request's length in bytes, if the server ended the connection; otherwise 0
	Why      error // the sink's reason for that (Sink.Disconnected)
}

// Decode decodes the body of a successful reply.
func (a Reply) Decode(into interface{ Decode(*wire.Decoder) }) error {
	d := wire.NewDecoder(a.Body)
	into.Decode(d)
	return d.Err()
}

// Xids assigns the xids of our requests. They are negative, because the client's are positive; −1,
// −2, −4 and −8 are reserved. They never restart during a session, because a follower matches a
// commit to its request by session and xid.
type Xids struct{ n atomic.Uint32 }

const firstXid = -16

func (x *Xids) next() int32 { return firstXid - int32((x.n.Add(1)-1)%(1<<31-32)) }

// isOurs reports whether a reply with this xid belongs to a request of ours.
func isOurs(xid int32) bool { return xid <= firstXid }

// putXid writes the xid into a frame.
func putXid(frame []byte, xid int32) { binary.BigEndian.PutUint32(frame[4:], uint32(xid)) }
