//go:build linux || darwin

package command

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/internal/zkserver"
	"github.com/zklock/zklock/zktest"
)

func TestRun_CommandSeesTheLock(t *testing.T) {
	srv, path := server(t), lockPath(t)
	p := run(t, srv, path, "--", "sh", "-c", `echo "$ZKLOCK_TOKEN $ZKLOCK_PATH $ZKLOCK_NODE"; ps -o pgid= -p $$; echo $$`)
	require.Equal(t, 0, p.wait())
	f := strings.Fields(p.stdout.String())
	require.Len(t, f, 5)
	token, err := strconv.ParseInt(f[0], 10, 64)
	require.NoError(t, err)
	require.Positive(t, token)
	require.Equal(t, path, f[1])
	require.True(t, strings.HasPrefix(f[2], path+"/_c_"), f[2])
	require.Equal(t, f[4], f[3], "the command leads a process group of its own")
	require.Contains(t, p.stderr.String(), fmt.Sprintf("zklock: %s: acquired, token %d\n", path, token))
	require.Empty(t, participants(t, session(t, srv), path), "released")
}

func TestRun_UnderARun_TheInnerTokenCounts(t *testing.T) {
	srv, path := server(t), lockPath(t)
	inner := runArgs(srv.ConnectString(), path+"/inner", "-q", "--", "sh", "-c", `echo "$ZKLOCK_PATH $ZKLOCK_TOKEN"; env | grep -c ^ZKLOCK_TOKEN=`)
	p := run(t, srv, path+"/outer", append([]string{"-q", "--", "sh", "-c", `echo "$ZKLOCK_PATH $ZKLOCK_TOKEN"; "$@"`, "sh", binary(t)}, inner...)...)
	require.Equal(t, 0, p.wait())
	f := strings.Fields(p.stdout.String())
	require.Len(t, f, 5)
	require.Equal(t, []string{path + "/outer", path + "/inner"}, []string{f[0], f[2]})
	require.NotEqual(t, f[1], f[3])
	require.Equal(t, "1", f[4])
}

func TestRun_PassesStreamsAndExitCode(t *testing.T) {
	srv := server(t)
	p := start(t, func(c *exec.Cmd) { c.Stdin = strings.NewReader("one\ntwo\n") },
		runArgs(srv.ConnectString(), lockPath(t), "--quiet", "--", "sh", "-c", `tr a-z A-Z; echo problem >&2; exit 42`)...)
	require.Equal(t, 42, p.wait())
	require.Equal(t, "ONE\nTWO\n", p.stdout.String())
	require.Equal(t, "problem\n", p.stderr.String())
}

func TestRun_CommandMissingOrNotExecutable(t *testing.T) {
	// No server is needed to say so.
	p := start(t, nil, runArgs("127.0.0.1:1", "/x", "--", "no-such-command-anywhere")...)
	require.Equal(t, exitNotFound, p.wait())
	require.Contains(t, p.stderr.String(), "no-such-command-anywhere")

	plain := filepath.Join(t.TempDir(), "plain")
	require.NoError(t, os.WriteFile(plain, []byte("text"), 0o644))
	for _, command := range []string{plain, filepath.Dir(plain)} {
		p = start(t, nil, runArgs("127.0.0.1:1", "/x", "--", command)...)
		require.Equal(t, exitCannotRun, p.wait(), command)
	}
}

func TestRun_NoWait(t *testing.T) {
	srv, path := server(t), lockPath(t)
	s := session(t, srv)
	_, release := occupy(t, s, path)
	p := run(t, srv, path, "--no-wait", "--", "echo", "ran")
	require.Equal(t, exitNotAcquired, p.wait())
	require.Regexp(t, fmt.Sprintf(`^zklock: %s: not acquired: another client holds it: \S+, pid %d, session 0x[0-9a-f]+, token \d+, queued since \S+ \(\d+s\)\n$`, path, os.Getpid()), p.stderr.String())
	require.Empty(t, p.stdout.String())
	require.Len(t, participants(t, s, path), 1, "it leaves nothing")
	release()
	p = run(t, srv, path, "--no-wait", "--", "echo", "ran")
	require.Equal(t, 0, p.wait())
}

