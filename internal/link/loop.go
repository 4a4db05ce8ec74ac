package link

import (
	"fmt"
	"time"

	"github.com/zklock/zklock/internal/clock"
	"github.com/zklock/zklock/internal/lease"
)

// loop owns the heartbeat and the lease's timer, and detects servers that do not respond or are
// unreachable. It ends when the state is Closed.
func (l *Link) loop() {
	defer close(l.loopDone)
	next, expiry := time.NewTimer(0), time.NewTimer(time.Hour)
	defer next.Stop()
	defer expiry.Stop()
	var seen wakeups
	for {
		select {
		case <-l.wake:
		case <-next.C:
		case <-expiry.C:
		}
		if l.State() == Closed {
			return
		}
		again, end := l.checkState(&seen)
		next.Reset(max(again, time.Millisecond))
		expiry.Reset(end)
	}
}

// wakeups is the state that the loop keeps between two checks.
type wakeups struct {
	lastBeat clock.Instant // when the last heartbeat was sent
	quiet    lease.Silence
	out      lease.Outage
}

// checkState does all that is due. It returns when to check again (again), and when the session
// ends for us (end): because the lease of a hold ends, or because no server responds. Whatever
// changes these times wakes the loop earlier. While something is held, end is at most ClockCheck: a
// holder that only waits for its context must be notified soon after a suspend.
func (l *Link) checkState(seen *wakeups) (again, end time.Duration) {
	const never = time.Hour
	z, t, conn, _ := l.now()
	now := l.Clock.Now()
	next := seen.out.NextLook(now, conn != 0, func(d time.Duration) {
		if l.dials.Refusal() != nil { // a rejection is no outage, and was logged
			return
		}
		l.Log.Warn("zklock: no server has accepted the session", "for", d.Round(time.Second), "tried", l.dials.Tried())
	})
	if z != nil {
		z.LoseIfLate(now)
		z.LoseIfUnheard(now)
	}
	if z == nil || z.HasEnded() {
		return next.Sub(now), never
	}
	held, kept, queued, busy, ends := z.plan()
	end = ends.Sub(now) + time.Millisecond
	if held > 0 {
		end = min(end, lease.ClockCheck)
	}
	tenth, interval, h := lease.Heartbeat(z.Timeout()), lease.IdleRead(z.Timeout()), z.heartbeat()
	switch {
	case held+kept > 0:
		interval = h
	case queued > 0:
		interval = min(interval, max(h, tenth))
	}
	if conn == 0 {
		return min(next.Sub(now), interval), end
	}
	due := seen.lastBeat.Add(interval)
	if now >= due || z.heartbeatNow(conn) {
		if z.sendHeartbeat(conn) {
			seen.lastBeat = now
		}
		due = now.Add(interval)
	}
	if why := z.heartbeatsFail(conn); why != nil {
		t.Leave(why)
		return tenth, end
	}
	if heard, asked, owes := t.Silence(); owes && (held+kept > 0 || busy) {
		leave, look := seen.quiet.Look(now, heard, asked, tenth, held > 0)
		if leave {
			silent := now.Sub(heard).Round(time.Millisecond)
			l.Log.Warn("zklock: the server is silent; trying another", "server", t.RemoteAddr().String(),
				"session", fmt.Sprintf("%#x", z.ID), "for", silent)
			t.Leave(fmt.Errorf("the server was silent for %v", silent))
			return tenth, end
		}
		due = min(due, look)
	}
	return min(due.Sub(now), tenth), end
}

// Nudge wakes the loop. It implements Carrier.
func (l *Link) Nudge() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}
