package dial

import (
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/zklock/zklock/internal/clock"
)

// hosts is the client's HostProvider. It hands out host names, not addresses, so that TLS can
// verify them and each lap resolves them again. It hands out a name once for each of its addresses.
// When all servers have been tried, the client waits a second: that is a lap.
//
//	a server is lost ─▶ the next at once ─▶ rest ─▶ the one after it … a lap
//	                                          ─▶ the client's second, and a rest ─▶ …
//
// The rests keep many Sessions from dialling in step: each is as long as the caller allows, or up
// to half of that less, at random. The client can wait for no longer than its second, and while it
// waits in a dial it reports no outage. So a longer rest is spent a second at a time, each the
// pause before a try that is not made.
type hosts struct {
	clock *clock.Clock
	mu    struct {
		sync.Mutex
		addrs       []string
		next        int
		left        int // tries before a pause
		laps        int // pauses since a server accepted the session
		connected   clock.Instant
		isConnected bool
		unserved    bool // no request has been answered since a server accepted the session
		closed      bool
		untried     []string // of the server that was handed out; it is next again, at once

		atOnce bool          // the next try needs no rest
		part   float64       // of what the caller allows: the rest before the next try; 0 if none has begun
		began  clock.Instant // when the rest did
		again  bool          // the server that was handed out has not been tried: the rest continues
	}
}

func newHosts(addrs []string, clk *clock.Clock) *hosts {
	h := &hosts{clock: clk}
	h.mu.addrs = slices.Clone(addrs)
	rand.Shuffle(len(addrs), func(i, j int) { h.mu.addrs[i], h.mu.addrs[j] = h.mu.addrs[j], h.mu.addrs[i] })
	h.mu.left, h.mu.atOnce = len(addrs), true
	return h
}

// Init does nothing: the servers are known, and names are resolved when they are dialled.
func (h *hosts) Init([]string) error { return nil }

// Len returns the number of servers.
func (h *hosts) Len() int { return len(h.mu.addrs) }

// Next returns the next server to try, and whether the client should first pause for its one
// second.
func (h *hosts) Next() (string, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.mu.closed {
		return h.mu.addrs[0], true // the client checks whether it is closed only when it pauses
	}
	if len(h.mu.untried) > 0 {
		h.mu.atOnce = true
		return h.lastLocked(), false
	}
	if h.mu.again {
		h.mu.again = false
		return h.lastLocked(), true
	}
	pause := h.mu.left == 0
	if h.mu.isConnected {
		// If a server accepts the session and then drops us at once, we must not reconnect in a
		// busy loop (R50).
		pause = pause || h.clock.Now().Sub(h.mu.connected) < time.Second
		h.mu.isConnected = false
	}
	if pause {
		h.mu.left = len(h.mu.addrs)
		h.mu.laps++
	}
	h.mu.left--
	addr := h.mu.addrs[h.mu.next]
	h.mu.next = (h.mu.next + 1) % len(h.mu.addrs)
	return addr, pause
}

func (h *hosts) lastLocked() string {
	return h.mu.addrs[(h.mu.next+len(h.mu.addrs)-1)%len(h.mu.addrs)]
}

// setUntried notes the addresses of the server that was handed out, in the order of their tries.
func (h *hosts) setUntried(addrs []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.untried = addrs
}

// nextUntried removes and returns the first of these addresses, or "".
func (h *hosts) nextUntried() (addr string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.mu.untried) > 0 {
		addr, h.mu.untried = h.mu.untried[0], h.mu.untried[1:]
	}
	return addr
}

// Connected notes that the last server handed out has accepted the session. A second connection in
// a row without a response to a request does not end the pauses: each may be rejected after that.
func (h *hosts) Connected() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.mu.unserved {
		h.restartLocked()
	}
	h.mu.untried, h.mu.unserved = nil, true
	h.mu.connected, h.mu.isConnected = h.clock.Now(), true
}

// served begins a first lap, because a server has answered a request.
func (h *hosts) served() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.unserved = false
	h.restartLocked()
}

func (h *hosts) restartLocked() {
	h.mu.left, h.mu.laps, h.mu.atOnce = len(h.mu.addrs), 0, true
}

// forgive begins a new lap (see Dialer.Forgive).
func (h *hosts) forgive() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.left, h.mu.atOnce, h.mu.untried = len(h.mu.addrs), true, nil
	h.mu.next = (h.mu.next + len(h.mu.addrs) - 1) % len(h.mu.addrs)
}

func (h *hosts) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.closed = true
}

// lap returns how often all servers have been tried since one accepted the session.
func (h *hosts) lap() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.mu.laps
}

// rest returns how long to wait until the next try, zero before the first. It is called again when
// that time has passed, or when the client dials again: the potential loss, and with it longest,
// may have changed by then.
func (h *hosts) rest(longest time.Duration) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.clock.Now()
	if !h.mu.atOnce {
		if h.mu.part == 0 {
			h.mu.began, h.mu.part = now, (1+rand.Float64())/2
		}
		if left := h.mu.began.Add(time.Duration(h.mu.part * float64(longest))).Sub(now); left > 0 {
			h.mu.again = left > clientPause
			return left
		}
	}
	h.mu.atOnce, h.mu.part, h.mu.again = false, 0, false
	return 0
}

// clientPause is the duration of the client's pause.
const clientPause = time.Second

// errResting reports to the client that no try was made.
var errResting = errors.New("too early for another try")

// Rest waits until the next try is due. If that takes longer than a second, it returns an error at
// once: then the client pauses, and calls again. longest returns how long the whole wait may be
// after this many laps through this many servers.
func (d *Dialer) Rest(longest func(laps, servers int) time.Duration) error {
	for {
		left := d.hosts.rest(longest(d.hosts.lap(), d.hosts.Len()))
		switch {
		case left <= 0:
			return nil
		case left > clientPause:
			return errResting
		}
		select {
		case <-time.After(left):
		case <-d.ctx.Done():
			return d.ctx.Err()
		}
	}
}
