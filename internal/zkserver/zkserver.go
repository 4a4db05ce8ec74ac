// Package zkserver provides a real ZooKeeper for tests: a server that the environment names, or an
// installed ZooKeeper run as a child process, alone or as an ensemble.
//
// In a test:
//
//	srv := zkserver.Single(t)                    // any server; may be shared with other tests
//	srv := zkserver.Single(t, zkserver.Own())    // one that the test may stop, pause and kill
//	ens := zkserver.Ensemble(t, 3, zkserver.TickTime(200*time.Millisecond))
//
// A server that a test starts ends with the test, and with the test's process however that ends
// (see proc_linux.go; on other systems the servers of a killed process continue to run). Nothing
// here waits by sleeping: a server counts as started when it responds to `srvr` with a mode.
package zkserver

import (
	"errors"
	"os"
	"strings"
)

// The environment variables that select a server.
const (
	// EnvServers lists external servers to use, comma separated. Only Single without options uses
	// it: options need a server of the test's own.
	EnvServers = "ZKLOCK_TEST_SERVERS"
	// EnvRequire turns a skip for a missing server into a failure. CI sets it to 1, so that a green
	// run cannot hide that nothing ran.
	EnvRequire = "ZKLOCK_REQUIRE"
	// EnvReal is 0 if a test that would start a server is skipped, as in make test.
	EnvReal = "ZKLOCK_TEST_REAL"
)

// RunFunction is the function of the one goroutine that a running server has in this process, for
// goleak.IgnoreAnyFunction in tests that share a server beyond the test.
const RunFunction = "github.com/zklock/zklock/internal/zkserver.(*child).run"

// TB is the part of testing.TB that this package needs. It is declared here so that a program that
// uses this package does not link the testing package.
type TB interface {
	Helper()
	Cleanup(func())
	Failed() bool
	Logf(format string, args ...any)
	Skipf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// Single returns a server for the test: without options, the server that EnvServers lists;
// otherwise a child process that ends with the test. Without an installed ZooKeeper it skips the
// test and logs the reason, or fails it when EnvRequire is 1.
func Single(t TB, opts ...Option) *Server {
	t.Helper()
	if named := os.Getenv(EnvServers); named != "" && len(opts) == 0 {
		s := newNamed(named)
		if err := s.Ready(); err != nil {
			t.Fatalf("zkserver: %s=%q: %v", EnvServers, named, err)
			return nil
		}
		return s
	}
	if skipped(t) {
		return nil
	}
	c, err := startMembers(1, NewConfig(opts...))
	if c = tied(t, c, err); c == nil {
		return nil
	}
	return c.servers[0]
}

// Ensemble returns n servers that form an ensemble and end with the test. It skips or fails as
// Single does. It never uses the servers that EnvServers lists.
func Ensemble(t TB, n int, opts ...Option) *Cluster {
	t.Helper()
	if skipped(t) {
		return nil
	}
	c, err := StartEnsemble(n, NewConfig(opts...))
	return tied(t, c, err)
}

// tied ends the servers with the test. Without servers it ends the test, and returns nil.
func tied(t TB, c *Cluster, err error) *Cluster {
	t.Helper()
	if err != nil {
		refuse(t, err)
		return nil
	}
	t.Cleanup(func() {
		if t.Failed() {
			for _, s := range c.servers {
				t.Logf("ZooKeeper %d at %s said:\n%s", s.ID(), s.Addr(), s.LogTail())
			}
		}
		if err := c.Close(); err != nil {
			t.Logf("zkserver: %v", err)
		}
	})
	return c
}

// skipped skips a test that needs a server if EnvReal is 0.
func skipped(t TB) bool {
	t.Helper()
	is := os.Getenv(EnvReal) == "0"
	if is {
		t.Skipf("zkserver: starts a ZooKeeper, and %s is 0", EnvReal)
	}
	return is
}

// refuse ends a test that got no server. If there is no ZooKeeper to start, it skips the test,
// unless a server is required. If a server did not start, it fails the test.
func refuse(t TB, err error) {
	t.Helper()
	if errors.Is(err, ErrNotInstalled) && !Required() {
		t.Skipf("zkserver: %v; set %s to use a running one", err, EnvServers)
		return
	}
	t.Fatalf("zkserver: %v", err)
}

// Required reports whether a missing server fails a test instead of skipping it.
func Required() bool { return os.Getenv(EnvRequire) == "1" }

// newNamed returns a Server for external servers. It can be queried, but not controlled.
func newNamed(list string) *Server {
	first, _, _ := strings.Cut(list, ",")
	first, _, _ = strings.Cut(first, "/") // a chroot, when there is one address
	if !strings.Contains(first, ":") {
		first += ":2181"
	}
	return &Server{named: true, addr: strings.TrimSpace(first), connect: list}
}
