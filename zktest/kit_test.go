package zktest_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock/internal/wire"
	. "github.com/zklock/zklock/zktest"
)

func TestCreate_ParentsAndACL(t *testing.T) {
	srv := Start(t)
	readOnly := zk.WorldACL(zk.PermRead)
	path, err := srv.Create("/a/b/c-", []byte("x"), Sequential, readOnly...)
	require.NoError(t, err)
	require.Equal(t, "/a/b/c-0000000000", path)
	conn, _, err := zk.Connect([]string{srv.Addr()}, 10*time.Second, zk.WithLogInfo(false))
	require.NoError(t, err)
	defer conn.Close()
	acl, _, err := conn.GetACL(path)
	require.NoError(t, err)
	require.Equal(t, readOnly, acl)
	acl, _, err = conn.GetACL("/a/b")
	require.NoError(t, err)
	require.Equal(t, zk.WorldACL(zk.PermAll), acl)

	_, err = srv.Create("/new/parent/", nil, Persistent)
	require.ErrorIs(t, err, Code(-8))
	_, found := srv.Stat("/new")
	require.False(t, found, "a parent of a node that was refused")
	_, err = srv.Create("/a/b", nil, Persistent)
	require.ErrorIs(t, err, NodeExists)
}

func TestLoad(t *testing.T) {
	srv := Start(t)
	require.NoError(t, srv.Load(map[string]string{"/config/db": "postgres", "/config": "v1", "/jobs/nightly/last": ""}))
	data, _ := srv.Get("/config/db")
	require.Equal(t, "postgres", string(data))
	zxid := srv.Zxid()
	err := srv.Load(map[string]string{"/config": "v2", "/more": "", "no-slash": ""})
	require.ErrorIs(t, err, Code(-8))
	require.ErrorContains(t, err, "no-slash")
	data, _ = srv.Get("/config")
	require.Equal(t, "v1", string(data))
	require.Nil(t, srv.Children("/more"))
	require.Equal(t, zxid+1, srv.Zxid(), "a transaction that fails has a zxid")
}

func TestWaitFor(t *testing.T) {
	bubble(t, func(t *testing.T, n *Network) {
		srv := Start(t, WithNetwork(n))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.EqualError(t, srv.WaitFor(ctx, "/late"), "zktest: there is no node /late: context deadline exceeded")
		begun := time.Now()
		time.AfterFunc(3*time.Second, func() {
			if _, err := srv.Create("/late", nil, Persistent); err != nil {
				panic(err)
			}
		})
		require.NoError(t, srv.WaitFor(t.Context(), "/late"))
		require.Equal(t, 3*time.Second, time.Since(begun))
		require.NoError(t, srv.WaitFor(t.Context(), "/late"), "at once")
	})
}

func TestWaitSessions(t *testing.T) {
	bubble(t, func(t *testing.T, n *Network) {
		srv := Start(t, WithNetwork(n))
		require.NoError(t, srv.WaitSessions(t.Context(), 0))
		raw(t, n, srv, 4*time.Second)
		require.NoError(t, srv.WaitSessions(t.Context(), 1))
		begun := time.Now()
		require.NoError(t, srv.WaitSessions(t.Context(), 0), "it expires")
		require.WithinRange(t, time.Now(), begun.Add(4*time.Second), begun.Add(6*time.Second))
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errors.New("enough"))
		require.EqualError(t, srv.WaitSessions(ctx, 3), "zktest: 0 sessions are alive, not 3: enough")
		ended := make(chan error)
		go func() { ended <- srv.WaitSessions(context.Background(), 3) }()
		time.Sleep(time.Second)
		srv.Close()
		require.ErrorContains(t, <-ended, "the server is closed")
	})
}

