//go:build linux || darwin

package supervise

// zklock's side of the supervision: it starts the guardian, moves the limits with the hold's
// deadline, and passes on signals and the terminal.

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Guards reports whether this system lets a Runner end a command with SIGTERM first and with
// everything that came from it, even when its own process is killed.
const Guards = true

// handledSignals are taken from the start; forwardedToo only while the command runs.
var (
	handledSignals = []os.Signal{
		syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH,
	}
	forwardedToo = []os.Signal{syscall.SIGTSTP, syscall.SIGCONT}
)

var errGuardianGone = errors.New("the guardian process was killed; killed the command")

type supervisor struct {
	Job
	runner   *Runner
	sigs     <-chan os.Signal // those that the runner keeps
	guardian *os.Process
	wire     *wire[report, order]
	tty      *terminal

	stage      stage
	pgid       int              // 0 while waiting, and again when its number may not be used any more
	early      []syscall.Signal // came before the command could take them
	lim        limits
	sent       limits
	lost       error // why the command is being ended
	will       *will // as the guardian has it
	came       repeats
	interrupts int
	refused    bool // reported that the command cannot be signalled
}

type stage int

const (
	waiting  stage = iota // nothing of the command runs before zklock's Go order: zklock can end at any time
	starting              // it may run, or still be zklock's own code
	running
	over // its group's number may not be used any more
)

// guardianProcess is the one child that reapOrphans leaves alone. Its mutex is held while the
// guardian is started.
type guardianProcess struct {
	sync.Mutex
	pid   int  // 0 without a guardian
	heirs bool // if the guardian dies, zklock's other children came from the command, all of them
}

// Run runs the command, and returns when the command and everything that came from it has ended.
// The guardian stays until Dismiss, because zklock may be killed before it has released the lock.
func (r *Runner) Run(j Job) Outcome {
	s := &supervisor{Job: j, runner: r, sigs: r.kept, came: repeats{}}
	if runtime.GOOS == "linux" && !seesDescendants() {
		fmt.Fprintf(s.runner.out, "zklock: %s: without the /proc of this PID namespace, processes that leave the command's process group are not ended\n", s.Name)
	}
	if err := s.startGuardian(); err != nil {
		return Outcome{Err: fmt.Errorf("cannot start the guardian process: %w", err)}
	}
	r.dismiss = s.dismiss
	return s.run()
}

// dismiss ends a guardian that has nothing left to supervise, even if it is stopped. It kills the
// guardian before it closes the socket: an end of file would mean that zklock was killed.
func (s *supervisor) dismiss() {
	_ = s.guardian.Kill()
	_, _ = s.guardian.Wait()
	s.wire.close()
	s.runner.child.Lock()
	defer s.runner.child.Unlock()
	s.runner.child.pid = 0
	for s.runner.child.heirs { // processes that were left running are our children now, and another term may follow
		if pid, _ := unix.Wait4(-1, nil, unix.WNOHANG, nil); pid <= 0 {
			return
		}
	}
}

// startGuardian starts the guardian with one end of a socket pair. The guardian inherits it under
// the same number, not as descriptor 3: all descriptors that zklock was given beyond the standard
// streams are the command's.
func (s *supervisor) startGuardian() error {
	exe, name, err := self()
	if err != nil {
		return err
	}
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		return os.NewSyscallError("socketpair", err)
	}
	defer unix.Close(fds[1])
	unix.CloseOnExec(fds[0])
	s.runner.child.Lock()
	defer s.runner.child.Unlock()
	s.guardian, err = os.StartProcess(exe, []string{name, guardianArg, strconv.Itoa(fds[1])}, &os.ProcAttr{
		Files: []*os.File{os.Stdin, os.Stdout, os.Stderr},
		Sys:   &syscall.SysProcAttr{Setpgid: true},
	})
	if err != nil {
		_ = unix.Close(fds[0])
		return err
	}
	s.runner.child.pid = s.guardian.Pid
	if s.wire, err = newWire[report, order](fds[0]); err != nil {
		_ = s.guardian.Kill()
		_, _ = s.guardian.Wait()
		return err
	}
	s.tellWill()
	return nil
}

