package zklock_test

// These tests attack the check of a sequencer: whatever ended a hold, and whatever response is
// lost, a hold that has ended is never reported as valid (I1, F10, F12, F24, F26).

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/zktest"
)

// whyNot are the errors that a caller of CheckSequencer can distinguish.
var whyNot = []error{zklock.ErrNotHeld, zklock.ErrBadSequencer, zklock.ErrNotConnected, zklock.ErrClosed, context.Canceled, context.DeadlineExceeded}

// checks asks through a Session about a hold of the lock on path. want is the only one of whyNot
// that is returned, or nil if the hold is valid.
func checks(t testing.TB, s *zklock.Session, path string, q zklock.Sequencer, want error, what string) {
	t.Helper()
	err := s.CheckSequencer(within(t, soon), path, q.String())
	for _, e := range whyNot {
		require.Equal(t, e == want, errors.Is(err, e), "%s: %v", what, err)
	}
	require.Equal(t, want == nil, err == nil, "%s: %v", what, err)
}

// A hold of each kind is valid until it is released, also for another client's Session; data that
// other clients write into its node does not matter.
func TestCheckSequencer_EachKindOfHold(t *testing.T) {
	srv := target(t)
	a, p := admin(t, srv), lockPath(t, srv)
	s, resource := connect(t, srv), connect(t, srv)
	rw := newRWMutex(t, s, p+"/rw ä")
	one := func(path, mode string, m zklock.Lock) {
		t.Helper()
		h := acquire(t, m)
		q := h.Sequencer()
		require.Equal(t, zklock.Sequencer{Path: p + path, Root: q.Root, Shared: mode != "exclusive", Permits: q.Permits, Token: h.Token(), Node: q.Node}, q)
		parsed, err := zklock.ParseSequencer(q.String())
		require.NoError(t, err)
		require.Equal(t, q, parsed)
		require.Contains(t, q.String(), "&mode="+mode+"&")
		checks(t, resource, p+path, q, nil, mode)
		checks(t, s, p+path, q, nil, "through the holder's own Session")
		for _, op := range h.Checks() {
			_, err = a.Set(op.Path, []byte("somebody changed the data"), -1)
			require.NoError(t, err)
		}
		checks(t, resource, p+path, q, nil, "another version")
		checks(t, resource, p+"/other", q, zklock.ErrBadSequencer, "asked for another lock")
		release(t, h)
		checks(t, resource, p+path, q, zklock.ErrNotHeld, "released")
		require.Equal(t, q, h.Sequencer(), "as it was")
	}
	one("/mutex", "exclusive", newMutex(t, s, p+"/mutex"))
	one("/rw ä", "exclusive", rw.WriteLock())
	one("/rw ä", "shared", rw.ReadLock())
	one("/sem", "permits", newSemaphore(t, s, p+"/sem", 5).Permits(1))
	one("/sem", "permits", newSemaphore(t, s, p+"/sem", 5).Permits(3))

	for path, opts := range map[string][]zklock.ElectionOption{"/leader": nil, "/latch": {zklock.WithLatchNodes()}} {
		leads := false
		err := newElection(t, s, p+path, "a", opts...).Campaign(within(t, soon), func(_ context.Context, h *zklock.Hold) error {
			leads = true
			checks(t, resource, p+path, h.Sequencer(), nil, "a leader")
			return nil
		})
		require.NoError(t, err)
		require.True(t, leads)
	}
}

// A reader under its own writer has a node of its own, with the writer's token, in the writer's
// root.
func TestVirtual_CheckSequencer_WriterReads(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		resource, rw := v.connect(), newRWMutex(t, v.connect(), "/job")
		w := acquire(t, rw.WriteLock())
		r, err := rw.ReadLock().Acquire(w.Context())
		require.NoError(t, err)
		writes, reads := w.Sequencer(), r.Sequencer()
		require.Equal(t, zklock.Sequencer{Path: "/job", Root: writes.Root, Shared: true, Token: writes.Token, Node: r.Node()}, reads)
		checks(t, resource, "/job", reads, nil, "reads")
		release(t, w)
		checks(t, resource, "/job", writes, zklock.ErrNotHeld, "has written")
		checks(t, resource, "/job", reads, nil, "reads on")
		release(t, r)
		checks(t, resource, "/job", reads, zklock.ErrNotHeld, "has read")
	})
}

