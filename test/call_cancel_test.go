package zklock_test

// These tests end a wait at every moment: the call returns in time, leaves no node, and does not
// affect other calls of its owner (I4, I6).

import (
	"context"
	"errors"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/zktest"
)

// callersContext is a context that only the call itself may ask for its end.
type callersContext struct {
	context.Context
	t *testing.T
}

func (c callersContext) Done() <-chan struct{}       { c.asked(); return c.Context.Done() }
func (c callersContext) Err() error                  { c.asked(); return c.Context.Err() }
func (c callersContext) Deadline() (time.Time, bool) { c.asked(); return c.Context.Deadline() }

func (c callersContext) asked() {
	pcs := make([]uintptr, 64)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs)])
	for {
		f, more := frames.Next()
		if strings.HasSuffix(f.Function, "zklock.(*Mutex).acquire") {
			return
		}
		if !more {
			c.t.Errorf("the context of a call is asked below Mutex.acquire:\n%s", debug.Stack())
			return
		}
	}
}

// R75, R76: no request, pause or wait below Mutex.acquire receives a caller's context, whatever
// fails on the way to the grant.
func TestVirtual_Call_ItsContextGoesNoFurther(t *testing.T) {
	for _, queued := range []bool{false, true} {
		for _, fault := range []zktest.Fault{
			zktest.Before(zktest.Create).Path("/job/*").Fail(zktest.NoNode), zktest.After(zktest.Create).Path("/job/*").DropReply().Close(),
			zktest.Before(zktest.Create).Path("/job/*").Fail(zktest.OperationTimeout), zktest.Before(zktest.GetChildren).Fail(zktest.OperationTimeout),
			zktest.Before(zktest.GetData).Fail(zktest.NoAuth).Optional(), zktest.After(zktest.GetChildren).Expire(), zktest.Before(zktest.GetChildren).Close(),
		} {
			inVirtualTime(t, func(t *testing.T, v *virtual) {
				s := v.connect()
				m := newMutex(t, s, "/job")
				h := acquire(t, newMutex(t, v.connect(), "/job"))
				if !queued {
					release(t, h)
				}
				v.srv.Inject(fault.Session(s.Stats().SessionID).Once())
				got := make(chan *zklock.Hold, 1)
				go func() {
					h, err := m.Acquire(callersContext{context.Background(), t})
					if err != nil {
						t.Error(err)
					}
					got <- h
				}()
				time.Sleep(30 * time.Second)
				if queued {
					release(t, h)
				}
				_ = (<-got).Release(within(t, soon)) // that its session has expired is one of the faults
			})
		}
	}
}

