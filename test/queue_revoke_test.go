package zklock_test

// These tests ask a holder to give way.

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/zktest"
)

// WithRevocation and Revoke: Curator's makeRevocable.
func TestRevocation(t *testing.T) {
	srv := target(t)
	p := lockPath(t, srv)
	asked := make(chan *zklock.Hold, 2)
	s := connect(t, srv)
	m := newMutex(t, s, p, zklock.WithRevocation(func(h *zklock.Hold) { asked <- h }))
	plain := newMutex(t, s, p)
	other := connect(t, srv)
	for range 2 {
		h := acquire(t, m)
		require.NoError(t, other.Revoke(within(t, soon), h.Node()))
		select {
		case got := <-asked:
			require.Same(t, h, got)
		case <-time.After(soon):
			t.Fatal("the holder was not asked")
		}
		require.NoError(t, h.Err(), "asking takes nothing away")
		release(t, h)

		// The release of the first handle does not end the listening: the hold continues, also
		// through a Mutex without the option.
		h = acquire(t, m)
		again, err := plain.Acquire(reentering(h))
		require.NoError(t, err)
		release(t, h)
		require.NoError(t, other.Revoke(within(t, soon), again.Node()))
		select {
		case got := <-asked:
			require.Same(t, again, got)
		case <-time.After(soon):
			t.Fatal("the holder was not asked")
		}
		release(t, again)
		require.NoError(t, other.Revoke(within(t, soon), h.Node()), "a node that is gone is no error")
	}
}

// F55: the function of WithRevocation panics. That is logged with the node, once for each hold that
// is asked, and the holds stay.
func TestVirtual_Revocation_Panics_IsLogged_AndTheHoldStays(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		var log warnings
		s, other := v.connect(lines(&log, slog.LevelError)), v.connect()
		var want []string
		for i := range 3 {
			path := fmt.Sprintf("/job/%d", i)
			h := acquire(t, newMutex(t, s, path, zklock.WithRevocation(func(h *zklock.Hold) { panic("asked " + path) })))
			synctest.Wait()
			for range 2 {
				require.NoError(t, other.Revoke(within(t, soon), h.Node()))
			}
			synctest.Wait()
			require.NoError(t, h.Err())
			want = append(want, "path="+path+" node="+h.Node()+` panic="asked `+path+`"`)
			release(t, h)
		}
		log.once(t, "zklock: the function of WithRevocation panicked", want...)
		for _, logged := range log.of("zklock: the function of WithRevocation panicked") {
			require.Contains(t, logged, "queue_revoke_test.go", "the stack")
		}
	})
}

// R75: a message that may not be written is an error.
func TestVirtual_Revoke_ContextsCauseIsNoAnswer(t *testing.T) {
	endsWithAnAnswersError(t, zktest.Before(zktest.SetData).Hold(), func(ctx context.Context, v *virtual, h *zklock.Hold) error {
		return v.connect().Revoke(ctx, h.Node())
	})
}

// The message replaces the data of the node. A lock's root, with the record of a lock-delay in it,
// or a foreign node is rejected before any request.
func TestVirtual_Revoke_OnlyALockNode(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		s := v.connect()
		m := newMutex(t, s, "/job", zklock.WithLockDelay(time.Minute))
		release(t, acquire(t, m))
		_, err := v.srv.Create("/config", []byte("theirs"), 0)
		require.NoError(t, err)
		v.srv.ResetRequests()
		for _, node := range []string{m.Path(), "/config", "/job/locks", "/job/lock-000000001"} {
			err := s.Revoke(within(t, soon), node)
			require.ErrorContains(t, err, "is no lock node", node)
			require.True(t, zklock.IsFinal(err))
		}
		require.Zero(t, v.srv.Requests().Total(zktest.SetData))
		release(t, acquire(t, m))
	})
}

// One message asks one hold: read locks that are taken later under the same write hold have the
// same node, with the message in it. The next message asks the present hold, even if it arrives
// while the writer does not read.
func TestVirtual_Revocation_AsksOnce_AlsoOfReadsUnderOneWriteHold(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		asked := make(chan *zklock.Hold, 10)
		m := newRWMutex(t, v.connect(), "/job", zklock.WithRevocation(func(h *zklock.Hold) { asked <- h }))
		other := v.connect()
		w := acquire(t, m.WriteLock())
		r := acquireIn(t, w.Context(), m.ReadLock())
		was := func(want ...*zklock.Hold) {
			t.Helper()
			time.Sleep(time.Minute + time.Second/7) // with no heartbeat on its way, which would miss the node that is deleted below
			require.Len(t, asked, len(want))
			for _, h := range want {
				require.Same(t, h, <-asked)
			}
		}
		revoke := func(h *zklock.Hold) { require.NoError(t, other.Revoke(within(t, soon), h.Node())) }
		revoke(r)
		was(r)
		for range 3 {
			release(t, r)
			r = acquireIn(t, w.Context(), m.ReadLock())
			was()
		}
		revoke(r)
		was(r)
		release(t, r)
		revoke(r)
		r = acquireIn(t, w.Context(), m.ReadLock())
		was(r)
		revoke(w)
		was(w)
		release(t, r)
		require.NoError(t, v.srv.Delete(r.Node())) // the next read recreates it
		r = acquireIn(t, w.Context(), m.ReadLock())
		was()
		revoke(r)
		was(r)
		release(t, r)
		release(t, w)
		require.Empty(t, v.srv.Watches(), "I7")
	})
}
