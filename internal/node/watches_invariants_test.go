//go:build invariants

package node

// This test breaks the watches of a session, and the check must find each mistake.

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWatches_Check(t *testing.T) {
	for invariant, breaks := range map[string]func(w *Watches, on *Watch){
		"a watch is kept under its key":          func(_ *Watches, on *Watch) { on.Path = "/locks/other" },
		"a watch is not kept without a caller":   func(_ *Watches, on *Watch) { on.users-- },
		"a watch is kept until it fires":         func(_ *Watches, on *Watch) { on.Err = errors.New("rejected") },
		"each caller that waits is counted once": func(w *Watches, _ *Watch) { w.mu.queued-- },
		"missed events are looked for while any": func(w *Watches, _ *Watch) { w.mu.checking = false },
	} {
		t.Run(invariant, func(t *testing.T) {
			w := aZKSession().Watches
			on := standing(&ZKSession{Watches: w}, "/locks/a", true)
			w.checkInvariants()
			breaks(w, on)
			defer func() { require.Contains(t, recover(), invariant) }()
			w.checkInvariants()
		})
	}
}
