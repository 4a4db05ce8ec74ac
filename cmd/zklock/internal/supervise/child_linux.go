package supervise

import (
	"errors"
	"os"
	"syscall"
)

// Child runs a command as a child in this process's group, passes signals on to it, and returns how
// it ended. Unlike Run it ends no process: the command continues if this process is killed. As the
// first process of a container, it reaps orphans.
//
// A terminal signals its whole foreground group. So while this process is in the foreground, the
// signals of the terminal's keys are not passed on: the command has them already.
func Child(program string, argv, env []string) Outcome {
	var child guardianProcess
	child.Lock() // so the reaper leaves the command alone
	if os.Getpid() == 1 {
		defer child.reapOthers()()
	}
	kept := make(chan os.Signal, 64)
	d := openDesk(func(s os.Signal) { keep(kept, s) })
	defer d.close()
	attr := &os.ProcAttr{Env: env, Files: []*os.File{os.Stdin, os.Stdout, os.Stderr}}
	p, err := os.StartProcess(program, argv, attr)
	if errors.Is(err, syscall.ENOEXEC) { // a script without a #! line, as execvp has it
		p, err = os.StartProcess("/bin/sh", append([]string{"/bin/sh", program}, argv[1:]...), attr)
	}
	if err == nil {
		child.pid = p.Pid
	}
	child.Unlock()
	if err != nil {
		return Outcome{Exit: ExitCannotRun, Err: err}
	}
	ended := make(chan *os.ProcessState, 1)
	go func() {
		state, _ := p.Wait()
		ended <- state
	}()
	for {
		select {
		case s := <-kept:
			keys := s == syscall.SIGINT || s == syscall.SIGQUIT || s == syscall.SIGWINCH
			if !keys || !InForeground(os.Stdin) {
				_ = p.Signal(s)
			}
		case state := <-ended:
			ws := state.Sys().(syscall.WaitStatus)
			if ws.Signaled() {
				return Outcome{Died: ws.Signal()}
			}
			return Outcome{Exit: ws.ExitStatus()}
		}
	}
}