// F47: a run waits for the delay of a holder that disappeared, says until when, and ls does too.
// After a run nobody waits.
func TestRun_LockDelay(t *testing.T) {
	t.Parallel()
	srv, path := server(t), lockPath(t)
	s := session(t, srv)
	m, err := zklock.NewMutex(s, path, zklock.WithLockDelay(time.Hour))
	require.NoError(t, err)
	hold, err := m.Acquire(t.Context())
	require.NoError(t, err)
	require.NoError(t, s.Conn().Delete(hold.Node(), -1))
	<-hold.Lost()
	_ = hold.Release(t.Context())

	const until = `the holder disappeared, and the lock-delay lasts until \S+\n`
	p := run(t, srv, path, "--lock-delay", "1h", "--no-wait", "--", "echo", "ran")
	require.Equal(t, exitNotAcquired, p.wait())
	require.Regexp(t, fmt.Sprintf("^zklock: %s: not acquired: %s$", path, until), p.stderr.String())

	p = run(t, srv, path, "--lock-delay", "1h", "--", "echo", "ran")
	p.prints("waiting: the holder disappeared, and the lock-delay lasts until ")
	l := start(t, nil, "ls", "--wide", "--servers", srv.ConnectString(), path)
	require.Equal(t, 0, l.wait())
	require.Regexp(t, `\nwaits  .*\n$`, l.stdout.String())
	require.Regexp(t, fmt.Sprintf("^zklock: %s: %s$", path, until), l.stderr.String())
	l = start(t, nil, "ls", "--json", "--servers", srv.ConnectString(), path)
	require.Equal(t, 0, l.wait())
	require.Contains(t, l.stdout.String(), `"delay_until": "`)
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
	require.Equal(t, 128+15, p.wait())
	require.NotContains(t, p.stdout.String(), "ran")

	began := time.Now()
	p = run(t, srv, path, "--lock-delay", "2s", "--", "echo", "ran")
	require.Equal(t, 0, p.wait())
	require.GreaterOrEqual(t, time.Since(began), 2*time.Second)
	require.Equal(t, 0, run(t, srv, path, "--lock-delay", "1h", "--no-wait", "--", "echo", "ran").wait(), "it was released")
}

func TestRun_WaitEnds(t *testing.T) {
	t.Parallel()
	host, err := os.Hostname()
	require.NoError(t, err)
	srv, path := server(t), lockPath(t)
	s := session(t, srv)
	_, release := occupy(t, s, path)
	// The wait begins with the connecting. If that took all of it, the answer would be that there is
	// no server.
	p := run(t, srv, path, "--wait", "3s", "--", "echo", "ran")
	require.Equal(t, exitNotAcquired, p.wait())
	require.Contains(t, p.stderr.String(), "not acquired: gave up after 3s: number 2 of 2 in the queue; held by ")
	require.Len(t, participants(t, s, path), 1, "it leaves nothing")

	p = run(t, srv, path, "--wait", "3s", "-q", "-E", "0", "--", "echo", "ran")
	require.Equal(t, 0, p.wait())
	require.Empty(t, p.stdout.String()+p.stderr.String())

	p = run(t, srv, path, "--wait", "60s", "--", "echo", "ran")
	p.prints(fmt.Sprintf("waiting: number 2 of 2 in the queue; held by %s, pid %d, session %#x, ", host, os.Getpid(), s.Stats().SessionID))
	release()
	require.Equal(t, 0, p.wait())
	require.Equal(t, "ran\n", p.stdout.String())
}

func TestRun_SignalWhileWaiting_LeavesTheQueue(t *testing.T) {
	srv, path := server(t), lockPath(t)
	s := session(t, srv)
	occupy(t, s, path)
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT} {
		p := run(t, srv, path, "--", "echo", "ran")
		eventually(t, "it queues", func() bool { return len(participants(t, s, path)) == 2 })
		p.signal(syscall.SIGUSR1) // for a command that is not there yet
		p.signal(sig)
		require.Equal(t, 128+int(sig), p.wait())
		require.Contains(t, p.stderr.String(), path+": not acquired: ended by signal")
		require.Len(t, participants(t, s, path), 1)
	}
}

func TestRun_SecondSIGINTWhileWaiting_EndsAtOnce(t *testing.T) {
	t.Parallel()
	srv := zkserver.Single(t, zkserver.Own())
	path := lockPath(t)
	s := session(t, srv)
	occupy(t, s, path)
	p := run(t, srv, path, "--", "echo", "ran")
	eventually(t, "it queues", func() bool { return len(participants(t, s, path)) == 2 })
	require.NoError(t, srv.Pause()) // a polite end now takes its time
	// Signals of a kind are one until the first is taken, which may take a busy machine a while: as
	// many as it takes.
	began := time.Now()
	eventually(t, "it ends", func() bool {
		_ = p.cmd.Process.Signal(syscall.SIGINT)
		time.Sleep(20 * time.Millisecond) // between two signals: one that comes before the last was taken is lost
		return gone(p.cmd.Process.Pid)
	})
	require.Equal(t, 130, p.wait())
	require.Less(t, time.Since(began), wellBefore)
	require.Contains(t, p.stderr.String(), "second signal")
	require.NoError(t, srv.Resume())
}

