//go:build linux || darwin

package supervise

// The guardian: a second process of this binary that is the command's parent.
//
//	zklock ──socket pair── guardian ──┬─ (its own process group)
//	                                  └─ command ── children   (a group that the command leads)
//
// The guardian kills everything that came from the command when the socket shows that zklock has
// ended. It also does so, by the clock, at the limits, if zklock has not moved them: because the
// deadline did not move, or because zklock is stopped or hangs. (A parent-death signal would do
// neither: it follows threads, and reaches no grandchild.) If zklock was killed, and nothing that
// came from the command is left, the guardian carries out zklock's will, which the program defines.
//
// The kernel can give a process group's number to another group when all members have ended and the
// leader has been reaped. So the guardian, as the parent, does not reap before zklock has announced
// that it will send no more signals, and sends none itself after that: every kill(-pgid) in either
// process hits this group or nothing. The guardian is in a group of its own: neither a terminal nor
// a `kill -9 -pgid` meant for the command or for zklock's job reaches it. If another process stops
// it, an alarm continues it at its limits.
//
// Nothing delays it: a goroutine prints for it, and its threads exist before the command starts.

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// The arguments of zklock's own re-executions. They are not commands: see Reexecuted.
const (
	guardianArg = "__guardian" // DESCRIPTOR
	execArg     = "__exec"     // DESCRIPTOR PROGRAM ARGV...
)

// Reexecuted runs the task for which this process was re-executed, and returns its exit code. A
// program that supervises calls it first. ok is false if no Runner has re-executed the process. The
// guardian reports its actions on out. It calls died when the process that it guards was killed and
// nothing of the command is left, with that process's Job.Will and the time of its end.
func Reexecuted(args []string, out func() Output, died func(will []byte, since Moment)) (code int, ok bool) {
	switch {
	case len(args) == 3 && args[1] == guardianArg:
		return guardianMain(args[2], out, died), true
	case len(args) >= 5 && args[1] == execArg:
		return execMain(args[2], args[3], args[4:]), true
	}
	return 0, false
}

// self returns how to execute this binary again, even after an upgrade has replaced it, and its
// first argument then: without /proc, that is where the guardian finds the binary.
func self() (exe, name string, err error) {
	if runtime.GOOS == "linux" {
		const exe = "/proc/self/exe"
		if _, err := os.Stat(exe); err == nil {
			return exe, "zklock", nil
		}
	}
	if exe, err = os.Executable(); err != nil {
		exe, err = exec.LookPath(os.Args[0])
	}
	return exe, exe, err
}

// A parent-death signal belongs to a thread, and a new thread has none: the exec has to come from
// the first thread.
func init() {
	if len(os.Args) > 1 && os.Args[1] == execArg {
		runtime.LockOSThread()
	}
}

// execMain becomes the command. It runs first in the command's process. The guardian ignores
// SIGTTOU, because it is in the background and may write to the terminal. An ignored signal stays
// ignored over an exec, so execMain restores SIGTTOU's default: a handler that is set before the
// exec does that.
//
// It waits at its gate until zklock knows the group. The command must not run before that: if the
// guardian were killed then, no process could end it.
func execMain(descriptor, program string, argv []string) int {
	gate, err := strconv.Atoi(descriptor)
	if err != nil {
		return ExitFailed
	}
	unix.CloseOnExec(gate) // its end of file shows that the command runs
	signal.Notify(make(chan os.Signal, 1), syscall.SIGTTOU)
	word := make([]byte, 1)
	n, err := unix.Read(gate, word)
	for err == unix.EINTR {
		n, err = unix.Read(gate, word)
	}
	if n != 1 {
		return ExitFailed // the guardian has ended
	}
	err = syscall.Exec(program, argv, os.Environ())
	if err == syscall.ENOEXEC { // a script without a #! line, as execvp has it
		err = syscall.Exec("/bin/sh", append([]string{"/bin/sh", program}, argv[1:]...), os.Environ())
	}
	fmt.Fprintf(os.Stderr, "zklock: %s: %v\n", program, err)
	if err == syscall.ENOENT {
		return ExitNotFound
	}
	return ExitCannotRun
}

