package zklockkrb5

// These tests attack --sasl kerberos of the command, as real processes: every subcommand that asks
// servers, and the guardian of a process that was killed.

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/internal/proctest"
)

// built is the command, built on first use.
var built = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "zklockkrb5-")
	if err != nil {
		return "", err
	}
	atEnd = append(atEnd, func() { _ = os.RemoveAll(dir) })
	path := filepath.Join(dir, "zklock")
	if out, err := exec.Command("go", "build", "-C", "../../cmd/zklock", "-o", path).CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return path, nil
})

// zklocks starts the command.
func zklocks(t *testing.T, env []string, args ...string) *proctest.Proc {
	t.Helper()
	path, err := built()
	require.NoError(t, err)
	cmd := exec.Command(path, args...)
	cmd.Env = append(os.Environ(), env...)
	return proctest.Start(t, cmd)
}

const shortSession = "--session-timeout=5s"

func TestCommand(t *testing.T) {
	t.Parallel()
	k, srv := sharedKDC(t), sharedServer(t)
	cache := filepath.Join(t.TempDir(), "cache")
	k.kinit(t, cache, "person")
	byCache := []string{"ZKLOCK_SASL=kerberos", "ZKLOCK_SERVERS=" + srv.Addr(), "KRB5_CONFIG=" + k.conf(), "KRB5CCNAME=FILE:" + cache, "ZKLOCK_LEASE=single"}
	byKeytab := append(byCache, "ZKLOCK_KEYTAB="+k.path("locker"), "ZKLOCK_PRINCIPAL=locker")
	flags := []string{"--sasl", "kerberos", "--keytab", k.path("locker"), "--principal", "locker@" + realm, "--krb5-conf", k.conf(), "--server-principal", "zookeeper/_HOST@" + realm,
		"--servers", srv.Addr()}
	s, err := connect(t, patience, srv.Addr(), k.keytabOf(t, "locker"))
	require.NoError(t, err)

	p := zklocks(t, nil, append(append([]string{"run", "--acl", "creator", shortSession, "--lease", "single"}, flags...), "/flags", "--", "echo", "ran")...)
	require.Equal(t, 0, p.Wait())
	require.Equal(t, "ran\n", p.Stdout.String())
	acl, _, err := s.Conn().GetACL("/flags")
	require.NoError(t, err)
	require.Equal(t, "sasl locker@"+realm, acl[0].Scheme+" "+acl[0].ID)
	for name, env := range map[string][]string{"/cache": byCache, "/keytab": byKeytab} {
		require.Equal(t, 0, zklocks(t, env, "run", shortSession, name, "--", "true").Wait())
		require.Equal(t, 0, zklocks(t, env, "ls", name).Wait())
	}

	m, err := zklock.NewMutex(s, "/expire")
	require.NoError(t, err)
	hold, err := m.Acquire(t.Context())
	require.NoError(t, err)
	require.Equal(t, 0, zklocks(t, byCache, "expire", "--yes", fmt.Sprintf("%#x", s.Stats().SessionID)).Wait())
	proctest.Eventually(t, "the session is over", func() bool { return hold.Err() != nil })
}

// The guardian of a killed zklock ends its session, with zklock's credentials.
func TestCommand_Killed_NextNeedNotWait(t *testing.T) {
	t.Parallel()
	k, srv := sharedKDC(t), sharedServer(t)
	cache := filepath.Join(t.TempDir(), "cache")
	k.kinit(t, cache, "person")
	env := []string{"ZKLOCK_SASL=kerberos", "ZKLOCK_SERVERS=" + srv.Addr(), "ZKLOCK_KRB5_CONF=" + k.conf(), "KRB5CCNAME=" + cache, "ZKLOCK_SESSION_TIMEOUT=60s", "ZKLOCK_LEASE=single"}
	for path, env := range map[string][]string{"/kill-cache": env, "/kill-keytab": append(env, "ZKLOCK_KEYTAB="+k.path("locker"), "ZKLOCK_PRINCIPAL=locker")} {
		first := zklocks(t, env, "run", path, "--", "sh", "-c", "echo ready; exec sleep 600")
		first.Prints("ready")
		next := zklocks(t, env, "run", path, "--", "true")
		next.Prints("waiting")
		killed := time.Now()
		first.Signal(syscall.SIGKILL)
		require.Equal(t, 0, next.Wait())
		require.Less(t, time.Since(killed), patience, "and not when the session has expired")
		first.Prints("ended its ZooKeeper session")
	}
}

func TestCommand_Refused(t *testing.T) {
	t.Parallel()
	k, srv := sharedKDC(t), sharedServer(t)
	none := write(t, conf) // its KDC is nowhere
	for says, tc := range map[string]struct {
		code int
		args []string
	}{
		"the KDC rejects gone@" + realm:          {123, []string{"--keytab", k.path("gone"), "--principal", "gone"}},
		"the keytab has another key of wrong@":   {123, []string{"--keytab", k.path("wrong"), "--principal", "wrong"}},
		"KDC 127.0.0.1:1: dial tcp":              {122, []string{"--keytab", k.path("locker"), "--principal", "locker", "--krb5-conf", none, "--connect-timeout", "3s"}},
		"has no key of nobody@":                  {125, []string{"--keytab", k.path("locker"), "--principal", "nobody"}},
		"--sasl kerberos: zklockkrb5: TicketCac": {125, nil},
		"a ticket for zookeeper/127.0.0.1: KRB Error: (7)": {122, []string{"--keytab", k.path("locker"), "--principal", "locker", "--krb5-host-as-given",
			"--connect-timeout", "3s"}},
		"KDC_ERR_S_PRINCIPAL_UNKNOWN": {122, []string{"--keytab", k.path("locker"), "--principal", "locker", "--server-principal", "zk/_HOST",
			"--connect-timeout", "3s"}},
	} {
		p := zklocks(t, []string{"KRB5_CONFIG=" + k.conf(), "KRB5CCNAME=/none"}, append([]string{"ls", "--sasl", "kerberos", "--servers", srv.Addr(), "/job"}, tc.args...)...)
		require.Equal(t, tc.code, p.Wait(), says)
		require.Contains(t, p.Stderr.String(), says)
	}
}
