package zklock_test

// These tests lose creates, executed or not: one node although responses are lost (I2), and no
// unwanted node (I4).

import (
	"net"
	"regexp"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/internal/zkserver"
	"github.com/zklock/zklock/zktest"
)

// nodesOf returns the lock nodes below /job that a session has created, including deleted ones.
func nodesOf(history []zktest.Applied, session int64) (paths []string) {
	for _, a := range history {
		if a.Kind == zktest.Created && a.Owner == session {
			paths = append(paths, a.Path)
		}
	}
	return paths
}

// F3, R23, I2: the create was applied and its response lost. The node is found and adopted: there
// is never another.
func TestVirtual_CreateLost_IsAdopted(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		s := v.connect()
		v.srv.Inject(zktest.After(zktest.Create).Path("/job/*").DropReply().Close().Once())
		h := acquire(t, newMutex(t, s, "/job"))
		require.Equal(t, []string{h.Node()}, nodesOf(v.srv.History(), s.Stats().SessionID), "I2: one node")
		st, ok := v.srv.Stat(h.Node())
		require.True(t, ok)
		require.Equal(t, st.Czxid, h.Token())
		release(t, h)
		require.Empty(t, v.srv.Children("/job"))
	})
}

// I3, R30: the response is lost, and the node that has our id afterwards does not belong to our
// session: it is a restored copy. No lock rests on it.
func TestVirtual_CreateLost_NodeIsOfAnotherSession_IsNotAdopted(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		s := v.connect()
		v.srv.Inject(zktest.After(zktest.Create).Path("/job/*").Call(func() {
			node := "/job/" + lastOf(v.srv.Children("/job"))
			_ = v.srv.Delete(node)
			_, _ = v.srv.Create(node, nil, 0)
		}).DropReply().Close().Once())
		h := acquire(t, newMutex(t, s, "/job"))
		st, ok := v.srv.Stat(h.Node())
		require.True(t, ok)
		require.Equal(t, s.Stats().SessionID, st.EphemeralOwner, "I3: adopted a node that is not the session's")
		require.Len(t, v.srv.Children("/job"), 1, "I4: the copy blocks the lock")
		release(t, h)
	})
}

// The servers are busy: the second create follows after a fifth of a second, and then each pause is
// longer.
func TestVirtual_CreateThrottled_PausesGrow(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		m := newMutex(t, v.connect(), "/job")
		began, tries := time.Now(), []time.Duration(nil)
		v.srv.Inject(zktest.Before(zktest.Create).Path("/job/*").Call(func() { tries = append(tries, time.Since(began).Round(time.Millisecond)) }).Fail(zktest.Throttled).Times(5))
		release(t, acquire(t, m))
		const ms = time.Millisecond
		require.Equal(t, []time.Duration{0, 200 * ms, 420 * ms, 660 * ms, 940 * ms}, tries)
	})
}

// F4, I2: the response is lost, and the create is not committed yet when the client is connected
// again. A list would not show it. The sync waits for the commit, so the node is found, and keeps
// its position.
func TestVirtual_CreateLost_NotCommittedYet_IsAdopted(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		s := v.connect()
		m := newMutex(t, s, "/job")
		node := ""
		v.srv.Inject(zktest.After(zktest.Create).Path("/job/*").Call(func() {
			node = "/job/" + lastOf(v.srv.Children("/job"))
			_ = v.srv.Delete(node)
		}).DropReply().Close().Once())
		commit := sync.OnceFunc(func() { _, _ = v.srv.CreateAs(s.Stats().SessionID, node, nil, zk.FlagEphemeral) })
		v.srv.Inject(zktest.Before(zktest.Sync).Call(commit).Optional())
		v.srv.Inject(zktest.After(zktest.GetChildren).Call(commit).Optional()) // at the latest
		h := acquire(t, m)
		require.Equal(t, node, h.Node(), "I2: did not see the node, and made another")
		release(t, h)
		require.Empty(t, v.srv.Children("/job"))
	})
}

// I8, R55: the create is lost, and the list that follows it is sent on the next connection, before
// the second try. It does not show the node of the second try, which keeps its position.
func TestVirtual_CreateCutInFlight_KeepsItsPlace(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		v.net.SetLatency(time.Millisecond)
		w := &wire{dial: v.net.Dial}
		s := v.connect(w.dialer())
		m := newMutex(t, s, "/job")
		release(t, acquire(t, m)) // the root has been used: create and list are sent together
		w.reset()
		w.failWrite(t, opCreate, "/job")
		// One list at a time: while this one has no response, the next waits.
		held := v.srv.Inject(zktest.Before(zktest.GetChildren).Path("/job").Session(s.Stats().SessionID).Hold().Once())
		asked := make(chan error, 1)
		go func() {
			_, err := m.Participants(within(t, soon))
			asked <- err
		}()
		require.NoError(t, held.Wait(t.Context()))
		h := acquire(t, m)
		_, by := w.sent()
		require.Zero(t, by[opDelete], "gave up its place: %v", by)
		require.Equal(t, 2, by[opCreate], "it was not lost: %v", by)
		held.Release()
		require.NoError(t, <-asked)
		release(t, h)
	})
}

