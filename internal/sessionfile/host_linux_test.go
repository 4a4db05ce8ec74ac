package sessionfile

// These tests attack host_linux.go: what shows that a process lives.

import (
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The kernel has a second proof that a process is dead: it does not exist.
func TestOpen_OwnerLivesWithoutTheLock(t *testing.T) {
	require.NotEmpty(t, thisProcess().space)
	path := at(t)
	f, _ := mustOpen(t, path, servers...)
	f.head.owner.pid = os.Getppid()
	start, _, err := stat(os.Getppid())
	require.NoError(t, err)
	f.head.owner.start = start
	require.NoError(t, f.Add(key(-1)))
	crash(f) // another process: `closefrom` without exec
	_, _, err = Open(t.Context(), path, servers)
	require.ErrorIs(t, err, ErrInUse)
	require.ErrorContains(t, err, "lives")

	f, _ = mustOpen(t, path+"2", servers...)
	f.head.owner.pid, f.head.owner.start = os.Getppid(), start+1 // the number was used again
	require.NoError(t, f.Add(key(-1)))
	crash(f)
	_, found := mustOpen(t, path+"2", servers...)
	require.Len(t, found.Sessions, 1)
}

// A PID namespace with the /proc of its parent: the number of the owner, 1, means a process there
// that lives. The lock alone decides.
func TestOpen_ProcOfAnotherNamespace_OwnerIsDead(t *testing.T) {
	const env = "ZKLOCK_TEST_SESSION_FILE"
	again := func(path string) {
		c := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
		c.Env = append(os.Environ(), env+"="+path)
		if os.Getenv(env) == "" {
			c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}
		}
		out, err := c.CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	switch path := os.Getenv(env); {
	case path == "" && os.Geteuid() != 0:
		t.Skip("only root can create a PID namespace")
	case path == "":
		again(at(t))
	case os.Getpid() == 1: // the owner
		f, _ := mustOpen(t, path, servers...)
		require.NoError(t, f.Add(key(-1)))
		crash(f)
		again(path)
	default: // the next process
		_, found := mustOpen(t, path, servers...)
		require.Len(t, found.Sessions, 1)
	}
}

// A process that has ended is dead, although its parent has not waited for it.
func TestLives(t *testing.T) {
	self := thisProcess()
	require.True(t, lives(self))
	require.False(t, lives(process{}))
	require.False(t, lives(process{self.pid, self.start, ""}), "the number may mean another process")
	child := exec.Command("sleep", "60")
	require.NoError(t, child.Start())
	start, isDead, err := stat(child.Process.Pid)
	require.NoError(t, err)
	require.False(t, isDead)
	p := process{child.Process.Pid, start, self.space}
	require.True(t, lives(p))
	require.NoError(t, child.Process.Kill())
	require.Eventually(t, func() bool { return !lives(p) }, 10*time.Second, time.Millisecond)
	_, isDead, err = stat(p.pid)
	require.NoError(t, err)
	require.True(t, isDead)
	require.Error(t, child.Wait())
}
