package command

// These tests kill and stop holders behind a guard on a real server, and have the kernel kill them
// because their memory is exhausted.

import (
	"cmp"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/internal/proctest"
)

const memoryLimit = 512 << 20 // enough for processes with the race detector

// cgroup is a memory cgroup, of either version.
type cgroup struct {
	dir           string
	limit, events string // files
}

// newCgroup creates a cgroup whose processes have memoryLimit together.
func newCgroup(t *testing.T) cgroup {
	t.Helper()
	if os.Geteuid() != 0 {
		missing(t, "not root, and a memory cgroup needs it")
	}
	const root, v1 = "/sys/fs/cgroup", "/sys/fs/cgroup/memory"
	name := "zklock-test-" + strconv.Itoa(os.Getpid())
	c := cgroup{filepath.Join(root, name), "memory.max", "memory.events"}
	if _, err := os.Stat(filepath.Join(v1, "memory.limit_in_bytes")); err == nil {
		c = cgroup{filepath.Join(v1, name), "memory.limit_in_bytes", "memory.oom_control"}
	} else {
		_ = os.WriteFile(filepath.Join(root, "cgroup.subtree_control"), []byte("+memory"), 0) // or the limit has no file
	}
	err := os.Mkdir(c.dir, 0o755)
	if err == nil {
		t.Cleanup(func() { proctest.Eventually(t, "the cgroup is empty", func() bool { return os.Remove(c.dir) == nil }) })
		err = os.WriteFile(filepath.Join(c.dir, c.limit), []byte(strconv.Itoa(memoryLimit)), 0)
	}
	if err != nil {
		missing(t, "no memory cgroup can be created: "+err.Error())
	}
	_ = os.WriteFile(filepath.Join(c.dir, "memory.swap.max"), []byte("0"), 0) // version 2, with swap
	return c
}

// inside has a command start in the cgroup.
func (c cgroup) inside(cmd *exec.Cmd) {
	cmd.Args = append([]string{"sh", "-c", `echo $$ >"$0" && exec "$@"`, filepath.Join(c.dir, "cgroup.procs"), cmd.Path}, cmd.Args[1:]...)
	cmd.Path, _ = exec.LookPath("sh")
}

// kills returns how many of its processes the kernel has killed.
func (c cgroup) kills(t *testing.T) (n int) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(c.dir, c.events))
	require.NoError(t, err)
	for line := range strings.Lines(string(b)) {
		if count, is := strings.CutPrefix(line, "oom_kill "); is {
			n, err = strconv.Atoi(strings.TrimSpace(count))
			require.NoError(t, err)
		}
	}
	return n
}

// eat takes memory when a line arrives, until this process is killed.
func eat() {
	_, _ = os.Stdin.Read(make([]byte, 1))
	for all := [][]byte{}; ; {
		b := make([]byte, 16<<20)
		for i := 0; i < len(b); i += os.Getpagesize() {
			b[i] = 1
		}
		all = append(all, b)
	}
}

// F58: a holder whose memory is exhausted is killed, in a cgroup of its own and in one that it
// shares with its guard. (If a cgroup of version 2 has memory.oom.group, as a container has, the
// guard in it is killed too.)
func TestGuard_Real_OutOfMemory_NextHoldsLongBeforeTheTimeout(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"guard outside", "guard inside"} {
		t.Run(name, func(t *testing.T) {
			srv, path := server(t), lockPath(t)
			memory := newCgroup(t)
			s := clientOf(t, srv.ConnectString())
			var stdin io.WriteCloser
			hungry := func(c *exec.Cmd) {
				var err error
				stdin, err = c.StdinPipe()
				require.NoError(t, err)
				c.Env = append(c.Env, envHolder+"=1", envHolderEats+"=1")
				memory.inside(c)
			}
			args := []string{srv.ConnectString(), path, "1"}
			var p *proctest.Proc
			if name == "guard inside" {
				p = start(t, hungry, append([]string{"guard", "--", os.Args[0]}, args...)...).Proc
			} else {
				socket := socketIn(t)
				guardAt(t, socket)
				c := exec.Command(os.Args[0], args...)
				c.Env = append(os.Environ(), "ZKLOCK_GUARD="+socket)
				hungry(c)
				p = proctest.Start(t, c)
			}
			p.Prints("holds all")
			held(t, s, path+"/0")
			require.Zero(t, memory.kills(t))
			_, err := io.WriteString(stdin, "\n")
			require.NoError(t, err)
			require.Equal(t, exitSignal+int(syscall.SIGKILL), p.Wait())
			require.Equal(t, 1, memory.kills(t))
			t.Logf("%v from the observed end of the process to the next grant", acquired(t, s, path+"/0"))
		})
	}
}

