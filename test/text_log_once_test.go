package zklock_test

// These tests have many calls meet one cause, while other goroutines check the locks, and attack
// how often the log reports it.

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
)

// logScene is a scene in virtual time. It returns the things that the message has to report; each
// is a part of a line. A thing that is returned twice has to be in two lines, and "" is in each.
type logScene struct {
	name, message string
	scene         func(x *logged) (things []string)
}

// logged is a server with clients whose lines go to one log.
type logged struct {
	*virtual
	log warnings
}

// session connects a client that writes to the log.
func (x *logged) session(opts ...zklock.Option) *zklock.Session {
	return x.connect(append(opts, lines(&x.log, slog.LevelDebug))...)
}

// Each message is logged exactly once for each thing that it reports. Scenes attack R117 and R143.
func TestVirtual_LogOnce(t *testing.T) {
	for _, row := range slices.Concat(callsInLog, nodesInLog, serversInLog) {
		t.Run(row.name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, v *virtual) {
				x := &logged{virtual: v}
				x.log.once(t, row.message, row.scene(x)...)
			})
		})
	}
}

// once requires that each thing is in as many lines of a message as it is given times, and that the
// message has no other lines.
func (w *warnings) once(t testing.TB, message string, things ...string) {
	t.Helper()
	got, want := w.of(message), map[string]int{}
	require.Len(t, got, len(things), "%s: %q", message, got)
	for _, thing := range things {
		want[thing]++
	}
	for thing, n := range want {
		require.Equal(t, n, having(got, thing), "%s: %s: %q", message, thing, got)
	}
}

// having returns the number of lines that contain a thing.
func having(lines []string, thing string) (n int) {
	for _, line := range lines {
		if strings.Contains(line+" ", thing+" ") {
			n++
		}
	}
	return n
}

// lookAt has four goroutines check each hold and its Session repeatedly, until stop is called.
func lookAt(s *zklock.Session, holds ...*zklock.Hold) (stop func()) {
	var lookers sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	for _, h := range holds {
		for range 4 {
			lookers.Go(func() {
				for ctx.Err() == nil {
					_, _, _, _ = h.Err(), h.Context().Err(), s.Stats(), s.Stats().State
					time.Sleep(100 * time.Millisecond)
				}
			})
		}
	}
	return func() { cancel(); lookers.Wait() }
}

// manyOfAKind is the number of holds of each kind.
const manyOfAKind = 5

// manyHolds takes holds of all kinds. more are additional handles of some of them.
func (v *virtual) manyHolds(s *zklock.Session) (holds, more []*zklock.Hold) {
	for i := range manyOfAKind {
		path := fmt.Sprintf("/job/%d", i)
		m, rw := newMutex(v.t, s, path), newRWMutex(v.t, s, path+"rw")
		h, w := acquire(v.t, m), acquire(v.t, rw.WriteLock())
		again, err := m.Acquire(reentering(h))
		require.NoError(v.t, err)
		r, err := rw.ReadLock().Acquire(w.Context())
		require.NoError(v.t, err)
		holds = append(holds, h, w, r, acquire(v.t, newSemaphore(v.t, s, path+"sem", 3).Permits(3)))
		more = append(more, again)
	}
	synctest.Wait()
	return holds, more
}

func saidNodes(holds []*zklock.Hold) (nodes []string) {
	for _, h := range holds {
		nodes = append(nodes, "node="+h.Node())
	}
	return nodes
}

// tenPaths returns ten lock paths, and the form that each has in the log.
func tenPaths() (paths, said []string) {
	for i := range 10 {
		paths = append(paths, fmt.Sprintf("/job/%d", i))
		said = append(said, "path="+paths[i])
	}
	return paths, said
}

// tenHolds takes a mutex at each of the ten paths.
func (v *virtual) tenHolds(s *zklock.Session, opts ...zklock.MutexOption) (holds []*zklock.Hold) {
	paths, _ := tenPaths()
	for _, path := range paths {
		holds = append(holds, acquire(v.t, newMutex(v.t, s, path, opts...)))
	}
	return holds
}

// refusing creates a lock root without some permissions for all clients but the test.
func (v *virtual) refusing(path string, perms int32) {
	a := v.connect().Conn()
	if _, err := a.SetACL(path, zk.WorldACL(perms), -1); err != nil {
		_, err = a.Create(path, nil, 0, zk.WorldACL(perms))
		require.NoError(v.t, err)
	}
}

