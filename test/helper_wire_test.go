package zklock_test

// A wrapper of a client's connection: it counts requests, and closes the connection.

import (
	"encoding/binary"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/zklock"
	jute "github.com/zklock/zklock/internal/wire"
)

// The opcodes that a wire has names for.
const (
	opCreate       = 15 // create2
	opDelete       = 2
	opExists       = 3
	opGetData      = 4
	opSync         = 9
	opPing         = 11
	opGetChildren2 = 12
	opMulti        = 14
	opClose        = -11
	opSetWatches   = 101
)

// wire wraps the connection of one Session: it counts the requests, and can fail the write of one.
// Faults in transit and on the server are injected by a zktest.Proxy.
type wire struct {
	dial zk.Dialer // nil for the machine's network
	mu   struct {
		sync.Mutex
		conns  []*wireConn
		counts map[int32]int
		got    received
		fails  *failingWrite
	}
}

// failingWrite is a request of a kind, on a path or below it. Instead of writing it, the wire
// closes the connection.
type failingWrite struct {
	op    int32
	below string
}

// isHeartbeat reports whether a frame is a multi that consists of checks.
func isHeartbeat(p []byte) bool {
	d := jute.NewDecoder(p[4:])
	var h jute.RequestHeader
	var m jute.MultiRequest
	if h.Decode(d); h.Op == jute.OpMulti {
		m.Decode(d)
	}
	return h.Op == jute.OpMulti && !slices.ContainsFunc(m.Ops, func(o jute.MultiOp) bool { return o.Op != jute.OpCheck })
}

// received counts the incoming frames: events, and the responses to counted requests.
type received struct {
	events, answers int
	bytes           int // of both
}

func (w *wire) dialer() zklock.Option {
	return zklock.WithDialer(func(network, addr string, d time.Duration) (net.Conn, error) {
		dial := w.dial
		if dial == nil {
			dial = net.DialTimeout
		}
		c, err := dial(network, addr, d)
		if err != nil {
			return nil, err
		}
		wc := &wireConn{Conn: c, w: w}
		w.mu.Lock()
		defer w.mu.Unlock()
		w.mu.conns = append(w.mu.conns, wc)
		return wc, nil
	})
}

// failWrite closes the connection instead of writing the next such request. The test fails if there
// is none.
func (w *wire) failWrite(t testing.TB, op int32, below string) {
	w.mu.Lock()
	w.mu.fails = &failingWrite{op, below}
	w.mu.Unlock()
	t.Cleanup(func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.mu.fails != nil {
			t.Errorf("the write of a request of kind %d below %s was to fail, and never did", op, below)
		}
	})
}

// reset sets the counts to zero.
func (w *wire) reset() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.counts, w.mu.got = map[int32]int{}, received{}
}

// received returns the counts of incoming frames since the reset.
func (w *wire) received() received {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mu.got
}

// sent returns how many requests were sent since the reset, without heartbeats and keep-alive
// reads.
func (w *wire) sent() (n int, by map[int32]int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	by = map[int32]int{}
	for op, k := range w.mu.counts {
		by[op] = k
		n += k
	}
	return n, by
}

// cut closes the current connection.
func (w *wire) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.mu.conns {
		c.Conn.Close()
	}
	w.mu.conns = nil
}

type wireConn struct {
	net.Conn
	w    *wire
	in   []byte
	out  jute.Stream
	seen bool // the connect request
	got  bool // the connect response

	mu      sync.Mutex
	counted map[int32]bool // xids of counted requests without a response
}

func (c *wireConn) Write(p []byte) (int, error) {
	n := len(p)
	c.out.Add(p)
	for f, _ := c.out.Next(); f != nil; f, _ = c.out.Next() {
		if _, err := c.writeFrame(f); err != nil {
			return 0, err
		}
	}
	return n, nil
}

func (c *wireConn) writeFrame(p []byte) (int, error) {
	if !c.seen {
		c.seen = true
		return c.Conn.Write(p)
	}
	xid, op := int32(binary.BigEndian.Uint32(p[4:])), int32(binary.BigEndian.Uint32(p[8:]))
	var path string
	switch op {
	case opCreate, opDelete, opExists, opGetData, opSync, opGetChildren2:
		n := binary.BigEndian.Uint32(p[12:])
		path = string(p[16 : 16+n])
	}
	if op != opPing && !isHeartbeat(p) && !(op == opExists && path == "/") && op != 100 {
		c.w.mu.Lock()
		if c.w.mu.counts == nil {
			c.w.mu.counts = map[int32]int{}
		}
		c.w.mu.counts[op]++
		fails := false
		if f := c.w.mu.fails; f != nil && op == f.op && strings.HasPrefix(path, f.below) {
			fails, c.w.mu.fails = true, nil
		}
		c.w.mu.Unlock()
		c.mu.Lock()
		if c.counted == nil {
			c.counted = map[int32]bool{}
		}
		c.counted[xid] = true
		c.mu.Unlock()
		if fails {
			c.Conn.Close()
			return 0, io.ErrClosedPipe
		}
	}
	return c.Conn.Write(p)
}

func (c *wireConn) Read(p []byte) (int, error) {
	if len(c.in) == 0 {
		var head [4]byte
		if _, err := io.ReadFull(c.Conn, head[:]); err != nil {
			return 0, err
		}
		frame := make([]byte, 4+binary.BigEndian.Uint32(head[:]))
		copy(frame, head[:])
		if _, err := io.ReadFull(c.Conn, frame[4:]); err != nil {
			return 0, err
		}
		if c.got {
			c.mu.Lock()
			xid := int32(binary.BigEndian.Uint32(frame[4:]))
			counted := c.counted[xid]
			delete(c.counted, xid)
			c.mu.Unlock()
			c.w.note(xid == -1, counted, len(frame))
		}
		c.got = true
		c.in = frame
	}
	n := copy(p, c.in)
	c.in = c.in[n:]
	return n, nil
}

func (w *wire) note(event, answer bool, bytes int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case event:
		w.mu.got.events++
	case answer:
		w.mu.got.answers++
	default:
		return
	}
	w.mu.got.bytes += bytes
}
