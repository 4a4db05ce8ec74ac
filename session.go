package zklock

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/zklock/zklock/internal/clock"
	"github.com/zklock/zklock/internal/eventlog"
	"github.com/zklock/zklock/internal/guard"
	"github.com/zklock/zklock/internal/hook"
	"github.com/zklock/zklock/internal/lease"
	"github.com/zklock/zklock/internal/link"
	"github.com/zklock/zklock/internal/node"
	"github.com/zklock/zklock/internal/reply"
	"github.com/zklock/zklock/internal/sessionkey"
)

// Session is a process's connection to the ensemble. When its ZooKeeper session expires, holds end
// with ErrLost, waiters queue again, and the Session remains usable. Its methods may be called
// concurrently.
type Session struct {
	opts    sessionOptions
	log     *eventlog.Log
	clock   *clock.Clock
	servers string // as given
	chroot  string
	link    *link.Link
	conn    *zk.Conn
	guard   *guard.Client // nil without a guard

	*sessionState
}

// sessionState is the part of a Session that changes. It is behind a pointer, because fmt's %#v
// prints the fields of a Session without their locks, and does not follow pointers.
type sessionState struct {
	feed     changeFeed // of the state's steps
	locks    lockTable
	roots    node.Notes
	trace    tracer
	file     *sessionFile // nil for none
	attached atomic.Int64 // how often the Session was attached to a server

	closing   atomic.Bool // not a sync.Once: waiting for one stops the time of a synctest bubble
	closeDone chan struct{}
}

// Connect opens a Session to the servers of a connection string, such as
// "host:port,host:port/chroot". The default port is 2181; IPv6 addresses are in brackets. Lock
// paths are relative to the chroot, which must exist (ErrNoChroot), unless WithCreateChroot is
// given.
//
// ctx bounds only the connecting: Connect returns within half a second after it ends. If the
// session timeout leaves no margin, ErrSessionTimeoutTooShort suggests another timeout. The caller
// must Close the Session.
func Connect(ctx context.Context, servers string, opts ...Option) (*Session, error) {
	fail := func(err error) (*Session, error) {
		return nil, &Error{Op: "connect", Path: servers, Err: err}
	}
	if ctx == nil {
		return fail(errNilContext)
	}
	o, hooks := newSessionOptions(opts), hook.From(ctx)
	if hooks.Lookup != nil {
		o.dial.Lookup = hooks.Lookup
	}
	if hooks.Connect != nil {
		o.dial.Connect = hooks.Connect
	}
	if err := o.check(); err != nil {
		return fail(badArgument{err})
	}
	addrs, chroot, err := parseServers(servers)
	if errors.Is(err, errCredentialsInServers) {
		servers = ""
	}
	if err != nil {
		return fail(badArgument{err})
	}
	s := &Session{
		opts: o, log: eventlog.New(o.logger), clock: clock.New(hooks.SuspendedTime), servers: servers, chroot: chroot,
		sessionState: &sessionState{closeDone: make(chan struct{})},
	}
	if s.file, err = openSessionFile(ctx, o.sessionFile, addrs, s.log); err != nil {
		s.log.Close()
		return fail(err)
	}
	s.link = link.New(s.linkOptions(addrs))
	if hooks.Unreached != nil {
		hooks.Unreached(s.link.Unreached)
	}
	s.locks.byKey = make(map[lockKey]*lockData)
	s.locks.mu.OnUnlock(s.locks.checkInvariants)
	s.trace.all, s.trace.log, s.trace.clock = o.traces, s.log, s.clock
	s.startGuard(ctx)
	if s.conn, err = s.link.Start(); err != nil {
		s.closeRest()
		return fail(err)
	}
	s.endSessionsLeft()
	if err = s.becomeReady(ctx); err != nil {
		err = s.link.Unreached(err)
		s.closeInVain()
		return fail(err)
	}
	if hooks.Key != nil {
		*hooks.Key = s.key
	}
	if hooks.File != nil && s.file != nil {
		*hooks.File = s.file.file.Dup
	}
	return s, nil
}

// becomeReady waits for the first connection, and checks what the servers granted and have.
func (s *Session) becomeReady(ctx context.Context) error {
	z, err := s.link.Attached(ctx)
	if err != nil {
		return forCaller(ctx, err)
	}
	if err := s.opts.mode.mode.Check(z.Timeout()); err != nil {
		return fmt.Errorf("the servers, by their minSessionTimeout and maxSessionTimeout, did not grant the requested %v: %w", s.opts.timeout, err)
	}
	if s.chroot != "" {
		if err := s.findChroot(ctx); err != nil {
			return err
		}
	}
	s.awaitSessionsLeft(ctx)
	return nil
}

