package zklock_test

// These tests attack the observers of an election: observers that miss a leader, wake a candidate,
// or cost too much.

import (
	"context"
	"fmt"
	"path"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/zktest"
)

// observer reads the leaders in the background.
type observer struct {
	mu   sync.Mutex
	all  []zklock.Leadership
	err  error
	stop context.CancelFunc
	done chan struct{}
}

func (v *virtual) observe(e *zklock.Election) *observer {
	ctx, stop := context.WithCancel(context.Background())
	o := &observer{stop: stop, done: make(chan struct{})}
	go func() {
		defer close(o.done)
		for leader, err := range e.Observe(ctx) {
			o.mu.Lock()
			if err != nil {
				o.err = err
			} else {
				o.all = append(o.all, leader)
			}
			o.mu.Unlock()
		}
	}()
	v.t.Cleanup(func() { stop(); <-o.done })
	synctest.Wait()
	return o
}

// names returns the leaders' names, "-" if there was no leader, "?" if the leader was unknown.
func (o *observer) names() (names []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, p := range o.all {
		name := "-"
		switch {
		case p.Unknown:
			name = "?"
		case p.Node != "":
			name = string(p.Data)
		}
		names = append(names, name)
	}
	return names
}

func (o *observer) last() zklock.Leadership {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.all[len(o.all)-1]
}

// An observer sees each leader once, and also that there is none: before the path exists, while no
// candidate campaigns, and after the last leader. Candidates that queue or leave cause no update,
// and neither does a request to the leader to give way.
func TestVirtual_Observe_EachLeaderOnce(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		const path = "/job/deep/down"
		name := "a candidate with a name of more than sixty-four bytes, of which a watch keeps the beginning only"
		o := v.observe(newElection(t, v.connect(), path, "o"))
		require.Equal(t, []string{"-"}, o.names())
		s := v.connect()
		_, err := v.srv.Create("/job/deep", nil, 0)
		require.NoError(t, err)
		_, err = v.srv.Create(path, nil, 0)
		require.NoError(t, err)
		synctest.Wait()
		_, err = v.srv.Create(path+"/config", nil, 0)
		require.NoError(t, err)
		synctest.Wait()
		a := v.stand(newElection(t, s, path, name), untilItEnds)
		require.Equal(t, []string{"-", name}, o.names())
		require.Equal(t, a.hold.Load().Node(), o.last().Node)
		require.Equal(t, a.hold.Load().Token(), o.last().Token)
		require.Equal(t, s.Stats().SessionID, o.last().SessionID)
		b := v.stand(newElection(t, v.connect(), path, "b"), untilItEnds)
		c := v.stand(newElection(t, v.connect(), path, "c"), untilItEnds)
		b.stop()
		require.Error(t, b.returned(t))
		require.NoError(t, s.Revoke(within(t, soon), a.hold.Load().Node()))
		synctest.Wait()
		require.Equal(t, []string{"-", name}, o.names())
		a.stop()
		synctest.Wait()
		require.Equal(t, []string{"-", name, "c"}, o.names())
		c.stop()
		synctest.Wait()
		require.Equal(t, []string{"-", name, "c", "-"}, o.names())
		d := v.stand(newElection(t, v.connect(), path, "d"), untilItEnds)
		require.Equal(t, []string{"-", name, "c", "-", "d"}, o.names())
		d.stop()
		synctest.Wait()
		require.NoError(t, v.srv.Delete(path+"/config"))
		synctest.Wait()
		wipe(v.srv, "/job") // the path has no children, and is deleted
		synctest.Wait()
		v.stand(newElection(t, v.connect(), path, "e"), untilItEnds)
		require.Equal(t, []string{"-", name, "c", "-", "d", "-", "e"}, o.names())

		o.stop()
		<-o.done
		require.ErrorIs(t, o.err, context.Canceled)
	})
}

