package demo

import (
	"bytes"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// TestMain makes the test binary a worker, too.
func TestMain(m *testing.M) {
	if os.Getenv(EnvWorker) == "" {
		_ = os.Setenv("GORACE", "atexit_sleep_ms=0") // of the workers
		goleak.VerifyTestMain(m)                     // I7; it exits
	}
	if err := RunWorker(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run is a demo with the workers in processes of this test binary. It returns the marks of the checks as well.
func run(t *testing.T, d *demo) (marks map[string]string, err error) {
	t.Helper()
	var out bytes.Buffer
	d.out, d.tick, d.sessionTimeout = &out, 100*time.Millisecond, 4*time.Second
	err = d.run(t.Context())
	t.Log("\n" + out.String())
	timeline, verified, found := strings.Cut(out.String(), "\nVerified\n")
	require.True(t, found, err)
	for line := range strings.Lines(timeline) {
		require.LessOrEqual(t, len(line), 80, line)
	}
	marks = map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^  (ok|FAILED) +(.+?)  `).FindAllStringSubmatch(verified, -1) {
		marks[m[2]] = m[1]
	}
	require.Len(t, marks, len(checks()))
	return marks, err
}

func TestRun_EverythingIsVerified(t *testing.T) {
	t.Parallel()
	_, err := run(t, &demo{})
	require.NoError(t, err)
}

// A worker that goes on although it was notified: I5 would be worth nothing, and the demo has to find that.
func TestRun_DeafWorkers_AreFound(t *testing.T) {
	t.Parallel()
	marks, err := run(t, &demo{deaf: true})
	require.ErrorContains(t, err, "checks failed")
	for _, name := range []string{"notified", "one holder", "no overlap"} {
		require.Equal(t, "FAILED", marks[name], name)
	}
}

// A resource that does not compare tokens takes the stale write.
func TestRun_GullibleResource_IsFound(t *testing.T) {
	if !canStop {
		t.Skip("no process can be stopped here")
	}
	t.Parallel()
	marks, err := run(t, &demo{gullible: true})
	require.ErrorContains(t, err, "checks failed")
	for _, name := range []string{"stale write", "no overlap"} {
		require.Equal(t, "FAILED", marks[name], name)
	}
	require.Equal(t, "ok", marks["notified"])
}
