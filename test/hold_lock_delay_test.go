package zklock_test

// These tests attack the lock-delay: a holder that disappears delays the next one, a release does
// not.

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/zktest"
)

// lockDelay is longer than everything else in these tests.
const lockDelay = 2 * time.Minute

func (v *virtual) record() string {
	data, _ := v.srv.Get("/job")
	return string(data)
}

// F47: each way in which a holder can disappear delays the next client, by d from the time at which
// that client noticed it, and not the client after it.
func TestVirtual_LockDelay_HolderDisappears_NextWaits(t *testing.T) {
	for how, disappear := range map[string]func(v *virtual, s *zklock.Session, h *zklock.Hold){
		"its session expires": func(v *virtual, s *zklock.Session, _ *zklock.Hold) { v.srv.ExpireSession(s.Stats().SessionID) },
		"it is closed":        func(v *virtual, s *zklock.Session, _ *zklock.Hold) { require.NoError(v.t, s.Close()) },
		"its node is deleted": func(v *virtual, _ *zklock.Session, h *zklock.Hold) { require.NoError(v.t, v.srv.Delete(h.Node())) },
	} {
		t.Run(how, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, v *virtual) {
				s := v.connect()
				h := acquire(t, newMutex(t, s, "/job", zklock.WithLockDelay(lockDelay)))
				require.Equal(t, "held="+base(h.Node()), v.record())
				w := v.queueUp(newMutex(t, v.connect(), "/job", zklock.WithLockDelay(lockDelay)))
				gone := time.Now()
				disappear(v, s, h)
				next := w.granted2(t, 2*lockDelay)
				waited := w.at.Sub(gone)
				require.GreaterOrEqual(t, waited, lockDelay)
				require.Less(t, waited, lockDelay+time.Second)
				require.Equal(t, "held="+base(next.Node()), v.record())

				released := time.Now()
				third := v.queueUp(newMutex(t, v.connect(), "/job", zklock.WithLockDelay(lockDelay)))
				release(t, next)
				release(t, third.granted2(t, time.Second))
				require.Less(t, third.at.Sub(released), time.Second)
				require.Empty(t, v.record(), "nothing is left of it")
			})
		})
	}
}

// F47: a release admits the next client at once, even if the releaser exits in the same
// millisecond: its connection is closed, and its session ends, right after the servers have its
// release.
func TestVirtual_LockDelay_Release_NextIsGrantedAtOnce(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		s := v.connect()
		h := acquire(t, newMutex(t, s, "/job", zklock.WithLockDelay(lockDelay)))
		w := v.queueUp(newMutex(t, v.connect(), "/job", zklock.WithLockDelay(lockDelay)))
		id := s.Stats().SessionID
		exits := v.srv.Inject(zktest.After(zktest.Multi).Path(h.Node()).Session(id).Call(func() { go v.srv.ExpireSession(id) }).DropReply().Close().Once())
		released := time.Now()
		_ = h.Release(within(t, time.Minute))
		require.NoError(t, exits.Wait(within(t, time.Minute)))
		release(t, w.granted2(t, time.Second))
		require.Less(t, w.at.Sub(released), time.Second)
	})
}

// Within a session the handoff works, and the next holder records its own grant: if that one
// disappears, the delay applies.
func TestVirtual_LockDelay_Turn_IsPassedAndRecorded(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		s := v.connect()
		m := newMutex(t, s, "/job", zklock.WithLockDelay(lockDelay))
		h := acquire(t, m)
		w := v.queueUp(m)
		v.srv.ResetRequests()
		release(t, h)
		mine := w.granted2(t, time.Second)
		require.Zero(t, v.srv.Requests().Total(zktest.GetChildren), "by the turn")
		require.Equal(t, "held="+base(mine.Node()), v.record())
		require.NoError(t, s.Close())
		began := time.Now()
		other := newMutex(t, v.connect(), "/job", zklock.WithLockDelay(lockDelay))
		ctx, cancel := context.WithTimeout(context.Background(), 2*lockDelay)
		defer cancel()
		next, err := other.Acquire(ctx)
		require.NoError(t, err)
		require.GreaterOrEqual(t, time.Since(began), lockDelay)
		release(t, next)
	})
}

