package zklock_test

// These tests attack the result of Session.Conn: the user's requests share the connection with
// ours.

import (
	"encoding/binary"
	"fmt"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/internal/ledger"
	jute "github.com/zklock/zklock/internal/wire"
	"github.com/zklock/zklock/zktest"
)

// A user's own requests and watches use the same connection as ours: each gets its own responses,
// and an event that both wait for reaches both.
func TestConn_UsersRequestsBetweenOurs(t *testing.T) {
	srv := target(t)
	s := connect(t, srv)
	conn, dir := s.Conn(), lockPath(t, srv)
	ctx := within(t, soon)
	m := newMutex(t, s, dir+"/lock", zklock.WithData([]byte("ours")))
	release(t, acquire(t, m))
	acl := zk.WorldACL(zk.PermAll)

	var all sync.WaitGroup
	l := ledger.New(t.Errorf)
	for range 4 {
		all.Go(func() {
			for range 25 {
				h, err := m.Acquire(ctx)
				if err != nil {
					t.Error(err)
					return
				}
				work(t, l, h, func() {
					data, _, err := conn.Get(h.Node())
					if err != nil || string(data) != "ours" {
						t.Errorf("own lock node: %q, %v", data, err)
					}
				})
				if err := h.Release(ctx); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for i := range 4 {
		all.Go(func() {
			path := fmt.Sprintf("%s/user-%d", dir, i)
			for round := range 50 {
				want := fmt.Sprint(i, round)
				if _, err := conn.Create(path, []byte(want), zk.FlagEphemeral, acl); err != nil {
					t.Error(err)
					return
				}
				data, _, events, err := conn.GetW(path)
				if err != nil || string(data) != want {
					t.Errorf("%q, %v", data, err)
				}
				if err := conn.Delete(path, -1); err != nil {
					t.Error(err)
				}
				if ev := <-events; ev.Type != zk.EventNodeDeleted || ev.Path != path {
					t.Errorf("%+v", ev)
				}
			}
		})
	}
	all.Wait()
	require.Equal(t, 100, l.Grants())

	h := acquire(t, m)
	w := startAcquire(t, m)
	require.Eventually(t, func() bool { return len(children(t, conn, dir+"/lock")) == 2 }, soon, time.Millisecond)
	_, _, events, err := conn.GetW(h.Node())
	require.NoError(t, err)
	release(t, h)
	require.Equal(t, zk.EventNodeDeleted, (<-events).Type)
	got, err := w.get(t)
	require.NoError(t, err)
	release(t, got)
}

// F2, I2: a follower identifies its requests in a commit by session and xid, so xids continue over
// reconnects.
func TestVirtual_Xids_GoOn(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		var mu sync.Mutex
		xids := map[int32]bool{}
		proxy := zktest.StartProxy(t, v.srv.Addr(), zktest.WithNetwork(v.net))
		dial := func(network, addr string, d time.Duration) (net.Conn, error) {
			c, err := v.net.Dial(network, addr, d)
			return &xidConn{Conn: c, note: func(xid int32) {
				mu.Lock()
				defer mu.Unlock()
				require.False(t, xids[xid], "xid %d was there before", xid)
				xids[xid] = true
			}}, err
		}
		m := newMutex(t, connect(t, proxy.Addr(), zklock.WithDialer(dial)), "/job")
		for range 3 {
			release(t, acquire(t, m))
			time.Sleep(5 * time.Second)
			proxy.CloseConnections()
			synctest.Wait()
		}
		release(t, acquire(t, m))
		require.Greater(t, len(xids), 12)
	})
}

type xidConn struct {
	net.Conn
	note  func(xid int32)
	out   jute.Stream
	later bool
}

func (c *xidConn) Write(p []byte) (int, error) {
	c.out.Add(p)
	for f, _ := c.out.Next(); f != nil; f, _ = c.out.Next() {
		if xid := int32(binary.BigEndian.Uint32(f[4:])); c.later && xid <= -16 {
			c.note(xid)
		}
		c.later = true
	}
	return c.Conn.Write(p)
}

// Closing the *zk.Conn from outside is noticed.
func TestConnClosedFromOutside(t *testing.T) {
	srv := target(t)
	s := connect(t, srv)
	m := newMutex(t, s, lockPath(t, srv))
	h := acquire(t, m)
	s.Conn().Close()
	lostWithin(t, h, soon)
	require.ErrorIs(t, h.Err(), zklock.ErrClosed)
	_, err := m.Acquire(within(t, soon))
	require.ErrorIs(t, err, zklock.ErrClosed)
	eventually(t, "the state says so", func() bool { return s.Stats().State == zklock.StateClosed })
}