// Curator's 358: the leader is deleted between the list and the read of its node. Leader and
// Observe return the next one.
func TestVirtual_Leader_GoesMeanwhile(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		s := v.connect()
		e := newElection(t, s, "/job", "o")
		for _, ask := range []func() zklock.Participant{
			func() zklock.Participant {
				leader, err := e.Leader(within(t, soon))
				require.NoError(t, err)
				return leader
			},
			func() zklock.Participant { return v.observe(e).last().Participant },
		} {
			a := v.stand(newElection(t, v.connect(), "/job", "a"), untilItEnds)
			b := v.stand(newElection(t, v.connect(), "/job", "b"), untilItEnds)
			v.srv.Inject(zktest.Before(zktest.GetData).Session(s.Stats().SessionID).Path("/job/*").Once().Call(func() {
				_ = v.srv.Delete(a.hold.Load().Node())
			}))
			require.Equal(t, "b", string(ask().Data))
			a.stop()
			b.stop()
			<-a.done
			<-b.done
		}
		leader, err := e.Leader(within(t, soon))
		require.NoError(t, err)
		require.Equal(t, zklock.Participant{}, leader)
		v.stand(newElection(t, v.connect(), "/job", "a"), untilItEnds)
		v.stand(newElection(t, v.connect(), "/job", "b"), untilItEnds)
		all, err := e.Candidates(within(t, soon))
		require.NoError(t, err)
		require.Len(t, all, 2)
		require.Equal(t, "a b", string(all[0].Data)+" "+string(all[1].Data))
	})
}

// The first leader arrives between a list that shows none and the watch that is then set: on the
// path, or on its children. Or the path is deleted in between, and created again later.
func TestVirtual_Observe_LeaderComesMeanwhile(t *testing.T) {
	for path, watch := range map[string]zktest.Op{"/job/new": zktest.Exists, "/job": zktest.GetChildren} {
		inVirtualTime(t, func(t *testing.T, v *virtual) {
			s := v.connect()
			nth := map[bool]int{true: 1, false: 2}[watch == zktest.Exists] // the first list was empty
			v.srv.Inject(zktest.Before(watch).Session(s.Stats().SessionID).Path(path).Nth(nth).Once().Call(func() {
				_, _ = v.srv.Create(path, nil, 0) // one of the two exists
				_, err := v.srv.Create(path+"/_c_00000000-0000-0000-0000-000000000000-lock-0000000000", []byte("a"), 0)
				require.NoError(t, err)
			}))
			require.Equal(t, []string{"a"}, v.observe(newElection(t, s, path, "o")).names())
		})
	}
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		s := v.connect()
		v.srv.Inject(zktest.Before(zktest.GetChildren).Session(s.Stats().SessionID).Path("/job").Nth(2).Call(func() { wipe(v.srv, "/job") }))
		o := v.observe(newElection(t, s, "/job", "o"))
		v.stand(newElection(t, v.connect(), "/job", "a"), untilItEnds)
		require.Equal(t, []string{"-", "a"}, o.names())
	})
}

// A change of leader costs a Session one event, one read of the next leader and one or two lists,
// regardless of the number of its observers and of the length of the leader's name: one list is of
// the first observer to wake, and all other observers share the second. No candidate is woken.
// docs/performance.md has these numbers.
func TestVirtual_Observe_Costs(t *testing.T) {
	for _, c := range []struct{ observers, longName int }{{1, 0}, {10, 0}, {1000, 0}, {1, 1000}, {1000, 65}, {1000, 10_000}} {
		observers, suffix := c.observers, strings.Repeat("x", c.longName)
		t.Run(fmt.Sprint(observers, " name ", c.longName), func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, v *virtual) {
				v.net.SetLatency(time.Millisecond)
				var queue []*candidate
				var wires []*wire
				for i := range 5 {
					w := &wire{dial: v.net.Dial}
					wires = append(wires, w)
					queue = append(queue, v.stand(newElection(t, v.connect(w.dialer()), "/job", fmt.Sprint("c", i, suffix)), untilItEnds))
					time.Sleep(time.Second)
				}
				w := &wire{dial: v.net.Dial}
				s := v.connect(w.dialer())
				all := make([]*observer, observers)
				for i := range all {
					all[i] = v.observe(newElection(t, s, "/job", "o"))
				}
				time.Sleep(time.Second)
				for i := range 3 {
					w.reset()
					last := wires[4]
					last.reset()
					queue[i].stop()
					time.Sleep(time.Second)
					for _, o := range all {
						require.Equal(t, fmt.Sprint("c", i+1, suffix), string(o.last().Data))
						require.Len(t, o.names(), i+2)
					}
					sent, by := w.sent()
					t.Logf("%d observers, a change of leader: %d requests (%s), %d events, %d bytes", observers, sent, spell(by), w.received().events, w.received().bytes)
					require.Equal(t, 1, w.received().events)
					require.Equal(t, 1, by[opGetData])
					require.LessOrEqual(t, by[opGetChildren2], min(observers, 2))
					require.Equal(t, by[opGetData]+by[opGetChildren2], sent)
					if i < 2 { // at the third, the last is second in the queue, and checks
						n, _ := last.sent()
						require.Zero(t, n, "a candidate was woken")
						require.Zero(t, last.received().events)
					}
				}
				// Candidates that queue or leave further back cause no update.
				w.reset()
				more := v.stand(newElection(t, v.connect(), "/job", "more"), untilItEnds)
				more.stop()
				time.Sleep(time.Second)
				n, _ := w.sent()
				require.Zero(t, n)
				require.Zero(t, w.received().events)
				// A change that leaves no leader costs a list, a watch on the children, and a list
				// after that.
				queue[4].stop()
				time.Sleep(time.Second)
				w.reset()
				queue[3].stop()
				time.Sleep(time.Second)
				sent, by := w.sent()
				require.Empty(t, all[0].last().Node)
				require.Equal(t, 1, w.received().events)
				require.LessOrEqual(t, sent, map[bool]int{true: 3, false: 5}[observers == 1])
				require.Equal(t, sent, by[opGetChildren2])
			})
		})
	}
}

