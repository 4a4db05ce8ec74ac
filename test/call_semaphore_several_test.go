package zklock_test

// These tests have several calls take permits of one semaphore at the same time: further back in
// the queue, and without a position in it.

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/zktest"
)

// A try fails only if no permit is free: forty at once, some far from the servers, take forty
// permits.
func TestVirtual_Semaphore_AsManyTriesAtOnceAsThereArePermits(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		const n = 40
		v.net.SetLatency(10 * time.Millisecond)
		release(t, take(t, v.permits(1, n)))
		var tries []zklock.Lock
		for range n {
			tries = append(tries, v.permits(1, n))
		}
		var all sync.WaitGroup
		holds := make([]*zklock.Hold, n)
		for i, l := range tries {
			all.Go(func() {
				var err error
				holds[i], err = l.TryAcquire(t.Context())
				require.NoError(t, err)
			})
		}
		all.Wait()
		time.Sleep(time.Second)
		v.has(n, 0)
		_, err := v.permits(1, n).TryAcquire(t.Context())
		require.ErrorIs(t, err, zklock.ErrNotAcquired)
		for _, h := range holds {
			release(t, h)
		}
		time.Sleep(time.Second)
		v.has(0, 0, "I4")
	})
}

// I1, I8: more permits are taken in the same time. With one permit, each grant takes two round
// trips. No call is granted out of order where that matters: a single permit is granted in the
// order of the queue.
func TestVirtual_Semaphore_PermitsAreTakenBeside(t *testing.T) {
	for _, c := range []struct{ n, least, most int }{{1, 240, 250}, {4, 350, 2000}, {16, 1200, 8000}} {
		t.Run(fmt.Sprint(c.n), func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, v *virtual) {
				v.net.SetLatency(time.Millisecond)
				ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
				defer cancel()
				var grants, in atomic.Int64
				var all sync.WaitGroup
				for range 32 {
					l := v.permits(1, c.n)
					all.Go(func() {
						for {
							h, err := l.Acquire(ctx)
							if errors.Is(err, context.DeadlineExceeded) {
								return
							}
							require.NoError(t, err)
							grants.Add(1)
							require.LessOrEqual(t, in.Add(1), int64(c.n), "I1")
							in.Add(-1)
							release(t, h)
						}
					})
				}
				all.Wait()
				rate := 2 * int(grants.Load())
				t.Logf("%d grants a second", rate)
				require.GreaterOrEqual(t, rate, c.least)
				require.LessOrEqual(t, rate, c.most)
				v.has(0, 0, "I4")
			})
		})
	}
}

// I8: 24 permits are freed at once, and 26 callers wait. The first 24 are granted, in a time that
// does not grow with their number, and the data of the other two nodes does not change.
func TestVirtual_Semaphore_SeveralAreFreed_SeveralAreWoken(t *testing.T) {
	const n, callers = 24, 26
	for _, ofOneSession := range []bool{false, true} {
		t.Run(fmt.Sprint(ofOneSession), func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, v *virtual) {
				v.net.SetLatency(10 * time.Millisecond)
				h := take(t, v.permits(n, n))
				one := v.permits(1, n)
				var waiting []*waiting
				for i := range callers {
					l := one
					if !ofOneSession {
						l = v.permits(1, n, zklock.WithData([]byte{'a' + byte(i)}))
					}
					waiting = append(waiting, v.lineUp(l))
					time.Sleep(time.Second)
				}
				told := func() map[string]string {
					data := map[string]string{}
					for _, name := range v.srv.Children(semQueue) {
						d, _ := v.srv.Get(semQueue + "/" + name)
						data[name] = string(d)
					}
					return data
				}
				before := told()
				began := time.Now()
				release(t, h)
				time.Sleep(time.Second)
				for _, w := range waiting[:n] {
					w.granted(t)
					require.Less(t, w.at.Sub(began), 400*time.Millisecond, "some ten round trips, for however many; one after the other it is forty")
				}
				v.has(n+1, 2, "the next in line has made its lease")
				inOrder := slices.SortedFunc(maps.Keys(before), func(a, b string) int { return strings.Compare(a[len(a)-10:], b[len(b)-10:]) })
				stay := map[string]string{}
				for _, name := range inOrder[n:] {
					stay[name] = before[name]
				}
				require.Equal(t, stay, told(), "the last two, and what they say of their owners")
				for _, w := range waiting {
					release(t, w.granted(t))
				}
				time.Sleep(time.Second)
				v.has(0, 0, "I4")
			})
		})
	}
}

