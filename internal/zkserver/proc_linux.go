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

// tieToThisProcess puts the server into its own process group, so that a Ctrl-C for the test does
// not reach it before the test's clean-up does. It also lets the kernel kill the server if this
// process ends without a clean-up.
func tieToThisProcess(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// awaitStopped returns when every thread of a process that was sent SIGSTOP has stopped. A thread
// that is running at that moment may reply to a last request.
func awaitStopped(pid int) error {
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
		if err != nil {
			return err
		}
		stopped := len(threads) > 0
		for _, file := range threads {
			stat, err := os.ReadFile(file)
			// The state follows the name, which is in parentheses. A thread that has ended does not
			// run.
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