// A leader that changes while the observer has no connection, or while its ZooKeeper session is
// lost, is seen afterwards. The same leader causes no update, unless the outage was so long that
// the observer was notified of an unknown leader.
func TestVirtual_Observe_CutOff(t *testing.T) {
	for _, silence := range []time.Duration{3 * time.Second, time.Minute} {
		inVirtualTime(t, func(t *testing.T, v *virtual) {
			line := &line{dial: v.net.Dial}
			a := v.stand(newElection(t, v.connect(), "/job", "a"), untilItEnds)
			b := v.stand(newElection(t, v.connect(), "/job", "b"), untilItEnds)
			s := v.connect(zklock.WithDialer(line.Dial))
			o := v.observe(newElection(t, s, "/job", "o"))
			var told []string
			cut := func(meanwhile func(), want ...string) {
				t.Helper()
				line.silent.Store(true)
				require.True(t, v.srv.DropConnection(s.Stats().SessionID))
				time.Sleep(silence / 2)
				meanwhile()
				time.Sleep(silence / 2)
				line.silent.Store(false)
				time.Sleep(10 * time.Second) // less than the interval in which the Session rechecks its watches
				if silence == time.Minute {
					told = append(told, "?")
				} else if len(told) > 0 && want[0] == told[len(told)-1] {
					want = nil
				}
				told = append(told, want...)
				require.Equal(t, told, o.names())
			}
			told = o.names()
			require.Equal(t, []string{"a"}, told)
			cut(func() {}, "a")
			cut(a.stop, "b")
			cut(b.stop, "-")
			cut(func() { v.stand(newElection(t, v.connect(), "/job", "c"), untilItEnds) }, "c")
		})
	}
}

// The watch on a path that does not exist yet is also set again on the next connection.
func TestVirtual_Observe_CutOff_PathIsMade(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		line := &line{dial: v.net.Dial}
		s := v.connect(zklock.WithDialer(line.Dial))
		o := v.observe(newElection(t, s, "/job/new", "o"))
		line.silent.Store(true)
		require.True(t, v.srv.DropConnection(s.Stats().SessionID))
		time.Sleep(time.Second)
		v.stand(newElection(t, v.connect(), "/job/new", "a"), untilItEnds)
		line.silent.Store(false)
		time.Sleep(10 * time.Second)
		require.Equal(t, []string{"-", "a"}, o.names())
	})
}

