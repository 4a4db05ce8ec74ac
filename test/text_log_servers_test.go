package zklock_test

// These are the scenes of TestVirtual_LogOnce about servers that do not delete or create nodes,
// reject requests, or do not respond. Each attacks how often the log has one message.

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/zktest"
)

const (
	creationUnknown    = "zklock: cannot determine whether a lock node was created; if it was, it blocks the lock until READ is granted again or this ZooKeeper session ends"
	rootNotRemoved     = "zklock: could not remove the empty lock root to start its sequence counter again"
	stateChanged       = "zklock: connection state"
	askedToEnd         = "zklock: asked a server to end the given-up session"
	notEnded           = "zklock: no server has said that it ended the given-up session; unless one does, it expires"
	heartbeatsRejected = "zklock: the servers reject the heartbeat; the holds end with the lease"
	credentialsRefused = "zklock: the server rejected the credentials"
	timeoutIsShorter   = "zklock: the servers' maxSessionTimeout is shorter than the requested session timeout"
	closesConnection   = "zklock: the server closes the connection before it has answered a long request; is it longer than the server's jute.maxbuffer?"
)

// nodesInLog are the scenes about nodes that the servers do not create or delete.
var nodesInLog = []logScene{
	{"each node that the servers refuse to delete; permits of one hold count as one", "zklock: the servers reject the deletion of a lock node, which still blocks the lock; does the ACL give DELETE on the lock root?", func(x *logged) []string {
		holds, more := x.manyHolds(x.session())
		var kept []*zklock.Hold
		for i := range manyOfAKind {
			x.refusing(fmt.Sprintf("/job/%d", i), zk.PermAll&^zk.PermDelete)
			x.refusing(fmt.Sprintf("/job/%dsem/leases", i), zk.PermAll&^zk.PermDelete)
			kept = append(kept, holds[4*i], holds[4*i+3])
		}
		releaseAtOnce(x.t, time.Hour, append(more, holds...)...)
		x.restarts(5, 20*time.Second)
		return saidNodes(kept)
	}},
	{"each node whose creation remains unknown, also of calls that search together, and of permits", creationUnknown, func(x *logged) []string {
		release(x.t, take(x.t, x.permits(1, 3)))
		s := x.session()
		x.net.SetLatency(time.Millisecond)
		paths, want := tenPaths()
		for _, path := range paths {
			x.refusing(path, zk.PermAll&^zk.PermRead)
			x.srv.Inject(zktest.After(zktest.Create).Path(path + "/*").DropReply().Close().Once().Optional()) // the end of one connection ends all its responses
		}
		var calls sync.WaitGroup
		for _, path := range paths {
			calls.Go(func() { _, _ = newMutex(x.t, s, path).Acquire(within(x.t, time.Minute)) })
		}
		calls.Wait()
		x.log.once(x.t, creationUnknown, want...)

		denied := x.srv.Inject(zktest.Before(zktest.GetChildren).Path(semLeases).Session(s.Stats().SessionID).Fail(zktest.NoAuth))
		defer denied.Remove()
		x.srv.Inject(zktest.After(zktest.Multi).Session(s.Stats().SessionID).Path(semLeases + "/*").DropReply().Close().Once())
		_, err := newSemaphore(x.t, s, semPath, 3).Acquire(within(x.t, soon), 3)
		require.ErrorIs(x.t, err, zk.ErrNoAuth)
		return append(want, "path="+semPath)
	}},
	{"each record that may not be deleted", "zklock: the servers reject the removal of a grant's record; the next holder waits for the lock-delay", func(x *logged) []string {
		holds := x.tenHolds(x.session(), zklock.WithLockDelay(lockDelay))
		paths, want := tenPaths()
		for _, path := range paths {
			x.refusing(path, zk.PermAll&^zk.PermWrite)
		}
		releaseAtOnce(x.t, time.Hour, holds...)
		time.Sleep(time.Minute)
		return want
	}},
	{"each counter near its end, once for the obstacle, and once when its root is recreated", "zklock: removed the empty lock root to start its sequence counter again", func(x *logged) []string {
		s, roots := x.session(), []string{"/job/near", semQueue, semLeases}
		release(x.t, acquire(x.t, newMutex(x.t, s, "/job/near")))
		release(x.t, take(x.t, x.permits(2, 4)))
		twenty := func(data string) {
			for _, path := range roots {
				require.NoError(x.t, x.srv.SetData(path, []byte(data)))
			}
			for range 2 {
				var calls sync.WaitGroup
				for range 10 {
					calls.Go(func() { release(x.t, acquire(x.t, newMutex(x.t, s, "/job/near"))) })
					calls.Go(func() { release(x.t, acquire(x.t, newSemaphore(x.t, s, semPath, 4).Permits(2))) })
				}
				calls.Wait()
				time.Sleep(time.Second)
			}
		}
		for _, path := range roots {
			require.True(x.t, x.srv.SetCreates(path, counterEnd-1<<19))
		}
		nodes := []string{"node=" + roots[0], "node=" + roots[1], "node=" + roots[2]}
		twenty("mine")
		x.log.once(x.t, "zklock: the lock root's sequence counter is near its end; zklock restarts it when the queue is empty", "path=/job/near", "path="+semPath, "path="+semPath)
		x.log.once(x.t, rootNotRemoved, nodes...)
		twenty("")
		x.log.once(x.t, rootNotRemoved, nodes...)
		return nodes
	}},
}

