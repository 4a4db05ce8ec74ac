package zklock_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
)

// outages are the ways in which the servers do not answer, from one moment on and for ever.
var outages = []struct {
	name   string
	strike func(v *virtual, l *line)
}{
	{"the line is silent", func(_ *virtual, l *line) { l.silent.Store(true) }},
	{"the server has stopped", func(v *virtual, _ *line) { v.srv.Stop() }},
	{"the server hangs", func(v *virtual, _ *line) { v.srv.Freeze() }},
}

// dialsEndSoon bounds how long Close waits for the test's dialer, which nothing can break off.
var dialsEndSoon = zklock.WithHandshakeTimeout(time.Second)

// R66, R70, F44, I6: the servers are dead, and the context of the Release never ends, as in the README's first example.
// Release ends with the lease that the hold had, and says that it is not confirmed. It is not a loss: the lock was held
// until then, whatever becomes of the session meanwhile. Then Close is reached, and ends by itself too.
func TestVirtual_ServersDead_ReleaseEndsWithTheLease(t *testing.T) {
	for _, outage := range outages {
		for _, otherHold := range []bool{false, true} { // it ends the session when the lease ends
			for _, endOnSuspend := range []bool{false, true} {
				for _, left := range []time.Duration{20 * time.Second, 2860 * time.Millisecond, 100 * time.Millisecond} {
					name := fmt.Sprintf("%s/another hold %v/end on suspend %v/%v", outage.name, otherHold, endOnSuspend, left)
					t.Run(name, func(t *testing.T) {
						inVirtualTime(t, func(t *testing.T, v *virtual) {
							line := &line{dial: v.net.Dial}
							opts := []zklock.Option{zklock.WithDialer(line.Dial), zklock.WithSessionTimeout(30 * time.Second), dialsEndSoon}
							if endOnSuspend {
								opts = append(opts, zklock.WithEndOnSuspend())
							}
							s := v.connect(opts...)
							h := acquire(t, newMutex(t, s, "/job"))
							var other *zklock.Hold
							if otherHold {
								other = acquire(t, newMutex(t, s, "/other"))
							}
							time.Sleep(20 * time.Second)
							outage.strike(v, line)
							time.Sleep(time.Until(h.Deadline()) - left)
							synctest.Wait()
							lost := isLost(h)
							require.True(t, !lost || endOnSuspend)
							deadline, begun := h.Deadline(), time.Now()
							ctx, cancel := context.WithCancel(context.Background())
							defer cancel()
							err := releaseEnds(t, h, context.WithoutCancel(ctx))
							require.False(t, time.Now().After(whicheverIsLater(deadline, begun.Add(grace)).Add(50*time.Millisecond)), "I6: took %v", time.Since(begun))
							if lost {
								require.ErrorIs(t, err, zklock.ErrLost)
							} else {
								require.ErrorIs(t, err, zklock.ErrNotConfirmed)
								require.NotErrorIs(t, err, zklock.ErrLost, "R70: it was held when the release began")
								require.ErrorIs(t, h.Err(), zklock.ErrNotHeld)
							}
							if otherHold {
								time.Sleep(time.Second)
								require.ErrorIs(t, other.Err(), zklock.ErrLost)
							}
							begun = time.Now()
							require.NoError(t, s.Close())
							require.LessOrEqual(t, time.Since(begun), 4*time.Second)
							line.silent.Store(false)
							v.srv.Thaw()
						})
					})
				}
			}
		}
	}
}

// releaseEnds returns what a Release says that is due to end by itself.
func releaseEnds(t *testing.T, h *zklock.Hold, ctx context.Context) error {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- h.Release(ctx) }()
	select {
	case err := <-done:
		return err
	case <-time.After(5 * time.Minute):
		t.Fatal("I6: Release has not ended after five minutes")
		return nil
	}
}

// grace is what a call takes after its end, at the most (I6).
const grace = 500 * time.Millisecond

