//go:build linux || darwin

package command

// These tests attack --sasl: a real server that answers nothing without, wrong passwords, and the
// processes that end another's session.

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/cmd/zklock/internal/supervise"
	"github.com/zklock/zklock/internal/expire"
	jute "github.com/zklock/zklock/internal/wire"
	"github.com/zklock/zklock/internal/zkserver"
	"github.com/zklock/zklock/sasl"
)

const saslPassword = `s3cr3t "Wacht\woord": für χ`

// saslServer is a real server that answers nothing without SASL, and the flags for it.
func saslServer(t *testing.T) (srv *zkserver.Server, flags []string) {
	t.Helper()
	srv = zkserver.Single(t, zkserver.SASLUsers(map[string]string{"locker": saslPassword}), zkserver.SASLRequired())
	file := filepath.Join(t.TempDir(), "auth")
	require.NoError(t, os.WriteFile(file, []byte("locker:"+saslPassword+"\n"), 0o600))
	return srv, []string{"--sasl", "digest", "--auth-file", file}
}

func with(flags []string, rest ...string) []string {
	return append(append([]string{}, flags...), rest...)
}

func env(values ...string) func(*exec.Cmd) {
	return func(c *exec.Cmd) { c.Env = append(c.Env, values...) }
}

func TestSASL_RunAndLs(t *testing.T) {
	t.Parallel()
	srv, flags := saslServer(t)
	s := session(t, srv, zklock.WithSASL(sasl.DigestMD5("locker", saslPassword)))
	for path, acl := range map[string]string{"/job": "creator", "/user": "user"} {
		p := run(t, srv, path, with(flags, "--acl", acl, "--", "echo", "ran")...)
		require.Equal(t, 0, p.wait())
		require.Equal(t, "ran\n", p.stdout.String())
		got, _, err := s.Conn().GetACL(path)
		require.NoError(t, err)
		require.Equal(t, []zk.ACL{{Perms: zk.PermAll, Scheme: "sasl", ID: "locker"}}, got)
	}

	p := start(t, env("ZKLOCK_SASL=digest", "ZKLOCK_AUTH=locker:"+saslPassword), "ls", "--servers", srv.ConnectString(), "/job")
	require.Equal(t, 0, p.wait())

	for name, change := range map[string]func(*exec.Cmd){
		"wrong password": env("ZKLOCK_SASL=digest", "ZKLOCK_AUTH=locker:"+saslPassword+"x"),
		"no SASL":        env("ZKLOCK_AUTH=locker:" + saslPassword),
		"nothing":        nil,
	} {
		p := start(t, change, runArgs(srv.ConnectString(), "/job", "--", "echo", "ran")...)
		require.Equal(t, exitRefused, p.wait(), name)
		require.Contains(t, p.stderr.String(), "-124", name)
		require.NotContains(t, p.stderr.String(), saslPassword, name)
		require.Empty(t, p.stdout.String(), name)
	}
}

// A password is what it is, with the spaces around it: from a file as from the environment.
func TestCredentials_PasswordEndsInASpace(t *testing.T) {
	file := filepath.Join(t.TempDir(), "auth")
	require.NoError(t, os.WriteFile(file, []byte(" ann: pass word \n"), 0o600))
	t.Setenv(envAuth, " ann: pass word \n")
	for _, c := range []*connection{{}, {authFile: file}} {
		creds, err := c.credentials()
		require.NoError(t, err)
		require.Equal(t, " ann: pass word ", string(creds.Auth))
	}
}

func TestSASL_Usage(t *testing.T) {
	t.Parallel()
	for says, tc := range map[string]struct {
		change func(*exec.Cmd)
		args   []string
	}{
		`--sasl "plain": give digest or kerberos, or leave it out`:                                {env("ZKLOCK_AUTH=a:b", "ZKLOCK_SASL=plain"), nil},
		"--sasl digest needs a user and a password":                                               {nil, []string{"--sasl", "digest"}},
		"--auth-file: give a user and a password":                                                 {env("ZKLOCK_AUTH=:b"), []string{"--sasl", "digest"}},
		"--sasl kerberos: zklockkrb5: TicketCache: the ticket cache: open /no/cache":              {env("KRB5CCNAME=FILE:/no/cache"), []string{"--sasl", "kerberos"}},
		"are for --sasl kerberos: give that, or leave them out (--keytab is from $ZKLOCK_KEYTAB)": {env("ZKLOCK_KEYTAB=f"), nil},
		"--krb5-host-as-given and --server-principal are for --sasl kerberos":                     {nil, []string{"--krb5-host-as-given"}},
		"--keytab and --principal go together":                                                    {env("ZKLOCK_SASL=kerberos"), []string{"--keytab", "f"}},
		"leave out --auth-file (--auth-file is from $ZKLOCK_AUTH_FILE, --sasl is":                 {env("ZKLOCK_SASL=kerberos", "ZKLOCK_AUTH_FILE=f"), nil},
	} {
		p := start(t, tc.change, append([]string{"ls", "--servers", "127.0.0.1:1", "/job"}, tc.args...)...)
		require.Equal(t, exitUsage, p.wait(), says)
		require.Contains(t, p.stderr.String(), says)
	}
}

