package zktest_test

import (
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	. "github.com/zklock/zklock/zktest"
)

func TestHandle(t *testing.T) {
	bubble(t, func(t *testing.T, n *Network) {
		srv := Start(t, WithNetwork(n))
		require.NoError(t, srv.Load(map[string]string{"/real": "here"}))
		conn, _, err := zk.Connect([]string{srv.Addr()}, 10*time.Second, zk.WithDialer(n.Dial), zk.WithLogInfo(false))
		require.NoError(t, err)
		defer conn.Close()
		srv.Handle(func(r Request) (Reply, bool) {
			switch {
			case r.Op == GetData && r.Path == "/virtual":
				data, _ := srv.Get("/real") // the server's methods may be called
				return Reply{Data: append([]byte("not "), data...), Stat: Stat{Version: 7}}, true
			case r.Op == GetChildren && r.Path == "/virtual":
				return Reply{Children: []string{"a", "b"}}, true
			case r.Op == SetData && string(r.Data) == "forbidden" && r.Version == 3:
				return Reply{Code: NoAuth}, true
			case r.Op == Create && r.Mode == Sequential:
				return Reply{Path: r.Path + "mine"}, true
			case r.Op == Delete && r.Path == "/virtual":
				return Reply{}, true
			}
			return Reply{}, false
		})
		data, stat, err := conn.Get("/virtual")
		require.NoError(t, err)
		require.Equal(t, "not here", string(data))
		require.EqualValues(t, 7, stat.Version)
		names, _, err := conn.Children("/virtual")
		require.NoError(t, err)
		require.Equal(t, []string{"a", "b"}, names)
		_, err = conn.Set("/real", []byte("forbidden"), 3)
		require.ErrorIs(t, err, zk.ErrNoAuth)
		path, err := conn.Create("/x-", nil, zk.FlagSequence, zk.WorldACL(zk.PermAll))
		require.NoError(t, err)
		require.Equal(t, "/x-mine", path)
		require.NoError(t, conn.Delete("/virtual", -1))
		data, _, err = conn.Get("/real")
		require.NoError(t, err)
		require.Equal(t, "here", string(data), "as usual")
		srv.Handle(nil)
		_, _, err = conn.Get("/virtual")
		require.ErrorIs(t, err, zk.ErrNoNode)
	})
}

func TestOnFrame_Server(t *testing.T) {
	bubble(t, func(t *testing.T, n *Network) {
		srv := Start(t, WithNetwork(n))
		var mu sync.Mutex
		var seen []string
		srv.OnFrame(func(f Frame) {
			mu.Lock()
			defer mu.Unlock()
			seen = append(seen, f.String())
		})
		conn, _, err := zk.Connect([]string{srv.Addr()}, 10*time.Second, zk.WithDialer(n.Dial), zk.WithLogInfo(false))
		require.NoError(t, err)
		defer conn.Close()
		synctest.Wait() // until go-zookeeper has restored its watches: it must not find those below
		_, _, _, err = conn.ExistsW("/a")
		require.NoError(t, err)
		_, err = conn.Create("/a", nil, 0, zk.WorldACL(zk.PermAll))
		require.NoError(t, err)
		_, err = conn.Create("/a", nil, 0, zk.WorldACL(zk.PermAll))
		require.ErrorIs(t, err, zk.ErrNodeExists)
		srv.OnFrame(nil)
		_, _, err = conn.Exists("/")
		require.NoError(t, err)
		mu.Lock()
		defer mu.Unlock()
		require.Equal(t, `connect
reply to connect
exists /a
reply to exists /a: no node (-101)
create /a
NodeCreated /a
reply to create /a /a
create /a
reply to create /a: node exists (-110)`, strings.Join(seen, "\n"))
	})
}
