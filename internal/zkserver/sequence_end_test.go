package zkserver_test

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/internal/ledger"
	"github.com/zklock/zklock/internal/zkserver"
)

// F34, I1, I5: 50 clients contend through the end of the lock root's counter on a real server, and
// try again when they are rejected. When the queue has drained, the lock works again.
func TestReal_SequenceEnd_Contended(t *testing.T) {
	const last, end = 1<<31 - 1, 1<<31 - 1<<20 // nobody is granted from end on
	const sessions, clients, holds = 10, 5, 6  // clients of a session, holds of a client
	cases := []struct {
		root    string
		next    int // the number of the next node
		refused int // after so many refusals the root may go
	}{{"/before-the-end", end - 100, 1}, {"/past-the-end", last - 20, 2 * sessions * clients}}
	var preset []string
	for _, c := range cases {
		preset = append(preset, c.root, strconv.Itoa(c.next))
	}
	addr := presetServer(t, preset...)
	admin := client(t, addr, 30*time.Second)
	for _, c := range cases {
		t.Run(c.root[1:], func(t *testing.T) {
			// A child that is no lock node keeps the root, even while the queue is empty.
			keep, err := admin.Create(c.root+"/keep", nil, 0, zk.WorldACL(zk.PermAll))
			require.NoError(t, err)
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			l := ledger.New(t.Errorf)

			var mu sync.Mutex
			var refused, negative, fresh int // refusals, those beside a negative number, and grants with a fresh counter
			var firstRefused, lastOld, firstFresh time.Time
			refusal := func(err error) {
				mu.Lock()
				defer mu.Unlock()
				if refused++; refused == 1 {
					firstRefused = time.Now()
				}
				if refused == c.refused {
					if err := admin.Delete(keep, -1); err != nil {
						t.Error(err)
					}
				}
				if strings.Contains(err.Error(), "-lock--") {
					negative++
				}
			}
			grant := func(h *zklock.Hold) {
				mu.Lock()
				defer mu.Unlock()
				seq, err := strconv.Atoi(h.Node()[len(h.Node())-10:])
				switch {
				case err != nil || seq >= end:
					t.Errorf("granted %s: %v", h.Node(), err)
				case seq >= c.next:
					lastOld = time.Now()
				default:
					if fresh++; fresh == 1 {
						firstFresh = time.Now()
					}
				}
			}
			hold := func(m *zklock.Mutex, name string) error {
				h, err := m.Acquire(ctx)
				for pause := 100 * time.Millisecond; errors.Is(err, zklock.ErrSequenceExhausted); pause *= 2 {
					refusal(err)
					time.Sleep(rand.N(pause)) // without pauses, 50 clients never leave the queue empty
					h, err = m.Acquire(ctx)
				}
				if err != nil {
					return err
				}
				l.Granted(c.root, name, h)
				grant(h)
				time.Sleep(rand.N(2 * time.Millisecond))
				l.Ended(c.root, h)
				return h.Release(ctx)
			}

			var all sync.WaitGroup
			for n := range sessions {
				s, err := zklock.Connect(ctx, addr, zklock.WithSessionTimeout(30*time.Second), zklock.WithLogger(slog.New(slog.DiscardHandler)))
				require.NoError(t, err)
				defer s.Close()
				m, err := zklock.NewMutex(s, c.root)
				require.NoError(t, err)
				for range clients {
					all.Go(func() {
						for range holds {
							if err := hold(m, strconv.Itoa(n)); err != nil {
								t.Error(err)
								return
							}
						}
					})
				}
			}
			all.Wait()
			require.Equal(t, sessions*clients*holds, l.Grants())
			require.Positive(t, fresh)
			require.GreaterOrEqual(t, refused, c.refused)
			left, _, err := admin.Children(c.root)
			require.NoError(t, err)
			require.Empty(t, left)
			t.Logf("%d grants, %d of them with a fresh counter; %d tries refused, %d of them beside a negative number", l.Grants(), fresh, refused, negative)
			t.Logf("the lock works again %v after the first refusal", firstFresh.Sub(firstRefused).Round(time.Millisecond))
			if !lastOld.IsZero() {
				t.Logf("nobody was granted for %v", firstFresh.Sub(lastOld).Round(time.Millisecond))
			}
		})
	}
}

// presetServer starts a real server that has the nodes, each with the number of its next sequential
// child.
func presetServer(t *testing.T, nodes ...string) (addr string) {
	t.Helper()
	jars, err := zkserver.ClassPath()
	if err == nil {
		_, err = exec.LookPath("javac") // java runs a source only with it
	}
	if err != nil && !zkserver.Required() {
		t.Skip("not covered, it takes a JDK and ZooKeeper's jars: ", err)
	}
	require.NoError(t, err)
	dir := t.TempDir()
	data := filepath.Join(dir, "data")
	require.NoError(t, os.MkdirAll(data, 0o755))
	args := append([]string{"-cp", strings.Join(jars, string(os.PathListSeparator)), "preset/Preset.java", data}, nodes...)
	out, err := exec.Command("java", args...).CombinedOutput()
	require.NoError(t, err, "%s", out)
	return zkserver.Single(t, zkserver.TickTime(500*time.Millisecond), zkserver.DataDir(dir)).Addr()
}
