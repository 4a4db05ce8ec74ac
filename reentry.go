package zklock

// Re-entry: a call of a caller that holds the lock already.

import "context"

// WithoutReentry makes a call fail at once if its context carries a hold of this lock, or an owner
// that holds it: with an error for which IsFinal is true, because the call would wait for itself.
// By default the call re-enters that hold, so goroutines that share a context do not exclude each
// other. A writer may still read, because its read lock is no re-entry. Permits and candidates
// never re-enter.
func WithoutReentry() LockOption {
	return lockOption(func(o *lockOptions) { o.noReentry = true })
}

// reentered logs, once a hold, that two handles which re-entered with the same handle's context are
// held at the same time. A goroutine that re-enters in nested calls has the innermost handle's
// context, so these are two goroutines that do not exclude each other. If an owner is set, or the
// handles are readers', that is on purpose.
func reentered(ctx context.Context, t *lockTable, root *lockRoot, by caller, h *Hold) {
	if by.owner != (Owner{}) || by.under[0] != h.d || root.rule.IsShared() {
		return
	}
	outer := heldIn(ctx, holdKey{table: t, root: root.path, share: root.share})
	t.mu.Lock()
	defer t.mu.Unlock()
	h.outer = outer
	granted := outer
	for granted.outer != nil {
		granted = granted.outer
	}
	for other := range h.d.handles {
		if other != h && other.outer == outer && !granted.shared {
			granted.shared = true
			h.d.e.Log.Warn("zklock: two calls re-entered one hold at the same time; they do not exclude each other", h.d.attrs()...)
		}
	}
}