// timeout(1) sends its SIGTERM to its child and to its group. zklock may see that as two signals,
// and has to give up its place.
func TestRun_SIGTERMTwiceWhileWaiting_LeavesTheQueue(t *testing.T) {
	t.Parallel()
	srv := zkserver.Single(t, zkserver.Own())
	path := lockPath(t)
	s := session(t, srv)
	occupy(t, s, path)
	p := run(t, srv, path, longSession, "--", "echo", "ran")
	eventually(t, "it queues", func() bool { return len(participants(t, s, path)) == 2 })
	require.NoError(t, srv.Pause()) // it waits for the answer when the next ones come
	for range 10 {
		p.signal(syscall.SIGTERM)
		time.Sleep(10 * time.Millisecond) // signals of a kind are one until the first is taken
	}
	require.NoError(t, srv.Resume())
	require.Equal(t, 143, p.wait())
	require.NotContains(t, p.stderr.String(), "second signal")
	require.Len(t, participants(t, s, path), 1)
}

func TestRun_NoServer(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0") // takes connections and says nothing
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	// One try fits into three seconds on a busy machine too.
	for name, tc := range map[string]struct {
		servers string
		flags   []string
		say     string
	}{
		"refused":      {"127.0.0.1:1", []string{"--connect-timeout", "3s"}, "connection refused"},
		"unknown host": {"no-such-host.invalid:2181", []string{"--connect-timeout", "3s"}, "no-such-host.invalid"},
		"silent":       {l.Addr().String(), []string{"--connect-timeout", "3s"}, "did not answer"},
		"wait is less": {"127.0.0.1:1", []string{"--wait", "3s"}, "gave up after 3s"},
		"no wait":      {"127.0.0.1:1", []string{"--no-wait", "--connect-timeout", "3s"}, "no server after 3s"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := start(t, nil, runArgs(tc.servers, "/x", append(tc.flags, "--", "echo", "ran")...)...)
			require.Equal(t, exitNoServer, p.wait())
			require.Contains(t, p.stderr.String(), tc.say)
			require.Contains(t, p.stderr.String(), tc.servers)
			require.Equal(t, 1, strings.Count(p.stderr.String(), "\n"), p.stderr.String())
		})
	}
	t.Run("comes late", func(t *testing.T) {
		t.Parallel()
		srv := zkserver.Single(t, zkserver.Own())
		require.NoError(t, srv.Pause())
		p := start(t, nil, "run", "--servers", srv.ConnectString(), "/x", "--", "true")
		quiet := start(t, nil, "run", "--servers", srv.ConnectString(), "-q", "/y", "--", "true")
		p.prints("zklock: /x: waiting: no server has replied; tried " + srv.ConnectString() + " (")
		require.NoError(t, srv.Resume())
		require.Zero(t, p.wait(), p.stderr.String())
		require.Contains(t, p.stderr.String(), "acquired")
		require.Zero(t, quiet.wait())
		require.Empty(t, quiet.stderr.String())
	})
	t.Run("interrupted", func(t *testing.T) {
		p := start(t, nil, runArgs("127.0.0.1:1", "/x", "--log-level", "debug", "--", "echo", "ran")...)
		p.prints("refused")
		p.signal(syscall.SIGTERM)
		require.Equal(t, 143, p.wait())
	})
	t.Run("ls", func(t *testing.T) {
		p := start(t, nil, "ls", "--servers", "127.0.0.1:1", "--connect-timeout", "500ms", "/x")
		require.Equal(t, exitNoServer, p.wait())
	})
}

