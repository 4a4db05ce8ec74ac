package command

// How the end of a command fits into the lease: arithmetic only.

import (
	"fmt"
	"time"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/cmd/zklock/internal/supervise"
)

// newPlan fits killAfter into the margin of the lease. A negative killAfter means the default: half
// of the available time, and no more than 10 s, so that an outage has the other half.
func newPlan(mode zklock.LeaseMode, sessionTimeout, killAfter time.Duration) (supervise.Plan, error) {
	room := mode.Margin(sessionTimeout)
	p := supervise.Plan{
		KillAfter: killAfter,
		Margin:    min(max(room/10, 50*time.Millisecond), 500*time.Millisecond),
		Poll:      min(max(sessionTimeout/100, 10*time.Millisecond), 250*time.Millisecond),
	}
	// While all is well, the Deadline that we last read is later than now by the margin, less the
	// time since the read.
	most := room - p.Margin - p.Poll
	if most <= 0 {
		return supervise.Plan{}, fmt.Errorf("the lease's margin is too small to end a command: session timeout %v with lease %v leaves %v, of which %v are kept for scheduling; give a longer --session-timeout%s",
			sessionTimeout, mode, round(room), p.Margin+p.Poll, orSingle(mode))
	}
	if killAfter < 0 {
		p.KillAfter = min(most/2, 10*time.Second)
		return p, nil
	}
	if killAfter >= most {
		return supervise.Plan{}, fmt.Errorf("--kill-after %v does not fit into the lease's margin: session timeout %v with lease %v leaves %v, of which %v are kept for scheduling; give less than %v, or a longer --session-timeout%s",
			killAfter, sessionTimeout, mode, round(room), p.Margin+p.Poll, round(most), orSingle(mode))
	}
	return p, nil
}

func orSingle(mode zklock.LeaseMode) string {
	if mode == zklock.SingleServerLease() {
		return ""
	}
	return ", or --lease single if there is one server"
}

func round(d time.Duration) time.Duration { return d.Round(time.Millisecond) }
