package guard

// These tests attack a Session's side of the guard: a guard that is absent, stopped or full must
// delay no caller, and a guard that returns must get every session again.

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/zklock/zklock/internal/sessionkey"
)

const patience = 20 * time.Second

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func key(id int64) sessionkey.Key {
	return sessionkey.Key{ID: id, Password: []byte{1, 2}, Timeout: 15 * time.Second, Servers: []string{"zk1:2181", "[::1]:2181"}}
}

// listen returns a guard's socket that accepts connections when the test does.
func listen(t *testing.T, path string) *net.UnixListener {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func accept(t *testing.T, l *net.UnixListener) net.Conn {
	t.Helper()
	require.NoError(t, l.SetDeadline(time.Now().Add(patience)))
	conn, err := l.Accept()
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(patience)))
	return conn
}

// open returns a client whose reports arrive on the channel.
func open(t *testing.T, path string) (*Client, <-chan error) {
	t.Helper()
	reports := make(chan error, 100)
	c := Open(t.Context(), path, func(err error) { reports <- err })
	return c, reports
}

// connected opens a client, and returns when it is connected. Open does not wait long for that.
func connected(t *testing.T, path string) (*Client, <-chan error) {
	t.Helper()
	c, reports := open(t, path)
	require.Eventually(t, func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.mu.conn != nil
	}, patience, time.Millisecond)
	return c, reports
}

// messages returns the messages up to the end of the connection.
func messages(t *testing.T, conn io.Reader) (got []Message) {
	t.Helper()
	for lines := bufio.NewScanner(conn); lines.Scan(); {
		var m Message
		require.NoError(t, json.Unmarshal(lines.Bytes(), &m))
		got = append(got, m)
	}
	return got
}

func TestClient_SendsSessionsEndsAndBye(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sock")
	l := listen(t, path)
	c, _ := connected(t, path)
	conn := accept(t, l)
	one, two := key(1), key(2)
	c.Opened(one)
	c.Opened(two)
	c.Over(1)
	c.Close()
	require.Equal(t, []Message{{Session: &one}, {Session: &two}, {Over: 1}, {Bye: true}}, messages(t, conn))
}

// Open waits for the connection, so that the guard has the first session, too. On a busy machine
// some connections take longer than Open waits.
func TestOpen_ReturnsConnected(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sock")
	listen(t, path)
	connected := 0
	for range 20 {
		c, _ := open(t, path)
		c.mu.Lock()
		if c.mu.conn != nil {
			connected++
		}
		c.mu.Unlock()
		c.Close()
	}
	require.Greater(t, connected, 10)
}

// The guard must have a session before it has a node, even if it accepts the connection later.
func TestClient_OpenedHasReturned_TheSessionWasSent(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sock")
	l := listen(t, path)
	c, _ := connected(t, path)
	defer c.Close()
	one := key(1)
	c.Opened(one)
	c.mu.Lock()
	c.dropLocked() // as the death of the process does
	c.mu.Unlock()
	require.Equal(t, []Message{{Session: &one}}, messages(t, accept(t, l)))
}

func TestClient_GuardReturns_GetsTheSessionsAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sock")
	c, reports := open(t, path)
	require.ErrorContains(t, <-reports, "no such file")
	one, two, three := key(1), key(2), key(3)
	c.Opened(one)
	c.Opened(two)
	c.Over(1)

	l := listen(t, path)
	conn := accept(t, l)
	_, err := io.WriteString(conn, Welcome)
	require.NoError(t, err)
	require.NoError(t, <-reports)
	_ = conn.Close()
	require.ErrorContains(t, <-reports, "the guard has ended the connection")
	c.Opened(three)

	conn = accept(t, l)
	_, err = io.WriteString(conn, Welcome)
	require.NoError(t, err)
	require.NoError(t, <-reports)
	c.Close()
	require.Equal(t, []Message{{Session: &two}, {Session: &three}, {Bye: true}}, messages(t, conn))
	require.Empty(t, reports, "Close is no change")
}

// A guard that is stopped accepts no connection and reads nothing. Its socket becomes full.
func TestClient_GuardDoesNotRead_DelaysNobody(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sock")
	l := listen(t, path)
	c, reports := connected(t, path)
	long := key(1)
	long.Servers = []string{strings.Repeat("x", 32<<10)}
	began := time.Now()
	for range 50 { // 1.6 MB
		c.Opened(long)
	}
	c.Over(1)
	require.Less(t, time.Since(began), retry, "one of the calls may wait %v", writeWithin)
	require.ErrorContains(t, <-reports, "ended the connection", "it was closed within a line, because the guard could not read on")
	_ = accept(t, l)
	conn := accept(t, l)
	_, err := io.WriteString(conn, Welcome)
	require.NoError(t, err)
	require.NoError(t, <-reports)
	c.Close()
	require.Equal(t, []Message{{Bye: true}}, messages(t, conn))
}

func TestClient_GuardDoesNotRespond_IsReported(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sock")
	l := listen(t, path)
	c, reports := open(t, path)
	defer c.Close()
	require.ErrorContains(t, <-reports, "the guard does not respond")
	conn := accept(t, l)
	_, err := io.WriteString(conn, Welcome)
	require.NoError(t, err)
	require.NoError(t, <-reports)
}

// A guard that rejects the connection is reported once, however often the client tries.
func TestClient_Rejected_IsReportedOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sock")
	l := listen(t, path)
	c, reports := open(t, path)
	for range 3 {
		_ = accept(t, l).Close()
	}
	c.Close()
	require.Len(t, reports, 1)
	require.Error(t, <-reports)
}

func TestClient_OnlyTheLatestSessionsAreKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sock")
	c, reports := open(t, path)
	require.Error(t, <-reports)
	for id := range int64(100) {
		c.Opened(key(id + 1))
	}
	conn := accept(t, listen(t, path))
	_, err := io.WriteString(conn, Welcome)
	require.NoError(t, err)
	require.NoError(t, <-reports)
	c.Close()
	got := messages(t, conn)
	require.Len(t, got, maxSessions+1)
	require.EqualValues(t, 100, got[maxSessions-1].Session.ID)
}

func TestClient_None(t *testing.T) {
	c := Open(t.Context(), "", func(error) { panic(errors.New("there is nothing to report")) })
	require.Nil(t, c)
	c.Opened(key(1))
	c.Over(1)
	c.Close()
}