// closeInVain closes a Session that Connect does not return. If no server responds, the client's
// Close can take longer than a second; closeInVain does not wait for that, nor for a file system
// that hangs. It first unlocks the session file, for the caller's next Connect: no lock depends on
// this Session.
func (s *Session) closeInVain() {
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		s.file.close()
		_ = s.Close()
	}()
	select {
	case <-closed:
	case <-time.After(grace):
	}
}

// linkOptions returns the options of the link, and the functions with which it reaches the locks.
func (s *Session) linkOptions(addrs []string) link.Options {
	return link.Options{
		Addrs: addrs, Dial: s.opts.dial, Timeout: s.opts.timeout, HandshakeCap: min(s.opts.timeout/3, 10*time.Second),
		Mode: s.opts.mode.mode, SASL: s.opts.sasl, Digests: s.opts.digests, Log: s.log, Clock: s.clock,
		Open: func(z *link.ZKSession) link.Inside {
			z.Longest = s.opts.juteMaxBuffer
			return node.NewZKSession(z, s.opts.maxLockNodes)
		},
		Told: func(st link.Step) {
			if st.State.Attached() {
				s.attached.Add(1)
			}
			s.feed.tell(Change{State: State(st.State), SessionID: st.Session, Server: st.Server, Time: st.Time, Err: st.Err})
		},
		Opened: func(key sessionkey.Key) { s.file.opened(key); s.guard.Opened(key) },
		Over:   func(id int64) { s.file.over(id); s.guard.Over(id) },
		Closed: s.feed.close,
	}
}

// startGuard connects to the guard. It is called before the Session connects to the servers, so
// that the guard has each ZooKeeper session before that has a node.
func (s *Session) startGuard(ctx context.Context) {
	s.guard = guard.Open(ctx, s.opts.guard, func(err error) {
		s.feed.setGuarded(err == nil)
		if err == nil {
			s.log.Info("zklock: a guard is connected", "socket", s.opts.guard)
		} else {
			s.log.Warn("zklock: no guard is connected; if this process crashes, its locks stay held for the session timeout",
				"socket", s.opts.guard, "err", err)
		}
	})
}

// closeRest closes the parts that outlive the link.
func (s *Session) closeRest() {
	s.file.close()
	s.guard.Close()
	s.log.Close()
}

// findChroot checks that the chroot exists, and creates it if WithCreateChroot is given.
func (s *Session) findChroot(ctx context.Context) error {
	var last link.LastError
	for backoff := (link.Backoff{}); ; {
		z, err := s.link.Attached(ctx)
		if err != nil {
			return last.AddTo(forCaller(ctx, err))
		}
		_, err = z.Check(ctx, s.chroot) // a quorum operation: it finds a new chroot
		if errors.Is(err, zk.ErrNoNode) && s.opts.chrootACL != nil {
			root := node.NewRoot(s.chroot, node.RootOptions{ACL: s.opts.chrootACL})
			if _, err = root.Ensure(ctx, z); !errors.Is(err, link.ErrSessionEnded) {
				return forCaller(ctx, err)
			}
		}
		switch {
		case errors.Is(err, zk.ErrNoNode):
			return fmt.Errorf("%w: create %s, or give WithCreateChroot to Connect", ErrNoChroot, s.chroot)
		case errors.Is(err, link.ErrHungUp):
			return err
		case err == nil, reply.IsRefusal(err): // it exists, although we may lack permissions
			return nil
		}
		if !z.HasEnded() {
			last.Note(err)
		}
		select {
		case <-time.After(backoff.Next()):
		case <-ctx.Done():
			return last.AddTo(ctxError(ctx))
		}
	}
}

// String returns the servers, the state, the connected server and the session id.
func (s *Session) String() string {
	z, state, server := s.connected().link.At()
	if server != "" {
		server = " to " + server
	}
	id := int64(0)
	if z != nil {
		id = z.ID
	}
	return fmt.Sprintf("Session(%s, %v%s, %#x)", s.servers, state, server, id)
}

// isConnected reports whether Connect has created the Session.
func (s *Session) isConnected() bool { return s != nil && s.link != nil }

func (s *Session) connected() *Session { return usable(s, s.isConnected(), errNoSession) }

// Changes returns a channel of the state's further changes, and of the changes of Guarded. The
// channel is closed when ctx ends or the Session is closed. A reader that is more than 64 changes
// behind misses the oldest ones.
func (s *Session) Changes(ctx context.Context) <-chan Change {
	return s.connected().feed.subscribe(ctx)
}

// Chroot returns the chroot of the connection string, or "".
func (s *Session) Chroot() string { return s.connected().chroot }

// key is only for the command, whose guardian ends the ZooKeeper session of a killed zklock. It
// returns the zero Key without a ZooKeeper session, or if this process ends that or lets it expire.
func (s *Session) key() sessionkey.Key {
	z := s.link.ZKSession()
	if z == nil || z.HasEnded() {
		return sessionkey.Key{}
	}
	return s.link.Key(z)
}

