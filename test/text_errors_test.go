package zklock_test

// These tests read the errors of calls: one layer, the cause, the position in the queue, both
// failures.

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/zktest"
)

// The chain of an error reaches the cause of the caller's context, and names the lock as the caller
// does.
func TestErrors_ChainAndPath(t *testing.T) {
	srv := target(t)
	a, p := admin(t, srv), lockPath(t, srv)
	m := newMutex(t, connect(t, srv+p), "/orders")
	h := acquire(t, m)
	ctx := h.Context()
	release(t, h)
	_, err := m.Acquire(ctx)
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, err, context.Cause(ctx))
	require.ErrorIs(t, err, zklock.ErrNotHeld)

	h = acquire(t, m)
	require.NoError(t, a.Delete(h.Node(), -1))
	<-h.Lost()
	var e *zklock.Error
	require.ErrorAs(t, h.Err(), &e)
	require.Equal(t, "/orders", e.Path)
	require.ErrorAs(t, h.Release(within(t, soon)), &e)
	require.Equal(t, "/orders", e.Path)
}

// R10: the work fails, and the release finds the lock lost. The caller gets both errors, the work's
// first.
func TestVirtual_Do_WorkAndReleaseFail_BothAreReported(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		s := v.connect()
		failed := errors.New("the work failed")
		err := newMutex(t, s, "/job").Do(within(t, soon), func(ctx context.Context, _ *zklock.Hold) error {
			require.True(t, v.srv.ExpireSession(s.Stats().SessionID))
			<-ctx.Done()
			return failed
		})
		require.ErrorIs(t, err, failed)
		require.ErrorIs(t, err, zklock.ErrLost)
		require.Regexp(t, "^the work failed", err.Error())
	})
}

// A wait that ends and a try that fails report their position, and send no request for it.
func TestVirtual_NotLetIn_ErrorNamesThePosition(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		h := acquire(t, newMutex(t, v.connect(), "/job"))
		second := v.queueUp(newMutex(t, v.connect(), "/job"))
		ahead := "/job/" + lastOf(v.srv.Children("/job"))
		s := v.connect()
		m := newMutex(t, s, "/job")
		says := func(err, cause error) {
			t.Helper()
			var e *zklock.Error
			require.ErrorAs(t, err, &e)
			require.ErrorIs(t, err, cause)
			require.False(t, errors.As(e.Err, new(*zklock.Error)), "one layer")
			require.Equal(t, 3, e.Position)
			require.Equal(t, ahead, e.Predecessor)
			require.Regexp(t, "^/job/_c_.*-lock-[0-9]{10}$", e.Node)
			require.NotEqual(t, ahead, e.Node)
			require.Contains(t, err.Error(), "; position 3 in the queue when it was last listed, behind "+ahead)
		}

		_, err := m.TryAcquire(within(t, soon))
		says(err, zklock.ErrNotAcquired)

		cause := errors.New("the night is over")
		ctx, cancel := context.WithCancelCause(zklock.WithOwner(context.Background(), zklock.NewOwner("")))
		w := startAcquireIn(t, ctx, func() { cancel(cause) }, m)
		time.Sleep(10 * time.Minute)
		_, err = m.TryAcquire(ctx) // of an owner that waits
		says(err, zklock.ErrNotAcquired)
		v.srv.ResetRequests()
		w.stop()
		<-w.done
		says(w.err, cause)
		require.ErrorIs(t, w.err, context.Canceled)
		sent := v.srv.Requests()
		require.Equal(t, 1, sent.Of(s.Stats().SessionID, zktest.Delete))
		require.Zero(t, sent.Of(s.Stats().SessionID, zktest.GetChildren, zktest.GetData, zktest.Sync))

		_, err = m.Acquire(ctx)
		var e *zklock.Error
		require.ErrorAs(t, err, &e)
		require.Zero(t, e.Position, "it did not get so far")
		require.NotContains(t, err.Error(), "position")
		second.stop()
		release(t, h)
	})
}

// A context may end with the error of another call, as an errgroup's does. The error of a call
// under it has one layer, its own, whether the context ended before the call or during its wait.
func TestVirtual_ContextEndsWithAnotherCallsError_OneLayer(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		h := acquire(t, newMutex(t, v.connect(), "/job"))
		m := newMutex(t, v.connect(), "/job")
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		_, first := newMutex(t, v.connect(), "/first").Acquire(ended)
		require.ErrorIs(t, first, context.Canceled)

		ctx, cancelWith := context.WithCancelCause(context.Background())
		w := startAcquireIn(t, ctx, func() { cancelWith(first) }, m)
		time.Sleep(time.Minute)
		w.stop()
		<-w.done
		_, after := m.Acquire(ctx)
		for _, err := range []error{w.err, after} {
			require.ErrorIs(t, err, context.Canceled)
			require.Regexp(t, "^zklock: acquire /job( \\(node [^ ]*\\))?: context canceled", err.Error())
		}
		release(t, h)
	})
}

