package zklock_test

// These tests attack Once: marked work does not run again, whatever response is lost, whichever
// process crashes and however far a server lags; and work that is not marked runs again.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
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

// counts counts the runs of each key.
type counts struct {
	mu   sync.Mutex
	runs map[string]int
}

func (c *counts) work(key string) func(context.Context, *zklock.Hold) error {
	return func(context.Context, *zklock.Hold) error {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.runs == nil {
			c.runs = map[string]int{}
		}
		c.runs[key]++
		return nil
	}
}

func (c *counts) of(key string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.runs[key]
}

// idle is work with no effect.
func idle(context.Context, *zklock.Hold) error { return nil }

// Three Sessions, in parallel and one after the other: each key runs once, and each Session reports
// who ran it. This remains true when the servers have removed the lock root, which is a container.
func TestOnce_ThreeSessions_OneRunForEachKey(t *testing.T) {
	srv := startOwn(t, serverConfig{containerCheck: 50 * time.Millisecond}).Addr()
	if isBefore(t, srv, "3.5") {
		t.Skip("not on ZooKeeper before 3.5, which has no containers")
	}
	a, c := admin(t, srv), &counts{}
	var all []*zklock.Mutex
	for _, o := range [][]zklock.MutexOption{nil, {zklock.WithData([]byte("host b"))}, {zklock.WithMinHold(time.Millisecond)}} {
		all = append(all, newMutex(t, connect(t, srv), "/jobs/nightly", append(o, zklock.WithContainer())...))
	}
	keys := []string{"v1.9", "v1.10", "2026-07-01", "a day with Größe"}
	for range 2 {
		for _, key := range keys {
			var calls sync.WaitGroup
			var ran atomic.Int32
			for _, m := range all {
				calls.Go(func() {
					did, err := m.Once(within(t, time.Minute), key, c.work(key))
					if err != nil {
						t.Errorf("%s: %v", key, err)
					}
					if did {
						ran.Add(1)
					}
				})
			}
			calls.Wait()
			require.Equal(t, 1, c.of(key), key)
			require.LessOrEqual(t, ran.Load(), int32(1))
		}
		eventually(t, "the servers have removed the lock root", func() bool {
			names, _, err := a.Children("/jobs")
			return err == nil && len(names) == 1
		})
	}
	runs, err := all[0].Runs(within(t, time.Minute))
	require.NoError(t, err)
	require.Len(t, runs, len(keys))
	for i, r := range runs {
		require.Equal(t, keys[i], r.Key)
		require.NotEmpty(t, r.By)
		require.WithinDuration(t, time.Now(), r.At, time.Minute)
		require.True(t, i == 0 || r.Token > runs[i-1].Token)
	}
}

// A done key costs one read. The first run of a key costs that read, a second one as a proof, and
// two writes of the mark, whether it exists or not.
func TestVirtual_Once_Cost(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		m := newMutex(t, v.connect(), "/job")
		once := func(key string, want bool) zktest.Counts {
			t.Helper()
			v.srv.ResetRequests()
			ran, err := m.Once(within(t, time.Minute), key, idle)
			require.NoError(t, err)
			require.Equal(t, want, ran)
			return v.srv.Requests()
		}
		for _, key := range []string{"a", "b"} {
			first := once(key, true)
			require.Equal(t, 2, first.Total(zktest.GetData), key)
			require.Equal(t, 2, first.Total(zktest.Multi), key)
		}
		again := once("a", false)
		require.Equal(t, 1, again.Total(zktest.GetData))
		require.Zero(t, again.Total(zktest.Multi, zktest.Create, zktest.Delete, zktest.GetChildren))
	})
}

