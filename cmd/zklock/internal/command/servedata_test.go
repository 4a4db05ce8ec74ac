//go:build linux || darwin

package command

// Attacks the nodes that serve keeps from one run to the next, and those that it takes from a real
// server.

import (
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock/internal/zkserver"
)

func TestServe_Data_NodesAreThereAgain(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "new")
	args := []string{"--listen", "127.0.0.1:0", "--data", dir, "--load", "../../../../zktest/testdata/snapshot.e"}
	p, addrs := serve(t, args...)
	p.prints("nodes from ../../../../zktest/testdata/snapshot.e")
	p.prints("writes its nodes to " + filepath.Join(dir, "zklock-serve.json"))
	conn := client(t, 10*time.Second, addrs...)
	for range 3 {
		_, err := conn.Create("/app/queue-", []byte("x"), zk.FlagSequence, zk.WorldACL(zk.PermRead))
		require.NoError(t, err)
	}
	require.NoError(t, conn.Delete("/locks/n", -1))
	_, err := conn.Create("/e", nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)
	_, st, err := conn.Exists("/e")
	require.NoError(t, err)
	p.signal(syscall.SIGTERM)
	require.Zero(t, p.wait(), &p.stderr)
	info, err := os.Stat(filepath.Join(dir, "zklock-serve.json"))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode())
	all, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, all, 1)

	p, addrs = serve(t, args...)
	p.prints("nodes from " + filepath.Join(dir, "zklock-serve.json"))
	conn = client(t, 10*time.Second, addrs...)
	there, _, err := conn.Exists("/locks/n")
	require.NoError(t, err)
	require.False(t, there, "--load is for the first start")
	there, _, err = conn.Exists("/e")
	require.NoError(t, err)
	require.False(t, there)
	acl, _, err := conn.GetACL("/app/queue-0000000008")
	require.NoError(t, err)
	require.Equal(t, zk.WorldACL(zk.PermRead), acl)
	path, err := conn.Create("/app/queue-", nil, zk.FlagSequence, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)
	require.Equal(t, "/app/queue-0000000009", path)
	_, after, err := conn.Exists(path)
	require.NoError(t, err)
	require.Greater(t, after.Czxid, st.Czxid, "clients that go on would refuse an older server")
}

// A client that was connected before comes back, with a new session: it would stay away from a
// server that is behind.
func TestServe_Data_ClientsGoOn(t *testing.T) {
	t.Parallel()
	port, err := zkserver.FreePort()
	require.NoError(t, err)
	addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	args := []string{"--listen", addr, "--data", t.TempDir()}
	p, _ := serve(t, args...)
	conn := client(t, 10*time.Second, addr)
	for range 20 {
		_, err = conn.Create("/n-", nil, zk.FlagSequence, zk.WorldACL(zk.PermAll))
		require.NoError(t, err)
	}
	p.signal(syscall.SIGINT)
	require.Zero(t, p.wait(), &p.stderr)
	serve(t, args...)
	eventually(t, "the client is back", func() bool { children, _, err := conn.Children("/"); return err == nil && len(children) == 21 })
}

func TestServe_RefusesNodes(t *testing.T) {
	file := func(text string) string {
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(dir, dataFile), []byte(text), 0o600))
		return dir
	}
	whole, err := os.ReadFile("../../../../zktest/testdata/snapshot.e")
	require.NoError(t, err)
	for says, args := range map[string][]string{
		"no snapshot of ZooKeeper":         {"--load", "serve.go"},
		"--load: open none":                {"--load", "none"},
		"damaged, or was not written to":   {"--load", writeFile(t, 0o600, string(whole[:1000]))},
		"gunzip":                           {"--load", writeFile(t, 0o600, "\x1f\x8b\x08")},
		"cannot be used: unexpected end":   {"--data", file(`{"version":1,`)},
		"before its parent, or without it": {"--data", file(`{"version":1,"nodes":[{"path":"/a/b"}]}`)},
		"of another version, 2":            {"--data", file(`{"version":2}`)},
		"not a directory":                  {"--data", writeFile(t, 0o600, "")},
	} {
		p := start(t, nil, append([]string{"serve", "--listen", "127.0.0.1:0"}, args...)...)
		require.Equal(t, exitUsage, p.wait(), says)
		require.Contains(t, p.stderr.String(), says)
		require.NotContains(t, p.stderr.String(), "zktest:")
		require.Empty(t, p.stdout.String())
	}
}

// A snapshot that a real server of today writes, at its second start.
func TestServe_Load_OfARealServer(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	srv := zkserver.Single(t, zkserver.DataDir(dir))
	conn := client(t, 10*time.Second, srv.Addr())
	_, err := conn.Create("/app", []byte("data"), 0, zk.DigestACL(zk.PermAll, "ann", "secret"))
	require.NoError(t, err)
	require.NoError(t, srv.Stop())
	require.NoError(t, srv.Start())
	files, err := filepath.Glob(filepath.Join(dir, "data", "version-2", "snapshot.*"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	_, addrs := serve(t, "--listen", "127.0.0.1:0", "--load", files[len(files)-1])
	conn = client(t, 10*time.Second, addrs...)
	_, _, err = conn.Get("/app")
	require.ErrorIs(t, err, zk.ErrNoAuth)
	require.NoError(t, conn.AddAuth("digest", []byte("ann:secret")))
	data, _, err := conn.Get("/app")
	require.NoError(t, err)
	require.Equal(t, "data", string(data))
}
