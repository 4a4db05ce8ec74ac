//go:build unix && !linux

package zkserver

import (
	"os/exec"
	"syscall"
)

// tieToThisProcess puts the server into its own process group. These systems have no parent-death
// signal: the servers of a killed test process continue to run.
func tieToThisProcess(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
}

// awaitStopped cannot wait here: a thread that is running when the signal is sent may reply to a
// last request.
func awaitStopped(int) error { return nil }