// releaseAtOnce releases each handle in three goroutines. Each call waits at most that long.
func releaseAtOnce(t *testing.T, limit time.Duration, holds ...*zklock.Hold) {
	var all sync.WaitGroup
	for _, h := range holds {
		for range 3 {
			all.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), limit)
				defer cancel()
				_ = h.Release(ctx)
			})
		}
	}
	all.Wait()
}

// restarts stops and starts the server n times, and pauses after each start.
func (v *virtual) restarts(n int, pause time.Duration) {
	for range n {
		v.srv.Stop()
		synctest.Wait()
		require.NoError(v.t, v.srv.Start())
		time.Sleep(pause)
	}
}

// losses are causes for which holds are lost.
var losses = map[string]func(v *virtual, s *zklock.Session, holds []*zklock.Hold, sleeps *suspension){
	"no server answers": func(v *virtual, _ *zklock.Session, _ []*zklock.Hold, _ *suspension) { v.srv.Stop() },
	"the session has expired": func(v *virtual, s *zklock.Session, _ []*zklock.Hold, _ *suspension) {
		v.srv.ExpireSession(s.Stats().SessionID)
	},
	"the process stood still": func(_ *virtual, _ *zklock.Session, _ []*zklock.Hold, sleeps *suspension) {
		sleeps.Add(int64(time.Hour))
	},
	"the nodes are deleted": func(v *virtual, _ *zklock.Session, holds []*zklock.Hold, _ *suspension) {
		for _, h := range holds {
			for _, check := range h.Checks() {
				_ = v.srv.Delete(check.Path) // one that is released just now may be gone
			}
		}
	},
	"the nodes give no READ": func(v *virtual, _ *zklock.Session, holds []*zklock.Hold, _ *suspension) {
		a := v.connect().Conn()
		for _, h := range holds {
			_, _ = a.SetACL(h.Node(), unreadable, -1)
		}
	},
}

// R91: each hold ends once in the log, as lost or as released, whatever the cause of its loss, and
// even if other goroutines check or release it at that moment.
func TestVirtual_LogOnce_EachHoldEndsOnce(t *testing.T) {
	for name, lose := range losses {
		for _, releasedToo := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, released meanwhile: %v", name, releasedToo), func(t *testing.T) {
				inVirtualTime(t, func(t *testing.T, v *virtual) {
					var log warnings
					var sleeps suspension
					s := v.hooked(sleeps.hooks(), lines(&log, slog.LevelDebug))
					holds, more := v.manyHolds(s)
					stop := lookAt(s, append(more, holds...)...)
					var all sync.WaitGroup
					for i, h := range holds {
						if releasedToo && i%3 == 0 {
							all.Go(func() {
								if name == "no server answers" {
									time.Sleep(time.Until(h.Deadline()) - time.Duration(i%2)*time.Millisecond)
								}
								_ = h.Release(t.Context())
							})
						}
					}
					all.Go(func() { lose(v, s, holds, &sleeps) })
					time.Sleep(15 * time.Second)
					all.Wait()
					stop()
					for _, h := range append(more, holds...) {
						_ = h.Release(t.Context())
					}
					said := append(log.of("zklock: hold lost"), log.of("zklock: released")...)
					require.Len(t, said, len(holds), "%q", said)
					for _, node := range saidNodes(holds) {
						require.Equal(t, 1, having(said, node), "%s: %q", node, said)
					}
					if !releasedToo {
						log.once(t, "zklock: hold lost", saidNodes(holds)...)
					}
					_ = v.srv.Start()
				})
			})
		}
	}
}

// The Session logs once that it leaves an unresponsive server, with many holds and many waiters.
func TestVirtual_LogOnce_SilentServer(t *testing.T) {
	inTheDark(t, 3, "follower", 30*time.Second, func(t *testing.T, d *darkness) {
		var log warnings
		s := connect(t, strings.Join(d.ens.Addrs(), ","), zklock.WithDialer(d.net.Dial), zklock.WithSessionTimeout(30*time.Second), lines(&log, slog.LevelWarn))
		var holds []*zklock.Hold
		for i := range 5 {
			holds = append(holds, acquire(t, newMutex(t, s, fmt.Sprintf("/job/%d", i))))
			d.queueUp(s)
		}
		var left []string
		for range 3 {
			time.Sleep(15 * time.Minute)
			server := s.Conn().Server()
			left = append(left, "server="+server)
			stop := lookAt(s, holds...)
			d.net.Partition(server)
			time.Sleep(30 * time.Second)
			d.net.Heal(server)
			stop()
			log.once(t, "zklock: the server is silent; trying another", left...)
		}
	})
}
