//go:build linux || darwin

package main

// The guardian: a second process of this binary that is the command's parent.
//
//	zklock ──socket pair── guardian ──┬─ (its own process group)
//	                                  └─ command ── children   (a group that the command leads)
//
// The guardian kills the command's group when the socket says that zklock is gone. It also kills the group, by the clock, at
// the limits, if zklock has not moved them: because the lease was not renewed, or because zklock is stopped or hangs. (A
// parent-death signal would do neither: it follows threads, and reaches no grandchild.) If zklock was killed, and nothing of
// the group is left, the guardian ends zklock's ZooKeeper session, and with it the lock.
//
// The kernel can give a process group's number to another group when all members are gone and the leader has been reaped. So
// the guardian, as the parent, does not reap before zklock has said that it will send no more signals, and sends none
// itself after that: every kill(-pgid) in either process hits this group or nothing. The guardian is in a group of its own:
// neither a terminal nor a `kill -9 -pgid` meant for the command or for zklock's job reaches it.

import (
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// The arguments of zklock's own re-executions. They are no commands: see reexecuted.
const (
	guardianArg = "__guardian" // DESCRIPTOR
	execArg     = "__exec"     // DESCRIPTOR PROGRAM ARGV...
)

// reexecuted runs what this process was re-executed for.
func reexecuted(args []string) (code int, ok bool) {
	switch {
	case len(args) == 3 && args[1] == guardianArg:
		return guardianMain(args[2]), true
	case len(args) >= 5 && args[1] == execArg:
		return execMain(args[2], args[3], args[4:]), true
	}
	return 0, false
}

// self is how to execute this binary again, also after it was replaced by an upgrade.
func self() (string, error) {
	if runtime.GOOS == "linux" {
		const exe = "/proc/self/exe"
		if _, err := os.Stat(exe); err == nil {
			return exe, nil
		}
	}
	return os.Executable()
}

// A parent-death signal is a thread's, and a new thread has none: the exec has to come from the first thread.
func init() {
	if len(os.Args) > 1 && os.Args[1] == execArg {
		runtime.LockOSThread()
	}
}

// execMain becomes the command. It runs first in the command's process. The guardian ignores SIGTTOU: it is in the background,
// and may write to the terminal. An ignored signal stays ignored over an exec. So execMain gives SIGTTOU its default back: a
// handler that is set before the exec does that.
//
// It waits at its gate until zklock knows the group. The command must not run before that: if the guardian were killed then,
// nobody would know what to end.
func execMain(descriptor, program string, argv []string) int {
	gate, err := strconv.Atoi(descriptor)
	if err != nil {
		return exitUsage
	}
	unix.CloseOnExec(gate) // its end says that the command runs
	signal.Notify(make(chan os.Signal, 1), syscall.SIGTTOU)
	word := make([]byte, 1)
	n, err := unix.Read(gate, word)
	for err == unix.EINTR {
		n, err = unix.Read(gate, word)
	}
	if n != 1 {
		return exitUsage // the guardian is gone
	}
	err = syscall.Exec(program, argv, os.Environ())
	if err == syscall.ENOEXEC { // a script without a #! line, as execvp has it
		err = syscall.Exec("/bin/sh", append([]string{"/bin/sh", program}, argv[1:]...), os.Environ())
	}
	fmt.Fprintf(os.Stderr, "zklock: %s: %v\n", program, err)
	if err == syscall.ENOENT {
		return exitNotFound
	}
	return exitCannotRun
}

type guardian struct {
	wire    *wire[order, report]
	start   startOrder
	session *ending // nil until zklock has sent it
	chld    chan os.Signal

	pgid      int
	gate      *os.File // where what becomes the command waits for a byte
	lim       limits
	going     bool   // the command may run: the limits count
	ending    bool   // SIGTERM was sent: the limits do not move any more
	killed    moment // when SIGKILL was sent first; 0 if not
	exited    bool   // the leader, which has not been reaped
	stopped   bool
	told      bool   // zklock was told that the group should have ended
	free      bool   // its number may be given back: zklock sends no more signals
	orphan    bool   // zklock is gone
	since     moment // when that was noticed
	despaired bool   // said that the group does not die
}

func guardianMain(descriptor string) int {
	fd, err := strconv.Atoi(descriptor)
	if err != nil {
		return exitUsage
	}
	unix.CloseOnExec(fd)
	g := &guardian{chld: make(chan os.Signal, 1)}
	if g.wire, err = newWire[order, report](fd); err != nil {
		fmt.Fprintf(os.Stderr, "zklock: guardian: %v\n", err)
		return exitUsage
	}
	// Nothing but SIGKILL and SIGSTOP stands between this process and its task. Handlers, unlike ignoring, do not pass
	// to the command; SIGHUP and SIGINT that were ignored before zklock, by nohup say, do.
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
			g.watch()
		}
	}
	// The lock is held until zklock has released it. Then zklock kills us.
	for !g.orphan {
		o, ok := <-g.wire.in
		g.take(o, ok)
	}
	g.endSession()
	return 0
}

// awaitStart returns true when the start order has come, false when zklock is gone.
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
	exe, err := self()
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
	// If somebody kills the guardian alone, Linux kills the command, and zklock kills the rest of the group. The kernel sends
	// that signal when the thread that forked ends, so the thread has to last.
	runtime.LockOSThread()
	dieWithParent(attr.Sys)
	argv := append([]string{"zklock", execArg, strconv.Itoa(gate[1]), string(g.start.Program)}, g.start.Argv.strings()...)
	p, err := os.StartProcess(exe, argv, attr)
	if err != nil {
		return err
	}
	g.pgid = p.Pid
	_ = p.Release() // we wait in our own way
	// The streams are the command's: a reader of its output should see the end of file when the command ends.
	_ = os.Stdin.Close()
	_ = os.Stdout.Close()
	return nil
}

