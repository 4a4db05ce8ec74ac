//go:build linux || darwin

package command

import (
	"fmt"
	"io"
	"net"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	jute "github.com/zklock/zklock/internal/wire"
	"github.com/zklock/zklock/internal/zkserver"
)

func TestParseSession(t *testing.T) {
	for s, want := range map[string]uint64{
		"0x10000658c6e0000": 0x10000658c6e0000, "72057619733053440": 72057619733053440, "-2": 0xfffffffffffffffe, "0xfffffffffffffffe": 0xfffffffffffffffe,
		"": 0, "0": 0, "0x0": 0, "0x": 0, "nightly": 0, "10000658c6e0000": 0, "0x1_0": 0, "0x10000658c6e000000": 0,
	} {
		id, err := parseSession(s)
		require.Equal(t, want, id, s)
		require.Equal(t, want == 0, err != nil, s)
		if err != nil {
			require.ErrorContains(t, err, "as zklock ls prints it")
		}
	}
}

// On the server for development and on a real one: without --yes nothing is done, with it the
// session has ended when the command has, the job is told, and the next one runs.
func TestExpire_EndsTheSession(t *testing.T) {
	t.Parallel()
	for name, servers := range map[string]func(t *testing.T) string{
		"serve": func(t *testing.T) string {
			_, addrs := serve(t, "--listen", "127.0.0.1:0", "--max-session-timeout", "1m")
			return addrs[0]
		},
		"ZooKeeper": func(t *testing.T) string { return server(t).ConnectString() },
	} {
		t.Run(name, func(t *testing.T) {
			servers, path := servers(t), lockPath(t)
			run := func(args ...string) *proc {
				return start(t, nil, append([]string{"run", "--servers", servers, "--session-timeout", "1m", "--lease", "single", "-v", path, "--"}, args...)...)
			}
			expire := func(args ...string) *proc {
				return start(t, nil, append([]string{"expire", "--servers", servers}, args...)...)
			}
			job := run("sleep", "60")
			job.prints("acquired")
			next := run("echo", "next")
			next.prints("session 0x")
			id := next.stderr.String()
			id = id[strings.Index(id, "session ")+len("session "):]
			id = id[:strings.IndexByte(id, ',')]

			p := expire(id)
			require.Equal(t, exitUsage, p.wait())
			require.Contains(t, p.stderr.String(), "nothing was done")
			require.Contains(t, p.stderr.String(), "--yes")
			require.Empty(t, next.stdout.String())

			began := time.Now()
			p = expire("--yes", id)
			require.Equal(t, 0, p.wait())
			require.Equal(t, fmt.Sprintf("session %s ended: its ephemeral nodes were deleted\n", id), p.stdout.String())
			require.Equal(t, 0, next.wait())
			require.Equal(t, "next\n", next.stdout.String())
			require.Equal(t, exitLost, job.wait())
			require.Contains(t, job.stderr.String(), "the servers ended the ZooKeeper session")
			require.Less(t, time.Since(began), patience, "the session timeout is a minute")

			p = expire("--yes", id)
			require.Equal(t, exitNoSession, p.wait())
			require.Contains(t, p.stderr.String(), "session "+id+": the servers have no such session")
			require.Empty(t, p.stdout.String())
		})
	}
}

func TestExpire_Refusals(t *testing.T) {
	for _, args := range [][]string{{"expire", "--yes"}, {"expire", "--yes", "nightly"}, {"expire", "--yes", "0x1", "0x2"}} {
		require.Equal(t, exitUsage, start(t, nil, append(args, "--servers", "127.0.0.1:1")...).wait(), args)
	}
	p := start(t, nil, "expire", "--yes", "0x1", "--servers", "127.0.0.1:1", "--connect-timeout", "3s")
	require.Equal(t, exitNoServer, p.wait())
	require.Contains(t, p.stderr.String(), "refused")
}

// The ways of connecting are those of run: TLS, and credentials where the servers want them.
func TestExpire_TLSAndCredentials(t *testing.T) {
	t.Parallel()
	srv := zkserver.Single(t, zkserver.Property("zookeeper.enforce.auth.enabled", "true"), zkserver.Property("zookeeper.enforce.auth.schemes", "digest"))
	serverCert, serverKey := certificate(t, "zk.test")
	clientCert, clientKey := certificate(t, "client.test")
	addr := tlsInFrontOf(t, srv.Addr(), serverCert, serverKey, clientCert)
	conn := client(t, 30*time.Second, srv.Addr())
	require.NoError(t, conn.AddAuth("digest", []byte("ann:secret")))
	_, _, err := conn.Exists("/")
	require.NoError(t, err)
	args := []string{"expire", "--yes", "--servers", addr, "--tls-ca", serverCert, "--tls-server-name", "zk.test", "--tls-cert", clientCert, "--tls-key", clientKey,
		fmt.Sprintf("%#x", conn.SessionID())}
	p := start(t, nil, args...)
	require.Equal(t, exitRefused, p.wait())
	require.Contains(t, p.stderr.String(), "authentication required")
	p = start(t, func(c *exec.Cmd) { c.Env = append(c.Env, "ZKLOCK_AUTH=bob:other") }, args...)
	require.Equal(t, 0, p.wait())
}

// R126: behind a proxy that opens a session for each connection, nothing is ended, and expire
// reports that. The session that the proxy opened is closed.
func TestExpire_ServerResumesNoSessions(t *testing.T) {
	srv := server(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go opensSessions(c, srv.Addr())
		}
	}()
	conn := client(t, 30*time.Second, srv.Addr())
	_, _, err = conn.Exists("/")
	require.NoError(t, err)
	args := []string{"expire", "--yes", fmt.Sprintf("%#x", conn.SessionID()), "--servers"}
	p := start(t, nil, append(args, l.Addr().String())...)
	require.Equal(t, exitRefused, p.wait())
	require.Contains(t, p.stderr.String(), "nothing was ended")
	require.Empty(t, p.stdout.String())
	require.Equal(t, 0, start(t, nil, append(args, srv.Addr())...).wait(), "it was still there")
}

// opensSessions connects a client to a server, and asks it for a new session instead of the
// client's.
func opensSessions(c net.Conn, server string) {
	defer c.Close()
	s, err := net.Dial("tcp", server)
	if err != nil {
		return
	}
	defer s.Close()
	body, err := jute.ReadFrame(c, jute.MaxFrame)
	if err != nil {
		return
	}
	var req jute.ConnectRequest
	req.Decode(jute.NewDecoder(body))
	req.SessionID, req.Password = 0, make([]byte, 16)
	_, _ = s.Write(jute.Frame(req))
	go func() {
		_, _ = io.Copy(s, c)
		s.Close()
	}()
	_, _ = io.Copy(c, s)
}
