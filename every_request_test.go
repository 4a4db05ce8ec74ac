package zklock_test

// These tests strike at each request of an acquire and its release in turn.

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/zktest"
)

// cuts are the ways to cut a connection at the nth request of a kind from now on. Each fails the test if it never strikes.
var cuts = []struct {
	name string
	at   func(t *testing.T, w *wire, p *zktest.Proxy, op zktest.Op, root string, nth int) (struck func() bool)
}{
	{"not written", func(t *testing.T, w *wire, _ *zktest.Proxy, op zktest.Op, root string, nth int) func() bool {
		return w.failWrite(t, int32(op), root, nth)
	}},
	{"does not arrive", func(_ *testing.T, _ *wire, p *zktest.Proxy, op zktest.Op, _ string, nth int) func() bool {
		cut := p.Inject(zktest.Before(op).Nth(nth).Close())
		return func() bool { return cut.Fired() > 0 }
	}},
	{"is not answered", func(_ *testing.T, _ *wire, p *zktest.Proxy, op zktest.Op, _ string, nth int) func() bool {
		cut := p.Inject(zktest.After(op).Nth(nth).DropReply().Close())
		return func() bool { return cut.Fired() > 0 }
	}},
}

// F1, F6: the connection is cut at each request of acquire and release: before it is written, on its way, and after it was
// applied.
func TestAcquireRelease_CutAtEveryRequest(t *testing.T) {
	t.Parallel()
	srv := target(t)
	a, p := admin(t, srv), lockPath(t, srv)
	proxy, w := zktest.StartProxy(t, srv), &wire{}
	m := newMutex(t, connect(t, proxy.Addr(), w.dialer()), p)
	release(t, acquire(t, m))
	for _, cut := range cuts {
		for _, op := range []zktest.Op{zktest.Create2, zktest.GetChildren2, zktest.Delete} {
			struck := cut.at(t, w, proxy, op, p, 1)
			h := acquire(t, m)
			require.Equal(t, []string{base(h.Node())}, children(t, a, p), "%v %s", op, cut.name)
			release(t, h)
			require.Empty(t, children(t, a, p), "%v %s", op, cut.name)
			require.True(t, struck(), "%v %s", op, cut.name)
		}
	}
}

// F6 for a waiter: the connection is cut at each of its requests; it is granted in its turn all the same.
func TestAcquire_Queued_CutAtEveryRequest(t *testing.T) {
	t.Parallel()
	srv := target(t)
	a, p := admin(t, srv), lockPath(t, srv)
	holder, proxy := newMutex(t, connect(t, srv), p), zktest.StartProxy(t, srv)
	for _, cut := range cuts {
		for _, op := range []zktest.Op{zktest.Create2, zktest.GetChildren2, zktest.GetData} {
			for nth := 1; nth <= 2 && (op == zktest.GetData || nth == 1); nth++ {
				w := &wire{}
				s := connect(t, proxy.Addr(), w.dialer())
				h := acquire(t, holder)
				struck := cut.at(t, w, proxy, op, p, nth)
				q := startAcquire(t, newMutex(t, s, p))
				eventually(t, "its connection is cut", struck)
				eventually(t, "it waits in the queue", func() bool { return len(children(t, a, p)) == 2 })
				release(t, h)
				release(t, q.granted(t))
				require.Empty(t, children(t, a, p), "%v %s, nth %d", op, cut.name, nth)
				require.NoError(t, s.Close())
			}
		}
	}
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