// The waiter is granted by an event, its connection drops, and the next server lags behind the
// event: it shows no mark until it responds to a transaction. f is not called.
func TestVirtual_Once_GrantedThenConnectedToAServerThatLags_DoesNotRun(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		c, s := &counts{}, v.connect()
		holder, waiter := newMutex(t, v.connect(), "/job"), newMutex(t, s, "/job")
		ran := make(chan bool, 1)
		first, err := holder.Once(within(t, time.Minute), "a", func(ctx context.Context, h *zklock.Hold) error {
			go func() {
				did, err := waiter.Once(within(t, time.Minute), "a", c.work("a"))
				if err != nil {
					t.Error(err)
				}
				ran <- did
			}()
			synctest.Wait() // it waits
			v.srv.Inject(zktest.OnEvent(zktest.NodeDeleted).Path("/job/*").Session(s.Stats().SessionID).Call(func() { go v.srv.DropConnection(s.Stats().SessionID) }).Once())
			lags := v.srv.Inject(zktest.Before(zktest.GetData).Path("/job-done").Session(s.Stats().SessionID).Fail(zktest.NoNode).Optional())
			v.srv.Inject(zktest.After(zktest.Multi).Session(s.Stats().SessionID).Call(func() { go lags.Remove() }).Delay(time.Millisecond).Once())
			return nil
		})
		require.NoError(t, err)
		require.True(t, first)
		require.False(t, <-ran)
		require.Zero(t, c.of("a"))
	})
}

// Any request or response of the holder is lost with its connection, or arrives twice: f runs once,
// is marked once, and Once reports that.
func TestVirtual_Once_EachAnswerIsLost_RunsOnce(t *testing.T) {
	for _, at := range []struct {
		op   zktest.Op
		path string
		nth  int
	}{{zktest.GetData, "/job-done", 1}, {zktest.Multi, "/job/*", 1}, {zktest.GetData, "/job-done", 2}, {zktest.Multi, "/job/*", 2}, {zktest.Delete, "/job/*", 1}} {
		for _, f := range []zktest.Fault{zktest.Before(at.op).Close(), zktest.After(at.op).DropReply().Close()} {
			f = f.Path(at.path).Nth(at.nth).Once()
			t.Run(f.String(), func(t *testing.T) {
				inVirtualTime(t, func(t *testing.T, v *virtual) {
					c, m := &counts{}, newMutex(t, v.connect(), "/job")
					_, err := m.Once(within(t, time.Minute), "before", idle)
					require.NoError(t, err)
					in := v.srv.Inject(f)
					ran, err := m.Once(within(t, time.Minute), "a", c.work("a"))
					require.NoError(t, err)
					require.True(t, ran)
					require.NoError(t, in.Wait(within(t, time.Minute)))
					require.Equal(t, 1, c.of("a"))
					runs, err := m.Runs(within(t, time.Minute))
					require.NoError(t, err)
					require.Len(t, runs, 2)
					require.Equal(t, "a", runs[1].Key)
					synctest.Wait()
					require.Empty(t, v.srv.Children("/job"))
				})
			})
		}
	}
}

// A mark that arrives late, after its holder has written again or has ended, changes nothing.
func TestVirtual_Once_LateMark_ChangesNothing(t *testing.T) {
	for name, isGone := range map[string]bool{"the holder has gone on": false, "the holder is gone": true} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, v *virtual) {
				s := v.connect()
				m := newMutex(t, s, "/job")
				late := v.srv.Inject(zktest.Before(zktest.Multi).Path("/job/*").Nth(2).Delay(20 * time.Second).Once())
				err := m.Do(within(t, time.Hour), func(ctx context.Context, h *zklock.Hold) error {
					go func() {
						require.NoError(t, late.Wait(within(t, time.Minute)))
						if v.srv.DropConnection(s.Stats().SessionID); isGone {
							v.srv.ExpireSession(s.Stats().SessionID)
						}
					}()
					if _, err := m.Once(reentering(h), "a", idle); err != nil {
						return err
					}
					_, err := m.Once(reentering(h), "b", idle)
					return err
				})
				other := newMutex(t, v.connect(), "/job")
				if isGone {
					require.ErrorIs(t, err, zklock.ErrNotMarked)
					require.ErrorIs(t, err, zklock.ErrLost)
					time.Sleep(time.Minute)
					ran, err := other.Once(within(t, time.Minute), "a", idle)
					require.NoError(t, err)
					require.True(t, ran, "it was not marked")
					return
				}
				require.NoError(t, err)
				time.Sleep(time.Minute)
				for _, key := range []string{"a", "b"} {
					ran, err := other.Once(within(t, time.Minute), key, idle)
					require.NoError(t, err)
					require.False(t, ran, key)
				}
			})
		})
	}
}

