//go:build linux || darwin

package command

// Attacks serve's TLS and SASL with the command's own clients.

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func writeFile(t *testing.T, mode os.FileMode, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, []byte(text), mode))
	return file
}

func TestServe_TLSAlone_AndOnlyClientsWithACertificate(t *testing.T) {
	t.Parallel()
	cert, key := certificate(t, "zk.test")
	clientCert, clientKey := certificate(t, "client.test")
	_, addrs := serve(t, "--listen", "127.0.0.1:0", "--tls-cert", cert, "--tls-key", key, "--tls-client-ca", clientCert)
	try := func(flags ...string) *proc {
		return start(t, nil, runArgs(addrs[0], lockPath(t), append(append([]string{"-q", "--lease", "single", "--connect-timeout", "8s"}, flags...), "--", "true")...)...)
	}
	good := try("--tls-ca", cert, "--tls-server-name", "zk.test", "--tls-cert", clientCert, "--tls-key", clientKey)
	without := try("--tls-ca", cert, "--tls-server-name", "zk.test")
	plain := try()
	require.Equal(t, 0, good.wait(), &good.stderr)
	require.Equal(t, exitRefused, without.wait(), &without.stderr)
	require.Contains(t, without.stderr.String(), "certificate required")
	require.Equal(t, exitNoServer, plain.wait(), &plain.stderr)
}

func TestServe_SASLUsers_FromAFile(t *testing.T) {
	t.Parallel()
	users := writeFile(t, 0o600, "other:x\nlocker:"+saslPassword+"\r\n")
	_, addrs := serve(t, "--listen", "127.0.0.1:0", "--sasl-users", users, "--sasl-required")
	flags := []string{"--lease", "single", "--acl", "creator", "--", "true"}
	p := start(t, env("ZKLOCK_SASL=digest", "ZKLOCK_AUTH=locker:"+saslPassword), runArgs(addrs[0], "/job", flags...)...)
	require.Equal(t, 0, p.wait(), &p.stderr)
	for _, change := range []string{"ZKLOCK_AUTH=locker:" + saslPassword + "x", "ZKLOCK_AUTH=other:" + saslPassword} {
		p := start(t, env("ZKLOCK_SASL=digest", change), runArgs(addrs[0], "/job", flags...)...)
		require.Equal(t, exitRefused, p.wait(), &p.stderr)
	}
	p = start(t, nil, runArgs(addrs[0], "/job", "--lease", "single", "--", "true")...)
	require.Equal(t, exitRefused, p.wait(), &p.stderr)
}

func TestServe_RefusesAuthFiles(t *testing.T) {
	cert, key := certificate(t, "zk.test")
	none := filepath.Join(t.TempDir(), "none")
	for say, args := range map[string][]string{
		"go together: give both":                    {"--tls-cert", cert},
		"give --tls-cert and --tls-key, too":        {"--tls-client-ca", cert},
		"no such file":                              {"--tls-cert", none, "--tls-key", key},
		"--tls-client-ca: " + key + " holds no PEM": {"--tls-cert", cert, "--tls-key", key, "--tls-client-ca", key},
		"give --sasl-users, too":                    {"--sasl-required"},
		"--sasl-users stat " + none:                 {"--sasl-users", none},
		"run chmod 600":                             {"--sasl-users", writeFile(t, 0o604, "ann:secret\n")},
		"line 2: give one line user:password":       {"--sasl-users", writeFile(t, 0o600, "ann:secret\nbobsecret\n")},
		"line 3: give one line user:password":       {"--sasl-users", writeFile(t, 0o600, "ann:secret\nbob:secret\nann:secret\n")},
		"line 1: give one line user:password":       {"--sasl-users", writeFile(t, 0o600, "ann:\n")},
	} {
		p := start(t, nil, append([]string{"serve", "--listen", "127.0.0.1:0"}, args...)...)
		require.Equal(t, exitUsage, p.wait(), say)
		require.Contains(t, p.stderr.String(), say)
		require.NotContains(t, p.stderr.String(), "secret")
	}
}