// F47: the first candidate disappears during the delay: the next one waits for the whole delay.
func TestVirtual_LockDelay_FrontDiesInTheDelay_NextWaits(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		s, s2 := v.connect(), v.connect()
		acquire(t, newMutex(t, s, "/job", zklock.WithLockDelay(lockDelay)))
		front := v.queueUp(newMutex(t, s2, "/job", zklock.WithLockDelay(lockDelay)))
		w := v.queueUp(newMutex(t, v.connect(), "/job", zklock.WithLockDelay(lockDelay)))
		v.srv.ExpireSession(s.Stats().SessionID)
		time.Sleep(lockDelay - time.Second)
		require.False(t, front.isGranted())
		v.srv.ExpireSession(s2.Stats().SessionID)
		died := time.Now()
		next := w.granted2(t, 2*lockDelay)
		require.GreaterOrEqual(t, w.at.Sub(died), lockDelay)
		require.Less(t, w.at.Sub(died), lockDelay+time.Second)
		require.False(t, front.isGranted(), "it has queued again")
		release(t, next)
		release(t, front.granted2(t, time.Second))
	})
}

// A try during the delay returns the end of the delay, and so does a wait that times out. The delay
// counts from the Session's first check, so calls with short deadlines reach its end. Other clients
// read it in the queue.
func TestVirtual_LockDelay_ShortCalls_GetIn(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		s := v.connect()
		acquire(t, newMutex(t, s, "/job", zklock.WithLockDelay(lockDelay)))
		v.srv.ExpireSession(s.Stats().SessionID)
		m := newMutex(t, v.connect(), "/job", zklock.WithLockDelay(lockDelay))
		first := time.Now()
		for time.Since(first) < lockDelay-11*time.Second {
			_, err := m.TryAcquire(within(t, time.Minute))
			require.ErrorIs(t, err, zklock.ErrNotAcquired)
			var at *zklock.Error
			require.ErrorAs(t, err, &at)
			require.WithinDuration(t, first.Add(lockDelay), at.DelayUntil, 100*time.Millisecond)
			require.Contains(t, err.Error(), "the lock-delay lasts until "+at.DelayUntil.Format(time.RFC3339))
			require.Empty(t, v.srv.Children("/job"))

			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			w := startAcquireIn(t, ctx, cancel, m)
			time.Sleep(5 * time.Second)
			ps, err := newMutex(t, v.connect(), "/job", zklock.WithLockDelay(time.Second)).Participants(within(t, time.Minute))
			require.NoError(t, err)
			require.Len(t, ps, 1)
			require.WithinDuration(t, first.Add(lockDelay), ps[0].DelayUntil, time.Second)
			require.False(t, ps[0].Holds, "nobody holds in the delay")
			_, err = m.TryAcquire(within(t, time.Minute))
			require.ErrorIs(t, err, zklock.ErrNotAcquired, "beside a call that waits, too")
			_, err = w.get(t)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.ErrorAs(t, err, &at)
			require.WithinDuration(t, first.Add(lockDelay), at.DelayUntil, 100*time.Millisecond)
		}
		time.Sleep(time.Until(first.Add(lockDelay + time.Second)))
		h, err := m.TryAcquire(within(t, time.Minute))
		require.NoError(t, err)
		ps, err := m.Participants(within(t, time.Minute))
		require.NoError(t, err)
		require.Zero(t, ps[0].DelayUntil, "it holds")
		require.True(t, ps[0].Holds)
		release(t, h)
	})
}

