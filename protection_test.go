package zklock_test

import (
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/zktest"
)

// nodesOf returns the lock nodes below /job that a session has made, gone or not.
func nodesOf(history []zktest.Applied, session int64) (paths []string) {
	for _, a := range history {
		if a.Kind == zktest.Created && a.Owner == session {
			paths = append(paths, a.Path)
		}
	}
	return paths
}

// F3, R23, I2: the create was applied and its reply lost. The node is looked for and adopted: there is never another.
func TestVirtual_CreateLost_IsAdopted(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		s := v.connect()
		v.srv.Inject(zktest.After(zktest.Create).Path("/job/*").DropReply().Close().Once())
		h := acquire(t, newMutex(t, s, "/job"))
		require.Equal(t, []string{h.Path()}, nodesOf(v.srv.History(), s.SessionID()), "I2: one node")
		st, ok := v.srv.Stat(h.Path())
		require.True(t, ok)
		require.Equal(t, st.Czxid, h.Token())
		release(t, h)
		require.Empty(t, v.srv.Children("/job"))
	})
}

// I3, R30: the reply is lost, and what carries our id afterwards is not our session's: a copy that somebody restored.
// A lock does not rest on it.
func TestVirtual_CreateLost_NodeIsOfAnotherSession_IsNotAdopted(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		s := v.connect()
		v.srv.Inject(zktest.After(zktest.Create).Path("/job/*").Call(func() {
			node := "/job/" + lastOf(v.srv.Children("/job"))
			_ = v.srv.Delete(node)
			_, _ = v.srv.Create(node, nil, 0)
		}).DropReply().Close().Once())
		h := acquire(t, newMutex(t, s, "/job"))
		st, ok := v.srv.Stat(h.Path())
		require.True(t, ok)
		require.Equal(t, s.SessionID(), st.EphemeralOwner, "I3: adopted a node that is not the session's")
		require.Len(t, v.srv.Children("/job"), 1, "I4: the copy blocks the lock")
		release(t, h)
	})
}

// F4, I2: the reply is lost and the create not committed yet when the client is back. A list would not show it; the sync
// waits until it is, and so the node is found, and keeps its place.
func TestVirtual_CreateLost_NotCommittedYet_IsAdopted(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		s := v.connect()
		m := newMutex(t, s, "/job")
		node := ""
		v.srv.Inject(zktest.After(zktest.Create).Path("/job/*").Call(func() {
			node = "/job/" + lastOf(v.srv.Children("/job"))
			_ = v.srv.Delete(node)
		}).DropReply().Close().Once())
		commit := sync.OnceFunc(func() { _, _ = v.srv.CreateAs(s.SessionID(), node, nil, zk.FlagEphemeral) })
		v.srv.Inject(zktest.Before(zktest.Sync).Call(commit).Optional())
		v.srv.Inject(zktest.After(zktest.GetChildren).Call(commit).Optional()) // at the latest
		h := acquire(t, m)
		require.Equal(t, node, h.Path(), "I2: did not see the node, and made another")
		release(t, h)
		require.Empty(t, v.srv.Children("/job"))
	})
}

// stuck is a client's way to the server whose writes block while there is a channel, as with a full socket buffer, and
// fail when it is closed.
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

// F5, I2, I4: the client keeps a create that it could not write, and sends it in the next ZooKeeper session, where
// nobody waits for it. That node is deleted, or it would block the lock for as long as that session lives.
func TestVirtual_CreateSentInTheNextSession_IsDeleted(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		line := &stuck{dial: v.net.Dial}
		s := v.connect(zklock.WithDialer(line.Dial))
		m := newMutex(t, s, "/job")
		old := s.SessionID()
		time.Sleep(5 * time.Second)
		until := make(chan struct{})
		line.until.Store(&until)
		time.Sleep(2 * time.Second) // a read or a ping is stuck in Write, and what comes now waits behind it
		w := v.queueUp(m)
		require.True(t, v.srv.ExpireSession(old))
		synctest.Wait()
		line.until.Store(nil)
		close(until)
		h := w.granted2(t, time.Minute)
		require.NotEqual(t, old, s.SessionID())
		require.Len(t, nodesOf(v.srv.History(), s.SessionID()), 2, "the kept create was sent in the new session: without it this shows nothing")
		time.Sleep(time.Second)
		require.Equal(t, []string{base(h.Path())}, v.srv.Children("/job"), "I4")
		release(t, h)
		require.Empty(t, v.srv.Children("/job"))
	})
}

// R25, I4: a delete that fails in a way that says nothing is tried again, until the node is gone.
func TestVirtual_DeleteFails_IsTriedAgain(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		h := acquire(t, newMutex(t, v.connect(), "/job"))
		v.srv.Inject(zktest.Before(zktest.Delete).Path("/job/*").Fail(zktest.OperationTimeout).Times(3))
		release(t, h)
		require.Empty(t, v.srv.Children("/job"))
	})
}

// F10: the reply to the delete is lost. NoNode is then our own doing, and no loss.
func TestVirtual_ReplyToDeleteLost_ReleaseSucceeds(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		h := acquire(t, newMutex(t, v.connect(), "/job"))
		v.srv.Inject(zktest.After(zktest.Delete).Path("/job/*").DropReply().Close().Once())
		release(t, h)
		require.Empty(t, v.srv.Children("/job"))
	})
}

// R27, F24: NoNode at the first try says that somebody else deleted the node: the critical section may have been
// violated, and Release says so.
func TestVirtual_NodeDeletedBeforeTheRelease_IsLost(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		h := acquire(t, newMutex(t, v.connect(), "/job"))
		require.NoError(t, v.srv.Delete(h.Path()))
		require.ErrorIs(t, h.Release(within(t, soon)), zklock.ErrLost)
	})
}

// I1, R59: the token is the node's czxid. Sequence numbers begin again with the lock root; tokens do not.
func TestVirtual_Token_GrowsAcrossLockRoots(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		m := newMutex(t, v.connect(), "/job")
		last := int64(0)
		for range 3 {
			for range 3 {
				h := acquire(t, m)
				st, ok := v.srv.Stat(h.Path())
				require.True(t, ok)
				require.Equal(t, st.Czxid, h.Token())
				require.Greater(t, h.Token(), last, "I1")
				last = h.Token()
				release(t, h)
			}
			require.NoError(t, v.srv.Delete("/job"))
		}
	})
}

// F2, I4: a create that was looked for and not found is applied after all, late, as a server can that has it in the socket
// of the old connection. The next list shows the node, or a look after a third of the session timeout, and it goes.
func TestVirtual_CreateAppliedLate_IsDeleted(t *testing.T) {
	for _, listed := range []bool{true, false} {
		inVirtualTime(t, func(t *testing.T, v *virtual) {
			s := v.connect()
			m := newMutex(t, s, "/job")
			late := ""
			v.srv.Inject(zktest.After(zktest.Create).Path("/job/*").Call(func() {
				late = "/job/" + lastOf(v.srv.Children("/job"))
				_ = v.srv.Delete(late) // not applied yet
			}).DropReply().Close().Once())
			h := acquire(t, m)
			_, err := v.srv.CreateAs(s.SessionID(), late, nil, zk.FlagEphemeral)
			require.NoError(t, err)
			if listed {
				_, err := m.TryAcquire(within(t, soon))
				require.ErrorIs(t, err, zklock.ErrNotAcquired)
				synctest.Wait()
			} else {
				time.Sleep(4 * time.Second)
			}
			require.Equal(t, []string{base(h.Path())}, v.srv.Children("/job"), "I4")
			release(t, h)
		})
	}
}