// tellWill sends the guardian the will, and again when it has changed.
func (s *supervisor) tellWill() {
	w := &will{os.Getpid(), s.Will()}
	if s.will != nil && bytes.Equal(w.Data, s.will.Data) {
		return
	}
	if s.wire.send(order{Will: w}) {
		s.will = w
	}
}

func (s *supervisor) run() Outcome {
	s.tty = openTerminal(unix.Getpgrp())
	ended := false // the command, by a signal or for its lock
	defer func() { s.tty.close(ended) }()

	tick := time.NewTicker(s.Plan.Poll)
	defer tick.Stop()
	lostCh := s.Hold.Lost()
	for {
		select {
		case r, ok := <-s.wire.in:
			switch {
			case !ok:
				return s.guardianGone()
			case r.Ready:
				s.start()
			case r.Failed != "":
				return Outcome{Err: fmt.Errorf("cannot start the command: %s", r.Failed)}
			case r.Started != 0:
				s.runner.desk.take(forwardedToo...)
				if err := s.begin(r.Started); err != nil {
					return Outcome{Lost: err, How: NotStarted}
				}
			case r.Running:
				s.onRunning()
			case r.Stopped != 0:
				s.onStop(syscall.Signal(r.Stopped))
			case r.Ending:
				if s.lost == nil {
					s.lost = s.whyLost()
				}
			case r.Left != "":
				fmt.Fprintf(s.runner.out, "zklock: %s: %s\n", s.Name, r.Left)
				s.tty.takeBack() // Ctrl-C is for us now
			case r.Ended:
				s.stage, s.pgid = over, 0
				s.wire.send(order{Reap: true})
			case r.Status != nil:
				ws := unix.WaitStatus(*r.Status)
				ended = ws.Signaled() || s.lost != nil
				return s.conclude(ws)
			}
		case sig := <-s.sigs:
			if s.stage == waiting && Ends(sig) {
				return Outcome{Died: sig, How: NotStarted}
			}
			for _, sig := range s.together(sig.(syscall.Signal)) {
				s.onSignal(sig)
			}
		case <-lostCh:
			if s.stage == waiting {
				return Outcome{Lost: s.whyLost(), How: NotStarted}
			}
			lostCh = nil
			s.onLost()
		case <-tick.C:
			s.onTick()
		}
	}
}

// start has the guardian start a process that becomes the command after the Go order.
func (s *supervisor) start() {
	s.wire.send(order{Start: &startOrder{
		Program: wordsOf(s.Program), Argv: wordsOf(s.Argv...), Env: wordsOf(s.Env...), Name: s.Name,
		KillAfter: s.Plan.KillAfter, Leftovers: s.Leftovers, Group: unix.Getpgrp(),
	}})
}

// SuspendedBy stops zklock between two commands if a signal asks for that. Before the first, the
// kernel does it: SIGTSTP is handled only while a command runs.
func SuspendedBy(s os.Signal) {
	if s == syscall.SIGTSTP && canStop() {
		stopSelf(syscall.SIGTSTP, false)
	}
}

// begin sends the Go order, after a last check that the hold is valid, with time left.
func (s *supervisor) begin(pgid int) error {
	l := s.Plan.until(s.deadline())
	if s.Hold.Err() != nil || Now() >= l.Term {
		return s.whyLost()
	}
	s.stage, s.pgid, s.lim, s.sent = starting, pgid, l, l
	if s.tty.interactive() {
		s.tty.give(pgid)
	}
	s.Began()
	s.wire.send(order{Go: &l}) // the end of a guardian shows at its end of file
	return nil
}

// onRunning passes on the signals that had to wait.
func (s *supervisor) onRunning() {
	if s.stage != starting {
		return
	}
	s.stage = running
	for _, sig := range s.early {
		s.onSignal(sig)
	}
	s.early = nil
}

