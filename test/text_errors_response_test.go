package zklock_test

// These tests end the contexts of calls whose requests got error responses, or that reached no
// server: the error of the call has the last response, or the result of each dial.

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/zktest"
)

const lastResponse = "the last response was an error: "

// R111, I6: each request of one kind gets an error response that does not concern the node. When
// the context ends, the error has it.
func TestVirtual_ContextEnds_ErrorHasTheLastResponse(t *testing.T) {
	acquireOf := func(path string, opts ...zklock.MutexOption) func(context.Context, *testing.T, *zklock.Session) error {
		return func(ctx context.Context, t *testing.T, s *zklock.Session) error {
			_, err := newMutex(t, s, path, opts...).Acquire(ctx)
			return err
		}
	}
	permit := func(ctx context.Context, t *testing.T, s *zklock.Session) error {
		sem, err := zklock.NewSemaphore(s, "/sem", 1)
		require.NoError(t, err)
		_, err = sem.Acquire(ctx, 1)
		return err
	}
	participants := func(ctx context.Context, t *testing.T, s *zklock.Session) error {
		_, err := newMutex(t, s, "/job").Participants(ctx)
		return err
	}
	for name, tt := range map[string]struct {
		fault zktest.Fault
		call  func(context.Context, *testing.T, *zklock.Session) error
	}{
		"create":              {zktest.Before(zktest.Create).Path("/job/*"), acquireOf("/job")},
		"create of the root":  {zktest.Before(zktest.Create).Path("/new"), acquireOf("/new")},
		"create of a parent":  {zktest.Before(zktest.Create).Path("/a"), acquireOf("/a/b/c")},
		"list":                {zktest.Before(zktest.GetChildren), acquireOf("/job")},
		"watches":             {zktest.Before(zktest.GetData).Path("/held/*"), acquireOf("/held")},
		"transaction":         {zktest.Before(zktest.Multi), permit},
		"list of a semaphore": {zktest.Before(zktest.GetChildren).Path("/sem/leases"), permit},
		"participants":        {zktest.Before(zktest.GetChildren), participants},
	} {
		t.Run(name, func(t *testing.T) {
			for code, text := range heartbeatErrors {
				inVirtualTime(t, func(t *testing.T, v *virtual) {
					v.net.SetLatency(time.Millisecond)
					held := acquire(t, newMutex(t, v.connect(), "/held"))
					s := v.connect()
					fails := v.srv.Inject(tt.fault.Session(s.Stats().SessionID).Fail(code))
					err := tt.call(within(t, 5*time.Second), t, s)
					require.ErrorIs(t, err, context.DeadlineExceeded)
					require.ErrorContains(t, err, lastResponse)
					require.ErrorContains(t, err, text)
					require.False(t, zklock.IsFinal(err))
					require.Less(t, fails.Fired(), 30, "it pauses between its tries")
					fails.Remove()
					release(t, held)
					release(t, acquire(t, newMutex(t, s, "/job")))
				})
			}
		})
	}
}

// R111: the response is that of the call's own last request. If that succeeded, or if the response
// was another call's, the error has none.
func TestVirtual_ContextEnds_ResponsesThatAreOver(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		held := acquire(t, newMutex(t, v.connect(), "/job"))
		s := v.connect()
		throttled := zktest.Before(zktest.Create).Path("/job/*").Session(s.Stats().SessionID).Fail(zktest.Throttled)
		v.srv.Inject(throttled.Times(3))
		_, err := newMutex(t, s, "/job").Acquire(within(t, 10*time.Second))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NotContains(t, err.Error(), lastResponse, "it has queued since")

		fails := v.srv.Inject(throttled)
		_, err = newMutex(t, s, "/job").TryAcquire(within(t, 10*time.Second))
		require.ErrorIs(t, err, zklock.ErrNotConnected)
		require.ErrorContains(t, err, "throttled (-127)")
		fails.Remove()
		release(t, held)
	})
}

// R111, I6: the error of an acquire that reaches no server lists the result of each dial.
func TestVirtual_NoServerIsReached_ErrorListsTheDials(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		s := v.connect()
		m := newMutex(t, s, "/job")
		release(t, acquire(t, m))
		v.srv.Stop()
		time.Sleep(time.Second)
		calls := map[string]func(context.Context) error{
			"acquire":      func(ctx context.Context) error { _, err := m.Acquire(ctx); return err },
			"participants": func(ctx context.Context) error { _, err := m.Participants(ctx); return err },
		}
		for name, call := range calls {
			err := call(within(t, 5*time.Second))
			require.ErrorIs(t, err, context.DeadlineExceeded, name)
			require.ErrorContains(t, err, "; tried "+v.srv.Addr()+" (", name)
		}
		require.NoError(t, v.srv.Start())
		release(t, acquire(t, m))
	})
}

// R111, I4: a release whose deletions get error responses has the last one in its error.
func TestVirtual_ReleaseNotConfirmed_ErrorHasTheLastResponse(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		s := v.connect()
		h := acquire(t, newMutex(t, s, "/job"))
		fails := v.srv.Inject(zktest.Before(zktest.Delete).Session(s.Stats().SessionID).Fail(zktest.Throttled))
		err := h.Release(within(t, 2*time.Second))
		require.ErrorIs(t, err, zklock.ErrNotConfirmed)
		require.ErrorContains(t, err, lastResponse+"zookeeper: throttled (-127)")
		fails.Remove()
		time.Sleep(10 * time.Second)
		require.Empty(t, v.srv.Children("/job"))
	})
}