// I8, R55: the lock root is deleted, and recreated between the list that was sent with a create and
// the second try of that create. The missing root proves nothing about the node, which keeps its
// position.
func TestVirtual_RootComesBackBehindTheList_KeepsItsPlace(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		v.net.SetLatency(time.Millisecond)
		w := &wire{dial: v.net.Dial}
		m := newMutex(t, v.connect(w.dialer()), "/job")
		release(t, acquire(t, m)) // the root has been used: create and list are sent together
		require.NoError(t, v.srv.Delete("/job"))
		w.reset()
		busy := v.srv.Inject(zktest.Before(zktest.Create).Path("/job/*").Fail(zktest.Throttled).Once())
		q := v.queueUp(m)
		require.NoError(t, busy.Wait(t.Context()))
		time.Sleep(50 * time.Millisecond) // the list has a response, and the create is not tried again yet
		_, by := w.sent()
		require.Equal(t, 1, by[opGetChildren2])
		require.Equal(t, 1, by[opCreate])
		_, err := v.srv.Create("/job", nil, 0)
		require.NoError(t, err)
		h := q.granted2(t, time.Minute)
		_, by = w.sent()
		require.Zero(t, by[opDelete], "gave up its place: %v", by)
		require.Equal(t, 2, by[opCreate])
		release(t, h)
	})
}

// stuck is a client's connection to the server whose writes block while there is a channel, as with
// a full socket buffer, and fail when it is closed.
type stuck struct {
	dial  zk.Dialer
	until atomic.Pointer[chan struct{}]
}

func (l *stuck) Dial(network, addr string, d time.Duration) (net.Conn, error) {
	c, err := l.dial(network, addr, d)
	if err != nil {
		return nil, err
	}
	return &stuckConn{c, l}, nil
}

type stuckConn struct {
	net.Conn
	l *stuck
}

func (c *stuckConn) Write(p []byte) (int, error) {
	if until := c.l.until.Load(); until != nil {
		<-*until
		return 0, net.ErrClosed
	}
	return c.Conn.Write(p)
}

// F5, I2, I4: the client keeps a create that it could not write, and would send it in the next
// ZooKeeper session, where its node would precede the node that its owner creates there.
func TestVirtual_CreateKeptFromAnotherSession_IsNotSent(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		line := &stuck{dial: v.net.Dial}
		s := v.connect(zklock.WithDialer(line.Dial))
		m := newMutex(t, s, "/job")
		old := s.Stats().SessionID
		time.Sleep(5 * time.Second)
		until := make(chan struct{})
		line.until.Store(&until)
		time.Sleep(2 * time.Second) // a read or a ping is blocked in Write, and later requests wait behind it
		// The client drops or sends the kept creates at random, by a select: of so many it sends
		// some.
		var queue []*waiting
		for range 16 {
			queue = append(queue, v.queueUp(m))
		}
		require.True(t, v.srv.ExpireSession(old))
		synctest.Wait()
		line.until.Store(nil)
		close(until)
		time.Sleep(time.Minute)
		require.NotEqual(t, old, s.Stats().SessionID)
		require.Len(t, nodesOf(v.srv.History(), s.Stats().SessionID), len(queue), "I2")
		require.Len(t, v.srv.Children("/job"), len(queue), "I4")
		for deadline := time.Now().Add(time.Minute); len(queue) > 0; time.Sleep(time.Second) {
			require.True(t, time.Now().Before(deadline), "%d are not granted", len(queue))
			for i, w := range queue {
				select {
				case <-w.done:
					require.NoError(t, w.err)
					release(t, w.hold)
					queue = slices.Delete(queue, i, i+1)
				default:
					continue
				}
				break
			}
		}
		require.Empty(t, v.srv.Children("/job"))
	})
}

