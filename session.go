package zklock

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/zklock/internal/clock"
	"github.com/zklock/zklock/internal/tap"
)

// Session is one ZooKeeper connection: its state, its lease, and the locks that are held and waited for over it. It
// goes on when a ZooKeeper session expires: holds end with ErrLost, waiters queue again in the next one. All its
// methods may be called from any goroutine.
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
	closing   atomic.Bool // not a sync.Once: who waits for that keeps the virtual time of a synctest bubble from passing
	closeDone chan struct{}
}

// Connect opens a connection to the ensemble that the connection string names, as Java clients write it:
// "host:port,host:port/chroot", the port 2181 where none is given, IPv6 addresses in brackets. Paths given to NewMutex
// are below the chroot.
//
// It returns when there is a ZooKeeper session, or with an error that says what was tried when ctx ends, at the latest half
// a second after; what is left of the try then ends by itself. ctx bounds the connecting only. A configuration whose lease has no room in the session timeout gives ErrNoRoom, with numbers.
// The caller must Close the Session.
func Connect(ctx context.Context, servers string, opts ...Option) (*Session, error) {
	fail := func(err error) (*Session, error) {
		return nil, &Error{Op: "connect", Path: servers, Err: err}
	}
	if ctx == nil {
		return fail(errors.New("nil context"))
	}
	o := newSessionOptions(opts)
	if err := o.check(); err != nil {
		return fail(err)
	}
	addrs, chroot, err := parseServers(servers)
	if errors.Is(err, errCredentialsInServers) {
		servers = ""
	}
	if err != nil {
		return fail(err)
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
	if err == nil {
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

// Format prints the servers, the state and the ZooKeeper session's id, in one line for every verb. Nothing else of a
// Session is printed, no credentials above all.
func (s *Session) Format(f fmt.State, verb rune) { printAs(f, verb, s.words()) }

// LogValue is what Format prints, for log/slog.
func (s *Session) LogValue() slog.Value { return slog.StringValue(s.words()) }

func (s *Session) words() string {
	return fmt.Sprintf("Session(%s, %v, %#x)", s.servers, s.State(), s.SessionID())
}

// State returns the state as it is now.
func (s *Session) State() State {
	_, _, _, state := s.link.now()
	return state
}

// Changes returns the steps of the state from now on, in order; State already shows a step when it arrives. The
// channel closes when ctx ends or the Session is closed. It holds 64 steps; of a reader that is further behind than
// that, the oldest are dropped.
func (s *Session) Changes(ctx context.Context) <-chan Change { return s.link.feed.subscribe(ctx) }

// Deadline returns until when the ZooKeeper session is surely alive, with no further news; the zero time if there is
// none. While nothing is held it is not renewed, and may lie in the past.
func (s *Session) Deadline() time.Time {
	if e := s.link.era(); e != nil {
		return s.clock.Wall(e.leaseEnd())
	}
	return time.Time{}
}

// Timeout returns the session timeout that the servers granted, the smallest one that they did in this ZooKeeper session; zero if there is no ZooKeeper session now.
func (s *Session) Timeout() time.Duration {
	if e := s.link.era(); e != nil {
		return e.sessionTimeout()
	}
	return 0
}

// SessionID returns the id of the current ZooKeeper session; zero if there is none now.
func (s *Session) SessionID() int64 {
	if e := s.link.era(); e != nil {
		return e.id
	}
	return 0
}

// Conn returns the connection, for everything else over the same session. It has no chroot: its paths are absolute.
// Do not Close it, close the Session; do not AddAuth, use WithAuth. Its requests fail with zk.ErrConnectionClosed also when
// the Session leaves a server that is silent while something is held or waited for. Do not print it: with fmt it
// shows the password of the ZooKeeper session, with which anybody who reaches the servers can end that session.
//
// When the lease ends over a hold, the Session gives the ZooKeeper session up and ends it at the servers. Ephemeral nodes
// that were made over Conn go with it, although nothing may have been wrong with them, and Changes tells of Lost. For
// ephemerals that should not depend on a lock, use a Session of their own.
func (s *Session) Conn() *zk.Conn { return s.conn }

// Close ends every hold and every wait with ErrClosed, ends the ZooKeeper session, with which all its lock nodes go,
// and returns when the last goroutine of the Session has ended: after 4 s at the latest, also when no server answers, unless
// a dialer that was given with WithDialer takes longer to return.
// The lock nodes then stay until the session timeout has passed at the servers. Close may be called more than once.
func (s *Session) Close() error {
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

// watchClient drains the client's event channel, whose events can be lost (WithEventCallback's are not), and sees by
// its closing that the client has ended.
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

// lateLook is how late the loop may see the end of a server's silence and believe it.
const lateLook = 100 * time.Millisecond

// loop owns the beat, the lease's timer, and the look for servers that are silent or away. It ends when the state is Closed.
func (s *Session) loop() {
	defer close(s.loopDone)
	beat := time.NewTimer(0)
	defer beat.Stop()
	expiry := time.NewTimer(time.Hour)
	defer expiry.Stop()
	var lastBeat clock.Instant // when the last one was sent
	var doubled int            // how often in a row a connection was given up because its server was silent
	var doubted clock.Instant  // an end of a server's silence that was seen late, and is looked at once more
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
			s.log.warn("zklock: no server has taken the session in", "for", d.Round(time.Second), "tried", s.link.dials.whatWasTried())
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
		if t.AnswersWithin(h) {
			doubled = 0
		}
		if heard, asked, owes := t.Silence(); owes && (held > 0 || busy) && !s.opts.endOnSuspend && s.link.dials.alternatives() {
			ends := silenceEnds(heard, asked, h, held > 0, doubled)
			if now.Sub(ends) > lateLook && doubted != ends {
				// It is we who were silent: the process was paused. What came meanwhile may not be read yet.
				doubted, ends = ends, now.Add(lateLook)
			}
			if now >= ends {
				doubled++
				s.log.warn("zklock: the server is silent; trying another", "server", t.RemoteAddr().String(),
					"session", fmt.Sprintf("%#x", e.id), "for", now.Sub(heard).Round(time.Millisecond))
				t.Cut()
				continue // we are woken
			}
			due = min(due, ends)
		}
		beat.Reset(max(due.Sub(now), time.Millisecond))
	}
}
