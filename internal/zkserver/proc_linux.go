package zkserver

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// tieToThisProcess puts the server into a process group of its own, so that a Ctrl-C meant for the
// test does not reach it before the test's clean-up does, and has the kernel kill it when
// this process ends without a clean-up.
func tieToThisProcess(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// awaitStopped returns when every thread of a process that was sent SIGSTOP has stopped: one that runs at that moment
// may answer a last request.
func awaitStopped(pid int) error {
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
		if err != nil {
			return err
		}
		stopped := len(threads) > 0
		for _, file := range threads {
			stat, err := os.ReadFile(file)
			// The state stands behind the name, which is in parentheses. A thread that is gone does not run.
			if i := bytes.LastIndexByte(stat, ')'); err == nil && !bytes.HasPrefix(stat[i+1:], []byte(" T")) {
				stopped = false
			}
		}
		if stopped {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("process %d does not stop", pid)
		}
	}
}