type guardian struct {
	out   Output
	died  func(will []byte, since Moment)
	wire  *wire[order, report]
	start startOrder
	will  *will // nil until zklock has sent it
	tty   *terminal
	chld  chan os.Signal
	alarm *alarm

	pgid      int
	kin       kin
	gate      *os.File // where the process that becomes the command waits for a byte
	lim       limits
	going     bool   // the command may run: the limits count
	ending    bool   // SIGTERM was sent: the limits do not move any more
	killed    Moment // when SIGKILL was sent first; 0 if not
	exited    bool   // the leader, which has not been reaped
	parted    Moment // until when the processes that it left running may end by themselves
	named     bool   // zklock was notified of the processes that it left running
	told      bool   // zklock was notified that all should have ended
	free      bool   // its number may be given back: zklock sends no more signals
	rests     bool   // zklock stopped because the leader did
	orphan    bool   // zklock has ended
	since     Moment // when that was noticed
	despaired bool   // reported that a process survives SIGKILL
}

func guardianMain(descriptor string, out func() Output, died func([]byte, Moment)) int {
	fd, err := strconv.Atoi(descriptor)
	if err != nil {
		return ExitFailed
	}
	unix.CloseOnExec(fd)
	startThreads()
	g := &guardian{out: out(), died: died, chld: make(chan os.Signal, 1), alarm: newAlarm()}
	if g.wire, err = newWire[order, report](fd); err != nil {
		fmt.Fprintf(g.out, "zklock: guardian: %v\n", err)
		return ExitFailed
	}
	// Only SIGKILL and SIGSTOP keep this process from its task. The command does not inherit
	// handlers, but it does inherit ignored signals: SIGHUP and SIGINT that were ignored before
	// zklock, for example by nohup.
	unread := make(chan os.Signal, 1)
	for _, s := range []os.Signal{
		syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGALRM,
		syscall.SIGPIPE, syscall.SIGTSTP, syscall.SIGTTIN, syscall.SIGVTALRM, syscall.SIGXCPU, syscall.SIGXFSZ,
	} {
		if !signal.Ignored(s) {
			signal.Notify(unread, s)
		}
	}
	signal.Ignore(syscall.SIGTTOU)
	signal.Notify(g.chld, syscall.SIGCHLD)

	g.wire.send(report{Ready: true})
	if g.awaitStart() {
		if err := g.launch(); err != nil {
			g.wire.send(report{Failed: err.Error()})
		} else {
			g.wire.send(report{Started: g.pgid})
			pgid := g.pgid
			g.watch()
			if g.orphan {
				g.tty.reclaim(pgid)
			}
		}
	}
	// The lock is held until zklock has released it. Then zklock kills this process.
	for !g.orphan {
		o, ok := <-g.wire.in
		g.take(o, ok)
	}
	g.carryOut()
	return 0
}

func (g *guardian) awaitStart() bool {
	for !g.orphan {
		o, ok := <-g.wire.in
		if o.Start != nil {
			g.start = *o.Start
			return true
		}
		g.take(o, ok)
	}
	return false
}

// launch starts the process that becomes the command when its gate is opened.
func (g *guardian) launch() error {
	exe, name, err := self()
	if err != nil {
		return err
	}
	gate, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		return os.NewSyscallError("socketpair", err)
	}
	defer unix.Close(gate[1])
	unix.CloseOnExec(gate[0])
	g.gate = os.NewFile(uintptr(gate[0]), "gate")
	attr := &os.ProcAttr{
		Env:   g.start.Env.strings(),
		Files: []*os.File{os.Stdin, os.Stdout, os.Stderr},
		Sys:   &syscall.SysProcAttr{Setpgid: true},
	}
	// If another process kills only the guardian, Linux kills the command, and zklock kills the
	// rest. The kernel sends that signal when the thread that forked ends, so the thread has to
	// last.
	runtime.LockOSThread()
	dieWithParent(attr.Sys)
	argv := append([]string{name, execArg, strconv.Itoa(gate[1]), string(g.start.Program)}, g.start.Argv.strings()...)
	p, err := os.StartProcess(exe, argv, attr)
	if err != nil {
		return err
	}
	g.pgid, g.kin.group = p.Pid, p.Pid
	g.tty = openTerminal(g.start.Group)
	_ = p.Release() // we wait in our own way
	if becomeSubreaper() {
		g.kin.below = newDescendants(g.pgid, g.start.Leftovers == LeaveThem)
	}
	// The streams are the command's: a reader of its output should see the end of file when the
	// command ends.
	_ = os.Stdin.Close()
	_ = os.Stdout.Close()
	return nil
}

