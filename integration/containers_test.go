package integration

import (
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock/internal/zkserver"
)

// These tests show with the plain client that the servers here do what the mutex's tests rely on.

type quiet struct{}

func (quiet) Printf(string, ...any) {}

// connect returns a plain client with a session.
func connect(t *testing.T, servers string, timeout time.Duration) *zk.Conn {
	t.Helper()
	conn, _, err := zk.Connect(strings.Split(servers, ","), timeout, zk.WithLogger(quiet{}))
	require.NoError(t, err)
	t.Cleanup(conn.Close)
	within(t, 30*time.Second, "a session at "+servers, func() bool { return conn.State() == zk.StateHasSession })
	return conn
}

// within fails the test when the condition does not come true in time.
func within(t *testing.T, d time.Duration, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(d); !condition(); time.Sleep(pollEvery) {
		require.True(t, time.Now().Before(deadline), "not within %v: %s", d, what)
	}
}

// write creates a node, trying again while the ensemble elects.
func write(t *testing.T, conn *zk.Conn, path string) {
	t.Helper()
	within(t, 30*time.Second, "a write", func() bool {
		_, err := conn.Create(path, nil, 0, zk.WorldACL(zk.PermAll))
		return err == nil || err == zk.ErrNodeExists
	})
}

func TestSingle_StoppedAndStarted_KeepsAddressAndData(t *testing.T) {
	s := StartSingle(t)
	conn := connect(t, s.Addr(), 10*time.Second)
	write(t, conn, "/a")
	_, _, watch, err := conn.ExistsW("/a")
	require.NoError(t, err)
	require.NotNil(t, watch)
	require.Equal(t, 1, s.Counter(t, "zk_watch_count"))

	s.Stop(t)
	_, err = zkserver.Mode(s.Addr())
	require.Error(t, err)
	s.Start(t)

	exists, _, err := connect(t, s.Addr(), 10*time.Second).Exists("/a")
	require.NoError(t, err)
	require.True(t, exists)
}

func TestSingle_Paused_IsSilent(t *testing.T) {
	s := StartSingle(t)
	conn := connect(t, s.Addr(), 20*time.Second)

	s.Pause(t)
	_, err := zkserver.Mode(s.Addr())
	require.ErrorContains(t, err, "timeout")
	s.Unpause(t)
	s.Ready(t)

	write(t, conn, "/a")
}

func TestEnsemble_LeaderStopped_AnotherLeads_ItFollowsWhenStarted(t *testing.T) {
	e := StartEnsemble(t)
	old, followers := e.Roles(t)
	require.Len(t, followers, 2)
	conn := connect(t, e.ConnectString(), 20*time.Second)
	write(t, conn, "/before")

	start := time.Now()
	old.Stop(t)
	leader, _ := e.Roles(t)
	t.Logf("a new leader %v after the stop began", time.Since(start).Round(time.Millisecond))
	require.NotEqual(t, old.Addr(), leader.Addr())
	write(t, conn, "/during")

	old.Start(t)
	mode, err := zkserver.Mode(old.Addr())
	require.NoError(t, err)
	require.Equal(t, "follower", mode)
	back := connect(t, old.Addr(), 20*time.Second)
	_, err = back.Sync("/")
	require.NoError(t, err)
	for _, path := range []string{"/before", "/during"} {
		exists, _, err := back.Exists(path)
		require.NoError(t, err)
		require.True(t, exists, path)
	}
}

func TestEnsemble_LeaderPaused_AnotherLeads_ItFollowsWhenUnpaused(t *testing.T) {
	e := StartEnsemble(t)
	old, _ := e.Roles(t)

	old.Pause(t)
	leader, followers := e.Roles(t)
	require.NotEqual(t, old.Addr(), leader.Addr())
	require.Len(t, followers, 1)
	write(t, connect(t, leader.Addr(), 20*time.Second), "/a")

	old.Unpause(t)
	within(t, 30*time.Second, "the deposed leader follows", func() bool {
		mode, _ := zkserver.Mode(old.Addr())
		return mode == "follower"
	})
}
