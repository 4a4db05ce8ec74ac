package zklock_test

// These tests read the changes of state: a reader sees each change of the state, and delays no
// other call.

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
)

// askingContext is a user's context that queries the Session whenever its methods are called.
type askingContext struct {
	context.Context
	ask func()
}

func (c askingContext) Err() error { c.ask(); return c.Context.Err() }

func (c askingContext) Done() <-chan struct{} { c.ask(); return c.Context.Done() }

// I6: the context given to Changes is the user's code. A hold's context ends the hold when it is
// checked after a suspend (F18); another one queries the Session. Neither stops Changes.
func TestVirtual_Changes_ContextAsksTheSession(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		var asleep suspension
		s := v.hooked(asleep.hooks())
		m := newMutex(t, s, "/job")
		ctx, cancel := context.WithCancel(t.Context())
		asked := 0
		asking := s.Changes(askingContext{ctx, func() { asked++; _, _ = m.Held(), s.Stats().SessionID }})
		h := acquire(t, m)
		changes := s.Changes(t.Context())
		asleep.Add(int64(time.Minute))
		_, open := <-s.Changes(h.Context())
		require.False(t, open)
		require.Equal(t, zklock.StateLost, (<-changes).State)
		require.Equal(t, zklock.StateLost, (<-asking).State)
		require.Positive(t, asked)
		cancel()
		for range asking { // until it is closed
		}
		require.ErrorIs(t, h.Release(within(t, soon)), zklock.ErrLost)
	})
}

// R51: a change of the state is visible before any reader is notified of it.
func TestVirtual_Changes_StateIsVisibleFirst(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		v.net.SetLatency(time.Millisecond) // or the next change arrives at the same instant
		s := v.connect()
		changes := s.Changes(within(t, time.Hour))
		step := func(want zklock.State) {
			t.Helper()
			c := <-changes
			require.Equal(t, want, c.State)
			require.Equal(t, want, s.Stats().State, "no time has passed since")
		}
		for range 5 {
			time.Sleep(5 * time.Second)
			v.srv.DropConnection(s.Stats().SessionID)
			step(zklock.StateSuspended)
			step(zklock.StateReconnected)
		}
	})
}

// R42, R9: a reader of Changes that stops reading delays no other call.
func TestChanges_SlowReader_LosesTheOldest(t *testing.T) {
	t.Parallel()
	srv := target(t)
	w := &wire{}
	s := connect(t, srv, w.dialer())
	changes := s.Changes(context.Background()) // no reader
	ctx, cancel := context.WithCancel(context.Background())
	gone := s.Changes(ctx)
	cancel()
	for range gone {
	}
	m := newMutex(t, s, lockPath(t, srv))
	for range 3 {
		w.cut()
		release(t, acquire(t, m))
	}
	require.NoError(t, s.Close())
	n := 0
	for range changes {
		n++
	}
	require.LessOrEqual(t, n, 64)
	require.GreaterOrEqual(t, n, 3)
}
