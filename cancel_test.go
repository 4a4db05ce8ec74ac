package zklock_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/zktest"
)

// A call of Acquire carries its attempt out by itself, and leaves it to a goroutine when it leaves (attempt.go). In these tests the
// Session has made a node before, from which on that is so. All run in virtual time (inVirtualTime): a Sleep costs nothing, and
// what is to happen until its end has happened.

// I2, I6, F27, F33: the call that began leaves, at each request on its way and in the pause after one that failed, while another of its owner has joined. That one is granted,
// on the node that is there, or on another that is made then; alone, nothing is left.
func TestVirtual_Call_Leaves(t *testing.T) {
	for _, at := range []zktest.Fault{
		zktest.Before(zktest.Create).Path("/job/*"), zktest.After(zktest.Create).Path("/job/*"),
		zktest.Before(zktest.GetChildren), zktest.After(zktest.GetChildren),
		zktest.Before(zktest.GetData), zktest.After(zktest.GetData).Nth(2),
		zktest.Before(zktest.GetData).Fail(zktest.OperationTimeout), zktest.Before(zktest.GetData).Fail(zktest.OperationTimeout).Nth(2),
		zktest.Before(zktest.GetChildren).Fail(zktest.OperationTimeout),
		zktest.Before(zktest.GetData).Fail(zktest.NoAuth), zktest.Before(zktest.GetData).Fail(zktest.NoAuth).Nth(2),
	} {
		for _, joined := range []bool{false, true} {
			inVirtualTime(t, func(t *testing.T, v *virtual) {
				other, s := v.connect(), v.connect()
				m := newMutex(t, s, "/job")
				release(t, acquire(t, m))
				h := acquire(t, newMutex(t, other, "/job"))
				ctx, cancel := context.WithCancel(zklock.WithOwner(context.Background(), zklock.NewOwner("one")))
				at, later := at.Session(s.SessionID()).Times(1), 10*time.Millisecond // in the pause after a failure
				if !strings.Contains(at.String(), "Fail") {
					at, later = at.Hold(), 0
				}
				held := v.srv.Inject(at)
				first, second := make(chan error, 1), make(chan error, 1)
				go func() { _, err := m.Acquire(ctx); first <- err }()
				require.NoError(t, held.Wait(t.Context()))
				if joined {
					go func() {
						h, err := m.Acquire(context.WithoutCancel(ctx))
						if err == nil {
							err = h.Release(within(t, soon))
						}
						second <- err
					}()
					synctest.Wait()
				}
				time.Sleep(later) // into the pause after a failure, which is 20 ms or a heartbeat
				start := time.Now()
				cancel()
				require.ErrorIs(t, <-first, context.Canceled)
				require.LessOrEqual(t, time.Since(start), 500*time.Millisecond, "I6")
				if later == 0 {
					held.Release()
				}
				time.Sleep(time.Second) // more than the grace in which a node is deleted
				nodes := 1
				if joined {
					nodes = 2
				}
				require.Len(t, v.srv.Children("/job"), nodes, "I2, I4: %v", at)
				release(t, h)
				if joined {
					require.NoError(t, <-second)
				}
				require.Empty(t, v.srv.Children("/job"), "I4")
			})
		}
	}
}

// I6: a try begins, and a call of its owner that waits joins. The try is sent away at once, and the other is granted in its turn.
func TestVirtual_Call_TryBegins(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		other, s := v.connect(), v.connect()
		m := newMutex(t, s, "/job")
		release(t, acquire(t, m))
		h := acquire(t, newMutex(t, other, "/job"))
		ctx := zklock.WithOwner(within(t, time.Hour), zklock.NewOwner("one"))
		held := v.srv.Inject(zktest.After(zktest.Create).Path("/job/*").Session(s.SessionID()).Hold().Once())
		try, acquired := make(chan error, 1), make(chan *zklock.Hold, 1)
		go func() { _, err := m.TryAcquire(ctx); try <- err }()
		require.NoError(t, held.Wait(t.Context()))
		go func() {
			h, err := m.Acquire(ctx)
			if err != nil {
				t.Error(err)
			}
			acquired <- h
		}()
		synctest.Wait()
		held.Release()
		synctest.Wait()
		select {
		case err := <-try:
			require.ErrorIs(t, err, zklock.ErrNotAcquired)
		default:
			t.Error("the try waits")
		}
		release(t, h)
		release(t, <-acquired)
		require.Empty(t, v.srv.Children("/job"))
	})
}

// I7: who waits takes no goroutine of ours, behind its own session's node or another's.
func TestVirtual_Call_WaiterTakesNoGoroutine(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		const many = 100
		s := v.connect()
		m := newMutex(t, s, "/job")
		release(t, acquire(t, m))
		h := acquire(t, newMutex(t, v.connect(), "/job"))
		ctx, cancel := context.WithCancel(context.Background())
		time.Sleep(time.Minute) // what the first acquires started has ended
		before := runtime.NumGoroutine()
		var all sync.WaitGroup
		for range many {
			all.Go(func() {
				if _, err := m.Acquire(ctx); !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
			})
		}
		time.Sleep(time.Second) // all are in the queue
		require.LessOrEqual(t, runtime.NumGoroutine()-before, many+1, "the callers, and one that looks after the watches")
		cancel()
		all.Wait()
		release(t, h)
	})
}

// lateContext closes Done a moment before it says so in Err, as contexts do that join two others by hand.
type lateContext struct {
	context.Context
	done chan struct{}
}

func (c lateContext) Done() <-chan struct{} { return c.done }

// I2, I4, I6: the user's context says that it has ended before it says why, while an answer is waited for. Nothing is taken for an
// answer that is none: there is one node, and it goes.
func TestVirtual_Call_ContextThatSaysSoLate(t *testing.T) {
	for _, at := range []zktest.Op{zktest.GetChildren, zktest.GetData} {
		inVirtualTime(t, func(t *testing.T, v *virtual) {
			s := v.connect()
			m := newMutex(t, s, "/job")
			release(t, acquire(t, m))
			h := acquire(t, newMutex(t, v.connect(), "/job"))
			made := len(creates(v.srv.History()))
			held := v.srv.Inject(zktest.After(at).Session(s.SessionID()).Hold().Once())
			ended, done := make(chan struct{}), make(chan error, 1)
			go func() {
				_, err := m.Acquire(lateContext{context.Background(), ended})
				done <- err
			}()
			require.NoError(t, held.Wait(t.Context()))
			synctest.Wait()
			close(ended)
			require.ErrorIs(t, <-done, context.Canceled)
			held.Release()
			time.Sleep(time.Second) // more than the grace in which the node is deleted
			require.Len(t, creates(v.srv.History()), made+1, "I2: at %v", at)
			require.Len(t, v.srv.Children("/job"), 1, "I4")
			release(t, h)
		})
	}
}
