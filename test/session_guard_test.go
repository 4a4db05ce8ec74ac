package zklock_test

// These tests attack a Session's side of the guard: what it sends, and when it reports that a guard
// came or went. The processes that die are in the tests of the command.

import (
	"bufio"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/internal/guard"
	"github.com/zklock/zklock/zktest"
)

// guardSocket is the socket of a guard that the test plays.
func guardSocket(t *testing.T, path string) *net.UnixListener {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	require.NoError(t, l.SetDeadline(time.Now().Add(soon)))
	return l
}

// welcomed accepts the connection of a Session.
func welcomed(t *testing.T, l *net.UnixListener) (conn net.Conn, lines *bufio.Scanner) {
	t.Helper()
	conn, err := l.Accept()
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(soon)))
	_, err = io.WriteString(conn, guard.Welcome)
	require.NoError(t, err)
	return conn, bufio.NewScanner(conn)
}

func nextMessage(t *testing.T, lines *bufio.Scanner) (m guard.Message) {
	t.Helper()
	require.True(t, lines.Scan(), lines.Err())
	require.NoError(t, json.Unmarshal(lines.Bytes(), &m))
	return m
}

// The guard gets each ZooKeeper session before that has a node, its confirmed end, and the end of
// the Session.
func TestGuard_GetsSessionsEndsAndBye(t *testing.T) {
	srv := zktest.Start(t)
	path := filepath.Join(t.TempDir(), "sock")
	l := guardSocket(t, path)
	t.Setenv("ZKLOCK_GUARD", path)
	s := connect(t, srv.Addr())
	first := s.Stats().SessionID
	_, lines := welcomed(t, l)
	m := nextMessage(t, lines)
	require.Equal(t, first, m.Session.ID)
	require.Equal(t, s.Stats().SessionTimeout, m.Session.Timeout)
	require.Equal(t, []string{srv.Addr()}, m.Session.Servers)
	require.Len(t, m.Session.Password, 16)

	changes := s.Changes(within(t, soon))
	require.True(t, srv.ExpireSession(first))
	for c := range changes {
		if c.State == zklock.StateConnected && c.SessionID != first {
			break
		}
	}
	over, opened := nextMessage(t, lines), nextMessage(t, lines)
	if over.Over == 0 {
		over, opened = opened, over
	}
	require.Equal(t, first, over.Over)
	require.Equal(t, s.Stats().SessionID, opened.Session.ID)
	second := s.Stats().SessionID
	require.NoError(t, s.Close())
	require.Equal(t, second, nextMessage(t, lines).Over)
	require.True(t, nextMessage(t, lines).Bye)
	require.False(t, lines.Scan())
}

// A guard that comes and goes is reported in Stats, in Changes and in the log, once each time.
func TestGuard_ComesAndGoes_IsReported(t *testing.T) {
	var w warnings
	path := filepath.Join(t.TempDir(), "sock")
	s := connect(t, zktest.Start(t).Addr(), zklock.WithGuard(path), zklock.WithLogger(slog.New(slog.NewTextHandler(&w, nil))))
	changes := s.Changes(within(t, soon))
	require.False(t, s.Stats().Guarded)
	l := guardSocket(t, path)
	conn, _ := welcomed(t, l)
	c := <-changes
	require.Equal(t, zklock.StateConnected, c.State)
	require.Equal(t, s.Stats().SessionID, c.SessionID)
	require.True(t, c.Guarded)
	require.True(t, s.Stats().Guarded)

	_ = conn.Close()
	require.False(t, (<-changes).Guarded)
	_, _ = welcomed(t, l)
	require.True(t, (<-changes).Guarded)
	require.NoError(t, s.Close())
	require.Equal(t, zklock.StateClosed, (<-changes).State)
	require.Equal(t, 2, w.about("zklock: a guard is connected", path))
	require.Equal(t, 2, w.about("zklock: no guard is connected; if this process crashes, its locks stay held for the session timeout", path))
}

// A guard that never responds delays no lock and no Close.
func TestGuard_DoesNotRespond_DelaysNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sock")
	guardSocket(t, path)
	s := connect(t, zktest.Start(t).Addr(), zklock.WithGuard(path))
	h := acquire(t, newMutex(t, s, "/job"))
	require.NoError(t, h.Release(within(t, soon)))
	require.False(t, s.Stats().Guarded)
	began := time.Now()
	require.NoError(t, s.Close())
	require.Less(t, time.Since(began), soon)
}