// Work that is not marked runs again: f failed, its holder crashed or lost the lock, or the lock
// was released during f. The context of f ends with the lock. The error reports that f has
// succeeded, and why it is not marked.
func TestVirtual_Once_NotMarked_RunsAgain(t *testing.T) {
	fails := errors.New("no disk")
	for name, tt := range map[string]struct {
		f    func(v *virtual, s *zklock.Session) func(context.Context, *zklock.Hold) error
		want []error
	}{
		"f fails": {func(*virtual, *zklock.Session) func(context.Context, *zklock.Hold) error {
			return func(context.Context, *zklock.Hold) error { return fails }
		}, []error{fails}},
		"the session ends": {func(v *virtual, s *zklock.Session) func(context.Context, *zklock.Hold) error {
			return func(ctx context.Context, _ *zklock.Hold) error {
				v.srv.ExpireSession(s.Stats().SessionID)
				<-ctx.Done()
				return nil
			}
		}, []error{zklock.ErrNotMarked, zklock.ErrLost}},
		"the node is deleted, and the mark finds that first": {func(v *virtual, _ *zklock.Session) func(context.Context, *zklock.Hold) error {
			return func(_ context.Context, h *zklock.Hold) error { return v.srv.Delete(h.Node()) }
		}, []error{zklock.ErrNotMarked, zklock.ErrLost}},
		"f releases": {func(*virtual, *zklock.Session) func(context.Context, *zklock.Hold) error {
			return func(ctx context.Context, h *zklock.Hold) error { return h.Release(ctx) }
		}, []error{zklock.ErrNotMarked, zklock.ErrNotHeld}},
		"the Session is closed": {func(_ *virtual, s *zklock.Session) func(context.Context, *zklock.Hold) error {
			return func(context.Context, *zklock.Hold) error { return s.Close() }
		}, []error{zklock.ErrNotMarked, zklock.ErrClosed}},
	} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, v *virtual) {
				s := v.connect()
				ran, err := newMutex(t, s, "/job").Once(within(t, time.Minute), "a", tt.f(v, s))
				require.True(t, ran)
				for _, want := range tt.want {
					require.ErrorIs(t, err, want)
				}
				require.False(t, zklock.IsFinal(err) && name != "the Session is closed", err)
				m := newMutex(t, v.connect(), "/job")
				ran, err = m.Once(within(t, time.Minute), "a", idle)
				require.NoError(t, err)
				require.True(t, ran)
			})
		})
	}
}

// The caller's context ends just as f succeeds: the key is marked. If the context ends before, f is
// not called.
func TestVirtual_Once_ContextEnds(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		m := newMutex(t, v.connect(), "/job")
		ctx, cancel := context.WithCancel(t.Context())
		ran, err := m.Once(ctx, "a", func(context.Context, *zklock.Hold) error { cancel(); return nil })
		require.NoError(t, err)
		require.True(t, ran)
		ran, err = m.Once(within(t, time.Minute), "a", idle)
		require.NoError(t, err)
		require.False(t, ran)

		ctx, cancel = context.WithCancel(t.Context())
		v.srv.Inject(zktest.After(zktest.Multi).Path("/job/*").Call(func() { go cancel() }).DropReply().Once())
		ran, err = m.Once(ctx, "b", func(context.Context, *zklock.Hold) error { t.Error("f was called"); return nil })
		require.ErrorIs(t, err, context.Canceled)
		require.False(t, ran)

		// No server responds any more: Once gives up on the mark half a second after the context.
		ctx, cancel = context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		began := time.Now()
		ran, err = m.Once(ctx, "b", func(context.Context, *zklock.Hold) error { v.srv.Freeze(); return nil })
		require.True(t, ran)
		require.ErrorIs(t, err, zklock.ErrNotMarked)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Less(t, time.Since(began), 5*time.Second)
		v.srv.Thaw()
	})
}

