package command

import (
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// Process 1 of a container whose guardian is killed ends without a release, and says when others
// get the lock. That nothing of the command is left then is tested in internal/supervise.
func TestLoss_GuardianOfProcess1Killed_ReportsWhenOthersGetTheLock(t *testing.T) {
	if os.Geteuid() != 0 {
		missing(t, "not root, and a PID namespace needs it")
	}
	srv, path := server(t), lockPath(t)
	p := start(t, func(c *exec.Cmd) {
		c.Args = append([]string{"unshare", "--pid", "--fork", "--mount-proc", binary(t)}, c.Args[1:]...)
		c.Path, _ = exec.LookPath("unshare")
	}, runArgs(srv.ConnectString(), path, longSession, "--", "sh", "-c", "echo ready; sleep 1000; true")...)
	p.prints("ready")
	require.NoError(t, syscall.Kill(childOf(t, childOf(t, p.cmd.Process.Pid)), syscall.SIGKILL))
	require.Equal(t, exitUsage, p.wait())
	require.Regexp(t, `zklock: `+path+` \(token \d+, node `+path+`/_c_[^,]+, process 1\): the guardian process was killed; killed the command; others get the lock when the session ends\n`, p.stderr.String())
	require.Len(t, participants(t, session(t, srv), path), 1, "not released")
}
