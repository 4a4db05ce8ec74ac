// Package lastzxid keeps the last zxid seen in the client's place. go-zookeeper's client writes it on the goroutine that
// reads replies, and reads it on the one that restores watches after a reconnect. Nothing orders the two: a reply that
// comes early is a data race, and what happened up to that reply is then missing from what the restored watches are told.
//
// Connections made here take the zxids out of the replies, so that the client's own stays 0, and put the right one into
// what the client sends: into the connect request, and into setWatches, where it is the last of the connection before.
package lastzxid

import (
	"encoding/binary"
	"net"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"
)

const (
	opSetWatches  = 101
	opSetWatches2 = 105
)

// Seen is the last zxid that a client has seen, over all its connections. The zero value is for a new client.
type Seen struct{ zxid atomic.Int64 }

// Wrap returns the connection as the client is to have it. The client's next is wrapped only when it has read the last
// frame of this one.
func (s *Seen) Wrap(c net.Conn) net.Conn { return &conn{Conn: c, seen: s} }

// Dialer makes the connections of one client.
func Dialer(dial zk.Dialer) zk.Dialer {
	seen := new(Seen)
	return func(network, addr string, timeout time.Duration) (net.Conn, error) {
		c, err := dial(network, addr, timeout)
		if err != nil {
			return nil, err
		}
		return seen.Wrap(c), nil
	}
}

type conn struct {
	net.Conn
	seen    *Seen
	before  atomic.Int64 // the last zxid of the connections before
	out, in frames
}

// Write puts zxids in.
func (c *conn) Write(p []byte) (int, error) {
	patched := append([]byte(nil), p...)
	c.out.walk(patched, func(f *frames, b *byte) {
		switch {
		case !f.later && f.got >= 4 && f.got < 12: // connect: protocol version, last zxid seen
			if f.got == 4 {
				c.before.Store(c.seen.zxid.Load())
			}
			*b = octet(c.before.Load(), f.got-4)
		case f.later && f.got >= 8 && f.got < 16: // setWatches: xid, opcode, relative zxid
			if op := binary.BigEndian.Uint32(f.head[4:]); op == opSetWatches || op == opSetWatches2 {
				*b = octet(c.before.Load(), f.got-8)
			}
		}
	})
	return c.Conn.Write(patched)
}

// Read takes zxids out.
func (c *conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.in.walk(p[:n], func(f *frames, b *byte) {
		switch {
		case !f.later: // connect: protocol version, timeout, session id
			if f.got == 15 && binary.BigEndian.Uint64(f.head[8:]) == 0 {
				c.seen.zxid.Store(0) // expired: the client begins again, also at this
			}
		case f.got >= 4 && f.got < 12 && int32(binary.BigEndian.Uint32(f.head[:])) >= 0: // a reply: xid, zxid
			if zxid := int64(binary.BigEndian.Uint64(f.head[4:])); f.got == 11 && zxid > 0 {
				c.seen.zxid.Store(zxid)
			}
			*b = 0
		}
	})
	return n, err
}

// octet is the i-th byte of v as it goes over the wire.
func octet(v, i int64) byte { return byte(uint64(v) >> (56 - 8*i)) }

// frames knows where in its frames a stream of bytes is that comes in any pieces.
type frames struct {
	prefix [4]byte
	filled int      // of the prefix
	size   int64    // of the frame under way, prefix aside
	got    int64    // of those, how many are past
	head   [16]byte // the frame's first bytes, as they came
	later  bool     // there was a frame before this one
}

// walk goes through the bytes and shows each of the first 16 of every frame, as byte f.got of its frame.
func (f *frames) walk(p []byte, show func(f *frames, b *byte)) {
	for len(p) > 0 {
		if f.filled < len(f.prefix) {
			f.prefix[f.filled] = p[0]
			f.filled, p = f.filled+1, p[1:]
			f.size, f.got = int64(binary.BigEndian.Uint32(f.prefix[:])), 0
		} else if f.got < int64(len(f.head)) && f.got < f.size {
			f.head[f.got] = p[0]
			show(f, &p[0])
			f.got, p = f.got+1, p[1:]
		} else {
			n := min(f.size-f.got, int64(len(p)))
			f.got, p = f.got+n, p[n:]
		}
		if f.filled == len(f.prefix) && f.got == f.size {
			f.filled, f.later = 0, true
		}
	}
}
