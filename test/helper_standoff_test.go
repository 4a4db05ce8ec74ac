package zklock_test

// The helpers of tests of watches and handoffs: a queue of three, with a client that can be
// disconnected.

import (
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	jute "github.com/zklock/zklock/internal/wire"
	"github.com/zklock/zklock/zktest"
)

func lastOf(names []string) string {
	last := ""
	for _, n := range names {
		if last == "" || n[len(n)-10:] > last[len(last)-10:] {
			last = n
		}
	}
	return last
}

func suffixOf(name string) string { return name[len(name)-10:] }

// away is a client that can be disconnected: it connects to the server through a proxy, and
// restores its watches in the order that the test wants. The Session asks for them in the order of
// a Go map; the server replays the missed events in the order in which it is asked.
type away struct {
	v     *virtual
	proxy *zktest.Proxy
	s     *zklock.Session

	mu struct {
		sync.Mutex
		frames []zktest.Frame // of the present connection, pings aside
		first  string         // the path that setWatches asks for first
		forget string         // a path that setWatches omits
	}
}

func (v *virtual) away() *away {
	a := &away{v: v, proxy: zktest.StartProxy(v.t, v.srv.Addr(), zktest.WithNetwork(v.net))}
	a.proxy.OnFrame(func(f zktest.Frame) {
		a.mu.Lock()
		defer a.mu.Unlock()
		switch {
		case f.Op == zktest.Ping:
		case f.Op == zktest.Connect && !f.Reply:
			a.mu.frames = nil
		default:
			a.mu.frames = append(a.mu.frames, f)
		}
	})
	a.s = connect(v.t, a.proxy.Addr(), zklock.WithDialer(a.dial))
	return a
}

func (a *away) dial(network, addr string, d time.Duration) (net.Conn, error) {
	c, err := a.v.net.Dial(network, addr, d)
	if err != nil {
		return nil, err
	}
	return &awayConn{Conn: c, a: a}, nil
}

type awayConn struct {
	net.Conn
	a     *away
	out   jute.Stream
	later bool // the connect request, which has no header, is out
}

func (c *awayConn) Write(p []byte) (int, error) {
	c.out.Add(p)
	for f, _ := c.out.Next(); f != nil; f, _ = c.out.Next() {
		if _, err := c.Conn.Write(c.reordered(f)); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}

func (c *awayConn) reordered(p []byte) []byte {
	if !c.later {
		c.later = true
		return p
	}
	d := jute.NewDecoder(p[4:])
	var h jute.RequestHeader
	h.Decode(d)
	if h.Op != jute.OpSetWatches {
		return p
	}
	c.a.mu.Lock()
	first, forget := c.a.mu.first, c.a.mu.forget
	c.a.mu.Unlock()
	var ask jute.SetWatchesRequest
	ask.Decode(d)
	ask.Data = slices.DeleteFunc(ask.Data, func(path string) bool { return path == forget })
	if i := slices.Index(ask.Data, first); i >= 0 {
		ask.Data[0], ask.Data[i] = ask.Data[i], ask.Data[0]
	}
	return jute.Frame(h, ask)
}

// restoreFirst sets the path that setWatches asks for first.
func (a *away) restoreFirst(path string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.mu.first = path
}

// forget removes the watch on a path from setWatches, so the server does not restore it.
func (a *away) forget(path string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.mu.forget = path
}

// leave closes the connection and rejects the next ones, until comeBack is called.
func (a *away) leave(t *testing.T) (comeBack func()) {
	t.Helper()
	refused := a.proxy.Inject(zktest.RefuseConnections())
	a.proxy.CloseConnections()
	require.NoError(t, refused.Wait(t.Context()))
	synctest.Wait()
	return func() {
		t.Helper()
		require.Equal(t, zklock.StateSuspended, a.s.Stats().State)
		require.False(t, a.connected(), "it was not away")
		refused.Remove()
	}
}

// connected reports whether the server has a connection of the session.
func (a *away) connected() bool {
	return slices.ContainsFunc(a.v.srv.Sessions(), func(s zktest.Session) bool { return s.ID == a.s.Stats().SessionID && s.Connected })
}

// requests returns the requests of the present connection, in the order in which the server
// received them.
func (a *away) requests() (ops []zktest.Op) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, f := range a.mu.frames {
		if !f.Reply && f.Event == 0 {
			ops = append(ops, f.Op)
		}
	}
	return ops
}

// asked returns the nodes that the first request of the present connection named.
func (a *away) asked() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, f := range a.mu.frames {
		if !f.Reply && f.Event == 0 {
			return f.Paths
		}
	}
	return nil
}

// watched returns the nodes on which a watch was set over the present connection, in that order.
func (a *away) watched() (paths []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, f := range a.mu.frames {
		if f.Op == zktest.GetData && !f.Reply {
			paths = append(paths, f.Paths...)
		}
	}
	return paths
}

// deletions returns the nodes whose deletion was notified over the present connection, in that
// order.
func (a *away) deletions() (paths []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, f := range a.mu.frames {
		if f.Event == zktest.NodeDeleted {
			paths = append(paths, f.Paths...)
		}
	}
	return paths
}

