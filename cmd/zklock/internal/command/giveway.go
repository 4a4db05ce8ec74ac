package command

// A run that gives way when another client asks for its lock: --revocable.

import (
	"fmt"
	"syscall"

	"github.com/zklock/zklock"
)

// heard is called when another client asks for a hold. The call may be late, and for an earlier
// hold: giveWay compares them.
func (o *runOptions) heard(h *zklock.Hold) {
	select {
	case o.asked <- h:
	default: // eight requests are unread: the commands of those holds have ended
	}
}

// giveWay sends COMMAND SIGTERM when another client asks for its hold, as if zklock had got the
// signal: COMMAND decides how, and how fast, it ends. Call over when COMMAND has ended; it reports
// whether COMMAND was asked.
func (t *taking) giveWay(hold *zklock.Hold) (over func() (wasAsked bool)) {
	if !t.revocable {
		return func() bool { return false }
	}
	ended, was := make(chan struct{}), make(chan bool, 1)
	go func() {
		for {
			select {
			case h := <-t.asked:
				if h.Node() != hold.Node() {
					continue
				}
				fmt.Fprintf(t.stderr, "zklock: %s (token %d): another client asks for the lock: the command gets SIGTERM, and the lock is released when it has ended\n", t.path, hold.Token())
				t.runner.Send(syscall.SIGTERM)
				was <- true
				return
			case <-ended:
				was <- false
				return
			}
		}
	}()
	return func() bool {
		close(ended)
		return <-was
	}
}
