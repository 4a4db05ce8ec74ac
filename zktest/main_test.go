package zktest_test

import (
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/zklock/zklock/internal/zkserver"
	"github.com/zklock/zklock/zktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// quiet is a logger for clients whose reconnecting does not matter.
type quiet struct{}

func (quiet) Printf(string, ...any) {}

// connect returns a client with a session, which is closed at the end of the test.
func connect(t *testing.T, srv *zktest.Server, timeout time.Duration, opts ...connOption) *zk.Conn {
	t.Helper()
	conn, _ := connectEvents(t, srv.Addr(), timeout, opts...)
	return conn
}

type connOption = func(*zk.Conn)

// connectEvents is connect, with all the client's events in a channel that loses none. Several
// addresses are separated by commas.
func connectEvents(t *testing.T, addrs string, timeout time.Duration, opts ...connOption) (*zk.Conn, <-chan zk.Event) {
	t.Helper()
	events := make(chan zk.Event, 1000)
	opts = append(opts, zk.WithEventCallback(func(ev zk.Event) { events <- ev }))
	conn, session, err := zk.Connect(strings.Split(addrs, ","), timeout, func(c *zk.Conn) {
		c.SetLogger(quiet{})
		zk.WithDialer(zkserver.LastZxids(net.DialTimeout))(c)
		for _, opt := range opts {
			opt(c)
		}
	})
	require.NoError(t, err)
	t.Cleanup(conn.Close)
	await(t, session, zk.StateHasSession)
	return conn, events
}

// await reads events until the state arrives.
func await(t *testing.T, events <-chan zk.Event, state zk.State) {
	t.Helper()
	timeout := time.NewTimer(time.Minute)
	defer timeout.Stop()
	for {
		select {
		case ev := <-events:
			if ev.State == state {
				return
			}
		case <-timeout.C:
			require.FailNow(t, "no event", "state %v has not come", state)
		}
	}
}

// clientPauses waits, in virtual time, until a client that has lost its connection pauses before it
// reconnects. Just before the pause the client fails waiting requests ("could not connect to a
// server"), and later ones wait for the next connection.
func clientPauses() { synctest.Wait() }

// dialing makes a client use an in-memory network.
func dialing(n *zktest.Network) connOption {
	return func(c *zk.Conn) { zk.WithDialer(zkserver.LastZxids(n.Dial))(c) }
}
