package zklock

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
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
	h.mu.left = len(h.mu.addrs)
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

// dial is the client's dialer: it makes the connection, over TLS if so configured, and puts the tap in it.
func (s *Session) dial(network, addr string, timeout time.Duration) (net.Conn, error) {
	s.link.Lock()
	err, old, e, inquired := s.link.err, s.link.tap, s.link.era, s.link.inquired
	s.link.Unlock()
	if err != nil {
		return nil, err
	}
	if old != nil {
		_ = old.Close() // the client leaves the connection open on which it learned of an expiry
	}
	if e != nil && e.overdue(s.clock.now(), inquired) {
		if err := s.inquire(e, network, addr, timeout); err != nil {
			s.noteTried(addr, err)
			return nil, err
		}
	}
	s.link.Lock()
	unburied := slices.Clone(s.link.unburied)
	s.link.Unlock()
	for _, e := range unburied {
		if err := s.bury(e, network, addr, timeout); err != nil {
			s.noteTried(addr, err)
			return nil, err
		}
	}
	deadline := time.Now().Add(s.opts.handshakeCap)
	c, raw, err := s.dialRaw(network, addr, timeout)
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
	s.link.tap = newTap(c, raw, s, s.clock, s.link.conns, deadline)
	s.link.tried[addr] = errors.New("connected, but the server did not answer the handshake: no quorum, or not a ZooKeeper server")
	return s.zxid.Wrap(s.link.tap), nil
}

// dialRaw returns the connection to speak over and the one underneath, which closes at once.
func (s *Session) dialRaw(network, addr string, timeout time.Duration) (c, raw net.Conn, err error) {
	if s.opts.dialer != nil {
		raw, err = s.opts.dialer(network, addr, timeout)
	} else {
		d := net.Dialer{Timeout: timeout}
		raw, err = d.DialContext(s.ctx, network, addr)
	}
	if err != nil {
		return nil, nil, err
	}
	if s.opts.tls == nil {
		return raw, raw, nil
	}
	config := s.opts.tls.Clone()
	if config.ServerName == "" {
		config.ServerName, _, _ = net.SplitHostPort(addr)
	}
	tc := tls.Client(raw, config)
	ctx, cancel := context.WithTimeout(s.ctx, s.opts.handshakeCap)
	defer cancel()
	if err := tc.HandshakeContext(ctx); err != nil {
		_ = raw.Close()
		return nil, nil, fmt.Errorf("TLS: %w", err)
	}
	return tc, raw, nil
}

// bury ends, at the servers, a ZooKeeper session that we have given up but that may be alive: its nodes would keep the
// lock from others until it expires, and the client would attach to it again. The client learns of its end the usual way,
// and from any server, since it has seen nothing then.
func (s *Session) bury(e *era, network, addr string, timeout time.Duration) error {
	there, err := s.visit(e, true, network, addr, timeout)
	if err != nil {
		return fmt.Errorf("ending the given-up session %#x: %w", e.id, err)
	}
	s.log.info("zklock: ended the given-up session at the servers", "session", fmt.Sprintf("%#x", e.id), "wasThere", there)
	s.link.Lock()
	defer s.link.Unlock()
	if s.link.era == e {
		s.zxid.Forget()
	}
	s.unburyLocked(e)
	return nil
}

// inquire asks a server whether the session, of which nothing has been heard for so long that it should be over, is
// still there, and gives it up if it is not. A server refuses a client that has seen more than it has, without saying
// whether its session is over. If the servers came back from an older snapshot (F23), all of them do, and the client would
// stay out until they have caught up. To ask is a sign of life for the session, so it is done once in a while only.
func (s *Session) inquire(e *era, network, addr string, timeout time.Duration) error {
	there, err := s.visit(e, false, network, addr, timeout)
	if err != nil {
		return fmt.Errorf("asking after session %#x: %w", e.id, err)
	}
	s.link.Lock()
	s.link.inquired = s.clock.now()
	s.link.Unlock()
	if !there {
		e.lose(errForgotten)
	}
	return nil
}

// visit attaches to a session for a moment, as one who has seen nothing, so that no server is too far behind to answer.
// It reports whether the session was there; if it is to end it, it is gone then.
func (s *Session) visit(e *era, end bool, network, addr string, timeout time.Duration) (there bool, err error) {
	c, raw, err := s.dialRaw(network, addr, timeout)
	if err != nil {
		return false, err
	}
	defer context.AfterFunc(s.ctx, func() { _ = raw.Close() })()
	defer raw.Close()
	_ = c.SetDeadline(time.Now().Add(s.opts.handshakeCap))
	if _, err := c.Write(visitFrames(e.id, e.password, e.sessionTimeout(), end)); err != nil {
		return false, err
	}
	answer, err := readFrame(c)
	if err != nil || len(answer) < 16 {
		return false, fmt.Errorf("no answer (%v)", err)
	}
	there = int64(binary.BigEndian.Uint64(answer[8:])) == e.id
	if there && end {
		if _, err := readFrame(c); err != nil {
			return false, fmt.Errorf("the server did not confirm (%w)", err)
		}
	}
	return there, nil
}

// readFrame reads one short frame.
func readFrame(r io.Reader) ([]byte, error) {
	var size [4]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(size[:])
	if n > 4096 {
		return nil, fmt.Errorf("a frame claims a length of %d bytes", n)
	}
	body := make([]byte, n)
	_, err := io.ReadFull(r, body)
	return body, err
}

// unburyLocked forgets a given-up session that is surely gone; all of them for nil.
func (s *Session) unburyLocked(e *era) {
	s.link.unburied = slices.DeleteFunc(s.link.unburied, func(u *era) bool { return e == nil || u == e })
}

func (s *Session) noteTried(addr string, err error) {
	s.link.Lock()
	defer s.link.Unlock()
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
