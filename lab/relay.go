package main

// A relay is between one client and one server, so that this client alone can be cut off.
//
// toxiproxy would be the usual tool, but it does not fit (2.5.0, by its source). Its timeout toxic
// drops bytes in the middle of a stream and closes the connection when it is removed. Its latency
// toxic keeps bytes. Both notify the server at once when a client has closed. A partitioned network
// does neither: TCP retransmits the lost bytes when the network is whole again, and until then the
// server receives nothing, neither a close nor a request. This decides about locks that end with
// their connection. The relay differs from a network in one respect: while it is cut, it accepts a
// new connection at once, which is then silent.

import (
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// traffic counts the chunks and bytes that passed through relays. A chunk is the result of one
// read: if a client sends a request in one piece and waits for its response, it is a request or a
// response.
type traffic struct {
	Up, Down           atomic.Int64 // chunks from the client, and to it
	UpBytes, DownBytes atomic.Int64
	Conns              atomic.Int64 // open connections
}

type relay struct {
	ln      net.Listener
	traffic *traffic
	hello   func(io.Reader) ([]byte, error) // returns the first bytes to send, which replace the client's first bytes; nil for no replacement
	patient bool                            // a connection waits for a server that does not listen yet, 5 s at the most
	done    chan struct{}
	wg      sync.WaitGroup

	mu struct {
		sync.Mutex
		backend string
		healed  chan struct{} // not nil while cut
		mute    bool          // responses are dropped
		left    int           // how many of the client's chunks still pass; -1 for all
		cutNext bool          // after these chunks, the relay is cut; otherwise later chunks are dropped
		conns   map[net.Conn]struct{}
		closed  bool
	}
}

// startRelay starts a relay to the server at backend. The caller closes it.
func startRelay(backend string, tr *traffic, options ...func(*relay)) (*relay, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	r := &relay{ln: ln, traffic: tr, done: make(chan struct{})}
	for _, o := range options {
		o(r)
	}
	r.mu.backend, r.mu.conns, r.mu.left = backend, map[net.Conn]struct{}{}, -1
	r.wg.Go(r.accept)
	return r, nil
}

func (r *relay) addr() string { return r.ln.Addr().String() }

// point forwards new connections to another server from now on, and closes the existing ones.
func (r *relay) point(backend string) {
	r.mu.Lock()
	r.mu.backend = backend
	r.mu.Unlock()
	r.sever()
}

// cut holds back all data in both directions from now on, including the ends of connections.
func (r *relay) cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.healed == nil {
		r.mu.healed = make(chan struct{})
	}
}

// heal forwards the held data, and all later data.
func (r *relay) heal() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.healed != nil {
		close(r.mu.healed)
		r.mu.healed = nil
	}
}

// muted drops the server's responses. Requests still reach the server. The caller then calls sever
// and muted(false), so that no connection misses bytes.
func (r *relay) muted(on bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.mute = on
}

// letPass lets n more of the client's chunks pass. Later chunks are dropped, or held as after a
// cut, until heal.
func (r *relay) letPass(n int, cut bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.left, r.mu.cutNext = n, cut
}

func (r *relay) mayPass() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.left == 0 && r.mu.cutNext {
		r.mu.left, r.mu.cutNext, r.mu.healed = -1, false, make(chan struct{})
		r.mu.Unlock()
		_, ok := r.pass()
		r.mu.Lock()
		return ok
	}
	if r.mu.left > 0 {
		r.mu.left--
		return true
	}
	return r.mu.left < 0
}

// sever closes the existing connections; both sides notice it.
func (r *relay) sever() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for c := range r.mu.conns {
		c.Close()
	}
}

func (r *relay) close() {
	r.mu.Lock()
	r.mu.closed = true
	r.mu.Unlock()
	close(r.done)
	r.ln.Close()
	r.sever()
	r.wg.Wait()
}

// pass waits while the relay is cut, and reports whether it is still open. mute means that
// responses are dropped.
func (r *relay) pass() (mute, ok bool) {
	for {
		r.mu.Lock()
		healed, mute, closed := r.mu.healed, r.mu.mute, r.mu.closed
		r.mu.Unlock()
		if closed || healed == nil {
			return mute, !closed
		}
		select {
		case <-healed:
		case <-r.done:
		}
	}
}

func (r *relay) accept() {
	for {
		c, err := r.ln.Accept()
		if err != nil {
			return
		}
		r.wg.Go(func() { r.serve(c) })
	}
}

func (r *relay) serve(client net.Conn) {
	defer client.Close()
	if _, ok := r.pass(); !ok {
		return
	}
	r.mu.Lock()
	backend := r.mu.backend
	r.mu.Unlock()
	server, err := r.dial(backend)
	if err != nil {
		return
	}
	defer server.Close()
	r.mu.Lock()
	r.mu.conns[client], r.mu.conns[server] = struct{}{}, struct{}{}
	if r.mu.closed {
		client.Close()
		server.Close()
	}
	r.mu.Unlock()
	if r.hello != nil {
		first, err := r.hello(client)
		if _, ok := r.pass(); err != nil || !ok {
			client.Close()
		} else {
			_, _ = server.Write(first) // if it fails, so do the next writes
		}
	}
	r.traffic.Conns.Add(1)
	var both sync.WaitGroup
	both.Go(func() { r.pump(server, client, &r.traffic.Up, &r.traffic.UpBytes, false) })
	both.Go(func() { r.pump(client, server, &r.traffic.Down, &r.traffic.DownBytes, true) })
	both.Wait()
	r.traffic.Conns.Add(-1)
	r.mu.Lock()
	delete(r.mu.conns, client)
	delete(r.mu.conns, server)
	r.mu.Unlock()
}

func (r *relay) dial(backend string) (net.Conn, error) {
	for end := time.Now().Add(5 * time.Second); ; {
		c, err := net.DialTimeout("tcp", backend, 5*time.Second)
		if err == nil || !r.patient || time.Now().After(end) {
			return c, err
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-r.done:
			return nil, err
		}
	}
}

// pump copies and counts until from ends, and passes the end on.
func (r *relay) pump(to, from net.Conn, chunks, bytes *atomic.Int64, answers bool) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		mute, ok := r.pass()
		if !ok {
			break
		}
		if n > 0 {
			chunks.Add(1)
			bytes.Add(int64(n))
			if answers && !mute || !answers && r.mayPass() {
				if _, werr := to.Write(buf[:n]); werr != nil {
					break
				}
			}
		}
		if err != nil {
			break
		}
	}
	// The other direction may not continue alone: none of the clients here closes only one side.
	to.Close()
	from.Close()
}
