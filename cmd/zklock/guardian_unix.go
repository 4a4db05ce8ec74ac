//go:build linux || darwin

package main

// The guardian: a second process of this binary that is the command's parent.
//
//	zklock ──socket pair── guardian ──┬─ (its own process group)
//	                                  └─ command ── children   (a group that the command leads)
//
// It kills the command's group when the socket says that zklock is gone, and, by the clock, when the limits have come
// and zklock did not move them: because the lease was not renewed, or because zklock is stopped or hangs. (A
// parent-death signal would do neither: it follows threads, and reaches no grandchild.)
//
// A process group's number can be given to another when all its members are gone and its leader has been reaped. So
// the guardian, as the parent, does not reap before zklock has said that it will send no more signals, and sends none
// itself after that: every kill(-pgid) in either process hits this group or nothing. It is in a group of its own, so
// that neither a terminal nor a `kill -9 -pgid` meant for the command or for zklock's job reaches it.

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
	execArg     = "__exec"     // default|ignore PROGRAM ARGV...
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

// execMain becomes the command. It is the first thing in the command's process: the guardian has to ignore SIGTTOU
// while it forks, because a background process may not change the foreground group otherwise, and what is ignored
// stays ignored over an exec. Here it gets its default back, which a handler that is set before the exec does.
func execMain(ttou, program string, argv []string) int {
	if ttou == "default" {
		signal.Notify(make(chan os.Signal, 1), syscall.SIGTTOU)
	}
	err := syscall.Exec(program, argv, os.Environ())
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
	wire  *wire[order, report]
	start startOrder
	chld  chan os.Signal

	pgid    int
	lim     limits
	ending  bool // SIGTERM was sent: the limits do not move any more
	killed  bool // SIGKILL was sent
	exited  bool // the leader, which has not been reaped
	stopped bool
	told    bool // zklock knows that the group has ended
	orphan  bool // zklock is gone
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
	// to the command; what was ignored before zklock, by nohup say, does.
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

	_ = g.wire.send(report{Ready: true})
	first, ok := <-g.wire.in
	if !ok || first.Start == nil {
		return exitUsage // zklock has ended, or decided otherwise
	}
	g.start, g.lim = *first.Start, first.Start.Limits
	if err := g.launch(); err != nil {
		_ = g.wire.send(report{Failed: err.Error()})
		return exitUsage
	}
	_ = g.wire.send(report{Started: g.pgid})
	return g.watch()
}

// launch starts the command, unless it is too late for that.
func (g *guardian) launch() error {
	exe, err := self()
	if err != nil {
		return err
	}
	attr := &os.ProcAttr{
		Env:   g.start.Env,
		Files: []*os.File{os.Stdin, os.Stdout, os.Stderr},
		Sys:   &syscall.SysProcAttr{Setpgid: true},
	}
	if g.start.Foreground {
		if tty, err := os.OpenFile("/dev/tty", os.O_RDWR, 0); err == nil {
			defer tty.Close()
			attr.Sys.Foreground, attr.Sys.Ctty = true, int(tty.Fd())
		}
	}
	// Should somebody kill the guardian alone, Linux kills the command for us, and zklock the rest of the group. The
	// signal comes at the end of the thread that forked, so that has to last.
	runtime.LockOSThread()
	dieWithParent(attr.Sys)
	ttou := "ignore"
	if g.start.StopOnTTOU {
		ttou = "default"
	}
	argv := append([]string{"zklock", execArg, ttou, g.start.Program}, g.start.Argv...)
	if now() >= g.lim.Term {
		return errNotRenewed
	}
	p, err := os.StartProcess(exe, argv, attr)
	if err != nil {
		return err
	}
	g.pgid = p.Pid
	_ = p.Release() // we wait in our own way
	// The streams are the command's: who reads its output should see its end.
	_ = os.Stdin.Close()
	_ = os.Stdout.Close()
	return nil
}

// watch looks after the command until it is reaped.
func (g *guardian) watch() int {
	for {
		if code, done := g.look(); done {
			return code
		}
		t := time.NewTimer(g.nap())
		select {
		case o, ok := <-g.wire.in:
			switch {
			case !ok:
				g.abandoned()
			case o.Limits != nil && !g.ending:
				g.lim = *o.Limits
			case o.Reap && g.told:
				return g.reap()
			}
		case <-g.chld:
		case <-t.C:
		}
		t.Stop()
	}
}

// look acts on what the clock and the process table say.
func (g *guardian) look() (code int, done bool) {
	n := now()
	if !g.exited {
		g.lookAtLeader()
	}
	if g.exited && !g.told {
		// What the leader left in its group does not outlive the lock either.
		switch left, err := alive(g.pgid); {
		case left == 0 && err == nil:
			g.told = true
			if g.orphan {
				return g.reap(), true
			}
			_ = g.wire.send(report{Ended: true})
		case err != nil:
			// We cannot look, and need not: the leader that we have not reaped keeps the number ours.
			g.lim.Term, g.lim.Kill = n, n
		case !g.ending:
			g.lim = g.lim.endNow(n, g.start.KillAfter)
			g.terminate()
		}
	}
	if g.told {
		return 0, false
	}
	if n >= g.lim.Term && !g.ending {
		_ = g.wire.send(report{Ending: true})
		g.terminate()
	}
	if n >= g.lim.Kill {
		g.kill() // and again, at every look: somebody may have joined the group
	}
	return 0, false
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
		_ = g.wire.send(report{Stopped: int(st.stopped)})
	case st.stopped == 0 && st.continued && g.stopped:
		g.stopped = false
		_ = g.wire.send(report{Continued: true})
	}
}

// nap is how long to wait for news: not beyond the next limit, and not so long that a limit would be missed by much
// after a suspend, which timers do not count.
func (g *guardian) nap() time.Duration {
	const longest, busy = 250 * time.Millisecond, 10 * time.Millisecond
	next := g.lim.Term
	switch {
	case g.told:
		return longest
	case g.exited, g.killed:
		return busy // waiting for the group's end, of which only the leader's gives notice
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
	g.ending, g.killed = true, true
	_ = unix.Kill(-g.pgid, unix.SIGKILL)
}

// abandoned ends the group at once: nobody renews the lease any more.
func (g *guardian) abandoned() {
	if g.orphan {
		return
	}
	g.orphan = true
	g.wire.in = nil // closed; a nil channel never has news
	if g.told {
		os.Exit(g.reap())
	}
	g.lim.Kill = now()
	g.kill()
	fmt.Fprintf(os.Stderr, "zklock: %s: zklock itself was killed; killed the command\n", g.start.Lock)
}

// reap gives the group's number back and reports the command's status.
func (g *guardian) reap() int {
	var ws unix.WaitStatus
	for {
		_, err := unix.Wait4(g.pgid, &ws, 0, nil)
		if err == unix.EINTR {
			continue
		}
		if err == nil {
			status := int(ws)
			_ = g.wire.send(report{Status: &status})
		}
		return 0
	}
}

// leaderState is what became of a process since the last look.
type leaderState struct {
	exited    bool
	stopped   syscall.Signal // by which signal; 0 if not
	continued bool
}