func TestRun_BadUsage(t *testing.T) {
	t.Parallel()
	secret := filepath.Join(t.TempDir(), "secret")
	require.NoError(t, os.WriteFile(secret, []byte("user:opensesame\n"), 0o644))
	shapeless := filepath.Join(t.TempDir(), "shapeless")
	require.NoError(t, os.WriteFile(shapeless, []byte("opensesame"), 0o600))
	const s = "--servers=127.0.0.1:1"
	for name, tc := range map[string]struct {
		args []string
		say  string
	}{
		"no dash":             {[]string{"run", s, "/x", "echo"}, "put -- between PATH and COMMAND"},
		"no path":             {[]string{"run", s, "--", "echo"}, "give one PATH"},
		"no command":          {[]string{"run", s, "/x", "--"}, "give a COMMAND"},
		"unknown flag":        {[]string{"run", s, "--frob", "/x", "--", "echo"}, "unknown flag"},
		"password in args":    {[]string{"run", s, "--auth", "u:p", "/x", "--", "echo"}, "unknown flag"},
		"no servers":          {[]string{"run", "/x", "--", "echo"}, "ZKLOCK_SERVERS"},
		"bad servers":         {[]string{"run", "--servers", "host:port", "/x", "--", "echo"}, "port"},
		"wait and no-wait":    {[]string{"run", s, "--no-wait", "--wait", "3s", "/x", "--", "echo"}, "zklock: --no-wait and --wait 3s contradict each other: give one of them\n"},
		"quiet and verbose":   {[]string{"run", s, "-qv", "/x", "--", "echo"}, "--quiet and --verbose contradict each other"},
		"conflict code":       {[]string{"run", s, "-E", "256", "/x", "--", "echo"}, "--conflict-exit-code 256: give 0 to 255"},
		"not a number":        {[]string{"run", s, "-E", "skip", "/x", "--", "echo"}, "give a whole number"},
		"negative delay":      {[]string{"run", s, "--lock-delay", "-1s", "/x", "--", "echo"}, "--lock-delay -1s is negative"},
		"delay, container":    {[]string{"run", s, "--lock-delay", "1s", "--container", "/x", "--", "echo"}, "leave one of them out"},
		"once, empty":         {[]string{"run", s, "--once", "", "/x", "--", "echo"}, `--once "": give 1 to 256 bytes of printable text`},
		"once, shared":        {[]string{"run", s, "--once", "a", "--shared", "/x", "--", "echo"}, "--once is for a mutex"},
		"at least 0":          {[]string{"run", s, "--hold-at-least", "0s", "/x", "--", "echo"}, "--hold-at-least 0s: give how long"},
		"at least, elect":     {[]string{"run", s, "--hold-at-least", "1s", "--elect", "/x", "--", "echo"}, "--hold-at-least is for a mutex"},
		"delay, shared":       {[]string{"run", s, "--lock-delay", "1s", "--shared", "/x", "--", "echo"}, "--lock-delay is for a mutex and an election"},
		"negative wait":       {[]string{"run", s, "--wait", "-1s", "/x", "--", "echo"}, "leave it out to wait indefinitely"},
		"not a duration":      {[]string{"run", s, "--wait", "soon", "/x", "--", "echo"}, "give a time with its unit"},
		"no unit":             {[]string{"run", s, "--wait", "3", "/x", "--", "echo"}, "give a time with its unit, such as 30s or 5m"},
		"lease":               {[]string{"run", s, "--lease", "best", "/x", "--", "echo"}, "quorum or single"},
		"single and leader":   {[]string{"run", s, "--lease", "single", "--leader-ping", "1s", "/x", "--", "echo"}, "--lease quorum"},
		"no room":             {[]string{"run", s, "--session-timeout", "5s", "/x", "--", "echo"}, "too short for the lease: 5s"},
		"no room, advice":     {[]string{"run", s, "--session-timeout", "5s", "/x", "--", "echo"}, "use at least 7.5s for this lease (--session-timeout), or a shorter leader ping if two ticks of the servers are shorter (--leader-ping), or, if there is one server, --lease single;"},
		"hardly any room":     {[]string{"run", s, "--session-timeout", "7600ms", "--kill-after", "1s", "/x", "--", "echo"}, "--lease single"},
		"too short":           {[]string{"run", s, "--session-timeout", "5ms", "/x", "--", "echo"}, "--session-timeout: 5ms is too short"},
		"user in servers":     {[]string{"run", "--servers", "ann:opensesame@zk1", "/x", "--", "echo"}, "give them with --auth-file"},
		"a URL":               {[]string{"run", "--servers", "http://localhost:2181", "/x", "--", "echo"}, "without http://"},
		"negative kill":       {[]string{"run", s, "--kill-after", "-1s", "/x", "--", "echo"}, "negative"},
		"acl":                 {[]string{"run", s, "--acl", "mine", "/x", "--", "echo"}, "world, creator or user"},
		"log level":           {[]string{"run", s, "--log-level", "loud", "/x", "--", "echo"}, "error, warn, info or debug"},
		"auth file missing":   {[]string{"run", s, "--auth-file", "/no/such", "/x", "--", "echo"}, "/no/such"},
		"auth file readable":  {[]string{"run", s, "--auth-file", secret, "/x", "--", "echo"}, "chmod 600"},
		"auth file shape":     {[]string{"run", s, "--auth-file", shapeless, "/x", "--", "echo"}, "user:password"},
		"tls ca":              {[]string{"run", s, "--tls-ca", shapeless, "/x", "--", "echo"}, "no PEM certificate"},
		"tls key alone":       {[]string{"run", s, "--tls-key", shapeless, "/x", "--", "echo"}, "go together"},
		"shared and elect":    {[]string{"run", s, "--shared", "--elect", "/x", "--", "echo"}, "zklock: --shared and --elect contradict each other: give one of them\n"},
		"all three":           {[]string{"run", s, "--shared", "--elect", "--semaphore=2", "/x", "--", "echo"}, "--shared and --semaphore and --elect contradict each other"},
		"none to share":       {[]string{"run", s, "--semaphore", "0", "/x", "--", "echo"}, "--semaphore 0: give the number of permits that there are, 1 to 2147483647"},
		"far too many":        {[]string{"run", s, "--semaphore", "2147483648", "/x", "--", "echo"}, "--semaphore 2147483648: give"},
		"and more bits":       {[]string{"run", s, "--semaphore", "4294967297", "/x", "--", "echo"}, "--semaphore 4294967297: give"},
		"permits of 33 bits":  {[]string{"run", s, "--semaphore", "2", "--permits", "4294967297", "/x", "--", "echo"}, "--permits 4294967297 of --semaphore 2"},
		"exit code":           {[]string{"run", s, "-E", "4294967296", "/x", "--", "echo"}, "--conflict-exit-code 4294967296: give 0 to 255"},
		"more than there are": {[]string{"run", s, "--semaphore", "2", "--permits", "3", "/x", "--", "echo"}, "--permits 3 of --semaphore 2: give 1 to 2"},
		"no permits":          {[]string{"run", s, "--semaphore", "2", "--permits", "0", "/x", "--", "echo"}, "--permits 0 of --semaphore 2: give 1 to 2"},
		"permits of what":     {[]string{"run", s, "--permits", "2", "/x", "--", "echo"}, "--permits is for --semaphore"},
		"limit of what":       {[]string{"run", s, "--semaphore-limit", "/l", "/x", "--", "echo"}, "--semaphore-limit is for --semaphore"},
		"limit, relative":     {[]string{"run", s, "--semaphore", "2", "--semaphore-limit", "l", "/x", "--", "echo"}, "--semaphore-limit: path \"l\" is relative"},
		"limit, no node":      {[]string{"run", s, "--semaphore", "2", "--semaphore-limit", "", "/x", "--", "echo"}, "--semaphore-limit: path \"\" is empty"},
		"limit among leases":  {[]string{"run", s, "--semaphore", "2", "--semaphore-limit", "/x/leases/l", "/x", "--", "echo"}, "is a node of the semaphore or above it: give another, such as /x/limit"},
		"limit above":         {[]string{"run", s, "--semaphore", "2", "--semaphore-limit", "/x", "/x/y", "--", "echo"}, "is a node of the semaphore or above it: give another"},
		"limit too large":     {[]string{"run", s, "--semaphore", "16777217", "--semaphore-limit", "/l", "/x", "--", "echo"}, "--semaphore 16777217 with --semaphore-limit: give 1 to 16777216"},
		"limits of all":       {[]string{"ls", s, "-r", "--semaphore-limit", "/l", "/x"}, "--semaphore-limit is for one semaphore: leave it out with --recursive"},
		"ls, limit relative":  {[]string{"ls", s, "--semaphore-limit", "l", "/x"}, "--semaphore-limit: path \"l\" is relative"},
		"path":                {[]string{"run", s, "x", "--", "echo"}, "zklock: path \"x\" is relative"},
		"path of ls":          {[]string{"ls", s, "/x/"}, "zklock: path \"/x/\" ends in a slash"},
		"user without auth":   {[]string{"run", s, "--acl", "user", "/x", "--", "echo"}, "--acl user needs --auth-file or ZKLOCK_AUTH"},
		"acl without auth":    {[]string{"run", s, "--acl", "creator", "/x", "--", "echo"}, "--acl creator needs --auth-file or ZKLOCK_AUTH"},
		"subcommand":          {[]string{"frob"}, "unknown command \"frob\" for \"zklock\"\nSee 'zklock --help'.\n"},
		"misspelled":          {[]string{"rn", "--no-wait", "/x", "--", "echo"}, "unknown command \"rn\" for \"zklock\": did you mean run?\n"},
		"misspelled more":     {[]string{"expires", "--yes", "0x1"}, "did you mean expire?"},
		"no subcommand":       {[]string{"/x", "--", "echo"}, "the command comes first, as in zklock run"},
		"flags in front":      {[]string{"-n", "run", "/x", "--", "echo"}, "the command comes first, as in zklock run"},
		"not a truth":         {[]string{"run", s, "--container=perhaps", "/x", "--", "echo"}, "parsing \"perhaps\": invalid syntax: give true or false\n"},
		"ls of several":       {[]string{"ls", s, "/x", "/y"}, "2 arguments instead of one: give the PATH of a lock, such as /locks/nightly, or --recursive /; with --watch, one or more"},
		"watching nothing":    {[]string{"ls", s, "--watch"}, "0 arguments instead of one: give the PATH of a lock"},
		"watching all":        {[]string{"ls", s, "--watch", "-r", "/x"}, "--watch with --recursive: give --watch the PATHs to watch; ls -r lists them"},
		"watching what":       {[]string{"ls", s, "--watch", "/x", "y"}, "path \"y\" is relative"},
		"limit of several":    {[]string{"ls", s, "--watch", "--semaphore-limit", "/l", "/x", "/y"}, "--semaphore-limit is for one semaphore: leave it out with --recursive, or with several PATHs"},
		"all of one":          {[]string{"ls", s, "--all", "/x"}, "--all is for --recursive"},
		"ls of nothing":       {[]string{"ls", s}, "0 arguments instead of one: give the PATH of a lock"},
	} {
		t.Run(name, func(t *testing.T) {
			p := start(t, nil, tc.args...)
			require.Equal(t, exitUsage, p.wait())
			require.Contains(t, p.stderr.String(), tc.say)
			require.NotContains(t, p.stderr.String(), "new mutex")
			require.NotContains(t, p.stderr.String(), "opensesame")
			require.NotRegexp(t, `With[A-Z]|Lease\b`, p.stderr.String(), "the command speaks of flags, the library of options")
			require.Empty(t, p.stdout.String())
		})
	}
}