// F2, I4: a create that was looked for and not found is applied late, as by a server that has it in
// the socket of the old connection. The next list shows the node, or a check after a third of the
// session timeout, and it is deleted.
func TestVirtual_CreateAppliedLate_IsDeleted(t *testing.T) {
	for _, listed := range []bool{true, false} {
		inVirtualTime(t, func(t *testing.T, v *virtual) {
			s := v.connect()
			m := newMutex(t, s, "/job")
			for range 2 { // in the second round, the first search has ended unless listed
				late := ""
				v.srv.Inject(zktest.After(zktest.Create).Path("/job/*").Call(func() {
					late = "/job/" + lastOf(v.srv.Children("/job"))
					_ = v.srv.Delete(late) // not applied yet
				}).DropReply().Close().Once())
				h := acquire(t, m)
				_, err := v.srv.CreateAs(s.Stats().SessionID, late, nil, zk.FlagEphemeral)
				require.NoError(t, err)
				if listed {
					_, err := m.TryAcquire(within(t, soon))
					require.ErrorIs(t, err, zklock.ErrNotAcquired)
					synctest.Wait()
				} else {
					time.Sleep(4 * time.Second)
				}
				require.Equal(t, []string{base(h.Node())}, v.srv.Children("/job"), "I4")
				release(t, h)
			}
		})
	}
}

// R29, R32: however often a create is lost, each node has an id of its own in a name that does not
// grow.
func TestVirtual_EveryNode_HasAnIDOfItsOwn(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		s := v.connect()
		m := newMutex(t, s, "/job")
		v.srv.Inject(zktest.Before(zktest.Create).Path("/job/*").Fail(zktest.OperationTimeout).Times(3))
		ids := map[string]bool{}
		const rounds = 5
		for range rounds {
			v.srv.Inject(zktest.After(zktest.Create).Path("/job/*").DropReply().Close().Once())
			release(t, acquire(t, m))
		}
		for _, node := range nodesOf(v.srv.History(), s.Stats().SessionID) {
			name := regexp.MustCompile(`^/job/_c_([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})-lock-\d{10}$`).FindStringSubmatch(node)
			require.NotNil(t, name, node)
			require.False(t, ids[name[1]], "R29: two nodes with one id")
			ids[name[1]] = true
		}
		require.Len(t, ids, rounds)
	})
}

// R74, I4, F3, F27: the response to a create is lost, under a lock root that gives no READ. Acquire
// reports that. The node cannot be found and blocks every client until READ is given again. Then it
// is deleted, even if no client acquires there any more.
func TestVirtual_CreateLost_RootGivesNoRead_GoesWhenItDoes(t *testing.T) {
	for _, again := range []bool{false, true} { // another client acquires there before
		inVirtualTime(t, func(t *testing.T, v *virtual) {
			s := v.connect()
			release(t, acquire(t, newMutex(t, s, "/closed")))
			_, err := s.Conn().SetACL("/closed", unreadable, -1)
			require.NoError(t, err)
			_, err = newMutex(t, s, "/closed").Acquire(within(t, time.Minute))
			require.ErrorIs(t, err, zk.ErrNoAuth)
			time.Sleep(time.Minute)
			nothing := footprint(s)
			lost := v.srv.Inject(zktest.After(zktest.Create).Path("/closed/*").DropReply().Close().Once())
			_, err = newMutex(t, s, "/closed").Acquire(within(t, time.Minute))
			require.ErrorIs(t, err, zk.ErrNoAuth)
			require.ErrorContains(t, err, "READ")
			require.Equal(t, 1, lost.Fired())
			time.Sleep(time.Minute)
			require.Len(t, v.srv.Children("/closed"), 1, "or this shows nothing")
			require.NotEqual(t, nothing, footprint(s), "or this shows nothing")
			v.srv.ResetRequests()
			time.Sleep(time.Minute)
			require.LessOrEqual(t, v.srv.Requests().Total(zktest.GetChildren), 20, "R25: it is looked for without a pause")
			_, err = s.Conn().SetACL("/closed", zk.WorldACL(zk.PermAll), -1)
			require.NoError(t, err)
			if again {
				release(t, acquire(t, newMutex(t, s, "/closed")))
			} else {
				time.Sleep(10 * time.Second)
			}
			require.Empty(t, v.srv.Children("/closed"), "I4")
			time.Sleep(time.Minute)
			require.Equal(t, nothing, footprint(s), "I7")
		})
	}
}

// I4, F27: the node's own ACL gives no READ, on a server that requires it for exists (3.9.3).
// Acquire reports that, and the node is deleted.
func TestVirtual_CreateLost_NodeGivesNoRead_LeavesNothing(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		srv := zktest.Start(t, zktest.WithNetwork(v.net), zktest.WithVersion("3.9.3"))
		s := connect(t, srv.Addr(), zklock.WithDialer(v.net.Dial))
		_, err := s.Conn().Create("/job", nil, 0, zk.WorldACL(zk.PermAll))
		require.NoError(t, err)
		lost := srv.Inject(zktest.After(zktest.Create).Path("/job/*").DropReply().Close().Once())
		_, err = newMutex(t, s, "/job", zklock.WithACL(unreadable)).Acquire(within(t, time.Minute))
		require.ErrorIs(t, err, zk.ErrNoAuth)
		require.ErrorContains(t, err, "READ")
		require.Equal(t, 1, lost.Fired())
		time.Sleep(time.Second)
		require.Empty(t, srv.Children("/job"), "I4")
	})
}

