package zktest

// One client connection: a goroutine that reads frames and passes them to the loop, and one that
// writes the data that the loop has queued. Neither makes any decision.

import (
	"bufio"
	"crypto/tls"
	"encoding/binary"
	"io"
	"net"
	"sync"
	"time"

	"github.com/zklock/zklock/internal/sasl"
	"github.com/zklock/zklock/internal/wire"
)

type conn struct {
	id     int64 // counts up; the order in which events are sent
	ep     *endpoint
	nc     net.Conn
	out    outQueue
	once   sync.Once
	closed chan struct{}

	// Owned by the loop.
	session  *session // nil until the connect exchange is complete
	greeted  bool     // its connect request has arrived
	accepted bool     // and its response contained a session
	gone     bool     // the loop has forgotten this connection
	ids      []wire.ID
	sasl     sasl.DigestServer
	waiting  int       // requests that wait for a fault or a replica; later requests are in backlog
	backlog  []message // in order of arrival
	stats    connStats
	deafened bool // the server sends nothing more, and ignores requests
}

// lingerTime is how long the server reads and discards the data of a client after it has closed its
// own side.
const lingerTime = time.Second

// close ends the connection now. Both goroutines end, and the reader notifies the loop.
//
// As with ZooKeeper, a client that is still sending reads the end of the stream and can finish its
// write: a connection that is closed with unread data would be reset. So close closes only the
// server's side, and the reader discards what still arrives. A server that stops does not wait.
func (c *conn) close() {
	c.once.Do(func() {
		close(c.closed)
		nc := c.transport()
		tcp, ok := nc.(*net.TCPConn)
		if !ok || isClosed(c.ep.stopping()) {
			nc.Close()
			return
		}
		tcp.CloseWrite()
		tcp.SetDeadline(time.Unix(1, 0)) // interrupts both goroutines
	})
}

// linger reads until the client has closed its side too, for lingerTime at most.
func (c *conn) linger() {
	nc := c.transport()
	defer nc.Close()
	nc.SetReadDeadline(time.Now().Add(lingerTime))
	io.Copy(io.Discard, nc)
}

// transport returns the connection below TLS: the loop must not wait until the client has read the
// TLS close alert.
func (c *conn) transport() net.Conn {
	if over, ok := c.nc.(*tls.Conn); ok {
		return over.NetConn()
	}
	return c.nc
}

// read passes every frame to the loop, in order. The first four bytes may be a word instead of a
// length.
func (c *conn) read(inbox chan<- message) {
	send := func(m message) bool {
		select {
		case inbox <- m:
			return true
		case <-c.closed:
			return false
		}
	}
	// The loop must be notified of the end, even if close() caused it, unless the server itself
	// ends. As in ZooKeeper, the connection is forgotten before it is closed: after a client has
	// read the end of the stream, its connection no longer counts.
	defer func() {
		select {
		case inbox <- message{kind: msgClosed, conn: c}:
		case <-c.ep.c.done:
		case <-c.ep.stopping():
		}
		c.close()
		c.linger()
	}()
	r := bufio.NewReaderSize(c.nc, 4096)
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return
	}
	if isWord(head) {
		m := message{kind: msgWord, conn: c, word: string(head[:])}
		if m.word == "stmk" && c.ep.c.cfg.answers(m.word) && binary.Read(r, binary.BigEndian, &m.mask) != nil {
			return
		}
		send(m)
		// The writer of the response closes the connection. Until then the server ignores all
		// further input, including the end of the stream: "echo ruok | nc" closes its sending side
		// before it reads the response.
		io.Copy(io.Discard, r)
		<-c.closed
		return
	}
	for {
		body, err := wire.ReadBody(r, head, c.ep.c.cfg.maxFrame)
		if err != nil {
			return
		}
		if !send(message{kind: msgFrame, conn: c, body: body, more: r.Buffered() >= len(head)}) {
			return
		}
		if _, err := io.ReadFull(r, head[:]); err != nil {
			return
		}
	}
}

func isWord(head [4]byte) bool {
	for _, b := range head {
		if b < 'a' || b > 'z' {
			return false
		}
	}
	return true
}

// write sends the queued data until the connection ends.
func (c *conn) write() {
	defer c.close()
	for {
		items := c.out.take(c.closed)
		if items == nil {
			return
		}
		var batch []byte
		flush := func() bool {
			if len(batch) == 0 {
				return true
			}
			_, err := c.nc.Write(batch)
			batch = batch[:0]
			return err == nil
		}
		for _, it := range items {
			if !it.wait.empty() {
				if !flush() || !it.wait.pass(c.closed) {
					return
				}
			}
			batch = append(batch, it.data...)
			if it.last {
				if half, ok := c.nc.(interface{ CloseWrite() error }); ok && flush() {
					half.CloseWrite() // with the alert, in TLS
				}
				return
			}
		}
		if !flush() {
			return
		}
	}
}

// outItem is data to send, and a wait that must end before.
type outItem struct {
	data []byte
	wait wait
	last bool // close the connection after it
}

// outQueue is unbounded, so that the loop never waits for a client.
type outQueue struct {
	mu    sync.Mutex // a leaf
	items []outItem
	ready chan struct{} // capacity 1
}

func (q *outQueue) put(it outItem) {
	q.mu.Lock()
	q.items = append(q.items, it)
	q.mu.Unlock()
	select {
	case q.ready <- struct{}{}:
	default:
	}
}

// take waits for items and returns all of them, or nil when done is closed.
func (q *outQueue) take(done <-chan struct{}) []outItem {
	for {
		select {
		case <-done:
			return nil
		default:
		}
		q.mu.Lock()
		items := q.items
		q.items = nil
		q.mu.Unlock()
		if len(items) > 0 {
			return items
		}
		select {
		case <-q.ready:
		case <-done:
			return nil
		}
	}
}

// host returns the client's address without the port, as the ip scheme uses it.
func (c *conn) host() string {
	host, _, err := net.SplitHostPort(c.nc.RemoteAddr().String())
	if err != nil {
		return c.nc.RemoteAddr().String()
	}
	return host
}
