package zkserver_test

// The end of a lock root's sequence counter, 2147483647, on a real server: what names it gives there, and that the lock
// lives through it with nobody's help.

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/internal/ledger"
	"github.com/zklock/zklock/internal/zkserver"
	"github.com/zklock/zklock/zktest"
)

const (
	lastSequence = 1<<31 - 1

	tick = 500 * time.Millisecond
	soon = 30 * time.Second // bounds what should happen at once; costs nothing when all is well
)

// counted is a server whose counters were set: a real one or the in-process one.
type counted interface {
	Addr() string
	Kill() error
	Start() error
}

// inProcess is a zktest.Server with a real server's manners. It keeps its data when it is killed.
type inProcess struct{ *zktest.Server }

func (p inProcess) Kill() error { p.Stop(); return nil }

// bounded returns a context for everything a test asks of servers.
func bounded(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

// children are what a path has; nothing if it is not there.
func children(t *testing.T, admin *zk.Conn, path string) []string {
	names, _, err := admin.Children(path)
	if err != nil && err != zk.ErrNoNode {
		t.Errorf("children of %s: %v", path, err)
	}
	return names
}

// Where the counters stand when the tests begin: so many creates before the end.
const (
	busyRoot, busyBefore     = "/busy", 100
	queuedRoot, queuedBefore = "/queued", 20
)

// presetServer starts a real server whose counters are near the end.
func presetServer(t *testing.T) counted {
	t.Helper()
	lacking := func(what string) {
		if zkserver.Required() {
			t.Fatalf("%s=1, and %s", zkserver.EnvRequire, what)
		}
		t.Skip("not covered: " + what)
	}
	if _, err := exec.LookPath("javac"); err != nil {
		lacking("the counter is preset by a Java program, which needs a JDK (Debian: apt-get install openjdk-17-jdk-headless)")
	}
	jars, err := zkserver.ClassPath()
	if err != nil {
		lacking("the counter is preset by ZooKeeper's own code: " + err.Error())
	}
	dir := t.TempDir()
	data := filepath.Join(dir, "data")
	require.NoError(t, os.MkdirAll(data, 0o755))
	out, err := exec.Command("java", "-cp", strings.Join(jars, ":"), "preset/Preset.java", data,
		busyRoot, strconv.Itoa(lastSequence-busyBefore), queuedRoot, strconv.Itoa(lastSequence-queuedBefore)).CombinedOutput()
	require.NoError(t, err, "%s", out)
	return zkserver.Single(t, zkserver.TickTime(tick), zkserver.DataDir(dir))
}

// presetInProcess starts an in-process server whose counters are near the end.
func presetInProcess(t *testing.T) counted {
	t.Helper()
	srv := zktest.Start(t, zktest.WithTick(tick), zktest.WithSessionTimeouts(2*tick, time.Minute),
		zktest.WithCreates(busyRoot, lastSequence-busyBefore), zktest.WithCreates(queuedRoot, lastSequence-queuedBefore))
	for _, root := range []string{busyRoot, queuedRoot} {
		_, err := srv.Create(root, nil, 0)
		require.NoError(t, err)
	}
	return inProcess{srv}
}

func onBoth(t *testing.T, test func(t *testing.T, srv counted)) {
	t.Run("in-process", func(t *testing.T) { test(t, presetInProcess(t)) })
	t.Run("real", func(t *testing.T) { test(t, presetServer(t)) })
}

func mutex(t *testing.T, srv counted, root string) *zklock.Mutex {
	t.Helper()
	s, err := zklock.Connect(bounded(t, soon), srv.Addr(), zklock.WithSessionTimeout(soon), zklock.WithLogger(slog.New(slog.DiscardHandler)))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	m, err := zklock.NewMutex(s, root)
	require.NoError(t, err)
	return m
}

// suffix is the number that the server put behind a node's name.
func suffix(node string) string {
	_, s, _ := strings.Cut(path.Base(node), "-lock-")
	return s
}

// gone waits until the empty root is removed, for its counter to start again.
func gone(t *testing.T, admin *zk.Conn, root string) {
	t.Helper()
	within(t, soon, func() bool {
		there, _, err := admin.Exists(root)
		return err == nil && !there
	}, "the removal of the empty root %s", root)
}

// F34, I1, I8: clients contend before, through and after the end of the counter, which nobody looks after. When the queue
// is empty, the counter starts again.
func TestSequenceEnd_Contended(t *testing.T) {
	onBoth(t, func(t *testing.T, srv counted) {
		admin := client(t, srv.Addr(), soon)
		// As long as there is a child that is no lock node, the root stays, and the counter with it.
		_, err := admin.Create(busyRoot+"/keep", nil, 0, zk.WorldACL(zk.PermAll))
		require.NoError(t, err)
		l := ledger.New(t.Errorf)
		var names sync.Map // by token
		var all sync.WaitGroup
		const sessions, goroutines, rounds = 5, 4, 15
		for n := range sessions {
			m := mutex(t, srv, busyRoot)
			for range goroutines {
				all.Go(func() {
					for range rounds {
						h, err := m.Acquire(bounded(t, 2*soon))
						if err != nil {
							t.Error(err)
							return
						}
						l.Granted(busyRoot, strconv.Itoa(n), h)
						names.Store(h.Token(), suffix(h.Path()))
						time.Sleep(rand.N(2 * time.Millisecond))
						l.Ended(busyRoot, h)
						if err := h.Release(bounded(t, soon)); err != nil {
							t.Error(err)
						}
					}
				})
			}
		}
		all.Wait()
		require.Equal(t, sessions*goroutines*rounds, l.Grants())

		var tokens []int64
		kinds := map[string]int{}
		names.Range(func(token, _ any) bool { tokens = append(tokens, token.(int64)); return true })
		slices.Sort(tokens)
		var around []string
		for i, token := range tokens {
			name, _ := names.Load(token)
			n, err := strconv.ParseInt(name.(string), 10, 64)
			require.NoError(t, err)
			switch {
			case n < 0:
				kinds["negative"]++
			case n == lastSequence:
				kinds["2147483647"]++
			default:
				kinds["before the end"]++
			}
			if i > busyBefore-5 && i < busyBefore+15 {
				around = append(around, name.(string))
			}
		}
		t.Logf("%d grants in the order of their tokens; around the end: %s", l.Grants(), strings.Join(around, " "))
		t.Logf("suffixes: %v", kinds)
		require.GreaterOrEqual(t, kinds["before the end"], busyBefore-1-sessions*goroutines)
		require.NotZero(t, kinds["2147483647"])

		require.NoError(t, admin.Delete(busyRoot+"/keep", -1))
		m := mutex(t, srv, busyRoot)
		h, err := m.Acquire(bounded(t, soon))
		require.NoError(t, err)
		if suffix(h.Path()) != "0000000000" { // the last of all the releases did not find the root empty
			require.True(t, l.Granted(busyRoot, "", h))
			l.Ended(busyRoot, h)
			require.NoError(t, h.Release(bounded(t, soon)))
			gone(t, admin, busyRoot)
			h, err = m.Acquire(bounded(t, soon))
			require.NoError(t, err)
		}
		require.Equal(t, "0000000000", suffix(h.Path()))
		require.True(t, l.Granted(busyRoot, "", h), "with a larger token than all before")
		require.NoError(t, h.Release(bounded(t, soon)))
	})
}

// F34, F35, F22, I8: a queue stands across the end of the counter, two nodes of a foreign client in it that have the same
// name but for their ids, when the server is killed and started. It is worked off in the order in which it formed.
func TestSequenceEnd_QueueAcrossIt(t *testing.T) {
	onBoth(t, func(t *testing.T, srv counted) {
		admin := client(t, srv.Addr(), soon)
		l := ledger.New(t.Errorf)
		first, err := mutex(t, srv, queuedRoot).Acquire(bounded(t, soon))
		require.NoError(t, err)
		require.True(t, l.Granted(queuedRoot, "", first))

		var mu sync.Mutex
		var order []int64              // tokens, as granted
		standing := map[int64]string{} // the foreign nodes, by czxid
		var all sync.WaitGroup
		t.Cleanup(all.Wait)
		queued := 1
		wait := func(m *zklock.Mutex) {
			queued++
			ctx := bounded(t, 2*soon)
			all.Go(func() {
				h, err := m.Acquire(ctx)
				if err != nil {
					t.Error(err)
					return
				}
				l.Granted(queuedRoot, "", h)
				mu.Lock()
				order = append(order, h.Token())
				for czxid, name := range standing {
					if czxid < h.Token() {
						t.Errorf("I1: granted %s, and %s is ahead", h.Path(), name)
					}
				}
				mu.Unlock()
				l.Ended(queuedRoot, h)
				if err := h.Release(ctx); err != nil {
					t.Error(err)
				}
			})
		}
		stand := func() {
			within(t, soon, func() bool { return len(children(t, admin, queuedRoot)) == queued }, "a queue of %d", queued)
		}
		var ms []*zklock.Mutex
		for range 4 {
			ms = append(ms, mutex(t, srv, queuedRoot))
		}
		for range 8 { // the end comes in here
			for _, m := range ms {
				wait(m)
			}
		}
		stand()
		for range 2 {
			node, err := admin.Create(fmt.Sprintf("%s/_c_%s-lock-", queuedRoot, uuid.NewString()), nil, zk.FlagEphemeral|zk.FlagSequence, zk.WorldACL(zk.PermAll))
			require.NoError(t, err)
			require.Equal(t, strconv.Itoa(lastSequence), suffix(node), "both have the same")
			_, stat, err := admin.Exists(node)
			require.NoError(t, err)
			standing[stat.Czxid] = node
			queued++
			for _, m := range ms {
				wait(m)
			}
			stand()
		}

		type place struct {
			czxid int64
			name  string
		}
		var queue []place
		for _, name := range children(t, admin, queuedRoot) {
			_, stat, err := admin.Exists(path.Join(queuedRoot, name))
			require.NoError(t, err)
			queue = append(queue, place{stat.Czxid, name})
		}
		slices.SortFunc(queue, func(a, b place) int { return int(a.czxid - b.czxid) })
		var said []string
		for _, p := range queue[queuedBefore-3:] {
			said = append(said, suffix(p.name))
		}
		t.Logf("a queue of %d; around and past the end: %s", queued, strings.Join(said, " "))
		for _, name := range said[3:] {
			require.True(t, name[0] == '-' || name == strconv.Itoa(lastSequence), name)
		}

		require.NoError(t, srv.Kill())
		require.NoError(t, srv.Start())
		l.Ended(queuedRoot, first)
		require.NoError(t, first.Release(bounded(t, soon)))
		var want []int64
		for _, p := range queue[1:] {
			if _, foreign := standing[p.czxid]; !foreign {
				want = append(want, p.czxid)
				continue
			}
			granted := func() int { mu.Lock(); defer mu.Unlock(); return len(order) }
			within(t, soon, func() bool { return granted() == len(want) }, "%d grants", len(want))
			time.Sleep(100 * time.Millisecond) // in which nobody gets past it
			require.Equal(t, len(want), granted())
			mu.Lock()
			delete(standing, p.czxid)
			mu.Unlock()
			require.NoError(t, admin.Delete(path.Join(queuedRoot, p.name), -1))
		}
		all.Wait()
		require.Equal(t, want, order)
		gone(t, admin, queuedRoot)
	})
}