// onTick moves the limits with the deadline. If a limit passes nevertheless, the guardian acts.
// zklock also kills the group, a little later, in case the guardian cannot. If the guardian was
// stopped, onTick continues it at once: no other process would notice that the command has ended.
func (s *supervisor) onTick() {
	if st, err := stateOf(s.guardian.Pid); err == nil && st.stopped != 0 {
		_ = s.guardian.Signal(unix.SIGCONT)
	}
	s.tellWill()
	if s.pgid == 0 {
		return
	}
	if s.lost == nil {
		s.lim = s.Plan.until(s.deadline())
		if l := s.lim; l != s.sent && s.wire.send(order{Limits: &l}) {
			s.sent = l
		}
	}
	n := Now()
	if n >= s.lim.Term && s.lost == nil {
		s.lost = s.whyLost()
	}
	if n >= s.lim.Kill.Add(s.Plan.Margin/2) {
		s.signal(unix.SIGKILL)
	}
	if s.stage == running && s.lost == nil && s.tty.ours() { // since a shell's fg, of which it does not notify a running job
		asks := wantsTerminal(s.pgid)
		if (asks || s.tty.interactive()) && s.tty.give(s.pgid) && asks {
			s.signal(unix.SIGCONT)
		}
	}
}

// onLost ends the command at once: the lock is lost although its deadline has not come.
func (s *supervisor) onLost() {
	if s.lost == nil {
		s.lost = s.whyLost()
		s.lim = s.lim.endNow(Now(), s.Plan.KillAfter)
	}
	l := s.lim
	s.wire.send(order{Limits: &l})
}

// whyLost returns the hold's error, or ErrDeadline.
func (s *supervisor) whyLost() error {
	if err := s.Hold.Err(); err != nil {
		return err
	}
	return ErrDeadline
}

// signal signals the command's group. The guardian does not reap before we announce that we send no
// more signals.
func (s *supervisor) signal(sig syscall.Signal) {
	if s.pgid == 0 {
		return
	}
	// (SIGKILL is also sent to a group that may have ended, for which macOS returns the same
	// error.)
	if unix.Kill(-s.pgid, sig) == unix.EPERM && sig != unix.SIGKILL && !s.refused {
		s.refused = true
		fmt.Fprintf(s.runner.out, "zklock: %s: the command belongs to another user and cannot be signalled\n", s.Name)
	}
}

// together returns the signal, and those that arrived with it. SIGCONT discards a pending SIGTSTP,
// as in the kernel: the Go runtime delivers signals that arrive within microseconds by their
// numbers, and so SIGTSTP last.
func (s *supervisor) together(sig syscall.Signal) (all []syscall.Signal) {
	all = append(all, sig)
	if sig != unix.SIGTSTP && sig != unix.SIGCONT {
		return all
	}
	for wait := time.After(5 * time.Millisecond); ; {
		select {
		case sig := <-s.sigs:
			all = append(all, sig.(syscall.Signal))
			continue
		case <-wait:
		}
		if slices.Contains(all, unix.SIGCONT) {
			all = slices.DeleteFunc(all, func(s syscall.Signal) bool { return s == unix.SIGTSTP })
		}
		return all
	}
}

// onSignal passes on a signal that was sent to zklock. (zklock is not in the terminal's foreground
// group then, so the terminal signals the command directly.)
//
// The process that becomes the command is a Go program first, which handles some signals in its own
// way. Those wait. Signals that end, stop and continue it as they would the command do not wait:
// the exec may hang, for example on a file system that is unreachable.
func (s *supervisor) onSignal(sig syscall.Signal) {
	switch {
	case s.stage < running && (sig == unix.SIGQUIT || !Ends(sig)) && sig != unix.SIGTSTP && sig != unix.SIGCONT:
		s.early = append(s.early, sig)
		return
	case s.stage == over, s.came.is(sig, Now()):
		return
	}
	if Ends(sig) && sig != unix.SIGHUP { // which many programs take for "read your configuration again"
		s.wire.send(order{End: true})
	}
	switch sig {
	case unix.SIGINT:
		if s.interrupts++; s.interrupts > 1 {
			s.wire.send(order{Kill: true}) // also what left the group
			s.signal(unix.SIGKILL)
			return
		}
	case unix.SIGCONT:
		s.resume()
		return
	}
	s.signal(sig)
}

