//go:build linux || darwin

package command

// Attacks on the promise that the command does not outlive the lock.

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/internal/proctest"
	"github.com/zklock/zklock/internal/zkserver"
	"github.com/zklock/zklock/zktest"
)

func runFamily(t *testing.T, srv *zkserver.Server, path, log string, flags ...string) *proc {
	t.Helper()
	return start(t, jobEnv, runArgs(srv.ConnectString(), path, append(flags, "--", "sh", "-c", proctest.Family, os.Args[0], log)...)...)
}

func guardianOf(t *testing.T, p *proc) int {
	t.Helper()
	return childOf(t, p.cmd.Process.Pid)
}

func TestLoss_ZklockKilled_FamilyDies_NextTakesOver(t *testing.T) {
	t.Parallel()
	for name, kill := range map[string]func(p *proc){
		"the process": func(p *proc) { p.signal(syscall.SIGKILL) },
		"its group":   func(p *proc) { require.NoError(t, syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)) },
	} {
		t.Run(name, func(t *testing.T) {
			srv, path, log := server(t), lockPath(t), filepath.Join(t.TempDir(), "log")
			first := runFamily(t, srv, path, log)
			one := waitForFamily(t, log, 0)
			second := runFamily(t, srv, path, log)
			second.prints("waiting")
			family := pids(readLines(t, log), one)
			killedAt := time.Now()
			kill(first)
			requireAllGone(t, family)
			require.Less(t, time.Since(killedAt), wellBefore, "at once, and not when the session ends")
			first.prints("zklock itself was killed")
			require.Regexp(t, fmt.Sprintf(`(?m)^zklock: \d{4}-\d\d-\d\dT[\d:.]+Z %[1]s \(token %[2]d, node %[1]s/_c_[^,]+, process %[3]d\): zklock itself was killed; killed the command$`,
				path, one, first.cmd.Process.Pid), first.stderr.String())

			two := waitForFamily(t, log, one)
			require.Greater(t, two, one)
			requireNoOverlap(t, readLines(t, log))
			second.signal(syscall.SIGTERM) // reaches the whole family
			require.Equal(t, 143, second.wait())
			requireAllGone(t, pids(readLines(t, log), two))
		})
	}
}

// longSession makes a session outlast the patience of the tests: what happens within it is not its
// expiry's work.
const longSession = "--session-timeout=40s"

// Nobody waits for the session of a zklock that was killed, also with everything that a server may
// want to see first. The guardian knows it, and nobody can read it there.
func TestLoss_ZklockKilled_CredentialsAndTLS_NextNeedNotWait(t *testing.T) {
	t.Parallel()
	srv := zkserver.Single(t, zkserver.Property("zookeeper.enforce.auth.enabled", "true"), zkserver.Property("zookeeper.enforce.auth.schemes", "digest"))
	serverCert, serverKey := certificate(t, "zk.test")
	clientCert, clientKey := certificate(t, "client.test")
	auth := filepath.Join(t.TempDir(), "auth")
	require.NoError(t, os.WriteFile(auth, []byte("boss:opensesame\n"), 0o600))
	addr := tlsInFrontOf(t, srv.Addr(), serverCert, serverKey, clientCert)
	path := lockPath(t)
	args := func(command ...string) []string {
		return runArgs(addr, path, append([]string{
			longSession, "--auth-file", auth, "--acl", "creator",
			"--tls-ca", serverCert, "--tls-server-name", "zk.test", "--tls-cert", clientCert, "--tls-key", clientKey, "--",
		}, command...)...)
	}
	first := start(t, nil, args("sh", "-c", "echo ready; sleep 600")...)
	first.prints("ready")
	guardian := guardianOf(t, first)
	next := start(t, nil, args("echo", "ran")...)
	next.prints("waiting")
	for _, file := range []string{"cmdline", "environ"} {
		if b, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", guardian, file)); runtime.GOOS == "linux" {
			require.NoError(t, err)
			require.NotContains(t, string(b), "opensesame")
			require.NotContains(t, string(b), "PRIVATE")
		}
	}
	for _, file := range []string{auth, serverCert, clientCert, clientKey} {
		require.NoError(t, os.Rename(file, file+".away")) // it has been read
	}
	killed := time.Now()
	first.signal(syscall.SIGKILL)
	require.Equal(t, 0, next.wait())
	require.Less(t, time.Since(killed), patience, "and not when the session has expired")
}

