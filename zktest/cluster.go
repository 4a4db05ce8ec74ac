package zktest

// The one goroutine that owns the state. Connections send it messages, and users' method calls are
// closures that it runs. It waits only for the next message or closure.

import (
	"log"
	"slices"
	"sync"
	"time"

	"github.com/zklock/zklock/internal/wire"
)

// message is sent by a connection to the loop.
type message struct {
	kind messageKind
	conn *conn
	body []byte   // msgFrame
	word string   // msgWord
	mask int64    // after the word stmk
	req  *request // msgResume
	at   time.Time
	ids  []wire.ID // msgFrame
	more bool      // the next frame of this connection is already buffered: the client pipelines
}

type messageKind int

const (
	msgAccepted messageKind = iota + 1
	msgFrame
	msgWord
	msgClosed
	msgResume // a request has waited long enough
)

// cluster is the state of a server, or of all servers of an ensemble, and the loop that owns it.
type cluster struct {
	cfg     config
	faults  faultSet
	calls   chan func()
	inbox   chan message
	closing chan struct{} // closed when Close begins
	done    chan struct{} // closed when the loop has ended
	once    sync.Once
	wg      sync.WaitGroup // goroutines of waiting requests, and thaws
	after   sync.Mutex     // replaces the loop after it has ended
	epoch   time.Time      // the clock's zero for ticks

	// Owned by the loop.
	endpoints []*endpoint
	tree      *tree // decides every transaction
	zxid      int64
	sessions  map[int64]*session
	nextConn  int64
	wakeAt    time.Time // when some session may have expired; zero: never
	reapAt    time.Time

	sessionlessAt time.Time // when some connection may have been without a session for too long; zero: never

	frozen   bool
	pending  map[string]int32 // counts of creates beyond the wrap; see rules.create
	history  history
	counts   map[int64]map[Op]int // by session; 0 is none, or one that ended long ago
	ended    []int64              // sessions that ended and have counts, in that order
	pings    int
	events   int
	handler  func(Request) (Reply, bool)
	deferred []func() // actions of a fault, to run after the current transaction
	changed  signal   // by the next transaction
	quorum   *quorum  // nil for a single server
	members  string   // the configuration node's data; empty for a single server
}

func newCluster(cfg config) *cluster {
	c := &cluster{
		cfg:      cfg,
		calls:    make(chan func()),
		inbox:    make(chan message),
		closing:  make(chan struct{}),
		done:     make(chan struct{}),
		epoch:    time.Now(),
		tree:     newTree(),
		zxid:     cfg.zxid,
		sessions: make(map[int64]*session),
		pending:  make(map[string]int32),
		counts:   make(map[int64]map[Op]int),
	}
	c.reapAt = c.epoch.Add(cfg.containerCheck)
	if cfg.snapshot.tree != nil {
		c.restore(cfg.snapshot.tree)
	}
	return c
}

// call runs fn in the loop and returns when it has. Once the loop has ended, it runs it here.
func (c *cluster) call(fn func()) {
	ran := make(chan struct{})
	select {
	case c.calls <- func() { fn(); close(ran) }:
		<-ran
	case <-c.done:
		c.after.Lock()
		defer c.after.Unlock()
		fn()
	}
}

func (c *cluster) run() {
	defer close(c.done)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		wake := c.nextWake()
		var tick <-chan time.Time
		if !wake.IsZero() {
			timer.Reset(time.Until(wake))
			tick = timer.C
		} else {
			timer.Stop()
		}
		inbox := c.inbox
		if c.frozen {
			inbox = nil
		}
		select {
		case fn := <-c.calls:
			fn()
		case m := <-inbox:
			c.handle(m)
			if !m.more {
				clear(c.pending)
			}
		case <-tick:
			c.onTime(time.Now())
		case <-c.closing:
			return
		}
		c.runLater()
	}
}

