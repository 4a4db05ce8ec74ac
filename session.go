package zklock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/zklock/zklock/internal/clock"
	"github.com/zklock/zklock/internal/eventlog"
	"github.com/zklock/zklock/internal/hook"
	"github.com/zklock/zklock/internal/lease"
	"github.com/zklock/zklock/internal/link"
	"github.com/zklock/zklock/internal/reply"
	isasl "github.com/zklock/zklock/internal/sasl"
	"github.com/zklock/zklock/internal/sessionkey"
	"github.com/zklock/zklock/sasl"
)

// Session is one ZooKeeper connection: its state, its lease, and the locks that are held and waited for over it. A Session
// goes on when its ZooKeeper session expires: holds end with ErrLost, and waiters queue again in the next ZooKeeper
// session. All its methods may be called from any goroutine.
type Session struct {
	opts    sessionOptions
	log     *eventlog.Log
	clock   *clock.Clock
	servers string // as given
	chroot  string
	link    *link.Link
	conn    *zk.Conn

	*sessionState
}

// sessionState is the part of a Session that changes. A pointer leads to it, because fmt's %#v prints the
// fields of a Session without their locks, and follows no pointer.
type sessionState struct {
	feed     changeFeed // of the state's steps
	locks    lockTable
	roots    roots
	trace    tracer
	attached atomic.Int64 // how often it was

	closing   atomic.Bool // not a sync.Once: while a goroutine waits for one, the virtual time of a synctest bubble stands still
	closeDone chan struct{}
}

// Connect opens a connection to the ensemble that the connection string names, as Java clients write it:
// "host:port,host:port/chroot". The port is 2181 unless given; IPv6 addresses stand in brackets. Paths given to NewMutex
// are below the chroot, which must be there: otherwise the error is ErrNoChroot, unless WithCreateChroot is given.
//
// Connect returns when it has a ZooKeeper session. If ctx ends before, Connect returns within half
// a second, with an error that says what it tried; the rest of the try ends by itself. ctx bounds
// the connecting only. If the lease has no room in the session timeout, the error is
// ErrSessionTimeoutTooShort, and says what would do. The caller must Close the Session.
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
	s.link = link.New(s.linkOptions(addrs))
	if hooks.Unreached != nil {
		hooks.Unreached(s.link.Unreached)
	}
	s.locks.byKey = make(map[lockKey]*lockData)
	s.locks.mu.OnUnlock(s.locks.check)
	s.trace.all, s.trace.log, s.trace.clock = o.traces, s.log, s.clock

	if s.conn, err = s.link.Start(); err != nil {
		s.log.Close()
		return fail(err)
	}
	z, err := s.link.Attached(ctx)
	if err = forCaller(ctx, err); err == nil {
		err = o.mode.mode.Check(z.Timeout())
		if err != nil {
			err = fmt.Errorf("the servers, by their minSessionTimeout and maxSessionTimeout, did not grant the %v asked for: %w", o.timeout, err)
		}
	}
	if err == nil && chroot != "" {
		err = s.findChroot(ctx)
	}
	if err == nil {
		if hooks.Key != nil {
			*hooks.Key = s.key
		}
		return s, nil
	}
	err = s.link.Unreached(err)
	s.closeInVain()
	return fail(err)
}

// closeInVain closes a Session that nobody will have. The client's Close can take a second and more where no server answers, so
// closeInVain returns before it if need be.
func (s *Session) closeInVain() {
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		_ = s.Close()
	}()
	select {
	case <-closed:
	case <-time.After(grace):
	}
}

// linkOptions returns what the link takes of the options, and how it reaches the locks.
func (s *Session) linkOptions(addrs []string) link.Options {
	return link.Options{
		Addrs: addrs, Dial: s.opts.dial, Timeout: s.opts.timeout, HandshakeCap: min(s.opts.timeout/3, 10*time.Second),
		Mode: s.opts.mode.mode, SASL: s.opts.sasl, Digests: s.opts.digests, Log: s.log, Clock: s.clock,
		Open: func(z *link.ZKSession) link.Inside {
			z.Longest = s.opts.juteMaxBuffer
			return newZKSession(z, s.opts.maxLockNodes)
		},
		Told: func(st link.Step) {
			if st.State.Attached() {
				s.attached.Add(1)
			}
			s.feed.tell(Change{State(st.State), st.Session, st.Server, st.Time, st.Err})
		},
		Closed: s.feed.close,
	}
}

