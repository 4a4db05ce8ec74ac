package zktest

// An in-process network for bubbles of testing/synctest, in which a real socket would stop time.

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/go-zookeeper/zk"
)

// Network is an in-memory network. A server listens on it with [WithNetwork], and [Network.Dial]
// fits zk.WithDialer. Its connections are buffered like TCP's and unlike net.Pipe's; they have
// deadlines and report a closed peer, and may have latency and partitions. The zero value is not
// ready; see [NewNetwork].
type Network struct {
	mu struct {
		sync.Mutex // never held across a wait
		latency    time.Duration
		listeners  map[string]*listener
		blocked    map[string]chan struct{} // partitioned addresses and hosts; closed by Heal
		conns      map[*memConn]ends        // client ends
		lastServer int
		lastClient int
	}
}

// ends holds the address that a connection leads to, and the host that it comes from.
type ends struct{ to, from string }

// NewNetwork returns a network without listeners. For a synctest bubble, call it inside the bubble.
func NewNetwork() *Network {
	n := &Network{}
	n.mu.listeners = make(map[string]*listener)
	n.mu.blocked = make(map[string]chan struct{})
	n.mu.conns = make(map[*memConn]ends)
	return n
}

// memAddr is an address on a Network. It has TCP's format, so that the host and the port can be
// split.
type memAddr string

func (a memAddr) Network() string { return "tcp" }
func (a memAddr) String() string  { return string(a) }

// Listen opens an address. Any string is valid, but an IP address with a port is best: to resolve a
// name, a client would leave the bubble. For an empty string Listen takes the next of
// 192.0.2.1:2181, 192.0.2.2:2181 and so on. These addresses are reserved for documentation (RFC
// 5737), so a client that has one but not [Network.Dial] reaches no machine.
func (n *Network) Listen(address string) (net.Listener, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for address == "" {
		next := fmt.Sprintf("192.0.2.%d:%d", n.mu.lastServer%254+1, 2181+n.mu.lastServer/254)
		n.mu.lastServer++
		if n.mu.listeners[next] == nil {
			address = next
		}
	}
	if n.mu.listeners[address] != nil {
		return nil, &net.OpError{Op: "listen", Net: "tcp", Addr: memAddr(address), Err: syscall.EADDRINUSE}
	}
	l := &listener{network: n, addr: memAddr(address), backlog: make(chan net.Conn, 1024), done: make(chan struct{})}
	n.mu.listeners[address] = l
	return l, nil
}

// Dial connects to an address. Without a listener there, it fails at once, as a refused connection
// does. If the address is partitioned, it waits for [Network.Heal], and fails after the timeout.
func (n *Network) Dial(network, address string, timeout time.Duration) (net.Conn, error) {
	return n.dial("", network, address, timeout)
}

// DialFrom returns a Dial whose connections come from the host, an IP address. So
// [Network.Partition] can cut off a single client.
func (n *Network) DialFrom(host string) zk.Dialer {
	return func(network, address string, timeout time.Duration) (net.Conn, error) {
		return n.dial(host, network, address, timeout)
	}
}

func (n *Network) dial(host, network, address string, timeout time.Duration) (net.Conn, error) {
	refuse := func(err error) (net.Conn, error) {
		return nil, &net.OpError{Op: "dial", Net: network, Addr: memAddr(address), Err: err}
	}
	var expired <-chan time.Time
	if timeout > 0 {
		timer := time.NewTimer(timeout)
		defer timer.Stop()
		expired = timer.C
	}
	for {
		n.mu.Lock()
		healed, latency, l := n.mu.blocked[address], n.mu.latency, n.mu.listeners[address]
		if healed == nil && host != "" {
			healed = n.mu.blocked[host]
		}
		n.mu.Unlock()
		if healed != nil {
			select {
			case <-healed:
				continue
			case <-expired:
				return refuse(os.ErrDeadlineExceeded)
			}
		}
		if latency > 0 { // the handshake takes one round trip
			time.Sleep(2 * latency)
		}
		if l == nil {
			return refuse(syscall.ECONNREFUSED)
		}
		client, server := n.pair(host, address)
		select {
		case <-l.done:
		case l.backlog <- server:
			// The listener may have been closed while the connection was in its backlog.
			select {
			case <-l.done:
				server.Close()
			default:
			}
			return client, nil
		default: // a full backlog rejects connections, as on some systems
		}
		client.Close()
		server.Close()
		return refuse(syscall.ECONNREFUSED)
	}
}

