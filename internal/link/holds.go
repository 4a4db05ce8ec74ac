package link

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/zklock/zklock/internal/clock"
	"github.com/zklock/zklock/internal/lease"
	"github.com/zklock/zklock/internal/wire"
)

// Holder is the holder of a node, under the lease (Hold) or without it (Keep).
type Holder interface {
	// Lose notifies the holder that the hold on the node is lost; end is when its lease would have
	// ended. It returns whether there was a caller to notify.
	Lose(node string, cause error, end clock.Instant) (told bool)
}

// reattach notes that the same ZooKeeper session continues over a new connection.
func (z *ZKSession) reattach(server string, conn uint64, shook lease.Exchange, timeout time.Duration) {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.mu.lease.Attached(conn, shook, timeout, false)
	// Servers that reject the credentials may nevertheless attach the session each time. It is then
	// given up as if they did not respond: otherwise its nodes would block their queues for as long
	// as this continues.
	if !z.mu.unserved {
		z.mu.served = max(z.mu.served, shook.Answered)
	}
	z.mu.heard, z.mu.server, z.mu.unserved = max(z.mu.heard, shook.Answered), server, true
	// A reconnect alone keeps no hold: a quorum check must follow.
	z.mu.soon = len(z.mu.held)+len(z.mu.kept) > 0
}

// nodeEvent handles an event of a node, in the order in which the server sent them.
func (z *ZKSession) nodeEvent(ev wire.WatcherEvent) {
	z.Inside.Event(ev)
	if ev.Type == wire.EventDeleted {
		z.LoseNode(ev.Path, ErrNodeGone) // if it is held, another client deleted it (F24)
	}
}

// answered notes a response, including one that is passed to quorum next. It never revives a hold
// whose lease has ended: a process that was paused past the end detects the loss at its first
// check, even with a response waiting in the socket.
func (z *ZKSession) answered(conn uint64, f lease.Exchange) {
	z.LoseIfLate(f.Answered)
	z.mu.Lock()
	defer z.mu.Unlock()
	z.mu.lease.Answered(conn, f)
	z.mu.heard, z.mu.served, z.mu.unserved = max(z.mu.heard, f.Answered), max(z.mu.served, f.Answered), false
}

// quorum renews the lease, unless the lease has already ended under a hold.
func (z *ZKSession) quorum(conn uint64, sent clock.Instant) {
	z.mu.Lock()
	defer z.mu.Unlock()
	if !z.HasEnded() {
		z.mu.lease.Quorum(conn, sent)
	}
}

// Timeout returns the session timeout: the smallest that the servers granted in this session.
func (z *ZKSession) Timeout() time.Duration {
	z.mu.Lock()
	defer z.mu.Unlock()
	return z.mu.lease.Timeout()
}

// heartbeat returns the interval of the heartbeats while something is held.
func (z *ZKSession) heartbeat() time.Duration {
	z.mu.Lock()
	defer z.mu.Unlock()
	return z.mu.lease.Heartbeat()
}

// LeaseEnd returns until when the session is guaranteed to live.
func (z *ZKSession) LeaseEnd() clock.Instant {
	z.mu.Lock()
	defer z.mu.Unlock()
	return z.mu.lease.End()
}

// maxUnanswered is the number of tries to end a session after which missing responses count as a
// rejection. A server that does not respond takes the time of a handshake.
const maxUnanswered = 3

// noteUnanswered notes a try. With SASL one try is enough: if the server's messages do not reach
// us, we cannot authenticate, and each further try would keep the session alive instead of ending
// it (F51).
func (z *ZKSession) noteUnanswered(withSASL bool) {
	z.mu.Lock()
	defer z.mu.Unlock()
	if z.mu.unanswered++; withSASL {
		z.mu.unanswered = maxUnanswered
	}
}

// leftToExpire reports that enough tries to end the session have failed.
func (z *ZKSession) leftToExpire() bool {
	z.mu.Lock()
	defer z.mu.Unlock()
	return z.mu.unanswered >= maxUnanswered
}

