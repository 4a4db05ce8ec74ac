package zktest_test

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock/internal/rawzk"
	"github.com/zklock/zklock/internal/wire"
	. "github.com/zklock/zklock/zktest"
)

// TestScale_ThousandSessions_TenThousandWaiters runs a queue as a lock builds it: every node is
// watched by the node after it. It logs the cost.
func TestScale_ThousandSessions_TenThousandWaiters(t *testing.T) {
	const sessions, each = 1000, 10
	n := NewNetwork()
	srv := Start(t, WithNetwork(n))
	_, err := srv.Create("/l", nil, 0)
	require.NoError(t, err)
	before := heap()
	start := time.Now()
	var conns []*rawzk.Conn
	for range sessions {
		nc, err := n.Dial("tcp", srv.Addr(), time.Second)
		require.NoError(t, err)
		defer nc.Close()
		c := rawzk.Wrap(nc)
		require.NoError(t, c.Connect(wire.ConnectRequest{Timeout: 40_000}))
		conns = append(conns, c)
	}
	t.Logf("%d sessions: %v, %d KiB of heap", sessions, time.Since(start).Round(time.Millisecond), (heap()-before)>>10)

	start = time.Now()
	for i := range sessions * each {
		c := conns[i%sessions]
		code, _, _ := call(t, c, wire.OpCreate, wire.CreateRequest{Path: "/l/lock-", ACL: world, Flags: wire.FlagEphemeralSequential})
		require.Equal(t, wire.OK, code)
		if i > 0 {
			code, _, _ = call(t, c, wire.OpExists, wire.PathWatchRequest{Path: fmt.Sprintf("/l/lock-%010d", i-1), Watch: true})
			require.Equal(t, wire.OK, code)
		}
	}
	require.Len(t, srv.Watches(), sessions*each-1)
	t.Logf("%d waiters: %v, %d KiB of heap", sessions*each, time.Since(start).Round(time.Millisecond), (heap()-before)>>10)

	start = time.Now()
	for i := range sessions * each {
		_, _, err := conns[i%sessions].Call(wire.OpDelete, wire.PathVersionRequest{Path: fmt.Sprintf("/l/lock-%010d", i), Version: -1})
		require.NoError(t, err)
	}
	require.Empty(t, srv.Watches())
	t.Logf("%d hand-overs: %v", sessions*each, time.Since(start).Round(time.Millisecond))
}

// A limit of the connections of one address costs each further connection the same.
func TestScale_MaxClientCnxns(t *testing.T) {
	accepting := func(limit string) time.Duration {
		n := NewNetwork()
		srv := Start(t, WithNetwork(n), WithConfig("maxClientCnxns="+limit))
		start := time.Now()
		for range 10_000 {
			nc, err := n.Dial("tcp", srv.Addr(), time.Second)
			require.NoError(t, err)
			defer nc.Close()
			require.NoError(t, rawzk.Wrap(nc).Connect(wire.ConnectRequest{Timeout: 40_000}))
		}
		return time.Since(start)
	}
	without, with := accepting("0"), accepting("20000")
	t.Logf("10,000 connections: %v without a limit, %v with one", without, with)
	require.Less(t, with, 8*without)
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
