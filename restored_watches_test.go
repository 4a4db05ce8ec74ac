package zklock_test

import (
	"context"
	"encoding/binary"
	"fmt"
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

// away is a client that can be sent away: it comes to the server through a proxy, and restores its watches in the order
// that the test wants. The Session asks for them in the order of a Go map; the server replays what happened meanwhile in the
// order it is asked.
type away struct {
	v     *virtual
	proxy *zktest.Proxy
	s     *zklock.Session

	mu struct {
		sync.Mutex
		frames []zktest.Frame // of the present connection, pings aside
		first  string         // the path that setWatches is to ask for first
		forget string         // a path that it is not to ask for
	}
}

func (v *virtual) away() *away {
	a := &away{v: v, proxy: zktest.StartProxy(v.t, v.srv.Addr(), zktest.WithNetwork(v.net))}
	a.proxy.OnFrame(func(f zktest.Frame) {
		a.mu.Lock()
		defer a.mu.Unlock()
		switch {
		case f.Op == zktest.Ping:
		case f.Op == zktest.Connect && f.Kind == zktest.RequestFrame:
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

// restoreFirst says which path setWatches is to ask for first.
func (a *away) restoreFirst(path string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.mu.first = path
}

// forget has the server not hear that it is to restore the watch on a path.
func (a *away) forget(path string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.mu.forget = path
}

// leave cuts the connection and refuses the next ones, until comeBack is called.
func (a *away) leave(t *testing.T) (comeBack func()) {
	t.Helper()
	refused := a.proxy.Inject(zktest.RefuseConnections())
	a.proxy.CloseConnections()
	require.NoError(t, refused.Wait(t.Context()))
	synctest.Wait()
	return func() {
		t.Helper()
		require.Equal(t, zklock.Suspended, a.s.State())
		require.False(t, a.connected(), "it was not away")
		refused.Remove()
	}
}

// connected says whether the server has a connection of the session.
func (a *away) connected() bool {
	return slices.ContainsFunc(a.v.srv.Sessions(), func(s zktest.Session) bool { return s.ID == a.s.SessionID() && s.Connected })
}

// requests are those of the present connection, in the order in which the server got them.
func (a *away) requests() (ops []zktest.Op) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, f := range a.mu.frames {
		if f.Kind == zktest.RequestFrame {
			ops = append(ops, f.Op)
		}
	}
	return ops
}

// asked are the nodes that the first request of the present connection named.
func (a *away) asked() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, f := range a.mu.frames {
		if f.Kind == zktest.RequestFrame {
			return f.Paths
		}
	}
	return nil
}

// watched are the nodes on which a watch was set over the present connection, in that order.
func (a *away) watched() (paths []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, f := range a.mu.frames {
		if f.Kind == zktest.RequestFrame && f.Op == zktest.GetData {
			paths = append(paths, f.Paths...)
		}
	}
	return paths
}

// deletions are the nodes of which the present connection told that they were deleted, in that order.
func (a *away) deletions() (paths []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, f := range a.mu.frames {
		if f.Kind == zktest.EventFrame && f.Event == zktest.NodeDeleted {
			paths = append(paths, f.Paths...)
		}
	}
	return paths
}

// listedAfter says whether the queue was listed on the present connection since it told of the node's deletion.
func (a *away) listedAfter(deleted string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	i := slices.IndexFunc(a.mu.frames, func(f zktest.Frame) bool {
		return f.Kind == zktest.EventFrame && f.Event == zktest.NodeDeleted && f.Paths[0] == deleted
	})
	return i >= 0 && slices.ContainsFunc(a.mu.frames[i:], func(f zktest.Frame) bool {
		return f.Kind == zktest.ReplyFrame && f.Op == zktest.GetChildren2
	})
}

// standoff is a queue of three: a holder; a waiter that watches it, of a client that can be sent away; and one behind the
// waiter, who is next if both are gone.
type standoff struct {
	*virtual
	a        *away
	h        *zklock.Hold
	w        *waiting
	own      string // the waiter's node
	behind   *waiting
	somebody *zk.Conn
	released chan error // what the holder's Release returned; nil: it has not been called
}

// standoff has the holder be another owner of the waiter's own Session, or of another one.
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

// pair is the waiter's node and its predecessor's, or the other way round.
func (f *standoff) pair(ownFirst bool) (first, second string) {
	if ownFirst {
		return f.own, f.h.Path()
	}
	return f.h.Path(), f.own
}

// deleteBoth has somebody else delete both nodes, in one transaction or in two.
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

// goesOn checks that the waiter, whose node is gone, is in the queue again and believes nothing while next holds, and that
// the lock goes on.
func (f *standoff) goesOn(t *testing.T, next *zklock.Hold) {
	t.Helper()
	require.False(t, f.w.isGranted(), "I1, I3: granted on a node that is gone, while another holds")
	require.NoError(t, next.Err())
	nodes := f.srv.Children("/job")
	require.Len(t, nodes, 2, "I2: the waiter is in the queue again, once")
	require.Contains(t, nodes, base(next.Path()))
	require.NotContains(t, nodes, base(f.own))
	release(t, next)
	last := f.w.granted2(t, time.Second)
	stat, there := f.srv.Stat(last.Path())
	require.True(t, there, "I3")
	require.Equal(t, f.a.s.SessionID(), stat.EphemeralOwner, "I3")
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
	require.Zero(t, f.srv.WatchCount(), "I7")
}

// F25, F31, I1, I3: own node and predecessor are deleted while the waiter is away, one after the other or at once. The
// events come back in either order, the second a while after the first. The waiter asks, and queues again.
func TestVirtual_RestoredWatches_NeverGrant(t *testing.T) {
	for i := range 8 {
		atOnce, ownDeletedFirst, ownToldFirst := i&1 != 0, i&2 != 0, i&4 != 0
		t.Run(fmt.Sprintf("at once %t, own deleted first %t, own told first %t", atOnce, ownDeletedFirst, ownToldFirst), func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, v *virtual) {
				f := v.standoff(false)
				comeBack := f.a.leave(t)
				f.deleteBoth(t, ownDeletedFirst, atOnce)
				next := f.behind.granted2(t, time.Second)

				first, second := f.pair(ownToldFirst)
				f.a.restoreFirst(first)
				f.a.proxy.Inject(zktest.OnEvent(zktest.NodeDeleted).Path(second).Delay(100 * time.Millisecond).Once())
				comeBack()
				time.Sleep(5 * time.Second)
				require.Equal(t, zklock.Reconnected, f.a.s.State())
				require.Equal(t, []string{first, second}, f.a.deletions(), "told in another order")
				f.goesOn(t, next)
			})
		})
	}
}

