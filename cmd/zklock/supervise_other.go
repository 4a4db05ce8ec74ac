//go:build !linux && !darwin

package main

// Supervision where there are no process groups to signal: one process, and a plain kill at the end.

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"
)

const platformHelp = `On this system there are no process groups and no guardian: when the lock is lost
COMMAND itself is killed, without SIGTERM where there is none, and its children are
not; and COMMAND runs on when zklock is killed.

`

var handledSignals = []os.Signal{os.Interrupt, syscall.SIGTERM}

func reexecuted([]string) (int, bool) { return 0, false }

func dieOf(syscall.Signal, bool) {}

func reapOrphans() (stop func()) { return func() {} }

func startThreads() {}

func suspendedBy(os.Signal) {}

// supervise runs the command and ends it in time. There is nobody to dismiss.
func supervise(j job) (out outcome, dismiss func()) { return run(j), func() {} }

func run(j job) outcome {
	cmd := exec.Command(j.program)
	cmd.Args, cmd.Env = j.argv, j.env
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	if err := j.hold.Err(); err != nil {
		return outcome{lost: cause(err), how: notStarted}
	}
	if err := cmd.Start(); err != nil {
		return outcome{err: err}
	}
	j.began()
	ended := make(chan error, 1) // how Wait returned
	go func() { ended <- cmd.Wait() }()

	tick := time.NewTicker(j.plan.poll)
	defer tick.Stop()
	lim := j.plan.until(j.deadline())
	lostCh := j.hold.Lost()
	var out outcome
	interrupts := 0
	for {
		select {
		case s := <-j.sigs:
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
				out.exit = exit.ExitCode()
			default:
				out.err = err
			}
			return out
		case <-lostCh:
			lostCh = nil
			if out.lost == nil {
				out.lost = cause(j.hold.Err())
				lim = lim.endNow(now(), j.plan.killAfter)
			}
		case <-tick.C:
			if out.lost == nil {
				lim = j.plan.until(j.deadline())
			}
		}
		n := now()
		if n >= lim.Term && out.how == "" {
			if out.lost == nil {
				out.lost = errNotRenewed
			}
			out.how = "the command was ended"
			if cmd.Process.Signal(syscall.SIGTERM) != nil {
				lim.Kill = n
			}
		}
		if n >= lim.Kill {
			out.how = "the command was killed"
			if err := cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
				out.err = fmt.Errorf("cannot kill the command: %w", err)
			}
		}
	}
}