// R115: the servers reject the mark: its ACL, or a parent where the client may not create. f is not
// called. The error is final and names the missing permission. A mark that the servers reject only
// after f ran is ErrNotMarked.
func TestVirtual_Once_MarkIsRejected_DoesNotRun(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		a := v.connect(zklock.WithDigest("admin", "secret")).Conn()
		_, err := a.Create("/open", nil, 0, zk.WorldACL(zk.PermAll))
		require.NoError(t, err)
		m, c := newMutex(t, v.connect(), "/open/job"), &counts{}
		_, err = m.Once(within(t, time.Minute), "a", idle)
		require.NoError(t, err)
		rejected := func(m *zklock.Mutex, why string) {
			t.Helper()
			ran, err := m.Once(within(t, time.Minute), "b", c.work("b"))
			require.False(t, ran)
			require.ErrorIs(t, err, zk.ErrNoAuth)
			require.NotErrorIs(t, err, zklock.ErrNotMarked)
			require.ErrorContains(t, err, why)
			require.True(t, zklock.IsFinal(err))
			require.Zero(t, c.of("b"))
		}
		_, err = a.SetACL("/open/job-done", zk.WorldACL(zk.PermRead), -1)
		require.NoError(t, err)
		rejected(m, "set: no WRITE permission on /open/job-done")

		require.NoError(t, a.Delete("/open/job-done", -1))
		_, err = a.SetACL("/open", zk.WorldACL(zk.PermRead), -1)
		require.NoError(t, err)
		rejected(m, "create: no CREATE permission on /open")

		_, err = v.srv.Create("/open/job-done", nil, 0) // an administrator may prepare it
		require.NoError(t, err)
		ran, err := m.Once(within(t, time.Minute), "b", func(context.Context, *zklock.Hold) error {
			_, err := a.SetACL("/open/job-done", zk.WorldACL(zk.PermRead), -1)
			return err
		})
		require.True(t, ran)
		require.ErrorIs(t, err, zklock.ErrNotMarked)
		require.ErrorContains(t, err, "set: no WRITE permission on /open/job-done")

		private := newMutex(t, v.connect(zklock.WithDigest("admin", "secret")), "/job", zklock.WithACL(zk.AuthACL(zk.PermAll)))
		_, err = private.Once(within(t, time.Minute), "a", idle)
		require.NoError(t, err)
		rejected(newMutex(t, v.connect(), "/job"), "no READ permission on /job-done")
	})
}

// R115: of several hosts whose servers reject the mark, none runs f, however often it is called.
func TestVirtual_Once_MarkIsRejected_NoHostRuns(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		a := v.connect(zklock.WithDigest("admin", "secret")).Conn()
		// As an administrator prepares them.
		for _, p := range []string{"/locks", "/locks/nightly"} {
			_, err := a.Create(p, nil, 0, zk.WorldACL(zk.PermAll))
			require.NoError(t, err)
		}
		_, err := a.SetACL("/locks", zk.WorldACL(zk.PermRead), -1)
		require.NoError(t, err)
		c, failed := &counts{}, atomic.Int32{}
		var all sync.WaitGroup
		for range 3 {
			m := newMutex(t, v.connect(), "/locks/nightly")
			all.Go(func() {
				for range 2 {
					if _, err := m.Once(within(t, time.Hour), "a day", c.work("a day")); errors.Is(err, zk.ErrNoAuth) {
						failed.Add(1)
					}
				}
			})
		}
		all.Wait()
		require.Zero(t, c.of("a day"))
		require.EqualValues(t, 6, failed.Load())
		require.Empty(t, v.srv.Children("/locks/nightly"), "I4")
	})
}

