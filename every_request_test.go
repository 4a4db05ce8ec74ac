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
