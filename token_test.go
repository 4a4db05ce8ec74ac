package zklock_test

// These tests attack the token: it is the node's czxid, grows, and fences a write (I1).

import (
	"encoding/binary"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/zktest"
)

// otherZxids is a client's way to a server that speaks the protocol, and puts another number than a create's zxid into the
// head of its reply.
type otherZxids struct {
	net.Conn
	mu      sync.Mutex
	creates map[uint32]bool // by xid
	in      []byte
	greeted bool
}

func (c *otherZxids) Write(p []byte) (int, error) {
	if len(p) >= 12 && binary.BigEndian.Uint32(p[8:]) == opCreate { // the client writes a frame at a time
		c.mu.Lock()
		c.creates[binary.BigEndian.Uint32(p[4:])] = true
		c.mu.Unlock()
	}
	return c.Conn.Write(p)
}

func (c *otherZxids) Read(p []byte) (int, error) {
	if len(c.in) == 0 {
		var head [4]byte
		if _, err := io.ReadFull(c.Conn, head[:]); err != nil {
			return 0, err
		}
		c.in = append(head[:], make([]byte, binary.BigEndian.Uint32(head[:]))...)
		if _, err := io.ReadFull(c.Conn, c.in[4:]); err != nil {
			return 0, err
		}
		c.mu.Lock()
		if zxid := c.in[8:]; c.greeted && c.creates[binary.BigEndian.Uint32(c.in[4:])] {
			binary.BigEndian.PutUint64(zxid, binary.BigEndian.Uint64(zxid)+1000)
		}
		c.greeted = true
		c.mu.Unlock()
	}
	n := copy(p, c.in)
	c.in = c.in[n:]
	return n, nil
}

// I1, R59: the token is the czxid also where the head of a create's reply says something else, as another server that
// speaks the protocol may. Then each node's Stat is read; else that of the session's first.
func TestVirtual_Token_HeadSaysSomethingElse_IsReadFromTheStat(t *testing.T) {
	for _, honest := range []bool{true, false} {
		inVirtualTime(t, func(t *testing.T, v *virtual) {
			dial := v.net.Dial
			if !honest {
				dial = func(network, addr string, d time.Duration) (net.Conn, error) {
					c, err := v.net.Dial(network, addr, d)
					return &otherZxids{Conn: c, creates: map[uint32]bool{}}, err
				}
			}
			m := newMutex(t, v.connect(zklock.WithDialer(dial)), "/job")
			var reads atomic.Int32
			v.srv.Inject(zktest.Before(zktest.Exists).Path("/job/*").Call(func() { reads.Add(1) }))
			const rounds = 4
			for range rounds {
				h := acquire(t, m)
				st, ok := v.srv.Stat(h.Path())
				require.True(t, ok)
				require.Equal(t, st.Czxid, h.Token())
				release(t, h)
			}
			require.EqualValues(t, map[bool]int{true: 1, false: rounds}[honest], reads.Load())
		})
	}
}

// R15: a write to ZooKeeper fenced by ZooKeeper itself.
func TestHold_Check_FencesAMulti(t *testing.T) {
	srv := target(t)
	a, p := admin(t, srv), lockPath(t, srv)
	s := connect(t, srv)
	h := acquire(t, newMutex(t, s, p+"/lock"))
	_, err := a.Create(p+"/value", []byte("old"), 0, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)
	_, err = a.Set(h.Path(), []byte("somebody changed the data"), -1) // no matter: any version will do
	require.NoError(t, err)
	write := func(v string) error {
		_, err := s.Conn().Multi(h.Check(), &zk.SetDataRequest{Path: p + "/value", Data: []byte(v), Version: -1})
		return err
	}
	require.NoError(t, write("held"))
	require.NoError(t, a.Delete(h.Path(), -1))
	require.ErrorIs(t, write("lost"), zk.ErrNoNode)
	data, _, err := a.Get(p + "/value")
	require.NoError(t, err)
	require.Equal(t, "held", string(data))
	require.ErrorIs(t, h.Release(within(t, soon)), zklock.ErrLost)
}

// I1, R59: the token is the node's czxid. Sequence numbers begin again with the lock root; tokens do not.
func TestVirtual_Token_GrowsAcrossLockRoots(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		m := newMutex(t, v.connect(), "/job")
		last := int64(0)
		for range 3 {
			for range 3 {
				h := acquire(t, m)
				st, ok := v.srv.Stat(h.Path())
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
