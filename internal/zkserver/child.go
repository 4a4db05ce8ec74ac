package zkserver

// One run of the server process, from start to end.

import (
	"os"
	"os/exec"
	"runtime"
	"time"
)

// child is a started process. Its one goroutine starts it, waits for it, and ends with it.
type child struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when the process has been waited for
}

// startChild starts cmd with its output appended to the file log.
func startChild(cmd *exec.Cmd, log string) (*child, error) {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer out.Close() // the process has its own descriptor
	cmd.Stdout, cmd.Stderr = out, out
	tieToThisProcess(cmd)

	c := &child{cmd: cmd, done: make(chan struct{})}
	started := make(chan error)
	go c.run(started)
	if err := <-started; err != nil {
		return nil, err
	}
	return c, nil
}

// run starts the process and waits for it on one thread. Linux sends the parent-death signal when
// the *thread* that forked ends, so the thread must live as long as the process.
func (c *child) run(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := c.cmd.Start(); err != nil {
		started <- err
		return
	}
	started <- nil
	_ = c.cmd.Wait() // the status does not matter: we killed the process, or its log has the reason
	close(c.done)
}

// ended reports whether the process has ended.
func (c *child) ended() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// wait waits until the process has ended, for at most d.
func (c *child) wait(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-c.done:
		return true
	case <-timer.C:
		return false
	}
}
