package fence

// Marks in memory, for one process.

import (
	"context"
	"sync"
)

// Memory is a [Store] in memory. It starts without marks.
type Memory struct {
	limit int
	mu    struct {
		sync.Mutex // never held across a call
		marks      map[string]Marks
	}
}

// NewMemory returns a Store for at most limit resources, some 100 bytes each. The first claim to
// one more resource is rejected with [ErrFull]; claims to the known resources are still admitted.
//
// No mark is evicted for a new one, because a stale claim would then look like a first one. Nor
// does one mark represent all evicted ones: it would reject a long-lived hold, and tokens of two
// ensembles do not compare. If the number of resources has no bound, keep the marks beside the
// resources, in a Store of your own.
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

// Swap replaces had by next, or returns false if the marks are not had.
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
