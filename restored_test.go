package zklock_test

import (
	"context"
	"fmt"
	"net"
	"runtime"
	"slices"
	"strings"
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

// away is a client that can be sent away: it comes to the server through a proxy, and restores its watches when and in
// which order the test wants. The client itself asks for them in the order of a Go map, from a goroutine of its own; the
// server replays what happened meanwhile in the order it is asked.
type away struct {
	v     *virtual
	proxy *zktest.Proxy
	s     *zklock.Session

	mu struct {
		sync.Mutex
		frames []zktest.Frame // of the present connection, pings aside
		first  string         // the path that setWatches is to ask for first
		held   zktest.Op      // requests of this kind go out
		until  chan struct{}  // when this is closed
		holdUp time.Duration  // from the next handshake to the sending of anything
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
	a.s = connect(v.t, a.proxy.Addr(), zklock.WithDialer(a.dial), zklock.WithSuspendedTime(a.suspended))
	return a
}

// suspended is called wherever the library looks at the clock. Where the client has attached, and is about to start the
// goroutines that send, it takes its time.
func (a *away) suspended() time.Duration {
	a.mu.Lock()
	d := a.mu.holdUp
	a.mu.Unlock()
	if d > 0 && calledFrom("(*hosts).Connected") {
		time.Sleep(d)
		a.mu.Lock()
		a.mu.holdUp = 0
		a.mu.Unlock()
	}
	return 0
}

func calledFrom(function string) bool {
	pc := make([]uintptr, 16)
	frames := runtime.CallersFrames(pc[:runtime.Callers(2, pc)])
	for {
		f, more := frames.Next()
		if strings.HasSuffix(f.Function, function) {
			return true
		}
		if !more {
			return false
		}
	}
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
	later bool // the connect request, which has no header, is out
}

// Write gets one whole frame at a time.
func (c *awayConn) Write(p []byte) (int, error) {
	if !c.later {
		c.later = true
		return c.Conn.Write(p)
	}
	d := jute.NewDecoder(p[4:])
	var h jute.RequestHeader
	h.Decode(d)
	c.a.mu.Lock()
	first, held, until := c.a.mu.first, c.a.mu.held, c.a.mu.until
	c.a.mu.Unlock()
	if until != nil && held == zktest.Op(h.Op) {
		<-until
	}
	if h.Op != jute.OpSetWatches {
		return c.Conn.Write(p)
	}
	var ask jute.SetWatchesRequest
	ask.Decode(d)
	if i := slices.Index(ask.Data, first); i >= 0 {
		ask.Data[0], ask.Data[i] = ask.Data[i], ask.Data[0]
	}
	return c.Conn.Write(jute.Frame(h, ask))
}

// restoreFirst says which path setWatches is to ask for first.
func (a *away) restoreFirst(path string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.mu.first = path
}

// hold keeps the client from sending requests of a kind, and whatever is behind them, until letGo is called.
func (a *away) hold(op zktest.Op) (letGo func()) {
	until := make(chan struct{})
	a.mu.Lock()
	defer a.mu.Unlock()
	a.mu.held, a.mu.until = op, until
	return sync.OnceFunc(func() { close(until) })
}

// holdUp keeps the client from sending anything for a time after its next handshake.
func (a *away) holdUp(d time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.mu.holdUp = d
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
	for i := range 16 {
		atOnce, ownSession, ownDeletedFirst, ownToldFirst := i&1 != 0, i&2 != 0, i&4 != 0, i&8 != 0
		name := fmt.Sprintf("at once %t, own session %t, own deleted first %t, own told first %t", atOnce, ownSession, ownDeletedFirst, ownToldFirst)
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, v *virtual) {
				f := v.standoff(ownSession)
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

// I1: the client has its session again, and is held up before it asks for its watches. No request of ours goes out, or it
// would overtake that; afterwards they go.
func TestVirtual_RestoredWatches_GoFirst(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		f := v.standoff(false)
		release(t, acquire(t, newMutex(t, f.a.s, "/other")))
		other := acquire(t, newMutex(t, f.a.s, "/other")) // whose heartbeat is due at once
		for range 3 {
			// Connected for a while, the client dials again at once. Between two heartbeats it has nothing in hand, which it
			// would send first.
			time.Sleep(5300 * time.Millisecond)
			f.a.holdUp(900 * time.Millisecond)
			f.a.proxy.CloseConnections()
			time.Sleep(800 * time.Millisecond)
			require.Equal(t, zklock.Suspended, f.a.s.State(), "requests could overtake setWatches")
			require.True(t, f.a.connected(), "it is not held up: it is not there")
			require.Empty(t, f.a.requests())
			time.Sleep(200 * time.Millisecond)
			require.Equal(t, zklock.Reconnected, f.a.s.State())
			sent := f.a.requests()
			require.Contains(t, sent, zktest.GetChildren2, "the waiter lists")
			require.Contains(t, sent, zktest.Multi, "the heartbeat")
			require.Equal(t, zktest.SetWatches, sent[0])
		}
		require.False(t, f.w.isGranted())
		require.NoError(t, other.Err())
		release(t, other)
		release(t, f.h)
		release(t, f.w.granted2(t, time.Second))
		release(t, f.behind.granted2(t, time.Second))
	})
}

// F25, F31, I1, I3: the client takes more than a second to ask for its watches, and is not waited for: the list of the
// new connection overtakes that. Then own node and predecessor are deleted, before the server hears of any watch: both
// events are replayed, in either order, to a waiter that has listed on this connection.
func TestVirtual_RestoredWatches_Overtaken_NeverGrant(t *testing.T) {
	for i := range 4 {
		ownSession, ownToldFirst := i&1 != 0, i&2 != 0
		t.Run(fmt.Sprintf("own session %t, own told first %t", ownSession, ownToldFirst), func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, v *virtual) {
				f := v.standoff(ownSession)
				first, second := f.pair(ownToldFirst)
				f.a.restoreFirst(first)
				f.a.holdUp(2500 * time.Millisecond)
				letGo := f.a.hold(zktest.SetWatches)
				defer letGo()
				f.a.proxy.CloseConnections()
				time.Sleep(4 * time.Second)
				require.Equal(t, zklock.Reconnected, f.a.s.State())
				require.Contains(t, f.a.requests(), zktest.GetChildren2, "nothing has overtaken setWatches")
				require.NotContains(t, f.a.requests(), zktest.SetWatches)

				f.deleteBoth(t, true, true)
				next := f.behind.granted2(t, time.Second)
				f.a.proxy.Inject(zktest.OnEvent(zktest.NodeDeleted).Path(second).Delay(100 * time.Millisecond).Once())
				letGo()
				time.Sleep(2 * time.Second)
				require.Equal(t, []string{first, second}, f.a.deletions(), "told in another order")
				f.goesOn(t, next)
			})
		})
	}
}

