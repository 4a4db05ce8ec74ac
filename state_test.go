package zklock

// These tests attack state.go and errors.go: the state and the errors that users see.

import (
	"errors"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock/internal/link"
)

// The states of the API are the states of the link.
func TestState_IsTheLinks(t *testing.T) {
	for state, is := range map[State]link.State{StateConnecting: link.Connecting, StateConnected: link.Connected, StateSuspended: link.Suspended, StateReconnected: link.Reconnected, StateLost: link.Lost, StateClosed: link.Closed} {
		require.Equal(t, is, link.State(state))
	}
}

// errors.Is finds the sentinel, the reason and the client's error inside an Error.
func TestError(t *testing.T) {
	err := error(&Error{Op: "release", Path: "/locks/a", Node: "/locks/a/n", Err: lostBecause(link.ErrExpired)})
	require.ErrorIs(t, err, ErrLost)
	require.ErrorIs(t, err, link.ErrExpired)
	require.EqualError(t, err, "zklock: release /locks/a (node /locks/a/n): lock lost: the servers ended the ZooKeeper session")
	require.Same(t, errors.Unwrap(err), lostBecause(errors.Unwrap(err)), "a loss is not wrapped twice")

	err = &Error{Op: "acquire", Path: "/locks/a", Err: zk.ErrNoAuth}
	require.ErrorIs(t, err, zk.ErrNoAuth)
	require.EqualError(t, err, "zklock: acquire /locks/a: zk: not authenticated")

	require.ErrorIs(t, errReleased, ErrNotHeld)
}
