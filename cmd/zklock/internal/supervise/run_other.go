//go:build !linux && !darwin

package supervise

// Supervision where there are no process groups to signal: one process, and a plain kill at the
// end.

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// Guards reports whether this system lets a Runner end a command with SIGTERM first and with
// everything that came from it, even when its own process is killed.
const Guards = false

var handledSignals = []os.Signal{os.Interrupt, syscall.SIGTERM}

// Reexecuted returns false: nothing is re-executed here.
func Reexecuted([]string, func() Output, func([]byte, Moment)) (int, bool) { return 0, false }

// DieOf returns: no process here ends by a signal of its own.
func DieOf(syscall.Signal, bool) {}

type guardianProcess struct{}

func (*Runner) reapOrphans() (stop func()) { return func() {} }

func startThreads() {}

func inForeground(int) bool { return false } // there are no groups

// SuspendedBy returns: nothing suspends a process here.
func SuspendedBy(os.Signal) {}

// Run runs the command and ends it in time. There is no guardian to dismiss.
func (r *Runner) Run(j Job) Outcome {
	cmd := exec.Command(j.Program)
	cmd.Args, cmd.Env = j.Argv, j.Env
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	if err := j.Hold.Err(); err != nil {
		return Outcome{Lost: err, How: NotStarted}
	}
	if err := cmd.Start(); err != nil {
		return Outcome{Err: err}
	}
	j.Began()
	ended := make(chan error, 1) // how Wait returned
	go func() { ended <- cmd.Wait() }()

	tick := time.NewTicker(j.Plan.Poll)
	defer tick.Stop()
	lim := j.Plan.until(j.deadline())
	lostCh := j.Hold.Lost()
	var out Outcome
	interrupts := 0
	for {
		select {
		case s := <-r.kept:
			if s == os.Interrupt {
				interrupts++
			}
			if interrupts > 1 {
				_ = cmd.Process.Kill()
			} else {
				_ = cmd.Process.Signal(s) // not on Windows, where the console sends Ctrl-C to the command, too
			}
		case err := <-ended:
			var exit *exec.ExitError
			switch {
			case err == nil:
			case errors.As(err, &exit):
				out.Exit = exit.ExitCode()
			default:
				out.Err = err
			}
			return out
		case <-lostCh:
			lostCh = nil
			if out.Lost == nil {
				out.Lost = j.Hold.Err()
				lim = lim.endNow(Now(), j.Plan.KillAfter)
			}
		case <-tick.C:
			if out.Lost == nil {
				lim = j.Plan.until(j.deadline())
			}
		}
		n := Now()
		if n >= lim.Term && out.How == "" {
			if out.Lost == nil {
				out.Lost = ErrDeadline
			}
			out.How = "the command was ended"
			if cmd.Process.Signal(syscall.SIGTERM) != nil {
				lim.Kill = n
			}
		}
		if n >= lim.Kill {
			out.How = "the command was killed"
			if err := cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
				out.Err = fmt.Errorf("cannot kill the command: %w", err)
			}
		}
	}
}
