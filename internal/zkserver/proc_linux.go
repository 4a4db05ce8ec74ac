package zkserver

import (
	"os/exec"
	"syscall"
)

// tieToThisProcess puts the server into a process group of its own, so that a Ctrl-C meant for the
// test does not reach it before the test's clean-up does, and has the kernel kill it when
// this process ends without a clean-up.
func tieToThisProcess(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
