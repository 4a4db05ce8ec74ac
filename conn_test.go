package zklock_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
)

// A user's own requests and watches go over the connection on which ours do: each gets its own answers, and an event that both
// wait for reaches both.
func TestConn_UsersRequestsBetweenOurs(t *testing.T) {
	srv := target(t)
	s := connect(t, srv)
	conn, dir := s.Conn(), lockPath(t, srv)
	ctx := within(t, soon)
	m := newMutex(t, s, dir+"/lock", zklock.WithData([]byte("ours")))
	release(t, acquire(t, m))
	acl := zk.WorldACL(zk.PermAll)

	var all sync.WaitGroup
	work := &overlap{t: t}
	for range 4 {
		all.Go(func() {
			for range 25 {
				h, err := m.Acquire(ctx)
				if err != nil {
					t.Error(err)
					return
				}
				work.work(h, func() {
					data, _, err := conn.Get(h.Path())
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
	require.Equal(t, 100, work.entries)

	h := acquire(t, m)
	w := startAcquire(t, m)
	require.Eventually(t, func() bool { return len(children(t, conn, dir+"/lock")) == 2 }, soon, time.Millisecond)
	_, _, events, err := conn.GetW(h.Path())
	require.NoError(t, err)
	release(t, h)
	require.Equal(t, zk.EventNodeDeleted, (<-events).Type)
	got, err := w.get(t)
	require.NoError(t, err)
	release(t, got)
}