// F24, F8: whatever ends a hold, the check reports it, and for no other hold.
func TestVirtual_CheckSequencer_EachEnd(t *testing.T) {
	for end, f := range map[string]func(v *virtual, s *zklock.Session, h *zklock.Hold){
		"the session expires":   func(v *virtual, s *zklock.Session, _ *zklock.Hold) { v.srv.ExpireSession(s.Stats().SessionID) },
		"the session is closed": func(v *virtual, s *zklock.Session, _ *zklock.Hold) { _ = s.Close() },
		"somebody deletes the node": func(v *virtual, _ *zklock.Session, h *zklock.Hold) {
			require.NoError(v.t, v.srv.Delete(h.Node()))
		},
		"a release that is never confirmed": func(v *virtual, s *zklock.Session, h *zklock.Hold) {
			v.net.Partition(v.srv.Addr())
			require.ErrorIs(v.t, h.Release(context.Background()), zklock.ErrNotConfirmed)
			v.net.Heal(v.srv.Addr())
			time.Sleep(time.Minute)
		},
	} {
		t.Run(end, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, v *virtual) {
				v.t = t
				resource, s := v.connect(), v.connect()
				h := acquire(t, newMutex(t, s, "/job"))
				checks(t, resource, "/job", h.Sequencer(), nil, "before")
				f(v, s, h)
				checks(t, resource, "/job", h.Sequencer(), zklock.ErrNotHeld, end)
				next := acquire(t, newMutex(t, v.connect(), "/job"))
				checks(t, resource, "/job", h.Sequencer(), zklock.ErrNotHeld, "somebody else holds")
				checks(t, resource, "/job", next.Sequencer(), nil, "that one")
			})
		})
	}
}

// F24: one lease of several is deleted. The hold has ended, and the first lease still exists.
func TestVirtual_CheckSequencer_OneLeaseOfSeveralIsGone(t *testing.T) {
	for _, gone := range []int{0, 1, 2} {
		inVirtualTime(t, func(t *testing.T, v *virtual) {
			resource := v.connect()
			h := acquire(t, newSemaphore(t, v.connect(), "/sem", 5).Permits(3))
			checks(t, resource, "/sem", h.Sequencer(), nil, "before")
			require.NoError(t, v.srv.Delete(h.Checks()[gone].Path))
			checks(t, resource, "/sem", h.Sequencer(), zklock.ErrNotHeld, "a lease was deleted")
		})
	}
}

// F26: a deleted root, a recreated root and another ensemble each give an error other than that of
// a hold that has ended.
func TestVirtual_CheckSequencer_AnotherRoot(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		resource, m := v.connect(), newMutex(t, v.connect(), "/job")
		h := acquire(t, m)
		release(t, h)
		checks(t, resource, "/job", h.Sequencer(), zklock.ErrNotHeld, "the same root")
		require.NoError(t, v.srv.Delete("/job"))
		checks(t, resource, "/job", h.Sequencer(), zklock.ErrNotHeld, "no root")
		next := acquire(t, m) // creates it
		checks(t, resource, "/job", h.Sequencer(), zklock.ErrNotHeld, "made anew")
		checks(t, resource, "/job", next.Sequencer(), nil, "in the new one")

		other := zktest.Start(t, zktest.WithNetwork(v.net), zktest.WithZxid(1<<32))
		_, err := other.Create("/job", nil, 0)
		require.NoError(t, err)
		there := connect(t, other.Addr(), zklock.WithDialer(v.net.Dial))
		checks(t, there, "/job", next.Sequencer(), zklock.ErrNotHeld, "another ensemble")
	})
}

// The path is below the chroot of the Session that asks, and the sequencer has the whole path.
func TestVirtual_CheckSequencer_Chroot(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		s := connect(t, v.srv.Addr()+"/job", zklock.WithDialer(v.net.Dial))
		q := acquire(t, newMutex(t, s, "/lock")).Sequencer()
		require.Equal(t, "/job/lock", q.Path)
		checks(t, s, "/lock", q, nil, "below the chroot")
		checks(t, v.connect(), "/job/lock", q, nil, "without")
		checks(t, v.connect(), "/lock", q, zklock.ErrBadSequencer, "of another chroot")
	})
}