// I6: three permits are freed at once, and the second of three waiters is cut off. The third does
// not wait for the end of that one's session, because the first makes it list.
func TestVirtual_Semaphore_SecondWaiterIsCutOff_ThirdIsGranted(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		const host = "10.0.0.2"
		v.net.SetLatency(10 * time.Millisecond)
		h := take(t, v.permits(3, 3))
		var waiting []*waiting
		for _, from := range []string{"10.0.0.1", host, "10.0.0.3"} {
			s := v.connect(zklock.WithDialer(v.net.DialFrom(from)))
			waiting = append(waiting, v.lineUp(newSemaphore(t, s, semPath, 3).Permits(1)))
			time.Sleep(time.Second)
		}
		v.net.Partition(host)
		release(t, h)
		time.Sleep(time.Second)
		require.True(t, waiting[2].isGranted())
		release(t, waiting[0].granted(t))
		release(t, waiting[2].granted(t))
	})
}

// straight returns a Session that has taken a permit, and found more of them free: its next call
// creates no node in the queue.
func (v *virtual) straight(k, n int, opts ...zklock.Option) (*zklock.Session, zklock.Lock) {
	return v.straightOn(semPath, k, n, opts...)
}

func (v *virtual) straightOn(path string, k, n int, opts ...zklock.Option) (*zklock.Session, zklock.Lock) {
	s := v.connect(opts...)
	l := newSemaphore(v.t, s, path, n).Permits(k)
	release(v.t, take(v.t, l))
	return s, l
}

// I8: a call that takes permits without a position in the queue overtakes no other: a call that
// wants two is first, and one permit is free.
func TestVirtual_Semaphore_Straight_OvertakesNobody(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		_, quick := v.straight(1, 2)
		h := take(t, v.permits(1, 2))
		many := v.lineUp(v.permits(2, 2))
		few := v.lineUp(quick)
		time.Sleep(time.Minute)
		require.False(t, few.isGranted())
		v.has(3, 2) // the hold's lease, and those of the first in line
		release(t, h)
		release(t, many.granted(t))
		release(t, few.granted(t))
		v.has(0, 0, "I4")

		_, quick = v.straight(1, 1)
		first, err := v.srv.CreateAs(v.connect().Stats().SessionID, semQueue+"/_c_11111111-1111-4111-8111-111111111111-lock-", nil, zk.FlagEphemeral|zk.FlagSequence)
		require.NoError(t, err)
		behind := v.lineUp(quick)
		time.Sleep(time.Minute)
		require.False(t, behind.isGranted(), "who is first in line has not made its lease yet")
		v.has(0, 2)
		require.NoError(t, v.srv.Delete(first))
		release(t, behind.granted(t))
	})
}

// A client that counts leases, as Curator's does, is first in the queue and waits. No lease of ours
// stays behind its lease: both would wait indefinitely.
func TestVirtual_Semaphore_BesideOneThatCounts_NoLeaseWaits(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		_, quick := v.straight(1, 1)
		h := take(t, v.permits(1, 1))
		other := v.connect()
		foreign := func(path string) string {
			node, err := v.srv.CreateAs(other.Stats().SessionID, path, nil, zk.FlagEphemeral|zk.FlagSequence)
			require.NoError(t, err)
			return node
		}
		first := foreign(semQueue + "/_c_11111111-1111-4111-8111-111111111111-lock-")
		lease := foreign(semLeases + "/_c_11111111-1111-4111-8111-111111111112-lease-")
		w := v.lineUp(quick)
		late := v.lineUp(v.permits(1, 1))
		time.Sleep(time.Minute)
		v.has(2, 3)
		release(t, h)
		time.Sleep(time.Minute)
		v.has(1, 3, "it counts one lease now: its own")
		require.False(t, w.isGranted())
		require.NoError(t, v.srv.Delete(first))
		synctest.Wait()
		require.NoError(t, v.srv.Delete(lease))
		release(t, w.granted(t))
		release(t, late.granted(t))
		v.has(0, 0, "I4")
	})
}