// Conn returns the ZooKeeper client's connection, for other requests in the same ZooKeeper session.
// Its paths are absolute. Do not Close it or call AddAuth (use WithDigest or WithSASL). Do not
// print it: fmt shows the session's password.
//
// Requests fail with zk.ErrConnectionClosed when the Session leaves an unresponsive server.
//
// The Session ends its ZooKeeper session when the lease of a hold ends, or when no server has
// replied for longer than the session timeout. That deletes ephemeral nodes of Conn, too: to keep
// them, create them through a second Session.
func (s *Session) Conn() *zk.Conn { return s.connected().conn }

// Close ends all holds and all waiting calls with ErrClosed. Then it ends the ZooKeeper session,
// which deletes the lock nodes. Without a responsive server, the nodes remain until the session
// timeout has passed.
//
// Close waits for all goroutines of the Session except calls of a Trace: at most 4 s, or half a
// second more if the file system of WithSessionFile hangs, unless a dialer or SASL mechanism takes
// longer. It may be called again.
func (s *Session) Close() error {
	if !s.isConnected() {
		return &Error{Op: "close", Err: errNoSession}
	}
	if !s.closing.CompareAndSwap(false, true) {
		<-s.closeDone
		return nil
	}
	s.loseIfLate() // a hold that was lost before Close ends with ErrLost alone
	s.link.End(ErrClosed)
	s.closeRest()
	close(s.closeDone)
	return nil
}

// forCaller returns the error for the caller of a request. If the context has ended, it adds the
// last response to the request and, if no server can be reached, the result of each dial.
func (s *Session) forCaller(ctx context.Context, err error, last *link.LastError) error {
	if err == link.ErrCtxEnded {
		return s.link.Unreached(last.AddTo(ctxError(ctx)))
	}
	return err
}

// tryLimit returns how long a try waits for responses: two heartbeats. If no request can be sent,
// it returns the error with which the try fails at once.
func (s *Session) tryLimit() (time.Duration, error) {
	z, _, err := s.link.AttachedNow()
	switch {
	case err != nil:
		return 0, err
	case z != nil:
		return 2 * lease.Heartbeat(z.Timeout()), nil
	}
	return 0, s.link.Unreached(ErrNotConnected)
}

// loseIfLate ends the current ZooKeeper session if the lease of a hold has ended.
func (s *Session) loseIfLate() {
	if z := s.link.ZKSession(); z != nil {
		z.LoseIfLate(s.clock.Now())
	}
}

// LeaseMode selects the replies that renew the lease, and so how long a hold lasts: docs/lease.md.
type LeaseMode struct{ mode lease.Mode }

// QuorumLease, the default, counts a reply only if the client sent a write at least leaderPing
// later and it succeeded: a follower that is cut off from the leader cannot renew the lease.
// leaderPing is the longest time between the leader's pings to a follower. Zero means 4 s, two
// ticks of ZooKeeper's default tickTime; for another tickTime, give two ticks.
func QuorumLease(leaderPing time.Duration) LeaseMode {
	if leaderPing == 0 {
		leaderPing = 4 * time.Second // the leader pings every half tick
	}
	return LeaseMode{lease.Quorum(leaderPing)}
}

// SingleServerLease counts every reply. It is safe only with one server: in an ensemble, it
// notifies a partitioned holder too late.
func SingleServerLease() LeaseMode { return LeaseMode{lease.SingleServer()} }

// String returns the mode and its duration.
func (m LeaseMode) String() string { return m.mode.String() }

// Margin returns the longest outage that is guaranteed to end no hold, at the default heartbeat
// (WithHeartbeat). Connect requires a positive margin.
func (m LeaseMode) Margin(sessionTimeout time.Duration) time.Duration {
	return m.mode.Room(sessionTimeout)
}

// Stats returns the current state and numbers, without a request: it is good for a health check.
func (s *Session) Stats() Stats {
	s.connected().loseIfLate()
	z, state, server := s.link.At()
	st := Stats{State: State(state), Server: server, Reconnects: max(0, int(s.attached.Load())-1), Guarded: s.feed.guarded(),
		MaxLockNodes: s.opts.maxLockNodes}
	st.Waiting, st.Held, st.Lost = s.locks.count()
	st.Unconfirmed = int(s.locks.unconfirmed.Load())
	st.SessionsEnded, st.SessionFileErrors = s.file.count()
	if z != nil {
		st.SessionID, st.SessionTimeout = z.ID, z.Timeout()
		st.Deleting = z.Inside.(*node.ZKSession).Reaper.Deleting()
		if st.Held > 0 {
			st.LeaseLeft = max(0, z.LeaseEnd().Sub(s.clock.Now()))
		}
	}
	return st
}
