// Package oneway provides connections that fail in one direction, for tests: replies are lost or
// delayed while requests arrive, or the other way round. It works in virtual time and on real
// connections.
package oneway

import (
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"
)

// Way opens connections on which one direction can fail. A connection that has lost bytes remains
// silent, because TCP does not skip any. A connection that is opened during a failure is silent,
// too.
type Way struct {
	dial zk.Dialer

	answersLost, requestsLost atomic.Bool
	late                      atomic.Int64 // the delay of each reply, as a time.Duration
	arrived                   atomic.Int64 // how often bytes of the client arrived while replies were lost
	conns                     sync.Map     // the current *conn
}

// New returns a Way without a failure.
func New(dial zk.Dialer) *Way { return &Way{dial: dial} }

// LoseAnswers drops everything that the servers send from now on.
func (w *Way) LoseAnswers() { w.answersLost.Store(true) }

// LoseRequests drops everything that the client sends from now on.
func (w *Way) LoseRequests() { w.requestsLost.Store(true) }

// DelayAnswers delays each reply by d.
func (w *Way) DelayAnswers(d time.Duration) { w.late.Store(int64(d)) }

// Heal ends all failures. Connections that have lost bytes remain silent.
func (w *Way) Heal() {
	w.answersLost.Store(false)
	w.requestsLost.Store(false)
	w.late.Store(0)
}

// Cut closes all current connections.
func (w *Way) Cut() {
	w.conns.Range(func(c, _ any) bool {
		c.(*conn).end()
		return true
	})
}

// Arrived returns how often bytes of the client arrived while replies were lost.
func (w *Way) Arrived() int64 { return w.arrived.Load() }

// Dial implements zk.Dialer. Three goroutines forward the bytes of a connection, and end with it.
func (w *Way) Dial(network, addr string, timeout time.Duration) (net.Conn, error) {
	server, err := w.dial(network, addr, timeout)
	if err != nil {
		return nil, err
	}
	near, far := net.Pipe()
	c := &conn{Conn: near, far: far, server: server, ended: make(chan struct{})}
	w.conns.Store(c, nil)
	go func() {
		carry(far, &w.requestsLost, func(p []byte) bool {
			if w.answersLost.Load() {
				w.arrived.Add(1)
			}
			_, err := server.Write(p)
			return err == nil
		})
		c.end()
		w.conns.Delete(c)
	}()
	go c.deliver(w)
	return c, nil
}

// carry forwards data until some is lost or cannot be forwarded. After a loss it still reads, but
// forwards nothing.
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

// deliver forwards the server's bytes to the client, each piece when it is due.
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
		// No timer that is due at once: if two goroutines receive from such timers in a bubble of
		// testing/synctest, the race detector can crash (Go 1.26).
		if wait := time.Until(p.due); wait > 0 {
			select {
			case <-time.After(wait):
			case <-c.ended:
				return
			}
		}
		if _, err := c.far.Write(p.bytes); err != nil {
			return
		}
	}
}
