package lossy

// client: a program that locks, its Session, and its way to the server.

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/zktest"
)

// client has a Session that it may close and open anew, behind a proxy of its own.
type client struct {
	w      *world
	name   string
	opts   []zklock.Option
	proxy  *zktest.Proxy
	slow   atomic.Bool // its bytes trickle
	frozen atomic.Bool // nothing passes

	mu struct {
		sync.Mutex
		session *zklock.Session
	}
}

// The leases of the clients, in turn. All are sound on one server.
var leases = []struct {
	mode    zklock.LeaseMode
	timeout time.Duration
}{
	{zklock.SingleServerLease(), 2 * time.Second},
	{zklock.QuorumLease(2 * tick), 4 * time.Second},
	{zklock.SingleServerLease(), 5 * time.Second},
	{zklock.QuorumLease(0), 10 * time.Second},
}

func (w *world) newClient(n int) *client {
	l := leases[n%len(leases)]
	c := &client{w: w, name: fmt.Sprintf("client %d", n), proxy: zktest.StartProxy(w.t, w.srv.Addr())}
	c.opts = []zklock.Option{zklock.WithLease(l.mode), zklock.WithSessionTimeout(l.timeout), zklock.WithDialer(c.dial), quiet}
	return c
}

// servers has the proxy's address twice, or the ZooKeeper client waits for a second before it connects again.
func (c *client) servers() string { return c.proxy.Addr() + "," + c.proxy.Addr() }

// open opens a Session, however long it takes while all sorts of things go wrong.
func (c *client) open() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*soon)
	defer cancel()
	s, err := zklock.Connect(ctx, c.servers(), c.opts...)
	if err != nil {
		c.w.t.Errorf("%s: %v", c.name, err)
		return
	}
	c.mu.Lock()
	c.mu.session = s
	c.mu.Unlock()
}

func (c *client) session() *zklock.Session {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.session
}

// close closes the Session under whoever uses it.
func (c *client) close() {
	const bound = 4 * time.Second // as its comment says
	begun := time.Now()
	if err := c.session().Close(); err != nil {
		c.w.t.Errorf("close: %v", err)
	}
	c.w.inTime("a close", begun, bound)
}

func (c *client) dial(network, addr string, timeout time.Duration) (net.Conn, error) {
	conn, err := net.DialTimeout(network, addr, timeout)
	if err != nil {
		return nil, err
	}
	return &slowConn{conn, &c.slow}, nil
}

// slowConn passes a few bytes at a time while it is slow.
type slowConn struct {
	net.Conn
	slow *atomic.Bool
}

const trickle = 5 // bytes in a millisecond

func (c *slowConn) Read(p []byte) (int, error) {
	if c.slow.Load() && len(p) > trickle {
		time.Sleep(time.Millisecond)
		p = p[:trickle]
	}
	return c.Conn.Read(p)
}

func (c *slowConn) Write(p []byte) (n int, err error) {
	for c.slow.Load() && len(p) > trickle && err == nil {
		var k int
		k, err = c.Conn.Write(p[:trickle])
		n, p = n+k, p[k:]
		time.Sleep(time.Millisecond)
	}
	if err != nil {
		return n, err
	}
	k, err := c.Conn.Write(p)
	return n + k, err
}

// habit is how a worker uses locks.
type habit struct {
	locks []string
	wait  time.Duration // for how long at the most
	sit   int           // one hold in so many lasts for seconds
}

// work acquires, tries, gives up, re-enters, holds and releases at random until ctx ends.
func (c *client) work(ctx context.Context, r *rand.Rand, by habit) {
	w := c.w
	for ctx.Err() == nil {
		m, err := zklock.NewMutex(c.session(), by.locks[r.IntN(len(by.locks))])
		if err != nil {
			w.t.Error(err)
			return
		}
		bound := time.Duration(1 + r.Int64N(int64(by.wait)))
		if r.IntN(16) == 0 {
			bound /= 200
		}
		actx, cancel := context.WithTimeout(ctx, bound)
		if r.IntN(10) == 0 {
			time.AfterFunc(time.Duration(r.Int64N(int64(bound))), cancel)
		}
		begun := time.Now()
		var h *zklock.Hold
		if r.IntN(6) == 0 {
			h, err = m.TryAcquire(actx)
		} else {
			h, err = m.Acquire(actx)
		}
		cancel()
		w.inTime("an acquire", begun, bound)
		switch {
		case err == nil:
			c.hold(r, m, h, r.IntN(by.sit) == 0)
			continue
		case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled), errors.Is(err, zklock.ErrNotAcquired):
		case errors.Is(err, zklock.ErrClosed):
		default:
			w.t.Errorf("acquire: %v", err)
		}
		w.refused.Add(1)
		time.Sleep(time.Duration(r.Int64N(int64(20 * time.Millisecond))))
	}
}

