package zklock_test

// This test attacks participants.go: who is in the queue.

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
)

// R11, R15, R19, R60.
func TestParticipants(t *testing.T) {
	srv := target(t)
	a, p := admin(t, srv), lockPath(t, srv)
	s1, s2 := connect(t, srv), connect(t, srv)
	m := newMutex(t, s1, p, zklock.WithData([]byte("first")))
	ps, err := newMutex(t, s1, p+"/not/there").Participants(within(t, soon))
	require.NoError(t, err)
	require.Empty(t, ps)

	h := acquire(t, m)
	w := queueUp(t, a, newMutex(t, s2, p, zklock.WithData([]byte("second"))), p)
	ps, err = m.Participants(within(t, soon))
	require.NoError(t, err)
	require.Len(t, ps, 2)
	require.Equal(t, h.Node(), ps[0].Node)
	require.Equal(t, h.Token(), ps[0].Token)
	require.Equal(t, []string{"first", "second"}, []string{string(ps[0].Data), string(ps[1].Data)})
	require.Equal(t, []int64{s1.SessionID(), s2.SessionID()}, []int64{ps[0].SessionID, ps[1].SessionID})
	require.Greater(t, ps[1].Token, ps[0].Token)
	require.WithinDuration(t, time.Now(), ps[0].Created, time.Minute)
	release(t, h)
	release(t, w.granted(t))
}
