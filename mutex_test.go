package zklock_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/internal/zkserver"
)

func TestSmoke(t *testing.T) {
	srv := zkserver.Single(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	s, err := zklock.Connect(ctx, srv.Addr(), zklock.WithSessionTimeout(10*time.Second))
	require.NoError(t, err)
	defer s.Close()
	m, err := zklock.NewMutex(s, "/locks/orders")
	require.NoError(t, err)
	h, err := m.Acquire(ctx)
	require.NoError(t, err)
	t.Log(h.Path(), h.Token(), time.Until(h.Deadline()))
	_, err = m.TryAcquire(ctx)
	require.ErrorIs(t, err, zklock.ErrNotAcquired)
	h2, err := m.Acquire(h.Context())
	require.NoError(t, err)
	require.NoError(t, h2.Release(ctx))
	got := make(chan error, 1)
	go func() {
		h, err := m.Acquire(ctx)
		if err == nil {
			t.Log(h.Path(), h.Token(), time.Until(h.Deadline()))
			err = h.Release(ctx)
		}
		got <- err
	}()
	time.Sleep(50 * time.Millisecond)
	ps, err := m.Participants(ctx)
	require.NoError(t, err)
	require.Len(t, ps, 2)
	require.NoError(t, h.Release(ctx))
	require.NoError(t, <-got)
	ps, err = m.Participants(ctx)
	require.NoError(t, err)
	require.Empty(t, ps)
}
