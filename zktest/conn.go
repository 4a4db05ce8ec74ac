package zktest

// One client connection: a goroutine that reads frames and hands them to the loop, and one that writes what
// the loop has queued. Neither decides anything.

import (
	"bufio"
	"crypto/tls"
	"encoding/binary"
	"io"
	"net"
	"sync"

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
	session  *session // nil until the connect exchange is over
	greeted  bool     // its connect request has come
	accepted bool     // and has been answered with a session
	gone     bool     // the loop has forgotten this connection
	ids      []wire.ID
	sasl     sasl.DigestServer
	waiting  int       // requests that wait for a fault or a replica; those behind them are in backlog
	backlog  []message // in order of arrival
	stats    connStats
	deafened bool // the server will say nothing more; requests are ignored
}

// close cuts the connection now. Both goroutines end, and the loop is told by the reader.
func (c *conn) close() {
	c.once.Do(func() {
		close(c.closed)
		nc := c.nc
		if over, ok := nc.(*tls.Conn); ok {
			nc = over.NetConn() // the loop must not wait until the client has read that this is the end
		}
		shut(nc)
	})
}

// shut closes a connection as ZooKeeper does, its side first: a client that is still sending reads
// the end of the stream, and not a reset because of what was not read.
func shut(nc net.Conn) {
	if tcp, ok := nc.(*net.TCPConn); ok {
		tcp.CloseWrite()
	}
	nc.Close()
}

// read hands every frame to the loop, in order. The first four bytes may be a word instead of a length.
func (c *conn) read(inbox chan<- message) {
	send := func(m message) bool {
		select {
		case inbox <- m:
			return true
		case <-c.closed:
			return false
		}
	}
	// The loop must hear of the end even if it comes from close(); only the end of the server itself
	// lets it not be heard. As in ZooKeeper, the connection is forgotten before it is closed: whoever
	// has read the end of the stream is not counted any more.
	defer func() {
		select {
		case inbox <- message{kind: msgClosed, conn: c}:
		case <-c.ep.c.done:
		case <-c.ep.stopping():
		}
		c.close()
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
		// The answer's writer closes the connection. Until then the server ignores all else that comes, also the end of
		// the stream: "echo ruok | nc" has done with sending before it gets its answer.
		io.Copy(io.Discard, r)
		<-c.closed
		return
	}
	for {
		body, err := wire.ReadBody(r, head, wire.MaxFrame)
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

// write sends what is queued until the connection ends.
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
				if flush() {
					shut(c.nc)
				}
				return
			}
		}
		if !flush() {
			return
		}
	}
}

// outItem is bytes to send, and what has to pass before.
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

// host is the client's address without the port, as the ip scheme knows it.
func (c *conn) host() string {
	host, _, err := net.SplitHostPort(c.nc.RemoteAddr().String())
	if err != nil {
		return c.nc.RemoteAddr().String()
	}
	return host
}