// serversInLog are the scenes in which servers reject requests, or do not respond.
var serversInLog = []logScene{
	{"each outage after three seconds and then rarely, and each change of the state", "zklock: no server has accepted the session", func(x *logged) []string {
		s := x.session()
		id := " session=" + fmt.Sprintf("%#x", s.Stats().SessionID)
		holds, more := x.manyHolds(s)
		stopLooking, stopCalling := lookAt(s, append(more, holds...)...), call(x.t, s)
		steps := []string{"state=Connected" + id}
		for range 3 {
			x.restarts(1, 10*time.Second)
			steps = append(steps, "state=Suspended"+id, "state=Reconnected"+id)
			require.Len(x.t, x.log.of(stateChanged), len(steps))
		}
		stopLooking()
		for range 2 {
			x.srv.Stop()
			time.Sleep(140 * time.Second)
			require.NoError(x.t, x.srv.Start())
			time.Sleep(10 * time.Second)
		}
		stopCalling()
		require.NoError(x.t, s.Close())
		said, last := x.log.of(stateChanged), ""
		require.Equal(x.t, 1, having(said, "state=Closed"))
		require.Equal(x.t, 1, having(said, "state=Lost"+id))
		for i, line := range said {
			require.True(x.t, i >= len(steps) || strings.HasPrefix(line, steps[i]), line)
			require.NotEqual(x.t, last, strings.Fields(line)[0], "%q", said)
			last = strings.Fields(line)[0]
		}
		return slices.Repeat([]string{"for=3s", "for=33s", "for=2m12s"}, 2)
	}},
	{"each session that was given up, and each server that was asked to end it", notEnded, givenUpSessions},
	{"each run of rejected heartbeats", heartbeatsRejected, func(x *logged) []string {
		s := x.session(zklock.WithSessionTimeout(20 * time.Second))
		holds := x.tenHolds(s)
		defer lookAt(s, holds...)()
		for round := 1; round <= 3; round++ {
			refused := x.srv.Inject(zktest.Before(zktest.Multi).Session(s.Stats().SessionID).Fail(quotaExceeded))
			time.Sleep(9 * time.Second)
			require.Greater(x.t, refused.Fired(), 1, "or this shows nothing")
			refused.Remove()
			time.Sleep(20 * time.Second)
			require.NoError(x.t, holds[0].Err())
			require.Len(x.t, x.log.of(heartbeatsRejected), round)
		}
		return make([]string, 3)
	}},
	{"rejected credentials, and again after a server has served the Session", credentialsRefused, func(x *logged) []string {
		s := x.session(zklock.WithDigest("ann", "1"), zklock.WithDigest("ben", "2"))
		defer lookAt(s, x.tenHolds(s)...)()
		refused := x.srv.Inject(zktest.Before(authOp).Fail(authFailed))
		x.restarts(1, time.Minute)
		require.Equal(x.t, zklock.StateLost, s.Stats().State)
		require.Len(x.t, x.log.of(credentialsRefused), 1, "and not at each try")
		refused.Remove()
		release(x.t, acquire(x.t, newMutex(x.t, s, "/job")))
		x.srv.Inject(zktest.Before(authOp).Fail(authFailed))
		require.True(x.t, x.srv.DropConnection(s.Stats().SessionID))
		time.Sleep(time.Minute)
		return make([]string, 2)
	}},
	{"each Session whose servers grant a shorter timeout, and the timeout and margin at each connection", timeoutIsShorter, func(x *logged) (want []string) {
		for _, asked := range []struct {
			timeout time.Duration
			grants  string
		}{{5 * time.Minute, "timeout=40s margin=18.121s"}, {40 * time.Second, "timeout=40s margin=18.121s"}, {30 * time.Second, "timeout=30s margin=12.553s"}} {
			before := len(x.log.of(stateChanged))
			s := x.session(zklock.WithSessionTimeout(asked.timeout))
			x.restarts(2, 10*time.Second)
			require.True(x.t, x.srv.ExpireSession(s.Stats().SessionID))
			release(x.t, acquire(x.t, newMutex(x.t, s, "/job")))
			require.NoError(x.t, s.Close())
			said := x.log.of(stateChanged)[before:]
			require.Equal(x.t, 2, having(said, "state=Connected"), "%q", said)
			require.Equal(x.t, 4, having(said, asked.grants), "those, and Reconnected: %q", said)
			if asked.timeout > 40*time.Second {
				want = append(want, "requested=5m0s "+asked.grants)
			}
		}
		return want
	}},
	{"each request at which servers close the connection, although it is sent three times", closesConnection, func(x *logged) []string {
		s := x.session(zklock.WithDialer((&narrow{dial: x.net.Dial, most: 30_000}).Dial))
		for i := range 3 {
			long := zklock.WithData(bytes.Repeat([]byte("x"), 40_000+i))
			_, err := newMutex(x.t, s, "/job", long).Acquire(x.t.Context())
			require.ErrorIs(x.t, err, zk.ErrConnectionClosed)
			require.Len(x.t, x.log.of(closesConnection), i+1)
		}
		return make([]string, 3)
	}},
}

