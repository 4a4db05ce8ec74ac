package zklock

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"time"
)

// hosts is the client's HostProvider. It hands out host names, not addresses, so that TLS can verify them and every
// dial resolves them anew. A lap through all servers is tried without a pause, then the client waits a second.
type hosts struct {
	clock *clock
	mu    struct {
		sync.Mutex
		addrs       []string
		next        int
		left        int // tries before a pause
		laps        int // pauses since a server took us in
		connected   instant
		isConnected bool
		closed      bool
	}
}

func newHosts(addrs []string, clk *clock) *hosts {
	h := &hosts{clock: clk}
	h.mu.addrs = slices.Clone(addrs)
	rand.Shuffle(len(addrs), func(i, j int) { h.mu.addrs[i], h.mu.addrs[j] = h.mu.addrs[j], h.mu.addrs[i] })
	h.mu.left = len(addrs)
	return h
}

// Init does nothing: the servers are known, and names are resolved when they are dialled.
func (h *hosts) Init([]string) error { return nil }

// Len returns the number of servers.
func (h *hosts) Len() int { return len(h.mu.addrs) }

// Next returns the next server to try, and whether the client should first pause, which it does for a second.
func (h *hosts) Next() (string, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.mu.closed {
		return h.mu.addrs[0], true // the client looks for its own end only when it pauses
	}
	pause := h.mu.left == 0
	if h.mu.isConnected {
		// A server that takes us in and drops us at once would have us spin (R50).
		pause = pause || h.clock.now().sub(h.mu.connected) < time.Second
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

// Connected notes that the last server handed out took us in.
func (h *hosts) Connected() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.left, h.mu.laps = len(h.mu.addrs), 0
	h.mu.connected, h.mu.isConnected = h.clock.now(), true
}

// forgive begins a new lap: a server that answers "expired" is well, and should be asked for a new session at once.
func (h *hosts) forgive() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.left = len(h.mu.addrs)
	h.mu.next = (h.mu.next + len(h.mu.addrs) - 1) % len(h.mu.addrs)
}

func (h *hosts) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.closed = true
}

// lap returns how often all servers have been tried since one took us in.
func (h *hosts) lap() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.mu.laps
}

// dial is the client's dialer: it makes the connection, over TLS if so configured, and puts the tap in it. The client's own
// time-out, a second, is not looked at: name look-up, dial, TLS and handshake together have the handshake timeout.
func (s *Session) dial(network, addr string, _ time.Duration) (net.Conn, error) {
	s.link.Lock()
	err, old, e := s.link.err, s.link.tap, s.link.era
	s.link.Unlock()
	if err != nil {
		return nil, err
	}
	last := ""
	if old != nil {
		_ = old.Close()     // the client leaves the connection open on which it learned of an expiry
		s.disconnected(old) // who ended it may be about to say so, and come too late
		last = old.RemoteAddr().String()
	}
	timeout := s.opts.timeout
	if e != nil {
		timeout = e.sessionTimeout()
	}
	d := dialing{
		network: network, addr: addr, last: last, deadline: time.Now().Add(s.opts.handshakeCap),
		// A dark server must not cost a hold while there are others, and a network that is well again must be noticed soon.
		quick: heartbeat(timeout) << min(s.hosts.lap(), 10),
	}
	s.noteTried(addr, notYet("no answer to the dial yet"))
	c, raw, err := s.dialRaw(d)
	if err != nil {
		s.noteTried(addr, err)
		return nil, err
	}
	s.link.Lock()
	defer s.link.Unlock()
	if s.link.err != nil {
		_ = raw.Close()
		return nil, s.link.err
	}
	s.link.conns++
	c = &greeting{Conn: c, overTLS: s.opts.tls != nil, tell: func(err error) { s.noteTried(addr, err) }}
	s.link.tap = newTap(c, raw, s, s.clock, s.zxid.Connect(), &s.link.xids, s.link.conns, d.deadline)
	s.noteTriedLocked(addr, notYet("connected, but the server did not answer the handshake: no quorum, or not a ZooKeeper server"))
	return s.link.tap, nil
}

