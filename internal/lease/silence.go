package lease

import (
	"time"

	"github.com/zklock/zklock/internal/clock"
)

// When a server stops responding, because of a power loss or dropped packets, no packet reports
// that. The ZooKeeper client notices after two thirds of the session timeout, when most of a hold's
// lease has passed. A Session that holds or waits for something sends a request at each heartbeat,
// so it can detect this sooner (F41).

// Silence decides when to leave a server that does not respond: after two heartbeats, or three
// while the Session only waits. If all servers are slow, the next one is no better (F16). So a
// second one gets twice the time. A third would get four times the time, which is longer than two
// thirds of T: the client leaves it. Ten minutes after a server was left the count starts again.
type Silence struct {
	left    int           // how many servers were left recently
	last    clock.Instant // when the last of them was left
	doubted clock.Instant // the end of a silence that was noticed late
}

const (
	leftForgotten = 10 * time.Minute
	lateLook      = 100 * time.Millisecond // how late the end of a silence may be noticed and still count
)

// Look reports whether to leave the server now, and otherwise returns when to check again. The
// server has not answered a request that was sent at asked, and has not sent a byte since heard.
func (s *Silence) Look(now, heard, asked clock.Instant, h time.Duration, held bool) (leave bool, next clock.Instant) {
	if now.Sub(s.last) > leftForgotten {
		s.left = 0
	}
	ends := silenceEnds(heard, asked, h<<s.left, held)
	if now.Sub(ends) > lateLook && s.doubted != ends {
		// This process was paused; the server may have responded. Responses that arrived meanwhile
		// may not be read yet (F18).
		s.doubted, ends = ends, now.Add(lateLook)
	}
	if now < ends {
		return false, ends
	}
	s.left, s.last = s.left+1, now
	return true, now
}

// silenceEnds returns when a silence has lasted for two heartbeats, or for three while nothing is
// held. Any byte is a sign of life. If a long idle time came before the request, the server gets
// one heartbeat less, counted from asked.
func silenceEnds(heard, asked clock.Instant, beat time.Duration, held bool) clock.Instant {
	beats := time.Duration(3)
	if held {
		beats = 2
	}
	return max(heard.Add(beats*beat), asked.Add((beats-1)*beat))
}

// Unheard is how long a session may go without a response before we give it up, whether something
// is held or not. It is T after the first request without a response: an idle session sends one
// every IdleRead, and the ZooKeeper client pauses for a second when it has tried all servers. So a
// waiter keeps its position through an outage of all servers that is no longer than T.
func Unheard(timeout time.Duration) time.Duration { return timeout + IdleRead(timeout) + time.Second }

// Outage measures the time without a server, and has it reported: after three seconds, and then at
// growing intervals.
type Outage struct {
	since, next clock.Instant
	out         bool
}

// NextLook returns when to check again, which is far in the future while there is a server.
func (o *Outage) NextLook(now clock.Instant, attached bool, tell func(d time.Duration)) clock.Instant {
	switch {
	case attached:
		o.out = false
		return now.Add(time.Hour)
	case !o.out:
		*o = Outage{since: now, next: now.Add(3 * time.Second), out: true}
	case now >= o.next:
		d := now.Sub(o.since)
		tell(d)
		o.next = now.Add(min(max(3*d, 30*time.Second), 10*time.Minute))
	}
	return o.next
}
