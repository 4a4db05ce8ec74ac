package zktest

// A proxy that parses frames, for faults of servers that have no Inject.

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/zklock/internal/wire"
)

// proxyFrame is the longest frame that the proxy forwards, in either direction.
const proxyFrame = 64 << 20

// Proxy forwards the connections of clients to one ZooKeeper server, real or not, and injects the
// same faults as [Server.Inject], as far as frames allow:
//
//   - After(op) is the moment when the reply arrives, so the server has executed the operation.
//   - Before(op).Fail does not reach the server, which gets a harmless read instead of the request.
//   - Expire expires the session on the server ([ExpireSession]).
//   - OnEvent and all other parts of a fault have the same meaning as for a server.
//
// Each client connection is bound to one connection to the server: when one side closes, so does
// the other.
type Proxy struct {
	faultSet
	backend string
	dial    zk.Dialer
	ln      net.Listener
	wg      sync.WaitGroup
	done    chan struct{}
	once    sync.Once

	mu struct {
		sync.Mutex // never held across I/O
		conns      map[*proxyConn]struct{}
		thawed     chan struct{} // not nil while frozen
	}
}

// StartProxy starts a proxy for the server at backend, for the duration of a test. Only the options
// [WithAddr] and [WithNetwork] apply. A fault that never fired fails the test.
func StartProxy(t TB, backend string, opts ...Option) *Proxy {
	t.Helper()
	p, err := NewProxy(backend, opts...)
	return started(t, p, err)
}

// NewProxy starts a proxy for the server at backend. The caller must close it.
func NewProxy(backend string, opts ...Option) (*Proxy, error) {
	cfg, err := newConfig(opts, 1)
	if err != nil {
		return nil, err
	}
	p := &Proxy{backend: backend, dial: net.DialTimeout, done: make(chan struct{})}
	p.mu.conns = make(map[*proxyConn]struct{})
	if cfg.network != nil {
		p.dial = cfg.network.Dial
	}
	if p.ln, err = cfg.listen(cfg.addrs[0]); err != nil {
		return nil, fmt.Errorf("zktest: proxy: %w", err)
	}
	p.wg.Go(p.accept)
	return p, nil
}

// Addr returns the address for clients.
func (p *Proxy) Addr() string { return p.ln.Addr().String() }

// Close closes all connections and returns after the last goroutine has ended.
func (p *Proxy) Close() {
	p.once.Do(func() {
		close(p.done)
		p.ln.Close()
		p.CloseConnections()
	})
	p.wg.Wait()
}

// CloseConnections closes all current connections; clients may reconnect.
func (p *Proxy) CloseConnections() {
	p.mu.Lock()
	conns := slices.Collect(maps.Keys(p.mu.conns))
	p.mu.Unlock()
	for _, pc := range conns {
		pc.cut()
	}
}

// Freeze stops and keeps all traffic in both directions. The server's clock continues, so sessions
// may expire there.
func (p *Proxy) Freeze() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.thawed == nil {
		p.mu.thawed = make(chan struct{})
	}
}

// Thaw ends Freeze.
func (p *Proxy) Thaw() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.thawed != nil {
		close(p.mu.thawed)
		p.mu.thawed = nil
	}
}

func (p *Proxy) freezeFor(d time.Duration) {
	p.Freeze()
	p.wg.Go(func() {
		wait{delay: d}.pass(p.done)
		p.Thaw()
	})
}

func (p *Proxy) accept() {
	for {
		client, err := p.ln.Accept()
		if err != nil {
			return
		}
		if p.match(happening{when: onAccept}).close {
			client.Close()
			continue
		}
		p.wg.Go(func() { p.serve(client) })
	}
}

// serve runs one connection until either side ends it.
func (p *Proxy) serve(client net.Conn) {
	server, err := p.dial("tcp", p.backend, 10*time.Second)
	if err != nil {
		client.Close()
		return
	}
	pc := &proxyConn{p: p, client: client, server: server, done: make(chan struct{})}
	pc.mu.pending = make(map[int32][]*proxied)
	p.mu.Lock()
	p.mu.conns[pc] = struct{}{}
	p.mu.Unlock()
	if isClosed(p.done) { // CloseConnections may have missed this one
		pc.cut()
	}
	var both sync.WaitGroup
	both.Go(pc.up)
	both.Go(pc.down)
	both.Wait()
	p.mu.Lock()
	delete(p.mu.conns, pc)
	p.mu.Unlock()
}