// F2, F3, I2, I4: the response to a transaction that checks no node in the queue is lost. Leases
// that were created are adopted. Otherwise the permits are taken through the queue; a late copy is
// found and deleted.
func TestVirtual_Semaphore_Straight_AnswerLost(t *testing.T) {
	for _, fate := range []string{"made", "lost", "late"} {
		t.Run(fate, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, v *virtual) {
				id := "not yet"
				s, quick := v.straight(2, 2, zklock.WithDialer(func(network, addr string, d time.Duration) (net.Conn, error) {
					c, err := v.net.Dial(network, addr, d)
					return losing{c, &id}, err
				}))
				before := len(leasesOf(v.srv.History(), s.Stats().SessionID))
				if fate == "made" {
					v.srv.Inject(zktest.After(zktest.Multi).Session(s.Stats().SessionID).Path(semLeases + "/*").DropReply().Close().Once())
				} else {
					id = ""
				}
				h := take(t, quick)
				if fate == "made" {
					require.Len(t, leasesOf(v.srv.History(), s.Stats().SessionID), before+2, "I2: adopted")
					stat, ok := v.srv.Stat(h.Node())
					require.True(t, ok)
					require.Equal(t, stat.Czxid, h.Token())
				} else {
					require.NotContains(t, h.Node(), id)
				}
				v.has(2, 0)
				if fate == "late" {
					for range 2 {
						_, err := v.srv.CreateAs(s.Stats().SessionID, semLeases+"/_c_"+id+"-lease-", nil, zk.FlagEphemeral|zk.FlagSequence)
						require.NoError(t, err)
					}
					time.Sleep(5 * time.Second) // a third of T
					v.has(2, 0, "I4")
				}
				release(t, h)
				v.has(0, 0, "I4")
			})
		})
	}
}

// I8: a call further back creates its lease in vain, because a call ahead of it wants two, or
// because a call that found no queue creates a lease at that moment. It keeps its position: no call
// behind it is granted before.
func TestVirtual_Semaphore_InVain_KeepsItsPlace(t *testing.T) {
	for _, ahead := range []int{1, 2} {
		for ms := time.Duration(100); ms <= 340; ms += 10 {
			inVirtualTime(t, func(t *testing.T, v *virtual) {
				v.net.SetLatency(10 * time.Millisecond)
				const n = 3
				_, quick := v.straight(1, n)
				h := take(t, v.permits(n, n))
				var line []*waiting
				for i, k := range []int{1, ahead, 1, 1} {
					s := v.connect()
					line = append(line, v.lineUp(newSemaphore(t, s, semPath, n).Permits(k)))
					time.Sleep(time.Second)
					if late := []time.Duration{0, 60, 200, 0}[i]; late > 0 {
						v.srv.Inject(zktest.Before(zktest.Multi).Session(s.Stats().SessionID).Path(semLeases + "/*").Delay(late * time.Millisecond).Once())
					}
				}
				release(t, h)
				time.Sleep(ms * time.Millisecond)
				if ahead == 1 {
					line = append(line, v.lineUp(quick))
				}
				for _, w := range line {
					time.Sleep(3 * time.Second)
					for i, later := range line[3:] {
						require.False(t, later.isGranted() && !line[2].isGranted(), "after %d ms, %d places behind", ms, i+1)
					}
					release(t, w.granted(t))
				}
				v.has(0, 0, "I4")
			})
		}
	}
}