// I2, I6, F27, F33: a call gives up at each request on its way, and in the pause after a failed
// one, with and without another waiting call of its owner. It leaves no node, and the other call
// queues and is granted.
func TestVirtual_Call_Leaves(t *testing.T) {
	for _, at := range []zktest.Fault{
		zktest.Before(zktest.Create).Path("/job/*"), zktest.After(zktest.Create).Path("/job/*"),
		zktest.Before(zktest.GetChildren), zktest.After(zktest.GetChildren),
		zktest.Before(zktest.GetData), zktest.After(zktest.GetData).Nth(2),
		zktest.Before(zktest.GetData).Fail(zktest.OperationTimeout), zktest.Before(zktest.GetData).Fail(zktest.OperationTimeout).Nth(2),
		zktest.Before(zktest.GetChildren).Fail(zktest.OperationTimeout),
		zktest.Before(zktest.GetData).Fail(zktest.NoAuth), zktest.Before(zktest.GetData).Fail(zktest.NoAuth).Nth(2),
	} {
		for _, another := range []bool{false, true} {
			inVirtualTime(t, func(t *testing.T, v *virtual) {
				other, s := v.connect(), v.connect()
				m := newMutex(t, s, "/job")
				release(t, acquire(t, m))
				h := acquire(t, newMutex(t, other, "/job"))
				ctx, cancel := context.WithCancel(zklock.WithOwner(context.Background(), zklock.NewOwner("one")))
				at, later := at.Session(s.Stats().SessionID).Times(1), 10*time.Millisecond // in the pause after a failure
				if !strings.Contains(at.String(), "Fail") {
					at, later = at.Hold(), 0
				}
				held := v.srv.Inject(at)
				first, second := make(chan error, 1), make(chan error, 1)
				go func() { _, err := m.Acquire(ctx); first <- err }()
				require.NoError(t, held.Wait(t.Context()))
				if another {
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
				if another {
					nodes = 2
				}
				require.Len(t, v.srv.Children("/job"), nodes, "I2, I4: %v", at)
				release(t, h)
				if another {
					require.NoError(t, <-second)
				}
				require.Empty(t, v.srv.Children("/job"), "I4")
			})
		}
	}
}

// I6: a try is under way, and a call of its owner waits for it to end. The try leaves the queue at
// once, and the other call is granted in its turn.
func TestVirtual_Call_TryBegins(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		other, s := v.connect(), v.connect()
		m := newMutex(t, s, "/job")
		release(t, acquire(t, m))
		h := acquire(t, newMutex(t, other, "/job"))
		ctx := zklock.WithOwner(within(t, time.Hour), zklock.NewOwner("one"))
		held := v.srv.Inject(zktest.After(zktest.Create).Path("/job/*").Session(s.Stats().SessionID).Hold().Once())
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

// lateContext closes Done a moment before Err returns an error, like a context that joins two
// contexts by hand.
type lateContext struct {
	context.Context
	done chan struct{}
}

func (c lateContext) Done() <-chan struct{} { return c.done }

// I2, I4, I6: the user's context closes Done before Err has the reason, while a response is
// awaited. Nothing else is taken for a response: there is one node, and it is deleted.
func TestVirtual_Call_ContextThatReportsItsEndLate(t *testing.T) {
	for _, at := range []zktest.Op{zktest.GetChildren, zktest.GetData} {
		inVirtualTime(t, func(t *testing.T, v *virtual) {
			s := v.connect()
			m := newMutex(t, s, "/job")
			release(t, acquire(t, m))
			h := acquire(t, newMutex(t, v.connect(), "/job"))
			made := len(creates(v.srv.History()))
			held := v.srv.Inject(zktest.After(at).Session(s.Stats().SessionID).Hold().Once())
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

// R24, R52, F33: ctx ends while the create is in flight. The call returns, and the node is deleted
// once it is known.
func TestAcquire_ContextEndsDuringCreate_LeavesNothing(t *testing.T) {
	t.Parallel()
	srv := target(t)
	a, p := admin(t, srv), lockPath(t, srv)
	proxy := zktest.StartProxy(t, srv)
	m := newMutex(t, connect(t, proxy.Addr()), p)
	ctx, cancel := context.WithCancel(context.Background())
	proxy.Inject(zktest.After(zktest.Create).Path(p + "/*").Once().Call(cancel).DropReply().Close())
	refused := proxy.Inject(zktest.RefuseConnections())
	start := time.Now()
	_, err := m.Acquire(ctx)
	require.ErrorIs(t, err, context.Canceled)
	require.Less(t, time.Since(start), soon, "I6")
	require.NoError(t, refused.Wait(within(t, soon)))
	refused.Remove()
	eventually(t, "I4: the node is deleted", func() bool { return len(children(t, a, p)) == 0 })
}

// I6: Do outlasts its context by the grace at most, even if no server responds.
func TestVirtual_Do_ContextEnds_ReturnsWithinTheGrace(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		line := &line{dial: v.net.Dial}
		m := newMutex(t, v.connect(zklock.WithDialer(line.Dial), zklock.WithSessionTimeout(30*time.Second)), "/job")
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		var ended time.Time
		err := m.Do(ctx, func(ctx context.Context, _ *zklock.Hold) error {
			line.silent.Store(true)
			ended = time.Now()
			cancel()
			<-ctx.Done()
			return nil
		})
		require.ErrorIs(t, err, context.Canceled)
		require.LessOrEqual(t, time.Since(ended), 500*time.Millisecond)
		line.silent.Store(false)
	})
}

// I4, I6, R44: a wait that ends leaves no node, and returns the reason.
func TestAcquire_ContextEnds_LeavesNothing(t *testing.T) {
	srv := target(t)
	a, p := admin(t, srv), lockPath(t, srv)
	h := acquire(t, newMutex(t, connect(t, srv), p))
	m := newMutex(t, connect(t, srv), p)

	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	_, err := m.Acquire(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Len(t, children(t, a, p), 1)

	why := errors.New("the shop is closing")
	cctx, ccancel := context.WithCancelCause(context.Background())
	done := make(chan error, 1)
	go func() { _, err := m.Acquire(cctx); done <- err }()
	eventually(t, "it waits", func() bool { return len(children(t, a, p)) == 2 })
	ccancel(why)
	err = <-done
	require.ErrorIs(t, err, why)
	require.ErrorIs(t, err, context.Canceled)
	var e *zklock.Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, "acquire", e.Op)
	require.Equal(t, p, e.Path)
	require.Len(t, children(t, a, p), 1)

	_, err = m.Acquire(cctx) // already over: not even begun
	require.ErrorIs(t, err, why)
	release(t, h)
}

// R62, R44: the wait is cancelled at every moment. The call returns, and the cancellation does not
// affect the same owner's next attempt.
func TestVirtual_CancelledWait_DoesNotReachTheNext(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		v.net.SetLatency(time.Millisecond)
		m, other := newMutex(t, v.connect(), "/job"), newMutex(t, v.connect(), "/job")
		release(t, acquire(t, m))
		cancelled := 0
		for i := range 40 {
			h := acquire(t, other)
			time.AfterFunc(6*time.Millisecond, func() { _ = h.Release(context.Background()) })
			o := zklock.NewOwner("")
			ctx, cancel := context.WithTimeout(zklock.WithOwner(context.Background(), o), time.Duration(i)*400*time.Microsecond)
			h2, err := m.Acquire(ctx)
			if err != nil {
				require.ErrorIs(t, err, context.DeadlineExceeded)
				cancelled++
				h2, err = m.Acquire(zklock.WithOwner(within(t, soon), o))
			}
			require.NoError(t, err)
			cancel()
			require.NoError(t, h2.Err())
			release(t, h2)
		}
		require.Positive(t, cancelled)
		require.Less(t, cancelled, 40)
		time.Sleep(time.Second)
		require.Empty(t, v.srv.Children("/job"), "I4")
	})
}

// I6: no server responds. A call whose context has ended and that has nodes to clean up returns a
// tenth of a second before the promised half second, because its timer is late on a busy machine.
func TestVirtual_ServersFrozen_CallsEndBeforeTheirBound(t *testing.T) {
	const most = 400 * time.Millisecond
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		s := v.connect()
		held, other := acquire(t, newMutex(t, s, "/held")), acquire(t, newMutex(t, v.connect(), "/other"))
		both, err := newMulti(t, mutexes(t, s, "/m", "/n")...).Acquire(within(t, soon))
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		took := make(chan func(), 10)
		ended := time.Time{}
		begin := func(what string, call func() error) {
			go func() {
				err := call()
				d := time.Since(ended)
				took <- func() {
					require.Error(t, err, what)
					require.Equal(t, most, d, what)
				}
			}()
		}
		begin("Acquire", func() error { _, err := newMutex(t, s, "/other").Acquire(ctx); return err })
		begin("Do", func() error {
			return newMutex(t, s, "/do").Do(ctx, func(ctx context.Context, _ *zklock.Hold) error { <-ctx.Done(); return ctx.Err() })
		})
		begin("Multi.Acquire", func() error { _, err := newMulti(t, mutexes(t, s, "/a", "/other")...).Acquire(ctx); return err })
		begin("Multi.Do", func() error {
			return newMulti(t, mutexes(t, s, "/b", "/c")...).Do(ctx, func(ctx context.Context, _ *zklock.MultiHold) error { <-ctx.Done(); return ctx.Err() })
		})
		begin("Campaign", func() error {
			return newElection(t, s, "/leader", "ann").Campaign(ctx, func(ctx context.Context, _ *zklock.Hold) error { <-ctx.Done(); return nil })
		})
		synctest.Wait()
		v.srv.Freeze()
		begin("Release", func() error { <-ctx.Done(); return held.Release(ctx) })
		begin("MultiHold.Release", func() error { <-ctx.Done(); return both.Release(ctx) })
		begin("Connect", func() error {
			_, err := zklock.Connect(ctx, v.srv.Addr(), zklock.WithDialer(v.net.Dial), quiet(t))
			return err
		})
		synctest.Wait()
		ended = time.Now()
		cancel()
		for range 8 {
			(<-took)()
		}
		v.srv.Thaw()
		release(t, other)
		time.Sleep(10 * time.Second) // what Connect left ends by itself
	})
}