// proxyConn is a client's connection with its connection to the server.
type proxyConn struct {
	p              *Proxy
	client, server net.Conn
	once           sync.Once
	done           chan struct{}

	mu struct {
		sync.Mutex // a leaf
		session    int64
		word       bool                 // a four-letter word: the response has no frames
		pending    map[int32][]*proxied // by xid; only repeating xids can have more than one
	}
}

// proxied is a request whose reply has not arrived yet.
type proxied struct {
	op    wire.Op
	paths []string
	fail  wire.Code
}

func (pc *proxyConn) cut() {
	pc.once.Do(func() {
		close(pc.done)
		pc.client.Close()
		pc.server.Close()
	})
}

func (pc *proxyConn) session() int64 {
	pc.mu.Lock()
	defer pc.mu.Unlock()
	return pc.mu.session
}

// thaw waits while the proxy is frozen, and returns false if the connection ends meanwhile.
func (pc *proxyConn) thaw() bool {
	for {
		pc.p.mu.Lock()
		thawed := pc.p.mu.thawed
		pc.p.mu.Unlock()
		if thawed == nil {
			return true
		}
		select {
		case <-thawed:
		case <-pc.done:
			return false
		}
	}
}

// act performs the parts of a verdict that do not concern the frame itself. It returns false if the
// connection has ended.
func (pc *proxyConn) act(v verdict) bool {
	if v.freeze > 0 {
		pc.p.freezeFor(v.freeze)
	}
	return v.wait.pass(pc.done) && pc.thaw()
}

// expire expires the session on the server, which then cuts the connection.
func (pc *proxyConn) expire() {
	if id := pc.session(); id != 0 {
		expireSession(pc.p.dial, pc.p.backend, id)
	}
	pc.cut()
}

// up forwards requests.
func (pc *proxyConn) up() {
	defer pc.cut()
	r := bufio.NewReader(pc.client)
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return
	}
	if isWord(head) {
		pc.mu.Lock()
		pc.mu.word = true
		pc.mu.Unlock()
		if _, err := pc.server.Write(head[:]); err == nil {
			io.Copy(pc.server, r)
		}
		return
	}
	for first := true; ; first = false {
		body, err := wire.ReadBody(r, head, proxyFrame)
		if err != nil {
			return
		}
		if body = pc.request(first, body); body == nil {
			return
		}
		if _, err := pc.server.Write(wire.Frame(wire.Raw(body))); err != nil {
			return
		}
		if _, err := io.ReadFull(r, head[:]); err != nil {
			return
		}
	}
}

// request applies the faults to a request. It returns the frame to forward, or nil to close the
// connection.
func (pc *proxyConn) request(first bool, body []byte) []byte {
	req := &proxied{op: wire.OpConnect}
	var h wire.RequestHeader
	if first {
		var ask wire.ConnectRequest
		d := wire.NewDecoder(body)
		if ask.Decode(d); d.Err() == nil {
			pc.mu.Lock()
			pc.mu.session = ask.SessionID
			pc.mu.Unlock()
		}
	} else {
		d := wire.NewDecoder(body)
		if h.Decode(d); d.Err() != nil {
			return body // let the server reject it
		}
		req.op, req.paths = h.Op, pathsOf(h.Op, d.Rest())
	}
	v := pc.p.match(happening{when: beforeOp, op: Op(req.op), paths: req.paths, session: pc.session()})
	if !pc.act(v) {
		return nil
	}
	switch {
	case v.expire:
		pc.expire()
		return nil
	case v.close:
		return nil
	case v.fail != 0 && first:
		pc.client.Write(wire.Frame(wire.ConnectResponse{Password: make([]byte, 16)}))
		return nil
	case v.fail != 0:
		req.fail = v.fail
		body = wire.Frame(wire.RequestHeader{Xid: h.Xid, Op: wire.OpExists}, wire.PathWatchRequest{Path: "/"})[4:]
	}
	if !first {
		pc.mu.Lock()
		pc.mu.pending[h.Xid] = append(pc.mu.pending[h.Xid], req)
		pc.mu.Unlock()
	}
	return body
}

