package supervise

// Everything that came from the command, and how to end it.
//
// The guardian is a child subreaper: a process that loses its parent becomes the guardian's child,
// whatever its group or session. So everything that came from the command is below the guardian,
// and if the guardian has no child, nothing is left. zklock is a second subreaper, in case the
// guardian is killed.
//
// # The order of the end
//
// A process that forks in a loop outruns a killer that goes through a list: each kill frees a slot,
// and the list is old. So stop everything first. A look reads of each process whether it is
// stopped, then its children. A process that was stopped then has forked nothing since, so the list
// of its children is whole. If two looks in a row find everything stopped, nothing is left that
// could fork, and all can be killed. (One look is not enough: a child whose parent was killed by
// another process moves to the guardian's children, which that look has read already.) The state
// decides, not a list of process ids that had the signal: another process can have the id by now,
// and the first may have been continued.
//
// # Which process a number means
//
// A process id can be another process's as soon as its process was waited for. The guardian waits
// for its own children itself, and not during a look, so their numbers are safe. A process further
// down is waited for by its parent, at any time. So:
//
//  1. open a pidfd of the child: from here on the signal reaches this process or none;
//  2. read its parent, which is the process in whose list the number was, or the guardian;
//  3. if it is the former, check by the pidfd of the former that its number still is its own.
//
// Then the parent of the pidfd's process is a descendant of the command, or the guardian itself,
// and the process is a descendant too. Before Linux 5.3 there are no pidfds, and the time from step
// 2 to the signal is a gap.

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// stopWithin limits the wait until everything is stopped, which a process may prevent.
const stopWithin = 2 * time.Second

type tree struct {
	reaped  int  // the child that tree must not wait for
	leave   bool // leave alone processes outside our session
	session int  // ours: 0 if its leader is not of our PID namespace
	buf     []byte
}

// newDescendants returns nil if the system does not show this process its descendants.
func newDescendants(reaped int, leave bool) descendants {
	if !seesDescendants() {
		return nil
	}
	t := newTree(reaped)
	t.leave = leave
	t.session, _ = unix.Getsid(0)
	return t
}

func newTree(reaped int) *tree { return &tree{reaped: reaped, buf: make([]byte, 64<<10)} }

// becomeSubreaper makes this process the parent of all descendants that lose theirs. It returns
// false, and does nothing, where the process could not see them.
func becomeSubreaper() bool {
	return seesDescendants() && unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == nil
}

// seesDescendants reports whether there is a /proc of our PID namespace, and the kernel lists
// children there.
func seesDescendants() bool {
	self, err := os.Readlink("/proc/self")
	return err == nil && self == strconv.Itoa(os.Getpid()) && unix.Access("/proc/self/task/"+self+"/children", unix.R_OK) == nil
}

// process is a descendant as a look reads it.
type process struct {
	pid, parent    int
	group, session int
	name           string
	pidfd          int  // -1 without
	state          byte // of all threads: R if one can run, D if none can but one may later, T if all are stopped, Z if it has ended
	threads        int
}

func (p *process) signal(sig unix.Signal) error {
	if p.pidfd >= 0 {
		return unix.PidfdSendSignal(p.pidfd, sig, nil, 0)
	}
	return unix.Kill(p.pid, sig)
}

// look calls visit with each descendant that is alive, parents first.
func (t *tree) look(visit func(*process)) {
	self := &process{pid: os.Getpid(), pidfd: -1}
	for _, pid := range t.children(self.pid, t.list("/proc/self/task")) {
		t.lookAt(pid, self, self, visit)
	}
}

func (t *tree) lookAt(pid int, parent, self *process, visit func(*process)) {
	p := &process{pid: pid, pidfd: -1}
	if fd, err := unix.PidfdOpen(pid, 0); err == nil {
		p.pidfd = fd
		defer unix.Close(fd)
	}
	dir := "/proc/" + strconv.Itoa(pid)
	if !p.parse(t.read(dir + "/stat")) {
		if parent != self {
			return // it has ended, or /proc hides it: then it is our child when its parent has ended
		}
		// We have not waited for it, so it exists and is hidden.
		p.parent, p.name, p.state = self.pid, "?", 'D'
		p.group, _ = unix.Getpgid(pid)
		p.session, _ = unix.Getsid(pid)
	}
	switch {
	case p.parent == self.pid:
	case p.parent != parent.pid, parent.signal(0) == unix.ESRCH:
		return
	}
	threads := []string{strconv.Itoa(pid)}
	if p.threads > 1 {
		threads = t.list(dir + "/task")
		p.state = 'Z'
		for _, thread := range threads {
			var one process
			if one.parse(t.read(dir + "/task/" + thread + "/stat")) {
				p.state = livelier(p.state, one.state)
			}
		}
	}
	if p.state == 'Z' {
		return
	}
	children := t.children(pid, threads) // after the state
	if !t.leave || p.session == t.session {
		visit(p)
	}
	for _, child := range children {
		t.lookAt(child, p, self, visit)
	}
}

