package main

// What Linux says about processes.

import (
	"errors"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// dieWithParent has the kernel kill the child when the thread that forks it ends.
func dieWithParent(a *syscall.SysProcAttr) { a.Pdeathsig = syscall.SIGKILL }

// child is what waitid says about a child.
type child struct{ pid, status int32 }

// waitid asks about a child, and does not wait. It returns the zero child if nothing has become of it.
func waitid(idType, id, options int) (child, error) {
	var info unix.Siginfo
	err := unix.EINTR
	for err == unix.EINTR {
		err, _ = unix.Waitid(idType, id, &info, options|unix.WNOHANG, nil).(syscall.Errno)
	}
	if err != 0 {
		return child{}, err
	}
	if info.Signo == 0 {
		return child{}, nil
	}
	// After three ints, the union aligned as a pointer: si_pid, si_uid, si_status.
	offset := uintptr(12)
	if unsafe.Sizeof(uintptr(0)) == 8 {
		offset = 16
	}
	f := *(*[3]int32)(unsafe.Add(unsafe.Pointer(&info), offset))
	return child{f[0], f[2]}, nil
}

// stateOf says what became of a child, and does not reap it.
func stateOf(pid int) (leaderState, error) {
	c, err := waitid(unix.P_PID, pid, unix.WEXITED|unix.WNOWAIT)
	if c.pid != 0 || err != nil {
		return leaderState{exited: c.pid != 0}, err
	}
	continued, err := waitid(unix.P_PID, pid, unix.WCONTINUED)
	if err != nil {
		return leaderState{}, err
	}
	stopped, err := waitid(unix.P_PID, pid, unix.WSTOPPED)
	return leaderState{continued: continued.pid != 0, stopped: syscall.Signal(stopped.status)}, err
}

// reapOrphans reaps orphans until the returned function is called: as PID 1 of a container, zklock becomes the parent of
// every process that loses its own. It does not reap the guardian.
func reapOrphans() (stop func()) {
	chld := make(chan os.Signal, 1)
	signal.Notify(chld, syscall.SIGCHLD)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			guardianProcess.Lock()
			for {
				c, _ := waitid(unix.P_ALL, 0, unix.WEXITED|unix.WNOWAIT)
				if c.pid == 0 || int(c.pid) == guardianProcess.pid {
					break
				}
				_, _ = waitid(unix.P_PID, int(c.pid), unix.WEXITED)
			}
			guardianProcess.Unlock()
			if _, ok := <-chld; !ok {
				return
			}
		}
	}()
	return func() {
		signal.Stop(chld)
		close(chld)
		<-done
	}
}

// members counts the processes of a group that have not ended. all is false if /proc may hide some.
func members(pgid int) (living int, all bool) {
	dir, err := os.Open("/proc")
	if err != nil {
		return 0, false
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	// It may also be another PID namespace's, with other numbers.
	self, _ := os.Readlink("/proc/self")
	all = err == nil && self == strconv.Itoa(os.Getpid()) && !hides()
	for _, name := range names {
		if _, err := strconv.Atoi(name); err != nil {
			continue
		}
		stat, err := os.ReadFile("/proc/" + name + "/stat")
		if err != nil {
			gone := errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH)
			all = all && gone
			continue
		}
		state, group, ok := procState(string(stat))
		if ok && group == pgid && state != 'Z' && state != 'X' {
			living++
		}
	}
	return living, all
}

// hides says whether /proc is mounted with hidepid, which keeps other users' processes out of it.
var hides = sync.OnceValue(func() bool {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return true
	}
	for _, line := range strings.Split(string(mounts), "\n") {
		if f := strings.Fields(line); len(f) > 4 && f[4] == "/proc" && strings.Contains(f[len(f)-1], "hidepid=") {
			return true
		}
	}
	return false
})

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