// Other words in the record are kept, whenever they are written; another client's data is never
// changed.
func TestVirtual_LockDelay_OtherData(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		m := newMutex(t, v.connect(), "/job", zklock.WithLockDelay(lockDelay))
		require.NoError(t, v.srv.SetData("/job", []byte("done=a,b")))
		h := acquire(t, m)
		require.Equal(t, "done=a,b held="+base(h.Node()), v.record())
		require.NoError(t, v.srv.SetData("/job", []byte("done=a,b,c held="+base(h.Node())+" more=1")))
		release(t, h)
		require.Equal(t, "done=a,b,c more=1", v.record(), "the release met a version conflict")

		written := v.srv.Inject(zktest.After(zktest.GetData).Path("/job").Call(func() { _ = v.srv.SetData("/job", []byte("done=d")) }).Once())
		h = acquire(t, m)
		require.Equal(t, 1, written.Fired())
		require.Equal(t, "done=d held="+base(h.Node()), v.record(), "the grant met one")
		release(t, h)

		require.NoError(t, v.srv.SetData("/job", []byte("zklock/1 released=x token=7\n")))
		h = acquire(t, m)
		require.Equal(t, "held="+base(h.Node()), v.record(), "what an earlier version left")
		require.NoError(t, v.srv.SetData("/job", []byte("somebody else's")))
		release(t, h)
		require.Equal(t, "somebody else's", v.record())

		_, err := m.Acquire(within(t, time.Minute))
		require.ErrorContains(t, err, `/job has data of another program, "somebody else's"`)
		require.True(t, zklock.IsFinal(err))
		require.Equal(t, "somebody else's", v.record())
		require.Empty(t, v.srv.Children("/job"))
		release(t, acquire(t, newMutex(t, v.connect(), "/job"))) // without a delay, WRITE is not needed
	})
}

// Without WRITE on the root, acquires fail, and leave no node.
func TestVirtual_LockDelay_NoWrite_Fails(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		acl := zk.WorldACL(zk.PermAll &^ zk.PermWrite)
		m := newMutex(t, v.connect(), "/unwritable", zklock.WithLockDelay(lockDelay), zklock.WithACL(acl))
		for range 2 { // the second reads the record with its node
			_, err := m.Acquire(within(t, time.Minute))
			require.ErrorIs(t, err, zk.ErrNoAuth)
			require.ErrorContains(t, err, "set: no WRITE permission on /unwritable")
			require.True(t, zklock.IsFinal(err))
			require.Empty(t, v.srv.Children("/unwritable"))
		}
	})
}

// F3, F9: the write of a grant gets no response. If it was executed, the lock is held, and recorded
// once; if not, it is written again. Before that, the record is read after a sync that succeeded.
func TestVirtual_LockDelay_GrantUnanswered_IsRecorded(t *testing.T) {
	for _, done := range []bool{true, false} {
		t.Run(fmt.Sprint("done ", done), func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, v *virtual) {
				s := v.connect()
				m := newMutex(t, s, "/job", zklock.WithLockDelay(lockDelay))
				release(t, acquire(t, m))
				f := zktest.Before(zktest.Multi).Path("/job").Close().Once()
				if done {
					f = zktest.After(zktest.Multi).Path("/job").DropReply().Close().Once()
				}
				cut := v.srv.Inject(f)
				v.srv.Inject(zktest.Before(zktest.Sync).Fail(zktest.OperationTimeout).Once())
				h := acquire(t, m)
				require.Positive(t, cut.Fired())
				require.Equal(t, 2, v.srv.Requests().Of(s.Stats().SessionID, zktest.Sync))
				require.Equal(t, "held="+base(h.Node()), v.record())
				release(t, h)
				require.Empty(t, v.record())
			})
		})
	}
}

// I4: a call that gives up while the write of its grant is in flight deletes the record with its
// node: no client waits for it.
func TestVirtual_LockDelay_GivesUpDuringTheGrant_LeavesNoRecord(t *testing.T) {
	for _, when := range []string{"before", "after"} {
		t.Run(when, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, v *virtual) {
				m := newMutex(t, v.connect(), "/job", zklock.WithLockDelay(lockDelay))
				release(t, acquire(t, m))
				ctx, cancel := context.WithCancel(context.Background())
				f := zktest.Before(zktest.Multi)
				if when == "after" {
					f = zktest.After(zktest.Multi)
				}
				held := v.srv.Inject(f.Path("/job").Call(cancel).Hold().Once())
				_, err := m.Acquire(ctx)
				require.ErrorIs(t, err, context.Canceled)
				held.Release()
				time.Sleep(5 * time.Second)
				require.Empty(t, v.srv.Children("/job"))
				require.Empty(t, v.record())
				began := time.Now()
				release(t, acquire(t, newMutex(t, v.connect(), "/job", zklock.WithLockDelay(lockDelay))))
				require.Less(t, time.Since(began), time.Second)
			})
		})
	}
}