// F30: the event of each kind of watch is lost. The Session rechecks its watches, so the observer
// is late by a session timeout at most, and misses nothing.
func TestVirtual_Observe_EventLost(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		const path = "/job/e"
		s := v.connect()
		late := s.Stats().SessionTimeout + 3*time.Second // no change coincides with a recheck, each 10 s
		o := v.observe(newElection(t, s, path, "o"))
		lost := func(event zktest.EventType, path string, change func(), want ...string) {
			t.Helper()
			f := v.srv.Inject(zktest.OnEvent(event).Path(path).Drop().Once())
			change()
			synctest.Wait()
			require.Equal(t, 1, f.Fired())
			require.Len(t, o.names(), len(want)-1)
			time.Sleep(late)
			require.Equal(t, want, o.names())
		}
		var a *candidate
		lost(zktest.NodeCreated, path, func() { a = v.stand(newElection(t, v.connect(), path, "a"), untilItEnds) }, "-", "a")
		lost(zktest.NodeDeleted, a.hold.Load().Node(), a.stop, "-", "a", "-")
		lost(zktest.NodeChildrenChanged, path, func() { v.stand(newElection(t, v.connect(), path, "b"), untilItEnds) }, "-", "a", "-", "b")
	})
}

// I6, I7: observers that end leave no goroutine and no watch; a slow one misses leaders, but not
// the last.
func TestVirtual_Observe_GrowsNothing(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		s := v.connect()
		e := newElection(t, s, "/job", "o")
		var before map[string]int
		for i := range 100 {
			for range e.Observe(within(t, soon)) {
				break
			}
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
			for _, err := range e.Observe(ctx) {
				require.True(t, err == nil || strings.Contains(err.Error(), "observe /job: context deadline exceeded"), err)
			}
			cancel()
			if i == 0 {
				before = footprint(s)
			}
		}
		require.Equal(t, before, footprint(s))
		require.Empty(t, v.srv.Watches())

		next := make(chan struct{})
		var slow []string
		var ended error
		go func() {
			for leader, err := range e.Observe(within(t, time.Hour)) {
				if ended = err; err == nil {
					slow = append(slow, string(leader.Data))
					<-next
				}
			}
		}()
		synctest.Wait()
		for i := range 5 {
			v.stand(newElection(t, v.connect(), "/job", fmt.Sprint("c", i)), untilItEnds).stop()
			synctest.Wait()
		}
		v.stand(newElection(t, v.connect(), "/job", "last"), untilItEnds)
		close(next)
		synctest.Wait()
		require.Equal(t, []string{"", "last"}, slow)
		require.NoError(t, s.Close())
		synctest.Wait()
		require.ErrorIs(t, ended, zklock.ErrClosed)
	})
}

// An outage of all servers: the observer is notified once, in bounded time, that the leader is
// unknown; the next pair is the leader.
func TestVirtual_Observe_Outage_ReportsUnknown(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		a := v.stand(newElection(t, v.connect(), "/job", "a"), untilItEnds)
		s := v.connect()
		o := v.observe(newElection(t, s, "/job", "o"))
		v.srv.Stop()
		time.Sleep(s.Stats().SessionTimeout * 7 / 6)
		time.Sleep(2 * time.Second)
		require.Equal(t, []string{"a", "?"}, o.names(), "it names a leader who may have gone long ago")
		require.Empty(t, o.last().Node)
		time.Sleep(time.Hour)
		require.Len(t, o.names(), 2)
		v.srv.Start()
		time.Sleep(time.Minute)
		require.NoError(t, o.err)
		require.EqualValues(t, 1, a.leads.Load())
		require.Equal(t, "a", o.names()[len(o.names())-1])
	})
}

// The same applies if the outage begins while the observer looks for the next leader: the leader
// that it has reported may also be long gone.
func TestVirtual_Observe_Outage_InTheRead_ReportsUnknown(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		line := &line{dial: v.net.Dial}
		a := v.stand(newElection(t, v.connect(), "/job", "a"), untilItEnds)
		s := v.connect(zklock.WithDialer(line.Dial))
		o := v.observe(newElection(t, s, "/job", "o"))
		v.srv.Inject(zktest.Before(zktest.GetChildren).Session(s.Stats().SessionID).Once().Call(func() { line.silent.Store(true) }))
		a.stop()
		time.Sleep(s.Stats().SessionTimeout*7/6 + 2*time.Second)
		require.Equal(t, []string{"a", "?"}, o.names())
		time.Sleep(time.Hour)
		require.Equal(t, []string{"a", "?"}, o.names())
		line.silent.Store(false)
		time.Sleep(time.Minute)
		require.Equal(t, []string{"a", "?", "-"}, o.names())
	})
}

