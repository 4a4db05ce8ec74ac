package main

// What macOS says about processes.

import (
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

// stateOf says what became of a child, and does not reap it. (On macOS waitid with WEXITED and WNOWAIT returns for a
// stopped child too.)
func stateOf(pid int) (leaderState, error) {
	p, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
	if err != nil {
		return leaderState{}, err
	}
	switch p.Proc.P_stat {
	case zombie:
		return leaderState{exited: true}, nil
	case stopped:
		return leaderState{stopped: syscall.Signal(p.Proc.P_xstat)}, nil
	}
	return leaderState{continued: true}, nil
}

// members counts the processes of a group that have not ended. all is false if there may be others.
func members(pgid int) (living int, all bool) {
	ps, err := unix.SysctlKinfoProcSlice("kern.proc.pgrp", pgid)
	for _, p := range ps {
		if p.Proc.P_stat != zombie {
			living++
		}
	}
	return living, err == nil
}

// reapOrphans does nothing: zklock is no container's first process here.
func reapOrphans() (stop func()) { return func() {} }
