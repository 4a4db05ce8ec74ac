package zklock

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/zklock/internal/lastzxid"
)

// grace is how long a call whose context has ended waits for its clean-up to be confirmed (I6).
const grace = 500 * time.Millisecond

// Session is one ZooKeeper connection: its state, its lease, and the locks that are held and waited for over it. It
// goes on when a ZooKeeper session expires: holds end with ErrLost, waiters queue again in the next one. All its
// methods may be called from any goroutine.
type Session struct {
	opts    sessionOptions
	log     *eventLog
	clock   *clock
	servers string // as given
	chroot  string
	hosts   *hosts
	names   names
	conn    *zk.Conn
	zxid    lastzxid.Seen   // kept in the client's place
	ctx     context.Context // ends when the Session is shut: for dials, which the client cannot break off
	cancel  context.CancelFunc
	locks   lockTable

	// link is the connection as the client's goroutines report it. Waiting for it is waiting for changed.
	link struct {
		sync.Mutex        // never held across a channel, a callback or a ZooKeeper call
		tap        *tap   // the current connection
		conns      uint64 // how many connections there were
		era        *era   // the current ZooKeeper session; nil before the first and after an expiry
		hasSession bool   // the client has finished its handshake
		authed     bool   // the server took the credentials
		attached   bool   // requests can be sent
		changed    chan struct{}
		xids       xids

		err        error   // why the Session is unusable: closed
		askedAfter instant // when a server last said that the session is still there, which was silent for long
		tried      map[string]error
	}
	work sync.WaitGroup // every goroutine but the ones below; none starts after link.err is set

	warned sync.Map // lock roots of which was said that their counter is near its end

	mail struct {
		sync.Mutex
		events []stateEvent
	}
	started  chan struct{} // closed with the first step of the state
	wake     chan struct{} // there is mail, or the beat is to be looked at again; holds one
	loopDone chan struct{}

	status struct {
		sync.Mutex
		machine     stateMachine
		subscribers map[chan Change]func() bool // stops listening to the subscriber's context
	}
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
	clk := newClock()
	if o.suspendedTime != nil {
		clk.suspended, clk.suspended0 = o.suspendedTime, o.suspendedTime()
	}
	s := &Session{
		opts: o, log: newEventLog(o.logger), clock: clk, servers: servers, chroot: chroot,
		hosts: newHosts(addrs, clk), started: make(chan struct{}), wake: make(chan struct{}, 1), loopDone: make(chan struct{}), closeDone: make(chan struct{}),
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.names.lookup, s.names.ctx, s.names.mu.byHost = o.lookup, s.ctx, make(map[string]*hostName)
	s.link.changed = make(chan struct{})
	s.link.tried = make(map[string]error)
	s.status.subscribers = make(map[chan Change]func() bool)
	s.locks.byKey = make(map[lockKey]*lockData)

	conn, events, err := zk.Connect(addrs, o.timeout,
		zk.WithDialer(s.dial), zk.WithHostProvider(s.hosts), zk.WithEventCallback(s.clientEvent),
		zk.WithLogger(s.log), zk.WithMaxBufferSize(maxReply))
	if err != nil {
		s.cancel()
		s.log.close()
		return fail(err)
	}
	s.conn = conn
	s.work.Add(1)
	go s.watchClient(events)
	go s.loop()

	e, err := s.attachedEra(ctx)
	if err == nil {
		err = o.mode.check(e.sessionTimeout())
		if err != nil {
			err = fmt.Errorf("the servers granted another session timeout than the %v asked for: %w", o.timeout, err)
		}
	}
	if err != nil {
		if tried := s.whatWasTried(); tried != "" {
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
	<-s.started // State says so too; the mail is there already
	return s, nil
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
	return s.machine().state
}

// Changes returns the steps of the state from now on, in order; State already shows a step when it arrives. The
// channel closes when ctx ends or the Session is closed. It holds 64 steps; of a reader that is further behind than
// that, the oldest are dropped.
func (s *Session) Changes(ctx context.Context) <-chan Change {
	ch := make(chan Change, 64)
	s.status.Lock()
	defer s.status.Unlock()
	if s.status.machine.state == Closed || ctx == nil || ctx.Err() != nil {
		close(ch)
		return ch
	}
	s.status.subscribers[ch] = context.AfterFunc(ctx, func() {
		s.status.Lock()
		defer s.status.Unlock()
		if _, ok := s.status.subscribers[ch]; ok {
			delete(s.status.subscribers, ch)
			close(ch)
		}
	})
	return ch
}

// Deadline returns until when the ZooKeeper session is surely alive, with no further news; the zero time if there is
// none. While nothing is held it is not renewed, and may lie in the past.
func (s *Session) Deadline() time.Time {
	s.link.Lock()
	e := s.link.era
	s.link.Unlock()
	if e == nil {
		return time.Time{}
	}
	return s.clock.wall(e.leaseEnd())
}

// Timeout returns the session timeout that the servers granted, the smallest one that they did in this ZooKeeper session; zero if there is no ZooKeeper session now.
func (s *Session) Timeout() time.Duration {
	s.link.Lock()
	e := s.link.era
	s.link.Unlock()
	if e == nil {
		return 0
	}
	return e.sessionTimeout()
}

// SessionID returns the id of the current ZooKeeper session; zero if there is none now.
func (s *Session) SessionID() int64 {
	s.link.Lock()
	defer s.link.Unlock()
	if s.link.era == nil {
		return 0
	}
	return s.link.era.id
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
	s.shut(ErrClosed)
	s.conn.Close()
	s.link.Lock()
	t := s.link.tap
	s.link.Unlock()
	if t != nil {
		t.cut()
	}
	s.work.Wait()
	<-s.loopDone
	s.log.close()
	close(s.closeDone)
	return nil
}

// shut makes the Session unusable: nothing starts any more, everybody who waits is told.
func (s *Session) shut(why error) {
	s.link.Lock()
	if s.link.err != nil {
		s.link.Unlock()
		return
	}
	s.link.err = why
	e := s.link.era
	s.link.attached = false
	s.broadcastLocked()
	s.link.Unlock()
	s.hosts.close()
	s.cancel()
	if e != nil {
		e.lose(why)
	}
	s.post(stateEvent{kind: closed, err: why})
}

// watchClient drains the client's event channel, whose events can be lost (WithEventCallback's are not), and sees by
// its closing that the client has ended.
func (s *Session) watchClient(events <-chan zk.Event) {
	defer s.work.Done()
	for range events {
	}
	s.shut(errConnClosed)
}

// spawn runs f on a goroutine that Close waits for. It returns false, and does not run f, when the Session is closed.
func (s *Session) spawn(f func()) bool {
	s.link.Lock()
	defer s.link.Unlock()
	return s.spawnLocked(f)
}

func (s *Session) spawnLocked(f func()) bool {
	if s.link.err != nil {
		return false
	}
	s.work.Add(1)
	go func() {
		defer s.work.Done()
		f()
	}()
	return true
}

// post hands an event to the loop. It never blocks.
func (s *Session) post(e stateEvent) {
	s.mail.Lock()
	s.mail.events = append(s.mail.events, e)
	s.mail.Unlock()
	s.nudge()
}

// nudge makes the loop look again at what is held and queued.
func (s *Session) nudge() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// lateLook is how late the loop may see the end of a server's silence and believe it.
const lateLook = 100 * time.Millisecond

// loop owns the state machine, the beat, the lease's timer, and the look for servers that are silent or away. It ends when
// the machine is Closed.
func (s *Session) loop() {
	defer close(s.loopDone)
	beat := time.NewTimer(0)
	defer beat.Stop()
	expiry := time.NewTimer(time.Hour)
	defer expiry.Stop()
	var lastBeat instant // when the last one was sent
	var doubled int      // how often in a row a connection was given up because its server was silent
	var doubted instant  // an end of a server's silence that was seen late, and is looked at once more
	var out outage
	for {
		select {
		case <-s.wake:
			if s.takeMail() == Closed {
				return
			}
		case <-beat.C:
		case <-expiry.C:
		}

		s.link.Lock()
		e, t, conn := s.link.era, s.link.tap, uint64(0)
		if s.link.attached {
			conn = s.link.tap.seq
		}
		s.link.Unlock()
		now := s.clock.now()
		next := out.look(now, conn != 0, func(d time.Duration) {
			s.log.warn("zklock: no server has taken the session in", "for", d.Round(time.Second), "tried", s.whatWasTried())
		})
		if e == nil {
			beat.Reset(max(next.sub(now), time.Millisecond))
			expiry.Reset(time.Hour)
			continue
		}
		held, queued, busy, end := e.load()
		if held > 0 {
			if e.look(now); e.isOver() {
				continue // the mail says so
			}
			expiry.Reset(end.sub(now) + time.Millisecond)
		} else {
			expiry.Reset(time.Hour)
		}
		h := heartbeat(e.sessionTimeout())
		interval := idleRead(e.sessionTimeout())
		if held > 0 || queued > 0 {
			interval = h
		}
		due := lastBeat.add(interval)
		if e.beatNow(conn) {
			due = now
		}
		if conn != 0 && now >= due {
			if e.beat(conn, held > 0) {
				lastBeat = now
			}
			due = now.add(interval)
		}
		if conn == 0 {
			beat.Reset(max(min(next, now.add(interval)).sub(now), time.Millisecond))
			continue
		}
		if t.answersWithin(h) {
			doubled = 0
		}
		if heard, asked, owes := t.silence(); owes && (held > 0 || busy) && !s.opts.endOnSuspend && s.alternatives() {
			ends := silenceEnds(heard, asked, h, held > 0, doubled)
			if now.sub(ends) > lateLook && doubted != ends {
				// It is we who were silent: the process was paused. What came meanwhile may not be read yet.
				doubted, ends = ends, now.add(lateLook)
			}
			if now >= ends {
				doubled++
				s.log.warn("zklock: the server is silent; trying another", "server", t.RemoteAddr().String(),
					"session", fmt.Sprintf("%#x", e.id), "for", now.sub(heard).Round(time.Millisecond))
				t.cut()
				continue // the mail says so
			}
			due = min(due, ends)
		}
		beat.Reset(max(due.sub(now), time.Millisecond))
	}
}

// takeMail runs the state machine over what has come, and tells the subscribers.
func (s *Session) takeMail() State {
	s.mail.Lock()
	events := s.mail.events
	s.mail.events = nil
	s.mail.Unlock()
	for _, ev := range events {
		if m := s.machine(); ev.kind == attached && ev.session != m.session {
			// The client can be in its next session before the end of the last is told.
			s.step(stateEvent{kind: lost, session: m.session, err: errExpired})
		}
		s.step(ev)
	}
	return s.State()
}

func (s *Session) machine() stateMachine {
	s.status.Lock()
	defer s.status.Unlock()
	return s.status.machine
}

func (s *Session) step(ev stateEvent) {
	s.status.Lock()
	defer s.status.Unlock()
	m, changed := s.status.machine.next(ev)
	if !changed {
		return
	}
	if s.status.machine.state == Connecting {
		close(s.started)
	}
	s.status.machine = m // visible before anybody is told (R51)
	c := Change{State: m.state, SessionID: m.session, Time: time.Now(), Err: ev.err}
	attrs := []any{"state", m.state.String(), "session", fmt.Sprintf("%#x", m.session)}
	if ev.err != nil && ev.err != ErrClosed { // Close is no failure
		attrs = append(attrs, "err", ev.err)
	}
	s.log.info("zklock: connection state", attrs...)
	for ch, stop := range s.status.subscribers {
		select {
		case ch <- c:
		default: // full: drop the oldest. Only this goroutine sends, so there is room now.
			select {
			case <-ch:
			default:
			}
			ch <- c
		}
		if m.state == Closed {
			stop()
			close(ch)
		}
	}
	if m.state == Closed {
		clear(s.status.subscribers)
	}
}

// absolute returns the path below the chroot as the servers know it.
func (s *Session) absolute(path string) string { return s.chroot + path }
