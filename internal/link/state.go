package link

import "time"

// State is the state of a Session's ZooKeeper session, and stateMachine has its transitions. The
// picture is above the State that users see (state.go of the root).
type State int

const (
	Connecting  State = iota // there has been no ZooKeeper session yet
	Connected                // attached to a server, in a new ZooKeeper session
	Suspended                // not attached
	Reconnected              // attached again, in the same ZooKeeper session
	Lost                     // the ZooKeeper session has ended
	Closed                   // final
)

// String returns the state's name.
func (s State) String() string {
	return [...]string{"Connecting", "Connected", "Suspended", "Reconnected", "Lost", "Closed"}[s]
}

// Attached reports whether requests can be sent.
func (s State) Attached() bool { return s == Connected || s == Reconnected }

// Step is one transition of the state.
type Step struct {
	State   State
	Session int64     // the id of its ZooKeeper session
	Server  string    // where we are attached, or were last, as given
	Time    time.Time // when it was detected
	Err     error     // the reason, if known
}

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

// stateMachine is that picture as a pure function.
type stateMachine struct {
	state   State
	session int64
}

func (m stateMachine) next(e stateEvent) (stateMachine, bool) {
	if m.state == Closed {
		return m, false
	}
	switch e.kind {
	case attached:
		switch {
		case e.session != m.session || m.state == Connecting || m.state == Lost: // a session that has ended is never attached again
			return stateMachine{Connected, e.session}, true
		case m.state == Suspended:
			return stateMachine{Reconnected, e.session}, true
		}
	case detached:
		if m.state.Attached() {
			return stateMachine{Suspended, m.session}, true
		}
	case lost:
		// Once for each ZooKeeper session (R40), however often it is detected.
		if e.session == m.session && m.state != Lost && m.state != Connecting {
			return stateMachine{Lost, m.session}, true
		}
	case closed:
		return stateMachine{Closed, m.session}, true
	}
	return m, false
}