// listedAfter reports whether the queue was listed on the present connection since it notified the
// node's deletion.
func (a *away) listedAfter(deleted string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	i := slices.IndexFunc(a.mu.frames, func(f zktest.Frame) bool {
		return f.Event == zktest.NodeDeleted && f.Paths[0] == deleted
	})
	return i >= 0 && slices.ContainsFunc(a.mu.frames[i:], func(f zktest.Frame) bool {
		return f.Reply && f.Op == zktest.GetChildren
	})
}

// standoff is a queue of three: a holder; a waiter that watches it, of a client that can be
// disconnected; and a waiter behind it, which is next if both are deleted.
type standoff struct {
	*virtual
	a        *away
	h        *zklock.Hold
	w        *waiting
	own      string // the waiter's node
	behind   *waiting
	somebody *zk.Conn
	released chan error // the result of the holder's Release; nil: it has not been called
}

// standoff makes the holder another owner of the waiter's own Session, or of another Session.
func (v *virtual) standoff(ownSession bool) *standoff {
	f := &standoff{virtual: v, a: v.away(), somebody: v.connect().Conn()}
	holder := v.connect()
	if ownSession {
		holder = f.a.s
	}
	f.h = acquire(v.t, newMutex(v.t, holder, "/job"))
	f.w = v.queueUp(newMutex(v.t, f.a.s, "/job"))
	f.own = "/job/" + lastOf(v.srv.Children("/job"))
	f.behind = v.queueUp(newMutex(v.t, v.connect(), "/job"))
	return f
}

// pair returns the waiter's node and its predecessor's, or the reverse.
func (f *standoff) pair(ownFirst bool) (first, second string) {
	if ownFirst {
		return f.own, f.h.Node()
	}
	return f.h.Node(), f.own
}

// deleteBoth has another client delete both nodes, in one transaction or in two.
func (f *standoff) deleteBoth(t *testing.T, ownFirst, atOnce bool) {
	t.Helper()
	first, second := f.pair(ownFirst)
	if atOnce {
		_, err := f.somebody.Multi(&zk.DeleteRequest{Path: first, Version: -1}, &zk.DeleteRequest{Path: second, Version: -1})
		require.NoError(t, err)
	} else {
		require.NoError(t, f.srv.Delete(first))
		require.NoError(t, f.srv.Delete(second))
	}
	var gone []string
	var zxids []int64
	for _, a := range f.srv.History() {
		if a.Kind == zktest.Deleted && (a.Path == first || a.Path == second) {
			gone, zxids = append(gone, a.Path), append(zxids, a.Zxid)
		}
	}
	require.Equal(t, []string{first, second}, gone)
	require.Equal(t, atOnce, zxids[0] == zxids[1])
}

// goesOn checks that the waiter, whose node is deleted, is in the queue again and does not hold
// while next holds, and that the lock works.
func (f *standoff) goesOn(t *testing.T, next *zklock.Hold) {
	t.Helper()
	require.False(t, f.w.isGranted(), "I1, I3: granted on a node that is gone, while another holds")
	require.NoError(t, next.Err())
	nodes := f.srv.Children("/job")
	require.Len(t, nodes, 2, "I2: the waiter is in the queue again, once")
	require.Contains(t, nodes, base(next.Node()))
	require.NotContains(t, nodes, base(f.own))
	release(t, next)
	last := f.w.granted2(t, time.Second)
	stat, there := f.srv.Stat(last.Node())
	require.True(t, there, "I3")
	require.Equal(t, f.a.s.Stats().SessionID, stat.EphemeralOwner, "I3")
	require.Greater(t, next.Token(), f.h.Token(), "I1")
	require.Greater(t, last.Token(), next.Token(), "I1")
	if f.released == nil {
		require.ErrorIs(t, f.h.Release(within(t, soon)), zklock.ErrLost)
	} else {
		require.ErrorIs(t, <-f.released, zklock.ErrLost)
	}
	release(t, last)
	synctest.Wait()
	require.Empty(t, f.srv.Children("/job"), "I4")
	require.Empty(t, f.srv.Watches(), "I7")
}

// release2 releases the standoff's holder, on a goroutine.
func (f *standoff) release2(t *testing.T) {
	f.released = make(chan error, 1)
	go func() { f.released <- f.h.Release(within(t, soon)) }()
}

// onTurn is a fault at the request that hands the lock to the standoff's waiter.
func (f *standoff) onTurn(fault func(zktest.Op) zktest.Fault) zktest.Fault {
	return fault(zktest.Multi).Path(f.own).Session(f.a.s.Stats().SessionID)
}

// turnLost calls f when that request has arrived, or has been executed, and closes the connection:
// no client is notified.
func (f *standoff) turnLost(done bool, call func()) zktest.Fault {
	if done {
		return f.onTurn(zktest.After).Call(call).DropReply().Close()
	}
	return f.onTurn(zktest.Before).Call(call).Close()
}
