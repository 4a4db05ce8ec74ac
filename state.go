package zklock

import (
	"context"
	"sync"
	"time"

	"github.com/zklock/zklock/internal/link"
)

// State is the state of a Session's connection, and of its ZooKeeper session.
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
	// Lost: the ZooKeeper session is over. It expired, the lease ended while something was held, or no server has answered for longer
	// than the session timeout. Lost is final for that ZooKeeper session: the next state is Connected, in a new one, or Closed.
	Lost
	// Closed: Close was called, or the *zk.Conn was closed from outside, or a server refused the credentials. Final.
	Closed
)

// String returns the state's name.
func (s State) String() string {
	return link.State(s).String()
}

// Attached says whether requests can be sent.
func (s State) Attached() bool { return link.State(s).Attached() }

// Change is one step of a Session's state.
type Change struct {
	State     State
	SessionID int64     // the ZooKeeper session it is about
	Server    string    // as given to Connect: where the Session is attached, or was last. "" if it never was
	Time      time.Time // when it was noticed
	Err       error     // why, for Suspended, Lost and Closed where it is known. For Suspended it says how the connection ended
}

// changeFeed tells readers of the steps of a Session's state, in order. The zero value has no readers.
type changeFeed struct {
	mu struct {
		sync.Mutex
		closed  bool
		readers map[chan Change]func() bool // the function, if it is there yet, stops listening to the reader's context
	}
}

// tell never waits: a reader that is too far behind misses the oldest steps.
func (f *changeFeed) tell(c Change) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for ch := range f.mu.readers {
		select {
		case ch <- c:
		default: // full: drop the oldest. Nobody else sends, so there is room then.
			select {
			case <-ch:
			default:
			}
			ch <- c
		}
	}
}

// subscribe is Session.Changes. The context is the user's, and may ask the link: a hold's context does, when its lease has
// ended. So none of its methods is called under the lock.
func (f *changeFeed) subscribe(ctx context.Context) <-chan Change {
	ch := make(chan Change, 64)
	if ctx == nil || ctx.Err() != nil || !f.add(ch) {
		close(ch)
		return ch
	}
	stop := context.AfterFunc(ctx, func() { f.remove(ch) })
	f.mu.Lock()
	_, reads := f.mu.readers[ch]
	if reads {
		f.mu.readers[ch] = stop
	}
	f.mu.Unlock()
	if !reads { // closed in between
		stop()
	}
	return ch
}

func (f *changeFeed) add(ch chan Change) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mu.closed {
		return false
	}
	if f.mu.readers == nil {
		f.mu.readers = make(map[chan Change]func() bool)
	}
	f.mu.readers[ch] = nil
	return true
}

func (f *changeFeed) remove(ch chan Change) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, ok := f.mu.readers[ch]; ok {
		delete(f.mu.readers, ch)
		close(ch)
	}
}

// close ends every reader's channel, and those of later readers at once.
func (f *changeFeed) close() {
	f.mu.Lock()
	readers := f.mu.readers
	f.mu.closed, f.mu.readers = true, nil
	for ch := range readers {
		close(ch)
	}
	f.mu.Unlock()
	for _, stop := range readers {
		if stop != nil {
			stop()
		}
	}
}