// watch supervises the command until it is reaped, and nothing that came from it is left.
func (g *guardian) watch() {
	for {
		g.look()
		if g.told && (g.free || g.orphan) {
			g.reap()
			return
		}
		t := time.NewTimer(g.nap())
		select {
		case o, ok := <-g.wire.in:
			g.take(o, ok)
		case <-g.chld:
		case <-t.C:
		}
		t.Stop()
	}
}

// take acts on an order, or on the end of all orders.
func (g *guardian) take(o order, ok bool) {
	g.rests = o.Stops
	switch {
	case !ok:
		g.abandoned()
	case o.Will != nil:
		g.will = o.Will
	case o.Go != nil:
		g.lim, g.going = *o.Go, true
		if Now() < g.lim.Term { // otherwise this process was stopped meanwhile, and look ends the waiting process
			g.open()
		}
	case o.Limits != nil && !g.ending:
		g.lim = *o.Limits
	case o.End && g.start.Leftovers == WaitFor:
		g.start.Leftovers = EndThem
	case o.Kill && !g.told:
		g.lim.Kill = min(Now(), g.lim.Kill)
		g.kill()
	case o.Alone:
		g.leaveSession()
	case o.Reap:
		g.free = g.told
	}
}

// open lets the started process become the command, and reports when it has.
func (g *guardian) open() {
	if _, err := g.gate.Write([]byte{1}); err != nil {
		return // it has ended, which look notices
	}
	go func() {
		_, _ = g.gate.Read(make([]byte, 1)) // until the end of file, by the exec or the end of the process
		g.wire.send(report{Running: true})
	}()
}

// look acts on the clock and the process table.
func (g *guardian) look() {
	n := Now()
	// A SIGCONT, or a signal that ends the command, may arrive just before zklock stops.
	if g.rests && !isStopped(g.pgid) && isStopped(g.will.Process) {
		_ = unix.Kill(g.will.Process, unix.SIGCONT)
	}
	g.kin.reap()
	if !g.exited {
		if g.lookAtLeader(); g.exited {
			g.parted = n.Add(parting)
		}
	}
	if g.exited && !g.told {
		// Processes that the leader left running do not outlive the lock either.
		switch {
		case !g.kin.left():
			if g.kin.below == nil {
				g.kin.kill() // processes that we cannot see
			}
			// From here on the number may belong to another group: that was our last signal.
			g.told = true
			g.wire.send(report{Ended: true})
		case g.ending, n < g.parted:
		case g.start.Leftovers == WaitFor:
			g.nameLeft("waiting for")
		default:
			g.nameLeft("ending")
			g.lim = g.lim.endNow(n, g.start.KillAfter)
			g.terminate()
		}
	}
	if g.told || !g.going {
		return
	}
	if n >= g.lim.Term && !g.ending {
		g.wire.send(report{Ending: true})
		g.terminate()
	}
	if n >= g.lim.Kill {
		g.kill() // and again, at every look: a process may have been invisible
		g.despair(n)
	}
}

// nameLeft reports to zklock, once, the processes that the leader left running, and the action that
// follows.
func (g *guardian) nameLeft(what string) {
	if g.named {
		return
	}
	if names := g.kin.names(); names != "" {
		g.named = true
		g.wire.send(report{Left: what + " processes that the command left running: " + names})
	}
}