// The observer may not read a candidate's node: a pair with an error names it, and the iterator
// continues with the next leader.
func TestVirtual_Observe_LeaderMayNotBeRead_GoesOn(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		s := v.connect()
		a := v.stand(newElection(t, v.connect(), "/job", "a"), untilItEnds)
		v.srv.Inject(zktest.Before(zktest.GetData).Session(s.Stats().SessionID).Path(a.hold.Load().Node()).Fail(zktest.NoAuth))
		v.stand(newElection(t, v.connect(), "/job", "b"), untilItEnds)
		type pair struct {
			node string
			err  error
		}
		var pairs []pair
		v.srv.ResetRequests()
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		go func() {
			for leader, err := range newElection(t, s, "/job", "o").Observe(ctx) {
				pairs = append(pairs, pair{leader.Node, err})
			}
		}()
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Len(t, pairs, 1)
		require.Equal(t, a.hold.Load().Node(), pairs[0].node)
		require.ErrorIs(t, pairs[0].err, zk.ErrNoAuth)
		require.ErrorContains(t, pairs[0].err, "observe /job")
		require.Less(t, v.srv.Requests().Total(zktest.GetData)+v.srv.Requests().Total(zktest.GetChildren), 10, "it polls")
		v.stand(newElection(t, v.connect(), "/job", "c"), untilItEnds)
		require.Len(t, pairs, 1, "who queues is no news")
		a.stop()
		synctest.Wait()
		require.Len(t, pairs, 2)
		require.NoError(t, pairs[1].err)
		require.Contains(t, v.srv.Children("/job"), path.Base(pairs[1].node))
		cancel()
		synctest.Wait()
		require.Len(t, pairs, 3)
		require.ErrorIs(t, pairs[2].err, context.Canceled)
	})
}

// During a lock-delay, the first candidate does not lead: Leader, Front and Observe report that,
// and Observe reports when it does.
func TestVirtual_Observe_LockDelay_TellsWhenItLeads(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		v.net.SetLatency(time.Millisecond)
		const delay = 2 * time.Minute
		later := zklock.WithLockDelay(delay)
		s := v.connect()
		a := v.stand(newElection(t, s, "/job", "a", later), untilItEnds)
		time.Sleep(time.Second)
		observer := newElection(t, v.connect(), "/job", "o", later)
		o := v.observe(observer)
		b := v.stand(newElection(t, v.connect(), "/job", "b", later), untilItEnds)
		time.Sleep(time.Second)
		leader, err := observer.Leader(within(t, soon))
		require.NoError(t, err)
		require.Zero(t, leader.DelayUntil, "it leads")
		require.True(t, leader.Holds)

		require.NoError(t, v.srv.Delete(a.hold.Load().Node()))
		end := time.Now().Add(delay)
		time.Sleep(time.Second)
		require.Zero(t, b.leads.Load())
		leader, err = observer.Leader(within(t, soon))
		require.NoError(t, err)
		all, err := newMutex(t, v.connect(), "/job", later).Participants(within(t, soon))
		require.NoError(t, err)
		for _, p := range []zklock.Participant{o.last().Participant, leader, all[0]} {
			require.Equal(t, "b", string(p.Data))
			require.WithinDuration(t, end, p.DelayUntil, 2*time.Second)
			require.False(t, p.Holds, "it waits for the lock-delay")
		}
		require.Equal(t, []string{"a", "b"}, o.names())
		time.Sleep(delay)
		require.EqualValues(t, 1, b.leads.Load())
		require.Equal(t, []string{"a", "b", "b"}, o.names(), "nobody says when it leads")
		require.Zero(t, o.last().DelayUntil)
		require.True(t, o.last().Holds)
		leader, err = observer.Leader(within(t, soon))
		require.NoError(t, err)
		require.Zero(t, leader.DelayUntil)

		require.NoError(t, b.e.Resign(within(t, soon))) // the next leads at once
		time.Sleep(time.Minute)
		require.EqualValues(t, 1, a.leads.Load())
		require.Equal(t, []string{"a", "b", "b", "a"}, o.names())
		require.Zero(t, o.last().DelayUntil)
	})
}

