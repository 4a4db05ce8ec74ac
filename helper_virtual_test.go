package zklock_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
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

// virtual is a server, its network and its clients in one synctest bubble: time passes when everybody waits.
type virtual struct {
	t   *testing.T
	net *zktest.Network
	srv *zktest.Server
}

func inVirtualTime(t *testing.T, f func(t *testing.T, v *virtual), opts ...zktest.Option) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		n := zktest.NewNetwork()
		srv := zktest.Start(t, append([]zktest.Option{zktest.WithNetwork(n), zktest.WithTick(2 * time.Second)}, opts...)...)
		_, err := srv.Create("/job", nil, 0)
		require.NoError(t, err)
		f(t, &virtual{t, n, srv})
	})
}

func (v *virtual) connect(opts ...zklock.Option) *zklock.Session {
	return connect(v.t, v.srv.Addr(), append([]zklock.Option{zklock.WithDialer(v.net.Dial)}, opts...)...)
}

// queueUp starts an Acquire and returns when it waits, its watches set.
func (v *virtual) queueUp(m *zklock.Mutex) *waiting {
	ctx, cancel := context.WithTimeout(context.Background(), 24*time.Hour)
	w := startAcquireIn(v.t, ctx, cancel, m)
	synctest.Wait()
	return w
}

// line is a client's way to the server, which can be silenced in both directions as a cut cable is.
type line struct {
	dial   zk.Dialer
	silent atomic.Bool
}

func (l *line) Dial(network, addr string, d time.Duration) (net.Conn, error) {
	if l.silent.Load() {
		time.Sleep(d)
		return nil, os.ErrDeadlineExceeded
	}
	c, err := l.dial(network, addr, d)
	if err != nil {
		return nil, err
	}
	return &lineConn{c, l}, nil
}

type lineConn struct {
	net.Conn
	l *line
}

func (c *lineConn) Write(p []byte) (int, error) {
	if c.l.silent.Load() {
		return len(p), nil
	}
	return c.Conn.Write(p)
}

func (c *lineConn) Read(p []byte) (int, error) {
	for {
		n, err := c.Conn.Read(p)
		if err != nil || !c.l.silent.Load() {
			return n, err
		}
	}
}

func isLost(h *zklock.Hold) bool {
	select {
	case <-h.Lost():
		return true
	default:
		return false
	}
}

// I5, F20 in part: no false Lost in hours without faults, in any mode, and the deadline is always ahead.
func TestVirtual_HoldForHours_IsNeverLost(t *testing.T) {
	for _, mode := range []zklock.LeaseMode{zklock.QuorumLease(0), zklock.PingLease(2 * time.Second), zklock.SingleServerLease()} {
		for _, timeout := range []time.Duration{8 * time.Second, 30 * time.Second} {
			t.Run(fmt.Sprintf("%v/%v", mode, timeout), func(t *testing.T) {
				inVirtualTime(t, func(t *testing.T, v *virtual) {
					v.net.SetLatency(5 * time.Millisecond)
					s := v.connect(zklock.WithLease(mode), zklock.WithSessionTimeout(timeout))
					time.Sleep(time.Hour) // idle: only pings and cheap reads
					m := newMutex(t, s, "/job")
					for range 3 {
						start := time.Now()
						h := acquire(t, m)
						require.Less(t, time.Since(start), time.Second, "an idle session acquires at once")
						for range 1200 {
							time.Sleep(time.Duration(rand.Int64N(int64(2 * time.Second))))
							require.NoError(t, h.Err())
							require.Positive(t, time.Until(h.Deadline()))
						}
						release(t, h)
						time.Sleep(time.Hour)
					}
				})
			})
		}
	}
}

// No false Lost (I5): a grant after a wait, whenever it comes, has a heartbeat before its lease ends, also with the least
// room that Connect takes.
func TestVirtual_GrantAfterAWait_IsNotLost(t *testing.T) {
	for i := range 150 {
		idle, wait := 20*time.Second+time.Duration(i%5)*267*time.Millisecond, time.Duration(i/5)*75*time.Millisecond
		inVirtualTime(t, func(t *testing.T, v *virtual) {
			v.net.SetLatency(5 * time.Millisecond)
			short := zklock.WithSessionTimeout(8 * time.Second)
			h := acquire(t, newMutex(t, v.connect(short), "/job"))
			m := newMutex(t, v.connect(short), "/job")
			time.Sleep(idle)
			w := v.queueUp(m)
			time.Sleep(wait)
			release(t, h)
			next := w.granted2(t, time.Second)
			time.Sleep(10 * time.Second)
			require.NoError(t, next.Err(), "queued after %v, granted after %v", idle, wait)
			release(t, next)
		})
	}
}

