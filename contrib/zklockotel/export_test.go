package zklockotel

// What the tests see of a Telemetry from inside.

import "github.com/zklock/zklock"

// Remembered says how much is kept of acquires and holds under way.
func Remembered(t *Telemetry) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.mu.open) + len(t.mu.grants) + len(t.mu.standing) + len(t.mu.elections)
}

// Step is a step of the Session's state that arrives now.
func Step(t *Telemetry, s *zklock.Session, c zklock.Change) { t.step(s, c) }