// F25, F30, I1, I3: the client comes back and cannot restore its watches, which it only logs; the one on our own node is
// dead. Another node is the predecessor now, and its watch is new. Our own node goes unheard, then the predecessor does.
func TestVirtual_OwnWatchNotRestored_NeverGrants(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		h := acquire(t, newMutex(t, v.connect(), "/job"))
		between := v.queueUp(newMutex(t, v.connect(), "/job"))
		f := &standoff{virtual: v, a: v.away(), h: h}
		f.w = v.queueUp(newMutex(t, f.a.s, "/job"))
		f.own = "/job/" + lastOf(v.srv.Children("/job"))
		f.behind = v.queueUp(newMutex(t, v.connect(), "/job"))

		comeBack := f.a.leave(t)
		between.stop()
		_, err := between.get(t)
		require.ErrorIs(t, err, context.Canceled)
		f.a.proxy.Inject(zktest.Before(zktest.SetWatches).Fail(zktest.OperationTimeout).Once())
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
		require.Equal(t, []string{h.Path()}, f.a.deletions(), "its own node went unheard")
		f.goesOn(t, next)
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
		{"of our own session, deleted", true, func(t *testing.T, f *standoff) { require.NoError(t, f.srv.Delete(f.h.Path())) }, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, v *virtual) {
				f := v.standoff(c.ownSession)
				nodes := len(creates(v.srv.History()))
				comeBack := f.a.leave(t)
				c.goes(t, f)
				synctest.Wait()
				require.Len(t, v.srv.Children("/job"), 2)
				require.False(t, f.w.isGranted(), "granted while away")
				comeBack()
				mine := f.w.granted2(t, 5*time.Second)
				require.Equal(t, f.own, mine.Path(), "R55: it keeps its node")
				require.Equal(t, zktest.SetWatches, f.a.requests()[0])
				require.True(t, f.a.listedAfter(f.h.Path()), "granted by the event of a restored watch")
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

// F6, I3: the connection goes when a list is in the client's hands and not sent: it is the first to go out on the next,
// ahead of setWatches. Its answer counts for neither connection, although all else is known from the new one.
func TestVirtual_RestoredWatches_OvertakenByWhatWasLeft_ListsAgain(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		f := v.standoff(false)
		_, _, _, err := f.a.s.Conn().ExistsW("/elsewhere") // something to restore
		require.NoError(t, err)
		time.Sleep(5300 * time.Millisecond) // connected for a while, it dials again at once
		letGo := f.a.hold(zktest.Exists)
		defer letGo()
		time.Sleep(time.Second) // the sending of a cheap read does not come to an end
		read := make(chan error, 1)
		go func() {
			_, _, err := f.a.s.Conn().Get("/job")
			read <- err
		}()
		synctest.Wait()
		for _, path := range []string{f.own, f.h.Path()} {
			require.NoError(t, v.srv.SetData(path, []byte("somebody writes"))) // the waiter lists
			synctest.Wait()
		}
		f.a.proxy.CloseConnections()
		synctest.Wait()
		require.Equal(t, zklock.Suspended, f.a.s.State())
		f.a.proxy.Inject(zktest.After(zktest.GetChildren).Delay(100 * time.Millisecond).Once())
		letGo() // the client may yet take one request to the old connection: the read, which was there before the list
		time.Sleep(time.Second)
		sent := f.a.requests()
		require.Contains(t, sent, zktest.GetChildren2)
		require.Less(t, slices.Index(sent, zktest.GetChildren2), slices.Index(sent, zktest.SetWatches), "setWatches was not overtaken")
		require.Equal(t, []string{f.own, f.h.Path()}, without(f.a.watched(), "/job"), "set on this connection")
		<-read

		release(t, f.h)
		mine := f.w.granted2(t, time.Second)
		require.Equal(t, f.own, mine.Path())
		require.True(t, f.a.listedAfter(f.h.Path()), "granted on a list of an earlier connection")
		release(t, mine)
		release(t, f.behind.granted2(t, time.Second))
	})
}

