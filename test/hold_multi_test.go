package zklock_test

// These tests end one of a Multi's holds: the first loss ends the whole hold, and each member's
// error is reported.

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

// A lock that is lost during the wait for the next one ends the wait at once, with its loss. No
// node is left.
func TestVirtual_Multi_LossWhileItWaits(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		other := acquire(t, newMutex(t, v.connect(), "/b"))
		m := newMulti(t, mutexes(t, v.connect(), "/a", "/b")...)
		c := startMulti(within(t, time.Hour), m)
		require.Len(t, v.srv.Children("/b"), 2)
		require.NoError(t, v.srv.Delete("/a/"+v.srv.Children("/a")[0]))
		<-c.done
		require.Less(t, c.took, 5*time.Second)
		require.Nil(t, c.hold)
		require.ErrorIs(t, c.err, zklock.ErrLost)
		require.NotErrorIs(t, c.err, context.Canceled, "the caller has cancelled nothing")
		require.Equal(t, 1, strings.Count(c.err.Error(), zklock.ErrLost.Error()), "%v", c.err)
		var e *zklock.Error
		require.ErrorAs(t, c.err, &e)
		require.Equal(t, "/a", e.Path)
		require.False(t, zklock.IsFinal(c.err))
		require.Equal(t, []string{base(other.Node())}, v.srv.Children("/b"), "I4")
		require.Empty(t, v.srv.Children("/a"), "I4")
		release(t, other)
	})
}

// I5: when the last lock is granted, another one may be past its lease, and no timer has run.
// Acquire checks all.
func TestVirtual_Multi_LossSeenAtTheGrant(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		var asleep suspension
		other := acquire(t, newMutex(t, v.connect(), "/b"))
		m := newMulti(t, newMutex(t, v.hooked(asleep.hooks()), "/a"), newMutex(t, v.connect(), "/b"))
		c := startMulti(within(t, time.Hour), m)
		time.Sleep(5 * time.Second)
		asleep.Add(int64(20 * time.Second))
		release(t, other)
		<-c.done
		require.ErrorIs(t, c.err, zklock.ErrLost)
		require.NotErrorIs(t, c.err, context.Canceled)
		require.Empty(t, v.srv.Children("/b"), "I4")
	})
}

// I5: the machine sleeps between two locks of a Multi, past the lease of a hold in another Session.
// No node is created for the next lock.
func TestVirtual_Multi_SuspendBetweenItsLocks_CreatesNothingMore(t *testing.T) {
	for i := range 2 {
		inVirtualTime(t, func(t *testing.T, v *virtual) {
			var asleep [2]suspension
			sleeps := zklock.WithTrace(&zklock.Trace{AcquireStart: func(ctx context.Context, _ zklock.AcquireInfo) context.Context {
				asleep[i].Add(int64(20 * time.Second))
				return ctx
			}})
			_, err := newMulti(t, newMutex(t, v.hooked(asleep[0].hooks()), "/a"), newMutex(t, v.hooked(asleep[1].hooks()), "/b"),
				newMutex(t, v.connect(sleeps), "/c")).Acquire(within(t, time.Hour))
			require.ErrorIs(t, err, zklock.ErrLost)
			require.NotContains(t, creates(v.srv.History()), "/c")
		})
	}
}