// F5, R30: the response to create is lost, and the session expires before the client is connected
// again: never granted on the old node.
func TestAcquire_CreateLostAndSessionExpired_UsesANewNode(t *testing.T) {
	t.Parallel()
	srv := target(t)
	a, p := admin(t, srv), lockPath(t, srv)
	proxy := zktest.StartProxy(t, srv)
	s := connect(t, proxy.Addr())
	m := newMutex(t, s, p)
	old := s.Stats().SessionID
	proxy.Inject(zktest.After(zktest.Create).Path(p + "/*").Once().DropReply().Close())
	refused := proxy.Inject(zktest.RefuseConnections())
	q := startAcquire(t, m)
	eventually(t, "the create was applied", func() bool { return len(children(t, a, p)) == 1 })
	eventually(t, "the session is suspended", func() bool { return s.Stats().State == zklock.StateSuspended })
	require.NoError(t, zkserver.ExpireSession(srv, old))
	require.NoError(t, refused.Wait(within(t, soon)))
	refused.Remove()
	h := q.granted(t)
	_, stat, err := a.Exists(h.Node())
	require.NoError(t, err)
	require.NotEqual(t, old, stat.EphemeralOwner)
	require.Len(t, children(t, a, p), 1)
	release(t, h)
}

// moving is a Session on an ensemble, whose next connection is to target.
type moving struct {
	ens    *zktest.Ensemble
	s      *zklock.Session
	m      *zklock.Mutex
	target string
}

// onLeader returns a Session on the leader, which has used the lock before, and another server.
func onLeader(t *testing.T) (c *moving, other *zktest.Member) {
	n := zktest.NewNetwork()
	n.SetLatency(time.Millisecond)
	c = &moving{ens: zktest.StartEnsemble(t, 3, zktest.WithNetwork(n))}
	_, err := c.ens.Create("/job", nil, 0)
	require.NoError(t, err)
	c.target = c.ens.Leader().Addr()
	c.s = connect(t, c.target, zklock.WithSessionTimeout(30*time.Second),
		zklock.WithDialer(func(network, _ string, d time.Duration) (net.Conn, error) { return n.Dial(network, c.target, d) }))
	c.m = newMutex(t, c.s, "/job")
	release(t, acquire(t, c.m))
	for _, member := range c.ens.Members() {
		if member != c.ens.Leader() {
			other = member
		}
	}
	c.target = other.Addr()
	return c, other
}

// F4, I2: the response to a create is lost, and the client connects to a server that does not have
// the create yet. A list without its node does not prove that the node does not exist: there is one
// node, and it does not wait for itself.
func TestVirtual_CreateLost_NextServerLags_FindsItsNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, other := onLeader(t)
		other.SetLag(5 * time.Second)
		created := len(creates(c.ens.History()))
		c.ens.Inject(zktest.After(zktest.Create).Path("/job/*").Once().DropReply().Close())
		start := time.Now()
		h := acquire(t, c.m)
		require.GreaterOrEqual(t, time.Since(start), 5*time.Second, "the other server had the create before it was asked")
		require.Len(t, creates(c.ens.History()), created+1)
		require.Equal(t, []string{base(h.Node())}, c.ens.Children("/job"))
		release(t, h)
	})
}

// F2, I2, I4: a create is queued at a server that does not process it. The client moves to another
// server, does not find its node and creates one. When the first server continues, the old create
// is rejected, or its node found and deleted.
func TestVirtual_CreateHeldUp_ClientMoves_LateCreateLeavesNothing(t *testing.T) {
	for _, lag := range []time.Duration{0, 5 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			c, other := onLeader(t)
			other.SetLag(lag)
			held := c.ens.Inject(zktest.Before(zktest.Create).Path("/job/*").Once().Hold())
			w := startAcquire(t, c.m)
			require.NoError(t, held.Wait(t.Context()))
			c.ens.DropConnection(c.s.Stats().SessionID)
			h := w.granted2(t, time.Minute)
			held.Release()
			time.Sleep(30 * time.Second)
			require.Equal(t, []string{base(h.Node())}, c.ens.Children("/job"))
			require.NoError(t, h.Err())
			release(t, h)
			time.Sleep(10 * time.Second) // the other server receives the create
			require.Empty(t, c.ens.Children("/job"))
		})
	}
}
