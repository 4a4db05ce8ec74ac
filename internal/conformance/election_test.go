package conformance

// These tests run elections of Curator's LeaderSelector or LeaderLatch together with ours.

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
)

// campaign campaigns with our own recipe.
func (i *interop) campaign(opts ...zklock.ElectionOption) error {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	return i.each(func() error {
		s, err := zklock.Connect(ctx, i.addr, zklock.WithSessionTimeout(30*time.Second), zklock.WithLogger(slog.New(slog.DiscardHandler)))
		if err != nil {
			return err
		}
		defer s.Close()
		e, err := zklock.NewElection(s, i.lock, append(opts, zklock.WithData([]byte("zklock")))...)
		if err != nil {
			return err
		}
		for range interopRounds {
			err := e.Campaign(ctx, func(ctx context.Context, hold *zklock.Hold) error {
				leader, err := e.Leader(ctx)
				if err == nil && leader.Node != hold.Node() {
					err = fmt.Errorf("%s leads beside %s", leader.Node, hold.Node())
				}
				if err != nil {
					return err
				}
				return i.inside(s.Conn(), hold.Node(), "zklock")
			})
			if err != nil {
				return err
			}
			rest()
		}
		return nil
	})
}

// I1, I8: Curator's LeaderSelector and LeaderLatch campaign in one election with ours, on a real
// server: never two lead, each leads in its turn, and each reads the names of the other clients.
func TestInterop_Election(t *testing.T) {
	suites(t)
	classPath := compileCurator(t)
	addr := startReal(t)
	for kind, opts := range map[string][]zklock.ElectionOption{"selector": nil, "latch": {zklock.WithLatchNodes()}} {
		t.Run(kind, func(t *testing.T) {
			i := newInterop(t, addr, kind)
			i.node = map[string]string{"selector": "lock-", "latch": "latch-"}[kind]
			i.run(map[string]func() error{
				"zklock": func() error { return i.campaign(opts...) },
				"curator": func() error {
					return i.program("java", curatorArgs(classPath, "Elect", i.addr, i.lock, i.busy, i.log,
						strconv.Itoa(interopContenders), strconv.Itoa(interopRounds), kind)...)
				},
			})
			entries := i.entries()
			require.Len(t, entries, 2*interopContenders*interopRounds)
		})
	}
}
