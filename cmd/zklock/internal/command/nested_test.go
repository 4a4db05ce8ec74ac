//go:build linux || darwin

package command

// Runs inside runs: one that would wait for its own parent is refused at once, and no other is.

import (
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/internal/zkserver"
)

// nest is a run on a path with flags, whose COMMAND is the inner command line. Its exit code is the
// inner one's.
func nest(t *testing.T, srv *zkserver.Server, path string, flags, inner []string) []string {
	t.Helper()
	return runArgs(srv.ConnectString(), path, append(append(append([]string{}, flags...), "--", binary(t)), inner...)...)
}

func TestNested_RunOfTheSameLock_IsRefusedAtOnce(t *testing.T) {
	t.Parallel()
	srv := server(t)
	sem := func(n, k string) []string { return []string{"--semaphore", n, "--permits", k} }
	for name, tc := range map[string]struct {
		outer, inner []string
		refused      bool
	}{
		"mutex":                         {nil, nil, true},
		"mutex that does not wait":      {nil, []string{"-n", "-E", "0"}, true},
		"mutex, reader":                 {nil, []string{"--shared"}, true},
		"mutex, candidate":              {nil, []string{"--elect"}, true},
		"leader":                        {[]string{"--elect"}, nil, true},
		"reader, writer":                {[]string{"--shared"}, nil, true},
		"readers":                       {[]string{"--shared"}, []string{"--shared"}, true},
		"semaphore of one":              {sem("1", "1"), sem("1", "1"), true},
		"permits that never fit":        {sem("4", "3"), sem("4", "2"), true},
		"permits that fit":              {sem("4", "3"), sem("4", "1"), false},
		"a lock below, of another path": {nil, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := lockPath(t)
			below := path
			if strings.HasPrefix(name, "a lock below") {
				below += "/below"
			}
			p := start(t, nil, nest(t, srv, path, tc.outer, runArgs(srv.ConnectString(), below, append(tc.inner, "--", "echo", "ran")...))...)
			if !tc.refused {
				require.Equal(t, 0, p.wait(), p.stderr.String())
				require.Equal(t, "ran\n", p.stdout.String())
				return
			}
			require.Equal(t, exitUsage, p.wait(), p.stderr.String())
			require.Empty(t, p.stdout.String())
			require.Regexp(t, `zklock: `+path+`: (a run|runs) around this one .* indefinitely.*: COMMAND of that run has started this one \(node `+path+`/`, p.stderr.String())
		})
	}
}

// L around M around L: ZKLOCK_NODE is of M, and L is held all the same. So with permits: two around
// have both.
func TestNested_WithAnotherBetween_IsRefused(t *testing.T) {
	t.Parallel()
	srv, path := server(t), lockPath(t)
	last := runArgs(srv.ConnectString(), path, "--", "echo", "ran")
	p := start(t, nil, nest(t, srv, path, nil, nest(t, srv, path+"/a b:c", nil, last))...)
	require.Equal(t, exitUsage, p.wait(), p.stderr.String())
	require.Contains(t, p.stderr.String(), path+": a run around this one holds the lock")

	two := []string{"--semaphore", "2"}
	last = runArgs(srv.ConnectString(), path+"/s", append(two, "--", "echo", "ran")...)
	p = start(t, nil, nest(t, srv, path+"/s", two, nest(t, srv, path+"/s", two, last))...)
	require.Equal(t, exitUsage, p.wait(), p.stderr.String())
	require.Contains(t, p.stderr.String(), "runs around this one have 2 of the 2 permits")
	require.Empty(t, p.stdout.String())
}

// Of a semaphore whose limit is in a node, that node counts, and not the number that each run has
// for its first acquire.
func TestNested_LimitInANode(t *testing.T) {
	t.Parallel()
	srv, path := server(t), lockPath(t)
	s := session(t, srv)
	sem, err := zklock.NewSemaphore(s, path, 1, zklock.WithSharedLimit(path+"/limit"))
	require.NoError(t, err)
	flags := []string{"--semaphore", "2", "--semaphore-limit", path + "/limit"}
	for limit, want := range map[int]struct {
		code   int
		stdout string
	}{1: {exitUsage, ""}, 2: {exitUsage, ""}, 3: {0, "ran\n"}} {
		require.NoError(t, sem.SetLimit(t.Context(), limit))
		last := runArgs(srv.ConnectString(), path, append(flags, "--", "echo", "ran")...)
		if limit > 1 {
			last = nest(t, srv, path, flags, last)
		}
		p := start(t, nil, nest(t, srv, path, flags, last)...)
		require.Equal(t, want.code, p.wait(), "%d: %s", limit, &p.stderr)
		require.Equal(t, want.stdout, p.stdout.String())
		if want.code != 0 {
			require.Contains(t, p.stderr.String(), fmt.Sprintf("runs around this one have %d of the %d permits", limit, limit))
		}
	}
}

// What the environment says counts only while the node is there, on these servers, and is of this
// lock.
func TestNested_StaleOrForeign_IsNotRefused(t *testing.T) {
	t.Parallel()
	srv, path := server(t), lockPath(t)
	s := session(t, srv)
	hold, release := occupy(t, s, path)
	inside := func(path, node string, token int64) *proc {
		return start(t, func(c *exec.Cmd) {
			c.Env = append(c.Env, envNode+"="+node, envToken+"="+strconv.FormatInt(token, 10))
		}, runArgs(srv.ConnectString(), path, "-n", "--", "true")...)
	}
	require.Equal(t, exitUsage, inside(path, hold.Node(), hold.Token()).wait())
	require.Equal(t, exitUsage, inside(path, hold.Node(), 0).wait(), "without a token, the node's name counts")
	require.Equal(t, exitNotAcquired, inside(path, hold.Node(), hold.Token()-1).wait(), "a node of that name on other servers")
	require.Equal(t, 0, inside(path+"/other", hold.Node(), hold.Token()).wait())
	require.Equal(t, exitNotAcquired, inside(path, "", hold.Token()).wait(), "the way out")
	release()
	require.Equal(t, 0, inside(path, hold.Node(), hold.Token()).wait(), "the run around is over")

	_, err := s.Conn().Create(path+"/other/config", nil, 0, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)
	require.Equal(t, 0, inside(path, path+"/other/config", 0).wait())
}

func TestOuterHolds_ThereAndBack(t *testing.T) {
	holds := []outerHold{{"/locks/a b:c/_c_1-lock-0000000001", 7}, {"/locks/ü %2F/x", 8}, {"/plain", 9}}
	env := map[string]string{envNode: holds[0].node, envToken: "7", envOuter: outerWords(holds[1:])}
	require.Equal(t, holds, outerHolds(func(name string) string { return env[name] }))
	delete(env, envNode)
	require.Empty(t, outerHolds(func(name string) string { return env[name] }), "without the nearest there is none")
	env = map[string]string{envNode: "/x", envToken: "?", envOuter: "8 :/y x:/z 9:%zz 10:/ok"}
	require.Equal(t, []outerHold{{"/x", 0}, {"/ok", 10}}, outerHolds(func(name string) string { return env[name] }))
}