// R115: the mark has room for the earlier runs but not for this one: a quota of bytes, or a
// jute.maxbuffer, on which the servers close the connection. f is not called.
func TestVirtual_Once_MarkIsTooLong_DoesNotRun(t *testing.T) {
	grows := func(t *testing.T, v *virtual, m *zklock.Mutex) (runs int) {
		t.Helper()
		c, key := &counts{}, func(i int) string { return fmt.Sprintf("%0200d", i) }
		for ; runs < 50; runs++ {
			ran, err := m.Once(within(t, time.Minute), key(runs), c.work(key(runs)))
			if err != nil {
				require.False(t, ran)
				require.NotErrorIs(t, err, zklock.ErrNotMarked)
				require.NotErrorIs(t, err, context.DeadlineExceeded, "the servers reject it, again and again")
				require.Zero(t, c.of(key(runs)))
				t.Logf("after %d runs: %v", runs, err)
				break
			}
		}
		marked, err := m.Runs(within(t, time.Minute))
		require.NoError(t, err)
		require.Len(t, marked, runs)
		return runs
	}
	t.Run("a quota", func(t *testing.T) {
		inVirtualTime(t, func(t *testing.T, v *virtual) {
			const limits = "count=-1,bytes=-1=;byteHardLimit=2000;countHardLimit=-1"
			for _, n := range [][2]string{{"", ""}, {"/zookeeper_limits", limits}, {"/zookeeper_stats", "count=0,bytes=0"}} {
				_, err := v.srv.Create("/zookeeper/quota/job"+n[0], []byte(n[1]), 0)
				require.NoError(t, err)
			}
			runs := grows(t, v, newMutex(t, v.connect(), "/job/a"))
			require.Greater(t, runs, 3)
			require.Less(t, runs, 8)
		}, zktest.WithConfig("enforceQuota=true"))
	})
	t.Run("jute.maxbuffer", func(t *testing.T) {
		inVirtualTime(t, func(t *testing.T, v *virtual) {
			s := v.connect(zklock.WithDialer((&narrow{dial: v.net.Dial, most: 6 << 10}).Dial))
			runs := grows(t, v, newMutex(t, s, "/job/a"))
			require.Greater(t, runs, 15)
			require.Less(t, runs, 25)
		})
	})
}

// Foreign data in PATH-done is not changed, and f is not called: other text, the root of another
// lock, a newer format, a list with additional data.
func TestVirtual_Once_DataOfOthers_IsNotTouched(t *testing.T) {
	for _, data := range []string{"done", "{}", `{"key":""}`, `[1]`, "held=_c_x-lock-0000000001", `{"key":"a","by":"b","at":"2026-07-01T00:00:00Z","token":1,"new":1}`, `{"key":"a"`,
		`{"key":"a","by":"b","at":"2026-07-01T00:00:00Z","token":1}]`, `{"key":"a","by":"b","at":"2026-07-01T00:00:00Z","token":1}} theirs`} {
		t.Run(data, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, v *virtual) {
				_, err := v.srv.Create("/job-done", []byte(data), 0)
				require.NoError(t, err)
				m := newMutex(t, v.connect(), "/job")
				ran, err := m.Once(within(t, time.Minute), "a", func(context.Context, *zklock.Hold) error { t.Error("f was called"); return nil })
				require.False(t, ran)
				require.ErrorContains(t, err, "/job-done has data of another program")
				require.True(t, zklock.IsFinal(err))
				_, err = m.Runs(within(t, time.Minute))
				require.ErrorContains(t, err, "/job-done has data of another program")
				now, _ := v.srv.Get("/job-done")
				require.Equal(t, data, string(now))
			})
		})
	}
	inVirtualTime(t, func(t *testing.T, v *virtual) { // it is created while f runs
		m := newMutex(t, v.connect(), "/job")
		ran, err := m.Once(within(t, time.Minute), "a", func(context.Context, *zklock.Hold) error {
			return v.srv.SetData("/job-done", []byte("theirs"))
		})
		require.True(t, ran)
		require.ErrorIs(t, err, zklock.ErrNotMarked)
		now, _ := v.srv.Get("/job-done")
		require.Equal(t, "theirs", string(now))
	})
}