func (n *Network) pair(host, address string) (client, server *memConn) {
	n.mu.Lock()
	defer n.mu.Unlock()
	c := n.mu.lastClient
	n.mu.lastClient++
	if host == "" {
		host = fmt.Sprintf("198.51.100.%d", c%254+1)
	}
	from := memAddr(fmt.Sprintf("%s:%d", host, 30000+c/254%30000))
	up, down := &stream{latency: n.mu.latency}, &stream{latency: n.mu.latency}
	client = newMemConn(down, up, from, memAddr(address))
	server = newMemConn(up, down, memAddr(address), from)
	client.forget = func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		// Data that a partition keeps arrives afterwards, even from a side that is closed.
		if !n.blockedLocked(n.mu.conns[client]) {
			delete(n.mu.conns, client)
		}
	}
	n.mu.conns[client] = ends{to: address, from: host}
	return client, server
}

// SetLatency delays every byte by d in each direction, on connections that are opened from now on.
func (n *Network) SetLatency(d time.Duration) {
	n.mu.Lock()
	n.mu.latency = d
	n.mu.Unlock()
}

// Partition cuts off a server's address, or a host that was passed to [Network.DialFrom]. The
// network keeps the data that is sent on its connections, in both directions, without an error at
// either end. New connections hang.
func (n *Network) Partition(address string) {
	n.mu.Lock()
	if n.mu.blocked[address] == nil {
		n.mu.blocked[address] = make(chan struct{})
	}
	n.mu.Unlock()
	n.stall()
}

// Heal ends a partition. Data that was sent during it is delivered, as TCP does after a short
// partition.
func (n *Network) Heal(address string) {
	n.mu.Lock()
	if healed := n.mu.blocked[address]; healed != nil {
		close(healed)
		delete(n.mu.blocked, address)
	}
	n.mu.Unlock()
	n.stall()
}

// stall applies the current partitions to all connections.
func (n *Network) stall() {
	n.mu.Lock()
	stalled := make(map[*memConn]bool, len(n.mu.conns))
	for c, ends := range n.mu.conns {
		stalled[c] = n.blockedLocked(ends)
		if !stalled[c] && isClosed(c.closed) {
			delete(n.mu.conns, c)
		}
	}
	n.mu.Unlock()
	for c, yes := range stalled {
		c.in.stall(yes)
		c.out.stall(yes)
	}
}

func (n *Network) blockedLocked(e ends) bool {
	return n.mu.blocked[e.to] != nil || n.mu.blocked[e.from] != nil
}

type listener struct {
	network *Network
	addr    memAddr
	backlog chan net.Conn
	once    sync.Once
	done    chan struct{}
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.backlog:
		return c, nil
	case <-l.done:
		return nil, &net.OpError{Op: "accept", Net: "tcp", Addr: l.addr, Err: net.ErrClosed}
	}
}

func (l *listener) Close() error {
	l.once.Do(func() {
		l.network.mu.Lock()
		delete(l.network.mu.listeners, string(l.addr))
		l.network.mu.Unlock()
		close(l.done)
		for {
			select {
			case c := <-l.backlog:
				c.Close()
			default:
				return
			}
		}
	})
	return nil
}

func (l *listener) Addr() net.Addr { return l.addr }

// streamBuffer is the number of bytes that a connection buffers before a writer waits for the
// reader.
const streamBuffer = 256 << 10

// stream is one direction of a connection.
type stream struct {
	latency time.Duration
	mu      struct {
		sync.Mutex // never held across a wait
		segments   []segment
		size       int
		stalled    bool // a partition
		closed     bool // by the writer: buffered data can still be read
		dropped    bool // by the reader: writing fails
		changed    signal
	}
}

type segment struct {
	data []byte
	at   time.Time // when it arrives
}

