//go:build linux || darwin

package supervise

// Everything that came from the command: its process group, and the processes that left it, where
// the system shows them to this process.

import (
	"runtime"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

type kin struct {
	group int         // of the command, which leads it
	below descendants // nil: only the group can be ended
}

// descendants are all processes below this one. On Linux, tree implements it and documents the
// order in which it ends them.
type descendants interface {
	terminate(group int) // SIGTERM to all processes outside the group
	kill(group int)      // SIGKILL to all, and to processes that they start meanwhile; most are in the group
	left() bool          // a process is left; it reaps those that have ended
	gone() bool          // nothing is left, seen or not. This process has no other child
	names() []string     // of the processes that are left
	reap()
}

// terminate asks all processes to end. A stopped process has to be continued for that.
func (k kin) terminate() {
	_ = unix.Kill(-k.group, unix.SIGTERM)
	_ = unix.Kill(-k.group, unix.SIGCONT)
	if k.below != nil {
		k.below.terminate(k.group)
	}
}

// kill kills all processes. Some may need a moment to end, and some cannot be killed.
func (k kin) kill() {
	if k.below != nil {
		k.below.kill(k.group)
	} else {
		_ = unix.Kill(-k.group, unix.SIGKILL)
	}
}

// left reports whether any process but the leader is left; of a group, whether any can be seen.
func (k kin) left() bool {
	if k.below != nil {
		return k.below.left()
	}
	names, _ := members(k.group)
	return names != nil
}

func (k kin) names() string {
	names, _ := members(k.group)
	if k.below != nil {
		names = k.below.names()
	}
	return strings.Join(names, ", ")
}

func (k kin) reap() {
	if k.below != nil {
		k.below.reap()
	}
}

// gone reports whether nothing is left when the leader has been reaped. The kernel shows whether a
// group has members, even those that we may neither see nor signal. Zombies count as members. If we
// see all members, we check ourselves that only zombies are left.
func (k kin) gone() bool {
	if k.below != nil {
		return k.below.gone()
	}
	if unix.Kill(-k.group, 0) == unix.ESRCH {
		return true
	}
	names, all := members(k.group)
	return names == nil && all
}

// startThreads starts the threads that this process needs. At the limit of processes, which counts
// threads too, Go could start none, and would end the process. Go keeps idle threads for later.
func startThreads() {
	const running, blocked = 2, 6 // in Go code; in system calls
	runtime.GOMAXPROCS(min(running, runtime.GOMAXPROCS(0)))
	var all sync.WaitGroup
	all.Add(running + blocked)
	done := make(chan struct{})
	for range running + blocked {
		go func() {
			runtime.LockOSThread() // so each has a thread of its own
			all.Done()
			<-done
			runtime.UnlockOSThread()
		}()
	}
	all.Wait()
	close(done)
}

// parting is the time in which processes that the command left running, for example a reader of its
// output, may end by themselves.
const parting = 100 * time.Millisecond
