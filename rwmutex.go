package zklock

import (
	"context"
	"fmt"

	"github.com/zklock/zklock/internal/queue"
)

// RWMutex is a read/write lock on a path, among all clients of the ensemble: readers hold it
// together, and a writer holds it alone. It is reusable, safe for many goroutines, and costs
// nothing until it is acquired.
//
// Each of its two sides is a [Mutex], with all of its methods. Readers and writers wait in one
// queue: a reader that queues after a writer waits for it, so neither side starves.
type RWMutex struct{ read, write Mutex }

// NewRWMutex returns the read/write lock on path, to which the rules of [NewMutex] apply, and sends
// nothing. The options apply to both sides.
//
// Both sides re-enter: give Acquire the context of the hold ([Hold.Context]), or a context with an
// owner ([WithOwner]).
//
// A writer may also read: its owner gets the read lock at once, for one request. The two are
// released in any order. While the owner still reads after the release of the write lock, other
// readers are granted, and writers wait. After such a downgrade, continue with the context of the
// read hold, because the context of the write hold ends with the write lock. So ReadLock().Do with
// the writer's context ends the context of its function when the write lock is released. If another
// client deletes the read lock's node, reads under that write hold return ErrLost until it is
// released. Near the end of the sequence counter, reads under a write hold return
// ErrSequenceExhausted.
//
// A reader may not write: the write lock returns [ErrUpgrade] at once to an owner that has only the
// read lock. The calls of one owner for both sides run one after the other: the later call waits
// until the earlier one is granted or has ended, and a try returns ErrNotAcquired. Until an owner
// has released a hold that was lost, both sides return ErrLost to it, except a side that it still
// holds.
//
// A Mutex on the same path excludes readers and writers, but has owners of its own: it also waits
// for a reader or a writer of the same owner, and they wait for it.
//
// The nodes have the names that Curator's InterProcessReadWriteLock uses since version 5.5, and Go
// and Java clients share a lock. The downgrade of an older Curator lets in a reader alongside a
// writer. Curator's InterProcessMutex on the same path does not see readers and writers at all.
func NewRWMutex(s *Session, path string, opts ...RWMutexOption) (*RWMutex, error) {
	if !s.isConnected() {
		return nil, &Error{Op: "new rwmutex", Path: path, Err: errNoSession}
	}
	o := newLockOptions(opts)
	read, err := mutexOf(s, path, queue.ReadName, o, readSide{})
	if err != nil {
		return nil, &Error{Op: "new rwmutex", Path: path, Err: badArgument{err}}
	}
	write, _ := mutexOf(s, path, queue.WriteName, o, writeSide{})
	read.kind, read.traced = "ReadLock", KindRead
	write.kind, write.traced = "WriteLock", KindWrite
	return &RWMutex{read, write}, nil
}

// ReadLock returns the side that readers hold together. Its Once returns an error, because Once needs a
// lock that one caller holds alone: call WriteLock().Once.
func (m *RWMutex) ReadLock() *Mutex { return &m.sides().read }

// WriteLock returns the side that one writer holds alone.
func (m *RWMutex) WriteLock() *Mutex { return &m.sides().write }

// Path returns the path as given to NewRWMutex.
func (m *RWMutex) Path() string { return m.sides().read.Path() }

// String returns the path, in one word.
func (m *RWMutex) String() string { return "RWMutex(" + m.Path() + ")" }

// Participants returns the queue, as [Mutex.Participants] does. The first readers in it hold
// together. A writer that also reads has two nodes.
func (m *RWMutex) Participants(ctx context.Context) ([]Participant, error) {
	if m == nil || !m.read.isMade() {
		return nil, &Error{Op: "participants", Err: errNoRWMutex}
	}
	return m.read.Participants(ctx)
}

// First returns the first in the queue, as [Mutex.First] does. If it is a reader (Shared), other
// readers may hold the lock, too.
func (m *RWMutex) First(ctx context.Context) (Participant, error) {
	if m == nil || !m.read.isMade() {
		return Participant{}, &Error{Op: "front", Err: errNoRWMutex}
	}
	return m.read.First(ctx)
}

// sides is for methods that return no error.
func (m *RWMutex) sides() *RWMutex {
	if m == nil || !m.read.isMade() {
		panic(fmt.Errorf("zklock: %w", errNoRWMutex))
	}
	return m
}
