package zklock_test

// This test attacks the time between the lists of a Multi and its grants: the functions of a trace
// run there.

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
)

// I1, I3: the nodes of a Multi are listed together, and then a function of a trace blocks for
// longer than a heartbeat. Meanwhile an operator deletes the node of a later lock, and another
// client gets that lock. The Multi is not granted on the old list: it waits until the other client
// has released.
func TestVirtual_Multi_TraceBlocks_NodeDeletedMeanwhile_IsNotGranted(t *testing.T) {
	const blocks, at = 5 * time.Second, "/job/b"
	for name, blocking := range map[string]func(block func()) *zklock.Trace{
		"AcquireEnd of the lock before": func(block func()) *zklock.Trace {
			return &zklock.Trace{AcquireEnd: func(_ context.Context, a zklock.AcquireEndInfo) {
				if a.Path == "/job/a" {
					block()
				}
			}}
		},
		"AcquireStart of the lock itself": func(block func()) *zklock.Trace {
			return &zklock.Trace{AcquireStart: func(ctx context.Context, a zklock.AcquireInfo) context.Context {
				if a.Path == at {
					block()
				}
				return ctx
			}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, v *virtual) {
				v.net.SetLatency(time.Millisecond)
				isReady := false
				s, m := v.fourReady(zklock.WithTrace(blocking(func() {
					if isReady {
						time.Sleep(blocks)
					}
				})))
				isReady = true
				other := newMutex(t, v.connect(), at)
				c := startMulti(within(t, time.Hour), m)
				time.Sleep(time.Second)
				require.NoError(t, v.srv.Delete(v.nodeOf(at, s)))
				theirs := acquire(t, other)
				time.Sleep(2 * blocks)
				select {
				case <-c.done:
					t.Fatalf("two clients hold %s: %v", at, theirs.Err())
				default:
				}
				require.NoError(t, theirs.Err())
				release(t, theirs)
				h := c.granted(t)
				require.NoError(t, h.Err())
				require.Greater(t, h.Holds()[1].Token(), theirs.Token(), "I1")
				v.areHeld(h)
				require.NoError(t, h.Release(within(t, soon)))
				require.Equal(t, [4]int{}, v.nodes(), "I4")
			})
		})
	}
}
