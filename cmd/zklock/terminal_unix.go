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

// openTerminal returns the controlling terminal, nil without one. From here on zklock ignores SIGTTOU, which is for
// background processes that change the terminal: taking it back is done in the background.
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

// give makes the command's group the foreground group, if ours is that.
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

// canStop says whether somebody would notice that our group stops, and could continue it: a shell in our session. In
// the group of the session's leader there is none above us (zklock, or a script with it, is what the terminal was
// opened for), nor when our parent is of another session. The kernel asks the same question before it heeds SIGTSTP.
func canStop() bool {
	sid, err := unix.Getsid(0)
	if err != nil || sid == unix.Getpgrp() {
		return false
	}
	parents, err := unix.Getsid(unix.Getppid())
	return err == nil && parents == sid
}

// stopSelf stops our group as the terminal would have done had we been in the foreground, and returns when it is
// continued. With SIGSTOP, because a Go program that has ever handled SIGTSTP cannot be stopped by it any more.
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