// livelier returns the state that is further from the end.
func livelier(a, b byte) byte {
	const order = "ZTDR"
	if bytes.IndexByte([]byte(order), b) > bytes.IndexByte([]byte(order), a) {
		return b
	}
	return a
}

func (p *process) parse(stat []byte) bool {
	// The name is in parentheses and may hold any character, a parenthesis too.
	open, end := bytes.IndexByte(stat, '('), bytes.LastIndexByte(stat, ')')
	if open < 0 || end < open {
		return false
	}
	f := bytes.Fields(stat[end+1:])
	if len(f) < 18 {
		return false
	}
	number := func(i int) int { n, _ := strconv.Atoi(string(f[i])); return n }
	p.name = string(stat[open+1 : end])
	p.parent, p.group, p.session, p.threads = number(1), number(2), number(3), number(17)
	switch p.state = f[0][0]; p.state {
	case 'T', 't', 'D':
		p.state &^= 'a' - 'A' // its tracer could continue it, but is stopped too
	case 'Z', 'X', 'x':
		p.state = 'Z'
	default:
		p.state = 'R'
	}
	return true
}

func (t *tree) children(pid int, threads []string) (pids []int) {
	for _, thread := range threads {
		for _, f := range bytes.Fields(t.read("/proc/" + strconv.Itoa(pid) + "/task/" + thread + "/children")) {
			if n, err := strconv.Atoi(string(f)); err == nil {
				pids = append(pids, n)
			}
		}
	}
	return pids
}

// read returns the content of a file of /proc until the next call, nothing if it cannot be read.
func (t *tree) read(file string) []byte {
	fd, err := unix.Open(file, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	defer unix.Close(fd)
	used := 0
	for {
		n, err := unix.Read(fd, t.buf[used:])
		if err == unix.EINTR {
			continue
		}
		if n <= 0 {
			return t.buf[:used]
		}
		if used += n; used == len(t.buf) {
			t.buf = append(t.buf, make([]byte, used)...)
		}
	}
}

func (t *tree) list(dir string) []string {
	d, err := os.Open(dir)
	if err != nil {
		return nil
	}
	defer d.Close()
	names, _ := d.Readdirnames(-1)
	return names
}

// terminate asks all processes that are not in the group to end, each once.
func (t *tree) terminate(group int) {
	t.lookTwice(func(p *process) {
		if p.group != group { // the group is ending already
			_ = p.signal(unix.SIGTERM)
			_ = p.signal(unix.SIGCONT)
		}
	})
}

// lookTwice calls visit once with each descendant. Its second look finds a process that moved up
// during the first, because its parent ended.
func (t *tree) lookTwice(visit func(*process)) {
	visited := map[int]bool{}
	for range 2 {
		t.look(func(p *process) {
			if !visited[p.pid] {
				visited[p.pid] = true
				visit(p)
			}
		})
	}
}

func (t *tree) kill(group int) {
	_ = unix.Kill(-group, unix.SIGSTOP) // most at once, which leaves a processor to us
	until := time.Now().Add(stopWithin)
	for still := 0; still < 2 && time.Now().Before(until); {
		still++
		t.look(func(p *process) {
			switch p.state {
			case 'R':
				if p.signal(unix.SIGSTOP) != unix.EPERM { // another user's: that cannot be stopped
					still = 0
				}
			case 'D': // as it wakes up; it may be a parent that waits for a child which is stopped before its exec
				_ = p.signal(unix.SIGSTOP)
			}
		})
		if still == 0 {
			time.Sleep(time.Millisecond)
		}
	}
	t.look(func(p *process) { _ = p.signal(unix.SIGKILL) })
}

func (t *tree) left() bool {
	t.reap()
	if !t.leave {
		for _, pid := range t.children(os.Getpid(), t.list("/proc/self/task")) {
			if pid != t.reaped {
				return true
			}
		}
		return false
	}
	for range 2 { // a process may move up while we look
		if t.names() != nil {
			return true
		}
	}
	return false
}

// gone reports whether nothing is left. Unless processes are left alone, the kernel reports that,
// even when /proc has been unmounted.
func (t *tree) gone() bool {
	if t.leave {
		return !t.left()
	}
	for {
		pid, err := unix.Wait4(-1, nil, unix.WNOHANG|unix.WALL, nil)
		if err != nil && err != unix.EINTR {
			return err == unix.ECHILD
		}
		if pid == 0 {
			return false
		}
	}
}

func (t *tree) names() (names []string) {
	t.look(func(p *process) {
		if p.pid != t.reaped {
			names = append(names, fmt.Sprint(p.pid, " ", p.name))
		}
	})
	return names
}

// reap waits for children that have ended.
func (t *tree) reap() {
	for _, pid := range t.children(os.Getpid(), t.list("/proc/self/task")) {
		if pid != t.reaped {
			_, _ = unix.Wait4(pid, nil, unix.WNOHANG|unix.WALL, nil)
		}
	}
}
