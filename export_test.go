package zklock

import "time"

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
