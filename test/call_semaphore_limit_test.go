package zklock_test

// These tests change the limit of a semaphore that is shared in a node.

import (
	"encoding/binary"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
)

const semLimit = "/job/limits/sem"

func (v *virtual) setLimit(n int) {
	v.t.Helper()
	require.NoError(v.t, v.srv.SetData(semLimit, binary.BigEndian.AppendUint32(nil, uint32(n))))
}

// sharing are k permits of a semaphore whose limit is shared, and starts with n.
func (v *virtual) sharing(k, n int) zklock.Lock {
	return v.permits(k, n, zklock.WithSharedLimit(semLimit))
}

// The first acquire makes the node, as Curator's SharedCount writes it. Later ones go by what is there, and not by their own number.
func TestVirtual_SharedLimit_NodeIsMade(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		h := take(t, v.sharing(2, 2))
		data, ok := v.srv.Get(semLimit)
		require.True(t, ok)
		require.Equal(t, []byte{0, 0, 0, 2}, data)
		_, err := v.sharing(1, 5).TryAcquire(t.Context())
		require.ErrorIs(t, err, zklock.ErrNotAcquired)
		release(t, h)
		v.has(0, 0)
	})
}

// F48: more permits wake at once who waits. Fewer take none away: nobody else gets one until enough are released.
func TestVirtual_SharedLimit_Changes(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		h1, h2 := take(t, v.sharing(1, 2)), take(t, v.sharing(1, 2))
		w3, w4 := v.lineUp(v.sharing(1, 2)), v.lineUp(v.sharing(1, 2))
		time.Sleep(time.Minute)
		v.setLimit(3)
		synctest.Wait()
		require.True(t, w3.isGranted(), "at once")
		require.False(t, w4.isGranted())
		v.setLimit(1)
		time.Sleep(time.Minute)
		for _, h := range []*zklock.Hold{h1, h2, w3.granted(t)} {
			require.NoError(t, h.Err())
			require.False(t, w4.isGranted())
			release(t, h)
			synctest.Wait()
		}
		release(t, w4.granted(t))
		v.has(0, 0)
	})
}

// A limit below what a waiter wants ends its wait, in front and behind: it would block the line. So does one that was too small at
// the call, at once.
func TestVirtual_SharedLimit_BelowWhatIsWanted(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		h := take(t, v.sharing(2, 3))
		front := v.lineUp(v.sharing(2, 3))
		behind := v.lineUp(v.sharing(1, 3))
		v.setLimit(1)
		_, err := front.get(t)
		require.ErrorContains(t, err, "2 permits were asked for, and the limit in "+semLimit+" is now 1")
		require.False(t, behind.isGranted())
		_, err = v.sharing(2, 3).Acquire(within(t, time.Second))
		require.ErrorContains(t, err, "ask for fewer, or raise it", "also behind another")
		require.False(t, zklock.IsFinal(err))
		release(t, h)
		release(t, behind.granted(t))
		_, err = v.sharing(2, 3).Acquire(within(t, time.Second))
		require.ErrorContains(t, err, "ask for fewer, or raise it")
		v.has(0, 0, "I4")
	})
}

// F48: rubbish in the node is an error that names it; nothing is left behind. A hold stands.
func TestVirtual_SharedLimit_Rubbish(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		h := take(t, v.sharing(1, 2))
		for _, data := range []string{"", "3", "0003", "1000", "null", "\x01\x00\x00\x01", "\xff\xff\xff\xff", "\x00\x00\x00\x00\x02"} {
			require.NoError(t, v.srv.SetData(semLimit, []byte(data)))
			_, err := v.sharing(1, 2).Acquire(within(t, time.Second))
			require.ErrorContains(t, err, semLimit)
			require.ErrorContains(t, err, "write 4 bytes, big endian")
			_, _, err = newSemaphore(t, v.connect(), semPath, 2, zklock.WithSharedLimit(semLimit)).Participants(within(t, time.Second))
			require.ErrorContains(t, err, semLimit)
			v.has(1, 0, "I4")
		}
		require.NoError(t, h.Err())
		release(t, h)
	})
}

// The option costs one request more, in the same two round trips.
func TestVirtual_SharedLimit_Budget(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		v.net.SetLatency(10 * time.Millisecond)
		w := &wire{dial: v.net.Dial}
		p := newSemaphore(t, v.connect(w.dialer()), semPath, 4, zklock.WithSharedLimit(semLimit)).Permits(2)
		release(t, take(t, p))
		time.Sleep(time.Second)
		w.reset()
		began := time.Now()
		h, err := p.Acquire(within(t, soon))
		require.NoError(t, err)
		require.Equal(t, 2*20*time.Millisecond, time.Since(began))
		time.Sleep(time.Second)
		_, by := w.sent()
		require.Equal(t, map[int32]int{opCreate: 1, opGetChildren2: 2, opMulti: 1, opGetData: 1, opDelete: 1}, by)
		release(t, h)
		time.Sleep(time.Second)
		require.Zero(t, w.received().events)
	})
}

// F22: the limit is raised while the waiter has no connection.
func TestVirtual_SharedLimit_ChangesInAnOutage(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		take(t, v.sharing(1, 1))
		s := v.connect()
		w := v.lineUp(newSemaphore(t, s, semPath, 1, zklock.WithSharedLimit(semLimit)).Permits(1))
		require.True(t, v.srv.DropConnection(s.SessionID()))
		v.setLimit(2)
		release(t, w.granted2(t, 10*time.Second))
	})
}