// plan returns the inputs of the loop's schedule. kept counts the nodes that are checked but not
// under the lease, busy reports whether a caller may be waiting for a response, and end is when the
// session is given up without a response.
func (z *ZKSession) plan() (held, kept, queued int, busy bool, end clock.Instant) {
	z.mu.Lock()
	defer z.mu.Unlock()
	queued, busy = z.Inside.Waiting()
	held, kept, end = len(z.mu.held), len(z.mu.kept), z.unheardLocked()
	if held > 0 {
		end = min(end, z.mu.lease.End())
	}
	return held, kept, queued, busy, end
}

// atStake returns what may be lost while there is no connection. A session that we have given up
// may still live on the servers, even if they return much later, because its full timeout then
// restarts. Its lock nodes block other clients until we have ended it.
func (z *ZKSession) atStake(now clock.Instant) lease.Stake {
	z.mu.Lock()
	defer z.mu.Unlock()
	t := z.mu.lease.Timeout()
	left := z.mu.heard.Add(t).Sub(now)
	switch {
	case !z.HasEnded() && len(z.mu.held) > 0:
		return lease.Stake{Kind: lease.Held, Left: z.mu.lease.End().Sub(now)}
	case !z.HasEnded():
		return lease.Stake{Kind: lease.Alive, Left: left}
	case now.Sub(z.mu.overAt) < 2*time.Second: // the client's pause, and the first try
		return lease.Stake{Kind: lease.GivenUp}
	case z.mu.inTheWay && (now < z.unheardLocked() || left > -t && z.mu.unanswered > 0): // servers are reachable, but silent
		return lease.Stake{Kind: lease.Lingers}
	case z.mu.inTheWay:
		return lease.Stake{Kind: lease.Leftover}
	}
	return lease.Stake{}
}

// LoseIfLate compares the clock with the lease, and ends the session if something is held past its
// end. Every check whether a hold is valid calls it first: after a pause, no timer need have run
// yet (F18).
func (z *ZKSession) LoseIfLate(now clock.Instant) {
	z.mu.Lock()
	var late error
	if !z.HasEnded() && len(z.mu.held) > 0 && now >= z.mu.lease.End() {
		late = z.leaseEndedLocked(now)
	}
	z.mu.Unlock()
	if late != nil {
		z.Lose(z.Carrier.Because(late))
	}
}

// LoseIfUnheard ends the session if no server has responded in it for too long, whether something
// is held or not. The servers may nevertheless receive our messages, or reject each request: then
// the session and its nodes would block other clients for as long as this continues (F51).
func (z *ZKSession) LoseIfUnheard(now clock.Instant) {
	z.mu.Lock()
	var unheard error
	if now >= z.unheardLocked() {
		unheard = fmt.Errorf("%w: the last was %s, %v ago", ErrUnheard, z.mu.server, now.Sub(z.mu.served).Round(100*time.Millisecond))
	}
	z.mu.Unlock()
	if unheard != nil {
		z.Lose(z.Carrier.Because(unheard))
	}
}

func (z *ZKSession) unheardLocked() clock.Instant {
	return z.mu.served.Add(lease.Unheard(z.mu.lease.Timeout()))
}

// leaseEndedLocked returns the reason why the lease ended: this process was paused, no server
// responded, or no response proved the session alive.
func (z *ZKSession) leaseEndedLocked(now clock.Instant) error {
	l, server := &z.mu.lease, z.mu.server
	ago := func(t clock.Instant) time.Duration { return now.Sub(t).Round(100 * time.Millisecond) }
	switch silent := now.Sub(z.mu.heard); {
	case now.Sub(l.End()) > time.Second:
		return fmt.Errorf("%w, and saw the end %v too late; the last answer came from %s %v ago", ErrStoodStill, ago(l.End()), server, ago(z.mu.heard))
	case silent >= l.Room():
		return fmt.Errorf("%w for %v, the last was %s", ErrSilence, ago(z.mu.heard), server)
	}
	unconfirmed := fmt.Errorf("%w: %s answers, but %w for %v", ErrLeaseEnded, server, ErrNoQuorum, ago(l.From()))
	if err := z.mu.failing.err; err != nil {
		return fmt.Errorf("%w: the last heartbeat failed with %w", unconfirmed, err)
	}
	return unconfirmed
}