// A text that was changed on its way is never valid: not its token, not its root, not its mode, not
// its node.
func TestVirtual_CheckSequencer_ChangedText(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		s := v.connect()
		h := acquire(t, newMutex(t, s, "/job"))
		w := v.queueUp(newMutex(t, v.connect(), "/job"))
		for _, c := range []struct {
			change func(q *zklock.Sequencer)
			want   error
		}{
			{func(q *zklock.Sequencer) { q.Token++ }, zklock.ErrBadSequencer},
			{func(q *zklock.Sequencer) { q.Token-- }, zklock.ErrBadSequencer},
			{func(q *zklock.Sequencer) { q.Root++ }, zklock.ErrNotHeld},
			{func(q *zklock.Sequencer) { q.Shared = true }, zklock.ErrBadSequencer},
			{func(q *zklock.Sequencer) { q.Permits = 1 }, zklock.ErrBadSequencer},
			{func(q *zklock.Sequencer) { q.Node = q.Node[:len(q.Node)-1] + "9" }, zklock.ErrNotHeld},
			{func(q *zklock.Sequencer) { q.Path = "/jobs" }, zklock.ErrBadSequencer},
			{func(q *zklock.Sequencer) { q.Path = "" }, zklock.ErrBadSequencer},
		} {
			q := h.Sequencer()
			c.change(&q)
			checks(t, s, "/job", q, c.want, q.String())
		}
		release(t, h)
		w.granted2(t, time.Minute)
	})
}

// A hold that was granted by an event, by a handoff or after the end of another session has the
// right root, at no cost.
func TestVirtual_Sequencer_EachWayToTheGrant(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		resource, s := v.connect(), v.connect()
		var hs []*waiting
		h := acquire(t, newMutex(t, s, "/job"))
		for _, session := range []*zklock.Session{s, v.connect(), v.connect(), s, s} {
			hs = append(hs, v.queueUp(newMutex(t, session, "/job")))
		}
		st, ok := v.srv.Stat("/job")
		require.True(t, ok)
		for _, w := range hs {
			release(t, h)
			h = w.granted2(t, time.Minute)
			synctest.Wait()
			v.srv.ResetRequests()
			q := h.Sequencer()
			require.Zero(t, v.srv.Requests().Total(), "from memory")
			require.Equal(t, st.Czxid, q.Root)
			checks(t, resource, "/job", q, nil, h.Node())
		}
	})
}

// A check takes three requests in one round trip, one of them a transaction. Concurrent checks
// share lists.
func TestVirtual_CheckSequencer_Costs(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		const latency = 10 * time.Millisecond
		v.net.SetLatency(latency)
		resource := v.connect()
		q := acquire(t, newMutex(t, v.connect(), "/job")).Sequencer()
		v.srv.ResetRequests()
		began := time.Now()
		checks(t, resource, "/job", q, nil, "stands")
		require.Equal(t, 2*latency, time.Since(began), "one round trip")
		got := v.srv.Requests()
		require.Equal(t, 1, got.Of(resource.Stats().SessionID, zktest.Multi))
		require.Equal(t, 1, got.Of(resource.Stats().SessionID, zktest.Exists))
		require.Equal(t, 1, got.Of(resource.Stats().SessionID, zktest.GetChildren))

		v.srv.ResetRequests()
		began = time.Now()
		errs := make(chan error, 100)
		for i := range cap(errs) {
			go func() { errs <- resource.CheckSequencer(context.Background(), "/job", q.String()) }()
			if i == 0 {
				time.Sleep(latency / 2) // the first one's list is under way: the others wait for the next
			}
		}
		for range cap(errs) {
			require.NoError(t, <-errs)
		}
		require.LessOrEqual(t, time.Since(began), 4*latency)
		require.Equal(t, 2, v.srv.Requests().Of(resource.Stats().SessionID, zktest.GetChildren))
	})
}

// A text of 115 bytes that claims 10,000 permits causes no more requests, and no less careful ones,
// than a real sequencer.
func TestVirtual_CheckSequencer_ManyPermits_CostNoMore(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		var sent atomic.Int64
		resource := v.connect(zklock.WithDialer(func(network, addr string, d time.Duration) (net.Conn, error) {
			c, err := v.net.Dial(network, addr, d)
			return countedConn{c, &sent}, err
		}))
		q := acquire(t, newSemaphore(t, v.connect(), "/sem", 5).Permits(2)).Sequencer()
		cost := func(permits int, want error) (bytes int64) {
			lie := q
			lie.Permits = permits
			synctest.Wait()
			sent.Store(0)
			checks(t, resource, "/sem", lie, want, fmt.Sprint(permits, " permits"))
			return sent.Load()
		}
		honest := cost(2, nil)
		require.Positive(t, honest)
		require.Equal(t, honest, cost(10000, zklock.ErrNotHeld))
		require.Equal(t, honest, cost(3, zklock.ErrNotHeld))
	})
}

