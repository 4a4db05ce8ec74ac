//go:build invariants

package zklock

// These tests break the lock table, and its checks must find each mistake.

import (
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
		"a hold rests on nodes of node.Own":                 func(_ *tableTest, d *lockData, _ *Hold) { d.e.Own.Gone(d.node) },
		"a node has at most one hold": func(tt *tableTest, d *lockData, _ *Hold) {
			other := *d
			other.key.path, other.handles = "/locks/b", map[*Hold]struct{}{}
			other.handles[&Hold{d: &other}] = struct{}{}
			tt.table.byKey[other.key] = &other
		},
		"a call that has left has no share": func(tt *tableTest, d *lockData, _ *Hold) {
			tt.table.leaving = append(tt.table.leaving, &acquisition{d: d, done: make(chan struct{})})
		},
	} {
		t.Run(invariant, func(t *testing.T) {
			tt := newTableTest(t)
			a, h := tt.begin(NewOwner("x"), false)
			tt.grant(a, h)
			require.NoError(t, h.d.e.Own.Claim(h.d.node))
			tt.table.checkInvariants()
			breaks(tt, h.d, h)
			requireFinds(t, invariant, tt.table.checkInvariants)
		})
	}
}
