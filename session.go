package zklock

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/zklock/internal/clock"
	"github.com/zklock/zklock/internal/hook"
	"github.com/zklock/zklock/internal/sessionkey"
	"github.com/zklock/zklock/internal/tap"
)

// Session is one ZooKeeper connection: its state, its lease, and the locks that are held and waited for over it. A Session
// goes on when its ZooKeeper session expires: holds end with ErrLost, and waiters queue again in the next ZooKeeper
// session. All its methods may be called from any goroutine.
type Session struct {
	opts    sessionOptions
	log     *eventLog
	clock   *clock.Clock
	servers string // as given
	chroot  string
	link    *link
	conn    *zk.Conn
	locks   lockTable
	roots   roots

	loopDone  chan struct{}
	closing   atomic.Bool // not a sync.Once: while a goroutine waits for one, the virtual time of a synctest bubble stands still
	closeDone chan struct{}
}

// Connect opens a connection to the ensemble that the connection string names, as Java clients write it:
// "host:port,host:port/chroot". The port is 2181 unless given; IPv6 addresses stand in brackets. Paths given to NewMutex
// are below the chroot, which must be there: otherwise the error is ErrNoChroot, unless WithCreateChroot is given.
//
// Connect returns when it has a ZooKeeper session. If ctx ends before, Connect returns within half a second, with an error
// that says what it tried; the rest of the try ends by itself. ctx bounds the connecting only. If the lease has no room in
// the session timeout, the error is ErrNoRoom, with the numbers. The caller must Close the Session.
func Connect(ctx context.Context, servers string, opts ...Option) (*Session, error) {
	fail := func(err error) (*Session, error) {
		return nil, &Error{Op: "connect", Path: servers, Err: err}
	}
	if ctx == nil {
		return fail(errNilContext)
	}
	o, hooks := newSessionOptions(opts), hook.From(ctx)
	if hooks.SuspendedTime != nil {
		o.suspendedTime = hooks.SuspendedTime
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
	clk := clock.New(o.suspendedTime)
	s := &Session{
		opts: o, log: newEventLog(o.logger), clock: clk, servers: servers, chroot: chroot,
		loopDone: make(chan struct{}), closeDone: make(chan struct{}),
	}
	s.link = newLink(&s.opts, s.log, clk, addrs)
	s.locks.byKey = make(map[lockKey]*lockData)

	conn, events, err := zk.Connect(addrs, o.timeout,
		zk.WithDialer(s.link.dial), zk.WithHostProvider(s.link.dials.hosts), zk.WithEventCallback(s.link.clientEvent),
		zk.WithLogger(s.log), zk.WithMaxBufferSize(tap.MaxReply))
	if err != nil {
		s.link.dials.close()
		s.log.close()
		return fail(err)
	}
	s.conn = conn
	s.link.work.Add(1)
	go s.watchClient(events)
	go s.loop()

	e, err := s.link.attachedEra(ctx)
	if err == nil {
		err = o.mode.check(e.sessionTimeout())
		if err != nil {
			err = fmt.Errorf("the servers granted another session timeout than the %v asked for: %w", o.timeout, err)
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
	if tried := s.link.dials.whatWasTried(); tried != "" {
		err = fmt.Errorf("%w; tried %s", err, tried)
	}
	// The client's Close can take a second and more where no server answers.
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		_ = s.Close()
	}()
	select {
	case <-closed:
	case <-time.After(grace * 4 / 5):
	}
	return fail(err)
}

// findChroot looks for the chroot, and makes it if it may.
func (s *Session) findChroot(ctx context.Context) error {
	for backoff := newBackoff(); ; {
		e, err := s.link.attachedEra(ctx)
		if err != nil {
			return err
		}
		_, err = e.check(ctx, s.chroot) // a quorum operation: it sees a chroot that was just made
		if errors.Is(err, zk.ErrNoNode) && s.opts.chrootACL != nil {
			root := lockRoot{path: s.chroot, acl: s.opts.chrootACL}
			if err = root.make(ctx, e); !errors.Is(err, errEraOver) {
				return err
			}
		}
		switch {
		case errors.Is(err, zk.ErrNoNode):
			return errNoChroot(s.chroot)
		case err == nil, isRefusal(err): // it is there, if perhaps not for us
			return nil
		}
		select {
		case <-time.After(backoff.next()):
		case <-ctx.Done():
			return ctxError(ctx)
		}
	}
}

// String returns the servers, the state and the ZooKeeper session's id, in one line.
func (s *Session) String() string {
	return fmt.Sprintf("Session(%s, %v, %#x)", s.connected().servers, s.State(), s.SessionID())
}

// GoString returns what String returns. Without it, %#v would read fields without their locks.
func (s *Session) GoString() string { return s.String() }

// LogValue returns what String returns, for log/slog.
func (s *Session) LogValue() slog.Value { return slog.StringValue(s.String()) }

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
	_, _, _, state := s.connected().link.now()
	return state
}

// Changes returns the steps of the state from now on, in order. When a step arrives, State already shows it. The channel
// closes when ctx ends or the Session is closed. It holds 64 steps: a reader that is further behind misses the oldest.
func (s *Session) Changes(ctx context.Context) <-chan Change {
	return s.connected().link.feed.subscribe(ctx)
}

// Deadline returns the time up to which the ZooKeeper session is surely alive if no further answer comes. It is the zero
// time if there is no ZooKeeper session. While nothing is held, nothing renews it, and it may lie in the past.
func (s *Session) Deadline() time.Time {
	if e := s.connected().link.era(); e != nil {
		return s.clock.Wall(e.leaseEnd())
	}
	return time.Time{}
}

// Timeout returns the session timeout that the servers granted: the smallest one in this ZooKeeper session. It is zero if
// there is no ZooKeeper session now.
func (s *Session) Timeout() time.Duration {
	if e := s.connected().link.era(); e != nil {
		return e.sessionTimeout()
	}
	return 0
}

// SessionID returns the id of the current ZooKeeper session, or zero if there is none now.
func (s *Session) SessionID() int64 {
	if e := s.connected().link.era(); e != nil {
		return e.id
	}
	return 0
}

// key is for the command alone, whose guardian ends the session of a zklock that was killed. It returns the zero Key if there
// is no ZooKeeper session now, or if it was given up: that one we end ourselves, or leave to expire.
func (s *Session) key() sessionkey.Key {
	e := s.link.era()
	if e == nil || e.isOver() {
		return sessionkey.Key{}
	}
	servers, _, _ := parseServers(s.servers) // Connect has taken them
	return sessionkey.Key{ID: e.id, Password: slices.Clone(e.password.reveal()), Timeout: e.sessionTimeout(), Servers: servers}
}

// Conn returns the ZooKeeper client's connection, for everything else over the same session. It has no chroot: its paths
// are absolute. Do not Close it: close the Session. Do not call AddAuth: use WithDigest. Do not print it: with fmt it shows
// the password of the ZooKeeper session, and anybody who has the password and reaches the servers can end the session.
//
// While something is held or waited for, the Session leaves a server that is silent. Requests over Conn then fail with
// zk.ErrConnectionClosed. So may one that takes longer than two heartbeats, a fifth of the session timeout, to send: nothing is
// answered meanwhile.
//
// When the lease ends over a hold, the Session gives the ZooKeeper session up and ends it at the servers; Changes tells of
// Lost. Ephemeral nodes that were made over Conn go with that session, although nothing may have been wrong with them. For
// ephemerals that should not depend on a lock, use another Session.
func (s *Session) Conn() *zk.Conn { return s.connected().conn }

// Close ends every hold and every wait with ErrClosed. It ends the ZooKeeper session, and all its lock nodes go with it. If
// no server answers, the nodes stay until the session timeout has passed at the servers.
//
// Close returns when the last goroutine of the Session has ended. That takes 4 s at most, even if no server answers, unless
// the dialer of WithDialer takes longer to return. Close may be called more than once.
func (s *Session) Close() error {
	if !s.isConnected() {
		return &Error{Op: "close", Err: errNoSession}
	}
	if !s.closing.CompareAndSwap(false, true) {
		<-s.closeDone
		return nil
	}
	s.link.close(ErrClosed)
	s.conn.Close()
	if _, t, _, _ := s.link.now(); t != nil {
		t.Cut()
	}
	s.link.work.Wait()
	<-s.loopDone
	s.log.close()
	close(s.closeDone)
	return nil
}

// watchClient drains the client's event channel. The channel can lose events (the event callback cannot), so they are
// ignored; but it closes when the client has ended.
func (s *Session) watchClient(events <-chan zk.Event) {
	defer s.link.work.Done()
	for range events {
	}
	s.link.close(errConnClosed)
}

// loseIfLate ends the current ZooKeeper session if a hold is past its lease.
func (s *Session) loseIfLate() {
	if e := s.link.era(); e != nil {
		e.loseIfLate(s.clock.Now())
	}
}

// loop owns the beat and the lease's timer, and looks for servers that are silent or away. It ends when the state is Closed.
func (s *Session) loop() {
	defer close(s.loopDone)
	beat := time.NewTimer(0)
	defer beat.Stop()
	expiry := time.NewTimer(time.Hour)
	defer expiry.Stop()
	var lastBeat clock.Instant // when the last beat was sent
	var quiet silence
	var out outage
	for {
		select {
		case <-s.link.wake:
		case <-beat.C:
		case <-expiry.C:
		}

		e, t, conn, state := s.link.now()
		if state == Closed {
			return
		}
		now := s.clock.Now()
		next := out.nextLook(now, conn != 0, func(d time.Duration) {
			s.log.warn("zklock: no server has accepted the session", "for", d.Round(time.Second), "tried", s.link.dials.whatWasTried())
		})
		if e == nil {
			beat.Reset(max(next.Sub(now), time.Millisecond))
			expiry.Reset(time.Hour)
			continue
		}
		held, queued, busy, end := e.plan()
		if held > 0 {
			if e.loseIfLate(now); e.isOver() {
				continue // we are woken
			}
			expiry.Reset(end.Sub(now) + time.Millisecond)
		} else {
			expiry.Reset(time.Hour)
		}
		h := heartbeat(e.sessionTimeout())
		interval := idleRead(e.sessionTimeout())
		if held > 0 || queued > 0 {
			interval = h
		}
		due := lastBeat.Add(interval)
		if e.beatNow(conn) {
			due = now
		}
		if conn != 0 && now >= due {
			if e.beat(conn) {
				lastBeat = now
			}
			due = now.Add(interval)
		}
		if conn == 0 {
			beat.Reset(max(min(next, now.Add(interval)).Sub(now), time.Millisecond))
			continue
		}
		if heard, asked, owes := t.Silence(); owes && (held > 0 || busy) && s.link.dials.alternatives() {
			leave, look := quiet.look(now, heard, asked, h, held > 0)
			if leave {
				s.log.warn("zklock: the server is silent; trying another", "server", t.RemoteAddr().String(),
					"session", fmt.Sprintf("%#x", e.id), "for", now.Sub(heard).Round(time.Millisecond))
				t.Cut()
				continue // we are woken
			}
			due = min(due, look)
		}
		beat.Reset(max(due.Sub(now), time.Millisecond))
	}
}
