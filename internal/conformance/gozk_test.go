package conformance

// go-zookeeper's own integration tests.

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock/zktest"
)

// gozkClusters are its integration tests that need three servers, and why one does not run; every
// other test needs one server.
var gozkClusters = map[string]string{
	"TestIntegration_BasicCluster":             "",
	"TestIntegration_ClientClusterFailover":    "",
	"TestIntegration_DNSHostProviderReconnect": "",
	"TestIntegration_NoQuorum":                 "",
	"TestIntegration_RecurringReAuthHang":      "",
	"TestIntegration_IncrementalReconfig":      noReconfig,
	"TestIntegration_Reconfig":                 noReconfig,
}

// gozkOneProcessor are tests that make a request as soon as another has failed. The client fails
// the pending requests, one after the other until there is none, and only then continues. A request
// between the two checks fails too ("could not connect to a server"), which the tests do not
// expect. On one processor the test runs again when the client has continued.
var gozkOneProcessor = []string{"TestIntegration_SlowServer"}

// gozkSlowSessions are tests that watch for the session's event only after calling Connect. A real
// ensemble takes a while to open a session. zktest's does not, so on a busy machine the event can
// arrive before the watch, and the test waits for a past event. Here these sessions take a while.
var gozkSlowSessions = []string{"TestIntegration_ClientClusterFailover", "TestIntegration_NoQuorum"}

// gozkAlone reads a list of 20 MB in one response, which must arrive within two thirds of the
// session timeout, 6.7 s. Under the race detector that takes 1.5 s of processor time for the client
// and for zktest: too much together with other tests on a busy machine.
const gozkAlone = "TestIntegration_Children"

const noReconfig = "zktest's ensembles keep their members"

// TestGoZookeeper runs the integration tests of the go-zookeeper that this module uses, unchanged,
// from a copy of the module cache, under the race detector. Each runs in a process of its own.
func TestGoZookeeper(t *testing.T) {
	suites(t)
	if _, err := exec.LookPath("cc"); err != nil && os.Getenv("CC") == "" {
		lacking(t, "go-zookeeper's tests run under the race detector, which needs a C compiler: "+err.Error())
	}
	// It waits for its servers with FLWSrvr, which has not parsed any server's reply since 3.7.
	const version = "3.8.0-zktest, built on 01/01/2022 00:00 GMT"
	h, slow := newHost(t, version), newHost(t, version, zktest.Before(zktest.Connect).Delay(500*time.Millisecond))
	binary, dir := buildGozk(t)
	list := exec.Command(binary, "-test.list", "^TestIntegration_")
	list.Dir = dir
	out, err := list.CombinedOutput()
	require.NoError(t, err, "%s", out)
	var run []string
	for _, name := range strings.Fields(string(out)) {
		if why := gozkClusters[name]; why != "" {
			t.Logf("not run: %s: %s", name, why)
			continue
		}
		run = append(run, name)
	}
	single, cluster := 0, 0
	for _, name := range runGozk(t, h, slow, binary, dir, run) {
		if _, ok := gozkClusters[name]; ok {
			cluster++
		} else {
			single++
		}
	}
	t.Logf("go-zookeeper: %d of 21 single-server and %d of 7 cluster integration tests pass, under -race", single, cluster)
	assert.Equal(t, 21, single)
	assert.Equal(t, 5, cluster)
}

// buildGozk compiles go-zookeeper's tests from a copy of its source.
func buildGozk(t *testing.T) (binary, dir string) {
	t.Helper()
	source, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/go-zookeeper/zk").Output()
	require.NoError(t, err)
	dir = filepath.Join(t.TempDir(), "zk")
	require.NoError(t, os.CopyFS(dir, os.DirFS(strings.TrimSpace(string(source)))))
	binary = filepath.Join(t.TempDir(), "zk.test")
	build := exec.Command("go", "test", "-c", "-race", "-vet=off", "-o", binary, ".")
	build.Dir = dir
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return binary, dir
}

// runGozk runs tests, a few at a time since they mostly sleep, and returns those that pass.
func runGozk(t *testing.T, h, slow *host, binary, dir string, names []string) (passed []string) {
	t.Helper()
	type result struct {
		name string
		out  []byte
		err  error
		took time.Duration
	}
	results := make(chan result)
	const atOnce = 4
	slots := make(chan struct{}, atOnce)
	take := func(n int) {
		for range n {
			slots <- struct{}{}
		}
	}
	give := func(n int) {
		for range n {
			<-slots
		}
	}
	for _, name := range names {
		h := h
		if slices.Contains(gozkSlowSessions, name) {
			h = slow
		}
		n := 1
		if name == gozkAlone {
			n = atOnce
		}
		go func() {
			take(n)
			defer give(n)
			start := time.Now()
			out, err := gozkTest(h, binary, dir, name)
			for range 2 { // its ports are random, and may be in use
				if err != nil && bytes.Contains(out, []byte("address already in use")) {
					out, err = gozkTest(h, binary, dir, name)
				}
			}
			results <- result{name, out, err, time.Since(start)}
		}()
	}
	for range names {
		r := <-results
		t.Run(strings.TrimPrefix(r.name, "TestIntegration_"), func(t *testing.T) {
			if r.err == nil {
				passed = append(passed, r.name)
				t.Logf("passes, in %v", r.took.Round(time.Millisecond))
				return
			}
			require.Fail(t, fmt.Sprint(r.err), "%s", lastLines(r.out, 60))
		})
	}
	return passed
}

func gozkTest(h *host, binary, dir, name string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, "-test.run", "^"+name+"$", "-test.v", "-test.timeout", "110s")
	cmd.Dir, cmd.Env = dir, append(h.env(), "GODEBUG=randautoseed=1") // else every process takes the same ports
	if slices.Contains(gozkOneProcessor, name) {
		cmd.Env = append(cmd.Env, "GOMAXPROCS=1")
	}
	out, err := cmd.CombinedOutput()
	if err == nil && !bytes.Contains(out, []byte("--- PASS: "+name)) {
		err = errors.New("it was skipped")
	}
	return out, err
}

func lastLines(out []byte, n int) string {
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
