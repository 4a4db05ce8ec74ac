package expire_test

// These tests end sessions: there, not there, and with the answer lost.

import (
	"io"
	"net"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock/internal/expire"
	"github.com/zklock/zklock/internal/oneway"
	"github.com/zklock/zklock/internal/rawzk"
	"github.com/zklock/zklock/internal/sasl"
	"github.com/zklock/zklock/internal/secret"
	"github.com/zklock/zklock/internal/wire"
	"github.com/zklock/zklock/internal/zkserver"
	"github.com/zklock/zklock/zktest"
)

type quiet struct{}

func (quiet) Printf(string, ...any) {}

func to(addr string) func(time.Duration) (net.Conn, error) {
	return func(timeout time.Duration) (net.Conn, error) { return net.DialTimeout("tcp", addr, timeout) }
}

func TestSession_ReportsWhetherItWasThere(t *testing.T) {
	for name, start := range map[string]func(*testing.T) string{
		"zktest":    func(t *testing.T) string { return zktest.Start(t).Addr() },
		"ZooKeeper": func(t *testing.T) string { return zkserver.Single(t).Addr() },
	} {
		t.Run(name, func(t *testing.T) {
			addr := start(t)
			conn, _, err := zk.Connect([]string{addr}, 10*time.Second, zk.WithLogger(quiet{}))
			require.NoError(t, err)
			defer conn.Close()
			_, err = conn.Create("/expire-", nil, zk.FlagEphemeral|zk.FlagSequence, zk.WorldACL(zk.PermAll))
			require.NoError(t, err)
			id := conn.SessionID()
			was, err := expire.Session(to(addr), id, digest("ann:secret"))
			require.NoError(t, err)
			require.True(t, was)
			was, err = expire.Session(to(addr), id, nil)
			require.NoError(t, err)
			require.False(t, was)
		})
	}
}

// R125: ZooKeeper does not respond to each client that closes a session when others do so, too.
func TestSession_SeveralAtOnce_AllReturn(t *testing.T) {
	addr := zkserver.Single(t).Addr()
	for range 50 {
		c, err := rawzk.Dial(addr)
		require.NoError(t, err)
		require.NoError(t, c.Connect(wire.ConnectRequest{Timeout: 10_000}))
		errs := make(chan error, 3)
		for range cap(errs) {
			go func() {
				_, err := expire.Session(to(addr), c.Session.SessionID, nil)
				errs <- err
			}()
		}
		for range cap(errs) {
			require.NoError(t, <-errs)
		}
		require.NoError(t, c.Close())
	}
}

// The response to the attaching can get lost if the client takes its session back at that moment,
// although the server executed the request.
func TestSession_AnswerLost_ItWasThere(t *testing.T) {
	srv := zktest.Start(t)
	proxy := zktest.StartProxy(t, srv.Addr())
	conn, _, err := zk.Connect([]string{srv.Addr()}, 10*time.Second, zk.WithLogger(quiet{}))
	require.NoError(t, err)
	defer conn.Close()
	_, _, err = conn.Exists("/")
	require.NoError(t, err)
	proxy.Inject(zktest.After(zktest.Connect).Once().DropReply().Close())
	was, err := expire.Session(to(proxy.Addr()), conn.SessionID(), nil)
	require.NoError(t, err)
	require.True(t, was)
}

// A server that does nothing without credentials wants them for the end of a session, too.
func TestSession_CredentialsRequired(t *testing.T) {
	addr := zkserver.Single(t, zkserver.Property("zookeeper.enforce.auth.enabled", "true"), zkserver.Property("zookeeper.enforce.auth.schemes", "digest")).Addr()
	conn, _, err := zk.Connect([]string{addr}, 10*time.Second, zk.WithLogger(quiet{}))
	require.NoError(t, err)
	defer conn.Close()
	require.NoError(t, conn.AddAuth("digest", []byte("ann:secret")))
	_, err = conn.Create("/e", nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)
	id := conn.SessionID()
	_, err = expire.Session(to(addr), id, nil)
	require.True(t, expire.Refused(err))
	require.ErrorContains(t, err, "authentication required")
	was, err := expire.Session(to(addr), id, digest("bob:other"))
	require.NoError(t, err)
	require.True(t, was)
}