// I5: the first check of a hold after a pause reports each of its leases: Err, Context, and the
// context of Do.
func TestVirtual_Multi_Suspend_IsLostAtTheFirstCheck(t *testing.T) {
	for name, look := range map[string]func(ctx context.Context, h *zklock.MultiHold) error{
		"Err":           func(_ context.Context, h *zklock.MultiHold) error { return h.Err() },
		"Context":       func(_ context.Context, h *zklock.MultiHold) error { return causeOf(h.Context()) },
		"Do's context":  func(ctx context.Context, _ *zklock.MultiHold) error { return causeOf(ctx) },
		"what it wraps": func(_ context.Context, h *zklock.MultiHold) error { return h.Holds()[0].Err() },
	} {
		inVirtualTime(t, func(t *testing.T, v *virtual) {
			var asleep suspension
			m := newMulti(t, newMutex(t, v.hooked(asleep.hooks()), "/a"), newMutex(t, v.connect(), "/b"), newMutex(t, v.connect(), "/c"))
			err := m.Do(within(t, time.Hour), func(ctx context.Context, h *zklock.MultiHold) error {
				time.Sleep(time.Minute)
				require.NoError(t, look(ctx, h), name)
				asleep.Add(int64(20 * time.Second))
				require.ErrorIs(t, look(ctx, h), zklock.ErrLost, name)
				require.ErrorContains(t, look(ctx, h), "/a", name)
				<-h.Context().Done()
				return nil
			})
			require.Equal(t, 1, strings.Count(err.Error(), zklock.ErrLost.Error()), "%v", err)
			require.Empty(t, v.srv.Children("/b"))
			require.Empty(t, v.srv.Children("/c"))
		})
	}
}

// R86: the first loss ends the contexts, with its path. Each member's error is in the errors of the
// release and of Do once; all other members are released.
func TestVirtual_Multi_ErrorsOfEachMember(t *testing.T) {
	for _, returns := range []error{nil, context.Canceled, errors.New("the work failed")} {
		inVirtualTime(t, func(t *testing.T, v *virtual) {
			m := newMulti(t, mutexes(t, v.connect(), "/a", "/b", "/c")...)
			err := m.Do(within(t, time.Hour), func(ctx context.Context, h *zklock.MultiHold) error {
				require.NoError(t, v.srv.Delete(h.Holds()[2].Node()))
				<-ctx.Done()
				require.ErrorContains(t, context.Cause(ctx), "hold /c")
				require.ErrorIs(t, h.Err(), zklock.ErrLost)
				require.NoError(t, v.srv.Delete(h.Holds()[0].Node()))
				<-h.Holds()[0].Lost()
				require.ErrorContains(t, h.Err(), "hold /c", "it was the first")
				return returns
			})
			require.Equal(t, 2, strings.Count(err.Error(), zklock.ErrLost.Error()), "%v", err)
			for _, p := range []string{" /a ", " /c "} {
				require.Equal(t, 1, strings.Count(err.Error(), p), "%v", err)
			}
			if returns != nil && returns != context.Canceled {
				require.ErrorIs(t, err, returns)
			}
			require.Empty(t, v.srv.Children("/b"))

			h, err := m.Acquire(within(t, time.Hour))
			require.NoError(t, err)
			for _, i := range []int{0, 1} {
				require.NoError(t, v.srv.Delete(h.Holds()[i].Node()))
				<-h.Holds()[i].Lost()
			}
			err = h.Release(within(t, soon))
			require.ErrorIs(t, err, zklock.ErrLost)
			require.ErrorContains(t, err, "release /a")
			require.ErrorContains(t, err, "release /b")
			require.NotContains(t, err.Error(), "/c")
			require.ErrorIs(t, h.Err(), zklock.ErrLost)
			require.Empty(t, v.srv.Children("/c"))
		})
	}
}

// F50: locks of two ensembles are taken together. The end of one session ends the hold, and the
// error has its path.
func TestVirtual_Multi_TwoEnsembles(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		west := zktest.Start(t, zktest.WithNetwork(v.net))
		east, far := v.connect(), connect(t, west.Addr(), zklock.WithDialer(v.net.Dial))
		m := newMulti(t, newMutex(t, far, "/west/job"), newMutex(t, east, "/east/job"))
		h, err := m.Acquire(within(t, time.Hour))
		require.NoError(t, err)
		require.Equal(t, []string{"/east/job", "/west/job"}, holdPaths(h.Holds()))
		require.Len(t, v.srv.Children("/east/job"), 1)
		require.Len(t, west.Children("/west/job"), 1)
		require.True(t, west.ExpireSession(far.Stats().SessionID))
		<-h.Context().Done()
		require.ErrorContains(t, h.Err(), "hold /west/job")
		require.NoError(t, h.Holds()[0].Err())
		err = h.Release(within(t, soon))
		require.ErrorIs(t, err, zklock.ErrLost)
		require.NotContains(t, err.Error(), "/east")
		require.Empty(t, v.srv.Children("/east/job"))

		_, err = zklock.NewMulti(newMutex(t, far, "/job"), newMutex(t, east, "/job"))
		require.ErrorContains(t, err, "give each a path of its own")
	})
}

