//go:build linux || darwin

package main

// zklock's side of the supervision: it starts the guardian, moves the limits with the hold's deadline, and passes on signals
// and the terminal.

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const platformHelp = ``

// handledSignals are taken from the start; forwardedToo only while the command runs.
var (
	handledSignals = []os.Signal{
		syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH,
		syscall.SIGPIPE, // a message to a reader that is gone must not end us
	}
	forwardedToo = []os.Signal{syscall.SIGTSTP, syscall.SIGCONT}
)

var errGuardianGone = errors.New("the guardian process was killed; killed the command")

// supervisor is zklock while the command runs.
type supervisor struct {
	job
	guardian *os.Process
	wire     *wire[report, order]
	tty      *terminal

	asked      bool // the guardian was told to start the command
	pgid       int  // 0 before the command runs, and again when its number may not be used any more
	lim        limits
	sent       limits
	lost       error   // why the command is being ended
	session    *ending // as the guardian has it
	stopped    syscall.Signal
	interrupts int
	refused    bool // said that the command cannot be signalled
}

// guardianProcess is the one child that is not for reapOrphans. Its mutex is held while the guardian is started.
var guardianProcess struct {
	sync.Mutex
	pid int // 0 without a guardian
}

// supervise runs the command, and returns when the command and everything in its group has ended. The guardian stands by
// until it is dismissed: zklock may be killed before it has released the lock.
func supervise(j job) (out outcome, dismiss func()) {
	s := &supervisor{job: j}
	if err := s.startGuardian(); err != nil {
		return outcome{err: fmt.Errorf("cannot start the guardian process: %w", err)}, func() {}
	}
	return s.run(), s.dismiss
}

// dismiss ends a guardian that has nothing left to look after, even if it is stopped. It kills the guardian before it closes
// the socket: an end of file would tell the guardian that zklock was killed.
func (s *supervisor) dismiss() {
	_ = s.guardian.Kill()
	_, _ = s.guardian.Wait()
	s.wire.close()
}

// startGuardian starts the guardian with one end of a socket pair. The guardian inherits that end under its own number, not as
// descriptor 3: all descriptors that zklock was given beyond the standard streams are the command's.
func (s *supervisor) startGuardian() error {
	exe, err := self()
	if err != nil {
		return err
	}
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		return os.NewSyscallError("socketpair", err)
	}
	defer unix.Close(fds[1])
	unix.CloseOnExec(fds[0])
	guardianProcess.Lock()
	defer guardianProcess.Unlock()
	s.guardian, err = os.StartProcess(exe, []string{"zklock", guardianArg, strconv.Itoa(fds[1])}, &os.ProcAttr{
		Files: []*os.File{os.Stdin, os.Stdout, os.Stderr},
		Sys:   &syscall.SysProcAttr{Setpgid: true},
	})
	if err != nil {
		_ = unix.Close(fds[0])
		return err
	}
	guardianProcess.pid = s.guardian.Pid
	if s.wire, err = newWire[report, order](fds[0]); err != nil {
		_ = s.guardian.Kill()
		_, _ = s.guardian.Wait()
		return err
	}
	s.tellSession()
	return nil
}

// tellSession tells the guardian which ZooKeeper session to end if zklock is killed. It does so again when the session or its
// timeout is another.
func (s *supervisor) tellSession() {
	if e := s.ending(); s.session == nil || e.ID != s.session.ID || e.Timeout != s.session.Timeout {
		if s.wire.send(order{Session: e}) {
			s.session = e
		}
	}
}

func (s *supervisor) run() (out outcome) {
	s.tty = openTerminal()
	killed := false
	defer func() { s.tty.close(killed) }()
	s.desk.take(forwardedToo...)

	tick := time.NewTicker(s.plan.poll)
	defer tick.Stop()
	lostCh := s.hold.Lost()
	ended := false
	for {
		sigs := s.sigs
		if s.pgid == 0 { // the command may run already, and we have not heard: signals wait until we can pass them on
			sigs = nil
		}
		select {
		case r, ok := <-s.wire.in:
			switch {
			case !ok:
				return s.guardianGone(out, ended)
			case r.Ready:
				if out = s.start(); out.lost != nil {
					return out
				}
			case r.Failed != "":
				if r.Failed == errNotRenewed.Error() {
					return outcome{lost: errNotRenewed, how: "the command was not started"}
				}
				out.err = fmt.Errorf("cannot start the command: %s", r.Failed)
				return out
			case r.Started != 0:
				s.pgid = r.Started
			case r.Stopped != 0:
				s.onStop(syscall.Signal(r.Stopped))
			case r.Continued:
				s.stopped = 0
			case r.Ending:
				if s.lost == nil {
					s.lost = s.whyLost()
				}
			case r.Ended:
				ended = true
				s.pgid = 0
				s.wire.send(order{Reap: true})
			case r.Status != nil:
				ws := unix.WaitStatus(*r.Status)
				killed = ws.Signaled()
				return s.conclude(ws)
			}
		case sig := <-sigs:
			s.onSignal(sig.(syscall.Signal))
		case <-lostCh:
			lostCh = nil
			s.onLost()
		case <-tick.C:
			s.onTick()
		}
	}
}

// start gives the order to start the command, after a last look at the hold.
func (s *supervisor) start() outcome {
	s.lim = s.plan.until(s.deadline())
	s.sent = s.lim
	o := startOrder{
		Program: wordsOf(s.program), Argv: wordsOf(s.argv...), Env: wordsOf(s.env...), Lock: s.lock,
		Foreground: s.tty.interactive(),
		KillAfter:  s.plan.killAfter, Limits: s.lim,
	}
	if s.tty != nil {
		s.tty.given = o.Foreground
	}
	if err := s.hold.Err(); err != nil {
		return outcome{lost: cause(err), how: "the command was not started"}
	}
	s.asked = true
	s.wire.send(order{Start: &o}) // a guardian that is gone shows at its end of file
	return outcome{}
}