// countedConn counts the bytes that a client sends.
type countedConn struct {
	net.Conn
	sent *atomic.Int64
}

func (c countedConn) Write(p []byte) (int, error) {
	c.sent.Add(int64(len(p)))
	return c.Conn.Write(p)
}

// No hold has the sequencer of a waiting node, so such a text is forged. A gate that accepted it
// would reject the holder's smaller token from then on.
func TestVirtual_CheckSequencer_NodeThatWaits(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		resource, rw := v.connect(), newRWMutex(t, v.connect(), "/rw")
		early := func(h *zklock.Hold, w *waiting, shared bool) {
			t.Helper()
			q := h.Sequencer()
			names := slices.DeleteFunc(v.srv.Children(q.Path), func(name string) bool { return name == base(h.Node()) })
			require.Len(t, names, 1)
			node := q.Path + "/" + names[0]
			st, ok := v.srv.Stat(node)
			require.True(t, ok)
			waits := zklock.Sequencer{Path: q.Path, Root: q.Root, Shared: shared, Token: st.Czxid, Node: node}
			checks(t, resource, q.Path, waits, zklock.ErrBadSequencer, "waits")
			checks(t, resource, q.Path, q, nil, "holds")
			release(t, h)
			next := w.granted2(t, time.Minute)
			checks(t, resource, q.Path, waits, nil, "holds now")
			require.Equal(t, waits, next.Sequencer())
			release(t, next)
		}
		m := newMutex(t, v.connect(), "/mutex")
		early(acquire(t, m), v.queueUp(newMutex(t, v.connect(), "/mutex")), false)
		early(acquire(t, rw.WriteLock()), v.queueUp(newRWMutex(t, v.connect(), "/rw").ReadLock()), true)
		early(acquire(t, rw.ReadLock()), v.queueUp(newRWMutex(t, v.connect(), "/rw").WriteLock()), false)

		first, second := acquire(t, rw.ReadLock()), acquire(t, newRWMutex(t, v.connect(), "/rw").ReadLock())
		checks(t, resource, "/rw", first.Sequencer(), nil, "reads")
		checks(t, resource, "/rw", second.Sequencer(), nil, "reads beside it")
	})
}

// F6, F10: each request and each response of the check is lost, or is an error. The result is never
// that the hold is valid, nor that it has ended.
func TestVirtual_CheckSequencer_AnswerLost(t *testing.T) {
	for _, stands := range []bool{true, false} {
		for i, at := range []func() zktest.Fault{
			func() zktest.Fault { return zktest.Before(zktest.Multi).Close() },
			func() zktest.Fault { return zktest.After(zktest.Multi).DropReply().Close() },
			func() zktest.Fault { return zktest.After(zktest.Multi).Close() },
			func() zktest.Fault { return zktest.Before(zktest.Exists).Close() },
			func() zktest.Fault { return zktest.After(zktest.Exists).DropReply().Close() },
			func() zktest.Fault { return zktest.After(zktest.Exists).Close() },
			func() zktest.Fault { return zktest.Before(zktest.GetChildren).Close() },
			func() zktest.Fault { return zktest.After(zktest.GetChildren).DropReply().Close() },
			func() zktest.Fault { return zktest.Before(zktest.Multi).Expire() },
			func() zktest.Fault { return zktest.After(zktest.GetChildren).DropReply().Expire() },
			func() zktest.Fault { return zktest.Before(zktest.Multi).Fail(zktest.SessionMoved) },
			func() zktest.Fault { return zktest.Before(zktest.Exists).Fail(zktest.OperationTimeout) },
		} {
			t.Run(fmt.Sprintf("stands=%t/%d: %v", stands, i, at()), func(t *testing.T) {
				inVirtualTime(t, func(t *testing.T, v *virtual) {
					resource := v.connect()
					h := acquire(t, newMutex(t, v.connect(), "/job"))
					want := error(nil)
					if !stands {
						release(t, h)
						want = zklock.ErrNotHeld
					}
					v.srv.Inject(at().Session(resource.Stats().SessionID).Once())
					checks(t, resource, "/job", h.Sequencer(), zklock.ErrNotConnected, "lost")
					checks(t, resource, "/job", h.Sequencer(), want, "asked again")
				})
			})
		}
	}
}