// I3: the node is deleted just before its grant is recorded: the grant is never recorded, and the
// call queues again.
func TestVirtual_LockDelay_NodeDeletedBeforeTheGrant_IsNotRecorded(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		m := newMutex(t, v.connect(), "/job", zklock.WithLockDelay(lockDelay))
		var node string
		v.srv.Inject(zktest.Before(zktest.Multi).Path("/job").Once().Call(func() {
			node = v.srv.Children("/job")[0]
			_ = v.srv.Delete("/job/" + node)
		}))
		h := acquire(t, m)
		require.NotEqual(t, node, base(h.Node()))
		for _, a := range v.srv.History() {
			require.NotContains(t, string(a.Data), node)
		}
		release(t, h)
	})
}

// A Session that is closed after its releases leaves no record, even if their responses have not
// arrived yet.
func TestVirtual_LockDelay_ReleaseThenClose_DelaysNobody(t *testing.T) {
	for _, waits := range []bool{true, false} {
		inVirtualTime(t, func(t *testing.T, v *virtual) {
			s := v.connect()
			h := acquire(t, newMutex(t, s, "/job", zklock.WithLockDelay(lockDelay)))
			if waits {
				release(t, h)
			} else {
				over, cancel := context.WithCancel(context.Background())
				cancel()
				go func() { _ = h.Release(over) }()
				synctest.Wait()
			}
			require.NoError(t, s.Close())
			began := time.Now()
			release(t, acquire(t, newMutex(t, v.connect(), "/job", zklock.WithLockDelay(lockDelay))))
			require.Less(t, time.Since(began), time.Second)
		})
	}
}

// Different delays, and no delay: each client uses its own.
func TestVirtual_LockDelay_DifferentClients(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		s := v.connect()
		acquire(t, newMutex(t, s, "/job", zklock.WithLockDelay(lockDelay)))
		v.srv.ExpireSession(s.Stats().SessionID)
		began := time.Now()
		release(t, acquire(t, newMutex(t, v.connect(), "/job"))) // one that has none is not delayed
		require.Less(t, time.Since(began), time.Second)
		shorter := v.queueUp(newMutex(t, v.connect(), "/job", zklock.WithLockDelay(lockDelay/2)))
		h := shorter.granted2(t, lockDelay)
		require.GreaterOrEqual(t, shorter.at.Sub(began), lockDelay/2)
		release(t, h)

		s = v.connect() // and a client without a delay leaves no record
		acquire(t, newMutex(t, s, "/job"))
		v.srv.ExpireSession(s.Stats().SessionID)
		began = time.Now()
		release(t, acquire(t, newMutex(t, v.connect(), "/job", zklock.WithLockDelay(lockDelay))))
		require.Less(t, time.Since(began), time.Second)
	})
}

// The counter starts again while there is a record: the root is recreated with the record.
func TestVirtual_LockDelay_RootMadeAnew_KeepsTheRecord(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		s := v.connect()
		m := newMutex(t, s, "/job", zklock.WithLockDelay(lockDelay))
		release(t, acquire(t, m))
		require.True(t, v.srv.SetCreates("/job", 1<<31-1<<20-1))
		h := acquire(t, m) // the last number that is granted
		v.srv.ExpireSession(s.Stats().SessionID)
		czxid, _ := v.srv.Stat("/job")
		began := time.Now()
		m = newMutex(t, v.connect(), "/job", zklock.WithLockDelay(lockDelay))
		_, err := m.Acquire(within(t, time.Minute))
		require.ErrorIs(t, err, zklock.ErrSequenceExhausted)
		now, ok := v.srv.Stat("/job")
		require.True(t, ok)
		require.NotEqual(t, czxid.Czxid, now.Czxid, "it was made anew")
		require.Equal(t, "held="+base(h.Node()), v.record())
		w := v.queueUp(m)
		mine := w.granted2(t, 2*lockDelay)
		require.GreaterOrEqual(t, w.at.Sub(began), lockDelay)
		require.True(t, strings.HasSuffix(mine.Node(), "0000000000"))
		release(t, mine)
	})
}

