package demo

// The resource is what the lock protects: a thing that takes writes, and refuses one with a smaller token than it has
// seen. It has no clock and knows nothing of locks, sessions or workers.

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"sync"
)

// write is what a worker sends, and what the resource keeps of it.
type write struct {
	Who   string `json:"who"`
	Token int64  `json:"token"`
	What  string `json:"what"` // started, works or ended

	accepted bool
}

// verdict is the resource's answer.
type verdict struct {
	Accepted bool  `json:"accepted"`
	Seen     int64 `json:"seen"` // the largest token so far
}

// resource keeps all writes, in the order in which they came.
type resource struct {
	ln       net.Listener
	wg       sync.WaitGroup
	gullible bool // takes everything, for the test that this is noticed

	mu struct {
		sync.Mutex
		seen  int64
		log   []write
		conns map[net.Conn]struct{} // nil when closed
	}
}

// newResource starts a resource on a port of the loopback interface.
func newResource() (*resource, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	r := &resource{ln: ln}
	r.mu.conns = make(map[net.Conn]struct{})
	r.wg.Go(r.accept)
	return r, nil
}

func (r *resource) addr() string { return r.ln.Addr().String() }

// apply is the whole of fencing: compare and take in one step.
func (r *resource) apply(w write) verdict {
	r.mu.Lock()
	defer r.mu.Unlock()
	w.accepted = w.Token >= r.mu.seen || r.gullible
	r.mu.seen = max(r.mu.seen, w.Token)
	r.mu.log = append(r.mu.log, w)
	return verdict{Accepted: w.accepted, Seen: r.mu.seen}
}

// writes returns all there have been.
func (r *resource) writes() []write {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]write(nil), r.mu.log...)
}

func (r *resource) accept() {
	for {
		c, err := r.ln.Accept()
		if err != nil {
			return
		}
		r.mu.Lock()
		open := r.mu.conns != nil
		if open {
			r.mu.conns[c] = struct{}{}
			r.wg.Go(func() { r.serve(c) })
		}
		r.mu.Unlock()
		if !open {
			_ = c.Close()
		}
	}
}

func (r *resource) serve(c net.Conn) {
	defer func() {
		_ = c.Close()
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.mu.conns, c)
	}()
	in, out := json.NewDecoder(bufio.NewReader(c)), json.NewEncoder(c)
	for {
		var w write
		if in.Decode(&w) != nil || out.Encode(r.apply(w)) != nil {
			return
		}
	}
}

func (r *resource) close() {
	_ = r.ln.Close()
	r.mu.Lock()
	for c := range r.mu.conns {
		_ = c.Close()
	}
	r.mu.conns = nil
	r.mu.Unlock()
	r.wg.Wait()
}

// client is a worker's connection to the resource.
type resourceClient struct {
	c   net.Conn
	in  *json.Decoder
	out *json.Encoder
}

func dialResource(addr string) (*resourceClient, error) {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("the resource: %w", err)
	}
	return &resourceClient{c: c, in: json.NewDecoder(bufio.NewReader(c)), out: json.NewEncoder(c)}, nil
}

func (r *resourceClient) write(w write) (v verdict, err error) {
	if err = r.out.Encode(w); err == nil {
		err = r.in.Decode(&v)
	}
	if err != nil {
		err = fmt.Errorf("the resource: %w", err)
	}
	return v, err
}