// I6: a check ends with its context and with its Session, and reports that the state is unknown.
func TestVirtual_CheckSequencer_IsBounded(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		resource := v.connect()
		q := acquire(t, newMutex(t, v.connect(), "/job")).Sequencer().String()
		v.srv.Freeze()
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		began := time.Now()
		err := resource.CheckSequencer(ctx, "/job", q)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NotErrorIs(t, err, zklock.ErrNotHeld)
		require.Equal(t, time.Second, time.Since(began))
		over := make(chan error)
		go func() { over <- resource.CheckSequencer(context.Background(), "/job", q) }()
		synctest.Wait()
		_ = resource.Close()
		require.ErrorIs(t, <-over, zklock.ErrClosed)
		v.srv.Thaw()
		require.ErrorIs(t, resource.CheckSequencer(context.Background(), "/job", q), zklock.ErrClosed)
	})
}

// Bad input is rejected before any request.
func TestCheckSequencer_BadInput(t *testing.T) {
	s := connect(t, target(t))
	q := zklock.Sequencer{Path: "/job", Root: 1, Token: 2, Node: "/job/_c_0b1c2d3e-4f50-4162-8374-95a6b7c8d9e0-lock-0000000000"}.String()
	for _, c := range []struct {
		ctx        context.Context
		s          *zklock.Session
		path, text string
		says       string
	}{
		{nil, s, "/job", q, "nil context"},
		{t.Context(), nil, "/job", q, "use the one that Connect returns"},
		{t.Context(), new(zklock.Session), "/job", q, "use the one that Connect returns"},
		{t.Context(), s, "job", q, "is relative"},
		{t.Context(), s, "/job", "rubbish", "not a sequencer"},
	} {
		err := c.s.CheckSequencer(c.ctx, c.path, c.text)
		require.ErrorContains(t, err, c.says)
		require.True(t, zklock.IsFinal(err), err)
	}
}

// F12: a server that is cut off from the other servers shows the hold long after it has ended. The
// check reports neither that the hold is valid nor that it has ended. With a server that lags
// behind, the check returns the true state.
func TestVirtual_CheckSequencer_NotFromMemoryOfAServer(t *testing.T) {
	for _, onLeader := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			n, ens, own, other := ensembleToCut(t, onLeader)
			client := func(m *zktest.Member) *zklock.Session {
				return connect(t, m.Addr(), zklock.WithDialer(n.Dial), zklock.WithSessionTimeout(30*time.Second))
			}
			resource, holder := client(own), client(other)
			h := acquire(t, newMutex(t, holder, "/job"))
			checks(t, resource, "/job", h.Sequencer(), nil, "stands")

			own.Isolate()
			release(t, h)
			short, cancel := context.WithTimeout(context.Background(), 3*time.Second)
			defer cancel()
			_, _, err := resource.Conn().Exists(h.Node())
			require.NoError(t, err, "it serves reads")
			err = resource.CheckSequencer(short, "/job", h.Sequencer().String())
			require.True(t, errors.Is(err, context.DeadlineExceeded) || errors.Is(err, zklock.ErrNotConnected), err) // until it gives its clients up
			require.NotErrorIs(t, err, zklock.ErrNotHeld)
			ens.Heal()
			time.Sleep(time.Minute)
			checks(t, resource, "/job", h.Sequencer(), zklock.ErrNotHeld, "healed")
			if onLeader {
				return
			}

			h = acquire(t, newMutex(t, holder, "/job"))
			checks(t, resource, "/job", h.Sequencer(), nil, "stands again")
			own.SetLag(5 * time.Second)
			release(t, h)
			require.Contains(t, own.Children("/job"), base(h.Node()), "it lags")
			checks(t, resource, "/job", h.Sequencer(), zklock.ErrNotHeld, "a server that lags")
			h = acquire(t, newMutex(t, holder, "/job"))
			release(t, h)
			require.NoError(t, ens.Delete("/job"))
			checks(t, resource, "/job", h.Sequencer(), zklock.ErrNotHeld, "a server that lags, no root")
		})
	}
}
