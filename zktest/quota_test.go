package zktest_test

// Attacks quotas without a real server: which numbers are counted, which writes are rejected, and
// the state after a failed multi.

import (
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	. "github.com/zklock/zklock/zktest"
)

// setQuota does the same as setquota in ZooKeeper's shell.
func setQuota(t *testing.T, conn *zk.Conn, path, limits string) {
	t.Helper()
	for _, n := range [][2]string{{path, ""}, {path + "/zookeeper_limits", limits}, {path + "/zookeeper_stats", "count=0,bytes=0"}} {
		_, err := conn.Create("/zookeeper/quota"+n[0], []byte(n[1]), 0, zk.WorldACL(zk.PermAll))
		require.NoError(t, err)
	}
}

func TestQuota_CountsEverywhere_RefusesIfEnforced(t *testing.T) {
	for _, enforced := range []bool{false, true} {
		bubble(t, func(t *testing.T, n *Network) {
			opts := []Option{WithNetwork(n)}
			if enforced {
				opts = append(opts, WithConfig("enforceQuota=true"))
			}
			e := StartEnsemble(t, 3, opts...)
			conn, _ := connectEvents(t, e.Member(1).Addr(), 10*time.Second, dialing(n))
			require.NoError(t, create(conn, "/q"))
			_, err := conn.Create("/q/before", []byte("12345"), 0, zk.WorldACL(zk.PermAll))
			require.NoError(t, err)
			setQuota(t, conn, "/q", "count=1,bytes=-1=;byteHardLimit=10;countHardLimit=3")
			stats := func() string {
				data, stat, err := conn.Get("/zookeeper/quota/q/zookeeper_stats")
				require.NoError(t, err)
				require.Zero(t, stat.Version)
				return string(data)
			}
			require.Equal(t, "count=2,bytes=5", stats(), "what was there is counted")
			require.NoError(t, create(conn, "/q/third"))
			fourth, tooLong := create(conn, "/q/fourth"), func() error { _, err := conn.Set("/q/third", []byte("123456"), -1); return err }()
			_, err = conn.Multi(&zk.SetDataRequest{Path: "/q/third", Data: []byte("1"), Version: -1}, &zk.CheckVersionRequest{Path: "/q", Version: 9})
			require.Error(t, err)
			if enforced {
				require.ErrorContains(t, fourth, "-125")
				require.ErrorContains(t, tooLong, "-125")
				require.Equal(t, "count=3,bytes=5", stats(), "of the multi nothing is left")
			} else {
				require.NoError(t, fourth)
				require.NoError(t, tooLong)
				require.Equal(t, "count=4,bytes=11", stats())
			}
		})
	}
}
