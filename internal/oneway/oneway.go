// Package oneway is a client's way to its servers that fails in one direction, for tests: answers are lost, or come late, while
// requests arrive; or the other way round. It works in virtual time and on real connections.
package oneway

import (
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"
)

// Way makes connections over which one direction can fail. A connection that has lost bytes stays silent, because TCP does not skip any. A
// connection that is made while the direction fails is silent too.
type Way struct {
	dial zk.Dialer

	answersLost, requestsLost atomic.Bool
	late                      atomic.Int64 // how much later each answer arrives, as a time.Duration
	arrived                   atomic.Int64 // how often bytes of the client arrived while answers were lost

	mu    sync.Mutex
	conns map[*conn]struct{}
}

// New returns a way on which nothing fails.
func New(dial zk.Dialer) *Way { return &Way{dial: dial, conns: map[*conn]struct{}{}} }

// LoseAnswers loses what the servers send from now on.
func (w *Way) LoseAnswers() { w.answersLost.Store(true) }

// LoseRequests loses what the client sends from now on.
func (w *Way) LoseRequests() { w.requestsLost.Store(true) }

// DelayAnswers has each answer arrive later by d.
func (w *Way) DelayAnswers(d time.Duration) { w.late.Store(int64(d)) }

// Heal ends all that. Connections that lost bytes stay silent.
func (w *Way) Heal() {
	w.answersLost.Store(false)
	w.requestsLost.Store(false)
	w.late.Store(0)
}

// Cut closes the connections that there are.
func (w *Way) Cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for c := range w.conns {
		c.end()
	}
}

// Arrived returns how often bytes of the client arrived while answers were lost.
func (w *Way) Arrived() int64 { return w.arrived.Load() }

// Dial implements zk.Dialer. Three goroutines carry the bytes of a connection, and end with it.
func (w *Way) Dial(network, addr string, timeout time.Duration) (net.Conn, error) {
	server, err := w.dial(network, addr, timeout)
	if err != nil {
		return nil, err
	}
	near, far := net.Pipe()
	c := &conn{Conn: near, far: far, server: server, ended: make(chan struct{})}
	w.mu.Lock()
	w.conns[c] = struct{}{}
	w.mu.Unlock()
	go func() {
		carry(far, &w.requestsLost, func(p []byte) bool {
			if w.answersLost.Load() {
				w.arrived.Add(1)
			}
			_, err := server.Write(p)
			return err == nil
		})
		c.end()
		w.mu.Lock()
		delete(w.conns, c)
		w.mu.Unlock()
	}()
	go c.deliver(w)
	return c, nil
}

// carry passes on what it reads, until it is lost or cannot be passed on; from then on it takes all and passes nothing on.
func carry(from net.Conn, lost *atomic.Bool, pass func(p []byte) bool) {
	buf, silent := make([]byte, 64<<10), false
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		if silent = silent || lost.Load(); !silent && !pass(buf[:n]) {
			return
		}
	}
}

// conn is the client's end of a connection.
type conn struct {
	net.Conn
	far, server net.Conn
	once        sync.Once
	ended       chan struct{}
}

// RemoteAddr returns the server's address.
func (c *conn) RemoteAddr() net.Addr { return c.server.RemoteAddr() }

// end closes the connection on both sides.
func (c *conn) end() {
	c.once.Do(func() {
		close(c.ended)
		_ = c.far.Close()
		_ = c.server.Close()
	})
}

// deliver brings the server's bytes to the client, each piece when it is due.
func (c *conn) deliver(w *Way) {
	defer c.end()
	type piece struct {
		bytes []byte
		due   time.Time
	}
	pieces := make(chan piece, 1<<12)
	go func() {
		defer close(pieces)
		carry(c.server, &w.answersLost, func(p []byte) bool {
			select {
			case pieces <- piece{slices.Clone(p), time.Now().Add(time.Duration(w.late.Load()))}:
				return true
			case <-c.ended:
				return false
			}
		})
	}()
	for p := range pieces {
		t := time.NewTimer(time.Until(p.due))
		select {
		case <-t.C:
		case <-c.ended:
			t.Stop()
			return
		}
		if _, err := c.far.Write(p.bytes); err != nil {
			return
		}
	}
}