// F30, I1: the watches of the connection before are set on the next ahead of everything else, also where the client has
// watches of its own to restore.
func TestVirtual_RestoredWatches_GoFirst(t *testing.T) {
	for _, clients := range []bool{false, true} {
		inVirtualTime(t, func(t *testing.T, v *virtual) {
			f := v.standoff(false)
			if clients {
				_, _, _, err := f.a.s.Conn().ExistsW("/elsewhere")
				require.NoError(t, err)
			}
			release(t, acquire(t, newMutex(t, f.a.s, "/other")))
			other := acquire(t, newMutex(t, f.a.s, "/other")) // whose heartbeat is due at once
			for range 3 {
				time.Sleep(5300 * time.Millisecond) // connected for a while, the client dials again at once
				f.a.proxy.CloseConnections()
				time.Sleep(time.Second)
				require.Equal(t, zklock.Reconnected, f.a.s.State())
				sent := f.a.requests()
				require.Contains(t, sent, zktest.GetChildren2, "the waiter lists")
				require.Contains(t, sent, zktest.Multi, "the heartbeat")
				require.Equal(t, zktest.SetWatches, sent[0])
				require.Subset(t, f.a.asked(), []string{f.own, f.h.Path()})
			}
			require.False(t, f.w.isGranted())
			require.NoError(t, other.Err())
			release(t, other)
			release(t, f.h)
			release(t, f.w.granted2(t, time.Second))
			release(t, f.behind.granted2(t, time.Second))
		})
	}
}

// F25, F30, I1, I3: the client comes back, and of its watches the one on our own node is not restored, although the server says so. Another node is the predecessor now, and its watch is new. Our own node goes unheard, then the predecessor does.
func TestVirtual_OwnWatchNotRestored_NeverGrants(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		h := acquire(t, newMutex(t, v.connect(), "/job"))
		between := []*waiting{v.queueUp(newMutex(t, v.connect(), "/job")), v.queueUp(newMutex(t, v.connect(), "/job"))}
		f := &standoff{virtual: v, a: v.away(), h: h}
		f.w = v.queueUp(newMutex(t, f.a.s, "/job"))
		f.own = "/job/" + lastOf(v.srv.Children("/job"))
		f.behind = v.queueUp(newMutex(t, v.connect(), "/job"))

		comeBack := f.a.leave(t)
		for _, b := range between { // the two that it watches
			b.stop()
			_, err := b.get(t)
			require.ErrorIs(t, err, context.Canceled)
		}
		f.a.forget(f.own)
		comeBack()
		time.Sleep(2 * time.Second)
		id := f.a.s.SessionID()
		watches := func(path string) bool {
			return slices.ContainsFunc(v.srv.Watches(path), func(w zktest.Watch) bool { return w.Session == id })
		}
		require.True(t, watches(h.Path()))
		require.False(t, watches(f.own), "its watch is not dead")

		require.NoError(t, v.srv.Delete(f.own))
		synctest.Wait()
		require.NoError(t, v.srv.Delete(h.Path()))
		next := f.behind.granted2(t, time.Second)
		time.Sleep(time.Second)
		require.Contains(t, f.a.deletions(), h.Path())
		require.NotContains(t, f.a.deletions(), f.own, "it is to go unheard")
		f.goesOn(t, next)
	})
}