// down forwards replies and events.
func (pc *proxyConn) down() {
	defer pc.cut()
	r := bufio.NewReader(pc.server)
	for first := true; ; first = false {
		var head [4]byte
		if _, err := io.ReadFull(r, head[:]); err != nil {
			return
		}
		pc.mu.Lock()
		word := pc.mu.word
		pc.mu.Unlock()
		if word {
			if _, err := pc.client.Write(head[:]); err == nil {
				io.Copy(pc.client, r)
			}
			return
		}
		body, err := wire.ReadBody(r, head, proxyFrame)
		if err != nil || !pc.answer(first, body) {
			return
		}
	}
}

// answer applies the faults to a reply or event and forwards the result. It returns false to close
// the connection.
func (pc *proxyConn) answer(first bool, body []byte) bool {
	d := wire.NewDecoder(body)
	var h wire.ReplyHeader
	req := &proxied{op: wire.OpConnect}
	switch {
	case first:
		var answer wire.ConnectResponse
		if answer.Decode(d); d.Err() == nil {
			pc.mu.Lock()
			pc.mu.session = answer.SessionID
			pc.mu.Unlock()
		}
	default:
		if h.Decode(d); d.Err() != nil {
			return pc.send(body)
		}
		if h.Xid == wire.XidEvent {
			return pc.event(body, d)
		}
		pc.mu.Lock()
		if waiting := pc.mu.pending[h.Xid]; len(waiting) > 0 {
			req = waiting[0]
			if pc.mu.pending[h.Xid] = waiting[1:]; len(waiting) == 1 {
				delete(pc.mu.pending, h.Xid)
			}
		}
		pc.mu.Unlock()
	}
	if req.fail != 0 {
		body = wire.Frame(wire.ReplyHeader{Xid: h.Xid, Zxid: h.Zxid, Err: req.fail})[4:]
	}
	paths := slices.Concat(req.paths, createdPaths(req.op, h.Err, d))
	v := pc.p.match(happening{when: afterOp, op: Op(req.op), paths: paths, session: pc.session(), code: h.Err})
	if v.fail != 0 && !first {
		body = wire.Frame(wire.ReplyHeader{Xid: h.Xid, Zxid: h.Zxid, Err: v.fail})[4:]
	}
	return pc.act(v) && pc.deliver(v, v.dropReply, body)
}

func (pc *proxyConn) event(body []byte, d *wire.Decoder) bool {
	var ev wire.WatcherEvent
	if ev.Decode(d); d.Err() != nil {
		return pc.send(body)
	}
	v := pc.p.match(happening{when: onEvent, event: EventType(ev.Type), paths: []string{ev.Path}, session: pc.session()})
	return pc.act(v) && pc.deliver(v, v.drop || v.close || v.expire, body)
}

// deliver forwards a reply or event, unless it is dropped, and returns false to close the
// connection.
func (pc *proxyConn) deliver(v verdict, dropped bool, body []byte) bool {
	for n := 0; !dropped && n <= v.duplicates; n++ {
		if !pc.send(body) {
			return false
		}
	}
	if v.expire {
		pc.expire()
	}
	return !v.close && !v.expire
}

func (pc *proxyConn) send(body []byte) bool {
	if !pc.thaw() {
		return false
	}
	_, err := pc.client.Write(wire.Frame(wire.Raw(body)))
	return err == nil
}

// createdPaths returns the paths of the nodes that a successful reply reports as created.
func createdPaths(op wire.Op, code wire.Code, d *wire.Decoder) []string {
	if code != wire.OK {
		return nil
	}
	switch op {
	case wire.OpCreate, wire.OpCreate2, wire.OpCreateContainer, wire.OpCreateTTL:
		if path := d.Text(); d.Err() == nil {
			return []string{path}
		}
	case wire.OpMulti:
		var answer wire.MultiResponse
		answer.Decode(d)
		var paths []string
		for _, res := range answer.Results {
			if res.Path != "" {
				paths = append(paths, res.Path)
			}
		}
		return paths
	}
	return nil
}
