package tap

import (
	"encoding/binary"
	"sync/atomic"

	"github.com/zklock/zklock/internal/wire"
)

// Request is a request of ours: a frame that the tap sends between the client's. The client does not see the answer.
//
//	          ┌─▶ NeverSent                                  the connection ended before
//	request ──┤
//	          └─▶ handed to the network ──▶ WasAnswered      on this connection, with this zxid and code
//	                                   └──▶ NoAnswer         the connection ended: only a later look can tell
type Request struct {
	op      wire.Op
	frame   []byte       // whole; the tap puts the xid in
	encoder wire.Encoder // it made the frame; it is a part of the request to spare an allocation
	Urgent  bool         // does not wait for room: a beat
	Done    func(Answer) // called once, on the goroutine that learns the fate: it must not block, nor keep the answer's body

	xid     int32 // the tap sets it, as the next field
	written bool  // handed to the network
}

// NewRequest returns a request whose fate done will hear.
func NewRequest[R wire.Record](op wire.Op, body R, done func(Answer)) *Request {
	r := &Request{op: op, Done: done}
	r.frame = wire.EncodeRequest(&r.encoder, op, body)
	return r
}

// Length is what servers compare with their jute.maxbuffer (wire.MaxFrame): over a longer request they close the connection.
func (r *Request) Length() int { return len(r.frame) - 4 }

// Fate is what became of a request.
type Fate int

const (
	NeverSent   Fate = iota // not a byte of it is on its way
	WasAnswered             // with success or with an error code
	NoAnswer                // sent, perhaps, and the connection ended
)

// Answer is the fate of a request, with what the server said if it answered.
type Answer struct {
	Fate Fate
	Conn uint64 // the connection that it was sent over
	Zxid int64
	Code wire.Code
	Body []byte // until Done returns

	// Without an answer.
	HungUpOn int   // the request's length in bytes, if the server ended the connection; otherwise 0
	Why      error // what the sink says of that (Sink.Disconnected)
}

// Decode reads the body of a successful answer.
func (a Answer) Decode(into interface{ Decode(*wire.Decoder) }) error {
	d := wire.NewDecoder(a.Body)
	into.Decode(d)
	return d.Err()
}

// Xids hands out the xids of our requests. They are negative, because the client's are positive; −1, −2, −4 and −8 have a
// meaning of their own. They never start again while a session lives: a follower tells by session and xid which of its
// requests a commit belongs to.
type Xids struct{ n atomic.Uint32 }

const firstXid = -16

func (x *Xids) next() int32 { return firstXid - int32((x.n.Add(1)-1)%(1<<31-32)) }

// isOurs says whether a reply with this xid is to a request of ours.
func isOurs(xid int32) bool { return xid <= firstXid }

// putXid puts the xid into a frame.
func putXid(frame []byte, xid int32) { binary.BigEndian.PutUint32(frame[4:], uint32(xid)) }
