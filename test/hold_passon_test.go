package zklock_test

// These tests end a round of WithPassOn from outside: by a loss, by Close and by a revocation.

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
)

// F24, I5: the node is deleted in turn 2, while ten callers wait. The turn is lost. The other
// callers get no error, and are granted in their order, after a Session that had queued before.
func TestVirtual_PassOn_LossInTurn2_OthersQueueAgain(t *testing.T) {
	for how, lose := range map[string]func(v *virtual, r *round){
		"its node is deleted": func(v *virtual, r *round) { require.NoError(v.t, v.srv.Delete(r.hold.Node())) },
		"its session expires": func(v *virtual, _ *round) {
			for _, s := range v.srv.Sessions() {
				if len(s.Ephemerals) > 0 {
					v.srv.ExpireSession(s.ID)
					return
				}
			}
		},
	} {
		t.Run(how, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, v *virtual) {
				r := v.round(100, time.Hour, 11)
				other := v.connect()
				release(t, r.hold)
				second := r.next[0].granted2(t, time.Millisecond)
				lose(v, r)
				lostWithin(t, second, 20*time.Second)
				require.ErrorIs(t, second.Err(), zklock.ErrLost)
				last, token := r.next[1].granted2(t, time.Minute), second.Token()
				require.ErrorIs(t, second.Release(t.Context()), zklock.ErrLost)
				require.Greater(t, last.Token(), token)
				require.Equal(t, 2, r.granted(), "I1: the release of a lost turn passed the lock on")
				w := v.queueUp(newMutex(t, other, "/job"))
				for i, next := range r.next[2:] {
					release(t, last)
					last = next.granted2(t, time.Millisecond)
					require.Equal(t, i+1, last.Turn())
				}
				release(t, last)
				release(t, w.granted2(t, time.Second))
			})
		})
	}
}

// A loss in turn 2 with a Session that waits: that Session is granted next, and the callers of the
// lost round after it.
func TestVirtual_PassOn_Loss_OthersQueueBehindOtherSessions(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		r := v.round(100, time.Hour, 2)
		w := v.queueUp(newMutex(t, v.connect(), "/job"))
		release(t, r.hold)
		require.NoError(t, v.srv.Delete(r.hold.Node()))
		h := w.granted2(t, 20*time.Second)
		lostWithin(t, r.next[0].granted2(t, time.Millisecond), 20*time.Second)
		require.Equal(t, 1, r.granted())
		release(t, h)
		require.Zero(t, r.next[1].granted2(t, time.Second).Turn())
	})
}

// Close ends the callers that wait, like all other callers.
func TestVirtual_PassOn_Close_EndsTheWaiters(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		s := v.connect()
		m := newMutex(t, s, "/job", zklock.WithPassOn(100, time.Hour))
		h := acquire(t, m)
		var all []*waiting
		for range 5 {
			all = append(all, v.queueUp(m))
		}
		require.Equal(t, zklock.Stats{Waiting: 5, Held: 1}, onlyCalls(s.Stats()))
		require.NoError(t, s.Close())
		require.ErrorIs(t, h.Err(), zklock.ErrClosed)
		for _, w := range all {
			_, err := w.get(t)
			require.ErrorIs(t, err, zklock.ErrClosed)
		}
	})
}

func onlyCalls(s zklock.Stats) zklock.Stats { return zklock.Stats{Waiting: s.Waiting, Held: s.Held} }

// A revocation ends the round with the turn that runs.
func TestVirtual_PassOn_Revoked_EndsTheRound(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		asked := make(chan *zklock.Hold, 1)
		r := v.round(100, time.Hour, 2, zklock.WithRevocation(func(h *zklock.Hold) { asked <- h }))
		other := v.connect()
		w := v.queueUp(newMutex(t, other, "/job"))
		release(t, r.hold)
		second := r.next[0].granted2(t, time.Millisecond)
		synctest.Wait()
		require.NoError(t, other.Revoke(t.Context(), second.Node()))
		require.Same(t, second, <-asked)
		release(t, second)
		h := w.granted2(t, time.Second)
		require.Equal(t, 1, r.granted(), "I1")
		release(t, h)
		require.Zero(t, r.next[1].granted2(t, time.Second).Turn())
	})
}

// F47: a crash in turn 2 delays the next client, and a release of turn 2 does not.
func TestVirtual_PassOn_LockDelay(t *testing.T) {
	for name, crash := range map[string]bool{"crash": true, "release": false} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, v *virtual) {
				r := v.round(100, time.Hour, 1, zklock.WithLockDelay(lockDelay))
				release(t, r.hold)
				second := r.next[0].granted2(t, time.Millisecond)
				require.Equal(t, "held="+base(second.Node()), v.record())
				w := v.queueUp(newMutex(t, v.connect(), "/job", zklock.WithLockDelay(lockDelay)))
				gone := time.Now()
				if crash {
					require.NoError(t, v.srv.Delete(second.Node()))
				} else {
					release(t, second)
				}
				release(t, w.granted2(t, 2*lockDelay))
				require.Equal(t, crash, w.at.Sub(gone) >= lockDelay)
			})
		})
	}
}