// Whichever server the guardian gets hold of: followers ask the leader. One of them is down.
func TestLoss_ZklockKilled_Ensemble_NextNeedNotWait(t *testing.T) {
	t.Parallel()
	ens := zkserver.Ensemble(t, 3)
	path := lockPath(t)
	args := func(command ...string) []string {
		return runArgs(ens.ConnectString(), path, append([]string{longSession, "--lease", "quorum", "--leader-ping", "1s", "--"}, command...)...)
	}
	first := start(t, nil, args("sh", "-c", "echo ready; sleep 600")...)
	first.prints("ready")
	next := start(t, nil, args("echo", "ran")...)
	next.prints("waiting")
	followers, err := ens.Followers()
	require.NoError(t, err)
	require.NoError(t, followers[0].Kill())
	killed := time.Now()
	first.signal(syscall.SIGKILL)
	require.Equal(t, 0, next.wait())
	require.Less(t, time.Since(killed), patience, "and not when the session has expired")
	first.prints("ended its ZooKeeper session")
	t.Logf("the next command had run %v after zklock was killed", time.Since(killed))
}

// The command has ended, and zklock is killed before it could release the lock.
func TestLoss_ZklockKilledWhileItReleases_NextNeedNotWait(t *testing.T) {
	t.Parallel()
	srv := zkserver.Single(t, zkserver.Own())
	path, stop := lockPath(t), filepath.Join(t.TempDir(), "stop")
	p := run(t, srv, path, longSession, "--", "sh", "-c", `echo ready; until [ -e "$0" ]; do sleep 0.05; done`, stop)
	p.prints("ready")
	leader := childOf(t, guardianOf(t, p))
	require.NoError(t, srv.Pause())
	require.NoError(t, os.WriteFile(stop, nil, 0o600))
	eventually(t, "the command was reaped", func() bool { return syscall.Kill(leader, 0) == syscall.ESRCH })
	p.signal(syscall.SIGKILL)
	require.NoError(t, srv.Resume())
	began := time.Now()
	require.Equal(t, 0, run(t, srv, path, longSession, "--", "true").wait())
	require.Less(t, time.Since(began), patience, "and not when the session has expired")
}

// A zklock that ends by itself ends its session by itself: the guardian does not come near it.
func TestRun_Ends_GuardianLeavesTheSessionAlone(t *testing.T) {
	t.Parallel()
	for name, code := range map[string]string{"well": "0", "badly": "3"} {
		t.Run(name, func(t *testing.T) {
			addr, connections := counted(t, server(t).Addr())
			p := start(t, nil, runArgs(addr, lockPath(t), longSession, "-q", "--", "sh", "-c", "exit "+code)...)
			require.Equal(t, code, strconv.Itoa(p.wait()))
			require.Empty(t, p.stderr.String())
			require.EqualValues(t, 1, connections.Load())
		})
	}
}

// counted passes connections to a server, and counts them.
func counted(t *testing.T, addr string) (front string, n *atomic.Int32) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	n = new(atomic.Int32)
	go passOn(l, addr, func() { n.Add(1) })
	return l.Addr().String(), n
}

func TestLoss_GuardianKilled_FamilyDies_LockIsReleased(t *testing.T) {
	t.Parallel()
	srv, path, log := server(t), lockPath(t), filepath.Join(t.TempDir(), "log")
	p := runFamily(t, srv, path, log)
	waitForFamily(t, log, 0)
	require.NoError(t, syscall.Kill(guardianOf(t, p), syscall.SIGKILL))
	require.Equal(t, exitUsage, p.wait())
	require.Regexp(t, `zklock: `+path+` \(token \d+, node `+path+`/_c_[^)]+\): the guardian process was killed; killed the command\n`, p.stderr.String())
	requireAllGone(t, pids(readLines(t, log), 0))
	require.Empty(t, participants(t, session(t, srv), path))
}

func TestLoss_NodeDeleted_EndsTheCommandAtOnce(t *testing.T) {
	t.Parallel()
	srv, path, log := server(t), lockPath(t), filepath.Join(t.TempDir(), "log")
	p := runFamily(t, srv, path, log)
	token := waitForFamily(t, log, 0)
	s := session(t, srv)
	node := participants(t, s, path)[0].Node
	deleted := time.Now()
	deleteNode(t, s, node)
	require.Equal(t, exitLost, p.wait())
	require.Less(t, time.Since(deleted), wellBefore)
	requireAllGone(t, pids(readLines(t, log), 0))
	for _, want := range []string{path + ": lost the lock", fmt.Sprintf("token %d", token), node, "another client deleted the lock node", "SIGTERM"} {
		require.Contains(t, p.stderr.String(), want)
	}
	require.Equal(t, 2, strings.Count(p.stderr.String(), "\n"), "acquired, and one line that says it all: %s", &p.stderr)
}

