//go:build invariants

package zklock

// These tests break the lock table and the watcher, and their checks must find each mistake.

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

func requireFinds(t *testing.T, invariant string, check func()) {
	t.Helper()
	defer func() { require.Contains(t, recover(), invariant) }()
	check()
}

func TestLockTable_Check(t *testing.T) {
	for invariant, breaks := range map[string]func(tt *tableTest, d *lockData, h *Hold){
		"a share is in its Session's table under its key":   func(_ *tableTest, d *lockData, _ *Hold) { d.key.share = "other" },
		"a share in the table is acquired, or has handles":  func(_ *tableTest, d *lockData, h *Hold) { delete(d.handles, h) },
		"an acquisition in the table has a call that waits": func(_ *tableTest, d *lockData, h *Hold) { d.acquiring = &acquisition{d: d}; clear(d.handles) },
		"a handle in the table is not released":             func(_ *tableTest, _ *lockData, h *Hold) { h.end = ErrNotHeld },
		"the channels of a hold that is not lost are open":  func(_ *tableTest, d *lockData, _ *Hold) { close(d.lostCh) },
		"a hold rests on nodes of nodes.Own":                func(_ *tableTest, d *lockData, _ *Hold) { d.e.nodes.Gone(d.node) },
		"a node has at most one hold": func(tt *tableTest, d *lockData, _ *Hold) {
			other := *d
			other.key.path, other.handles = "/locks/b", map[*Hold]struct{}{}
			other.handles[&Hold{d: &other}] = struct{}{}
			tt.table.byKey[other.key] = &other
		},
		"a call that has left has no share": func(tt *tableTest, d *lockData, _ *Hold) {
			tt.table.left = append(tt.table.left, &acquisition{d: d, done: make(chan struct{})})
		},
	} {
		t.Run(invariant, func(t *testing.T) {
			tt := newTableTest(t)
			a, h := tt.begin(NewOwner("x"), false)
			tt.grant(a, h)
			require.NoError(t, h.d.e.nodes.Claim(h.d.node))
			tt.table.checkInvariants()
			breaks(tt, h.d, h)
			requireFinds(t, invariant, tt.table.checkInvariants)
		})
	}
}

func TestWatcher_Check(t *testing.T) {
	for invariant, breaks := range map[string]func(w *watcher, on *watch){
		"a watch is kept under its key":          func(_ *watcher, on *watch) { on.path = "/locks/other" },
		"a watch is not kept without a caller":   func(_ *watcher, on *watch) { on.users-- },
		"a watch is kept until it fires":         func(_ *watcher, on *watch) { on.err = errors.New("rejected") },
		"each caller that waits or observes":     func(w *watcher, _ *watch) { w.mu.queued-- },
		"missed events are looked for while any": func(w *watcher, _ *watch) { w.mu.checking = false },
	} {
		t.Run(invariant, func(t *testing.T) {
			w := aZKSession().watches
			on := standing(&zkSession{watches: w}, "/locks/a", true)
			w.checkInvariants()
			breaks(w, on)
			requireFinds(t, invariant, w.checkInvariants)
		})
	}
}
