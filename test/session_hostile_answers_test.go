package zklock_test

// These tests attack a Session with responses that no ZooKeeper server sends: they claim more than
// they have, or are too long. Neither the process nor a hold is lost.

import (
	"encoding/binary"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	jute "github.com/zklock/zklock/internal/wire"
)

// hostile is a dialer. While is is set, its connections replace the body of each response to op.
type hostile struct {
	dial  zk.Dialer
	op    jute.Op
	body  []byte
	is    atomic.Bool
	dials atomic.Int64
}

func (h *hostile) Dial(network, addr string, d time.Duration) (net.Conn, error) {
	h.dials.Add(1)
	c, err := h.dial(network, addr, d)
	if err != nil {
		return nil, err
	}
	return &hostileConn{Conn: c, h: h}, nil
}

// hostileConn is such a connection. The first frame in each direction belongs to the handshake, and
// has no header.
type hostileConn struct {
	net.Conn
	h    *hostile
	out  jute.Stream
	sent int
	got  int
	in   []byte // read from the server, and not handed out

	mu    sync.Mutex
	asked map[int32]bool // by xid: responses to these have another body
}

func (c *hostileConn) Write(p []byte) (int, error) {
	c.out.Add(p)
	for f, _ := c.out.Next(); f != nil; f, _ = c.out.Next() {
		if c.sent++; c.sent > 1 && jute.Op(binary.BigEndian.Uint32(f[8:])) == c.h.op {
			c.mu.Lock()
			if c.asked == nil {
				c.asked = map[int32]bool{}
			}
			c.asked[int32(binary.BigEndian.Uint32(f[4:]))] = true
			c.mu.Unlock()
		}
	}
	return c.Conn.Write(p)
}

func (c *hostileConn) Read(p []byte) (int, error) {
	if len(c.in) == 0 {
		body, err := jute.ReadFrame(c.Conn, 64<<20)
		if err != nil {
			return 0, io.EOF
		}
		c.mu.Lock()
		if c.got++; c.got > 1 && c.asked[int32(binary.BigEndian.Uint32(body))] && c.h.is.Load() {
			body = append(body[:16:16], c.h.body...)
		}
		c.mu.Unlock()
		c.in = jute.Frame(jute.Raw(body))
	}
	n := copy(p, c.in)
	c.in = c.in[n:]
	return n, nil
}

// R107: the response to a list claims 2^31 names. A call of Session.Conn() and Participants return
// an error, the connection continues, and the hold is not lost.
func TestVirtual_ListClaimsTooMuch_IsAnError(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		way := &hostile{dial: v.net.Dial, op: jute.OpGetChildren2, body: []byte{0x7f, 0xff, 0xff, 0xff}}
		s := v.connect(zklock.WithDialer(way.Dial))
		h := acquire(t, newMutex(t, s, "/job"))
		way.is.Store(true)
		_, _, err := s.Conn().Children("/job")
		require.Error(t, err)
		_, err = newMutex(t, s, "/job").Participants(within(t, soon))
		require.Error(t, err)
		way.is.Store(false)
		names, _, err := s.Conn().Children("/job")
		require.NoError(t, err)
		require.Len(t, names, 1)
		require.Equal(t, int64(1), way.dials.Load())
		require.NoError(t, h.Err())
		release(t, h)
	})
}

// R107: a server sends a challenge with 10,000 directives. The hold is not lost, and Connect
// returns an error that is no rejection of the credentials.
func TestVirtual_SASL_LongChallenge_HoldGoesOn(t *testing.T) {
	inSASLTime(t, func(t *testing.T, v *virtual) {
		challenge := `nonce="a",algorithm=md5-sess,` + strings.Repeat("a=b,", 10<<10)
		way := &hostile{dial: v.net.Dial, op: jute.OpSASL, body: jute.Frame(jute.SASLToken{Token: []byte(challenge)})[4:]}
		s := v.connect(zklock.WithDialer(way.Dial), withSASL())
		h := acquire(t, newMutex(t, s, "/job"))
		way.is.Store(true)
		v.drop(s)
		time.Sleep(2 * time.Second)
		require.Empty(t, s.Stats().Server)
		way.is.Store(false)
		time.Sleep(2 * time.Second)
		require.NotEmpty(t, s.Stats().Server)
		require.NoError(t, h.Err())
		release(t, h)

		way.is.Store(true)
		_, err := zklock.Connect(within(t, 5*time.Second), v.srv.Addr(), zklock.WithDialer(way.Dial), quiet(t), withSASL())
		require.ErrorContains(t, err, "the server's challenge has 40989 bytes, and DIGEST-MD5 has no more than 2048")
		require.NotErrorIs(t, err, zklock.ErrAuthFailed, "it says nothing of who we are")
		time.Sleep(time.Minute) // the Connect in vain ends
	})
}