// Lose ends the session, once: every hold in it is lost and every waiter wakes. It may still live
// on the servers, but Lost is final: the client does not attach to it again (see
// connection.Connecting).
func (z *ZKSession) Lose(cause error) {
	z.mu.Lock()
	if z.mu.cause != nil {
		z.mu.Unlock()
		return
	}
	z.mu.cause = cause // nothing is held from here on
	close(z.endedCh)
	holds := maps.Clone(z.mu.held)
	maps.Copy(holds, z.mu.kept)
	clear(z.mu.held)
	clear(z.mu.kept)
	queued, busy := z.Inside.Waiting()
	z.mu.overAt = z.Clock.Now()
	z.mu.inTheWay = len(holds) > 0 || queued > 0 || busy
	end := z.mu.lease.End()
	z.mu.Unlock()

	for node, h := range holds {
		h.Lose(node, cause, end)
	}
	z.Carrier.Lost(z, cause)
}

// LoseNode ends the hold on the node, if there is one, while the ZooKeeper session continues. If
// the node still exists, it must be deleted: by Inside.NodeEnded, or by the release or the attempt
// if the hold is being released or is not granted yet, so that no caller could be notified.
func (z *ZKSession) LoseNode(node string, cause error) {
	z.mu.Lock()
	h, end := z.mu.held[node], z.mu.lease.End()
	if h == nil {
		h = z.mu.kept[node]
	}
	delete(z.mu.held, node)
	delete(z.mu.kept, node)
	z.mu.Unlock()
	if h == nil {
		return
	}
	told := h.Lose(node, cause, end)
	if gone := errors.Is(cause, ErrNodeGone); gone || told {
		z.Inside.NodeEnded(node, gone)
	}
}

// CheckedNodes returns the nodes that the heartbeat checks.
func (z *ZKSession) CheckedNodes() []string {
	z.mu.Lock()
	defer z.mu.Unlock()
	return slices.AppendSeq(slices.Collect(maps.Keys(z.mu.held)), maps.Keys(z.mu.kept))
}

// Hold puts a granted lock under the lease: its node, and further nodes if the hold depends on
// several. It returns an error if the session has ended, or if its timeout leaves no margin at all.
// It returns false without an error if the lease is too near its end: the caller then renews it and
// tries again.
func (z *ZKSession) Hold(node string, by Holder, more ...string) (ok bool, err error) {
	now := z.Clock.Now()
	z.LoseIfLate(now)
	z.mu.Lock()
	err = z.mu.cause
	if err == nil {
		err = z.mu.lease.Check() // the servers may grant less than they granted to Connect
	}
	ok = err == nil && z.mu.lease.Grants(now)
	first := ok && len(z.mu.held) == 0
	if first { // earlier failed heartbeats do not concern this hold
		z.mu.failing = failing{}
	}
	if ok {
		z.mu.held[node] = by
		for _, n := range more {
			z.mu.held[n] = by
		}
	}
	// While we only waited, nothing renewed the lease, and a cheap read may have been sent just
	// now. The next heartbeat would follow a whole interval after that read: too late for a lease
	// that is near its end.
	if first && z.mu.lease.NeedsHeartbeat(now) {
		z.mu.soon = true
	}
	z.mu.Unlock()
	if first {
		z.Carrier.Nudge() // the lease's timer, and a heartbeat within h
	}
	return ok, err
}

// Keep removes a node from the lease, because no caller relies on it any more. The heartbeat still
// checks the node, and by is notified of a loss.
func (z *ZKSession) Keep(node string, by Holder) {
	z.mu.Lock()
	defer z.mu.Unlock()
	if z.mu.held[node] != nil {
		delete(z.mu.held, node)
		z.mu.kept[node] = by
	}
}

// LetGo removes a holder's lock from the lease, before its nodes are deleted.
func (z *ZKSession) LetGo(by Holder, nodes ...string) {
	z.mu.Lock()
	defer z.mu.Unlock()
	for _, n := range nodes {
		if z.mu.held[n] == by {
			delete(z.mu.held, n)
		}
		if z.mu.kept[n] == by {
			delete(z.mu.kept, n)
		}
	}
}

// IsHeld reports whether the node is held or kept.
func (z *ZKSession) IsHeld(node string) bool {
	z.mu.Lock()
	defer z.mu.Unlock()
	return z.mu.held[node] != nil || z.mu.kept[node] != nil
}