// F15, I5: the client is cut off. Before its session can expire it is told; the next is granted afterwards.
func TestVirtual_ClientCutOff_IsToldBeforeTheNextGrant(t *testing.T) {
	for seed := range uint64(20) {
		inVirtualTime(t, func(t *testing.T, v *virtual) {
			rnd := rand.New(rand.NewPCG(seed, 1))
			line := &line{dial: v.net.Dial}
			cutOff, s2 := v.connect(zklock.WithDialer(line.Dial)), v.connect()
			m1, m2 := newMutex(t, cutOff, "/job"), newMutex(t, s2, "/job")
			h := acquire(t, m1)
			time.Sleep(time.Duration(rnd.Int64N(int64(30 * time.Second))))
			w := v.queueUp(m2)
			deadline := h.Deadline()
			line.silent.Store(true)
			var told time.Time
			go func() { <-h.Lost(); told = time.Now() }()
			h2 := w.granted2(t, time.Minute)
			granted := time.Now()
			synctest.Wait()
			require.False(t, told.IsZero(), "seed %d: the holder was not told before the next grant", seed)
			require.True(t, told.Before(granted), "seed %d: told %v after the grant", seed, told.Sub(granted))
			require.False(t, told.Before(deadline.Add(-time.Second)), "seed %d", seed)
			require.Greater(t, h2.Token(), h.Token())
			require.ErrorIs(t, h.Release(within(t, soon)), zklock.ErrLost)
			line.silent.Store(false)
			release(t, h2)
		})
	}
}

func (w *waiting) granted2(t testing.TB, d time.Duration) *zklock.Hold {
	t.Helper()
	select {
	case <-w.done:
	case <-time.After(d):
		t.Fatalf("Acquire did not return within %v", d)
	}
	require.NoError(t, w.err)
	return w.hold
}

// F21: the machine was suspended past the end of the lease. The holder sees the loss at its first look, whatever timers
// have done and whatever answer lies in the socket.
func TestVirtual_Suspend_IsLostAtTheFirstLook(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		var asleep atomic.Int64
		s := v.connect(zklock.WithSuspendedTime(func() time.Duration { return time.Duration(asleep.Load()) }))
		m := newMutex(t, s, "/job")
		h, short := acquire(t, m), acquire(t, newMutex(t, s, "/other"))
		time.Sleep(30 * time.Second)
		asleep.Add(int64(time.Second))
		require.NoError(t, h.Err(), "a nap within the lease's room")
		asleep.Add(int64(20 * time.Second))
		require.ErrorIs(t, h.Context().Err(), context.Canceled)
		require.ErrorIs(t, context.Cause(short.Context()), zklock.ErrLost)
		require.False(t, m.Held())
		_, err := m.Acquire(zklock.WithOwner(context.Background(), h.Owner()))
		require.ErrorIs(t, err, zklock.ErrLost)
		require.ErrorIs(t, short.Release(within(t, soon)), zklock.ErrLost)
		require.ErrorIs(t, h.Release(within(t, soon)), zklock.ErrLost)
		release(t, acquire(t, m))
	})
}

// R38, F38: a later ZooKeeper session that is granted a timeout without room holds nothing, and says why.
func TestVirtual_ShorterTimeoutLater_HasNoRoom(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		strict := zktest.Start(t, zktest.WithZxid(1000), zktest.WithNetwork(v.net), zktest.WithTick(200*time.Millisecond), zktest.WithSessionTimeouts(400*time.Millisecond, 4*time.Second))
		target := v.srv.Addr()
		dial := func(network, _ string, d time.Duration) (net.Conn, error) { return v.net.Dial(network, target, d) }
		s := v.connect(zklock.WithDialer(dial))
		release(t, acquire(t, newMutex(t, s, "/job")))
		target = strict.Addr() // which does not know the session
		v.srv.DropConnection(s.SessionID())
		time.Sleep(5 * time.Second)
		_, err := newMutex(t, s, "/job").Acquire(within(t, time.Minute))
		require.ErrorIs(t, err, zklock.ErrNoRoom)
		require.Empty(t, strict.Children("/job"))
	})
}

