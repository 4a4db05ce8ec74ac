package zklock

// The states of a Session, and how one follows from another: a pure function, with the picture above it.

import "time"

// State is how a Session stands to its ZooKeeper session.
//
//	              attached                   detached
//	Connecting ─────────────▶ Connected ───────────────▶ Suspended
//	                              ▲   ▲                  │   │  ▲
//	       attached to a new      │   │     lost         │   │  │ detached
//	       ZooKeeper session      │   └──────────┐       │   ▼  │
//	                             Lost ◀──────────┼───────┘  Reconnected
//	                              ▲              │               │
//	                              └──────────────┴───────────────┘ lost
//
//	every state ── Close, the *zk.Conn closed from outside, or the credentials refused ──▶ Closed
type State int

const (
	// Connecting: there has been no ZooKeeper session yet.
	Connecting State = iota
	// Connected: attached to a server, in a ZooKeeper session that is new.
	Connected
	// Suspended: not attached to a server. Holds stand while the lease lasts.
	Suspended
	// Reconnected: attached again, in the same ZooKeeper session.
	Reconnected
	// Lost: the ZooKeeper session is over. It expired, or the lease ended while something was held. Lost is final for that
	// ZooKeeper session: the next state is Connected, in a new one, or Closed.
	Lost
	// Closed: Close was called, or the *zk.Conn was closed from outside, or a server refused the credentials. Final.
	Closed
)

// String returns the state's name.
func (s State) String() string {
	return [...]string{"Connecting", "Connected", "Suspended", "Reconnected", "Lost", "Closed"}[s]
}

// Attached says whether requests can be sent.
func (s State) Attached() bool { return s == Connected || s == Reconnected }

// Change is one step of a Session's state.
type Change struct {
	State     State
	SessionID int64     // the ZooKeeper session it is about
	Time      time.Time // when it was noticed
	Err       error     // why, for Suspended, Lost and Closed where it is known
}

// stateEvent is an input of the state machine.
type stateEvent struct {
	kind    stateEventKind
	session int64
	err     error
}

type stateEventKind int

const (
	attached stateEventKind = iota
	detached
	lost
	closed
)

// stateMachine is the picture above, as a pure function.
type stateMachine struct {
	state   State
	session int64
}

// next returns the machine after an event, and whether the state changed.
func (m stateMachine) next(e stateEvent) (stateMachine, bool) {
	if m.state == Closed {
		return m, false
	}
	switch e.kind {
	case attached:
		switch {
		case e.session != m.session || m.state == Connecting || m.state == Lost: // what is over is never attached again (link.attachLocked)
			return stateMachine{Connected, e.session}, true
		case m.state == Suspended:
			return stateMachine{Reconnected, e.session}, true
		}
	case detached:
		if m.state.Attached() {
			return stateMachine{Suspended, m.session}, true
		}
	case lost:
		// Once for each ZooKeeper session (R40), however often it is noticed.
		if e.session == m.session && m.state != Lost && m.state != Connecting {
			return stateMachine{Lost, m.session}, true
		}
	case closed:
		return stateMachine{Closed, m.session}, true
	}
	return m, false
}
