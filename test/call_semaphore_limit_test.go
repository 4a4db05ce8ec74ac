package zklock_test

// These tests change the limit of a semaphore that is shared in a node.

import (
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"math"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
)

const semLimit = "/job/limits/sem"

func (v *virtual) setLimit(n int) {
	v.t.Helper()
	require.NoError(v.t, v.srv.SetData(semLimit, binary.BigEndian.AppendUint32(nil, uint32(n))))
}

// sharing returns k permits of a semaphore with a shared limit, which starts with n.
func (v *virtual) sharing(k, n int) zklock.Lock {
	return v.permits(k, n, zklock.WithSharedLimit(semLimit))
}

// The first acquire creates the node, in the format of Curator's SharedCount. Later ones use the
// limit in the node, and not their own number.
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

// F48: a higher limit wakes waiters at once. A lower one revokes no permit: no call gets one until
// enough are released.
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

// F48: a limit below a waiter's request ends no wait, at any position, because the limit may be
// raised. The waiter's log, and its error if it gives up, give the reason. A try does not wait.
func TestVirtual_SharedLimit_BelowWhatIsWanted_Waits(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		const why = "it wants 2, and the limit in " + semLimit + " is 1"
		h := take(t, v.sharing(2, 3))
		var log warnings
		front := v.lineUp(newSemaphore(t, v.connect(lines(&log, slog.LevelInfo)), semPath, 3, zklock.WithSharedLimit(semLimit)).Permits(2))
		behind := v.lineUp(v.sharing(2, 3))
		v.setLimit(1)
		release(t, h)
		time.Sleep(time.Hour)
		require.False(t, front.isGranted())
		require.False(t, behind.isGranted())
		require.Contains(t, log.of("zklock: still waiting for the lock")[0], fmt.Sprintf("why=%q", why))
		_, err := v.sharing(2, 3).TryAcquire(t.Context())
		require.ErrorIs(t, err, zklock.ErrNotAcquired, "behind others")
		require.ErrorContains(t, err, why)
		front.stop()
		_, err = front.get(t)
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorContains(t, err, why)
		var e *zklock.Error
		require.ErrorAs(t, err, &e)
		require.Empty(t, e.Predecessor+e.Holder, "no client is ahead of it")
		synctest.Wait() // the next one is first in the queue
		v.setLimit(2)
		synctest.Wait()
		require.True(t, behind.isGranted(), "at once")
		release(t, behind.granted(t))
		v.setLimit(1)
		_, err = v.sharing(2, 3).TryAcquire(t.Context())
		require.ErrorIs(t, err, zklock.ErrNotAcquired, "in front")
		require.ErrorContains(t, err, why)
		require.False(t, zklock.IsFinal(err))
		v.has(0, 0, "I4")
	})
}

// F48: the limit 0 pauses the work and ends no wait of any kind. Holds remain valid.
func TestVirtual_SharedLimit_Zero_Pauses(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		h := take(t, v.sharing(1, 1))
		v.setLimit(0)
		first, second := v.lineUp(v.sharing(1, 1)), v.lineUp(v.sharing(1, 1))
		time.Sleep(time.Minute)
		require.NoError(t, h.Err())
		release(t, h)
		_, err := v.sharing(1, 1).TryAcquire(t.Context())
		require.ErrorIs(t, err, zklock.ErrNotAcquired)
		time.Sleep(10 * time.Minute)
		require.False(t, first.isGranted())
		require.False(t, second.isGranted())
		v.setLimit(1)
		synctest.Wait()
		require.True(t, first.isGranted(), "at once")
		v.setLimit(0)
		release(t, first.granted(t))
		time.Sleep(10 * time.Minute)
		require.False(t, second.isGranted())
		second.stop()
		_, err = second.get(t)
		require.ErrorIs(t, err, context.Canceled)
		err = v.sharing(1, 1).Do(t.Context(), func(context.Context, *zklock.Hold) error { return nil }, zklock.WaitAtMost(time.Minute))
		require.ErrorIs(t, err, zklock.ErrNotAcquired)
		require.ErrorContains(t, err, "it wants 1, and the limit in "+semLimit+" is 0")
		v.has(0, 0, "I4")
	})
}

// F48: invalid data in the node is an error that names it, and no node is left. A hold remains
// valid.
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

// The option costs one more request, in the same round trip.
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
		require.Equal(t, 20*time.Millisecond, time.Since(began))
		time.Sleep(time.Second)
		_, by := w.sent()
		require.Equal(t, map[int32]int{opGetChildren2: 2, opMulti: 1, opGetData: 1}, by)
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
		require.True(t, v.srv.DropConnection(s.Stats().SessionID))
		v.setLimit(2)
		release(t, w.granted2(t, 10*time.Second))
	})
}