// A hold belongs to its Session. A call through another Session contends, possibly with itself, and
// its error reports that.
func TestVirtual_ReentryThroughAnotherSession_ReportsIt(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		mine := newMutex(t, v.connect(), "/job")
		other := newMutex(t, v.connect(), "/job")
		h := acquire(t, mine)
		ctx, cancel := context.WithTimeout(h.Context(), time.Minute)
		defer cancel()
		require.False(t, other.OwnedBy(ctx))
		const says = "this call's own context carries a hold of this path "
		_, err := other.TryAcquire(ctx)
		require.ErrorIs(t, err, zklock.ErrNotAcquired)
		require.ErrorContains(t, err, says+"through another Session, "+h.Node())
		_, err = mine.TryAcquire(zklock.WithOwner(ctx, zklock.NewOwner("")))
		require.ErrorIs(t, err, zklock.ErrNotAcquired)
		require.ErrorContains(t, err, says+"for another owner, "+h.Node())
		_, err = other.TryAcquire(within(t, soon))
		require.NotContains(t, err.Error(), says)
		_, err = other.Acquire(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, says)
		release(t, h)
		_, err = other.Acquire(ctx)
		require.NotContains(t, err.Error(), says)
	})
}

// The error of a loss explains what happened: which servers did not respond and for how long, that
// there was no quorum, that this process was paused, or that another client took the lock.
func TestVirtual_Loss_ReportsWhatHappened(t *testing.T) {
	var asleep suspension
	for _, tt := range []struct {
		name, says string
		happens    func(v *virtual, l *line, s *zklock.Session, h *zklock.Hold)
	}{
		{"no answer", "the lease ended: no server has answered for 19.7s, the last was SERVER", func(_ *virtual, l *line, _ *zklock.Session, _ *zklock.Hold) {
			l.silent.Store(true)
		}},
		{"no quorum", "the lease ended: SERVER answers, but no quorum has confirmed the session for 29.7s", func(v *virtual, _ *line, s *zklock.Session, _ *zklock.Hold) {
			v.srv.Inject(zktest.After(zktest.Multi).Session(s.Stats().SessionID).DropReply())
		}},
		{"heartbeats fail", "the lease ended: SERVER answers, but no quorum has confirmed the session for 29.7s: the last heartbeat failed with zookeeper: operation timeout (-7)", func(v *virtual, _ *line, s *zklock.Session, _ *zklock.Hold) {
			v.srv.Inject(zktest.Before(zktest.Multi).Session(s.Stats().SessionID).Fail(zktest.OperationTimeout))
		}},
		{"paused", "the lease ended: this process stood still, and saw the end 40.6s too late; the last answer came from SERVER 1m0.3s ago", func(*virtual, *line, *zklock.Session, *zklock.Hold) {
			asleep.Add(int64(time.Minute))
		}},
		{"deleted", "another client deleted the lock node", func(v *virtual, _ *line, _ *zklock.Session, h *zklock.Hold) {
			_ = v.srv.Delete(h.Node())
		}},
		{"expired", "the servers ended the ZooKeeper session", func(v *virtual, _ *line, s *zklock.Session, _ *zklock.Hold) {
			v.srv.ExpireSession(s.Stats().SessionID)
		}},
		{"ping refused", "a server rejected the session's ping: SERVER, code -112", func(v *virtual, _ *line, s *zklock.Session, _ *zklock.Hold) {
			v.srv.Inject(zktest.Before(zktest.Ping).Session(s.Stats().SessionID).Fail(zktest.SessionExpired).Once())
		}},
		{"READ taken", "the servers reject the check of the lock node: check: no READ permission on NODE: zk: not authenticated", func(v *virtual, _ *line, _ *zklock.Session, h *zklock.Hold) {
			_, _ = v.connect().Conn().SetACL(h.Node(), unreadable, -1)
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, v *virtual) {
				line := &line{dial: v.net.Dial}
				var log warnings
				s := v.hooked(asleep.hooks(), zklock.WithDialer(line.Dial), zklock.WithSessionTimeout(30*time.Second), log.option())
				h := acquire(t, newMutex(t, s, "/job"))
				time.Sleep(20*time.Second + 10*time.Millisecond)
				tt.happens(v, line, s, h)
				time.Sleep(30 * time.Second)
				require.True(t, isLost(h))
				says := strings.NewReplacer("SERVER", v.srv.Addr(), "NODE", h.Node()).Replace(tt.says)
				require.EqualError(t, h.Err(), "zklock: hold /job (node "+h.Node()+"): lock lost: "+says)
				require.Equal(t, 1, log.about("zklock: hold lost", says))
				line.silent.Store(false)
			})
		})
	}
}