func TestRun_KillAfterThatDoesNotFit_IsRefusedWithTheNumbers(t *testing.T) {
	p := start(t, nil, runArgs("127.0.0.1:1", "/x", "--lease", "quorum", "--leader-ping", "1s", "--kill-after", "4s", "--", "echo", "ran")...)
	require.Equal(t, exitUsage, p.wait())
	room := zklock.QuorumLease(time.Second).Margin(sessionTimeout)
	for _, number := range []string{"--kill-after 4s", "session timeout 5s", "leader ping 1s", room.Round(time.Millisecond).String(), "give less than"} {
		require.Contains(t, p.stderr.String(), number)
	}

	// The servers grant less than we asked for.
	srv := zkserver.Single(t, zkserver.SessionTimeouts(time.Second, 5*time.Second))
	p = start(t, nil, "run", "--servers", srv.ConnectString(), "--session-timeout", "20s", "--leader-ping", "1s", "--kill-after", "4s", "/x", "--", "echo", "ran")
	require.Equal(t, exitUsage, p.wait())
	require.Contains(t, p.stderr.String(), "the servers granted a session timeout of 5s")
	require.Empty(t, p.stdout.String())
}

func TestRun_Credentials(t *testing.T) {
	t.Parallel()
	srv := server(t)
	s := session(t, srv, zklock.WithDigest("boss", "secret"))
	root := lockPath(t)
	_, release := occupy(t, s, root+"/other")
	release()
	_, err := s.Conn().Create(root+"/mine", nil, 0, zk.DigestACL(zk.PermAll, "boss", "secret"))
	require.NoError(t, err)

	p := run(t, srv, root+"/mine", "--", "echo", "ran")
	require.Equal(t, exitRefused, p.wait())
	require.Contains(t, p.stderr.String(), "create: no CREATE permission on "+root+"/mine: zk: not authenticated")

	p = start(t, func(c *exec.Cmd) { c.Env = append(c.Env, "ZKLOCK_AUTH=boss:wrong") },
		runArgs(srv.ConnectString(), root+"/mine", "--", "echo", "ran")...)
	require.Equal(t, exitRefused, p.wait())
	require.NotContains(t, p.stderr.String(), "wrong")

	p = start(t, func(c *exec.Cmd) { c.Env = append(c.Env, "ZKLOCK_AUTH=boss:secret") },
		runArgs(srv.ConnectString(), root+"/mine", "--", "echo", "ran")...)
	require.Equal(t, 0, p.wait())

	file := filepath.Join(t.TempDir(), "auth")
	require.NoError(t, os.WriteFile(file, []byte("boss:secret\n"), 0o600))
	p = run(t, srv, root+"/mine", "--auth-file", file, "--acl", "creator", "--", "echo", "ran")
	require.Equal(t, 0, p.wait())

	out := start(t, nil, "ls", "--servers", srv.ConnectString(), "--session-timeout", "5s", root+"/mine")
	require.Equal(t, exitRefused, out.wait())
	require.Contains(t, out.stderr.String(), "list: no READ permission on "+root+"/mine")
}

