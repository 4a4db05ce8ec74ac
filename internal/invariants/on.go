//go:build invariants

package invariants

import "sync"

// Enabled reports whether the build checks invariants.
const Enabled = true

// Mutex is a sync.Mutex that checks the state that it guards.
type Mutex struct {
	sync.Mutex
	check    func()
	unlocked int // how often
}

// OnUnlock sets the check that Unlock runs while the mutex is still locked.
func (m *Mutex) OnUnlock(check func()) { m.check = check }

// Unlock runs the check, and unlocks the mutex even if the check panics: the deferred functions
// that run next may lock it. After 64 unlocks it runs one check in 64, because a test with hundreds
// of holds would otherwise take several times as long.
func (m *Mutex) Unlock() {
	defer m.Mutex.Unlock()
	if m.unlocked++; m.check != nil && (m.unlocked <= 64 || m.unlocked%64 == 0) {
		m.check()
	}
}