// later schedules fn for the loop, after its current step.
func (c *cluster) later(fn func()) { c.deferred = append(c.deferred, fn) }

func (c *cluster) runLater() {
	for len(c.deferred) > 0 {
		fn := c.deferred[0]
		c.deferred = c.deferred[1:]
		fn()
	}
}

// nextWake returns the time of the next action that only the clock triggers, or zero.
func (c *cluster) nextWake() time.Time {
	if c.frozen || !c.running() {
		return time.Time{}
	}
	var wake time.Time
	if c.quorum != nil {
		wake = c.quorum.nextWake()
	}
	if !c.decisive() {
		return wake
	}
	wake = earlier(earlier(wake, c.wakeAt), c.sessionlessAt)
	if len(c.tree.reapable) > 0 {
		// While there was nothing to reap, no intervals were counted. Advance by as many whole
		// intervals as have passed.
		if late := time.Since(c.reapAt); late > 0 {
			c.reapAt = c.reapAt.Add(late / c.cfg.containerCheck * c.cfg.containerCheck)
		}
		wake = earlier(wake, c.reapAt)
	}
	return wake
}

// earlier returns the earlier one of two times, of which zero is never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// due reports whether a time has come, of which zero is never.
func due(at, now time.Time) bool { return !at.IsZero() && !now.Before(at) }

// boundary returns the end of the interval that contains t. All intervals of that length follow
// each other from the start of the cluster.
func (c *cluster) boundary(t time.Time, interval time.Duration) time.Time {
	return c.epoch.Add((t.Sub(c.epoch)/interval + 1) * interval)
}

// running reports whether any endpoint is running. While none is, no session's timeout advances.
func (c *cluster) running() bool {
	return slices.ContainsFunc(c.endpoints, func(ep *endpoint) bool { return ep.listener != nil })
}

func (c *cluster) onTime(now time.Time) {
	if due(c.sessionlessAt, now) {
		c.closeSessionless(now)
	}
	if c.decisive() && due(c.wakeAt, now) {
		c.expireDue(now)
	}
	if c.quorum != nil {
		c.quorum.onTime(now)
	}
	if c.decisive() && len(c.tree.reapable) > 0 && !now.Before(c.reapAt) {
		c.reapAt = c.reapAt.Add(c.cfg.containerCheck)
		c.reap(now)
	}
}

func (c *cluster) handle(m message) {
	if r := m.conn.ep.replica; r != nil && r.frozen {
		r.unread = append(r.unread, m)
		return
	}
	switch m.kind {
	case msgAccepted:
		c.accepted(m.conn)
	case msgClosed:
		c.forget(m.conn)
	case msgWord:
		c.fourLetterWord(m.conn, m.word, m.mask)
	case msgFrame:
		c.heard(m.conn)
		m.at, m.ids = time.Now(), m.conn.ids
		if m.conn.waiting > 0 && !m.overtakes() {
			m.conn.backlog = append(m.conn.backlog, m)
			return
		}
		c.frame(m)
	case msgResume:
		c.resume(m.req)
	}
}

// overtakes reports whether the frame is served before waiting requests of its connection.
// ZooKeeper handles auth and SASL as soon as it reads them (ZooKeeperServer.processPacket), and all
// other requests in order.
func (m message) overtakes() bool {
	var h wire.RequestHeader
	h.Decode(wire.NewDecoder(m.body))
	return m.conn.accepted && (h.Op == wire.OpAuth || h.Op == wire.OpSASL)
}

