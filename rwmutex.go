package zklock

import (
	"context"
	"fmt"

	"github.com/zklock/zklock/internal/queue"
)

// RWMutex is a read/write lock on a path: readers hold it together, a writer holds it alone, among all clients of the ensemble.
// It is reusable, safe for many goroutines, and costs nothing until it is acquired.
//
// Its two sides are locks of their own, with the methods, errors and holds of a [Mutex]. Readers and writers stand in one queue:
// a reader that comes after a writer waits for it, so neither side starves.
type RWMutex struct{ read, write Mutex }

// NewRWMutex returns the read/write lock on path. Path and options are as for [NewMutex]; the options apply to both sides. It sends
// nothing.
//
// Both sides of the lock re-enter: give Acquire the context of the hold ([Hold.Context]), or one with an owner ([WithOwner]).
//
// A writer may read: its owner gets the read lock at once, for one request. The locks are then released in any order; while the
// owner still reads, other readers come in and writers wait. After such a downgrade go on with the context of the read hold: that
// of the write hold ends with the write lock. So ReadLock().Do with the writer's context ends its function's context at the write
// lock's release. If somebody takes the read lock's node away, reads under that write hold return ErrLost until it is released.
// Near the end of the sequence counter, reads under a write hold return ErrSequenceExhausted.
//
// A reader may not write: the write lock returns [ErrUpgrade] at once to an owner that has only the read lock. Calls of one owner
// for both sides run one after the other: the later one waits until the earlier one is granted or has ended, and a try returns
// ErrNotAcquired. Until an owner has released a hold that was lost, it gets ErrLost from both sides, but for the one that it holds.
//
// A Mutex on the same path excludes readers and writers, and has owners of its own: it waits for a reader or a writer of the same
// owner too, and they for it.
//
// The nodes are those of Curator's InterProcessReadWriteLock from version 5.5 on, and Go and Java clients share a lock. An older
// Curator's downgrade lets a reader in beside a writer. Curator's InterProcessMutex on the same path does not see readers and
// writers at all.
func NewRWMutex(s *Session, path string, opts ...MutexOption) (*RWMutex, error) {
	if !s.isConnected() {
		return nil, &Error{Op: "new rwmutex", Path: path, Err: errNoSession}
	}
	o := newMutexOptions(opts)
	read, err := mutexOf(s, path, queue.ReadName, o, readSide{})
	if err != nil {
		return nil, &Error{Op: "new rwmutex", Path: path, Err: badArgument{err}}
	}
	write, _ := mutexOf(s, path, queue.WriteName, o, writeSide{})
	read.kind, read.traced, read.root.other = "ReadLock", "read", queue.WriteName
	write.kind, write.traced, write.root.other = "WriteLock", "write", queue.ReadName
	return &RWMutex{read, write}, nil
}

// ReadLock returns the side that readers hold together.
func (m *RWMutex) ReadLock() Lock { return &m.made().read }

// WriteLock returns the side that a writer holds alone.
func (m *RWMutex) WriteLock() Lock { return &m.made().write }

// Path returns the path as given to NewRWMutex.
func (m *RWMutex) Path() string { return m.made().read.Path() }

// String returns the path, in one word.
func (m *RWMutex) String() string { return "RWMutex(" + m.Path() + ")" }

// Participants returns the queue, as Mutex.Participants does. The readers at the front hold together. A writer that reads, too, has
// two nodes.
func (m *RWMutex) Participants(ctx context.Context) ([]Participant, error) {
	if m == nil || !m.read.isMade() {
		return nil, &Error{Op: "participants", Err: errNoRWMutex}
	}
	return m.read.Participants(ctx)
}

// Front returns the first in the queue, as Mutex.Front does: if it is a reader (Shared), others may hold the lock beside it.
func (m *RWMutex) Front(ctx context.Context) (Participant, error) {
	if m == nil || !m.read.isMade() {
		return Participant{}, &Error{Op: "front", Err: errNoRWMutex}
	}
	return m.read.Front(ctx)
}

// made is for methods that return no error.
func (m *RWMutex) made() *RWMutex {
	if m == nil || !m.read.isMade() {
		panic(fmt.Errorf("zklock: %w", errNoRWMutex))
	}
	return m
}
