package main

import (
	"bytes"
	"encoding/binary"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A leader that is cut off is also cut off from elections: the remaining servers elect one of
// themselves.
func TestZooKeeper_LeaderIsolated_TheOthersElectAnother(t *testing.T) {
	c := serve(t, zooKeeper, Plan{Size: 3, TTL: 3 * time.Second, Split: true}).(*zkCluster)
	leader := func() int {
		for i, s := range c.servers {
			if mode, err := s.Mode(); err == nil && mode == "leader" {
				return i
			}
		}
		return -1
	}
	for range 2 {
		old := leader()
		require.GreaterOrEqual(t, old, 0)
		require.NoError(t, c.Isolate(old))
		var now int
		require.Eventually(t, func() bool { now = leader(); return now >= 0 && now != old }, 30*time.Second, 20*time.Millisecond)
		require.NoError(t, c.Heal())
		require.Eventually(t, func() bool { mode, err := c.servers[old].Mode(); return err == nil && mode == "follower" },
			30*time.Second, 20*time.Millisecond, "the old leader comes back")
	}
}

func TestWithoutAddress(t *testing.T) {
	message := func(addr string) []byte {
		m := binary.BigEndian.AppendUint64(nil, 1<<64-65536)
		m = binary.BigEndian.AppendUint64(m, 3)
		m = binary.BigEndian.AppendUint32(m, uint32(len(addr)))
		return append(m, addr...)
	}
	in := bytes.NewBuffer(append(message("127.70.1.3:3888"), "what follows"...))
	out, err := withoutAddress(in)
	require.NoError(t, err)
	require.Equal(t, message("0.0.0.0:3888"), out)
	require.Equal(t, "what follows", in.String())
	_, err = withoutAddress(bytes.NewReader(message("127.70.1.3:3888")[:24]))
	require.Error(t, err)
}
