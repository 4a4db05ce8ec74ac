//go:build linux || darwin

package command

// Flags from the environment: each has a variable, the command line wins, and COMMAND gets no
// secret and nothing of its parent's run.

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
)

func variablesFrom(env map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) { value, isSet := env[name]; return value, isSet }
}

func TestVariables_EachFlagHasOne_ThatSetsItAndIsInTheHelp(t *testing.T) {
	values := map[string]string{"bool": "true", "duration": "7s", "int64": "3", "string": "x"}
	flags := 0
	for i, cmd := range newRootCommand().Commands() {
		var help bytes.Buffer
		cmd.SetOut(&help)
		require.NoError(t, cmd.Help())
		for _, f := range each(cmd.Flags().VisitAll) {
			variable := variableOf(f.Name)
			if slices.Contains([]string{"help", "yes"}, f.Name) {
				require.Empty(t, variable)
				continue
			}
			flags++
			require.Contains(t, strings.Fields(help.String()), "$"+variable, "zklock %s --help", cmd.Name())
			require.NotContains(t, []string{envAuth, envNode, envToken, envOuter, "ZKLOCK_PATH", "ZKLOCK_REQUIRE"}, variable, "it has another meaning")
			value, ok := values[f.Value.Type()]
			require.True(t, ok, f.Value.Type())
			fresh := newRootCommand().Commands()[i]
			taken, err := takeVariables(fresh, variablesFrom(map[string]string{variable: value}))
			require.NoError(t, err)
			require.Equal(t, []string{f.Name}, taken)
			require.True(t, fresh.Flags().Changed(f.Name))
			require.Equal(t, value, fresh.Flags().Lookup(f.Name).Value.String())
		}
	}
	require.Greater(t, flags, 60)
}

func TestVariables_CommandLineWins(t *testing.T) {
	for name, tc := range map[string]struct {
		line  []string
		env   map[string]string
		taken []string
	}{
		"the same flag":           {[]string{"--wait", "5s"}, map[string]string{"ZKLOCK_WAIT": "1h"}, nil},
		"the same, without value": {[]string{"--quiet=false"}, map[string]string{"ZKLOCK_QUIET": "true"}, nil},
		"what contradicts":        {[]string{"-n"}, map[string]string{"ZKLOCK_WAIT": "1h"}, nil},
		"another kind of lock": {[]string{"--elect"}, map[string]string{
			"ZKLOCK_SEMAPHORE": "3", "ZKLOCK_PERMITS": "2", "ZKLOCK_SEMAPHORE_LIMIT": "/x", "ZKLOCK_SHARED": "1", "ZKLOCK_LOCK_DELAY": "1s"}, []string{"lock-delay"}},
		"a value that contradicts": {[]string{"--lease", "single"}, map[string]string{"ZKLOCK_LEADER_PING": "1s"}, nil},
		"another value":            {[]string{"--lease", "quorum"}, map[string]string{"ZKLOCK_LEADER_PING": "1s"}, []string{"leader-ping"}},
		"an empty variable":        {nil, map[string]string{"ZKLOCK_WAIT": "", "ZKLOCK_LEASE": ""}, nil},
		"a flag that is off":       {nil, map[string]string{"ZKLOCK_NO_WAIT": "false", "ZKLOCK_SHARED": "0"}, nil},
		"a time of zero is one":    {nil, map[string]string{"ZKLOCK_WAIT": "0"}, []string{"wait"}},
	} {
		cmd := &cobra.Command{}
		o := &runOptions{}
		o.connection.addFlags(cmd)
		o.addFlags(cmd)
		require.NoError(t, cmd.Flags().Parse(tc.line), name)
		taken, err := takeVariables(cmd, variablesFrom(tc.env))
		require.NoError(t, err, name)
		require.Equal(t, tc.taken, taken, name)
		require.NoError(t, o.check(cmd.Flags().Changed), name)
	}
}