func TestSnapshot_Restore(t *testing.T) {
	bubble(t, func(t *testing.T, n *Network) {
		srv := Start(t, WithNetwork(n))
		require.NoError(t, srv.Load(map[string]string{"/a/b": "1", "/a/c": "2", "/d": ""}))
		_, err := srv.Create("/a/s-", nil, Sequential)
		require.NoError(t, err)
		before := srv.Snapshot()
		c := raw(t, n, srv, 10*time.Second)
		code, _, _ := call(t, c, wire.OpAddWatch, wire.AddWatchRequest{Path: "/", Mode: wire.AddWatchPersistentRecursive})
		require.Equal(t, wire.OK, code)
		call(t, c, wire.OpCreate, wire.CreateRequest{Path: "/d/e", ACL: world, Flags: wire.FlagEphemeral})
		require.NoError(t, srv.SetData("/a/b", []byte("changed")))
		require.NoError(t, srv.Delete("/a/c"))
		_, err = srv.Create("/a/s-", nil, Sequential)
		require.NoError(t, err)
		call(t, c, wire.OpPing, nil)

		srv.Restore(before)
		require.ElementsMatch(t, []string{"b", "c", "s-0000000002"}, srv.Children("/a"))
		require.Empty(t, srv.Children("/d"))
		data, _ := srv.Get("/a/b")
		require.Equal(t, "1", string(data))
		path, err := srv.Create("/a/s-", nil, Sequential)
		require.NoError(t, err)
		require.Equal(t, "/a/s-0000000003", path, "as after the snapshot")
		_, _, events := call(t, c, wire.OpPing, nil)
		require.Equal(t, 5, events, "two nodes deleted, one changed, one created; and the sequential one after it")
		srv.Restore(before)
		require.ElementsMatch(t, []string{"b", "c", "s-0000000002"}, srv.Children("/a"), "again")
	})
}

func TestReset(t *testing.T) {
	bubble(t, func(t *testing.T, n *Network) {
		srv := Start(t, WithNetwork(n))
		c := raw(t, n, srv, 10*time.Second)
		call(t, c, wire.OpCreate, wire.CreateRequest{Path: "/e", ACL: world, Flags: wire.FlagEphemeral})
		require.NoError(t, srv.Load(map[string]string{"/a/b": "1"}))
		srv.Reset()
		require.Equal(t, []string{"zookeeper"}, srv.Children("/"))
		require.Empty(t, srv.Sessions())
		require.Empty(t, srv.History())
		require.Zero(t, srv.Requests().Total())
		raw(t, n, srv, 10*time.Second)
	})
}

// The same seed makes the same choices, and a seed that Inject chose can be read and given again.
func TestFault_Chance(t *testing.T) {
	bubble(t, func(t *testing.T, n *Network) {
		failures := func(f Fault) (failed []int) {
			srv := Start(t, WithNetwork(n))
			srv.Inject(f)
			c := raw(t, n, srv, 10*time.Second)
			for k := range 200 {
				if code, _, _ := call(t, c, wire.OpExists, wire.PathWatchRequest{Path: "/"}); code == wire.Throttled {
					failed = append(failed, k)
				}
			}
			return failed
		}
		first := failures(Before(Exists).Chance(0.1, 7).Fail(Throttled))
		require.InDelta(t, 20, len(first), 15)
		again := failures(Before(Exists).Chance(0.1, 7).Fail(Throttled))
		require.Equal(t, first, again)
	})
}

func TestFault_Member(t *testing.T) {
	bubble(t, func(t *testing.T, n *Network) {
		e := StartEnsemble(t, 3, WithNetwork(n))
		i := e.Inject(Before(Exists).Member(2).Fail(Throttled))
		codes := map[int]wire.Code{}
		for _, m := range e.Members() {
			codes[m.ID()], _, _ = call(t, raw(t, n, m, 10*time.Second), wire.OpExists, wire.PathWatchRequest{Path: "/"})
		}
		require.Equal(t, map[int]wire.Code{1: wire.OK, 2: wire.Throttled, 3: wire.OK}, codes)
		require.Equal(t, 1, i.Fired())
	})
}