// The last hundred runs are kept, one JSON object a line, and an evicted key runs again. Keys are
// compared byte by byte.
func TestVirtual_Once_Keys(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		m := newMutex(t, v.connect(), "/job", zklock.WithData([]byte(strings.Repeat("ö\n", 1000))))
		once := func(key string) bool {
			t.Helper()
			ran, err := m.Once(within(t, time.Minute), key, idle)
			require.NoError(t, err)
			return ran
		}
		long := strings.Repeat("<\"\\", 85) + "\""
		require.Len(t, long, 256)
		for i := range 100 {
			require.True(t, once(fmt.Sprint("day ", i)))
		}
		require.False(t, once("day 0"))
		require.True(t, once(long))
		require.False(t, once(long))
		require.False(t, once("day 1"))
		require.True(t, once("day 0"), "evicted")
		runs, err := m.Runs(within(t, time.Minute))
		require.NoError(t, err)
		require.Len(t, runs, 100)
		require.Equal(t, "day 2", runs[0].Key)
		data, _ := v.srv.Get("/job-done")
		lines := strings.Split(strings.TrimSuffix(string(data), "\n"), "\n")
		require.Len(t, lines, 100)
		require.True(t, json.Valid([]byte(lines[0])))
		require.NoError(t, v.srv.Delete("/job-done"))
		require.True(t, once("day 50"), "deleting the mark forgets")

		for _, bad := range []string{"", strings.Repeat("a", 257), "a\nb", "a\x00", "\xff", "a\u2028b", "tab\t"} {
			ran, err := m.Once(within(t, time.Minute), bad, idle)
			require.False(t, ran)
			require.ErrorContains(t, err, "give 1 to 256 bytes of printable text")
			require.True(t, zklock.IsFinal(err))
		}
	})
}

// With WithKeptRuns another number is kept. Dropped runs are logged once, with the last key that
// can run again; also by a client that keeps fewer.
func TestVirtual_Once_KeptRuns(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		var log warnings
		s := v.connect(lines(&log, slog.LevelInfo))
		mark := func(m *zklock.Mutex, n int) {
			for i := range n {
				ran, err := m.Once(within(t, time.Minute), fmt.Sprint("order ", i), idle)
				require.NoError(t, err)
				require.True(t, ran)
			}
		}
		const line = "zklock: dropped the oldest runs that Once has marked; a call with one of their keys runs again"
		many := newMutex(t, s, "/orders", zklock.WithKeptRuns(1000))
		mark(many, 101)
		require.Empty(t, log.of(line))
		few := newMutex(t, s, "/orders", zklock.WithKeptRuns(2))
		ran, err := few.Once(within(t, time.Minute), "order 0", idle)
		require.NoError(t, err)
		require.False(t, ran)
		ran, err = few.Once(within(t, time.Minute), "another", idle)
		require.NoError(t, err)
		require.True(t, ran)
		require.Equal(t, []string{`path=/orders kept=2 dropped=100 last="order 99"`}, log.of(line))
		runs, err := many.Runs(within(t, time.Minute))
		require.NoError(t, err)
		require.Equal(t, []string{"order 100", "another"}, []string{runs[0].Key, runs[1].Key})
		mark(many, 3)
		log.once(t, line, `last="order 99"`)
		for _, n := range []int{-1, 0, 1001} {
			_, err = zklock.NewMutex(s, "/orders", zklock.WithKeptRuns(n))
			require.ErrorContains(t, err, "give 1 to 1000, or leave the option out")
		}
		newMutex(t, s, "/orders", zklock.WithKeptRuns(1))
	})
}

// However long the keys and the data are, the highest number of kept runs fits into one node of a
// server with the default jute.maxbuffer. Before the run, Once proves that the mark will fit: a
// mark with a time of nine decimals is as long as the proof. It is written although the data of the
// lock node has changed.
func TestVirtual_Once_KeptRuns_TheMostFit(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		m := newMutex(t, v.connect(), "/job", zklock.WithKeptRuns(1000), zklock.WithData([]byte(strings.Repeat("\"\\\u2028", 100))))
		var proof []byte
		ran, err := m.Once(within(t, time.Minute), strings.Repeat(`"`, 256), func(_ context.Context, h *zklock.Hold) error {
			proof, _ = v.srv.Get("/job-done")
			time.Sleep(time.Nanosecond)
			return v.srv.SetData(h.Node(), nil)
		})
		require.NoError(t, err)
		require.True(t, ran)
		data, _ := v.srv.Get("/job-done")
		require.Equal(t, len(proof), len(data))
		require.Less(t, 1000*len(data), 1_000_000)
	})
}