// findChroot looks for the chroot, and makes it if it may.
func (s *Session) findChroot(ctx context.Context) error {
	var last link.LastError
	for backoff := (link.Backoff{}); ; {
		z, err := s.link.Attached(ctx)
		if err != nil {
			return last.AddTo(forCaller(ctx, err))
		}
		_, err = z.Check(ctx, s.chroot) // a quorum operation: it sees a chroot that was just made
		if errors.Is(err, zk.ErrNoNode) && s.opts.chrootACL != nil {
			root := lockRoot{path: s.chroot, acl: s.opts.chrootACL}
			if _, err = root.ensure(ctx, z); !errors.Is(err, link.ErrSessionEnded) {
				return forCaller(ctx, err)
			}
		}
		switch {
		case errors.Is(err, zk.ErrNoNode):
			return errNoChroot(s.chroot)
		case errors.Is(err, link.ErrHungUp):
			return err
		case err == nil, reply.IsRefusal(err): // it is there, if perhaps not for us
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

// String returns the servers, the state, the server that the Session is attached to, and the ZooKeeper session's id, in one line.
func (s *Session) String() string {
	state, server := s.connected().link.At()
	if server != "" {
		server = " to " + server
	}
	return fmt.Sprintf("Session(%s, %v%s, %#x)", s.servers, state, server, s.SessionID())
}

// isConnected says whether Connect has made the Session.
func (s *Session) isConnected() bool { return s != nil && s.link != nil }

// connected is for methods that return no error.
func (s *Session) connected() *Session {
	if !s.isConnected() {
		panic(fmt.Errorf("zklock: %w", errNoSession))
	}
	return s
}

// State returns the state as it is now.
func (s *Session) State() State {
	return State(s.connected().link.State())
}

// Changes returns the steps of the state from now on, in order. When a step arrives, State already shows it. The channel
// closes when ctx ends or the Session is closed. It holds 64 steps: a reader that is further behind misses the oldest.
func (s *Session) Changes(ctx context.Context) <-chan Change {
	return s.connected().feed.subscribe(ctx)
}

// Timeout returns the session timeout that the servers granted: the smallest one in this ZooKeeper session. It is zero if
// there is no ZooKeeper session now.
func (s *Session) Timeout() time.Duration {
	if z := s.connected().link.ZKSession(); z != nil {
		return z.Timeout()
	}
	return 0
}

// Chroot returns the chroot of the connection string, and "" if it has none. Where zklock gives absolute paths, as Hold.Node and
// Sequencer do, they begin with it.
func (s *Session) Chroot() string { return s.connected().chroot }

// SessionID returns the id of the current ZooKeeper session, or zero if there is none now.
func (s *Session) SessionID() int64 {
	if z := s.connected().link.ZKSession(); z != nil {
		return z.ID
	}
	return 0
}

// key is for the command alone, whose guardian ends the session of a zklock that was killed. It returns the zero Key if there
// is no ZooKeeper session now, or if it was given up: that one we end ourselves, or leave to expire.
func (s *Session) key() sessionkey.Key {
	z := s.link.ZKSession()
	if z == nil || z.HasEnded() {
		return sessionkey.Key{}
	}
	servers, _, _ := parseServers(s.servers) // Connect has taken them
	return sessionkey.Key{ID: z.ID, Password: slices.Clone(z.Password.Reveal()), Timeout: z.Timeout(), Servers: servers}
}

// Conn returns the ZooKeeper client's connection, for everything else over the same session. It has no chroot: its paths
// are absolute. Do not Close it: close the Session. Do not call AddAuth: use WithDigest or WithSASL. Do not print it: with fmt it shows
// the password of the ZooKeeper session, and anybody who has the password and reaches the servers can end the session.
//
// While something is held or waited for, the Session leaves a server that is silent, and, while something is held, one that responds
// to two heartbeats with an error. Requests over Conn then fail with zk.ErrConnectionClosed. So may one that takes longer than two heartbeats, a fifth of the session timeout, to send: nothing is
// answered meanwhile. An answer of more than 64 MiB is left out: the error is the client's "unknown error: 1".
//
// When the lease ends over a hold, or no server has answered for longer than the session timeout, the Session gives the ZooKeeper
// session up and ends it at the servers; Changes tells of Lost. Ephemeral nodes that were made over Conn go with that session,
// although nothing may have been wrong with them. For ephemerals that should not depend on a lock, use another Session.
func (s *Session) Conn() *zk.Conn { return s.connected().conn }

// Close ends every hold and every wait with ErrClosed. It ends the ZooKeeper session, and all its lock nodes go with it, even if
// the servers hear us and we do not hear them. If no server can be reached, or the one that the Session is attached to is dark, the
// nodes stay until the session timeout has passed there.
//
// Close returns when the last goroutine of the Session has ended, but for functions of a Trace.
// That takes 4 s at most, even if no server answers, unless the dialer of WithDialer or the
// mechanism of WithSASL takes longer to return. Close may be called more than once. The dialer, the
// mechanism and the functions of WithTLS's configuration must not call it: it would wait for its
// own caller, and never return.
func (s *Session) Close() error {
	if !s.isConnected() {
		return &Error{Op: "close", Err: errNoSession}
	}
	if !s.closing.CompareAndSwap(false, true) {
		<-s.closeDone
		return nil
	}
	s.loseIfLate() // what was lost before was lost, and not closed
	s.link.End(ErrClosed)
	s.log.Close()
	close(s.closeDone)
	return nil
}

// forCaller returns an error as the caller of a request is to see it. If the context has ended, the last response to the request is added,
// and what came of each dial if no server can be reached.
func (s *Session) forCaller(ctx context.Context, err error, last *link.LastError) error {
	if err == link.ErrCtxEnded {
		return s.link.Unreached(last.AddTo(ctxError(ctx)))
	}
	return err
}

// tryLimit returns how long a try waits for its answers: two heartbeats. While nothing can be sent, it returns the error that
// the try gets at once.
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

// loseIfLate ends the current ZooKeeper session if a hold is past its lease.
func (s *Session) loseIfLate() {
	if z := s.link.ZKSession(); z != nil {
		z.LoseIfLate(s.clock.Now())
	}
}

// LeaseMode says what a Session takes as proof that its ZooKeeper session is alive, and so how long a hold may be relied
// on. docs/lease.md helps to choose.
type LeaseMode struct{ mode lease.Mode }

// defaultLeaderPing is two ticks of ZooKeeper's default tickTime. The leader pings every half tick.
const defaultLeaderPing = 4 * time.Second

// QuorumLease is the default mode. An exchange counts only if it was answered long enough before a
// successful quorum operation. So no follower that is cut off from the leader, and no deposed
// leader, can reassure a holder. The mode is sound if the leader pings each healthy follower at
// least every leaderPing; zero means 4 s, two ticks of ZooKeeper's default tickTime. A client
// cannot read the servers' tickTime: if it is not 2 s, give two ticks.
func QuorumLease(leaderPing time.Duration) LeaseMode {
	if leaderPing == 0 {
		leaderPing = defaultLeaderPing
	}
	return LeaseMode{lease.Quorum(leaderPing)}
}

// SingleServerLease takes every answer as a proof. It is sound with one server. With an ensemble, a holder that is connected
// to a server without quorum learns of the loss too late.
func SingleServerLease() LeaseMode { return LeaseMode{lease.SingleServer()} }

// String spells the mode and its duration, for people.
func (m LeaseMode) String() string {
	return m.mode.String()
}

// LeaseMargin returns the longest outage that is guaranteed to end no hold, with this lease mode and session timeout, unless
// WithHeartbeat is given. If it is zero or less, Connect refuses the pair.
func LeaseMargin(mode LeaseMode, sessionTimeout time.Duration) time.Duration {
	return mode.mode.Room(sessionTimeout)
}

// WithSASL has the Session prove its identity by SASL, on every connection, before anything else is
// asked on it; by default it does not.
//
// If the server rejects the credentials on the first connection, Connect returns ErrAuthFailed at
// once, whatever other servers may say. After that a rejection is an ERROR in the log: the Session
// tries the other servers, and asks the mechanism for credentials again at each connection. Holds
// last as long as their lease, and are then lost with ErrAuthFailed among the reasons if all
// servers reject. A server that does not answer in time, or has no SASL or not this mechanism, is
// left for the next one, with growing pauses, up to 30 s, if none is better. Given twice, the last
// mechanism counts.
//
// ZooKeeper's ACLs then know the Session as sasl:USER, and zk.AuthACL takes that along (WithACL). SASL adds its round trips to each connection,
// two of sasl.DigestMD5, and so to the time from a lost connection to the first answer on the next. A Session that was given up, and hears
// no answer, cannot end its ZooKeeper session at a server that wants SASL: that expires.
// The mechanism must not call Session.Close (see sasl.Mechanism).
func WithSASL(mechanism sasl.Mechanism) Option {
	return func(o *sessionOptions) {
		if mechanism == nil {
			o.wrong = errors.New("WithSASL(nil): give sasl.DigestMD5(user, password), or leave the option out")
			return
		}
		if checked, ok := mechanism.(interface{ Check() error }); ok && checked.Check() != nil {
			o.wrong = checked.Check()
		}
		o.sasl = startWith(mechanism)
	}
}

// startWith is the mechanism as the packages below take it. It is in a closure, where no printer
// finds its secrets (R71).
func startWith(m sasl.Mechanism) isasl.Start {
	return func(ctx context.Context, addr string) (isasl.Exchange, error) {
		var session sasl.Exchange
		begin := isasl.Begin(func(ctx context.Context, addr string) (next isasl.Step, first []byte, err error) {
			session, first, err = m.Authenticate(ctx, addr)
			switch {
			case err != nil:
				return nil, nil, fmt.Errorf("%s: %w", m.Name(), err)
			case session == nil:
				return nil, nil, fmt.Errorf("%s: Authenticate returned neither a session nor an error", m.Name())
			}
			return func(challenge []byte) (bool, []byte, error) {
				done, next, err := session.Challenge(challenge)
				if err != nil {
					err = fmt.Errorf("%s: %w", m.Name(), err)
				}
				return done, next, err
			}, first, nil
		})
		exchange, err := begin.Start(ctx, addr)
		return exchange.Notifying(session), err
	}
}

// Stats is a Session in numbers.
type Stats struct {
	State      State
	Server     string        // that it is attached to, host:port; "" if to none
	Reconnects int           // how often it has been attached again, in the same ZooKeeper session or in a new one
	LeaseLeft  time.Duration // how long the holds may be relied on if no further answer comes; 0 if nothing is held

	Waiting  int // acquires under way, without those that wait for another call of their owner
	Held     int // holds that stand: one that is re-entered counts once, and all permits of a call as one
	Lost     int // holds that were lost and have a handle that nobody has released: work may go on under them
	Deleting int // deletions of lock nodes that no server has confirmed
}

// Stats returns the numbers as they are now. It sends nothing.
func (s *Session) Stats() Stats {
	s.connected().loseIfLate()
	st := Stats{State: s.State(), Server: s.link.Server(), Reconnects: max(0, int(s.attached.Load())-1)}
	st.Waiting, st.Held, st.Lost = s.locks.count()
	if z := s.link.ZKSession(); z != nil {
		st.Deleting = z.Inside.(*zkSession).reaper.Deleting()
		if st.Held > 0 {
			st.LeaseLeft = max(0, z.LeaseEnd().Sub(s.clock.Now()))
		}
	}
	return st
}

func (t *lockTable) count() (waiting, held, lost int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, d := range t.byKey {
		switch {
		case d.acquiring != nil:
			waiting++
		case d.isHeldLocked():
			held++
		default:
			lost++
		}
	}
	return waiting, held, lost
}
