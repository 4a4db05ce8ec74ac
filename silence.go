package zklock

import (
	"time"

	"github.com/zklock/zklock/internal/clock"
)

// When a server has gone dark, by a loss of power or because packets are dropped, nothing arrives that says so. The ZooKeeper
// client notices after two thirds of the session timeout, when the lease of a hold is mostly over. A Session that holds or
// waits for something asks its server at each heartbeat, so it can tell sooner (F41).

// silenceEnds returns when a connection is to be given up on which the server owes an answer to what was sent at the time
// asked, and has not sent a byte since heard: two heartbeats while something is held, three while something is waited for.
// Any byte is a sign of life. A server that is asked after a long idle time gets a heartbeat less, from the time of asking.
//
// doubled is how often the connection was given up and nobody better found: each time doubles the limit, so that servers
// that are all slow are not left again and again (F16).
func silenceEnds(heard, asked clock.Instant, h time.Duration, held bool, doubled int) clock.Instant {
	beats := time.Duration(3)
	if held {
		beats = 2
	}
	limit := h << min(doubled, 10)
	return max(heard.Add(beats*limit), asked.Add((beats-1)*limit))
}

// outage counts the time without a server, and has it told: after three seconds, and then ever more seldom.
type outage struct {
	since, next clock.Instant
	out         bool
}

// nextLook returns when to look again, far ahead while there is a server.
func (o *outage) nextLook(now clock.Instant, attached bool, tell func(d time.Duration)) clock.Instant {
	switch {
	case attached:
		o.out = false
		return now.Add(time.Hour)
	case !o.out:
		*o = outage{since: now, next: now.Add(3 * time.Second), out: true}
	case now >= o.next:
		d := now.Sub(o.since)
		tell(d)
		o.next = now.Add(min(max(3*d, 30*time.Second), 10*time.Minute))
	}
	return o.next
}
