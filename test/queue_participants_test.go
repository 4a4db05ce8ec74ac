package zklock_test

// These tests list the participants of the queue.

import (
	"context"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/zktest"
)

// R11, R15, R19, R60.
func TestParticipants(t *testing.T) {
	srv := target(t)
	a, p := admin(t, srv), lockPath(t, srv)
	s1, s2 := connect(t, srv), connect(t, srv)
	m := newMutex(t, s1, p, zklock.WithData([]byte("first")))
	ps, err := newMutex(t, s1, p+"/not/there").Participants(within(t, soon))
	require.NoError(t, err)
	require.Empty(t, ps)

	h := acquire(t, m)
	w := queueUp(t, a, newMutex(t, s2, p, zklock.WithData([]byte("second"))), p)
	ps, err = m.Participants(within(t, soon))
	require.NoError(t, err)
	require.Len(t, ps, 2)
	require.Equal(t, h.Node(), ps[0].Node)
	require.Equal(t, h.Token(), ps[0].Token)
	require.Equal(t, []string{"first", "second"}, []string{string(ps[0].Data), string(ps[1].Data)})
	require.Equal(t, []int64{s1.Stats().SessionID, s2.Stats().SessionID}, []int64{ps[0].SessionID, ps[1].SessionID})
	require.Greater(t, ps[1].Token, ps[0].Token)
	require.WithinDuration(t, time.Now(), ps[0].Created, time.Minute)
	release(t, h)
	release(t, w.granted(t))
}

// endsWithAnAnswersError ends a call's context while a request that the fault holds is in flight.
// The cause is an error that servers respond with, like the first error in an errgroup. The call
// fails with it, and does not take it for a response.
func endsWithAnAnswersError(t *testing.T, held zktest.Fault, call func(ctx context.Context, v *virtual, h *zklock.Hold) error) {
	for _, cause := range []error{zk.ErrNoNode, zk.ErrNoAuth} {
		inVirtualTime(t, func(t *testing.T, v *virtual) {
			h := acquire(t, newMutex(t, v.connect(), "/job"))
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			time.AfterFunc(time.Second, func() { cancel(cause) })
			defer v.srv.Inject(held.Once()).Release()
			err := call(ctx, v, h)
			require.ErrorIs(t, err, context.Canceled)
			require.ErrorIs(t, err, cause)
			require.NotContains(t, err.Error(), "permission")
			release(t, h)
		})
	}
}

// R75: a queue that could not be read is not empty.
func TestVirtual_Participants_ContextsCauseIsNoAnswer(t *testing.T) {
	for _, held := range []zktest.Fault{zktest.Before(zktest.GetChildren).Hold(), zktest.Before(zktest.GetData).Hold()} {
		endsWithAnAnswersError(t, held, func(ctx context.Context, v *virtual, h *zklock.Hold) error {
			ps, err := newMutex(t, v.connect(), "/job").Participants(ctx)
			require.Empty(t, ps)
			return err
		})
	}
}

// Leader takes one list and one read, however long the queue is. It reports whether the queue is
// empty, and finds the next node if the first is deleted in between.
func TestVirtual_Leader_OneListOneRead(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		s := v.connect()
		front := func(path string) zklock.Participant {
			t.Helper()
			first, err := newElection(t, s, path, "a").Leader(within(t, soon))
			require.NoError(t, err)
			return first
		}
		require.Equal(t, zklock.Participant{}, front("/job"))
		require.Equal(t, zklock.Participant{}, front("/job/none"))

		other := v.connect()
		h := acquire(t, newMutex(t, other, "/job"))
		var queue []*waiting
		for range 20 {
			queue = append(queue, v.queueUp(newMutex(t, other, "/job")))
		}
		v.srv.ResetRequests()
		first := front("/job")
		require.Equal(t, 2, v.srv.Requests().Of(s.Stats().SessionID))
		require.Equal(t, 1, v.srv.Requests().Total(zktest.GetData))
		require.Equal(t, h.Node(), first.Node)
		require.Equal(t, h.Token(), first.Token)
		require.Equal(t, other.Stats().SessionID, first.SessionID)

		v.srv.Inject(zktest.Before(zktest.GetData).Session(s.Stats().SessionID).Once().Call(func() { _ = v.srv.Delete(h.Node()) }))
		first = front("/job")
		require.NotEmpty(t, first.Node)
		require.NotEqual(t, h.Node(), first.Node)
		for _, w := range queue {
			release(t, w.granted2(t, time.Minute))
		}
		require.ErrorIs(t, h.Release(within(t, soon)), zklock.ErrLost)
	})
}