// I6: permits that can never be granted are rejected at once, whatever forbids them, with a final
// error that contains the limit. Nothing is sent. The largest number that fits is granted, and one
// more is not.
func TestVirtual_Semaphore_ImpossiblePermits_AreRefusedBeforeQueueing(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		v.net.SetLatency(time.Millisecond)
		w := &wire{dial: v.net.Dial}
		s := v.connect(w.dialer(), zklock.WithMaxLockNodes(30_000))
		few := v.connect(zklock.WithMaxLockNodes(10))
		half := []zklock.SemaphoreOption{zklock.WithData(make([]byte, 400<<10))}
		wide := []zklock.SemaphoreOption{zklock.WithACL(append(zk.WorldACL(zk.PermAll), zk.DigestACL(zk.PermAll, strings.Repeat("ann", 100), "secret")...))}
		release(t, take(t, newSemaphore(t, s, semPath, 3, zklock.WithSharedLimit(semLimit)).Permits(3)))
		before := v.srv.Zxid()
		for _, c := range []struct {
			s    *zklock.Session
			n, k int
			opts []zklock.SemaphoreOption
			says string
		}{
			{s, 3, 4_000, []zklock.SemaphoreOption{zklock.WithSharedLimit(semLimit)}, "4000 permits of a semaphore that has 3: ask for 1 to 3"},
			{s, 3, 20_000, []zklock.SemaphoreOption{zklock.WithSharedLimit(semLimit)}, "ask for 1 to 3"},
			{few, 20, 10, nil, "10 permits are 11 lock nodes, one of them in the queue, and this Session may have 10"},
			{s, 20_000, 20_000, nil, "servers read 1048575 (jute.maxbuffer): ask for "},
			{s, 1<<31 - 1, 29_999, nil, "servers read 1048575 (jute.maxbuffer): ask for "},
			{s, 4, 3, half, "ask for 2 at most, or give less data"},
			{s, 9_000, 3_000, wide, "servers read 1048575 (jute.maxbuffer): ask for "},
		} {
			front := newSemaphore(t, c.s, semPath, c.n, c.opts...).Permits(c.k)
			w.reset()
			for _, acquire := range []func(context.Context) (*zklock.Hold, error){front.Acquire, front.TryAcquire} {
				began := time.Now()
				_, err := acquire(within(t, time.Hour))
				require.ErrorContains(t, err, c.says)
				require.True(t, zklock.IsFinal(err), "%v", err)
				require.NotErrorIs(t, err, zklock.ErrTooManyLockNodes)
				require.Zero(t, time.Since(began))
			}
			n, by := w.sent()
			require.Zero(t, n, "%v", by)
		}
		require.Equal(t, before, v.srv.Zxid(), "nothing was made")

		for _, opts := range [][]zklock.SemaphoreOption{nil, wide} {
			sem := newSemaphore(t, s, semPath, 20_000, opts...)
			_, err := sem.Acquire(within(t, time.Hour), 20_000)
			require.Error(t, err)
			_, most, ok := strings.Cut(err.Error(), "ask for ")
			require.True(t, ok)
			k, err := strconv.Atoi(most[:strings.IndexByte(most, ' ')])
			require.NoError(t, err)
			_, err = sem.Acquire(within(t, time.Hour), k+1)
			require.True(t, zklock.IsFinal(err))
			h, err := sem.Acquire(within(t, time.Hour), k)
			require.NoError(t, err)
			require.Len(t, h.Checks(), k)
			release(t, h)
		}
		h, err := newSemaphore(t, few, semPath, 20).Acquire(within(t, time.Hour), 9)
		require.NoError(t, err)
		release(t, h)
		v.has(0, 0)
	})
}

// I6: a caller has waited in the queue of a semaphore with the largest possible limit, and is
// granted. Twice that limit overflows an int of 32 bits (make nightly PART=i386).
func TestVirtual_Semaphore_LargestLimit_QueuedCallerIsGranted(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		release(t, take(t, newSemaphore(t, v.connect(), semPath, math.MaxInt32).Permits(1)))
		front, err := v.srv.CreateAs(v.connect().Stats().SessionID, semQueue+"/_c_11111111-1111-4111-8111-111111111111-lock-", nil,
			zk.FlagEphemeral|zk.FlagSequence)
		require.NoError(t, err)
		w := v.queueUp(newSemaphore(t, v.connect(zklock.WithMaxLockNodes(2)), semPath, math.MaxInt32).Permits(1))
		require.False(t, w.isGranted(), "it may not have leases as well as its node: it waits for its turn")
		require.NoError(t, v.srv.Delete(front))
		release(t, w.granted2(t, time.Minute))
		synctest.Wait()
	})
}

// If the servers' jute.maxbuffer differs and the Session is configured for it, the Session's own
// limit follows: a longer request is sent, and a shorter one is rejected. zktest reads as much as
// servers by default, and so shows that the longer one was sent: it closes the connection.
func TestVirtual_WithJuteMaxBuffer_BoundFollows(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		data := zklock.WithData(make([]byte, 400<<10)) // three leases are more than servers read by default
		_, err := newSemaphore(t, v.connect(zklock.WithJuteMaxBuffer(4<<20)), semPath, 3, data).Acquire(within(t, time.Hour), 3)
		require.ErrorIs(t, err, zk.ErrConnectionClosed)
		require.ErrorContains(t, err, "jute.maxbuffer")
		require.False(t, zklock.IsFinal(err))

		narrow := v.connect(zklock.WithJuteMaxBuffer(500 << 10))
		sem := newSemaphore(t, narrow, semPath, 3, data)
		release(t, take(t, sem.Permits(1)))
		before := v.srv.Zxid()
		_, err = sem.Acquire(within(t, time.Hour), 2)
		require.ErrorContains(t, err, "servers read 512000 (jute.maxbuffer): ask for 1 at most")
		require.True(t, zklock.IsFinal(err))
		_, err = newMutex(t, narrow, "/job/m", zklock.WithData(make([]byte, 500<<10))).Acquire(within(t, time.Hour))
		require.ErrorContains(t, err, "servers read 512000 at most")
		require.True(t, zklock.IsFinal(err))
		require.Equal(t, before, v.srv.Zxid())
		v.has(0, 0)
	})
}
