//go:build linux || darwin

package command

// These tests attack zklock runs: what it lists, and a mark that is removed without a confirmation,
// or with another one.

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/zktest"
)

func TestRuns_ListsTheMarks_AndForgetsOneThatIsConfirmed(t *testing.T) {
	srv := zktest.Start(t)
	s := sessionAt(t, srv.Addr())
	runs := func(answer string, args ...string) (code int, out, said string) {
		t.Helper()
		var stdout, stderr bytes.Buffer
		root := newRootCommand()
		root.SetArgs(append([]string{"runs", "--servers", srv.Addr()}, args...))
		root.SetIn(strings.NewReader(answer))
		root.SetOut(&stdout)
		root.SetErr(&stderr)
		err := root.Execute()
		if err != nil {
			fmt.Fprint(&stderr, err)
		}
		return codeOf(err), stdout.String(), stderr.String()
	}
	code, out, said := runs("", "/nightly")
	require.Equal(t, 0, code)
	require.Equal(t, "KEY  TOKEN  WHO  SUCCEEDED\n", out)
	require.Equal(t, "zklock: /nightly: no run is marked as done\n", said)
	code, out, _ = runs("", "--json", "/nightly")
	require.Equal(t, 0, code)
	require.Equal(t, "[]\n", out)

	m, err := zklock.NewMutex(s, "/nightly", zklock.WithData([]byte("db1:4711")))
	require.NoError(t, err)
	once := func(key string) bool {
		ran, err := m.Once(t.Context(), key, func(context.Context, *zklock.Hold) error { return nil })
		require.NoError(t, err)
		return ran
	}
	require.True(t, once("2026-07-01"))
	require.True(t, once("2026-07-02"))
	code, out, said = runs("", "/nightly")
	require.Equal(t, 0, code)
	require.Regexp(t, `^KEY         TOKEN  WHO       SUCCEEDED\n2026-07-01  \d+ +db1:4711  \d{4}-\S+\n2026-07-02  \d+ +db1:4711  \d{4}-\S+\n$`, out)
	require.Empty(t, said)
	code, out, _ = runs("", "--json", "/nightly")
	require.Equal(t, 0, code)
	require.Regexp(t, `"key": "2026-07-01",\n    "by": "db1:4711",\n    "at": "\S+",\n    "token": \d+\n`, out)

	for _, answer := range []string{"", "n\n", "\n", "yesterday\n"} {
		code, out, said = runs(answer, "--forget", "2026-07-01", "/nightly")
		require.Equal(t, exitUsage, code)
		require.Regexp(t, `^zklock: /nightly: 2026-07-01 is done: by db1:4711 at \S+, token \d+. Remove this mark, .*\? \[y/N\] /nightly: not confirmed: nothing was done$`, said)
		require.Empty(t, out)
		require.False(t, once("2026-07-01"))
	}
	srv.Inject(zktest.Before(zktest.SetData).Once().Call(func() { once("2026-07-03") })) // a run is marked meanwhile
	code, out, said = runs("Y\n", "--forget", "2026-07-01", "/nightly")
	require.Equal(t, 0, code, said)
	require.Equal(t, "/nightly: the mark of 2026-07-01 is removed: the next run with this key runs it again\n", out)
	code, _, said = runs("", "--yes", "--forget", "2026-07-01", "/nightly")
	require.Equal(t, exitNoNode, code)
	require.Equal(t, `/nightly: no run with the key "2026-07-01" is marked as done`, said)
	require.False(t, once("2026-07-02"))
	require.False(t, once("2026-07-03"))
	require.True(t, once("2026-07-01"))
	for _, key := range []string{"2026-07-01", "2026-07-02", "2026-07-03"} {
		code, _, said = runs("", "--yes", "--forget", key, "/nightly")
		require.Equal(t, 0, code, said)
		require.NotContains(t, said, "[y/N]")
	}
	require.True(t, once("2026-07-02"), "the mark has no runs left")
}

// A response that is lost does not make a removed mark one that was never there. What is no mark is
// not touched.
func TestRuns_Forget_Failures(t *testing.T) {
	srv := zktest.Start(t)
	s := sessionAt(t, srv.Addr())
	m, err := zklock.NewMutex(s, "/nightly")
	require.NoError(t, err)
	forget := func(path string) (code int, said string) {
		var out, stderr bytes.Buffer
		code = execute([]string{"runs", "--servers", srv.Addr(), "--yes", "--forget", "a", path}, &out, &stderr)
		return code, stderr.String()
	}
	mark := func() {
		for _, key := range []string{"a", "b"} {
			_, err := m.Once(t.Context(), key, func(context.Context, *zklock.Hold) error { return nil })
			require.NoError(t, err)
		}
	}
	mark()
	f := srv.Inject(zktest.After(zktest.SetData).Path("/nightly-done").DropReply().Close().Once())
	code, said := forget("/nightly")
	require.Equal(t, 0, code, said)
	require.Equal(t, 1, f.Fired())
	mark()
	_, err = s.Conn().SetACL("/nightly-done", zk.WorldACL(zk.PermRead), -1)
	require.NoError(t, err)
	code, said = forget("/nightly")
	require.Equal(t, exitRefused, code)
	require.Contains(t, said, "no WRITE permission on /nightly-done")
	_, err = srv.Create("/other-done", []byte("theirs"), 0)
	require.NoError(t, err)
	code, said = forget("/other")
	require.Equal(t, exitUsage, code)
	require.Contains(t, said, `/other-done has data of another program, "theirs"`)
	for want, args := range map[string][]string{
		"--forget and --json contradict each other": {"--forget", "a", "--json", "/x"}, "--yes is for --forget": {"--yes", "/x"}, "must begin with a slash": {"x"},
	} {
		var out, stderr bytes.Buffer
		require.Equal(t, exitUsage, execute(append([]string{"runs", "--servers", "127.0.0.1:1"}, args...), &out, &stderr))
		require.Contains(t, stderr.String(), want)
	}
}
