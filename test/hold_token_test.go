package zklock_test

// These tests attack the token: it is the node's czxid, grows, and fences a write (I1).

import (
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
)

// R15: a write to ZooKeeper that ZooKeeper itself fences.
func TestHold_Check_FencesAMulti(t *testing.T) {
	srv := target(t)
	a, p := admin(t, srv), lockPath(t, srv)
	s := connect(t, srv)
	h := acquire(t, newMutex(t, s, p+"/lock"))
	_, err := a.Create(p+"/value", []byte("old"), 0, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)
	_, err = a.Set(h.Node(), []byte("somebody changed the data"), -1) // no matter: any version will do
	require.NoError(t, err)
	write := func(v string) error {
		_, err := s.Conn().Multi(h.Checks()[0], &zk.SetDataRequest{Path: p + "/value", Data: []byte(v), Version: -1})
		return err
	}
	require.NoError(t, write("held"))
	require.NoError(t, a.Delete(h.Node(), -1))
	require.ErrorIs(t, write("lost"), zk.ErrNoNode)
	data, _, err := a.Get(p + "/value")
	require.NoError(t, err)
	require.Equal(t, "held", string(data))
	require.ErrorIs(t, h.Release(within(t, soon)), zklock.ErrLost)
}

// I1, R59: the token is the node's czxid. Sequence numbers start again with a new lock root; tokens
// do not.
func TestVirtual_Token_GrowsAcrossLockRoots(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		m := newMutex(t, v.connect(), "/job")
		last := int64(0)
		for range 3 {
			for range 3 {
				h := acquire(t, m)
				st, ok := v.srv.Stat(h.Node())
				require.True(t, ok)
				require.Equal(t, st.Czxid, h.Token())
				require.Greater(t, h.Token(), last, "I1")
				last = h.Token()
				release(t, h)
			}
			require.NoError(t, v.srv.Delete("/job"))
		}
	})
}
