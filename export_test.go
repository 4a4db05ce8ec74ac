package zklock

import (
	"fmt"
	"time"
)

// WithSuspendedTime replaces what the clock takes as the time the machine was suspended.
func WithSuspendedTime(f func() time.Duration) Option {
	return func(o *sessionOptions) { o.suspendedTime = f }
}

// Joiners returns how many calls wait in the owner's attempt.
func (m *Mutex) Joiners(o Owner) int {
	m.s.locks.mu.Lock()
	defer m.s.locks.mu.Unlock()
	d := m.s.locks.byKey[lockKey{m.root, o}]
	if d == nil || d.attempt == nil {
		return 0
	}
	return len(d.attempt.joiners)
}

func DebugNodes(s *Session) string {
	s.link.Lock()
	e := s.link.era
	s.link.Unlock()
	if e == nil {
		return "no era"
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return fmt.Sprint("nodes ", e.mu.nodes, " reserved ", e.mu.reserved, " held ", e.mu.held, " erasing ", e.mu.erasing, " strays ", e.mu.strays, " queued ", e.mu.queued)
}
