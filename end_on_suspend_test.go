package zklock_test

// These tests attack WithEndOnSuspend: a hold ends with its connection.

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/zktest"
)

// WithEndOnSuspend: to leave a server would end the holds. The client's own limit counts.
func TestVirtual_EndOnSuspend_SilentServerIsNotLeft(t *testing.T) {
	inTheDark(t, 3, "follower", 30*time.Second, func(t *testing.T, d *darkness) {
		time.Sleep(time.Minute)
		d.net.Partition(d.at.Addr())
		time.Sleep(15 * time.Second)
		require.NoError(t, d.h.Err())
		require.Equal(t, d.at.Addr(), d.s.Conn().Server())
		<-d.h.Lost()
		require.ErrorIs(t, d.h.Release(within(t, soon)), zklock.ErrLost)
	}, zklock.WithEndOnSuspend())
}

// WithEndOnSuspend: Curator's advice as a policy. The session lives on, and so the node must be deleted.
func TestHold_EndOnSuspend(t *testing.T) {
	t.Parallel()
	srv := target(t)
	a, p := admin(t, srv), lockPath(t, srv)
	w := &wire{}
	s := connect(t, srv, w.dialer(), zklock.WithEndOnSuspend())
	id := s.SessionID()
	h := acquire(t, newMutex(t, s, p))
	w.cut()
	select {
	case <-h.Lost():
	case <-time.After(soon):
		t.Fatal("not told")
	}
	eventually(t, "I4: the node is deleted", func() bool { return len(children(t, a, p)) == 0 })
	require.Equal(t, id, s.SessionID())
	require.ErrorIs(t, h.Release(within(t, soon)), zklock.ErrLost)
}

// WithEndOnSuspend: a hold cannot begin while the connection is suspended.
func TestVirtual_EndOnSuspend_EndsEveryHold(t *testing.T) {
	for nth := 1; nth <= 6; nth++ {
		inVirtualTime(t, func(t *testing.T, v *virtual) {
			s := v.connect(zklock.WithEndOnSuspend())
			m := newMutex(t, s, "/job")
			release(t, acquire(t, m))
			v.srv.Inject(zktest.After(zktest.AnyOp).Session(s.SessionID()).Nth(nth).Close().Optional())
			h := acquire(t, m)
			synctest.Wait()
			if !s.State().Attached() {
				require.ErrorIs(t, h.Err(), zklock.ErrLost)
			}
			time.Sleep(10 * time.Second)
			if err := h.Release(within(t, soon)); err != nil {
				require.ErrorIs(t, err, zklock.ErrLost)
			}
			time.Sleep(time.Second)
			require.Empty(t, v.srv.Children("/job"))
		})
	}
}

// WithEndOnSuspend, I4: the connection is lost while something is held. The hold ends at once, and as the ZooKeeper
// session lives on, its node is deleted.
func TestVirtual_EndOnSuspend_IsToldAtOnce(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		s := v.connect(zklock.WithEndOnSuspend())
		h := acquire(t, newMutex(t, s, "/job"))
		id := s.SessionID()
		time.Sleep(5 * time.Second)
		require.True(t, v.srv.DropConnection(id))
		synctest.Wait()
		require.True(t, isLost(h))
		time.Sleep(2 * time.Second)
		require.Equal(t, id, s.SessionID())
		require.Empty(t, v.srv.Children("/job"), "I4")
		require.ErrorIs(t, h.Release(within(t, soon)), zklock.ErrLost)
	})
}