// onStop handles a stop of the command. If the command needs the terminal, and zklock's group has
// it, the command gets it. Otherwise zklock stops too, by the same signal: the shell above sees the
// job stopped, and can resume both. The terminal signals a whole group. So if that was the
// command's, the rest of zklock's group, such as timeout(1) or a script, gets the signal too.
// Without a terminal there is no such shell, and the lock stays held.
func (s *supervisor) onStop(sig syscall.Signal) {
	asks := sig == unix.SIGTTIN || sig == unix.SIGTTOU // it reads or changes a terminal that it does not have
	switch {
	case s.tty == nil || s.lost != nil || s.interrupts > 1: // the guardian stops all before it kills
	case asks && s.tty.give(s.pgid):
		s.signal(unix.SIGCONT)
	case !canStop():
		s.wire.send(order{Alone: true})
	case isStopped(s.pgid): // still
		s.Note("suspended: the lock is lost unless it is resumed within %v", max(s.lim.Term.Sub(Now()), 0).Round(100*time.Millisecond))
		s.runner.out.Flush()
		group := asks || sig == unix.SIGTSTP && s.tty.given
		s.tty.takeBack()
		s.wire.send(order{Stops: true})
		stopSelf(sig, group)
	}
}

// resume continues the command, in the foreground if zklock is there, unless the hold has ended.
func (s *supervisor) resume() {
	if s.Hold.Err() != nil {
		return // the guardian has ended it, or is about to
	}
	if s.tty.interactive() {
		s.tty.give(s.pgid)
	}
	s.signal(unix.SIGCONT)
}

// guardianGone ends the command when the guardian has died. The command has no parent of ours now.
// Where the system has a parent-death signal, the kernel has killed the command. The group's number
// stays taken while the group has members.
//
// Where zklock inherits from the guardian, it ends the rest in the guardian's way. It does not if
// it had children before, or inherits others as process 1 of a container: it could not distinguish
// those from processes that came from the command. Process 1 ends instead, without a release, and
// the kernel ends everything with it while the hold still lasts.
//
// Without the Go order, nothing of the command runs: the process that waits for it ends with the
// guardian.
func (s *supervisor) guardianGone() Outcome {
	out := Outcome{Err: errGuardianGone}
	_ = s.guardian.Kill() // in case it has only closed its end of the socket
	if s.pgid == 0 {
		return out
	}
	if os.Getpid() == 1 {
		s.Abandon(errGuardianGone)
	}
	family := kin{group: s.pgid}
	if s.runner.child.heirs {
		// Its children become ours when it ends. It is reaped with them: during a storm of forks
		// Linux (6.18) may take minutes to remove its entries in /proc (release_task,
		// shrink_dcache_parent), and we could do nothing meanwhile.
		for st, err := stateOf(s.guardian.Pid); err == nil && !st.exited; st, err = stateOf(s.guardian.Pid) {
			time.Sleep(time.Millisecond)
		}
		family.below = newDescendants(0, s.Leftovers == LeaveThem)
	}
	deadline := time.Now().Add(5 * time.Second)
	for {
		family.kill()
		if family.gone() || family.below == nil && time.Now().After(deadline) { // a zombie that is not reaped counts as a member of its group
			return out
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func (s *supervisor) conclude(ws unix.WaitStatus) Outcome {
	out := Outcome{Lost: s.lost}
	switch {
	case ws.Exited():
		out.Exit = ws.ExitStatus()
	case ws.Signal() == unix.SIGKILL && s.interrupts > 1:
		out.Died = unix.SIGINT
	default:
		keys := ws.Signal() == unix.SIGINT || ws.Signal() == unix.SIGQUIT
		out.Died, out.Group = ws.Signal(), keys && s.tty != nil && s.tty.given
	}
	if s.lost != nil {
		out.How = "the command was ended with SIGTERM"
		if ws.Signaled() && ws.Signal() == unix.SIGKILL {
			out.How = "the command was killed with SIGKILL"
		}
	}
	return out
}
