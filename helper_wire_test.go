package zklock_test

// A test's hand on a client's connection.

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/zklock"
	jute "github.com/zklock/zklock/internal/wire"
)

// Opcodes a wire can name.
const (
	opCreate       = 1
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

// wire is a test's hand on the connection of one Session: it counts the requests and does what a rule says to one.
type wire struct {
	dial zk.Dialer // nil for the machine's network
	mu   struct {
		sync.Mutex
		conns   []*wireConn
		counts  map[int32]int
		got     received
		rule    func(request) verdict
		refused bool
		holdOp  int32         // replies to this are held back
		until   chan struct{} // until this is closed
	}
}

type request struct {
	op   int32
	path string
	nth  int // of its kind since the wire was reset, from 1
}

// isHeartbeat says whether a frame is a multi that checks and does nothing else.
func isHeartbeat(p []byte) bool {
	d := jute.NewDecoder(p[4:])
	var h jute.RequestHeader
	var m jute.MultiRequest
	if h.Decode(d); h.Op == jute.OpMulti {
		m.Decode(d)
	}
	return h.Op == jute.OpMulti && !slices.ContainsFunc(m.Ops, func(o jute.MultiOp) bool { return o.Op != jute.OpCheck })
}

// received is what came back: events, and the answers to the requests that are counted.
type received struct {
	events, answers int
	bytes           int // of both
}

type verdict int

const (
	pass      verdict = iota
	cutBefore         // close the connection instead of sending the request
	dropReply         // send the request, wait for the answer, throw it away and close: the server surely did it
)

func (w *wire) dialer() zklock.Option {
	return zklock.WithDialer(func(network, addr string, d time.Duration) (net.Conn, error) {
		w.mu.Lock()
		refused := w.mu.refused
		w.mu.Unlock()
		if refused {
			return nil, fmt.Errorf("the test refuses connections")
		}
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

// holdReplies keeps back the replies to one kind of request until the channel is closed.
func (w *wire) holdReplies(op int32, until chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.holdOp, w.mu.until = op, until
}

// reset starts the counts anew and sets the rule, which may be nil.
func (w *wire) reset(rule func(request) verdict) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.counts, w.mu.got, w.mu.rule = map[int32]int{}, received{}, rule
}

// received returns what has come back since the reset.
func (w *wire) received() received {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mu.got
}

// sent returns how many requests were sent since the reset, heartbeats and keep-alive reads aside.
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

// cut closes the current connection; refuse keeps new ones from being made.
func (w *wire) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.mu.conns {
		c.Conn.Close()
	}
	w.mu.conns = nil
}

func (w *wire) refuse(yes bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.refused = yes
}

type wireConn struct {
	net.Conn
	w    *wire
	in   []byte
	out  jute.Stream
	seen bool // the connect request
	got  bool // the connect response
	mu   sync.Mutex
	drop map[int32]bool // xids whose reply is to be dropped
	hold map[int32]chan struct{}

	counted map[int32]bool // xids of requests that are counted and not answered
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
	r := request{op: op}
	switch op {
	case opCreate, opDelete, opExists, opGetData, opSync, opGetChildren2:
		n := binary.BigEndian.Uint32(p[12:])
		r.path = string(p[16 : 16+n])
	}
	if op != opPing && !isHeartbeat(p) && !(op == opExists && r.path == "/") && op != 100 {
		c.w.mu.Lock()
		if c.w.mu.counts == nil {
			c.w.mu.counts = map[int32]int{}
		}
		c.w.mu.counts[op]++
		r.nth = c.w.mu.counts[op]
		rule := c.w.mu.rule
		until := c.w.mu.until
		if op != c.w.mu.holdOp {
			until = nil
		}
		c.w.mu.Unlock()
		c.mu.Lock()
		if c.counted == nil {
			c.counted = map[int32]bool{}
		}
		c.counted[xid] = true
		if until != nil {
			c.hold = map[int32]chan struct{}{xid: until}
		}
		c.mu.Unlock()
		if rule != nil {
			switch rule(r) {
			case cutBefore:
				c.Conn.Close()
				return 0, io.ErrClosedPipe
			case dropReply:
				c.mu.Lock()
				if c.drop == nil {
					c.drop = map[int32]bool{}
				}
				c.drop[xid] = true
				c.mu.Unlock()
			}
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
			dropped, until, counted := c.drop[xid], c.hold[xid], c.counted[xid]
			delete(c.counted, xid)
			c.mu.Unlock()
			if until != nil {
				<-until
			}
			if dropped {
				c.Conn.Close()
				return 0, io.ErrUnexpectedEOF
			}
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

// once applies a verdict to the first n requests of a kind below a path.
func firstOf(op int32, below string, n int, v verdict) func(request) verdict {
	var mu sync.Mutex
	return func(r request) verdict {
		mu.Lock()
		defer mu.Unlock()
		if r.op == op && n > 0 && strings.HasPrefix(r.path, below) {
			n--
			return v
		}
		return pass
	}
}
