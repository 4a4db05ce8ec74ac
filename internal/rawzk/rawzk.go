// Package rawzk is a ZooKeeper client for tests that shows exactly the frames on the wire: it has
// no retries, no reconnects, no watches of its own, and one goroutine.
package rawzk

import (
	"fmt"
	"io"
	"net"
	"time"

	"github.com/zklock/zklock/internal/wire"
)

// Conn is a connection with or without a session.
type Conn struct {
	nc      net.Conn
	xid     int32
	Session wire.ConnectResponse
}

// Reply is one frame from the server: an event if Header.Xid is [wire.XidEvent].
type Reply struct {
	Header wire.ReplyHeader
	Body   []byte
}

// Event decodes the frame as an event.
func (r Reply) Event() (ev wire.WatcherEvent, err error) {
	d := wire.NewDecoder(r.Body)
	ev.Decode(d)
	return ev, d.Err()
}

// Wrap uses an open connection. Every read and write has a deadline of ten seconds.
func Wrap(nc net.Conn) *Conn { return &Conn{nc: nc} }

// Dial opens a TCP connection.
func Dial(addr string) (*Conn, error) {
	nc, err := net.DialTimeout("tcp", addr, 10*time.Second)
	if err != nil {
		return nil, err
	}
	return Wrap(nc), nil
}

// Close cuts the connection.
func (c *Conn) Close() error { return c.nc.Close() }

// HangUp ends the connection and returns when the server has ended it, too.
func (c *Conn) HangUp() error {
	if half, ok := c.nc.(interface{ CloseWrite() error }); ok && half.CloseWrite() == nil {
		for {
			if _, err := c.ReadFrame(); err != nil {
				break
			}
		}
	}
	return c.Close()
}

// Connect performs the connect exchange and stores the response in Session. Session id 0 is not an
// error here. A request without a password gets the password of a new session, as clients send it:
// ZooKeeper 3.4 fails on a request that has none.
func (c *Conn) Connect(req wire.ConnectRequest) error {
	if req.Password == nil {
		req.Password = make([]byte, 16)
	}
	if err := c.Write(wire.Frame(req)); err != nil {
		return err
	}
	body, err := c.ReadFrame()
	if err != nil {
		return err
	}
	d := wire.NewDecoder(body)
	c.Session.Decode(d)
	return d.Err()
}

// Send sends a request with the next xid, or with the xid reserved for its kind, and returns the
// xid.
func (c *Conn) Send(op wire.Op, body wire.Record) (int32, error) {
	c.xid++
	xid := c.xid
	if op == wire.OpPing {
		xid = wire.XidPing
	}
	records := []wire.Record{wire.RequestHeader{Xid: xid, Op: op}}
	if body != nil {
		records = append(records, body)
	}
	return xid, c.Write(wire.Frame(records...))
}

// Receive reads one reply or event.
func (c *Conn) Receive() (Reply, error) {
	body, err := c.ReadFrame()
	if err != nil {
		return Reply{}, err
	}
	d := wire.NewDecoder(body)
	var r Reply
	r.Header.Decode(d)
	r.Body = append([]byte(nil), d.Rest()...)
	return r, d.Err()
}

// Call sends a request and reads until its reply, which it returns with the events that arrived
// before.
func (c *Conn) Call(op wire.Op, body wire.Record) (reply Reply, events []Reply, err error) {
	xid, err := c.Send(op, body)
	if err != nil {
		return Reply{}, nil, err
	}
	for {
		r, err := c.Receive()
		if err != nil {
			return Reply{}, events, err
		}
		switch r.Header.Xid {
		case wire.XidEvent:
			events = append(events, r)
		case xid:
			return r, events, nil
		default:
			return r, events, fmt.Errorf("rawzk: a reply with xid %d, want %d", r.Header.Xid, xid)
		}
	}
}

// Write sends bytes unchanged.
func (c *Conn) Write(b []byte) error {
	c.nc.SetWriteDeadline(time.Now().Add(10 * time.Second))
	_, err := c.nc.Write(b)
	return err
}

// ReadFrame reads one frame.
func (c *Conn) ReadFrame() ([]byte, error) {
	c.nc.SetReadDeadline(time.Now().Add(10 * time.Second))
	return wire.ReadFrame(c.nc, 64<<20)
}

// Word sends a four-letter word and returns the response.
func Word(addr, word string) (string, error) { return WordWithin(addr, word, 10*time.Second) }

// WordWithin is Word with a time limit. A server that is just starting may accept a connection and
// never respond.
func WordWithin(addr, word string, timeout time.Duration) (string, error) {
	nc, err := net.DialTimeout("tcp", addr, timeout)
	if err != nil {
		return "", err
	}
	defer nc.Close()
	nc.SetDeadline(time.Now().Add(timeout))
	if _, err := io.WriteString(nc, word); err != nil {
		return "", err
	}
	answer, err := io.ReadAll(nc)
	return string(answer), err
}
