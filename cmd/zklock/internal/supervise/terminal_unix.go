//go:build linux || darwin

package supervise

// The terminal: handed to the command's group, so that Ctrl-C and Ctrl-Z reach it and it may read,
// and taken back.

import (
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// terminal is the controlling terminal. A nil terminal does nothing.
type terminal struct {
	f     *os.File
	own   int         // zklock's process group
	state *term.State // as we found it
	given bool        // the command's group has it
}

// openTerminal returns the controlling terminal, nil without one. From here on this process ignores
// SIGTTOU: it is in the background when it takes the terminal back, and the kernel sends SIGTTOU to
// background processes that change it.
func openTerminal(own int) *terminal {
	f, err := os.OpenFile("/dev/tty", os.O_RDWR, 0)
	if err != nil {
		return nil
	}
	signal.Ignore(syscall.SIGTTOU)
	t := &terminal{f: f, own: own}
	t.state, _ = term.GetState(int(f.Fd()))
	return t
}

// foreground returns the terminal's foreground group, 0 if it is unknown.
func (t *terminal) foreground() int {
	if t == nil {
		return 0
	}
	pgid, err := unix.IoctlGetInt(int(t.f.Fd()), unix.TIOCGPGRP)
	if err != nil {
		return 0
	}
	return pgid
}

func inForeground(fd int) bool {
	pgid, err := unix.IoctlGetInt(fd, unix.TIOCGPGRP)
	return err == nil && pgid == unix.Getpgrp()
}

// ours reports whether zklock's group is in the foreground.
func (t *terminal) ours() bool { return t != nil && t.foreground() == t.own }

// interactive reports whether to hand the terminal over from the start: when the command's input
// and output are both terminals. Otherwise zklock may be one end of a pipeline in which another
// process of its group reads the keyboard (`zklock run … | less`); then the command gets the
// terminal when it first asks.
func (t *terminal) interactive() bool {
	return t.ours() && IsTerminal(os.Stdin) && IsTerminal(os.Stdout)
}

// give makes the command's group the foreground group, if ours is the foreground group.
func (t *terminal) give(pgid int) bool {
	if !t.ours() {
		return false
	}
	t.given = t.set(pgid) == nil
	return t.given
}

func (t *terminal) set(pgid int) error {
	return unix.IoctlSetPointerInt(int(t.f.Fd()), unix.TIOCSPGRP, pgid)
}

// takeBack makes our group the foreground group again, if the command's was.
func (t *terminal) takeBack() {
	if t != nil && t.given {
		t.given = false
		_ = t.set(t.own)
	}
}

// close takes the terminal back, and restores its mode after a command that did not end by itself.
func (t *terminal) close(ended bool) {
	if t == nil {
		return
	}
	defer t.f.Close()
	restore := ended && t.given
	t.takeBack()
	if restore {
		t.restore()
	}
}

func (t *terminal) restore() {
	if t.state != nil {
		_ = term.Restore(int(t.f.Fd()), t.state)
	}
}

// reclaim runs in the guardian when zklock was killed: it gives the terminal to zklock's group if
// the command's group has it, or a group without members. A script around zklock can then read.
func (t *terminal) reclaim(pgid int) {
	fg := t.foreground()
	if fg == 0 || fg != pgid && unix.Kill(-fg, 0) != unix.ESRCH {
		return
	}
	if t.set(t.own) == nil {
		t.restore()
	}
}

// canStop reports whether a shell in our session would notice that our group stops, and could
// continue it. In the group of the session's leader no shell is above us: the terminal was opened
// for zklock, or for a script with it. Nor is one if our parent is in another session. The kernel
// checks the same before it obeys SIGTSTP.
func canStop() bool {
	sid, err := unix.Getsid(0)
	if err != nil || sid == unix.Getpgrp() {
		return false
	}
	parents, err := unix.Getsid(unix.Getppid())
	return err == nil && parents == sid
}