// A server answers that it will not: that is no wrong usage, and no failure of zklock.
func TestRun_ServersRefuse_ExitsWith123(t *testing.T) {
	srv := zktest.Start(t, zktest.WithConfig("minSessionTimeout=1000", "maxSessionTimeout=60000"))
	for _, code := range []zktest.Code{
		-125, zktest.NoAuth, -8, -6,
		-108, // no children for ephemerals
		-114, // invalid ACL
		-115, // authentication failed
	} {
		refuses := srv.Inject(zktest.Before(zktest.Create).Path("/job").Fail(code))
		p := start(t, nil, runArgs(srv.Addr(), "/job", "--", "echo", "ran")...)
		require.Equal(t, exitRefused, p.wait(), "%v: %s", code, p.stderr.String())
		require.Contains(t, p.stderr.String(), "zklock: acquire /job: ")
		require.Empty(t, p.stdout.String())
		refuses.Remove()
	}
}

// The servers lose the chroot while a candidate leads. That is no wrong usage, and --create-chroot
// is not told to who gave it.
func TestRun_ServersLoseTheChroot_ExitsWith123(t *testing.T) {
	srv := zktest.Start(t, zktest.WithConfig("minSessionTimeout=1000", "maxSessionTimeout=60000"))
	p := start(t, nil, runArgs(srv.Addr()+"/app", "/job", "--create-chroot", "--elect", "--", "sh", "-c", "echo ready; sleep 1000")...)
	p.prints("ready")
	p.signal(syscall.SIGSTOP) // it would stand again as soon as its node is deleted
	for _, node := range srv.Children("/app/job") {
		require.NoError(t, srv.Delete("/app/job/"+node))
	}
	require.NoError(t, srv.Delete("/app/job"))
	require.NoError(t, srv.Delete("/app"))
	p.signal(syscall.SIGCONT)
	require.Equal(t, exitRefused, p.wait(), p.stderr.String())
	require.Contains(t, p.stderr.String(), "the servers have lost /app since this Session connected: create it again, or let another run with --create-chroot do so")
	require.NotContains(t, p.stderr.String(), "WithCreateChroot")
}

