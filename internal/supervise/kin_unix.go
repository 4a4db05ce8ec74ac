//go:build linux || darwin

package supervise

// All that came from the command: its process group, and what left that, where the system lets this process see it.

import (
	"runtime"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// kin is what came from the command.
type kin struct {
	group int         // of the command, which leads it
	below descendants // nil: only the group can be seen to
}

// descendants are all processes below this one. The tree of Linux has them; see there in which order it ends them.
type descendants interface {
	terminate(group int) // SIGTERM to what is not in the group
	kill(group int)      // SIGKILL to all that is there, and to what that starts meanwhile; most of it is in the group
	left() bool          // something is there; it reaps what has ended
	gone() bool          // nothing is there, seen or not. This process has no other child
	names() []string     // of what is there
	reap()
}

// terminate asks all to end. A stopped process could not hear it.
func (k kin) terminate() {
	_ = unix.Kill(-k.group, unix.SIGTERM)
	_ = unix.Kill(-k.group, unix.SIGCONT)
	if k.below != nil {
		k.below.terminate(k.group)
	}
}

// kill kills all. Some may need a moment to end, and what cannot be killed does not.
func (k kin) kill() {
	if k.below != nil {
		k.below.kill(k.group)
	} else {
		_ = unix.Kill(-k.group, unix.SIGKILL)
	}
}

// left says whether anything but the leader is left; of a group, whether anything of it can be seen.
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

// gone says whether nothing is left when the leader has been reaped. The kernel says whether a group has members, even those that
// we may neither see nor signal. Zombies count as members. If we see all, we see ourselves that only zombies are left.
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

// startThreads starts the threads that this process needs. When the processes are at their limit, which is one for threads too, Go
// could start none, and would end the process. A thread that has nothing to do is kept for later.
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

// parting is the time in which what the command left running may end by itself: a reader of its output, say.
const parting = 100 * time.Millisecond