// F34, I1: the lock lives through the end of the counter: contended before, through and after it.
func TestVirtual_SequenceEnd(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		v.net.SetLatency(time.Millisecond)
		o := &overlap{t: t}
		var all sync.WaitGroup
		const sessions, goroutines, rounds = 4, 3, 12
		for range sessions {
			m := newMutex(t, v.connect(), "/job")
			for range goroutines {
				all.Go(func() {
					for range rounds {
						h, err := m.Acquire(within(t, time.Hour))
						if err != nil {
							t.Error(err)
							return
						}
						o.work(h, func() { time.Sleep(time.Duration(rand.Int64N(int64(10 * time.Millisecond)))) })
						if err := h.Release(within(t, soon)); err != nil {
							t.Error(err)
						}
					}
				})
			}
		}
		all.Wait()
		require.Equal(t, sessions*goroutines*rounds, o.entries)
		synctest.Wait()
		require.Empty(t, v.srv.Children("/job"))
		// Empty at last, the root was removed, to be made again with a fresh counter.
		time.Sleep(time.Minute)
		h := acquire(t, newMutex(t, v.connect(), "/job"))
		require.Equal(t, "0000000000", suffixOf(h.Path()))
		require.Greater(t, h.Token(), o.last)
		release(t, h)
	}, zktest.WithCreates("/job", 1<<31-1-40))
}

// F30: the predecessor's event is lost. A slow re-check grants within T.
func TestVirtual_EventLost_IsGrantedByTheRecheck(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		m, other := newMutex(t, v.connect(), "/job"), newMutex(t, v.connect(), "/job")
		for range 2 { // also after a time in which nobody waited
			h := acquire(t, m)
			w := v.queueUp(other)
			v.srv.Inject(zktest.OnEvent(zktest.NodeDeleted).Path(h.Path()).Drop().Once())
			time.Sleep(time.Minute)
			start := time.Now()
			release(t, h)
			release(t, w.granted2(t, time.Minute))
			require.LessOrEqual(t, time.Since(start), 10*time.Second+time.Second)
			time.Sleep(time.Minute)
		}
	})
}

// F31: events that are duplicated, or come without cause, list again and grant nothing.
func TestVirtual_SpuriousEvents(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		s := v.connect()
		h := acquire(t, newMutex(t, s, "/job"))
		w := v.queueUp(newMutex(t, v.connect(), "/job"))
		for range 20 {
			require.NoError(t, v.srv.SetData(h.Path(), []byte("somebody writes")))
			synctest.Wait()
		}
		select {
		case <-w.done:
			t.Fatal("F31: granted by an event that says nothing")
		default:
		}
		v.srv.Inject(zktest.OnEvent(zktest.NodeDeleted).Path(h.Path()).Duplicate().Once())
		release(t, h)
		h2 := w.granted2(t, time.Second)
		require.Len(t, v.srv.Children("/job"), 1)
		release(t, h2)
	})
}

// F39: an error code in a ping's reply is a loss, not an answer.
func TestVirtual_PingRefused_IsLost(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		s := v.connect()
		h := acquire(t, newMutex(t, s, "/job"))
		v.srv.Inject(zktest.Before(zktest.Ping).Session(s.SessionID()).Fail(zktest.SessionExpired).Once())
		time.Sleep(10 * time.Second)
		require.True(t, isLost(h))
		require.ErrorIs(t, h.Release(within(t, soon)), zklock.ErrLost)
		again := acquire(t, newMutex(t, s, "/job"))
		release(t, again)
	})
}