// F30: the server refuses to restore the watches. The waiter hears so, and sets them again by itself.
func TestVirtual_WatchesRefused_AreSetAtOnce(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		f := v.standoff(false)
		comeBack := f.a.leave(t)
		refused := f.a.proxy.Inject(zktest.Before(zktest.SetWatches).Fail(zktest.OperationTimeout).Once())
		comeBack()
		require.NoError(t, refused.Wait(t.Context()))
		time.Sleep(2 * time.Second)
		require.Equal(t, []string{f.own, f.h.Path()}, f.a.watched())
		release(t, f.h)
		release(t, f.w.granted2(t, 100*time.Millisecond))
		release(t, f.behind.granted2(t, time.Second))
	})
}

// F22, R55, I3, I8: only the predecessor goes while the waiter is away. It keeps its node, asks on the new connection, and
// is granted; nobody else is.
func TestVirtual_PredecessorGoesWhileAway_IsGrantedByAList(t *testing.T) {
	for _, c := range []struct {
		name       string
		ownSession bool
		goes       func(t *testing.T, f *standoff)
		lost       bool
	}{
		{"released", false, func(t *testing.T, f *standoff) { release(t, f.h) }, false},
		{"deleted", false, func(t *testing.T, f *standoff) { require.NoError(t, f.srv.Delete(f.h.Path())) }, true},
		{"of our own session, released", true, func(t *testing.T, f *standoff) {
			f.released = make(chan error, 1)
			go func() { f.released <- f.h.Release(within(t, soon)) }()
		}, false},
		{"of our own session, deleted", true, func(t *testing.T, f *standoff) { require.NoError(t, f.srv.Delete(f.h.Path())) }, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, v *virtual) {
				f := v.standoff(c.ownSession)
				nodes := len(creates(v.srv.History()))
				comeBack := f.a.leave(t)
				c.goes(t, f)
				synctest.Wait()
				require.False(t, f.w.isGranted(), "granted while away")
				comeBack()
				mine := f.w.granted2(t, 5*time.Second)
				require.Len(t, v.srv.Children("/job"), 2)
				require.Equal(t, f.own, mine.Path(), "R55: it keeps its node")
				if c.ownSession {
					require.NotContains(t, f.a.requests(), zktest.SetWatches, "it watches nothing")
					require.Equal(t, c.lost, slices.Contains(f.a.requests(), zktest.GetChildren2), "it lists if there was no turn to pass")
				} else {
					require.Equal(t, zktest.SetWatches, f.a.requests()[0])
					require.True(t, f.a.listedAfter(f.h.Path()), "granted by the event of a restored watch")
				}
				if f.released != nil {
					require.NoError(t, <-f.released)
				}
				time.Sleep(15 * time.Second) // longer than any watch waits for its event
				require.NoError(t, mine.Err())
				require.False(t, f.behind.isGranted(), "I1")
				require.Len(t, creates(v.srv.History()), nodes, "I2: nobody made another node")
				require.Greater(t, mine.Token(), f.h.Token())
				if c.lost {
					require.ErrorIs(t, f.h.Release(within(t, soon)), zklock.ErrLost)
				}
				release(t, mine)
				release(t, f.behind.granted2(t, time.Second))
			})
		})
	}
}

// I3, I8: the watch on the predecessor is restored, all else is known from this connection: its deletion wakes, and the
// list grants.
func TestVirtual_PredecessorsWatchRestored_IsGrantedByAList(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		f := v.standoff(false)
		f.a.leave(t)()
		time.Sleep(2 * time.Second)
		require.NoError(t, v.srv.SetData(f.own, []byte("somebody writes"))) // the watch on it is set anew
		synctest.Wait()
		require.Equal(t, []string{f.own}, f.a.watched(), "set on this connection")
		release(t, f.h)
		mine := f.w.granted2(t, time.Second)
		require.Equal(t, f.own, mine.Path())
		require.True(t, f.a.listedAfter(f.h.Path()), "granted by the event of a restored watch")
		release(t, mine)
		release(t, f.behind.granted2(t, time.Second))
	})
}