// A call further back lists the queue and the leases, and the leases are listed first. In between
// another client moves from the queue to the leases, so neither list shows it. The call creates no
// lease in vain, because a try could fail on that lease.
func TestVirtual_Semaphore_LeasesListedBeforeTheQueue_MakesNoLease(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		const n, latency = 2, 10 * time.Millisecond
		release(t, take(t, v.permits(n, n)))
		v.net.SetLatency(latency)
		s, other := v.connect(), v.connect()
		foreign := func(path string) string {
			node, err := v.srv.CreateAs(other.Stats().SessionID, path, nil, zk.FlagEphemeral|zk.FlagSequence)
			require.NoError(t, err)
			return node
		}
		first := foreign(semQueue + "/_c_11111111-1111-4111-8111-111111111111-lock-")
		second := foreign(semQueue + "/_c_11111111-1111-4111-8111-111111111112-lock-")
		w := v.lineUp(newSemaphore(t, s, semPath, n).Permits(1))
		time.Sleep(time.Second)
		own := nodesOf(v.srv.History(), s.Stats().SessionID)
		require.Len(t, own, 1)
		listed := v.srv.Inject(zktest.Before(zktest.GetChildren).Session(s.Stats().SessionID).Path(semLeases).Delay(0))
		var leases []string
		moved := v.srv.Inject(zktest.Before(zktest.GetChildren).Session(s.Stats().SessionID).Path(semQueue).Nth(2).Call(func() {
			require.Equal(t, 1, listed.Fired())
			for range n {
				leases = append(leases, foreign(semLeases+"/_c_11111111-1111-4111-8111-111111111112-lease-"))
			}
			require.NoError(t, v.srv.Delete(second))
		}))
		require.NoError(t, v.srv.SetData(own[0], nil)) // has the call list again, one latency later
		time.Sleep(latency / 2)
		listsQueue(t, s) // the call's own list of the queue is sent when this one is answered
		time.Sleep(time.Second)
		require.Equal(t, 1, moved.Fired())
		require.Equal(t, own, nodesOf(v.srv.History(), s.Stats().SessionID))
		for _, node := range append(leases, first) {
			require.NoError(t, v.srv.Delete(node))
		}
		release(t, w.granted(t))
	})
}

// I4: leases that were created in vain are deleted with their call, whatever ends it.
func TestVirtual_Semaphore_Straight_InVain_LeavesNothing(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		_, quick := v.straight(1, 1)
		h := take(t, v.permits(1, 1))
		_, err := quick.TryAcquire(t.Context())
		require.ErrorIs(t, err, zklock.ErrNotAcquired)
		v.has(1, 0)
		release(t, h)

		v.net.SetLatency(10 * time.Millisecond)
		_, quick = v.straight(1, 1)
		h = take(t, v.permits(1, 1))
		ctx, cancel := context.WithTimeout(t.Context(), 15*time.Millisecond) // the response is in flight
		defer cancel()
		_, err = quick.Acquire(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		v.has(1, 0)
		release(t, h)
		v.has(0, 0)
	})
}

// I6: the Session is closed, or its ZooKeeper session ends, at any moment of a call that creates
// leases in vain: the call returns, or continues.
func TestVirtual_Semaphore_Straight_SessionEndsMeanwhile(t *testing.T) {
	for _, closes := range []bool{true, false} {
		for after := time.Duration(0); after < 70*time.Millisecond; after += 5 * time.Millisecond {
			inVirtualTime(t, func(t *testing.T, v *virtual) {
				v.net.SetLatency(10 * time.Millisecond)
				for range 5 / oneIn(3) { // the order of two goroutines in one instant is anybody's
					s, quick := v.straight(1, 1)
					h := take(t, v.permits(1, 1))
					w := &waiting{done: make(chan struct{})}
					go func() {
						defer close(w.done)
						w.hold, w.err = quick.Acquire(context.Background())
					}()
					time.Sleep(after)
					if closes {
						require.NoError(t, s.Close())
					} else {
						v.srv.ExpireSession(s.Stats().SessionID)
						time.Sleep(time.Minute)
						release(t, h)
					}
					select {
					case <-w.done:
					case <-time.After(time.Minute):
						t.Fatalf("%v after the call began: it does not return", after)
					}
					if closes {
						require.ErrorIs(t, w.err, zklock.ErrClosed)
						release(t, h)
					} else {
						release(t, w.granted(t))
					}
					time.Sleep(time.Minute)
					v.has(0, 0, "I4")
				}
			})
		}
	}
}

