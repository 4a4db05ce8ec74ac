package zklock_test

// These tests ask each recipe for the holders, and compare them with the actual holds.

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
)

// whoHolds returns the nodes that hold.
func whoHolds(t *testing.T, ps []zklock.Participant, err error) (nodes []string) {
	t.Helper()
	require.NoError(t, err)
	for _, p := range ps {
		if p.Holds {
			nodes = append(nodes, p.Node)
		}
	}
	return nodes
}

func TestVirtual_Participants_Holds_Mutex(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		m := newMutex(t, v.connect(), "/job")
		now := acquire(t, m)
		next := v.queueUp(newMutex(t, v.connect(), "/job"))
		last := v.queueUp(newMutex(t, v.connect(), "/job"))
		for _, then := range []*waiting{next, last, nil} {
			ps, err := m.Participants(within(t, soon))
			require.Equal(t, []string{now.Node()}, whoHolds(t, ps, err))
			front, err := newElection(t, v.connect(), "/job", "a").Leader(within(t, soon))
			require.NoError(t, err)
			require.True(t, front.Holds)
			release(t, now)
			if then != nil {
				now = then.granted(t)
			}
		}
		ps, err := m.Participants(within(t, soon))
		require.NoError(t, err)
		require.Empty(t, ps)
	})
}

// Readers hold together, a writer that reads has two nodes that hold, and clients behind a writer
// wait.
func TestVirtual_Participants_Holds_ReadWrite(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		of := func() *zklock.RWMutex {
			m, err := zklock.NewRWMutex(v.connect(), "/job")
			require.NoError(t, err)
			return m
		}
		m := of()
		holders := func() []string {
			ps, err := m.ReadLock().Participants(within(t, soon))
			return whoHolds(t, ps, err)
		}
		reads := []*zklock.Hold{acquire(t, m.ReadLock()), acquire(t, of().ReadLock())}
		writerLock := of()
		writer := v.queueUp(writerLock.WriteLock())
		behind := v.queueUp(of().ReadLock())
		require.Equal(t, []string{reads[0].Node(), reads[1].Node()}, holders())
		release(t, reads[0])
		require.Equal(t, []string{reads[1].Node()}, holders())
		release(t, reads[1])
		writes := writer.granted(t)
		require.Equal(t, []string{writes.Node()}, holders())

		reading, err := writerLock.ReadLock().Acquire(writes.Context())
		require.NoError(t, err)
		require.ElementsMatch(t, []string{writes.Node(), reading.Node()}, holders())
		release(t, reading)
		release(t, writes)
		last := behind.granted(t)
		require.Equal(t, []string{last.Node()}, holders())
		release(t, last)
	})
}

// A granted lease holds. The first in the queue, with leases that are not granted, waits.
func TestVirtual_Participants_Holds_Semaphore(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		sem := newSemaphore(t, v.connect(), semPath, 3)
		require.NotNil(t, take(t, v.permits(2, 3)))
		last := take(t, v.permits(1, 3))
		first := v.lineUp(v.permits(2, 3))
		v.lineUp(v.permits(1, 3))
		check := func(permits, waiting int) {
			t.Helper()
			holders, waiters, err := sem.Participants(within(t, soon))
			require.Len(t, whoHolds(t, holders, err), permits)
			require.Len(t, holders, permits)
			require.Empty(t, whoHolds(t, waiters, err))
			require.Len(t, waiters, waiting)
		}
		v.has(5, 2, "the first in line waits with two leases")
		check(3, 3)
		release(t, last)
		synctest.Wait()
		require.False(t, first.isGranted())
		check(2, 3)
	})
}

// The first candidate leads, by each way to ask.
func TestVirtual_Participants_Holds_Election(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		e := newElection(t, v.connect(), "/job", "o")
		o := v.observe(e)
		require.False(t, o.last().Holds, "nobody stands")
		a := v.stand(newElection(t, v.connect(), "/job", "a"), untilItEnds)
		v.stand(newElection(t, v.connect(), "/job", "b"), untilItEnds)
		all, err := e.Candidates(within(t, soon))
		require.Equal(t, []string{a.hold.Load().Node()}, whoHolds(t, all, err))
		leader, err := e.Leader(within(t, soon))
		require.NoError(t, err)
		require.True(t, leader.Holds)
		require.True(t, o.last().Holds)
		require.Equal(t, leader.Node, o.last().Node)
	})
}
