//go:build invariants

package node

// This test breaks the state of Own, and the check must find each mistake.

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOwn_Check(t *testing.T) {
	for invariant, breaks := range map[string]func(o *Own){
		"no client waits unnotified behind a node whose deletion the servers reject": func(o *Own) { o.mu.nodes["/l/a"].rejected = true },
		"a waiter is behind the node ahead of it": func(o *Own) {
			o.mu.nodes["/l/b"].behind = o.mu.nodes["/l/a"].behind
		},
		"a waiter that may get the handoff has a node (I1)": func(o *Own) { delete(o.mu.nodes, "/l/b") },
		"a reserved node is freed once (I7)":                func(o *Own) { o.mu.reserved-- },
	} {
		t.Run(invariant, func(t *testing.T) {
			o := newOwn(10)
			o.add("/l/a")
			o.add("/l/b")
			require.NotNil(t, o.WaitBehind("/l/a", "/l/b"))
			o.mu.Lock()
			breaks(o)
			defer func() { require.Contains(t, recover(), invariant) }()
			o.mu.Unlock()
		})
	}
}