func TestLoss_LeaseNotRenewed_CommandIsGoneBeforeTheDeadline(t *testing.T) {
	t.Parallel()
	srv := zkserver.Single(t, zkserver.Own())
	path, log := lockPath(t), filepath.Join(t.TempDir(), "log")
	p := start(t, jobEnv, runArgs(srv.ConnectString(), path, "--lease", "quorum", "--leader-ping", "1s", "--", os.Args[0], log, "stubborn")...)
	eventually(t, "it runs", func() bool { return len(readLines(t, log)) > 3 })
	next := start(t, jobEnv, runArgs(srv.ConnectString(), path, "--", os.Args[0], log)...)
	next.prints("waiting")

	silence := time.Now()
	require.NoError(t, srv.Pause())
	require.Equal(t, exitLost, p.wait())
	ls := readLines(t, log)
	last := ls[len(ls)-1]
	requireInTime(t, ls, last.Token, silence)
	require.Contains(t, whats(ls), "term")
	require.Regexp(t, `no server renewed the lease in time: no server has been connected for \d[^ ]*s, the last was `+regexp.QuoteMeta(srv.Addr())+"; the command was killed with SIGKILL", p.stderr.String())

	require.NoError(t, srv.Resume())
	eventually(t, "the next one runs", func() bool {
		ls := readLines(t, log)
		return ls[len(ls)-1].Token > last.Token
	})
	requireNoOverlap(t, readLines(t, log))
	next.signal(syscall.SIGTERM)
	next.wait()
}

// A loss by the deadline says which server was connected last, and how long none has been.
func TestFollowConnection_ReportsSinceWhenThereIsNone(t *testing.T) {
	srv := zktest.Start(t)
	s := sessionAt(t, srv.Addr())
	attached, cut := followConnection(s), followConnection(s)
	require.Equal(t, srv.Addr()+" is connected, and does not renew it", attached())
	changes := s.Changes(t.Context())
	srv.Stop()
	require.Equal(t, zklock.StateSuspended, (<-changes).State)
	time.Sleep(300 * time.Millisecond) // real time, because the line has to report at least as much
	said := cut()
	var long string
	_, err := fmt.Sscanf(said, "no server has been connected for %s the last was "+srv.Addr(), &long)
	require.NoError(t, err, said)
	d, err := time.ParseDuration(strings.TrimSuffix(long, ","))
	require.NoError(t, err, said)
	require.GreaterOrEqual(t, d, 300*time.Millisecond)
}

func TestLoss_ServerRestartsInTime_CommandRunsOn(t *testing.T) {
	t.Parallel()
	srv := zkserver.Single(t, zkserver.Own())
	path, stop := lockPath(t), filepath.Join(t.TempDir(), "stop")
	// With 20 s the room would be 10 s, in which a busy machine may not have started a server.
	p := start(t, nil, "run", "--servers", srv.ConnectString(), "--session-timeout", "60s", "--leader-ping", "1s", path, "--",
		"sh", "-c", `echo ready; until [ -e "$0" ]; do sleep 0.05; done; exit 5`, stop)
	p.prints("ready")
	require.NoError(t, srv.Kill())
	require.NoError(t, srv.Start())
	require.NoError(t, os.WriteFile(stop, nil, 0o600))
	require.Equal(t, 5, p.wait())
	require.NotContains(t, p.stderr.String(), "lost")
}

func TestLoss_ReleaseWithoutServer_ReportsIt(t *testing.T) {
	t.Parallel()
	srv := zkserver.Single(t, zkserver.Own())
	path, stop := lockPath(t), filepath.Join(t.TempDir(), "stop")
	p := start(t, nil, "run", "--servers", srv.ConnectString(), "--session-timeout", "20s", "--leader-ping", "1s", path, "--",
		"sh", "-c", `echo ready; until [ -e "$0" ]; do sleep 0.05; done; exit 5`, stop)
	p.prints("ready")
	require.NoError(t, srv.Kill())
	require.NoError(t, os.WriteFile(stop, nil, 0o600))
	require.Equal(t, 5, p.wait(), "the command's own exit code: the lock was held to its end")
	require.Contains(t, p.stderr.String(), path+": not released")
}

// F41: the follower that zklock is connected to goes silent, and COMMAND runs on: zklock moves to
// another server before its lease ends, and so before the ZooKeeper client would notice.
func TestRun_FollowerGoesDark_CommandLives(t *testing.T) {
	t.Parallel()
	ens := zkserver.Ensemble(t, 3)
	followers, err := ens.Followers()
	require.NoError(t, err)
	p := start(t, nil, runArgs(followers[0].Addr()+","+followers[1].Addr(), lockPath(t), "--session-timeout=10s", "--lease", "quorum",
		"--log-level", "warn", "--", "sh", "-c", "sleep 5; echo steady; sleep 9; echo lived")...)
	p.prints("steady") // the connect's own lease is over
	dark := followers[0]
	connections, err := dark.FourLetter("cons")
	require.NoError(t, err)
	if !strings.Contains(connections, "sid=0x") { // the connection of a client, not of one that asks this
		dark = followers[1]
	}
	require.NoError(t, dark.Pause())
	require.Equal(t, 0, p.wait(), "without another server the lease ends before the ZooKeeper client notices, after 6.7 s")
	require.Contains(t, p.stdout.String(), "lived")
	require.Contains(t, p.stderr.String(), "the server is silent; trying another\" server="+dark.Addr(), "the fault struck")
	require.NoError(t, dark.Resume())
}
