package reply

// These tests attack reply.go: what a server's code means for a request.

import (
	"errors"
	"fmt"
	"runtime"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock/internal/mux"
	"github.com/zklock/zklock/internal/wire"
)

// A code becomes an error of the zk package if it has one, and otherwise an error with the code's
// name.
func TestCodeError(t *testing.T) {
	require.NoError(t, codeErr(wire.OK))
	for code, want := range map[wire.Code]error{wire.NoNode: zk.ErrNoNode, wire.SessionMoved: zk.ErrSessionMoved, wire.SessionExpired: zk.ErrSessionExpired, wire.NoAuth: zk.ErrNoAuth} {
		require.ErrorIs(t, codeErr(code), want)
	}
	for _, code := range []wire.Code{wire.Throttled, wire.QuotaExceeded, wire.LocalSession, wire.AuthRequired} {
		err := fmt.Errorf("somewhere: %w", codeErr(code))
		require.Equal(t, code, ServerCode(err))
		require.NotContains(t, err.Error(), "code(", "no name")
	}
	require.Zero(t, ServerCode(errors.New("something else")))
}

// R111: an error of the zk package gets the code that its own text does not have, and no other
// error changes.
func TestWithCode(t *testing.T) {
	moved := WithCode(zk.ErrSessionMoved)
	require.ErrorIs(t, moved, zk.ErrSessionMoved)
	require.ErrorContains(t, moved, "(-118)")
	for _, err := range []error{nil, wire.Throttled, zk.ErrConnectionClosed, wire.ErrMalformed} {
		require.Equal(t, err, WithCode(err))
	}
}

// The error that the caller of a request gets for a response.
func TestAnswerErr(t *testing.T) {
	require.NoError(t, ErrOf(mux.Reply{Fate: mux.WasAnswered}))
	require.ErrorIs(t, ErrOf(mux.Reply{Fate: mux.WasAnswered, Code: wire.NoNode}), zk.ErrNoNode)
	require.ErrorIs(t, ErrOf(mux.Reply{Fate: mux.NoAnswer}), zk.ErrConnectionClosed)
	require.ErrorIs(t, ErrOf(mux.Reply{}), zk.ErrConnectionClosed)
}

// The outcome of a request that changes something, by the client's error. A doubt is "unknown": an
// orphan costs more than a second list (R2, R23).
func TestOutcomeOf(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want Outcome
	}{
		{nil, Applied},

		{zk.ErrNoNode, TurnedDown},
		{zk.ErrNoAuth, TurnedDown},
		{zk.ErrBadVersion, TurnedDown},
		{zk.ErrNodeExists, TurnedDown},
		{zk.ErrNotEmpty, TurnedDown},
		{zk.ErrInvalidACL, TurnedDown},
		{zk.ErrBadArguments, TurnedDown},
		{zk.ErrNoChildrenForEphemerals, TurnedDown},
		{zk.ErrAuthFailed, TurnedDown},
		{wire.RuntimeInconsistency, TurnedDown},
		{wire.Unimplemented, TurnedDown}, // F28
		{wire.QuotaExceeded, TurnedDown}, // F28
		{wire.Throttled, NotNow},         // F28
		{fmt.Errorf("making the root: %w", zk.ErrNoAuth), TurnedDown},

		{zk.ErrConnectionClosed, Unknown},
		{zk.ErrSessionExpired, Unknown}, // the dead session's nodes may be seen for a while
		{zk.ErrSessionMoved, Unknown},
		{wire.ErrMalformed, Unknown}, // an answer that did not decode
		{zk.ErrAPIError, Unknown},
		{wire.OperationTimeout, Unknown},
		{wire.Code(-122), Unknown}, // request timeout
	} {
		require.Equal(t, tt.want, OutcomeOf(tt.err), "%v", tt.err)
	}
}

// R120: no memory is allocated for the results of a response that has more than were requested.
// Each has 9 bytes in the response and takes 160 bytes of memory.
func TestErrOfMulti_MoreResultsThanAsked_AllocatesNothingForThem(t *testing.T) {
	results := make([]wire.MultiResult, 1<<20)
	for i := range results {
		results[i].Op = wire.OpCheck
	}
	a := mux.Reply{Fate: mux.WasAnswered, Body: wire.Frame(wire.MultiResponse{Results: results})[4:]}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	i, err := ErrOfMulti(a, 2)
	runtime.ReadMemStats(&after)
	require.ErrorIs(t, err, wire.ErrMalformed)
	require.Equal(t, -1, i)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(10_000))
}
