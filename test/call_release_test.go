package zklock_test

// These tests attack Release: it ends in time, returns its result, and the node is deleted (I4,
// I6).

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/internal/zkserver"
	"github.com/zklock/zklock/zktest"
)

// outages are the ways in which the servers stop responding permanently, from one moment on.
var outages = []struct {
	name   string
	strike func(v *virtual, l *line)
}{
	{"the line is silent", func(_ *virtual, l *line) { l.silent.Store(true) }},
	{"the server has stopped", func(v *virtual, _ *line) { v.srv.Stop() }},
	{"the server hangs", func(v *virtual, _ *line) { v.srv.Freeze() }},
}

// R66, R70, F44, I6: the servers are dead, and the context of the Release never ends. Release ends
// with the lease that the hold had, and returns ErrNotConfirmed. It is not a loss: the lock was
// held until then, whatever happens to the session meanwhile. Close, which follows, also ends by
// itself.
func TestVirtual_ServersDead_ReleaseEndsWithTheLease(t *testing.T) {
	for _, outage := range outages {
		for _, otherHold := range []bool{false, true} { // it ends the session when the lease ends
			for _, left := range []time.Duration{20 * time.Second, 2860 * time.Millisecond, 100 * time.Millisecond} {
				name := fmt.Sprintf("%s/another hold %v/%v", outage.name, otherHold, left)
				t.Run(name, func(t *testing.T) {
					inVirtualTime(t, func(t *testing.T, v *virtual) {
						line := &line{dial: v.net.Dial, patience: time.Second}
						s := v.connect(zklock.WithDialer(line.Dial), zklock.WithSessionTimeout(30*time.Second))
						h := acquire(t, newMutex(t, s, "/job"))
						var other *zklock.Hold
						if otherHold {
							other = acquire(t, newMutex(t, s, "/other"))
						}
						time.Sleep(20 * time.Second)
						outage.strike(v, line)
						time.Sleep(time.Until(h.Deadline()) - left)
						synctest.Wait()
						require.False(t, isLost(h))
						deadline, begun := h.Deadline(), time.Now()
						ctx, cancel := context.WithCancel(context.Background())
						defer cancel()
						err := releaseEnds(t, h, context.WithoutCancel(ctx))
						require.False(t, time.Now().After(whicheverIsLater(deadline, begun.Add(grace)).Add(50*time.Millisecond)), "I6: took %v", time.Since(begun))
						require.ErrorIs(t, err, zklock.ErrNotConfirmed)
						require.NotErrorIs(t, err, zklock.ErrLost, "R70: it was held when the release began")
						require.ErrorIs(t, h.Err(), zklock.ErrNotHeld)
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

// releaseEnds returns the error of a Release that must end by itself.
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

// grace is the most that a call takes after its context has ended (I6).
const grace = 500 * time.Millisecond

func whicheverIsLater(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// R1, R27, R28, R66, I4: an unconfirmed Release continues in the background: when the servers are
// back, the node is deleted, and the session lives. If the context ended before the lease, the
// error has its cause.
func TestVirtual_ReleaseNotConfirmed_GoesOnInTheBackground(t *testing.T) {
	stop := errors.New("enough")
	for _, ends := range []bool{false, true} {
		inVirtualTime(t, func(t *testing.T, v *virtual) {
			line := &line{dial: v.net.Dial}
			s := v.connect(zklock.WithDialer(line.Dial), zklock.WithSessionTimeout(30*time.Second))
			m := newMutex(t, s, "/job")
			h := acquire(t, m)
			id := s.Stats().SessionID
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
			require.False(t, m.Held(), "R1")
			require.NotEmpty(t, v.srv.Children("/job"), "or this shows nothing")
			line.silent.Store(false)
			v.srv.DropConnection(id) // its stream has lost bytes
			next := acquire(t, newMutex(t, v.connect(), "/job"))
			require.Greater(t, next.Token(), h.Token())
			require.Equal(t, id, s.Stats().SessionID, "nothing was held: the session need not end")
			release(t, next)
		})
	}
}

// R70: a Release began within the lease, and another hold's lease then ends the session.
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

// F44, I6: all other calls wait for a server as long as their context lasts, which may be
// indefinitely, as documented. They end with their context and a grace, or with Close, which ends
// by itself.
func TestVirtual_ServersDead_CallsEndWithTheirContextOrClose(t *testing.T) {
	for _, outage := range outages {
		for _, closes := range []bool{false, true} {
			inVirtualTime(t, func(t *testing.T, v *virtual) {
				line := &line{dial: v.net.Dial, patience: time.Second}
				s := v.connect(zklock.WithDialer(line.Dial))
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
					"Participants": begin(func() error { _, err := m.Participants(ctx); return err }),
					"Do":           begin(func() error { return m.Do(ctx, func(context.Context, *zklock.Hold) error { panic("not held") }) }),
				}
				began, try := time.Now(), <-begin(func() error { _, err := m.TryAcquire(ctx); return err })
				require.ErrorIs(t, try.err, zklock.ErrNotConnected)
				require.LessOrEqual(t, try.at.Sub(began), 2*time.Second, "two heartbeats")
				time.Sleep(time.Minute) // or a connection that is lost ends it: the message may or may not be written
				waiting["Revoke"] = begin(func() error { return s.Revoke(ctx, held.Node()) })
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

// F9: the session expires during the release: nil or ErrLost, and no other client's node is
// touched.
func TestRelease_SessionExpires(t *testing.T) {
	t.Parallel()
	srv := target(t)
	a, p := admin(t, srv), lockPath(t, srv)
	proxy := zktest.StartProxy(t, srv)
	s := connect(t, proxy.Addr())
	h := acquire(t, newMutex(t, s, p))
	old := s.Stats().SessionID
	proxy.Inject(zktest.Before(zktest.Delete).Path(h.Node()).Once().Close())
	refused := proxy.Inject(zktest.RefuseConnections())
	done := make(chan error, 1)
	go func() { done <- h.Release(within(t, soon)) }()
	eventually(t, "it is suspended", func() bool { return s.Stats().State == zklock.StateSuspended })
	require.NoError(t, zkserver.ExpireSession(srv, old))
	other := acquire(t, newMutex(t, connect(t, srv), p))
	require.NoError(t, refused.Wait(within(t, soon)))
	refused.Remove()
	require.NoError(t, <-done, "held until the release, and free")
	require.Equal(t, []string{base(other.Node())}, children(t, a, p))
	release(t, other)
}

// R28, R63: a release in a context that has ended still releases.
func TestRelease_ContextEnded_DeletesAllTheSame(t *testing.T) {
	srv := target(t)
	a, p := admin(t, srv), lockPath(t, srv)
	h := acquire(t, newMutex(t, connect(t, srv), p))
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	require.NoError(t, h.Release(ctx))
	require.Empty(t, children(t, a, p))
}

// R25, I4: a delete with an unclear error is tried again until the node is deleted.
func TestVirtual_DeleteFails_IsTriedAgain(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		h := acquire(t, newMutex(t, v.connect(), "/job"))
		v.srv.Inject(zktest.Before(zktest.Delete).Path("/job/*").Fail(zktest.OperationTimeout).Times(3))
		release(t, h)
		require.Empty(t, v.srv.Children("/job"))
	})
}

// F10: the response to the delete is lost. NoNode is then our own deletion, and not a loss.
func TestVirtual_ReplyToDeleteLost_ReleaseSucceeds(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		h := acquire(t, newMutex(t, v.connect(), "/job"))
		v.srv.Inject(zktest.After(zktest.Delete).Path("/job/*").DropReply().Close().Once())
		release(t, h)
		require.Empty(t, v.srv.Children("/job"))
	})
}

// R27, F24: NoNode at the first try means that another client deleted the node. The critical
// section may have been violated, and Release reports that.
func TestVirtual_NodeDeletedBeforeTheRelease_IsLost(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		h := acquire(t, newMutex(t, v.connect(), "/job"))
		require.NoError(t, v.srv.Delete(h.Node()))
		require.ErrorIs(t, h.Release(within(t, soon)), zklock.ErrLost)
	})
}

// R25, I4, I7: for ten minutes the servers cannot delete. The clean-up backs off, accumulates
// nothing, and succeeds in the end.
func TestVirtual_DeleteFailsForLong_BacksOff(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		h := acquire(t, newMutex(t, v.connect(), "/job"))
		outage := v.srv.Inject(zktest.Before(zktest.Delete).Fail(zktest.OperationTimeout))
		before := runtime.NumGoroutine()
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		require.ErrorIs(t, h.Release(ctx), context.DeadlineExceeded)
		v.srv.ResetRequests()
		time.Sleep(10 * time.Minute)
		require.LessOrEqual(t, v.srv.Requests().Total(zktest.Delete), 130, "R25: one in 5 s at the most, once it has backed off")
		atMost(t, before+4, "I7")
		outage.Remove()
		time.Sleep(6 * time.Second)
		require.Empty(t, v.srv.Children("/job"), "I4")
	})
}

// R49: while one lock's clean-up backs off, another lock is handed over at once on the same
// Session: no goroutine that handles events sleeps.
func TestVirtual_DeleteBacksOff_OtherLocksGoOn(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		s := v.connect()
		stuck := v.srv.Inject(zktest.Before(zktest.Delete).Path("/job/*").Fail(zktest.OperationTimeout))
		h := acquire(t, newMutex(t, s, "/job"))
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		require.ErrorIs(t, h.Release(ctx), context.DeadlineExceeded)
		other := newMutex(t, s, "/other")
		for range 20 {
			h := acquire(t, newMutex(t, v.connect(), "/other"))
			w := v.queueUp(other)
			time.Sleep(700 * time.Millisecond)
			start := time.Now()
			release(t, h)
			release(t, w.granted2(t, time.Minute))
			require.Less(t, time.Since(start), 100*time.Millisecond)
		}
		stuck.Remove()
		time.Sleep(6 * time.Second)
		require.Empty(t, v.srv.Children("/job"))
	})
}

// I6: the Session is closed while a release, or a try that deletes its node, waits for the servers.
// Both return at once.
func TestVirtual_CloseDuringTheDelete_ComesBackAtOnce(t *testing.T) {
	for _, try := range []bool{false, true} {
		inVirtualTime(t, func(t *testing.T, v *virtual) {
			v.net.SetLatency(time.Millisecond)
			s := v.connect()
			m := newMutex(t, s, "/job")
			h := acquire(t, m)
			held := v.srv.Inject(zktest.Before(zktest.Delete).Session(s.Stats().SessionID).Hold().Once())
			done := make(chan error, 1)
			go func() {
				if try {
					_, err := m.TryAcquire(within(t, soon))
					done <- err
				} else {
					done <- h.Release(within(t, soon))
				}
			}()
			require.NoError(t, held.Wait(t.Context()))
			synctest.Wait()
			start := time.Now()
			go s.Close()
			err := <-done
			require.Less(t, time.Since(start), 10*time.Millisecond)
			if !try {
				require.ErrorIs(t, err, zklock.ErrNotConfirmed)
				require.ErrorIs(t, err, zklock.ErrClosed)
			}
			held.Release()
		})
	}
}
