//go:build invariants

package link

// This test breaks the state of a ZooKeeper session, and the check must find each mistake.

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock/internal/lease"
)

func TestZKSession_Invariants(t *testing.T) {
	const node = "/locks/a/own"
	attached := func(sent time.Duration, timeout time.Duration) (l lease.Lease) {
		l = lease.New(lease.SingleServer())
		l.Attached(1, lease.Exchange{Sent: lease.Exchange{}.Sent.Add(sent)}, timeout, true)
		return l
	}
	for invariant, breaks := range map[string]func(z *ZKSession){
		"the session timeout never grows":                     func(z *ZKSession) { z.mu.lease = attached(0, 11*time.Second) },
		"the lease's end never moves back":                    func(z *ZKSession) { z.mu.lease = attached(-time.Second, 10*time.Second) },
		"the last response is never followed by an earlier":   func(z *ZKSession) { z.mu.heard-- },
		"a ZooKeeper session ends with a cause":               func(z *ZKSession) { z.mu.cause = errors.New("a cause") },
		"nothing is held in a ZooKeeper session that has end": func(z *ZKSession) { z.mu.cause = errors.New("a cause"); close(z.endedCh) },
		"a node is held, or kept without a caller":            func(z *ZKSession) { z.mu.kept[node] = &lossOf{} },
	} {
		t.Run(invariant, func(t *testing.T) {
			z := sessionOver(&laterOn{})
			z.mu.Lock()
			z.mu.held[node] = &lossOf{}
			breaks(z)
			defer func() { require.Contains(t, recover(), invariant) }()
			z.mu.Unlock()
		})
	}
}