func TestSASL_Expire(t *testing.T) {
	t.Parallel()
	srv, flags := saslServer(t)
	s := session(t, srv, zklock.WithSASL(sasl.DigestMD5("locker", saslPassword)))
	hold, _ := occupy(t, s, "/job")
	args := func(rest ...string) []string {
		return append([]string{"expire", "--yes", "--servers", srv.ConnectString()}, append(rest, fmt.Sprintf("%#x", s.Stats().SessionID))...)
	}
	p := start(t, nil, args()...)
	require.Equal(t, exitRefused, p.wait())
	require.NoError(t, hold.Err())
	p = start(t, nil, args(flags...)...)
	require.Equal(t, 0, p.wait())
	select {
	case <-hold.Lost():
	case <-time.After(patience):
		t.Fatal("the session lives on")
	}
}

// The guardian of a zklock that was killed ends its session.
func TestSASL_ZklockKilled_NextNeedNotWait(t *testing.T) {
	t.Parallel()
	srv, flags := saslServer(t)
	flags = append(flags, longSession)
	first := run(t, srv, "/job", with(flags, "--", "sh", "-c", "echo ready; sleep 600")...)
	first.prints("ready")
	next := run(t, srv, "/job", with(flags, "--", "echo", "ran")...)
	next.prints("waiting")
	killed := time.Now()
	first.signal(syscall.SIGKILL)
	require.Equal(t, 0, next.wait())
	require.Less(t, time.Since(killed), patience, "and not when the session has expired")
	first.prints("ended its ZooKeeper session")
}

// R65: a guardian that is refused does not touch the session again, and says so.
func TestSASL_Ending_Refused(t *testing.T) {
	t.Parallel()
	srv, _ := saslServer(t)
	s := session(t, srv, zklock.WithSASL(sasl.DigestMD5("locker", saslPassword)))
	endsAs := func(auth string) error {
		e := scriptedEnding(auth, srv.Addr(), srv.Addr(), srv.Addr())
		e.ID, e.Password = s.Stats().SessionID, jute.SessionPassword(s.Stats().SessionID)
		e.Creds.SASL = saslDigest
		return e.end(supervise.Now())
	}
	err := endsAs("locker:wrong")
	require.ErrorIs(t, err, expire.ErrRefused)
	require.NotContains(t, err.Error(), "wrong")
	require.NoError(t, endsAs("locker:"+saslPassword))
}

// R117: the password is changed at the server and in the file while two runs hold. Each reads the
// file at its next connection, and goes on; so does the guardian of one that is killed.
func TestSASL_PasswordChanges_RunGoesOn(t *testing.T) {
	t.Parallel()
	srv, flags := saslServer(t)
	flags = append(flags, longSession)
	done := filepath.Join(t.TempDir(), "done")
	ends := run(t, srv, "/job", with(flags, "--", "sh", "-c", "echo ready; while [ ! -e "+done+" ]; do sleep 0.1; done")...)
	killed := run(t, srv, "/other", with(flags, "--", "sh", "-c", "echo ready; sleep 600")...)
	ends.prints("ready")
	killed.prints("ready")

	require.NoError(t, os.WriteFile(flags[3], []byte("second:other\n"), 0o600))
	require.NoError(t, srv.Stop())
	jaas := filepath.Join(srv.Dir(), "conf", "jaas.conf")
	users, err := os.ReadFile(jaas)
	require.NoError(t, err)
	changed := strings.Replace(string(users), `"user_locker"=`, `"user_second"="other" "user_nobody"=`, 1)
	require.NotEqual(t, string(users), changed)
	require.NoError(t, os.WriteFile(jaas, []byte(changed), 0o600))
	require.NoError(t, srv.Start())

	next := run(t, srv, "/job", with(flags, "--", "echo", "ran")...)
	next.prints("waiting")
	require.NoError(t, os.WriteFile(done, nil, 0o600))
	require.Equal(t, 0, ends.wait(), "its release was confirmed")
	require.Equal(t, 0, next.wait())

	next = run(t, srv, "/other", with(flags, "--", "echo", "ran")...)
	next.prints("waiting")
	began := time.Now()
	killed.signal(syscall.SIGKILL)
	require.Equal(t, 0, next.wait())
	require.Less(t, time.Since(began), patience, "and not when the session has expired")
}