// onTick moves the limits with the deadline. When a limit comes all the same, the guardian acts. zklock kills the group too, a
// little later, in case something keeps the guardian from it. If the guardian was stopped, onTick continues it at once: nobody
// else would see that the command has ended.
func (s *supervisor) onTick() {
	if st, err := stateOf(s.guardian.Pid); err == nil && st.stopped != 0 {
		_ = s.guardian.Signal(unix.SIGCONT)
	}
	s.tellSession()
	if s.pgid == 0 {
		return
	}
	if s.lost == nil {
		s.lim = s.plan.until(s.deadline())
		if l := s.lim; l != s.sent && s.wire.send(order{Limits: &l}) {
			s.sent = l
		}
	}
	n := now()
	if n >= s.lim.Term && s.lost == nil {
		s.lost = s.whyLost()
	}
	if n >= s.lim.Kill.add(s.plan.margin/2) {
		s.signal(unix.SIGKILL)
	}
}

// onLost ends the command at once: the lock is lost although its deadline has not come.
func (s *supervisor) onLost() {
	if !s.asked {
		return // start will see it
	}
	if s.lost == nil {
		s.lost = s.whyLost()
		s.lim = s.lim.endNow(now(), s.plan.killAfter)
	}
	l := s.lim
	s.wire.send(order{Limits: &l})
}

// whyLost returns the hold's error, or says that its lease is about to end.
func (s *supervisor) whyLost() error {
	if err := s.hold.Err(); err != nil {
		return cause(err)
	}
	return errNotRenewed
}

// signal signals the command's group. The guardian does not reap before we say that we send no more signals.
func (s *supervisor) signal(sig syscall.Signal) {
	if s.pgid == 0 {
		return
	}
	// (SIGKILL we also send to a group that may have ended, which macOS answers in the same way.)
	if unix.Kill(-s.pgid, sig) == unix.EPERM && sig != unix.SIGKILL && !s.refused {
		s.refused = true
		fmt.Fprintf(os.Stderr, "zklock: %s: the command belongs to another user and cannot be signalled\n", s.lock)
	}
}

// onSignal passes on a signal that was sent to zklock. (zklock is not in the terminal's foreground group then: the terminal's
// signals go to the command directly.)
func (s *supervisor) onSignal(sig syscall.Signal) {
	switch sig {
	case unix.SIGPIPE:
		return
	case unix.SIGINT:
		if s.interrupts++; s.interrupts > 1 {
			s.signal(unix.SIGKILL)
			return
		}
	case unix.SIGCONT:
		s.resume()
		return
	}
	s.signal(sig)
}

// onStop sees that the command stopped. If it has the terminal, or stopped for its sake, zklock stops, too, so that the
// shell gets the terminal and can resume both. Otherwise somebody wanted the command alone to stop, and the lock stays
// held.
func (s *supervisor) onStop(sig syscall.Signal) {
	s.stopped = sig
	if s.tty == nil || s.lost != nil {
		return
	}
	switch sig {
	case unix.SIGTTIN, unix.SIGTTOU: // it reads or changes a terminal that it does not have
		if s.tty.give(s.pgid) {
			s.signal(unix.SIGCONT)
			return
		}
	case unix.SIGTSTP:
	default: // SIGSTOP: an interactive shell's `suspend`, if it has the terminal
		if !s.tty.given {
			return
		}
	}
	if !canStop() {
		s.signal(unix.SIGCONT) // nobody could resume it
		return
	}
	s.note("suspended: the lock is lost unless it is resumed within %v", max(s.lim.Term.sub(now()), 0).Round(100*time.Millisecond))
	s.tty.takeBack()
	stopSelf()
	s.resume()
}

// resume continues a command that was stopped, in the foreground if that is where we are, unless its time is over.
func (s *supervisor) resume() {
	if s.hold.Err() != nil {
		return // the guardian has ended it, or is about to
	}
	if s.stopped != 0 && s.tty.interactive() {
		s.tty.give(s.pgid)
	}
	s.signal(unix.SIGCONT)
}

// guardianGone ends the command's group when the guardian is gone. The command has no parent of ours now. Where the system has
// a parent-death signal, the kernel has killed the command. The group's number stays taken while the group has members.
func (s *supervisor) guardianGone(out outcome, ended bool) outcome {
	out.err = errGuardianGone
	_ = s.guardian.Kill() // in case only its end of the socket is gone
	if ended || s.pgid == 0 {
		return out
	}
	deadline := time.Now().Add(5 * time.Second)
	for unix.Kill(-s.pgid, unix.SIGKILL) == nil && time.Now().Before(deadline) {
		time.Sleep(5 * time.Millisecond)
	}
	return out
}

// conclude turns the command's wait status into an outcome.
func (s *supervisor) conclude(ws unix.WaitStatus) outcome {
	out := outcome{exit: ws.ExitStatus(), lost: s.lost}
	if ws.Signaled() {
		out.exit = exitSignal + int(ws.Signal())
	}
	if s.interrupts > 1 && ws.Signaled() && ws.Signal() == unix.SIGKILL {
		out.exit = exitCodeOf(syscall.SIGINT)
	}
	if s.lost != nil {
		out.how = "the command was ended with SIGTERM"
		if ws.Signaled() && ws.Signal() == unix.SIGKILL {
			out.how = "the command was killed with SIGKILL"
		}
	}
	return out
}