// accepted starts the goroutines of a new connection.
func (c *cluster) accepted(cn *conn) {
	ep := cn.ep
	host := cn.host()
	stopped := ep.listener == nil // in between
	if stopped || c.cfg.maxConns > 0 && ep.connsFrom[host] >= c.cfg.maxConns {
		cn.nc.Close()
		return
	}
	c.nextConn++
	cn.id = c.nextConn
	cn.ids = []wire.ID{{Scheme: "ip", ID: host}}
	cn.stats = connStats{opened: time.Now(), lastOp: "null", latency: latency{}}
	ep.conns[cn] = struct{}{}
	ep.connsFrom[host]++
	c.sessionlessAt = earlier(c.sessionlessAt, cn.sessionlessUntil())
	ep.wg.Go(func() { cn.read(c.inbox) })
	ep.wg.Go(cn.write)
}

// sessionlessUntil returns the time when the server closes a connection that has no session by
// then. ZooKeeper checks in intervals of the same length.
func (c *conn) sessionlessUntil() time.Time {
	sessionless := c.ep.c.cfg.sessionless
	return c.ep.c.boundary(c.stats.opened.Add(sessionless), sessionless)
}

// closeSessionless closes the connections that have had no session for too long, except those whose
// request a fault holds. Such a fault models a server that does not respond, and that server would
// not close the connection either.
func (c *cluster) closeSessionless(now time.Time) {
	c.sessionlessAt = time.Time{}
	for _, ep := range c.endpoints {
		for cn := range ep.conns {
			if cn.session != nil || cn.waiting > 0 || cn.deafened || ep.frozen() {
				continue
			}
			if at := cn.sessionlessUntil(); due(at, now) {
				c.forget(cn)
			} else {
				c.sessionlessAt = earlier(c.sessionlessAt, at)
			}
		}
	}
}

// forget removes a connection from every table and closes it. Its session stays alive.
func (c *cluster) forget(cn *conn) {
	cn.close()
	if cn.gone {
		return
	}
	cn.gone = true
	cn.backlog = nil
	delete(cn.ep.conns, cn)
	cn.ep.connsFrom[cn.host()]--
	c.detach(cn)
}

// finish forgets a connection after its queued data has been sent.
func (c *cluster) finish(cn *conn) {
	cn.out.put(outItem{last: true})
	if cn.deafened {
		return
	}
	cn.deafened = true
	c.detach(cn)
}

// detach removes a connection's watches and separates it from its session.
func (c *cluster) detach(cn *conn) {
	cn.ep.data.removeConn(cn)
	cn.ep.child.removeConn(cn)
	if cn.session == nil {
		return
	}
	if cn.ep.attached[cn.session.id] == cn {
		delete(cn.ep.attached, cn.session.id)
	}
	if cn.session.conn == cn {
		cn.session.conn = nil
	}
}

// closeWarning is how long Close waits for the user's functions in silence.
const closeWarning = 10 * time.Second

// close stops all goroutines and returns after the last one has ended.
func (c *cluster) close() {
	c.once.Do(func() {
		for _, ep := range c.endpoints {
			ep.halt()
		}
		close(c.closing)
	})
	<-c.done
	warning := time.AfterFunc(closeWarning, func() {
		log.Printf("zktest: Close has waited %v for a function that Handle or Fault.Call was given, and waits on", closeWarning)
	})
	defer warning.Stop()
	c.wg.Wait()
}

// decisive reports whether transactions can be committed: always on a single server, and in an
// ensemble while a leader has a majority.
func (c *cluster) decisive() bool { return c.quorum == nil || c.quorum.decisive() }

// elsewhere runs the calls of a wait on a separate goroutine. A connection's writer must not run
// them, because they may stop the server, and the server waits for its writers.
func (c *cluster) elsewhere(w wait) wait {
	if len(w.calls) == 0 {
		return w
	}
	called := make(chan struct{})
	calls := w.calls
	c.wg.Go(func() {
		defer close(called)
		for _, fn := range calls {
			fn()
		}
	})
	w.calls, w.called = nil, called
	return w
}

// touchAll gives every session its full timeout, as a server does after a restart, and a new
// leader.
func (c *cluster) touchAll() {
	now := time.Now()
	for _, s := range c.sessions {
		c.touch(s, now)
	}
}