// F58: a guard is killed, and then its holder. Nothing ends the session, so it expires as without a
// guard, and not earlier.
func TestGuard_Real_GuardAndHolderKilled_SessionExpires(t *testing.T) {
	const timeout, tick = 4 * time.Second, 500 * time.Millisecond
	srv, path, socket := server(t), lockPath(t), socketIn(t)
	guard := guardAt(t, socket)
	s := clientOf(t, srv.ConnectString())
	p := guardedHolder(t, srv.ConnectString(), path, socket, 1, envHolderTimeout+"="+timeout.String())
	requireGuarded(t, p, 1)
	guard.signal(syscall.SIGKILL)
	p.Signal(syscall.SIGKILL)
	took := acquired(t, s, path+"/0")
	t.Logf("%v from the kill to the next grant, at T = %v", took, timeout)
	require.Greater(t, took, timeout/2, "the last request was a heartbeat ago")
	require.Less(t, took, timeout+2*tick+2*time.Second)
}

// F58: a holder is stopped for three session timeouts. The servers let its session expire, and the
// guard ends nothing.
func TestGuard_Real_HolderStopped_GuardEndsNothing(t *testing.T) {
	t.Parallel()
	const timeout = 2 * time.Second
	srv, path, socket := server(t), lockPath(t), socketIn(t)
	guard := guardAt(t, socket)
	s := clientOf(t, srv.ConnectString())
	p := guardedHolder(t, srv.ConnectString(), path, socket, 1, envHolderTimeout+"="+timeout.String())
	requireGuarded(t, p, 1)
	p.Signal(syscall.SIGSTOP)
	require.Greater(t, acquired(t, s, path+"/0"), timeout/2)
	time.Sleep(2 * timeout)
	require.NotContains(t, guard.stderr.String(), "its session")
	p.Signal(syscall.SIGKILL)
	guard.prints("the servers did not have its session")
}

// envKills is how often TestGuard_Real_HolderKilled kills a holder. From 50 on, its times are
// checked: on a quiet machine, and with a command that was built without the race detector.
const envKills = "ZKLOCK_GUARD_KILLS"

// F58, a real server: holders are killed, one after the other, and the waiter is granted at once.
func TestGuard_Real_HolderKilled_WaiterIsGranted(t *testing.T) {
	kills, err := strconv.Atoi(cmp.Or(os.Getenv(envKills), "3"))
	require.NoError(t, err)
	srv, path, socket := server(t), lockPath(t), socketIn(t)
	guardAt(t, socket)
	s := clientOf(t, srv.ConnectString())
	m, err := zklock.NewMutex(s, path+"/0")
	require.NoError(t, err)
	var took []time.Duration
	for range kills {
		p := guardedHolder(t, srv.ConnectString(), path, socket, 1)
		granted := make(chan error, 1)
		var h *zklock.Hold
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			var err error
			h, err = m.Acquire(ctx)
			granted <- err
		}()
		eventually(t, "the client waits", func() bool { return s.Stats().Waiting == 1 && len(participants(t, s, path+"/0")) == 2 })
		killed := time.Now()
		p.Signal(syscall.SIGKILL)
		require.NoError(t, <-granted)
		took = append(took, time.Since(killed))
		require.NoError(t, h.Release(t.Context()))
	}
	slices.Sort(took)
	median, longest := took[len(took)/2], took[len(took)-1]
	t.Logf("from kill -9 to the next grant: median %v, longest %v, of %d", median, longest, kills)
	if kills >= 50 {
		require.LessOrEqual(t, median, 100*time.Millisecond)
		require.LessOrEqual(t, longest, 300*time.Millisecond)
	}
}
