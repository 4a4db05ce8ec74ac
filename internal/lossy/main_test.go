package lossy

import (
	"context"
	"log/slog"
	"net"
	"os"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/internal/zkserver"
	"github.com/zklock/zklock/zktest"
)

// I7: no goroutine is left.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// asked skips a test that takes a real server for a minute unless ZKLOCK_CHAOS=1 asks for it.
func asked(t *testing.T) {
	t.Helper()
	if os.Getenv("ZKLOCK_CHAOS") != "1" {
		t.Skip("the tests on a real server behind connections that fail run with ZKLOCK_CHAOS=1; see make chaos")
	}
}

// server is what the tests do to theirs, a real one or the in-process one.
type server interface {
	Addr() string
	WatchCount() (int, error)
	Pause() error
	Resume() error
	Kill() error
	Start() error
}

var _ server = (*zkserver.Server)(nil)

// inProcess is a zktest.Server with a real server's manners. It keeps its data when it is killed.
type inProcess struct{ *zktest.Server }

func (p inProcess) WatchCount() (int, error) { return p.Server.WatchCount(), nil }
func (p inProcess) Pause() error             { p.Freeze(); return nil }
func (p inProcess) Resume() error            { p.Thaw(); return nil }
func (p inProcess) Kill() error              { p.Stop(); return nil }

const (
	tick = 500 * time.Millisecond

	soon = 30 * time.Second // bounds what should happen at once; costs nothing when all is well
)

// within returns a context for everything a test asks of servers.
func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

// quiet drops the log of what a test provokes.
var quiet = zklock.WithLogger(slog.New(slog.DiscardHandler))

type silent struct{}

func (silent) Printf(string, ...any) {}

// newAdmin is a plain client of go-zookeeper's, somebody else, that ends with the test.
func newAdmin(t *testing.T, srv server) *zk.Conn {
	t.Helper()
	conn, events, err := zk.Connect([]string{srv.Addr()}, soon, zk.WithLogger(silent{}), zk.WithDialer(zkserver.Impatient(net.DialTimeout)))
	require.NoError(t, err)
	t.Cleanup(func() {
		conn.Close()
		for range events { // until the client has ended
		}
	})
	return conn
}

// children are what a path has; nothing if it is not there.
func children(t *testing.T, admin *zk.Conn, path string) []string {
	names, _, err := admin.Children(path)
	if err != nil && err != zk.ErrNoNode {
		t.Errorf("children of %s: %v", path, err)
	}
	return names
}

// eventually waits for a condition that nothing announces, and says whether it came true.
func eventually(ok func() bool) bool {
	for end := time.Now().Add(soon); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			return false
		}
	}
	return true
}
