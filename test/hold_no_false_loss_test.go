package zklock_test

// These tests attack a false loss: a hold that ends without a cause (I5).

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/zktest"
)

// F15: the connection is cut and healed before the lease ends: the hold remains valid, and no loss
// is reported.
func TestHold_ConnectionLostAndHealed_Remains(t *testing.T) {
	t.Parallel()
	srv := target(t)
	p := lockPath(t, srv)
	w := &wire{}
	s := connect(t, srv, w.dialer())
	changes := s.Changes(within(t, soon))
	h := acquire(t, newMutex(t, s, p))
	for range 3 {
		w.cut()
		require.Equal(t, zklock.StateSuspended, (<-changes).State)
		require.Equal(t, zklock.StateReconnected, (<-changes).State)
	}
	before := h.Deadline()
	eventually(t, "the lease is renewed over the new connection", func() bool { return h.Deadline().After(before.Add(time.Second)) })
	require.NoError(t, h.Err())
	release(t, h)
}

// I5, F20 in part: no false Lost in hours without faults, in any mode, and the deadline is always
// ahead.
func TestVirtual_HoldForHours_IsNeverLost(t *testing.T) {
	for _, mode := range []zklock.LeaseMode{zklock.QuorumLease(0), zklock.SingleServerLease()} {
		for _, timeout := range []time.Duration{8 * time.Second, 30 * time.Second} {
			t.Run(fmt.Sprintf("%v/%v", mode, timeout), func(t *testing.T) {
				inVirtualTime(t, func(t *testing.T, v *virtual) {
					v.net.SetLatency(5 * time.Millisecond)
					s := v.connect(zklock.WithLease(mode), zklock.WithSessionTimeout(timeout))
					time.Sleep(time.Hour) // idle: only pings and cheap reads
					m := newMutex(t, s, "/job")
					for range 3 / oneIn(3) {
						start := time.Now()
						h := acquire(t, m)
						require.Less(t, time.Since(start), time.Second, "an idle session acquires at once")
						for range 1200 {
							time.Sleep(time.Duration(rand.Int64N(int64(2 * time.Second))))
							require.NoError(t, h.Err())
							require.Positive(t, time.Until(h.Deadline()))
						}
						release(t, h)
						time.Sleep(time.Hour)
					}
				})
			})
		}
	}
}

// I5: no false Lost. A grant after a wait, at any time, has a heartbeat before its lease ends, even
// with the smallest margin that Connect accepts.
func TestVirtual_GrantAfterAWait_IsNotLost(t *testing.T) {
	for i := 0; i < 150; i += oneIn(3) {
		idle, wait := 20*time.Second+time.Duration(i%5)*267*time.Millisecond, time.Duration(i/5)*75*time.Millisecond
		inVirtualTime(t, func(t *testing.T, v *virtual) {
			v.net.SetLatency(5 * time.Millisecond)
			short := zklock.WithSessionTimeout(8 * time.Second)
			h := acquire(t, newMutex(t, v.connect(short), "/job"))
			m := newMutex(t, v.connect(short), "/job")
			time.Sleep(idle)
			w := v.queueUp(m)
			time.Sleep(wait)
			release(t, h)
			next := w.granted2(t, time.Second)
			time.Sleep(10 * time.Second)
			require.NoError(t, next.Err(), "queued after %v, granted after %v", idle, wait)
			release(t, next)
		})
	}
}

// I5: a waiter holds nothing, so the lease becomes stale. It is renewed before the grant: the
// granted hold is reliable.
func TestVirtual_LongWait_LeaseIsRenewedBeforeTheGrant(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		h := acquire(t, newMutex(t, v.connect(), "/job"))
		s := v.connect()
		before := acquire(t, newMutex(t, s, "/other"))
		release(t, before)
		w := v.queueUp(newMutex(t, s, "/job"))
		time.Sleep(time.Hour)
		require.Negative(t, time.Until(before.Deadline()), "the lease is stale, or this shows nothing")
		release(t, h)
		h2 := w.granted2(t, time.Second)
		require.Greater(t, time.Until(h2.Deadline()), time.Second)
		require.NoError(t, h2.Err())
		synctest.Wait()
		release(t, h2)
	})
}

// R43: the servers of the list stop one after the other and return. The session moves, and the hold
// with it.
func TestVirtual_ServersComeAndGo_SessionStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := zktest.NewNetwork()
		n.SetLatency(time.Millisecond)
		ens := zktest.StartEnsemble(t, 3, zktest.WithNetwork(n))
		_, err := ens.Create("/job", nil, 0)
		require.NoError(t, err)
		s := connect(t, strings.Join(ens.Addrs(), ","), zklock.WithDialer(n.Dial), zklock.WithSessionTimeout(30*time.Second))
		h := acquire(t, newMutex(t, s, "/job"))
		id := s.Stats().SessionID
		for _, m := range ens.Members() {
			time.Sleep(20 * time.Second)
			m.Stop()
			time.Sleep(5 * time.Second)
			require.NoError(t, m.Start())
		}
		time.Sleep(20 * time.Second)
		require.Equal(t, id, s.Stats().SessionID, "R43")
		require.NoError(t, h.Err())
		release(t, h)
	})
}
