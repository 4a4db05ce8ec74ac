package zktest

// One end of an in-memory connection.

import (
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// memConn implements net.Conn over two streams.
type memConn struct {
	in, out       *stream
	local, remote memAddr
	readDeadline  deadline
	writeDeadline deadline
	closeOnce     sync.Once
	closed        chan struct{}
	reset         atomic.Bool // Close drops data that has not been delivered
	forget        func()      // removes it from the network's list; nil at the server's end
}

func newMemConn(in, out *stream, local, remote memAddr) *memConn {
	return &memConn{
		in: in, out: out, local: local, remote: remote, closed: make(chan struct{}),
		readDeadline: deadline{passed: make(chan struct{})}, writeDeadline: deadline{passed: make(chan struct{})},
	}
}

// Read implements net.Conn.
func (c *memConn) Read(b []byte) (int, error) {
	n, err := c.in.read(b, c.readDeadline.wait(), c.closed)
	return n, c.wrap("read", err)
}

// Write implements net.Conn.
func (c *memConn) Write(b []byte) (int, error) {
	n, err := c.out.write(b, c.writeDeadline.wait(), c.closed)
	return n, c.wrap("write", err)
}

func (c *memConn) wrap(op string, err error) error {
	if err == nil || err == io.EOF {
		return err
	}
	return &net.OpError{Op: op, Net: "tcp", Source: c.local, Addr: c.remote, Err: err}
}

// CloseWrite closes this side for writing; it can still read, as with TCP's half-close.
func (c *memConn) CloseWrite() error {
	c.out.close()
	return nil
}

// SetLinger works as net.TCPConn's does: after 0, Close drops data that has not been delivered;
// after any other value, that data still arrives.
func (c *memConn) SetLinger(sec int) error {
	c.reset.Store(sec == 0)
	return nil
}

// Close implements net.Conn. Data written before still arrives, unless SetLinger(0) was called.
func (c *memConn) Close() error {
	c.closeOnce.Do(func() {
		close(c.closed)
		if c.reset.Load() {
			c.out.discard()
		}
		c.out.close()
		c.in.drop()
		c.readDeadline.set(time.Time{})
		c.writeDeadline.set(time.Time{})
		if c.forget != nil {
			c.forget()
		}
	})
	return nil
}

// LocalAddr implements net.Conn.
func (c *memConn) LocalAddr() net.Addr { return c.local }

// RemoteAddr implements net.Conn.
func (c *memConn) RemoteAddr() net.Addr { return c.remote }

// SetDeadline implements net.Conn.
func (c *memConn) SetDeadline(t time.Time) error {
	c.readDeadline.set(t)
	c.writeDeadline.set(t)
	return nil
}

// SetReadDeadline implements net.Conn.
func (c *memConn) SetReadDeadline(t time.Time) error {
	c.readDeadline.set(t)
	return nil
}

// SetWriteDeadline implements net.Conn.
func (c *memConn) SetWriteDeadline(t time.Time) error {
	c.writeDeadline.set(t)
	return nil
}

// deadline is a channel that is closed when a settable time has passed; modelled on net.Pipe's.
type deadline struct {
	mu     sync.Mutex // a leaf
	timer  *time.Timer
	passed chan struct{}
}

func (d *deadline) wait() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.passed
}

func (d *deadline) set(t time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	// A timer that has fired or is firing closes the channel, which then cannot be used again.
	if d.timer != nil && !d.timer.Stop() || isClosed(d.passed) {
		d.passed = make(chan struct{})
	}
	d.timer = nil
	switch wait := time.Until(t); {
	case t.IsZero():
	case wait <= 0:
		close(d.passed)
	default:
		passed := d.passed
		d.timer = time.AfterFunc(wait, func() { close(passed) })
	}
}
