package zklockotel

// The internals of a Telemetry that the tests use.

import (
	"runtime/debug"

	"github.com/zklock/zklock"
)

// Version returns the version of the scope in this program.
func Version() string { return version() }

// VersionIn returns the version of the scope in a program with this build info.
func VersionIn(info *debug.BuildInfo) string { return versionIn(info) }

// Remembered returns how many acquires and holds under way are kept.
func Remembered(t *Telemetry) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.mu.open) + len(t.mu.holds) + len(t.mu.campaigns)
}

// Step delivers a change of the Session's state now.
func Step(t *Telemetry, s *zklock.Session, c zklock.Change) { t.step(s, c) }