// hold is one hold, from its grant to its release. A long one may be overtaken by faults.
func (c *client) hold(r *rand.Rand, m *zklock.Mutex, h *zklock.Hold, long bool) {
	w := c.w
	believes := w.ledger.Granted(m.Path(), c.name, h)
	var again *zklock.Hold
	if believes && r.IntN(8) == 0 {
		var err error
		if again, err = m.Acquire(h.Context()); err == nil && again.Token() != h.Token() {
			w.t.Errorf("I2: re-entered %s with token %d, and holds with %d", m.Path(), again.Token(), h.Token())
		}
	}
	if r.IntN(4) == 0 {
		w.store.write(h, m.Path(), c.session().Conn())
	}
	switch {
	case long:
		c.stay(h, time.Duration(r.Int64N(int64(4*time.Second))))
	case r.IntN(5) == 0:
		time.Sleep(time.Duration(r.Int64N(int64(2 * time.Millisecond))))
	}

	handles := []*zklock.Hold{h}
	if again != nil {
		handles = append(handles, again)
		r.Shuffle(2, func(i, j int) { handles[i], handles[j] = handles[j], handles[i] })
	}
	w.ledger.Ended(m.Path(), h)
	lost := false
	for _, h := range handles {
		bound := time.Duration(r.Int64N(int64(3 * time.Second)))
		ctx, cancel := context.WithTimeout(context.Background(), bound)
		begun := time.Now()
		err := h.Release(ctx)
		cancel()
		w.inTime("a release", begun, bound)
		switch {
		case errors.Is(err, zklock.ErrLost):
			lost = true
		case err == nil, errors.Is(err, zklock.ErrNotConfirmed):
		default:
			w.t.Errorf("release: %v", err)
		}
	}
	if lost {
		w.lost.Add(1)
	}
}

// stay holds for d, and while the client is frozen until it is told of the loss: then the next one is about to be granted.
func (c *client) stay(h *zklock.Hold, d time.Duration) {
	for {
		select {
		case <-h.Lost():
			if late := time.Since(h.Deadline()); late > noise {
				c.w.t.Errorf("I5: told %v after the deadline", late)
			}
			return
		case <-time.After(d):
		}
		if !c.frozen.Load() {
			return
		}
		d = 10 * time.Millisecond
	}
}

// store is a resource in ZooKeeper for each lock, written only while the writer's lock node is there (Hold.Check). The
// versions say in which order writes landed, whoever heard of it.
type store struct {
	mu      sync.Mutex
	landed  map[string]map[int32]int64 // by lock: version, token
	refused int
}

func resource(lock string) string { return "/fenced" + lock }

// write writes the holder's token. If the answer is lost, it reads what is there.
func (s *store) write(h *zklock.Hold, lock string, conn *zk.Conn) {
	path := resource(lock)
	answers, err := conn.Multi(h.Check(), &zk.SetDataRequest{Path: path, Data: fmt.Append(nil, h.Token()), Version: -1})
	switch {
	case errors.Is(err, zk.ErrNoNode):
		s.mu.Lock()
		defer s.mu.Unlock()
		s.refused++
	case err == nil && len(answers) == 2 && answers[1].Stat != nil:
		s.note(lock, answers[1].Stat.Version, h.Token())
	default:
		s.read(lock, conn)
	}
}

func (s *store) read(lock string, conn *zk.Conn) {
	data, stat, err := conn.Get(resource(lock))
	var token int64
	if err != nil || stat.Version == 0 { // as it was created
		return
	}
	if _, err := fmt.Sscan(string(data), &token); err == nil {
		s.note(lock, stat.Version, token)
	}
}

func (s *store) note(lock string, version int32, token int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.landed[lock] == nil {
		s.landed[lock] = make(map[int32]int64)
	}
	s.landed[lock][version] = token
}

// stale returns the first write that landed after one with a larger token, "" if there is none, and how many landed
// that are known of.
func (s *store) stale() (first string, landed int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for lock, tokens := range s.landed {
		var largest int64
		landed += len(tokens)
		for version, seen := int32(1), 0; seen < len(tokens); version++ {
			token, known := tokens[version]
			if !known {
				continue
			}
			seen++
			if token < largest && first == "" {
				first = fmt.Sprintf("%s: version %d was written with token %d, after %d", lock, version, token, largest)
			}
			largest = max(largest, token)
		}
	}
	return first, landed
}