// dialing is one try to connect to a server.
type dialing struct {
	network, addr string
	last          string        // the address of the connection before, the last one to try again
	deadline      time.Time     // until when it must be done
	quick         time.Duration // how long each of the server's addresses may take: a heartbeat, doubled in each lap
}

// dialRaw returns the connection to speak over and the one underneath, which closes at once.
func (s *Session) dialRaw(d dialing) (c, raw net.Conn, err error) {
	ctx, cancel := context.WithDeadline(s.ctx, d.deadline)
	defer cancel()
	if s.opts.dialer != nil {
		raw, err = s.opts.dialer(d.network, d.addr, min(d.quick, time.Until(d.deadline)))
	} else {
		raw, err = s.dialName(ctx, d)
	}
	if err != nil {
		return nil, nil, err
	}
	if s.opts.tls == nil {
		return raw, raw, nil
	}
	config := s.opts.tls.Clone()
	if config.ServerName == "" {
		config.ServerName, _, _ = net.SplitHostPort(d.addr)
	}
	tc := tls.Client(raw, config)
	if err := tc.HandshakeContext(ctx); err != nil {
		_ = raw.Close()
		return nil, nil, tlsError(err)
	}
	return tc, raw, nil
}

// dialName connects to one of the addresses that a server's name has, the one of the last connection last.
func (s *Session) dialName(ctx context.Context, d dialing) (net.Conn, error) {
	host, port, err := net.SplitHostPort(d.addr)
	if err != nil {
		return nil, err
	}
	addrs := []string{host}
	if net.ParseIP(host) == nil {
		if addrs, err = s.names.resolve(ctx, s.spawn, host, d.quick); err != nil {
			return nil, err
		}
	}
	addrs = lastInLine(addrs, func(a string) bool { return net.JoinHostPort(a, port) == d.last })
	var errs []error
	for i, a := range addrs {
		dctx, cancel := context.WithTimeout(ctx, min(d.quick, time.Until(d.deadline)/time.Duration(len(addrs)-i)))
		c, err := new(net.Dialer).DialContext(dctx, d.network, net.JoinHostPort(a, port))
		cancel()
		if err == nil {
			return c, nil
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

// lastInLine moves what is to be tried last to the end.
func lastInLine(addrs []string, last func(string) bool) []string {
	var first, rest []string
	for _, a := range addrs {
		if last(a) {
			rest = append(rest, a)
		} else {
			first = append(first, a)
		}
	}
	return append(first, rest...)
}

// alternatives says whether there is another address to try than the one that the client is connected to.
func (s *Session) alternatives() bool { return s.hosts.Len() > 1 || s.names.most() > 1 }

// notYet is how far a try has come that has not ended.
type notYet string

func (n notYet) Error() string { return string(n) }

// noteTried notes what came of a try, or how far it has come.
func (s *Session) noteTried(addr string, err error) {
	s.link.Lock()
	defer s.link.Unlock()
	s.noteTriedLocked(addr, err)
}

// noteTriedLocked keeps the end of an earlier try until the one under way has ended too.
func (s *Session) noteTriedLocked(addr string, err error) {
	var now, before notYet
	if last := s.link.tried[addr]; last != nil && errors.As(err, &now) && !errors.As(last, &before) {
		return
	}
	s.link.tried[addr] = err
}

// whatWasTried says for each server what happened last, for the error of a Connect that did not get there.
func (s *Session) whatWasTried() string {
	s.link.Lock()
	defer s.link.Unlock()
	var parts []string
	for addr, err := range s.link.tried {
		parts = append(parts, fmt.Sprintf("%s (%v)", addr, err))
	}
	slices.Sort(parts)
	return strings.Join(parts, ", ")
}