// I2, I6: the servers deny DELETE of leases that were created in vain. The call reports
// that, and creates no more.
func TestVirtual_Semaphore_Straight_WithdrawalRefused_ReportsIt(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		s, quick := v.straight(1, 1)
		h := take(t, v.permits(1, 1))
		f := v.srv.Inject(zktest.Before(zktest.Delete).Session(s.Stats().SessionID).Path(semLeases + "/*").Fail(zktest.NoAuth))
		_, err := quick.Acquire(within(t, soon))
		require.ErrorIs(t, err, zk.ErrNoAuth)
		v.has(2, 0)
		f.Remove()
		release(t, h)
		time.Sleep(time.Minute)
		v.has(0, 0, "I4")
		release(t, take(t, quick))
	})
}

// Callers that are notified of free permits create their leases in parallel. If the Session may not
// have so many nodes, they wait as before.
func TestVirtual_Semaphore_SeveralAreWoken_MoreThanNodesOfASession(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		v.net.SetLatency(10 * time.Millisecond)
		const n = 4
		h := take(t, v.permits(n, n))
		sem := newSemaphore(t, v.connect(zklock.WithMaxLockNodes(7)), semPath, n)
		var all []*waiting
		for range 6 {
			all = append(all, v.lineUp(sem.Permits(1)))
			time.Sleep(time.Second)
		}
		release(t, h)
		time.Sleep(time.Second)
		for _, w := range all {
			release(t, w.granted(t))
			time.Sleep(time.Second)
		}
		v.has(0, 0, "I4")
	})
}

// I8: a waiter that was asked to check, and still waits behind a node of its Session, gets the
// handoff; one that has given up does not.
func TestVirtual_Semaphore_WokenInVain_GetsItsTurn(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		h := take(t, v.permits(4, 4))
		sem := newSemaphore(t, v.connect(), semPath, 4)
		all := []*waiting{v.lineUp(sem.Permits(1)), v.lineUp(sem.Permits(4)), v.lineUp(sem.Permits(4)), v.lineUp(sem.Permits(4))}
		release(t, h)
		first := all[0].granted(t)
		time.Sleep(time.Second)
		all[2].stop()
		<-all[2].done
		time.Sleep(time.Second)
		sent := v.srv.Inject(zktest.Before(zktest.Multi).Path(semQueue + "/*").Delay(0).Optional())
		release(t, first)
		second := all[1].granted(t)
		synctest.Wait()
		require.Equal(t, 2, sent.Fired(), "one makes the leases, and one passes the turn")
		release(t, second)
		release(t, all[3].granted(t))
		v.has(0, 0, "I4")
	})
}

// The token is the czxid of the leases, however they were created. With one permit, it grows.
func TestVirtual_Semaphore_Token_IsTheLeases(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		_, quick := v.straight(2, 2)
		last := int64(0)
		check := func(h *zklock.Hold) {
			t.Helper()
			for _, name := range v.srv.Children(semLeases) {
				if strings.HasPrefix(h.Node(), semLeases+"/"+name[:len(name)-10]) {
					stat, ok := v.srv.Stat(semLeases + "/" + name)
					require.True(t, ok)
					require.Equal(t, stat.Czxid, h.Token())
				}
			}
			require.Greater(t, h.Token(), last)
			last = h.Token()
		}
		h := take(t, quick)
		check(h)
		next := v.lineUp(v.permits(2, 2))
		release(t, h)
		h = next.granted(t)
		check(h)
		release(t, h)
		h = take(t, quick)
		check(h)
		require.NoError(t, v.connect().CheckSequencer(t.Context(), semPath, h.Sequencer().String()))
		release(t, h)
	})
}
