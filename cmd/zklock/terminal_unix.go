//go:build linux || darwin

package main

// The terminal: handed to the command's group, so that Ctrl-C and Ctrl-Z reach it and it may read, and taken back.

import (
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// terminal is the controlling terminal. A nil one is none, and does nothing.
type terminal struct {
	f     *os.File
	own   int         // zklock's process group
	state *term.State // as we found it
	given bool        // the command's group has it
}

// openTerminal returns the controlling terminal, nil without one. From here on zklock ignores SIGTTOU, because zklock is in the
// background when it takes the terminal back, and the kernel sends SIGTTOU to background processes that change it.
func openTerminal() *terminal {
	f, err := os.OpenFile("/dev/tty", os.O_RDWR, 0)
	if err != nil {
		return nil
	}
	signal.Ignore(syscall.SIGTTOU)
	t := &terminal{f: f, own: unix.Getpgrp()}
	t.state, _ = term.GetState(int(f.Fd()))
	return t
}

// ours says whether zklock's group is in the foreground.
func (t *terminal) ours() bool {
	if t == nil {
		return false
	}
	pgid, err := unix.IoctlGetInt(int(t.f.Fd()), unix.TIOCGPGRP)
	return err == nil && pgid == t.own
}

// interactive says whether to hand the terminal over from the start: when the command's input and output are both
// terminals. Otherwise zklock may be one end of a pipeline that somebody else in its group reads the keyboard for
// (`zklock run … | less`); then the command gets the terminal when it first asks.
func (t *terminal) interactive() bool {
	return t.ours() && term.IsTerminal(int(os.Stdin.Fd())) && term.IsTerminal(int(os.Stdout.Fd()))
}

// give makes the command's group the foreground group, if ours is the foreground group.
func (t *terminal) give(pgid int) bool {
	if !t.ours() {
		return false
	}
	t.given = unix.IoctlSetPointerInt(int(t.f.Fd()), unix.TIOCSPGRP, pgid) == nil
	return t.given
}

// takeBack makes our group the foreground group again, if the command's was.
func (t *terminal) takeBack() {
	if t == nil || !t.given {
		return
	}
	t.given = false
	_ = unix.IoctlSetPointerInt(int(t.f.Fd()), unix.TIOCSPGRP, t.own)
}

// close takes the terminal back; from a command that was killed, it may be in any mode.
func (t *terminal) close(killed bool) {
	if t == nil {
		return
	}
	if killed && t.given && t.state != nil {
		defer func() { _ = term.Restore(int(t.f.Fd()), t.state); _ = t.f.Close() }()
	} else {
		defer t.f.Close()
	}
	t.takeBack()
}

// canStop says whether a shell in our session would notice that our group stops, and could continue it. In the group of the
// session's leader no shell is above us: the terminal was opened for zklock, or for a script with it. Nor is one if our parent
// is of another session. The kernel asks the same question before it heeds SIGTSTP.
func canStop() bool {
	sid, err := unix.Getsid(0)
	if err != nil || sid == unix.Getpgrp() {
		return false
	}
	parents, err := unix.Getsid(unix.Getppid())
	return err == nil && parents == sid
}

// stopSelf stops our group, as the terminal would have done if we were in the foreground. It returns when the group is
// continued. It uses SIGSTOP, because SIGTSTP cannot stop a Go program that has ever handled it.
func stopSelf() {
	cont := make(chan os.Signal, 1)
	signal.Notify(cont, syscall.SIGCONT)
	defer signal.Stop(cont)
	_ = unix.Kill(0, unix.SIGSTOP)
	select {
	case <-cont:
	case <-time.After(time.Second): // does not pass while we are stopped; if it passes, something kept us from it
	}
}