// lookAtLeader checks whether the command itself has ended or stopped.
func (g *guardian) lookAtLeader() {
	st, err := stateOf(g.pgid)
	if err != nil {
		return
	}
	switch {
	case st.exited:
		g.exited = true
	case st.stopped != 0: // a new stop: the command may have been continued, and stopped again, between two looks
		g.wire.send(report{Stopped: int(st.stopped)})
	}
}

// leaveSession makes the kernel treat the command's group as orphaned, like zklock's: no process
// could continue it. The terminal does not stop such a group, and its read from the background
// fails. Until then the group is not orphaned, because its parent, the guardian, is in another
// group of the same session. (The leader of a group cannot leave its session.)
func (g *guardian) leaveSession() {
	_ = unix.Setpgid(0, g.start.Group)
	_, _ = unix.Setsid()
	_ = unix.Kill(-g.pgid, unix.SIGCONT)
}

// nap returns how long to wait for news: not beyond the next limit, and not so long that a limit
// would be missed by much after a suspend, which timers do not count. It sets the alarm for the
// limit.
func (g *guardian) nap() time.Duration {
	const longest, busy = 250 * time.Millisecond, 10 * time.Millisecond
	next := g.lim.Term
	if g.ending {
		next = g.lim.Kill
	}
	if g.told || !g.going {
		next = 0
	}
	g.alarm.set(next)
	switch {
	case next == 0, g.despaired:
		return longest
	case g.exited && (g.ending || g.start.Leftovers != WaitFor), g.killed != 0:
		return busy // waiting for the others' end; only a child's end gives notice
	}
	return min(max(next.Sub(Now()), 0), longest)
}

// terminate asks all processes to end.
func (g *guardian) terminate() {
	g.ending = true
	g.kin.terminate()
}

func (g *guardian) kill() {
	g.ending = true
	if g.killed == 0 {
		g.killed = Now()
	}
	g.kin.kill()
	_ = unix.Kill(-g.pgid, unix.SIGKILL) // in case /proc, which shows the rest, was unmounted
}

// despair reports, once, that a process survives SIGKILL.
func (g *guardian) despair(n Moment) {
	if !g.despaired && n.Sub(g.killed) >= 5*time.Second {
		g.despaired = true
		fmt.Fprintf(g.out, "zklock: %s: a process under the lock survives SIGKILL: it waits for a device, or belongs to another user\n", g.start.Name)
	}
}

// abandoned ends everything at once, because no process moves the limits any more.
func (g *guardian) abandoned() {
	g.orphan, g.since = true, Now()
	g.wire.in = nil // closed; a nil channel never has news
	if g.pgid == 0 || g.told {
		return
	}
	g.lim.Kill = Now()
	g.tty.reclaim(g.pgid)
	g.kill()
	fmt.Fprintf(g.out, "zklock: %s: zklock itself was killed; killed the command\n", g.start.Name)
}

// reap reaps the leader, which frees its process id, waits until nothing is left, and reports the
// command's status.
func (g *guardian) reap() {
	var ws unix.WaitStatus
	_, err := unix.Wait4(g.pgid, &ws, 0, nil)
	for err == unix.EINTR {
		_, err = unix.Wait4(g.pgid, &ws, 0, nil)
	}
	for !g.kin.gone() {
		g.despair(Now())
		if time.Sleep(10 * time.Millisecond); g.despaired {
			time.Sleep(250 * time.Millisecond)
		}
	}
	g.pgid = 0
	if err == nil {
		status := int(ws)
		g.wire.send(report{Status: &status})
	}
}

// carryOut carries out the will of a zklock that was killed. It is called when the command's group
// has no living process.
func (g *guardian) carryOut() {
	if g.will == nil || len(g.will.Data) == 0 {
		return
	}
	// The end of file is not enough: zklock may be done with us, and about to kill us.
	for unix.Getppid() == g.will.Process {
		time.Sleep(5 * time.Millisecond)
	}
	g.died(g.will.Data, g.since)
}

type leaderState struct {
	exited  bool
	stopped syscall.Signal // by which signal it was stopped since the last look; 0 if it was not
}
