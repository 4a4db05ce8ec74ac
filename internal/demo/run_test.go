package demo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/zklock/zklock/internal/zkserver"
)

const envDeaf = "ZKLOCK_DEMO_TEST_DEAF"

// TestMain makes the test binary a worker, too.
func TestMain(m *testing.M) {
	if os.Getenv(EnvWorker) == "" {
		goleak.VerifyTestMain(m) // I7; it exits
	}
	c, err := WorkerFromEnvironment()
	c.deaf = os.Getenv(envDeaf) != ""
	if err == nil {
		err = Worker(c)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run is a demo with the workers in processes of this test binary.
func run(t *testing.T, change func(*Config)) (output string, err error) {
	t.Helper()
	exe, err := os.Executable()
	require.NoError(t, err)
	var out bytes.Buffer
	c := Config{Worker: []string{exe}, Out: &out, Env: []string{"GORACE=atexit_sleep_ms=0"}, tick: 100 * time.Millisecond, SessionTimeout: 4 * time.Second}
	change(&c)
	err = Run(t.Context(), c)
	t.Log("\n" + out.String())
	return out.String(), err
}

// verdicts are the marks of the checks in an output.
func verdicts(t *testing.T, output string) map[string]string {
	t.Helper()
	_, end, found := strings.Cut(output, "\nVerified\n")
	require.True(t, found)
	marks := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^  (ok|FAILED) +(.+?)  `).FindAllStringSubmatch(end, -1) {
		marks[m[2]] = m[1]
	}
	require.Len(t, marks, len(checks(canStop)))
	return marks
}

func TestRun_EverythingIsVerified(t *testing.T) {
	t.Parallel()
	output, err := run(t, func(*Config) {})
	require.NoError(t, err)
	for name, mark := range verdicts(t, output) {
		require.Equal(t, "ok", mark, name)
	}
}

// A worker that goes on although it was told: I5 would be worth nothing, and the demo has to notice.
func TestRun_DeafWorkers_AreFound(t *testing.T) {
	t.Parallel()
	output, err := run(t, func(c *Config) { c.Env = append(c.Env, envDeaf+"=1") })
	require.ErrorContains(t, err, "checks failed")
	marks := verdicts(t, output)
	for _, name := range []string{"told in time", "one holder", "no overlap"} {
		require.Equal(t, "FAILED", marks[name], name)
	}
}

// A resource that does not compare tokens takes the stale write.
func TestRun_GullibleResource_IsFound(t *testing.T) {
	if !canStop {
		t.Skip("no process can be stopped here")
	}
	t.Parallel()
	output, err := run(t, func(c *Config) { c.gullible = true })
	require.ErrorContains(t, err, "checks failed")
	marks := verdicts(t, output)
	for _, name := range []string{"stale write", "no overlap"} {
		require.Equal(t, "FAILED", marks[name], name)
	}
	require.Equal(t, "ok", marks["told in time"])
}

// The same on real servers: an ensemble, below a chroot, and nothing stays behind.
func TestRun_RealServers(t *testing.T) {
	t.Parallel()
	ensemble, err := zkserver.StartEnsemble(3, zkserver.NewConfig(zkserver.TickTime(200*time.Millisecond)))
	if errors.Is(err, zkserver.ErrNotInstalled) && !zkserver.Required() {
		t.Skip(err)
	}
	require.NoError(t, err)
	defer ensemble.Close()
	there := func(c *Config) {
		c.Servers, c.SessionTimeout, c.LeaderPing = ensemble.ConnectString()+"/chroot", 3*time.Second, 400*time.Millisecond
	}
	_, err = run(t, there)
	require.ErrorContains(t, err, "chroot /chroot: it is not there")
	conn, _, err := zk.Connect(strings.Split(ensemble.ConnectString(), ","), 10*time.Second, zk.WithLogInfo(false))
	require.NoError(t, err)
	defer conn.Close()
	_, err = conn.Create("/chroot", nil, 0, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)
	output, err := run(t, there)
	require.NoError(t, err)
	require.NotContains(t, output, "stays behind")
}

func TestRun_NoServers(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	err := Run(ctx, Config{Servers: "127.0.0.1:1", Out: io.Discard})
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

func TestSplitChroot(t *testing.T) {
	for servers, want := range map[string][2]string{
		"a:1":           {"a:1", ""},
		"a:1,b:2/x/y":   {"a:1,b:2", "/x/y"},
		"a,b/":          {"a,b", ""},
		"[::1]:2181/zk": {"[::1]:2181", "/zk"},
	} {
		hosts, chroot := splitChroot(servers)
		require.Equal(t, want, [2]string{hosts, chroot}, servers)
	}
}

// until calls then when the text has been written.
type until struct {
	bytes.Buffer
	text string
	then func()
}

func (u *until) Write(p []byte) (int, error) {
	n, err := u.Buffer.Write(p)
	if strings.Contains(u.String(), u.text) {
		u.then()
	}
	return n, err
}

// One that is interrupted leaves nothing on servers of others either, although its workers are killed.
func TestRun_Interrupted_CleansUp(t *testing.T) {
	t.Parallel()
	srv := zkserver.Single(t, zkserver.Own())
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	exe, err := os.Executable()
	require.NoError(t, err)
	out := until{text: "holds the lock", then: cancel}
	err = Run(ctx, Config{Worker: []string{exe}, Out: &out, Servers: srv.ConnectString(), SessionTimeout: 20 * time.Second})
	require.ErrorIs(t, err, context.Canceled, "interrupted while somebody %s", out.text)
	conn, _, err := zk.Connect([]string{srv.ConnectString()}, 10*time.Second, zk.WithLogInfo(false))
	require.NoError(t, err)
	defer conn.Close()
	names, _, err := conn.Children("/")
	require.NoError(t, err)
	require.Equal(t, []string{"zookeeper"}, names, out.String())
}
