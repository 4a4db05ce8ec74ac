package zklock_test

import (
	"encoding/binary"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

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
