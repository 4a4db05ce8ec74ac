package fence

// Marks in memory, for one process.

import (
	"context"
	"sync"
)

// Memory is a [Store] in memory. It knows nothing of what was before it was made.
type Memory struct {
	limit int
	mu    struct {
		sync.Mutex // never held across a call
		marks      map[string]Marks
	}
}

// NewMemory returns a Store for as many resources as limit says, some 100 bytes each. The first claim to one more is refused with
// [ErrFull], and those to the others go on. No mark makes room for another: after that a stale claim would look like a first one.
// Nor does one mark stand for all that were dropped: it would refuse a hold that has lasted for long, and tokens of two ensembles
// do not compare. Where resources come without an end, keep the marks beside them, in a Store of yours.
func NewMemory(limit int) *Memory {
	m := &Memory{limit: limit}
	m.mu.marks = map[string]Marks{}
	return m
}

// Load returns the marks of a resource.
func (m *Memory) Load(_ context.Context, resource string) (Marks, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mu.marks[resource], nil
}

// Swap puts next in the place of had, or returns false if had is not there.
func (m *Memory) Swap(_ context.Context, resource string, had, next Marks) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now, there := m.mu.marks[resource]
	switch {
	case now != had:
		return false, nil
	case !there && len(m.mu.marks) >= m.limit:
		return false, ErrFull
	}
	m.mu.marks[resource] = next
	return true, nil
}
