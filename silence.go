package zklock

import (
	"time"

	"github.com/zklock/zklock/internal/clock"
)

// When a server goes dark, by a loss of power or because packets are dropped, nothing that arrives says so. The ZooKeeper
// client notices after two thirds of the session timeout, when the lease of a hold is mostly over. A Session that holds or
// waits for something asks its server at each heartbeat, so it can tell sooner (F41).

// silenceEnds returns when to give a connection up. The server owes an answer to a request that was sent at asked, and has not
// sent a byte since heard. It gets two heartbeats while something is held, and three while something is waited for. Any byte
// is a sign of life. If a long idle time came before the request, the server gets one heartbeat less, counted from asked.
//
// doubled is how often a connection was given up lately. Each time doubles the limit, so that the Session does not leave one slow
// server after the other for ever (F16).
func silenceEnds(heard, asked clock.Instant, h time.Duration, held bool, doubled int) clock.Instant {
	beats := time.Duration(3)
	if held {
		beats = 2
	}
	limit := h << min(doubled, 10)
	return max(heard.Add(beats*limit), asked.Add((beats-1)*limit))
}

// outage counts the time without a server, and has it reported: after three seconds, and then less and less often.
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