// F51: no byte from the server arrives. The session is ended nevertheless: the close is sent
// without waiting for a response, also behind credentials.
func TestSession_NothingHeard_IsEnded(t *testing.T) {
	for name, start := range map[string]func(*testing.T) string{
		"zktest":    func(t *testing.T) string { return zktest.Start(t).Addr() },
		"ZooKeeper": func(t *testing.T) string { return zkserver.Single(t).Addr() },
	} {
		t.Run(name, func(t *testing.T) {
			addr := start(t)
			conn, events, err := zk.Connect([]string{addr}, 10*time.Second, zk.WithLogger(quiet{}))
			require.NoError(t, err)
			defer conn.Close()
			_, err = conn.Create("/e", nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
			require.NoError(t, err)
			way := oneway.New(net.DialTimeout)
			way.LoseAnswers()
			since := time.Now()
			deaf, err := way.Dial("tcp", addr, time.Second)
			require.NoError(t, err)
			defer deaf.Close()
			go func() {
				_, _ = expire.Close(deaf, wire.ConnectRequest{Timeout: 10_000, SessionID: conn.SessionID(), Password: wire.SessionPassword(conn.SessionID())},
					expire.Credentials{Auths: []wire.AuthRequest{{Scheme: "digest", Auth: []byte("ann:secret")}}})
			}()
			for late, state := time.After(20*time.Second), zk.StateConnected; state != zk.StateExpired; {
				select {
				case ev := <-events:
					state = ev.State
				case <-late:
					t.Fatal("the session lives on")
				}
			}
			t.Logf("the client heard of its end after %v", time.Since(since).Round(time.Millisecond))
		})
	}
}

func digest(credentials string) func(time.Time) (expire.Credentials, error) {
	return func(time.Time) (expire.Credentials, error) {
		return expire.Credentials{Auths: []wire.AuthRequest{{Scheme: "digest", Auth: []byte(credentials)}}}, nil
	}
}

// A server that responds to nothing without SASL ends a session for clients that have it. Clients
// without SASL or with wrong credentials are rejected.
func TestSession_SASL(t *testing.T) {
	srv := zktest.Start(t, zktest.WithSASLUsers(map[string]string{"ann": "secret"}), zktest.WithConfig("sessionRequireClientSASLAuth=true"))
	for _, password := range []string{"", "wrong", "secret"} {
		c, err := rawzk.Dial(srv.Addr())
		require.NoError(t, err)
		require.NoError(t, c.Connect(wire.ConnectRequest{Timeout: 10_000}))
		asked := 0
		was, err := expire.Session(to(srv.Addr()), c.Session.SessionID, func(time.Time) (creds expire.Credentials, err error) {
			if asked++; password != "" {
				creds.SASL, err = sasl.DigestMD5(secret.Of([]byte("ann")), secret.Of([]byte(password))).Start(t.Context(), srv.Addr())
			}
			return creds, err
		})
		require.Equal(t, 1, asked)
		if password == "secret" {
			require.NoError(t, err)
			require.True(t, was)
			_, err = c.ReadFrame()
			require.Error(t, err, "its connection is closed")
		} else {
			require.True(t, expire.Refused(err), password)
			require.Len(t, srv.Sessions(), 1, "it lives on")
			require.NotContains(t, err.Error(), "secret")
			srv.ExpireSession(c.Session.SessionID)
		}
		c.Close()
	}
	require.Empty(t, srv.Sessions())
	_, err := expire.Session(to(srv.Addr()), 1, func(time.Time) (expire.Credentials, error) { return expire.Credentials{}, io.ErrNoProgress })
	require.ErrorIs(t, err, io.ErrNoProgress, "a mechanism that cannot begin")
}