// watch looks after the command until it is reaped, and nothing of its group is left.
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
	switch {
	case !ok:
		g.abandoned()
	case o.Session != nil:
		g.session = o.Session
	case o.Go != nil:
		g.lim, g.going = *o.Go, true
		if now() < g.lim.Term { // or this process was stopped meanwhile; look ends what waits
			g.open()
		}
	case o.Limits != nil && !g.ending:
		g.lim = *o.Limits
	case o.Reap:
		g.free = g.told
	}
}

// open lets what was started become the command, and says when it has.
func (g *guardian) open() {
	if _, err := g.gate.Write([]byte{1}); err != nil {
		return // it has ended, which look sees
	}
	go func() {
		_, _ = g.gate.Read(make([]byte, 1)) // until the end of file, which the exec brings, or the end of the process
		g.wire.send(report{Running: true})
	}()
}

// look acts on what the clock and the process table say.
func (g *guardian) look() {
	n := now()
	if !g.exited {
		g.lookAtLeader()
	}
	if g.exited && !g.told {
		// What the leader left in its group does not outlive the lock either.
		switch living, _ := members(g.pgid); {
		case living == 0:
			// SIGKILL, for processes that we cannot see. From here on the number may be another group's: this is our last signal.
			g.kill()
			g.told = true
			g.wire.send(report{Ended: true})
		case !g.ending:
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
		g.kill() // and again, at every look: somebody may have joined the group
		g.despair(n)
	}
}

// lookAtLeader notices what became of the command itself.
func (g *guardian) lookAtLeader() {
	st, err := stateOf(g.pgid)
	if err != nil {
		return
	}
	switch {
	case st.exited:
		g.exited = true
	case st.stopped != 0 && !g.stopped:
		g.stopped = true
		g.wire.send(report{Stopped: int(st.stopped)})
	case st.stopped == 0 && st.continued && g.stopped:
		g.stopped = false
		g.wire.send(report{Continued: true})
	}
}

// nap is how long to wait for news: not beyond the next limit, and not so long that a limit would be missed by much
// after a suspend, which timers do not count.
func (g *guardian) nap() time.Duration {
	const longest, busy = 250 * time.Millisecond, 10 * time.Millisecond
	next := g.lim.Term
	switch {
	case g.told, g.despaired, !g.going:
		return longest
	case g.exited, g.killed != 0:
		return busy // waiting for the group's end; only the leader's end gives notice
	case g.ending:
		next = g.lim.Kill
	}
	return min(max(next.sub(now()), 0), longest)
}

// terminate asks the group to end. A stopped one could not hear it.
func (g *guardian) terminate() {
	g.ending = true
	_ = unix.Kill(-g.pgid, unix.SIGTERM)
	_ = unix.Kill(-g.pgid, unix.SIGCONT)
}

func (g *guardian) kill() {
	g.ending = true
	if g.killed == 0 {
		g.killed = now()
	}
	_ = unix.Kill(-g.pgid, unix.SIGKILL)
}

// despair says, once, that a process of the group lives on in spite of SIGKILL.
func (g *guardian) despair(n moment) {
	if !g.despaired && n.sub(g.killed) >= 5*time.Second {
		g.despaired = true
		fmt.Fprintf(os.Stderr, "zklock: %s: what runs under the lock does not die of SIGKILL: it waits for a device, or belongs to another user\n", g.start.Lock)
	}
}

// abandoned ends the group at once: nobody renews the lease any more.
func (g *guardian) abandoned() {
	g.orphan, g.since = true, now()
	g.wire.in = nil // closed; a nil channel never has news
	if g.pgid == 0 || g.told {
		return
	}
	g.lim.Kill = now()
	g.kill()
	fmt.Fprintf(os.Stderr, "zklock: %s: zklock itself was killed; killed the command\n", g.start.Lock)
}

// reap gives the leader's process id back, waits until nothing of the group is left, and reports the command's status.
//
// The kernel says whether a group has members, even those that we may neither see nor signal. Zombies count as members. If
// our /proc hides no processes, we see ourselves that only zombies are left, and do not wait until their parents reap them.
func (g *guardian) reap() {
	var ws unix.WaitStatus
	_, err := unix.Wait4(g.pgid, &ws, 0, nil)
	for err == unix.EINTR {
		_, err = unix.Wait4(g.pgid, &ws, 0, nil)
	}
	for unix.Kill(-g.pgid, 0) != unix.ESRCH {
		if living, all := members(g.pgid); living == 0 && all {
			break
		}
		g.despair(now())
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

// endSession ends the ZooKeeper session of a zklock that was killed, so that the next holder need not wait until it
// expires. It is called when nothing of the command's group is alive.
func (g *guardian) endSession() {
	if g.session == nil || g.session.ID == 0 {
		return
	}
	// The end of file is not enough: perhaps zklock is done with us, and about to kill us.
	for unix.Getppid() == g.session.Process {
		time.Sleep(5 * time.Millisecond)
	}
	err := g.session.end(g.since)
	if err != nil {
		fmt.Fprintf(os.Stderr, "zklock: %s: its ZooKeeper session was not ended: %v; others get the lock when it expires, within %v\n",
			g.session.Lock, err, g.session.Timeout)
		return
	}
	fmt.Fprintf(os.Stderr, "zklock: %s: ended its ZooKeeper session: the lock is free\n", g.session.Lock)
}

// leaderState says what has become of a process since the last look.
type leaderState struct {
	exited    bool
	stopped   syscall.Signal // by which signal; 0 if not
	continued bool
}
