package main

// When the command has to end: arithmetic only.

import (
	"fmt"
	"time"

	"github.com/zklock/zklock"
)

// moment is a point on a clock that all processes of the host share and that counts the time in system suspend: see
// now in clock_*.go.
type moment time.Duration

func (m moment) add(d time.Duration) moment { return m + moment(d) }
func (m moment) sub(n moment) time.Duration { return time.Duration(m - n) }

// limits says until when the command may run: at Term its group gets SIGTERM, at Kill SIGKILL. They move ahead with
// each heartbeat, until Term has come.
type limits struct{ Term, Kill moment }

// plan says how the limits follow from the hold's deadline.
//
//	          lease's room
//	now ──────────────────────────────────▶ Deadline
//	          Term ──────── Kill ────────▶ Deadline
//	               killAfter      margin
type plan struct {
	killAfter time.Duration // from SIGTERM to SIGKILL
	margin    time.Duration // from SIGKILL to the Deadline: scheduling, and the kernel's work of ending processes
	poll      time.Duration // how often the Deadline is read again
}

// newPlan fits kill-after into the room of the lease. A negative killAfter stands for the default: half of what fits,
// and no more than 10 s, so that an outage has the other half.
func newPlan(mode zklock.LeaseMode, sessionTimeout, killAfter time.Duration) (plan, error) {
	room := zklock.LeaseRoom(mode, sessionTimeout)
	p := plan{
		killAfter: killAfter,
		margin:    min(max(room/10, 50*time.Millisecond), 500*time.Millisecond),
		poll:      min(max(sessionTimeout/100, 10*time.Millisecond), 250*time.Millisecond),
	}
	// While all is well, the Deadline that we know of is ahead by the room, less the time since we read it.
	most := room - p.margin - p.poll
	if most <= 0 {
		return plan{}, fmt.Errorf("the lease's room is too small to end a command in: session timeout %v with lease %v leaves %v, of which %v are kept for scheduling; give a longer --session-timeout%s",
			sessionTimeout, mode, round(room), p.margin+p.poll, orSingle(mode))
	}
	if killAfter < 0 {
		p.killAfter = min(most/2, 10*time.Second)
		return p, nil
	}
	if killAfter >= most {
		return plan{}, fmt.Errorf("--kill-after %v does not fit into the lease's room: session timeout %v with lease %v leaves %v, of which %v are kept for scheduling; give less than %v, or a longer --session-timeout%s",
			killAfter, sessionTimeout, mode, round(room), p.margin+p.poll, round(most), orSingle(mode))
	}
	return p, nil
}

// orSingle is the advice for an ensemble of one server.
func orSingle(mode zklock.LeaseMode) string {
	if mode == zklock.SingleServerLease() {
		return ""
	}
	return ", or --lease single if there is one server"
}

// until returns the limits for a hold with this deadline.
func (p plan) until(deadline moment) limits {
	kill := deadline.add(-p.margin)
	return limits{Term: kill.add(-p.killAfter), Kill: kill}
}

// endNow returns the limits of a command that has to end now, although its deadline has not come.
func (l limits) endNow(now moment, killAfter time.Duration) limits {
	return limits{Term: min(now, l.Term), Kill: min(now.add(killAfter), l.Kill)}
}

func round(d time.Duration) time.Duration { return d.Round(time.Millisecond) }