// A client that may not use a lock-delay gets an error with the remedy.
func TestLockDelay_Refused(t *testing.T) {
	s := connect(t, target(t))
	for _, d := range []time.Duration{math.MaxInt64, 0, -time.Second} {
		_, err := zklock.NewMutex(s, "/x", zklock.WithLockDelay(d))
		require.ErrorContains(t, err, fmt.Sprintf("WithLockDelay(%v): give", d))
	}
	_, err := zklock.NewMutex(s, "/x", zklock.WithLockDelay(time.Second), zklock.WithContainer())
	require.ErrorContains(t, err, "leave one of them out")
	_, err = zklock.NewElection(s, "/x", zklock.WithLockDelay(time.Second), zklock.WithLatchNodes())
	require.NoError(t, err)
}

// An election has the delay, too: after a resignation the next candidate leads at once, after a
// crash d later.
func TestVirtual_LockDelay_Election(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		s := v.connect()
		led, stop := make(chan time.Time, 2), make(chan struct{})
		stand := func(s *zklock.Session) *zklock.Election {
			e, err := zklock.NewElection(s, "/job", zklock.WithLockDelay(lockDelay))
			require.NoError(t, err)
			go func() {
				_ = e.Campaign(context.Background(), func(ctx context.Context, _ *zklock.Hold) error {
					led <- time.Now()
					select {
					case <-ctx.Done():
						return errors.New("ended")
					case <-stop:
						return nil
					}
				})
			}()
			synctest.Wait()
			return e
		}
		first := stand(s)
		<-led
		s2 := v.connect()
		stand(s2)
		resigned := time.Now()
		require.NoError(t, first.Resign(within(t, time.Minute)))
		require.Less(t, (<-led).Sub(resigned), time.Second)
		stand(v.connect())
		crashed := time.Now()
		require.NoError(t, s2.Close())
		require.GreaterOrEqual(t, (<-led).Sub(crashed), lockDelay)
		close(stop)
		synctest.Wait()
	})
}

// I3: the write of a grant is executed and gets no response, and the node is deleted before the
// next connection: no grant rests on it.
func TestVirtual_LockDelay_GrantUnanswered_NodeDeleted_IsNoGrant(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		s := v.connect()
		m := newMutex(t, s, "/job", zklock.WithLockDelay(2*time.Second))
		release(t, acquire(t, m))
		var node string
		v.srv.Inject(zktest.After(zktest.Multi).Path("/job").DropReply().Close().Once().Call(func() {
			node = "/job/" + v.srv.Children("/job")[0]
			_ = v.srv.Delete(node)
		}))
		h := acquire(t, m)
		require.NotEqual(t, node, h.Node(), "granted on a node that was deleted before")
	})
}

// A Session that uses many lock paths also reaches the end of a delay with calls that have short
// deadlines.
func TestVirtual_LockDelay_ManyPaths_IsNotForgotten(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		s := v.connect()
		acquire(t, newMutex(t, s, "/job", zklock.WithLockDelay(lockDelay)))
		v.srv.ExpireSession(s.Stats().SessionID)
		s2 := v.connect()
		m := newMutex(t, s2, "/job", zklock.WithLockDelay(lockDelay))
		_, err := m.TryAcquire(within(t, time.Minute))
		require.ErrorIs(t, err, zklock.ErrNotAcquired)
		for i := range 4096 {
			release(t, acquire(t, newMutex(t, s2, fmt.Sprint("/orders/", i))))
		}
		time.Sleep(lockDelay + time.Second)
		_, err = m.TryAcquire(within(t, time.Minute))
		require.NoError(t, err)
	})
}