// A chroot that is not there is more likely a wrong one than a new one.
func TestRun_ChrootThatIsNotThere_IsRefused(t *testing.T) {
	srv, path := server(t), lockPath(t)
	s := session(t, srv)
	servers := srv.ConnectString() + path + "/"
	p := start(t, nil, runArgs(servers, "/job", "--", "echo", "ran")...)
	require.Equal(t, exitUsage, p.wait())
	require.Contains(t, p.stderr.String(), "/job: the chroot "+path+" of --servers does not exist")
	require.Empty(t, p.stdout.String())
	there, _, err := s.Conn().Exists(path)
	require.NoError(t, err)
	require.False(t, there)

	require.Equal(t, 0, start(t, nil, runArgs(servers, "/job", "--create-chroot", "--", "true")...).wait())
	require.Equal(t, 0, start(t, nil, runArgs(servers, "/job", "--", "true")...).wait())
	there, _, err = s.Conn().Exists(path + "/job")
	require.NoError(t, err)
	require.True(t, there)
}

// R71: whatever is said, at whatever log level, and whatever is wrong with the credentials, the
// password is not in it.
func TestRun_Credentials_AreNotPrinted(t *testing.T) {
	t.Parallel()
	srv := server(t)
	root := lockPath(t)
	const password = "opensesame"
	owner := session(t, srv, zklock.WithDigest("boss", password))
	_, release := occupy(t, owner, root+"/other")
	release()
	_, err := owner.Conn().Create(root+"/closed", nil, 0, zk.DigestACL(zk.PermRead, "boss", password))
	require.NoError(t, err)
	dir := t.TempDir()
	write := func(name, content string) string {
		name = filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(name, []byte(content), 0o600))
		return name
	}
	for _, tc := range []struct {
		name, env string
		args      []string
		code      int
	}{
		{"granted", "boss:" + password, runArgs(srv.ConnectString(), root+"/mine", "--acl", "creator", "--", "true"), 0},
		{"refused", "boss:" + password, runArgs(srv.ConnectString(), root+"/closed", "--", "true"), exitRefused},
		{"no server", "boss:" + password, runArgs("127.0.0.1:1", root, "--connect-timeout", "3s", "--", "true"), exitNoServer},
		{"not user:password", password, runArgs(srv.ConnectString(), root, "--", "true"), exitUsage},
		{"a file without a user", "", runArgs(srv.ConnectString(), root, "--auth-file", write("a", password), "--", "true"), exitUsage},
		{"a file of two lines", "", runArgs(srv.ConnectString(), root, "--auth-file", write("b", "boss:"+password+"\nboss:"+password), "--", "true"), exitUsage},
		{"among the servers", "", runArgs("boss:"+password+"@"+srv.ConnectString(), root, "--", "true"), exitUsage},
		{"in a URL", "", runArgs("zk://boss:"+password+"@"+srv.ConnectString(), root, "--", "true"), exitUsage},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := start(t, func(c *exec.Cmd) {
				c.Args = slices.Insert(c.Args, 2, "--log-level", "debug")
				c.Env = append(c.Env, "ZKLOCK_AUTH="+tc.env)
			}, tc.args...)
			require.Equal(t, tc.code, p.wait())
			require.NotContains(t, p.stdout.String()+p.stderr.String(), password)
			if tc.code == exitUsage {
				require.Contains(t, p.stderr.String(), "zklock: ")
			} else {
				require.Contains(t, p.stderr.String(), "level=DEBUG")
			}
		})
	}
}

