package supervise

// When the command has to end: arithmetic only.

import "time"

// Moment is a point on a clock that all processes of the host share and that includes system
// suspend: see Now in clock_*.go.
type Moment time.Duration

// Add returns the moment d later.
func (m Moment) Add(d time.Duration) Moment { return m + Moment(d) }

// Sub returns the time from n to m.
func (m Moment) Sub(n Moment) time.Duration { return time.Duration(m - n) }

// limits are the times until which the command may run: at Term its group gets SIGTERM, at Kill
// SIGKILL. Each heartbeat makes them later, until Term has come.
type limits struct{ Term, Kill Moment }

// Plan defines how the limits follow from the hold's deadline.
//
//	now ──────────────────────────────────▶ Deadline
//	          Term ──────── Kill ────────▶ Deadline
//	               KillAfter      Margin
type Plan struct {
	KillAfter time.Duration // from SIGTERM to SIGKILL
	Margin    time.Duration // from SIGKILL to the Deadline: scheduling, and the kernel's work of ending processes
	Poll      time.Duration // how often the Deadline is read again
}

func (p Plan) until(deadline Moment) limits {
	kill := deadline.Add(-p.Margin)
	return limits{Term: kill.Add(-p.KillAfter), Kill: kill}
}

// endNow returns the limits of a command that has to end now, although its deadline has not come.
func (l limits) endNow(now Moment, killAfter time.Duration) limits {
	return limits{Term: min(now, l.Term), Kill: min(now.Add(killAfter), l.Kill)}
}
