package conformance

// These tests put other clients' locks into one queue with ours.

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/internal/zkserver"
)

const (
	interopContenders = 2 // of each kind
	interopRounds     = 25
)

// interop is one lock. Its holder creates the node busy, which fails if another client is in, and
// then records its number in the queue and its name in the log.
type interop struct {
	t               *testing.T
	addr            string
	lock, busy, log string
	node            string // the prefix of its name, before the number
	admin           *zk.Conn
	options         []zklock.Option // of our Sessions
	java            []string        // properties of Curator's
}

func newInterop(t *testing.T, addr, name string) *interop {
	admin, _ := client(t, addr)
	return newInteropBy(t, admin, addr, name)
}

func newInteropBy(t *testing.T, admin *zk.Conn, addr, name string) *interop {
	i := &interop{t: t, addr: addr, lock: "/" + name, busy: "/" + name + "-busy", log: "/" + name + "-log", node: "lock-", admin: admin}
	for _, p := range []string{i.lock, i.log} {
		_, err := i.admin.Create(p, nil, 0, zk.WorldACL(zk.PermAll))
		require.NoError(t, err)
	}
	return i
}

// zklock contends with our own recipe.
func (i *interop) zklock() error {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	return i.each(func() error {
		s, err := zklock.Connect(ctx, i.addr, append(i.options, zklock.WithSessionTimeout(30*time.Second), zklock.WithLogger(slog.New(slog.DiscardHandler)))...)
		if err != nil {
			return err
		}
		defer s.Close()
		m, err := zklock.NewMutex(s, i.lock)
		if err != nil {
			return err
		}
		for range interopRounds {
			h, err := m.Acquire(ctx)
			if err != nil {
				return err
			}
			if err := i.inside(s.Conn(), h.Node(), "zklock"); err != nil {
				return err
			}
			if err := h.Release(ctx); err != nil {
				return err
			}
			rest()
		}
		return nil
	})
}

// goZookeeper contends with go-zookeeper's own lock.
func (i *interop) goZookeeper() error {
	return i.each(func() error {
		c, _, err := zk.Connect([]string{i.addr}, 30*time.Second, zk.WithLogger(quiet{}))
		if err != nil {
			return err
		}
		defer c.Close()
		l := zk.NewLock(c, i.lock, zk.WorldACL(zk.PermAll))
		for range interopRounds {
			if err := l.Lock(); err != nil {
				return err
			}
			node := reflect.ValueOf(l).Elem().FieldByName("lockPath").String() // it has no getter
			if err := i.inside(c, node, "go-zookeeper"); err != nil {
				return err
			}
			if err := l.Unlock(); err != nil {
				return err
			}
			rest()
		}
		return nil
	})
}

// rest prevents the contenders from staying in their initial order.
func rest() { time.Sleep(rand.N(10 * time.Millisecond)) }

func (i *interop) each(contend func() error) error {
	results := make(chan error)
	for range interopContenders {
		go func() { results <- contend() }()
	}
	var all []error
	for range interopContenders {
		all = append(all, <-results)
	}
	return errors.Join(all...)
}

func (i *interop) inside(c *zk.Conn, node, who string) error {
	acl := zk.WorldACL(zk.PermAll)
	if _, err := c.Create(i.busy, nil, zk.FlagEphemeral, acl); err != nil {
		return fmt.Errorf("%s is in, and: %w", who, err)
	}
	if _, err := c.Create(fmt.Sprintf("%s/%s-%s-", i.log, node[len(node)-10:], who), nil, zk.FlagSequence, acl); err != nil {
		return err
	}
	return c.Delete(i.busy, -1)
}

// program contends with another project's recipe.
func (i *interop) program(name string, args ...string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w\n%s", name, err, lastLines(out.Bytes(), 30))
	}
	return nil
}

func (i *interop) curator(classPath string, contenders, rounds int) error {
	return i.program("java", append(i.java, curatorArgs(classPath, "Contend",
		i.addr, i.lock, i.busy, i.log, strconv.Itoa(contenders), strconv.Itoa(rounds))...)...)
}

func (i *interop) kazoo(script, nodeName string) error {
	return i.program(debianPython, script, i.addr, i.lock, i.busy, i.log, strconv.Itoa(interopContenders), strconv.Itoa(interopRounds), nodeName)
}

// entry is a client that was in: its number in the queue, and its name.
type entry struct {
	number, who string
	at          string // its place in the log
}

func (i *interop) entries() (all []entry) {
	names, _, err := i.admin.Children(i.log)
	require.NoError(i.t, err)
	for _, n := range names {
		number, rest, _ := strings.Cut(n, "-")
		all = append(all, entry{number, strings.TrimSuffix(rest[:len(rest)-10], "-"), rest[len(rest)-10:]})
	}
	slices.SortFunc(all, func(a, b entry) int { return cmp.Compare(a.at, b.at) })
	return all
}

