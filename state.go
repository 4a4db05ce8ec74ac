package zklock

import (
	"context"
	"sync"
	"time"

	"github.com/zklock/zklock/internal/link"
)

// The changes of a Session's state:
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
//	every state ── Close, the *zk.Conn closed from outside, or credentials rejected ──▶ Closed

// State is the state of a Session's connection, and of its ZooKeeper session.
type State int

const (
	// StateConnecting: there has been no ZooKeeper session yet.
	StateConnecting State = iota
	// StateConnected: attached to a server, in a new ZooKeeper session.
	StateConnected
	// StateSuspended: not attached to a server. Holds last as long as the lease.
	StateSuspended
	// StateReconnected: attached again, in the same ZooKeeper session.
	StateReconnected
	// StateLost: the ZooKeeper session has ended, because it expired, the lease of a hold ended, or
	// no server replied for longer than the session timeout. The next state is StateConnected or
	// StateClosed.
	StateLost
	// StateClosed, which is final: Close was called, the *zk.Conn was closed, or the credentials were
	// rejected.
	StateClosed
)

// String returns the state's name.
func (s State) String() string {
	return link.State(s).String()
}

// Change is a change of a Session's state.
type Change struct {
	State     State
	SessionID int64     // of the ZooKeeper session
	Server    string    // the current or last server, as given to Connect; "" before the first
	Time      time.Time // of the detection
	Err       error     // the reason for StateSuspended, StateLost or StateClosed, if known
	Guarded   bool      // a guard is connected (WithGuard); if only this has changed, State is as before
}

// Stats describes a Session at one time.
type Stats struct {
	State          State
	Server         string        // host:port of the connected server; "" if no request can be sent
	SessionID      int64         // of the current or last ZooKeeper session; 0 before the first
	SessionTimeout time.Duration // the smallest granted in that ZooKeeper session
	Reconnects     int           // connections after the first
	Guarded        bool          // a guard is connected (WithGuard)
	LeaseLeft      time.Duration // how long holds last without further replies; 0 without holds

	Waiting  int // acquires in progress that do not wait for another call of their owner
	Held     int // valid holds: a re-entered one, or a call's permits, count once
	Lost     int // lost holds with an unreleased handle: work may still run
	Deleting int // unconfirmed deletions of lock nodes

	Unconfirmed int // releases so far that ended with ErrNotConfirmed, except by Close

	MaxLockNodes int // that the Session may have (WithMaxLockNodes)

	SessionsEnded     int // sessions of crashed processes (WithSessionFile)
	SessionFileErrors int // writes of that file that failed
}

// changeFeed sends the changes of a Session's state to readers, in order. The zero value has no
// readers.
type changeFeed struct {
	mu struct {
		sync.Mutex
		closed  bool
		last    Change
		readers map[chan Change]func() bool // the function stops the reader's AfterFunc
	}
}

// tell never waits: a reader that is too far behind misses the oldest changes.
func (f *changeFeed) tell(c Change) {
	f.mu.Lock()
	defer f.mu.Unlock()
	c.Guarded = f.mu.last.Guarded
	f.tellLocked(c)
}

// setGuarded adds a Change if a guard was connected or is no longer connected.
func (f *changeFeed) setGuarded(is bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if c := f.mu.last; c.Guarded != is {
		c.Guarded, c.Time, c.Err = is, time.Now(), nil
		f.tellLocked(c)
	}
}

// guarded reports whether a guard is connected. Close ends the connection without a Change.
func (f *changeFeed) guarded() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mu.last.Guarded && !f.mu.closed
}

func (f *changeFeed) tellLocked(c Change) {
	f.mu.last = c
	for ch := range f.mu.readers {
		select {
		case ch <- c:
		default: // full: drop the oldest. No other goroutine sends, so the next send cannot block.
			select {
			case <-ch:
			default:
			}
			ch <- c
		}
	}
}

// subscribe is Session.Changes. None of the context's methods is called under the lock, because
// they are the user's and may call the link: the context of a hold does when its lease has ended.
func (f *changeFeed) subscribe(ctx context.Context) <-chan Change {
	ch := make(chan Change, 64)
	if ctx == nil || ctx.Err() != nil {
		close(ch)
		return ch
	}
	stop := context.AfterFunc(ctx, func() { f.remove(ch) })
	if !f.add(ch, stop) {
		stop()
		close(ch)
	} else if link.IsClosed(ctx.Done()) { // perhaps before the channel was added
		f.remove(ch)
	}
	return ch
}

func (f *changeFeed) add(ch chan Change, stop func() bool) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mu.closed {
		return false
	}
	if f.mu.readers == nil {
		f.mu.readers = make(map[chan Change]func() bool)
	}
	f.mu.readers[ch] = stop
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

// close closes the channel of every reader. The channel of a later reader is closed from the start.
func (f *changeFeed) close() {
	f.mu.Lock()
	readers := f.mu.readers
	f.mu.closed, f.mu.readers = true, nil
	for ch := range readers {
		close(ch)
	}
	f.mu.Unlock()
	for _, stop := range readers {
		stop()
	}
}