func (s *stream) stall(on bool) {
	s.mu.Lock()
	s.mu.stalled = on
	s.mu.changed.send()
	s.mu.Unlock()
}

func (s *stream) close() {
	s.mu.Lock()
	s.mu.closed = true
	s.mu.changed.send()
	s.mu.Unlock()
}

// discard removes data that has not been delivered, because a partition keeps it or because it is
// still on its way.
func (s *stream) discard() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.stalled || s.latency > 0 {
		s.mu.segments, s.mu.size = nil, 0
	}
	s.mu.changed.send()
}

func (s *stream) drop() {
	s.mu.Lock()
	s.mu.dropped = true
	s.mu.segments, s.mu.size = nil, 0
	s.mu.changed.send()
	s.mu.Unlock()
}

// read returns data that has arrived. It waits for data until the deadline or until the reader's
// own end is closed.
func (s *stream) read(b []byte, deadline, closed <-chan struct{}) (int, error) {
	for {
		s.mu.Lock()
		var timer *time.Timer
		var arrives <-chan time.Time
		switch {
		case isClosed(closed):
			s.mu.Unlock()
			return 0, net.ErrClosed
		case isClosed(deadline):
			s.mu.Unlock()
			return 0, os.ErrDeadlineExceeded
		case s.mu.stalled: // wait
		case len(s.mu.segments) > 0:
			if d := time.Until(s.mu.segments[0].at); d <= 0 {
				n := s.takeLocked(b)
				s.mu.changed.send()
				s.mu.Unlock()
				return n, nil
			} else {
				timer = time.NewTimer(d)
				arrives = timer.C
			}
		case s.mu.closed:
			s.mu.Unlock()
			return 0, io.EOF
		}
		changed := s.mu.changed.next()
		s.mu.Unlock()
		select {
		case <-changed:
		case <-arrives:
		case <-deadline:
		case <-closed:
		}
		if timer != nil {
			timer.Stop()
		}
	}
}

// takeLocked copies data from all segments that have arrived.
func (s *stream) takeLocked(b []byte) int {
	total := 0
	for len(b) > total && len(s.mu.segments) > 0 {
		seg := &s.mu.segments[0]
		if time.Until(seg.at) > 0 {
			break
		}
		n := copy(b[total:], seg.data)
		total += n
		if seg.data = seg.data[n:]; len(seg.data) == 0 {
			s.mu.segments[0] = segment{}
			s.mu.segments = s.mu.segments[1:]
		}
	}
	s.mu.size -= total
	return total
}

// write appends b to the stream, and waits while the buffer is full.
func (s *stream) write(b []byte, deadline, closed <-chan struct{}) (int, error) {
	written := 0
	for {
		s.mu.Lock()
		switch {
		case isClosed(closed) || s.mu.closed:
			s.mu.Unlock()
			return written, net.ErrClosed
		case isClosed(deadline):
			s.mu.Unlock()
			return written, os.ErrDeadlineExceeded
		case s.mu.dropped:
			s.mu.Unlock()
			return written, syscall.EPIPE
		}
		if room := streamBuffer - s.mu.size; room > 0 && len(b) > 0 {
			n := min(room, len(b))
			s.mu.segments = append(s.mu.segments, segment{data: bytes.Clone(b[:n]), at: time.Now().Add(s.latency)})
			s.mu.size += n
			written, b = written+n, b[n:]
			s.mu.changed.send()
		}
		if len(b) == 0 {
			s.mu.Unlock()
			return written, nil
		}
		changed := s.mu.changed.next()
		s.mu.Unlock()
		select {
		case <-changed:
		case <-deadline:
		case <-closed:
		}
	}
}

// signal is for callers that wait for the next change of something. Its owner guards it.
type signal struct{ ch chan struct{} }

// next returns a channel that the next send closes.
func (s *signal) next() <-chan struct{} {
	if s.ch == nil {
		s.ch = make(chan struct{})
	}
	return s.ch
}

func (s *signal) send() {
	if s.ch != nil {
		close(s.ch)
		s.ch = nil
	}
}

func isClosed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}
