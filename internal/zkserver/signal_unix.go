//go:build unix

package zkserver

import (
	"os"
	"syscall"
)

func terminate(p *os.Process) error { return p.Signal(syscall.SIGTERM) }
func resume(p *os.Process) error    { return p.Signal(syscall.SIGCONT) }

func pause(p *os.Process) error {
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	return awaitStopped(p.Pid)
}
