package supervise

// Information about processes on macOS.

import (
	"fmt"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

// States of a process, from <sys/proc.h>.
const (
	stopped = 4 // SSTOP
	zombie  = 5 // SZOMB
)

// dieWithParent does nothing: there is no parent-death signal here.
func dieWithParent(*syscall.SysProcAttr) {}

// stateOf returns the state of a child, and does not reap it. (On macOS waitid with WEXITED and
// WNOWAIT returns for a stopped child too.)
func stateOf(pid int) (leaderState, error) {
	p, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
	if err != nil {
		return leaderState{}, err
	}
	was := seenStopped
	seenStopped = p.Proc.P_stat == stopped
	switch {
	case p.Proc.P_stat == zombie:
		return leaderState{exited: true}, nil
	case seenStopped && !was:
		return leaderState{stopped: syscall.Signal(p.Proc.P_xstat)}, nil
	}
	return leaderState{}, nil
}

// seenStopped is the last state that stateOf saw. (A process asks about one child only.)
var seenStopped bool

// isStopped reports whether a process is stopped. A process that cannot be seen counts as stopped.
func isStopped(pid int) bool {
	p, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
	return err != nil || p.Proc.P_stat == stopped
}

// wantsTerminal reports whether a process of the group was stopped because it does not have the
// terminal.
func wantsTerminal(pgid int) bool {
	ps, _ := unix.SysctlKinfoProcSlice("kern.proc.pgrp", pgid)
	return slices.ContainsFunc(ps, func(p unix.KinfoProc) bool {
		why := syscall.Signal(p.Proc.P_xstat)
		return p.Proc.P_stat == stopped && (why == unix.SIGTTIN || why == unix.SIGTTOU)
	})
}

// members names the processes of a group that have not ended. all is false if there may be others.
func members(pgid int) (names []string, all bool) {
	ps, err := unix.SysctlKinfoProcSlice("kern.proc.pgrp", pgid)
	for _, p := range ps {
		if p.Proc.P_stat != zombie {
			names = append(names, fmt.Sprint(p.Proc.P_pid, " ", unix.ByteSliceToString(p.Proc.P_comm[:])))
		}
	}
	return names, err == nil
}

// seesDescendants returns false: see newDescendants.
func seesDescendants() bool { return false }

// becomeSubreaper does nothing: there are no subreapers here.
func becomeSubreaper() bool { return false }

// newDescendants returns nil: a process cannot find its descendants here when their parents have
// ended.
func newDescendants(int, bool) descendants { return nil }

// alarm does nothing: no timer here continues a stopped process.
type alarm struct{}

func newAlarm() *alarm    { return nil }
func (*alarm) set(Moment) {}

// reapOrphans does nothing: zklock is no container's first process here.
func (*Runner) reapOrphans() (stop func()) { return func() {} }