// The end of a Session ends the hold.
func TestVirtual_Multi_SessionClosed(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		s := v.connect()
		m := newMulti(t, newMutex(t, v.connect(), "/a"), newMutex(t, s, "/b"))
		h, err := m.Acquire(within(t, time.Hour))
		require.NoError(t, err)
		require.NoError(t, s.Close())
		<-h.Context().Done()
		require.ErrorIs(t, h.Err(), zklock.ErrClosed)
		require.ErrorIs(t, h.Release(within(t, soon)), zklock.ErrClosed)
		_, err = m.Acquire(within(t, soon))
		require.ErrorIs(t, err, zklock.ErrClosed)
		require.True(t, zklock.IsFinal(err))
		require.Empty(t, v.srv.Children("/a"), "I4")
	})
}

// causeOf calls Err first, which checks the clock.
func causeOf(ctx context.Context) error {
	if ctx.Err() == nil {
		return nil
	}
	return context.Cause(ctx)
}

// One Session receives nothing. The releases that the other one has confirmed are reported as
// confirmed.
func TestVirtual_Multi_ReleaseWithOneInTheDark(t *testing.T) {
	for name, limit := range map[string]time.Duration{"until the lease ends": time.Hour, "until the context ends": time.Second} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, v *virtual) {
				l := &line{dial: v.net.Dial}
				m := newMulti(t, newMutex(t, v.connect(), "/a"), newMutex(t, v.connect(zklock.WithDialer(l.Dial)), "/b"))
				h, err := m.Acquire(within(t, time.Hour))
				require.NoError(t, err)
				l.silent.Store(true)
				err = h.Release(within(t, limit))
				require.ErrorIs(t, err, zklock.ErrNotConfirmed)
				require.ErrorContains(t, err, "/b")
				require.NotContains(t, err.Error(), "release /a")
				require.Empty(t, v.srv.Children("/a"))
			})
		})
	}
}

// A writer may read under a Multi too. A wait for a hold of the path by a lock of another kind
// would be in vain.
func TestVirtual_Multi_UnderAWriter(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		s := v.connect()
		m := newRWMutex(t, s, "/job")
		w := acquire(t, m.WriteLock())
		x := acquireIn(t, w.Context(), newMutex(t, s, "/x"))
		h, err := newMulti(t, m.ReadLock()).Acquire(x.Context())
		require.NoError(t, err)
		require.NoError(t, h.Release(context.Background()))
		_, err = newMulti(t, newMutex(t, s, "/job")).Acquire(x.Context())
		require.ErrorContains(t, err, "take both in one Multi")
	})
}

// I5: one lock is released before the other ones. The channel reports the loss of another one, and
// so does its release.
func TestVirtual_Multi_OneReleasedByItself_TheLossOfAnotherIsReported(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		h, err := newMulti(t, mutexes(t, v.connect(), "/a", "/b", "/c")...).Acquire(within(t, time.Hour))
		require.NoError(t, err)
		release(t, h.Holds()[1])
		require.ErrorIs(t, h.Err(), zklock.ErrNotHeld)
		time.Sleep(time.Minute)
		last := h.Holds()[2]
		require.NoError(t, last.Err(), "a release is no loss")
		require.NoError(t, v.srv.Delete(last.Node()))
		select {
		case <-last.Lost():
		case <-time.After(5 * time.Second):
			t.Fatal("the holder was not notified of the loss of /c")
		}
		require.ErrorContains(t, h.Err(), "hold /b", "it was the first to end")
		err = h.Release(within(t, soon))
		require.ErrorIs(t, err, zklock.ErrLost)
		require.ErrorContains(t, err, "release /c")
		require.Empty(t, v.srv.Children("/a"), "I4")
	})
}