// F6, F33, I2, I4, I6: at each request of acquire and release in turn, before and after it was applied, the connection
// is cut, the session is killed, or ctx ends. Afterwards no node is left, and the lock can be had.
func TestVirtual_EveryRequest_EveryFault(t *testing.T) {
	type fault struct {
		name string
		do   func(f zktest.Fault, cancel func()) zktest.Fault
	}
	faults := []fault{
		{"close", func(f zktest.Fault, _ func()) zktest.Fault { return f.Close() }},
		{"lose the reply", func(f zktest.Fault, _ func()) zktest.Fault { return f.DropReply().Close() }},
		{"expire", func(f zktest.Fault, _ func()) zktest.Fault { return f.Expire() }},
		{"cancel", func(f zktest.Fault, cancel func()) zktest.Fault { return f.Call(cancel) }},
		{"cancel and close", func(f zktest.Fault, cancel func()) zktest.Fault { return f.Call(cancel).Close() }},
		{"delay", func(f zktest.Fault, _ func()) zktest.Fault { return f.Delay(3 * time.Second) }},
	}
	cases := 0
	for _, queued := range []bool{false, true} {
		for _, when := range []string{"before", "after"} {
			for _, ft := range faults {
				if ft.name == "lose the reply" && when == "before" {
					continue
				}
				for nth := 1; ; nth++ {
					fired := false
					inVirtualTime(t, func(t *testing.T, v *virtual) {
						s := v.connect()
						m := newMutex(t, s, "/job")
						release(t, acquire(t, m))
						var ahead *zklock.Hold
						if queued {
							ahead = acquire(t, newMutex(t, v.connect(), "/job"))
						}
						ctx, cancel := context.WithCancel(context.Background())
						defer cancel()
						moment := zktest.Before(zktest.AnyOp)
						if when == "after" {
							moment = zktest.After(zktest.AnyOp)
						}
						inj := v.srv.Inject(ft.do(moment.Session(s.SessionID()).Nth(nth), cancel).Optional())
						type outcome struct {
							h   *zklock.Hold
							err error
						}
						got := make(chan outcome, 1)
						go func() { h, err := m.Acquire(ctx); got <- outcome{h, err} }()
						time.Sleep(4 * time.Second)
						if ahead != nil {
							release(t, ahead)
						}
						o := <-got
						if o.err == nil {
							err := o.h.Release(within(t, soon))
							if err != nil {
								require.ErrorIs(t, err, zklock.ErrLost)
							}
						} else {
							require.ErrorIs(t, o.err, context.Canceled)
						}
						fired = inj.Fired() > 0
						inj.Remove()
						time.Sleep(20 * time.Second)
						require.Empty(t, v.srv.Children("/job"), "%s %s %d: I4", when, ft.name, nth)
						release(t, acquire(t, m))
						require.Empty(t, v.srv.Children("/job"))
					})
					cases++
					if !fired {
						break
					}
				}
			}
		}
	}
	t.Logf("%d cases", cases)
}

// I6: Do does not outstay its context by more than the grace, although no server answers.
func TestVirtual_Do_ContextEnds_ReturnsWithinTheGrace(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		line := &line{dial: v.net.Dial}
		m := newMutex(t, v.connect(zklock.WithDialer(line.Dial), zklock.WithSessionTimeout(30*time.Second)), "/job")
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		var ended time.Time
		err := m.Do(ctx, func(ctx context.Context) error {
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

// I5: a log handler that blocks holds up nobody. Close does not wait for it either.
func TestVirtual_BlockedLogger_DoesNotDelayTheLoss(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		line := &line{dial: v.net.Dial}
		blocked := make(chan struct{})
		s, err := zklock.Connect(context.Background(), v.srv.Addr(), zklock.WithDialer(line.Dial), zklock.WithSessionTimeout(10*time.Second),
			zklock.WithLogger(slog.New(slog.NewTextHandler(blockingWriter{blocked}, &slog.HandlerOptions{Level: slog.LevelDebug}))))
		require.NoError(t, err)
		h := acquire(t, newMutex(t, s, "/job"))
		time.Sleep(20 * time.Second)
		deadline := h.Deadline()
		line.silent.Store(true)
		<-h.Lost()
		require.LessOrEqual(t, time.Since(deadline), 2*time.Second)
		start := time.Now()
		require.NoError(t, s.Close())
		require.Less(t, time.Since(start), 5*time.Second)
		close(blocked)
	})
}

type blockingWriter struct{ until chan struct{} }

func (w blockingWriter) Write(p []byte) (int, error) { <-w.until; return len(p), nil }

// WithEndOnSuspend: a hold cannot begin while the connection is suspended.
func TestVirtual_EndOnSuspend_EndsEveryHold(t *testing.T) {
	for nth := 1; nth <= 6; nth++ {
		inVirtualTime(t, func(t *testing.T, v *virtual) {
			s := v.connect(zklock.WithEndOnSuspend())
			m := newMutex(t, s, "/job")
			release(t, acquire(t, m))
			v.srv.Inject(zktest.After(zktest.AnyOp).Session(s.SessionID()).Nth(nth).Close().Optional())
			h := acquire(t, m)
			synctest.Wait()
			if !s.State().Attached() {
				require.ErrorIs(t, h.Err(), zklock.ErrLost)
			}
			time.Sleep(10 * time.Second)
			if err := h.Release(within(t, soon)); err != nil {
				require.ErrorIs(t, err, zklock.ErrLost)
			}
			time.Sleep(time.Second)
			require.Empty(t, v.srv.Children("/job"))
		})
	}
}

// I6, I7: a create that fails in a way that says nothing is tried again with a back-off, and only while somebody waits.
func TestVirtual_CreateFailsForEver_BacksOff(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		v.net.SetLatency(time.Millisecond)
		s := v.connect()
		m := newMutex(t, s, "/job")
		v.srv.Inject(zktest.Before(zktest.Create).Session(s.SessionID()).Fail(zktest.OperationTimeout))
		v.srv.ResetRequests()
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_, err := m.Acquire(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		time.Sleep(time.Minute)
		require.LessOrEqual(t, v.srv.Requests().Total(zktest.Create), 12)
	})
}