// An empty variable counts as unset, unless the run would be less safe without its value: a CronJob
// takes its key from a label, and each host runs the job where the label is missing (R113).
func TestVariables_Empty_IsWrongUsageWhereItMakesTheRunLessSafe(t *testing.T) {
	known := map[string]bool{}
	for i, c := range newRootCommand().Commands() {
		for _, f := range each(c.Flags().VisitAll) {
			variable := variableOf(f.Name)
			if variable == "" {
				continue
			}
			known[f.Name] = true
			fresh := newRootCommand().Commands()[i]
			taken, err := takeVariables(fresh, variablesFrom(map[string]string{variable: ""}))
			require.Empty(t, taken)
			if !slices.Contains(mustHaveValue, f.Name) {
				require.NoError(t, err)
				continue
			}
			require.EqualError(t, err, "$"+variable+" is empty: give --"+f.Name+" a value, or unset the variable")
			require.NoError(t, fresh.Flags().Set(f.Name, map[string]string{"duration": "7s", "int64": "3", "string": "x"}[f.Value.Type()]))
			_, err = takeVariables(fresh, variablesFrom(map[string]string{variable: ""}))
			require.NoError(t, err, "the command line wins")
		}
	}
	for _, flag := range mustHaveValue {
		require.True(t, known[flag], flag)
	}
	for _, name := range []string{"ZKLOCK_ONCE", "ZKLOCK_SEMAPHORE", "ZKLOCK_LOCK_DELAY", "ZKLOCK_HOLD_AT_LEAST"} {
		t.Setenv(name, "")
		var out, said bytes.Buffer
		require.Equal(t, exitUsage, execute([]string{"run", "--servers", "127.0.0.1:1", "/x", "--", "true"}, &out, &said))
		require.Contains(t, said.String(), "$"+name+" is empty: ")
		require.NoError(t, os.Unsetenv(name))
	}
}

// What yields to what are flags, and each rule has a refusal behind it or a flag that has no use
// beside the other.
func TestVariables_YieldToFlagsThatExist(t *testing.T) {
	known := map[string]bool{}
	for _, c := range newRootCommand().Commands() {
		for _, f := range each(c.Flags().VisitAll) {
			known[f.Name] = true
		}
	}
	for flag, others := range yields {
		for _, name := range append(others, flag) {
			name, _, _ = strings.Cut(name, "=")
			require.True(t, known[name], name)
		}
	}
}

func TestVariables_WrongValues_NameTheVariable(t *testing.T) {
	for want, env := range map[string]string{
		`$ZKLOCK_WAIT: invalid argument "soon" for "-w, --wait" flag: time: invalid duration "soon": give a time with its unit`:                          "ZKLOCK_WAIT=soon",
		`$ZKLOCK_NO_WAIT: invalid argument "perhaps" for "-n, --no-wait" flag: strconv.ParseBool: parsing "perhaps": invalid syntax: give true or false`: "ZKLOCK_NO_WAIT=perhaps",
		`--permits is for --semaphore (--permits is from $ZKLOCK_PERMITS)`:                                                                               "ZKLOCK_PERMITS=2",
		`--lease "twice": give quorum or single (--lease is from $ZKLOCK_LEASE)`:                                                                         "ZKLOCK_LEASE=twice",
		`--conflict-exit-code 999: give 0 to 255 (--conflict-exit-code is from $ZKLOCK_CONFLICT_EXIT_CODE)`:                                              "ZKLOCK_CONFLICT_EXIT_CODE=999",
	} {
		p := start(t, func(c *exec.Cmd) { c.Env = append(c.Env, env) }, "run", "--servers", "127.0.0.1:1", "/x", "--", "true")
		require.Equal(t, exitUsage, p.wait())
		require.Contains(t, p.stderr.String(), want)
	}
	p := start(t, func(c *exec.Cmd) { c.Env = append(c.Env, "ZKLOCK_YES=true") }, "expire", "--servers", "127.0.0.1:1", "0x1")
	require.Equal(t, exitUsage, p.wait())
	require.Contains(t, p.stderr.String(), "nothing was done")
}