// I1, I3: the predecessor is of our own session, and somebody else deletes it and our node in one transaction, as the end
// of the session would. Its event comes first, and says nothing of ours.
func TestVirtual_OwnSessionsPredecessorGoes_NeverGrants(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		f := v.standoff(true)
		v.srv.Inject(zktest.OnEvent(zktest.NodeDeleted).Path(f.own).Session(f.a.s.SessionID()).Delay(time.Second).Once())
		f.deleteBoth(t, false, true)
		next := f.behind.granted2(t, 100*time.Millisecond)
		synctest.Wait()
		require.Equal(t, []string{f.h.Path()}, f.a.deletions(), "our event is to come later")
		require.False(t, f.w.isGranted(), "I1, I3: granted on a node that is gone, while another holds")
		time.Sleep(2 * time.Second)
		require.Equal(t, []string{f.h.Path(), f.own}, f.a.deletions())
		f.goesOn(t, next)
	})
}

// F30, I1, I3: the same while our own delete of the predecessor is on its way, which then finds nothing; and our own event
// is lost.
func TestVirtual_OwnDeleteFindsNothing_NeverGrants(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		f := v.standoff(true)
		held := v.srv.Inject(zktest.Before(zktest.Delete).Path(f.h.Path()).Session(f.a.s.SessionID()).Hold().Once())
		f.released = make(chan error, 1)
		go func() { f.released <- f.h.Release(within(t, soon)) }()
		require.NoError(t, held.Wait(t.Context()))
		v.srv.Inject(zktest.OnEvent(zktest.NodeDeleted).Path(f.own).Session(f.a.s.SessionID()).Drop().Once())
		f.deleteBoth(t, false, true)
		next := f.behind.granted2(t, 100*time.Millisecond)
		synctest.Wait()
		require.Equal(t, []string{f.h.Path()}, f.a.deletions())
		held.Release()
		time.Sleep(time.Second)
		f.goesOn(t, next)
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
