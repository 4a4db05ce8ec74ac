package link

// This test attacks lasterror.go: which responses the error of a call has.

import (
	"context"
	"fmt"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock/internal/wire"
)

// R111: the last response counts if it was an error that does not concern the content of the
// request.
func TestLastError(t *testing.T) {
	for name, tt := range map[string]struct {
		errs []error
		has  error
	}{
		"none":                            {nil, nil},
		"throttled":                       {[]error{wire.Throttled}, wire.Throttled},
		"the session has moved":           {[]error{wire.Throttled, zk.ErrSessionMoved}, zk.ErrSessionMoved},
		"a success since":                 {[]error{wire.Throttled, nil}, nil},
		"no response since":               {[]error{wire.Throttled, zk.ErrConnectionClosed}, wire.Throttled},
		"the end of the context since":    {[]error{wire.Throttled, ErrCtxEnded}, wire.Throttled},
		"the end of the context":          {[]error{ErrCtxEnded}, nil},
		"no response":                     {[]error{zk.ErrConnectionClosed}, nil},
		"an error about the node":         {[]error{zk.ErrNoNode}, nil},
		"an error about the node, before": {[]error{zk.ErrNoNode, wire.OperationTimeout}, wire.OperationTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			last := new(LastError)
			for _, err := range tt.errs {
				last.Note(err)
			}
			got := last.AddTo(context.Canceled)
			require.ErrorIs(t, got, context.Canceled)
			if tt.has == nil {
				require.Equal(t, context.Canceled, got)
				return
			}
			require.ErrorIs(t, got, tt.has)
			require.ErrorContains(t, got, "context canceled; the last response was an error: ")
		})
	}
	var hungUp LastError
	hungUp.Note(wire.Throttled)
	require.NoError(t, hungUp.HungUp())
	why := fmt.Errorf("%w: %w", zk.ErrConnectionClosed, ErrHungUp)
	hungUp.Note(why) // R112
	require.Equal(t, why, hungUp.HungUp())
	require.EqualError(t, hungUp.AddTo(context.Canceled), "context canceled; "+why.Error())
	var none *LastError
	none.Note(wire.Throttled)
	require.Equal(t, context.Canceled, none.AddTo(context.Canceled))
}
