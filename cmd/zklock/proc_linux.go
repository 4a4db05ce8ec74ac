package main

// What Linux says about processes.

import (
	"os"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// dieWithParent has the kernel kill the child when the thread that forks it ends.
func dieWithParent(a *syscall.SysProcAttr) { a.Pdeathsig = syscall.SIGKILL }

// stateOf says what became of a child, and leaves it to be reaped.
func stateOf(pid int) (leaderState, error) {
	var st leaderState
	var info unix.Siginfo
	wait := func(options int) (bool, error) {
		info = unix.Siginfo{}
		for {
			err := unix.Waitid(unix.P_PID, pid, &info, options|unix.WNOHANG, nil)
			if err == unix.EINTR {
				continue
			}
			return err == nil && info.Signo != 0, err
		}
	}
	var err error
	if st.exited, err = wait(unix.WEXITED | unix.WNOWAIT); st.exited || err != nil {
		return st, err
	}
	if st.continued, err = wait(unix.WCONTINUED); err != nil {
		return st, err
	}
	stopped, err := wait(unix.WSTOPPED)
	if stopped {
		// si_status: after three ints, the union aligned as a pointer, and pid and uid in it.
		offset := uintptr(20)
		if unsafe.Sizeof(uintptr(0)) == 8 {
			offset = 24
		}
		st.stopped = syscall.Signal(*(*int32)(unsafe.Add(unsafe.Pointer(&info), offset)))
	}
	return st, err
}

// alive counts the processes of a group that have not ended.
func alive(pgid int) (int, error) {
	dir, err := os.Open("/proc")
	if err != nil {
		return 0, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return 0, err
	}
	n, seen := 0, false
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		stat, err := os.ReadFile("/proc/" + name + "/stat")
		if err != nil {
			continue // gone in the meantime
		}
		state, group, ok := procState(string(stat))
		if !ok || group != pgid {
			continue
		}
		seen = seen || pid == pgid
		if state != 'Z' && state != 'X' {
			n++
		}
	}
	if !seen {
		return 0, os.ErrNotExist // not even the leader that waits to be reaped: this /proc is not ours
	}
	return n, nil
}

// procState parses the two fields after the command's name in /proc/PID/stat: state and, after the parent, the group.
func procState(stat string) (state byte, pgid int, ok bool) {
	// The name is in parentheses and may hold any character, a parenthesis too.
	i := strings.LastIndexByte(stat, ')')
	if i < 0 {
		return 0, 0, false
	}
	f := strings.Fields(stat[i+1:])
	if len(f) < 3 || len(f[0]) != 1 {
		return 0, 0, false
	}
	pgid, err := strconv.Atoi(f[2])
	return f[0][0], pgid, err == nil
}