func TestRun_Container_GoesWhenUnused(t *testing.T) {
	t.Parallel()
	srv, path := zkserver.Single(t, zkserver.Property("znode.container.checkIntervalMs", "50")), "/job"
	require.Equal(t, 0, run(t, srv, path, "--container", "--", "true").wait())
	s := session(t, srv)
	eventually(t, "the servers remove the lock root", func() bool {
		there, _, err := s.Conn().Exists(path)
		return err == nil && !there
	})
}

func TestRun_ServerGoesWhileWaiting(t *testing.T) {
	t.Parallel()
	srv := zkserver.Single(t, zkserver.Own())
	path := lockPath(t)
	s := session(t, srv)
	occupy(t, s, path)
	p := run(t, srv, path, "--wait", "10s", "--", "echo", "ran")
	eventually(t, "it queues", func() bool { return len(participants(t, s, path)) == 2 })
	require.NoError(t, srv.Kill())
	require.Equal(t, exitNoServer, p.wait())
	require.Contains(t, p.stderr.String(), "gave up after 10s")
}

func TestVersionAndHelp(t *testing.T) {
	p := start(t, nil, "version")
	require.Equal(t, 0, p.wait())
	require.Regexp(t, `^zklock \S+ go`, p.stdout.String())
	flag := start(t, nil, "--version")
	require.Equal(t, 0, flag.wait())
	require.Equal(t, p.stdout.String(), flag.stdout.String())
	p = start(t, nil, "run", "--help")
	require.Equal(t, 0, p.wait())
	for _, s := range []string{"ZKLOCK_TOKEN", "--kill-after", "120 ", "121 ", "122 ", "123 ", "125 ", "128+n"} {
		require.Contains(t, p.stdout.String(), s)
	}
	require.NotContains(t, p.stdout.String(), "__")
	p = start(t, nil, "ls", "--help")
	require.Equal(t, 0, p.wait())
	require.Contains(t, p.stdout.String(), "122 ")
	require.NotContains(t, p.stdout.String(), "121 ", "only what ls can give")
	p = start(t, nil, "completion", "bash")
	require.Equal(t, 0, p.wait())
	p = start(t, nil, "__complete", "run", "--lease", "")
	require.Equal(t, 0, p.wait())
	require.True(t, bytes.HasPrefix([]byte(p.stdout.String()), []byte("quorum\nsingle\n")), p.stdout.String())
}