// One hold is enough for many keys. A key inside itself still ends. A writer may call Once, a
// reader may not; a try does not wait.
func TestVirtual_Once_UnderAHold(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		c, s := &counts{}, v.connect()
		m := newMutex(t, s, "/job")
		require.NoError(t, m.Do(within(t, time.Minute), func(ctx context.Context, h *zklock.Hold) error {
			for _, key := range []string{"a", "b", "a"} {
				_, err := m.Once(reentering(h), key, c.work(key))
				require.NoError(t, err)
			}
			other := newMutex(t, v.connect(), "/job")
			ran, err := other.Once(within(t, time.Minute), "a", idle, zklock.WaitAtMost(0))
			require.NoError(t, err)
			require.False(t, ran, "that it is done can be seen without the lock")
			_, err = other.Once(within(t, time.Minute), "c", idle, zklock.WaitAtMost(0))
			require.ErrorIs(t, err, zklock.ErrNotAcquired)
			_, err = other.Once(within(t, time.Minute), "c", idle, zklock.WaitAtMost(-1))
			require.True(t, zklock.IsFinal(err))
			return h.Err()
		}))
		require.Equal(t, 1, c.of("a"))
		ran, err := m.Once(within(t, time.Minute), "outer", func(ctx context.Context, h *zklock.Hold) error {
			ran, err := m.Once(reentering(h), "outer", c.work("outer"))
			require.True(t, ran)
			return err
		})
		require.NoError(t, err)
		require.True(t, ran)
		require.Equal(t, 1, c.of("outer"))

		rw := newRWMutex(t, s, "/rw")
		ran, err = rw.WriteLock().Once(within(t, time.Minute), "a", idle)
		require.NoError(t, err)
		require.True(t, ran)
		ran, err = rw.ReadLock().Once(within(t, time.Minute), "a", idle)
		require.False(t, ran)
		require.ErrorContains(t, err, "call it on WriteLock()")
		require.True(t, zklock.IsFinal(err))
	})
}

// With a minimum hold, a job that was done before leaves no node, and neither does one that did not
// run.
func TestVirtual_Once_MinHold(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		m, other := newMutex(t, v.connect(), "/job", zklock.WithMinHold(minHold)), newMutex(t, v.connect(), "/job", zklock.WithMinHold(minHold))
		began := time.Now()
		var done sync.WaitGroup
		done.Go(func() {
			ran, err := other.Once(within(t, time.Hour), "a", func(context.Context, *zklock.Hold) error {
				done.Go(func() {
					ran, err := m.Once(within(t, time.Hour), "a", idle)
					if ran || err != nil {
						t.Errorf("%v, %v", ran, err)
					}
				})
				time.Sleep(time.Second)
				return nil
			})
			if !ran || err != nil {
				t.Errorf("%v, %v", ran, err)
			}
		})
		done.Wait()
		require.WithinDuration(t, began.Add(minHold), time.Now(), 2*time.Second)
		synctest.Wait()
		require.Empty(t, v.srv.Children("/job"), "it was done before: nothing stays")
	})
}

func TestOnce_BadArguments(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		m := newMutex(t, v.connect(), "/job")
		_, err := m.Once(within(t, time.Minute), "a", nil)
		require.ErrorContains(t, err, "nil function: give Once the work")
		var noContext context.Context
		_, err = m.Once(noContext, "a", idle)
		require.ErrorContains(t, err, "nil context")
		var none *zklock.Mutex
		_, err = none.Once(within(t, time.Minute), "a", idle)
		require.True(t, zklock.IsFinal(err))
		_, err = none.Runs(within(t, time.Minute))
		require.True(t, zklock.IsFinal(err))
		_, err = m.Runs(noContext)
		require.ErrorContains(t, err, "nil context")
	})
}
