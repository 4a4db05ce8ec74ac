package zklock

// This test attacks the moment between the grant and the call of the work.

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock/zktest"
)

// The context ends, or the lock is lost, as the lock is granted: neither Do nor Campaign calls the
// work, and the node is deleted.
func TestHoldRun_EndedAtTheGrant_DoesNotCall(t *testing.T) {
	why := errors.New("the program ends")
	for name, c := range map[string]struct {
		end  func(srv *zktest.Server, h *Hold, cancel context.CancelCauseFunc)
		want []error
		lost bool
	}{
		"the context ended": {func(_ *zktest.Server, _ *Hold, cancel context.CancelCauseFunc) { cancel(why) }, []error{context.Canceled, why}, false},
		"resigned":          {func(_ *zktest.Server, _ *Hold, cancel context.CancelCauseFunc) { cancel(ErrResigned) }, []error{ErrResigned}, false},
		"the lock was lost": {func(srv *zktest.Server, h *Hold, _ context.CancelCauseFunc) {
			require.True(t, srv.ExpireSession(h.d.e.ID))
			<-h.Lost()
		}, []error{ErrLost}, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				network := zktest.NewNetwork()
				srv := zktest.Start(t, zktest.WithNetwork(network))
				s, err := Connect(t.Context(), srv.Addr(), WithDialer(network.Dial), WithLogger(slog.New(slog.DiscardHandler)))
				require.NoError(t, err)
				m, err := NewMutex(s, "/job")
				require.NoError(t, err)
				h, err := m.Acquire(t.Context())
				require.NoError(t, err)
				ctx, cancel := context.WithCancelCause(t.Context())
				c.end(srv, h, cancel)
				lost, err := h.runWork(ctx, &graceTime{ctx: t.Context()}, func(context.Context, *Hold) error {
					t.Error("the work was called")
					return nil
				})
				require.Equal(t, c.lost, lost)
				for _, want := range c.want {
					require.ErrorIs(t, err, want)
				}
				require.Empty(t, srv.Children("/job"))
				require.NoError(t, s.Close())
			})
		})
	}
}