// call has ten goroutines take and release locks until stop is called.
func call(t *testing.T, s *zklock.Session) (stop func()) {
	var calls sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	for i := range 10 {
		calls.Go(func() {
			for ctx.Err() == nil {
				if h, err := newMutex(t, s, fmt.Sprintf("/job/more%d", i)).Acquire(ctx); err == nil {
					time.Sleep(100 * time.Millisecond)
					_ = h.Release(ctx)
				}
			}
		})
	}
	return func() { cancel(); calls.Wait() }
}

// givenUpSessions has Sessions give up two ZooKeeper sessions, and Close end a third one.
func givenUpSessions(x *logged) (ids []string) {
	way := &line{dial: x.net.Dial}
	s := x.session(zklock.WithDialer(way.Dial), zklock.WithSessionTimeout(8*time.Second))
	for range 2 {
		holds := x.tenHolds(s)
		stop := lookAt(s, holds...)
		id := fmt.Sprintf("session=%#x", s.Stats().SessionID)
		ids = append(ids, id)
		time.Sleep(20 * time.Second) // a new session has a longer lease
		hangUp := x.srv.Inject(zktest.Before(zktest.CloseSession).Session(s.Stats().SessionID).Close())
		way.silent.Store(true)
		<-holds[0].Lost()
		way.silent.Store(false)
		time.Sleep(time.Minute)
		stop()
		x.log.once(x.t, notEnded, ids...)
		require.Equal(x.t, hangUp.Fired(), having(x.log.of(askedToEnd), id), "%q", x.log.of(askedToEnd))
		for _, h := range holds {
			require.ErrorIs(x.t, h.Release(x.t.Context()), zklock.ErrLost)
		}
	}

	// Close asks, too, and reports that there was no response.
	x.srv.Inject(zktest.Before(zktest.CloseSession).Session(s.Stats().SessionID).Close())
	id, before := fmt.Sprintf("session=%#x", s.Stats().SessionID), len(x.log.of(askedToEnd))
	x.restarts(1, 0)
	require.NoError(x.t, s.Close())
	said := x.log.of(askedToEnd)[before:]
	require.Len(x.t, said, 1, "%q", said)
	require.Contains(x.t, said[0], id+" ")
	require.Contains(x.t, said[0], `outcome="no answer"`)
	return ids
}