// run has all clients contend, and requires that they were in one at a time, in the order of the
// queue.
func (i *interop) run(contenders map[string]func() error) {
	t := i.t
	t.Helper()
	// No client is in until all are in the queue.
	first, err := i.admin.Create(i.lock+"/_c_00000000-0000-4000-8000-000000000000-"+i.node, nil, zk.FlagEphemeralSequential, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)
	type result struct {
		who string
		err error
	}
	results := make(chan result)
	for who, contend := range contenders {
		go func() { results <- result{who, contend()} }()
	}
	want := 1 + len(contenders)*interopContenders
	running := len(contenders)
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		names, _, err := i.admin.Children(i.lock)
		require.NoError(t, err)
		if len(names) == want {
			break
		}
		select {
		case r := <-results:
			running--
			require.NoError(t, r.err, r.who)
			require.Fail(t, "it is through although somebody is ahead of it", r.who)
		default:
		}
		require.True(t, time.Now().Before(deadline), "in the queue: %v", names)
	}
	require.Empty(t, i.entries(), "ME: somebody is in although the first in the queue is not through")
	require.NoError(t, i.admin.Delete(first, -1))
	for ; running > 0; running-- {
		r := <-results
		require.NoError(t, r.err, r.who)
	}

	served, handovers := map[string]int{}, map[string]int{}
	last := entry{}
	for _, e := range i.entries() {
		require.Greater(t, e.number, last.number, "%s was in before its turn: after %s", e.who, last.who)
		served[e.who]++
		if last.who != "" && last.who != e.who {
			handovers[last.who+" to "+e.who]++
		}
		last = e
	}
	for who := range contenders {
		require.Equal(t, interopContenders*interopRounds, served[who], who)
	}
	left, _, err := i.admin.Children(i.lock)
	require.NoError(t, err)
	require.Empty(t, left)
	t.Logf("interop: %d entries by %v, one at a time and in the order of the queue; handed over %v", len(i.entries()), slices.Sorted(maps.Keys(served)), handovers)
}

// F36, I1, I8: Curator, kazoo, go-zookeeper's lock and ours in one queue, on a real server: never
// two in at a time, and each in its turn. kazoo is given the names that other clients use and, if
// Curator takes part, made to write a name that Curator recognizes.
func TestInterop_OneQueue(t *testing.T) {
	suites(t)
	classPath := compileCurator(t)
	if out, err := exec.Command(debianPython, "-c", "import kazoo.recipe.lock").CombinedOutput(); err != nil {
		lacking(t, "kazoo's lock needs Debian's python3-kazoo: "+lastLines(out, 1))
	}
	script, err := filepath.Abs("kazoo/contend.py")
	require.NoError(t, err)
	addr := startReal(t)
	server, err := zkserver.Version(addr)
	require.NoError(t, err)
	kazoo, err := exec.Command(debianPython, "-c", "import kazoo.version; print(kazoo.version.__version__)").Output()
	require.NoError(t, err)
	t.Logf("interop: ZooKeeper %s, Curator %s, kazoo %s", server, curatorVersion(t), strings.TrimSpace(string(kazoo)))

	t.Run("all four", func(t *testing.T) {
		i := newInterop(t, addr, "four")
		i.run(map[string]func() error{
			"zklock": i.zklock, "go-zookeeper": i.goZookeeper,
			"curator": func() error { return i.curator(classPath, interopContenders, interopRounds) },
			"kazoo":   func() error { return i.kazoo(script, "-lock-") },
		})
	})
	t.Run("kazoo under its own name", func(t *testing.T) {
		i := newInterop(t, addr, "three")
		i.run(map[string]func() error{
			"zklock": i.zklock, "go-zookeeper": i.goZookeeper,
			"kazoo": func() error { return i.kazoo(script, "__lock__") },
		})
	})
	t.Run("Curator passes kazoo by", func(t *testing.T) {
		// As docs/curator.md warns, Curator ignores a node with kazoo's own name. We do not.
		i := newInterop(t, addr, "two")
		ahead, err := i.admin.Create(i.lock+"/ffffffffffffffffffffffffffffffff__lock__", nil, zk.FlagEphemeralSequential, zk.WorldACL(zk.PermAll))
		require.NoError(t, err)
		require.NoError(t, i.curator(classPath, 1, 1))
		require.Len(t, i.entries(), 1, "Curator waits for kazoo now; docs/curator.md says that it does not")
		s, err := zklock.Connect(t.Context(), addr, zklock.WithSessionTimeout(30*time.Second), zklock.WithLogger(slog.New(slog.DiscardHandler)))
		require.NoError(t, err)
		defer s.Close()
		m, err := zklock.NewMutex(s, i.lock)
		require.NoError(t, err)
		_, err = m.TryAcquire(t.Context())
		require.ErrorIs(t, err, zklock.ErrNotAcquired)
		require.NoError(t, i.admin.Delete(ahead, -1))
		h, err := m.TryAcquire(t.Context())
		require.NoError(t, err)
		require.NoError(t, h.Release(t.Context()))
	})
}