// I1, I3, I5: on one live connection, own node and predecessor are deleted in one transaction. Own first, and the waiter
// knows. Predecessor first, and for as long as our own event is behind it nothing tells the grant from a right one: that
// hold is a loss as any whose node somebody deletes (F24), told by the event, and its token is below the next.
func TestVirtual_BothDeletedAtOnce(t *testing.T) {
	for _, ownFirst := range []bool{true, false} {
		t.Run(fmt.Sprintf("own first %t", ownFirst), func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, v *virtual) {
				f := v.standoff(false)
				first, second := f.pair(ownFirst)
				v.srv.Inject(zktest.OnEvent(zktest.NodeDeleted).Path(second).Session(f.a.s.SessionID()).Delay(100 * time.Millisecond).Once())
				f.deleteBoth(t, ownFirst, true)
				next := f.behind.granted2(t, 50*time.Millisecond)
				time.Sleep(200 * time.Millisecond)
				require.Equal(t, []string{first, second}, f.a.deletions())
				if ownFirst {
					time.Sleep(time.Second)
					f.goesOn(t, next)
					return
				}
				require.True(t, f.w.isGranted(), "the rule has become stricter: say so there")
				require.True(t, isLost(f.w.hold), "I5: not told by the event")
				require.Less(t, f.w.hold.Token(), next.Token())
				require.ErrorIs(t, f.w.hold.Release(within(t, soon)), zklock.ErrLost)
				require.NoError(t, next.Err())
				release(t, next)
				require.Empty(t, v.srv.Children("/job"))
			})
		})
	}
}

// F31: a waiter watches its own node before its predecessor's: if both go, its own is not the one it does not hear of.
func TestVirtual_Waiter_WatchesItsOwnNodeFirst(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		f := v.standoff(false)
		require.Equal(t, []string{f.own, f.h.Path()}, f.a.watched())
	})
}

// F30, I8: the predecessor goes as soon as its watch is set: the event is right behind the answer, and heard although
// nobody here has seen that answer yet.
func TestVirtual_EventBehindTheAnswer_IsHeard(t *testing.T) {
	for range 20 {
		inVirtualTime(t, func(t *testing.T, v *virtual) {
			v.net.SetLatency(time.Millisecond) // both come at one instant
			h := acquire(t, newMutex(t, v.connect(), "/job"))
			s := v.connect()
			v.srv.Inject(zktest.After(zktest.GetData).Path(h.Path()).Session(s.SessionID()).Once().
				Call(func() { _ = v.srv.Delete(h.Path()) }))
			w := v.queueUp(newMutex(t, s, "/job"))
			mine := w.granted2(t, time.Second)
			require.ErrorIs(t, h.Release(within(t, soon)), zklock.ErrLost)
			release(t, mine)
		})
	}
}

// F2, I2: a follower tells by session and xid which of its requests a commit belongs to, so xids go on over reconnects.
func TestVirtual_Xids_GoOn(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		var mu sync.Mutex
		xids := map[int32]bool{}
		proxy := zktest.StartProxy(t, v.srv.Addr(), zktest.WithNetwork(v.net))
		dial := func(network, addr string, d time.Duration) (net.Conn, error) {
			c, err := v.net.Dial(network, addr, d)
			return &xidConn{Conn: c, note: func(xid int32) {
				mu.Lock()
				defer mu.Unlock()
				require.False(t, xids[xid], "xid %d was there before", xid)
				xids[xid] = true
			}}, err
		}
		m := newMutex(t, connect(t, proxy.Addr(), zklock.WithDialer(dial)), "/job")
		for range 3 {
			release(t, acquire(t, m))
			time.Sleep(5 * time.Second)
			proxy.CloseConnections()
			synctest.Wait()
		}
		release(t, acquire(t, m))
		require.Greater(t, len(xids), 12)
	})
}

type xidConn struct {
	net.Conn
	note  func(xid int32)
	out   jute.Stream
	later bool
}

func (c *xidConn) Write(p []byte) (int, error) {
	c.out.Add(p)
	for f, _ := c.out.Next(); f != nil; f, _ = c.out.Next() {
		if xid := int32(binary.BigEndian.Uint32(f[4:])); c.later && xid <= -16 {
			c.note(xid)
		}
		c.later = true
	}
	return c.Conn.Write(p)
}
