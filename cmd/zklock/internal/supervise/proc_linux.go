package supervise

// Information about processes on Linux.

import (
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// dieWithParent has the kernel kill the child when the thread that forks it ends.
func dieWithParent(a *syscall.SysProcAttr) { a.Pdeathsig = syscall.SIGKILL }

type child struct{ pid, status int32 }

// waitid queries a child, and does not wait. It returns the zero child if nothing has changed.
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

// stateOf returns the state of a child, and does not reap it.
func stateOf(pid int) (leaderState, error) {
	c, err := waitid(unix.P_PID, pid, unix.WEXITED|unix.WNOWAIT)
	if c.pid != 0 || err != nil {
		return leaderState{exited: c.pid != 0}, err
	}
	stopped, err := waitid(unix.P_PID, pid, unix.WSTOPPED) // which reports each stop once
	return leaderState{stopped: syscall.Signal(stopped.status)}, err
}

// isStopped reports whether a process is stopped. A process that cannot be seen counts as stopped.
func isStopped(pid int) bool {
	stat, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	var p process
	return !p.parse(stat) || p.state == 'T'
}

// wantsTerminal reports whether a process of the group was stopped because it does not have the
// terminal, and the leader was not, because it does not accept these signals: timeout(1) is such a
// leader. (The kernel reports why a process is stopped to its parent only.)
func wantsTerminal(pgid int) bool {
	const asks = 1<<(unix.SIGTTIN-1) | 1<<(unix.SIGTTOU-1)
	status, _ := os.ReadFile("/proc/" + strconv.Itoa(pgid) + "/status")
	var kept uint64
	for line := range strings.Lines(string(status)) {
		switch name, set, _ := strings.Cut(line, ":"); name {
		case "SigBlk", "SigIgn", "SigCgt":
			n, _ := strconv.ParseUint(strings.TrimSpace(set), 16, 64)
			kept |= n
		}
	}
	if kept&asks == 0 {
		return false
	}
	found := false
	newTree(0).look(func(p *process) { found = found || p.group == pgid && p.pid != pgid && p.state == 'T' })
	return found
}

// reapOrphans reaps orphans until the returned function is called, if this process is PID 1 of a
// container, and so becomes the parent of every process that loses its own. It does not reap the
// guardian. Elsewhere it lets this process inherit the guardian's children, if it has none yet: a
// process with children may inherit theirs, too.
func (r *Runner) reapOrphans() (stop func()) {
	if os.Getpid() != 1 {
		_, err := waitid(unix.P_ALL, 0, unix.WEXITED|unix.WNOWAIT|unix.WALL)
		r.child.heirs = err == unix.ECHILD && becomeSubreaper()
		return func() {}
	}
	chld := make(chan os.Signal, 1)
	signal.Notify(chld, syscall.SIGCHLD)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			r.child.Lock()
			for {
				c, _ := waitid(unix.P_ALL, 0, unix.WEXITED|unix.WNOWAIT)
				if c.pid == 0 || int(c.pid) == r.child.pid {
					break
				}
				_, _ = waitid(unix.P_PID, int(c.pid), unix.WEXITED)
			}
			r.child.Unlock()
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

// members returns nothing here: tree has the processes.
func members(int) (names []string, all bool) { return nil, false }

// alarm continues this process at a moment, and repeatedly after it, in case another process has
// stopped it.
type alarm struct{ timer int32 }

// newAlarm returns an alarm that is not set. Without one a stopped process stays stopped.
func newAlarm() *alarm {
	// A signal without a handler would be dropped.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGCONT)
	event := struct {
		value          uintptr
		signal, notify int32 // SIGEV_SIGNAL is 0
		_              [64]byte
	}{signal: int32(syscall.SIGCONT)}
	a := &alarm{}
	if _, _, err := unix.Syscall(unix.SYS_TIMER_CREATE, unix.CLOCK_BOOTTIME, uintptr(unsafe.Pointer(&event)), uintptr(unsafe.Pointer(&a.timer))); err != 0 {
		return nil
	}
	return a
}

// set sets the alarm; 0 disables it.
func (a *alarm) set(at Moment) {
	if a == nil {
		return
	}
	const absolute = 1 // TIMER_ABSTIME
	spec := struct{ interval, value unix.Timespec }{
		unix.NsecToTimespec(int64(20 * time.Millisecond)), unix.NsecToTimespec(int64(at)),
	}
	_, _, _ = unix.Syscall6(unix.SYS_TIMER_SETTIME, uintptr(a.timer), absolute, uintptr(unsafe.Pointer(&spec)), 0, 0, 0)
}