// A run from variables alone. COMMAND has those of the servers, and none of the credentials, of the
// metrics or of this run.
func TestVariables_RunsWithThem_AndPassesOnThoseOfTheServers(t *testing.T) {
	srv, path := server(t), lockPath(t)
	dir := t.TempDir()
	auth, metrics := filepath.Join(dir, "auth"), filepath.Join(dir, "job.prom")
	require.NoError(t, os.WriteFile(auth, []byte("ann:secret\n"), 0o600))
	passed := []string{"ZKLOCK_AUTH_FILE=" + auth, "ZKLOCK_CONNECT_TIMEOUT=20s", "ZKLOCK_LEASE=single", "ZKLOCK_SERVERS=" + srv.ConnectString(), "ZKLOCK_SESSION_TIMEOUT=5s"}
	kept := []string{"ZKLOCK_AUTH=bob:secret", "ZKLOCK_KILL_AFTER=500ms", "ZKLOCK_METRICS_FILE=" + metrics, "ZKLOCK_SEMAPHORE=2", "ZKLOCK_VERBOSE=1", "ZKLOCK_WAIT=1m"}
	p := start(t, func(c *exec.Cmd) { c.Env = append(append(c.Env, passed...), kept...) }, "run", path, "--", "sh", "-c", "env | grep ^ZKLOCK_ | sort")
	require.Equal(t, 0, p.wait(), p.stderr.String())
	require.Contains(t, p.stderr.String(), "acquired", "--verbose")
	require.FileExists(t, metrics)
	var got []string
	for _, line := range strings.Fields(p.stdout.String()) {
		name, value, _ := strings.Cut(line, "=")
		if value != "" && !slices.Contains([]string{envNode, envToken, "ZKLOCK_PATH"}, name) && !strings.HasPrefix(name, "ZKLOCK_TEST_") && name != "ZKLOCK_REQUIRE" {
			got = append(got, line)
		}
	}
	require.Equal(t, passed, got)
	require.Contains(t, p.stdout.String(), "ZKLOCK_NODE="+path+"/leases/", "--semaphore")
}

// An empty name of a file on the command line is wrong usage, in each command.
func TestEmptyFile_IsWrongUsage(t *testing.T) {
	tried := 0
	for _, cmd := range newRootCommand().Commands() {
		for _, f := range each(cmd.Flags().VisitAll) {
			what, _ := pflag.UnquoteUsage(f)
			if !slices.Contains([]string{"file", "FILE", "F"}, what) {
				continue
			}
			tried++
			args := map[string][]string{"run": {"/x", "--", "true"}, "guard": {"--", "true"}, "serve": {}, "expire": {"0x1"}, "delete": {"/x", "y"}}[cmd.Name()]
			if args == nil {
				args = []string{"/x"}
			}
			var out, said bytes.Buffer
			require.Equal(t, exitUsage, execute(append([]string{cmd.Name(), "--" + f.Name, ""}, args...), &out, &said))
			require.Equal(t, fmt.Sprintf("zklock: --%s \"\" is no file: give its name, or leave the flag out\n", f.Name), said.String())
		}
	}
	require.Greater(t, tried, 20)
}

// Output that cannot be written, such as the help, is a failure.
func TestOutput_CannotBeWritten_IsAFailure(t *testing.T) {
	for _, args := range [][]string{{"run", "--help"}, {"help", "run"}, {}, {"--version"}, {"version"}, {"completion", "bash"}, {"__man"}} {
		var said bytes.Buffer
		require.Equal(t, exitUsage, execute(args, fullDisk{}, &said), args)
		require.Equal(t, "zklock: the output could not be written: no space left on device\n", said.String())
	}
}

type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) {
	return 0, &os.PathError{Op: "write", Path: "/dev/stdout", Err: syscall.ENOSPC}
}