// I7: observers of many paths, one after the other, leave no watch behind, on the server or here.
// If the user watches over Conn, or a waiter of the Session needs the event, that watch remains.
func TestVirtual_Observe_ManyPaths_LeaveNoWatch(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		s := v.connect()
		once := func(path string) {
			for _, err := range newElection(t, s, path, "o").Observe(within(t, soon)) {
				require.NoError(t, err)
				break
			}
		}
		var before map[string]int
		for i := range 200 {
			path := fmt.Sprint("/job/", i)
			switch i % 3 {
			case 0: // there is no such path
			case 1:
				_, err := v.srv.Create(path, nil, 0)
				require.NoError(t, err)
			case 2:
				_, err := v.srv.Create(path, nil, 0)
				require.NoError(t, err)
				_, err = v.srv.Create(path+"/_c_00000000-0000-0000-0000-000000000000-lock-0000000000", nil, 0)
				require.NoError(t, err)
			}
			once(path)
			if synctest.Wait(); i == 2 {
				before = footprint(s)
			}
		}
		require.Empty(t, v.srv.Watches())
		require.Equal(t, before, footprint(s))

		a := v.stand(newElection(t, v.connect(), "/job/e", "a"), untilItEnds)
		w := v.queueUp(newMutex(t, s, "/job/e"))
		once("/job/e")
		synctest.Wait()
		a.stop()
		synctest.Wait()
		release(t, w.granted2(t, time.Second))

		a = v.stand(newElection(t, v.connect(), "/job/e", "a"), untilItEnds)
		_, _, users, err := s.Conn().GetW(a.hold.Load().Node())
		require.NoError(t, err)
		once("/job/e")
		synctest.Wait()
		a.stop()
		synctest.Wait()
		require.Len(t, users, 1, "a watch of the user's is gone")
		require.Equal(t, zklock.StateConnected, s.Stats().State, "the connection was given up for it")
		a = v.stand(newElection(t, s, "/job/e", "a"), untilItEnds)
		time.Sleep(time.Minute)
		require.EqualValues(t, 1, a.leads.Load())
	})
}

// R96: servers that respond "not now" at once are asked less and less often, by all readers of a
// queue. Without pacing, each reader would send 3,000 requests a minute.
func TestVirtual_Reads_BackOff(t *testing.T) {
	reads := map[string]func(ctx context.Context, e *zklock.Election, m *zklock.Mutex){
		"Leader":       func(ctx context.Context, e *zklock.Election, _ *zklock.Mutex) { _, _ = e.Leader(ctx) },
		"Candidates":   func(ctx context.Context, e *zklock.Election, _ *zklock.Mutex) { _, _ = e.Candidates(ctx) },
		"Participants": func(ctx context.Context, _ *zklock.Election, m *zklock.Mutex) { _, _ = m.Participants(ctx) },
		"Campaign": func(ctx context.Context, e *zklock.Election, _ *zklock.Mutex) {
			_ = e.Campaign(ctx, func(context.Context, *zklock.Hold) error { return nil })
		},
		"Observe": func(ctx context.Context, e *zklock.Election, _ *zklock.Mutex) {
			for _, err := range e.Observe(ctx) {
				if err != nil {
					return
				}
			}
		},
		"100 observers": func(ctx context.Context, e *zklock.Election, _ *zklock.Mutex) {
			var all sync.WaitGroup
			for range 100 {
				all.Go(func() {
					for _, err := range e.Observe(ctx) {
						if err != nil {
							return
						}
					}
				})
			}
			all.Wait()
		},
		"Acquire": func(ctx context.Context, _ *zklock.Election, m *zklock.Mutex) {
			if h, err := m.Acquire(ctx); err == nil {
				_ = h.Release(ctx)
			}
		},
	}
	for name, read := range reads {
		for _, code := range []zktest.Code{zktest.Throttled, zktest.OperationTimeout, -5, -1} {
			t.Run(fmt.Sprintf("%s %d", name, code), func(t *testing.T) {
				inVirtualTime(t, func(t *testing.T, v *virtual) {
					s := v.connect()
					e, m := newElection(t, s, "/job", "a"), newMutex(t, s, "/job")
					v.srv.Inject(zktest.Before(zktest.GetChildren).Fail(code))
					v.srv.ResetRequests()
					ctx := within(t, time.Minute)
					start := time.Now()
					read(ctx, e, m)
					require.LessOrEqual(t, time.Since(start), time.Minute+500*time.Millisecond, "I6")
					asked := v.srv.Requests().Total(zktest.GetChildren)
					require.Greater(t, asked, 10, "it gave up")
					callers := 1
					if name == "100 observers" {
						callers = 100
					}
					require.LessOrEqual(t, asked, 25*callers)
				})
			})
		}
	}
}
