//go:build linux || darwin

package command

import (
	"context"
	"fmt"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock/internal/zkserver"
)

// serve starts the server as a process and returns the addresses it prints.
func serve(t *testing.T, args ...string) (*proc, []string) {
	t.Helper()
	p := start(t, nil, append([]string{"serve"}, args...)...)
	eventually(t, "the server prints its address", func() bool { return strings.HasSuffix(p.stdout.String(), "\n") })
	return p, strings.Split(strings.TrimSpace(p.stdout.String()), ",")
}

// quiet drops what a client of the tests' own says.
type quiet struct{}

func (quiet) Printf(string, ...any) {}

func client(t *testing.T, timeout time.Duration, addrs ...string) *zk.Conn {
	t.Helper()
	conn, _, err := zk.Connect(addrs, timeout, zk.WithLogger(quiet{}))
	require.NoError(t, err)
	t.Cleanup(conn.Close)
	return conn
}

func TestServe_ServesClients_AndEndsOnSignals(t *testing.T) {
	t.Parallel()
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		p, addrs := serve(t, "--listen", "127.0.0.1:0", "--tick", "100ms", "--max-session-timeout", "7s")
		p.prints("for development only")
		require.Len(t, addrs, 1)
		conn := client(t, time.Minute, addrs...)
		_, err := conn.Create("/a", []byte("x"), zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
		require.NoError(t, err)

		job := start(t, nil, "run", "--servers", addrs[0], "--lease", "single", "--session-timeout", "1m", "/locks/try", "--", "echo", "done")
		require.Zero(t, job.wait())
		require.Equal(t, "done\n", job.stdout.String())

		p.signal(sig)
		require.Zero(t, p.wait())
		require.Equal(t, 1, strings.Count(p.stderr.String(), "\n"), "it says what it is, and nothing else:\n%s", &p.stderr)
	}
}

// consecutivePorts returns the first of n free ports in a row, of those that no client is given:
// other tests make connections by the hundred, and each takes a port from where the system would
// find one for port 0.
func consecutivePorts(t *testing.T, n int) int {
	t.Helper()
	for {
		first, err := zkserver.FreePort()
		require.NoError(t, err)
		free := 0
		for ; free < n; free++ {
			ln, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", first+free))
			if err != nil {
				break
			}
			require.NoError(t, ln.Close())
		}
		if free == n {
			return first
		}
	}
}

func TestServe_Ensemble_OnConsecutivePorts(t *testing.T) {
	port := consecutivePorts(t, 3)
	_, addrs := serve(t, "--members", "3", "--listen", fmt.Sprintf("localhost:%d", port))
	require.Len(t, addrs, 3)
	for i, addr := range addrs {
		_, p, err := net.SplitHostPort(addr)
		require.NoError(t, err)
		require.Equal(t, fmt.Sprint(port+i), p)
	}
	_, err := client(t, 10*time.Second, addrs[0]).Create("/a", nil, 0, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)
	there, _, err := client(t, 10*time.Second, addrs[2]).Exists("/a")
	require.NoError(t, err)
	require.True(t, there)
}

func TestServe_Refuses(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	for args, say := range map[string]string{
		"--listen 0.0.0.0:0":                                    "--allow-remote",
		"--listen :2181":                                        "--allow-remote",
		"--listen [::]:0":                                       "--allow-remote",
		"--listen 192.0.2.1:2181":                               "--listen 192.0.2.1:2181: other hosts can reach it; this server is for development only, so give --allow-remote",
		"--listen 127.0.0.1":                                    "give host:port",
		"--listen 127.0.0.1:zookeeper":                          "not a port",
		"--listen 127.0.0.1:70000":                              "not a port",
		"--listen 127.0.0.1:65535 --members 2":                  "fewer than 2 ports from there on",
		"--members 0":                                           "1 to 9",
		"--control 127.0.0.1":                                   "give host:port",
		"--control 0.0.0.0:8474":                                "--allow-remote",
		"--admin 0.0.0.0:8080":                                  "--admin 0.0.0.0:8080: other hosts can reach it",
		"--metrics :7000":                                       "--metrics :7000: other hosts can reach it",
		"--members 2 --metrics 127.0.0.1:65535":                 "--metrics 127.0.0.1:65535: fewer than 2 ports",
		"--listen 127.0.0.1:0 --admin " + taken.Addr().String(): "--admin: listen",
		"--zookeeper-version 3.4.13":                            "3.8.0",
		"--members 10":                                          "1 to 9",
		"--max-client-cnxns -1":                                 "0 is no limit",
		"--tick 0s":                                             "at least 1ms",
		"--tick 1s --max-session-timeout 1s":                    "two ticks",
		"--listen " + taken.Addr().String():                     "in use",
		"--listen 127.0.0.1:0 /locks/something":                 "zklock serve takes no argument",
	} {
		p := start(t, nil, append([]string{"serve"}, strings.Fields(args)...)...)
		require.Equal(t, exitUsage, p.wait(), args)
		require.Contains(t, p.stderr.String(), say, args)
		require.NotContains(t, p.stderr.String(), "zktest:", args)
		require.Empty(t, p.stdout.String(), args)
	}
}

func TestServe_AllowRemote(t *testing.T) {
	_, addrs := serve(t, "--listen", "0.0.0.0:0", "--allow-remote")
	_, port, err := net.SplitHostPort(addrs[0])
	require.NoError(t, err)
	there, _, err := client(t, 10*time.Second, net.JoinHostPort("127.0.0.1", port)).Exists("/")
	require.NoError(t, err)
	require.True(t, there)
}

func TestIsLoopback(t *testing.T) {
	for host, want := range map[string]bool{
		"127.0.0.1": true, "127.1.2.3": true, "::1": true, "localhost": true, "::ffff:127.0.0.1": true,
		"": false, "0.0.0.0": false, "::": false, "10.0.0.1": false, "::ffff:10.0.0.1": false,
	} {
		require.Equal(t, want, isLoopback(context.Background(), host) == nil, host)
	}
}
