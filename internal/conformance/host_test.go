package conformance

// The servers that other projects' test suites start and stop by way of the shim.

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock/zktest"
)

// suites skips a test of another project's suite unless it is asked for: they take minutes.
func suites(t *testing.T) {
	t.Helper()
	if os.Getenv("ZKLOCK_CONFORMANCE") != "1" {
		t.Skip("other projects' test suites run only with ZKLOCK_CONFORMANCE=1; see make conformance")
	}
}

// lacking skips a test for want of something, or fails it if ZKLOCK_REQUIRE=1.
func lacking(t *testing.T, what string) {
	t.Helper()
	if os.Getenv("ZKLOCK_REQUIRE") == "1" {
		t.Fatalf("ZKLOCK_REQUIRE=1, and %s", what)
	}
	t.Skipf("not covered: %s", what)
}

// host holds servers for the shim.
type host struct {
	dir    string // has the shim, as zkServer.sh and as java
	socket string

	wg sync.WaitGroup
	mu struct {
		sync.Mutex                    // held while a server starts or stops, so that a start comes after the stop before it
		servers    map[string]machine // by what the marker in their data directory says
	}
}

// machine is a server of ours, or a member of an ensemble.
type machine interface {
	Start() error
	Stop()
}

// newHost builds the shim and serves it for the length of the test.
func newHost(t *testing.T) *host {
	t.Helper()
	dir, err := os.MkdirTemp("", "zk") // the test's own would make the socket's name too long
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	h := &host{dir: dir, socket: filepath.Join(dir, "socket")}
	h.mu.servers = make(map[string]machine)
	shim := filepath.Join(dir, "zkServer.sh")
	out, err := exec.Command("go", "build", "-o", shim, "./shim").CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.NoError(t, os.Symlink(shim, filepath.Join(dir, "java")))
	ln, err := net.Listen("unix", h.socket)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	h.wg.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			h.wg.Go(func() { h.serve(ctx, conn) })
		}
	})
	t.Cleanup(func() {
		cancel()
		ln.Close()
		h.wg.Wait()
		for _, m := range h.mu.servers {
			if s, ok := m.(interface{ Close() }); ok {
				s.Close()
			}
		}
	})
	return h
}

// env is what a suite needs to find the shim.
func (h *host) env() []string {
	return append(os.Environ(), "ZKLOCK_SHIM_SOCKET="+h.socket, "ZOOKEEPER_BIN_PATH="+h.dir,
		"PATH="+h.dir+string(os.PathListSeparator)+os.Getenv("PATH"))
}

// serve runs a server as long as the shim at the other end lives.
func (h *host) serve(ctx context.Context, conn net.Conn) {
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	r := bufio.NewReader(conn)
	line, err := r.ReadBytes('\n')
	if err != nil {
		return
	}
	var ask struct {
		Config     string
		Properties map[string]string
	}
	if err := json.Unmarshal(line, &ask); err != nil {
		fmt.Fprint(conn, err)
		return
	}
	m, err := h.start(ask.Config, ask.Properties)
	if err != nil {
		fmt.Fprint(conn, err)
		return
	}
	io.Copy(io.Discard, r)
	h.mu.Lock()
	defer h.mu.Unlock()
	m.Stop()
}

func (h *host) start(configPath string, properties map[string]string) (machine, error) {
	cfg, err := readZooCfg(configPath)
	if err != nil {
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	// What a server knows goes with its data directory: a suite that wipes it wants an empty server.
	marker := filepath.Join(cfg["dataDir"], "zktest")
	if id, err := os.ReadFile(marker); err == nil && h.mu.servers[string(id)] != nil {
		m := h.mu.servers[string(id)]
		return m, m.Start()
	}
	if cfg["servers"] != "" {
		return nil, fmt.Errorf("ensembles are not to be had yet")
	}
	opts := []zktest.Option{
		zktest.WithAddr("127.0.0.1:" + cfg["clientPort"]),
		zktest.WithSuperDigest(properties["zookeeper.DigestAuthenticationProvider.superDigest"]),
	}
	if ms, err := strconv.Atoi(cfg["tickTime"]); err == nil {
		opts = append(opts, zktest.WithTick(time.Duration(ms)*time.Millisecond))
	}
	if properties["zookeeper.extendedTypesEnabled"] == "true" {
		opts = append(opts, zktest.WithTTLNodes())
	}
	srv, err := zktest.NewServer(opts...)
	if err != nil {
		return nil, err
	}
	id := strconv.Itoa(len(h.mu.servers))
	h.mu.servers[id] = srv
	return srv, os.WriteFile(marker, []byte(id), 0o600)
}

// readZooCfg reads a zoo.cfg. The lines server.N of an ensemble are under "servers".
func readZooCfg(path string) (map[string]string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	cfg := make(map[string]string)
	for line := range strings.Lines(string(text)) {
		key, value, ok := strings.Cut(strings.TrimSpace(line), "=")
		switch {
		case !ok || strings.HasPrefix(key, "#"):
		case strings.HasPrefix(key, "server."):
			cfg["servers"] += strings.TrimSpace(line) + "\n"
		default:
			cfg[key] = value
		}
	}
	if cfg["clientPort"] == "" || cfg["dataDir"] == "" {
		return nil, fmt.Errorf("%s has no clientPort or no dataDir", path)
	}
	return cfg, nil
}
