package zklock

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/zklock/internal/wire"
)

// The connection as the ZooKeeper client's goroutines and the tap report it: which one it is, which ZooKeeper session it
// carries, and whether requests can be sent. All of it is under the one lock of Session.link.

// broadcastLocked wakes everybody who waits for a change of the link.
func (s *Session) broadcastLocked() {
	close(s.link.changed)
	s.link.changed = make(chan struct{})
}

// attachedEra waits until requests can be sent, and returns the ZooKeeper session they will go out in.
func (s *Session) attachedEra(ctx context.Context) (*era, error) {
	for {
		s.link.Lock()
		e, ok, err, changed := s.link.era, s.link.attached, s.link.err, s.link.changed
		s.link.Unlock()
		if err != nil {
			return nil, err
		}
		if ok && e != nil && !e.isOver() {
			return e, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// carriesLocked says whether requests can be sent in z.
func (s *Session) carriesLocked(z *zkSession) bool {
	return s.link.attached && s.link.era != nil && s.link.era.zkSession == z
}

// attachedConn is the number of the connection over which z is attached now, 0 if it is not.
func (s *Session) attachedConn(z *zkSession) (seq uint64, changed <-chan struct{}, err error) {
	s.link.Lock()
	defer s.link.Unlock()
	if s.carriesLocked(z) {
		seq = s.link.tap.seq
	}
	return seq, s.link.changed, s.link.err
}

// connecting decides about the client's connect request. A session that we have given up but that may be alive is ended: its
// nodes keep the lock from others until it is over, and the client would attach to it again. This is tried until a server has
// answered, with a refusal or by hanging up, too. From then on nothing of ours touches it, and it is gone T and a tick later
// (R65). A server that is silent has no quorum; then the try has touched nothing, and the next one goes on.
//
// A session of which nothing has been heard for long is asked after. A server refuses a client that has seen more than it
// has, without saying whether its session is over. If the servers came back from an older snapshot (F23), all of them do, and
// the client would stay out until they have caught up. To ask is a sign of life for the session, so it is done once in a
// while only.
func (s *Session) connecting(t *tap, session int64) approach {
	s.link.Lock()
	e, askedAfter := s.link.era, s.link.askedAfter
	s.link.Unlock()
	if e == nil || e.id != session {
		return attach
	}
	now := s.clock.now()
	switch {
	case e.isOver() && e.leftToExpire():
		return sayItsEnded
	case e.isOver():
		return endIt
	case e.overdue(now, askedAfter):
		return askAfter
	}
	return attach
}

func (s *Session) found(*tap) {
	s.link.Lock()
	defer s.link.Unlock()
	s.link.askedAfter = s.clock.now()
}

func (s *Session) hungUp(t *tap) {
	if e := s.eraOn(t); e != nil {
		e.noteHangUp()
	}
}

func (s *Session) ended(t *tap, outcome string) {
	s.log.info("zklock: asked a server to end the given-up session", "server", t.RemoteAddr().String(), "outcome", outcome)
}

func (s *Session) connected(t *tap, r connectResponse, exchange frame) error {
	s.link.Lock()
	old := s.link.era
	if s.link.tap != t || s.link.err != nil {
		s.link.Unlock()
		return ErrClosed
	}
	s.link.hasSession, s.link.authed = false, false
	if r.sessionID == 0 {
		s.link.era = nil
		s.link.Unlock()
		s.hosts.forgive()
		if old != nil {
			old.lose(errExpired)
		}
		return nil
	}
	if old != nil && old.id == r.sessionID {
		if old.isOver() { // given up while the connect request was on its way
			s.link.Unlock()
			return fmt.Errorf("zklock: session %#x was given up", r.sessionID)
		}
		old.reattach(t.seq, exchange, r.timeout)
		s.link.Unlock()
		return nil
	}
	// A session id that changes without an Expired event is an expiry (F37).
	e := newEra(&zkSession{carrier: s, log: s.log}, s.clock, &s.opts, r, t.seq, exchange)
	s.link.era = e
	s.link.Unlock()
	if old != nil {
		old.lose(errExpired)
	}
	return nil
}

func (s *Session) credentials() []credential { return s.opts.auth }

func (s *Session) authenticated(t *tap, err error) {
	if err != nil {
		s.log.error("zklock: the server refused the credentials", "server", t.RemoteAddr().String(), "err", err)
		s.noteTried(t.RemoteAddr().String(), err)
		s.shut(err)
		return
	}
	s.link.Lock()
	defer s.link.Unlock()
	if s.link.tap == t {
		s.link.authed = true
		s.attachLocked()
	}
}

// attachLocked opens the gate for requests when everything needed is there. The first to go are those that set the watches
// of the connection before.
func (s *Session) attachLocked() {
	e := s.link.era
	if s.link.attached || !s.link.hasSession || !s.link.authed || e == nil || s.link.err != nil {
		return
	}
	s.link.attached = true
	clear(s.link.tried)
	s.post(stateEvent{kind: attached, session: e.id})
	s.broadcastLocked()
	for _, r := range e.restore(s.link.tap.zxids.Before()) {
		if !s.sendLocked(r) {
			return // the connection has just ended
		}
	}
}

func (s *Session) answered(t *tap, f frame) {
	if e := s.eraOn(t); e != nil {
		e.answered(t.seq, f)
	}
}

func (s *Session) quorum(t *tap, sent instant) {
	if e := s.eraOn(t); e != nil {
		e.quorum(t.seq, sent)
	}
}

func (s *Session) refused(t *tap, err error) {
	if e := s.eraOn(t); e != nil {
		e.lose(err)
	}
	t.cut()
}

func (s *Session) disconnected(t *tap) {
	s.link.Lock()
	if s.link.tap != t {
		s.link.Unlock()
		return
	}
	s.link.hasSession, s.link.authed = false, false
	e := s.link.era
	s.detachLocked()
	s.link.Unlock()
	if e != nil && s.opts.endOnSuspend {
		e.loseHolds(errSuspended)
	}
}

// detachLocked closes the gate for requests.
func (s *Session) detachLocked() {
	if s.link.attached {
		s.link.attached = false
		s.post(stateEvent{kind: detached, session: s.link.era.id})
		s.broadcastLocked()
	}
}

// eraOn returns the ZooKeeper session that the connection carries, if it is the current one.
func (s *Session) eraOn(t *tap) *era {
	s.link.Lock()
	defer s.link.Unlock()
	if s.link.tap != t {
		return nil
	}
	return s.link.era
}

// event is the tap's report that a watch has fired, in the order in which the server sent the events.
func (s *Session) event(t *tap, ev wire.WatcherEvent) {
	if e := s.eraOn(t); e != nil {
		e.nodeEvent(ev)
	}
}

// flush has the tap write. When the Session is closed, and only the client's last words are to go out, that is done here.
func (s *Session) flush(t *tap) {
	if !s.spawn(t.writeOut) {
		t.writeOut()
	}
}

// clientEvent is the client's event callback, the only lossless source of its events. It runs on the client's
// goroutines: it must not block or call the client.
func (s *Session) clientEvent(ev zk.Event) {
	if ev.Type != zk.EventSession || ev.State != zk.StateHasSession {
		return
	}
	s.link.Lock()
	defer s.link.Unlock()
	s.link.hasSession = true
	s.attachLocked()
}

// send hands a request to the connection over which z is attached. It returns false, and forgets the request, if there is
// none.
func (s *Session) send(z *zkSession, r *request) bool {
	s.link.Lock()
	defer s.link.Unlock()
	return s.carriesLocked(z) && s.sendLocked(r)
}

func (s *Session) sendLocked(r *request) bool {
	if s.link.err != nil {
		return false
	}
	t := s.link.tap
	ok, write := t.enqueue(r)
	if !ok {
		s.detachLocked() // it ends; the tap says so next
	}
	if write {
		s.spawnLocked(t.writeOut)
	}
	return ok
}

func (s *Session) closedErr() error {
	s.link.Lock()
	defer s.link.Unlock()
	if s.link.err == nil {
		return ErrClosed
	}
	return s.link.err
}

// lost takes note that z is over. If it was given up, it may be alive at the servers: the client does not attach to it again
// (see connecting), for Lost is final.
func (s *Session) lost(z *zkSession, cause error) {
	if errors.Is(cause, ErrClosed) || errors.Is(cause, ErrAuthFailed) {
		return // the Session is shut
	}
	s.link.Lock()
	var t *tap
	if s.link.era != nil && s.link.era.zkSession == z {
		s.link.attached = false
		t = s.link.tap
	}
	if errors.Is(cause, errExpired) {
		t = nil // the client is already on its way to a new session
	}
	s.broadcastLocked()
	s.link.Unlock()
	s.post(stateEvent{kind: lost, session: z.id, err: cause})
	if t != nil {
		t.cut()
	}
}