func whicheverIsLater(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// R66, I4: what Release did not see confirmed goes on: when the servers are back, the node is deleted, and the session
// lives. A context that ends earlier than the lease is told, with its cause.
func TestVirtual_ReleaseNotConfirmed_GoesOnInTheBackground(t *testing.T) {
	stop := errors.New("enough")
	for _, ends := range []bool{false, true} {
		inVirtualTime(t, func(t *testing.T, v *virtual) {
			line := &line{dial: v.net.Dial}
			s := v.connect(zklock.WithDialer(line.Dial), zklock.WithSessionTimeout(30*time.Second))
			m := newMutex(t, s, "/job")
			h := acquire(t, m)
			id := s.SessionID()
			ctx, cancel := context.WithCancelCause(context.Background())
			defer cancel(nil)
			time.Sleep(20 * time.Second)
			line.silent.Store(true)
			time.Sleep(time.Until(h.Deadline()) - time.Second)
			begun := time.Now()
			if ends {
				cancel(stop)
			}
			err := releaseEnds(t, h, ctx)
			require.ErrorIs(t, err, zklock.ErrNotConfirmed)
			require.Equal(t, ends, errors.Is(err, context.Canceled))
			require.Equal(t, ends, errors.Is(err, stop))
			if ends {
				require.LessOrEqual(t, time.Since(begun), grace)
			}
			require.NotEmpty(t, v.srv.Children("/job"), "or this shows nothing")
			line.silent.Store(false)
			v.srv.DropConnection(id) // its stream has lost bytes
			next := acquire(t, newMutex(t, v.connect(), "/job"))
			require.Greater(t, next.Token(), h.Token())
			require.Equal(t, id, s.SessionID(), "nothing was held: the session need not end")
			release(t, next)
		})
	}
}

// R70: a Release that began within the lease, while another hold's lease ends the session under it.
func TestVirtual_ReleaseWhileAnotherHoldIsLost_IsNoLoss(t *testing.T) {
	for _, left := range []time.Duration{2860 * time.Millisecond, 300 * time.Millisecond} {
		inVirtualTime(t, func(t *testing.T, v *virtual) {
			line := &line{dial: v.net.Dial}
			s := v.connect(zklock.WithDialer(line.Dial))
			h, other := acquire(t, newMutex(t, s, "/job")), acquire(t, newMutex(t, s, "/other"))
			time.Sleep(20 * time.Second)
			line.silent.Store(true)
			time.Sleep(time.Until(h.Deadline()) - left)
			require.NoError(t, h.Err())
			err := releaseEnds(t, h, context.Background())
			require.NotErrorIs(t, err, zklock.ErrLost)
			require.ErrorIs(t, err, zklock.ErrNotConfirmed)
			time.Sleep(10 * time.Millisecond)
			require.True(t, isLost(other), "or this shows nothing")
			line.silent.Store(false)
		})
	}
}

// R66, F21: the machine sleeps while a Release waits. After it, Release sees by the session's clock that its time is up.
func TestVirtual_SuspendDuringRelease_EndsSoonAfter(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		var asleep atomic.Int64
		line := &line{dial: v.net.Dial}
		s := v.connect(zklock.WithDialer(line.Dial), zklock.WithSessionTimeout(30*time.Second),
			zklock.WithSuspendedTime(func() time.Duration { return time.Duration(asleep.Load()) }))
		h := acquire(t, newMutex(t, s, "/job"))
		time.Sleep(20 * time.Second)
		line.silent.Store(true)
		require.Greater(t, time.Until(h.Deadline()), 15*time.Second)
		begun := time.Now()
		time.AfterFunc(time.Second, func() { asleep.Add(int64(time.Minute)) })
		err := releaseEnds(t, h, context.Background())
		require.LessOrEqual(t, time.Since(begun), time.Second+3*time.Second, "I6: more than a heartbeat: its timer slept with the machine")
		require.ErrorIs(t, err, zklock.ErrNotConfirmed)
		require.NotErrorIs(t, err, zklock.ErrLost)
		line.silent.Store(false)
	})
}

// F44, I6: the other calls wait for a server as long as their context lasts, which may be for ever, and say so in their
// docs: they end with it and a grace, or with Close, which ends by itself.
func TestVirtual_ServersDead_CallsEndWithTheirContextOrClose(t *testing.T) {
	for _, outage := range outages {
		for _, closes := range []bool{false, true} {
			inVirtualTime(t, func(t *testing.T, v *virtual) {
				line := &line{dial: v.net.Dial}
				s := v.connect(zklock.WithDialer(line.Dial), dialsEndSoon)
				m := newMutex(t, s, "/job")
				held := acquire(t, newMutex(t, v.connect(), "/other"))
				outage.strike(v, line)
				ctx, cancel := context.WithCancel(context.Background())
				defer cancel()
				type result struct {
					err error
					at  time.Time
				}
				begin := func(call func() error) <-chan result {
					done := make(chan result, 1)
					go func() { err := call(); done <- result{err, time.Now()} }()
					return done
				}
				waiting := map[string]<-chan result{
					"Acquire":      begin(func() error { _, err := m.Acquire(ctx); return err }),
					"TryAcquire":   begin(func() error { _, err := m.TryAcquire(ctx); return err }),
					"Participants": begin(func() error { _, err := m.Participants(ctx); return err }),
					"Do":           begin(func() error { return m.Do(ctx, func(context.Context) error { panic("not held") }) }),
				}
				time.Sleep(time.Minute) // or a connection that is lost ends it: the message may or may not be written
				waiting["Revoke"] = begin(func() error { return zklock.Revoke(ctx, s, held.Path()) })
				time.Sleep(time.Minute)
				for name, done := range waiting {
					require.Empty(t, done, "%s: here nothing ends the wait", name)
				}

				ended, want, bound := time.Now(), context.Canceled, grace
				if closes {
					want, bound = zklock.ErrClosed, 4*time.Second
					require.NoError(t, s.Close())
					require.LessOrEqual(t, time.Since(ended), bound)
				} else {
					cancel()
				}
				for name, done := range waiting {
					r := <-done
					require.ErrorIs(t, r.err, want, name)
					require.LessOrEqual(t, r.at.Sub(ended), bound, name)
				}
				line.silent.Store(false)
				v.srv.Thaw()
			})
		}
	}
}
