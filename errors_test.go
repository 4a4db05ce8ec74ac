package zklock

// These tests attack errors.go: what a server's code means for a request.

import (
	"errors"
	"fmt"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock/internal/tap"
	"github.com/zklock/zklock/internal/wire"
)

// Errors are those of the zk package where it has one, and tell the code's name where it has none.
func TestCodeError(t *testing.T) {
	require.NoError(t, codeError(wire.OK))
	for code, want := range map[wire.Code]error{wire.NoNode: zk.ErrNoNode, wire.SessionMoved: zk.ErrSessionMoved, wire.SessionExpired: zk.ErrSessionExpired, wire.NoAuth: zk.ErrNoAuth} {
		require.ErrorIs(t, codeError(code), want)
	}
	for _, code := range []wire.Code{wire.Throttled, wire.QuotaExceeded, wire.LocalSession, wire.AuthRequired} {
		err := fmt.Errorf("somewhere: %w", codeError(code))
		require.Equal(t, code, serverCode(err))
		require.NotContains(t, err.Error(), "code(", "no name")
	}
	require.Zero(t, serverCode(errors.New("something else")))
}

// What the answer to a request means to who asked.
func TestAnswerErr(t *testing.T) {
	require.NoError(t, answerErr(tap.Answer{Fate: tap.WasAnswered}))
	require.ErrorIs(t, answerErr(tap.Answer{Fate: tap.WasAnswered, Code: wire.NoNode}), zk.ErrNoNode)
	require.ErrorIs(t, answerErr(tap.Answer{Fate: tap.NoAnswer}), zk.ErrConnectionClosed)
	require.ErrorIs(t, answerErr(tap.Answer{}), zk.ErrConnectionClosed)
	long := tooLong(tap.NewRequest(wire.OpCreate, wire.Raw(make([]byte, wire.MaxFrame-7)), nil))
	require.ErrorIs(t, long, zk.ErrBadArguments)
	require.True(t, isRefusal(long), "and is not tried again")
}