// I5: what Err says, Context().Err says too, at every moment of a loss, for every handle.
func TestVirtual_ManyHandles_ContextAndErrAgree(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		s := v.connect()
		m := newMutex(t, s, "/job")
		h := acquire(t, m)
		handles := []*zklock.Hold{h}
		for range 2000 {
			again, err := m.Acquire(h.Context())
			require.NoError(t, err)
			handles = append(handles, again)
		}
		var looking sync.WaitGroup
		start := make(chan struct{})
		for range 4 {
			looking.Go(func() {
				<-start
				for _, h := range handles {
					if h.Err() != nil && h.Context().Err() == nil {
						t.Error("I5: Err knows of the loss and the context does not")
						return
					}
				}
			})
		}
		close(start)
		v.srv.ExpireSession(s.SessionID())
		<-h.Lost()
		looking.Wait()
		for _, h := range handles {
			require.ErrorIs(t, h.Release(within(t, soon)), zklock.ErrLost)
		}
	})
}

// R72, WithFailOnSessionLoss: the ZooKeeper session of a waiter ends, and the first that the client hears of it is that
// its node is gone. Acquire says that the session ended, and does not queue in the next one.
func TestVirtual_SessionEndsAfterTheNode_FailsIfToldTo(t *testing.T) {
	for _, used := range []bool{false, true} { // from its first node on, the call itself carries the attempt out
		inVirtualTime(t, func(t *testing.T, v *virtual) {
			s := v.connect()
			if used {
				release(t, acquire(t, newMutex(t, s, "/job")))
			}
			h := acquire(t, newMutex(t, v.connect(), "/job"))
			w := v.queueUp(newMutex(t, s, "/job", zklock.WithFailOnSessionLoss()))
			require.NoError(t, v.srv.Delete("/job/"+lastOf(v.srv.Children("/job"))))
			synctest.Wait()
			require.True(t, v.srv.ExpireSession(s.SessionID()))
			_, err := w.get(t)
			require.ErrorIs(t, err, zklock.ErrSessionExpired)
			require.Len(t, v.srv.Children("/job"), 1)
			release(t, h)
		})
	}
}

// askingContext is a user's context that asks the Session whenever it is asked.
type askingContext struct {
	context.Context
	ask func()
}

func (c askingContext) Err() error            { c.ask(); return c.Context.Err() }
func (c askingContext) Done() <-chan struct{} { c.ask(); return c.Context.Done() }

// I6: the context given to Changes is the user's code. A hold's ends the hold when it is asked after a suspend (F18); another asks
// the Session. Neither stops it.
func TestVirtual_Changes_ContextAsksTheSession(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		var asleep atomic.Int64
		s := v.connect(zklock.WithSuspendedTime(func() time.Duration { return time.Duration(asleep.Load()) }))
		m := newMutex(t, s, "/job")
		ctx, cancel := context.WithCancel(t.Context())
		asked := 0
		asking := s.Changes(askingContext{ctx, func() { asked++; _, _ = m.Held(), s.SessionID() }})
		h := acquire(t, m)
		changes := s.Changes(t.Context())
		asleep.Add(int64(time.Minute))
		_, open := <-s.Changes(h.Context())
		require.False(t, open)
		require.Equal(t, zklock.Lost, (<-changes).State)
		require.Equal(t, zklock.Lost, (<-asking).State)
		require.Positive(t, asked)
		cancel()
		for range asking { // until it is closed
		}
		require.ErrorIs(t, h.Release(within(t, soon)), zklock.ErrLost)
	})
}
