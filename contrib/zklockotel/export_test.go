package zklockotel

// What the tests see of a Telemetry from inside.

import (
	"runtime/debug"

	"github.com/zklock/zklock"
)

// Version is that of the scope in this program.
func Version() string { return version() }

// VersionIn is the version of the scope in a program that was built so.
func VersionIn(info *debug.BuildInfo) string { return versionIn(info) }

// Remembered says how much is kept of acquires and holds under way.
func Remembered(t *Telemetry) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.mu.open) + len(t.mu.holds) + len(t.mu.standing)
}

// Step is a step of the Session's state that arrives now.
func Step(t *Telemetry, s *zklock.Session, c zklock.Change) { t.step(s, c) }
