package conformance

// R149: these tests run Java's clients, with each kind of credentials that docs/access.md names, on
// a real server and on zklock serve.

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock/internal/testca"
	"github.com/zklock/zklock/internal/zkserver"
	"github.com/zklock/zklock/zktest"
)

// served runs zklock serve as the version of the real server, and returns its address.
func served(t *testing.T, command, real string, flags ...string) string {
	t.Helper()
	version, err := zkserver.Version(real)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, command, append([]string{"serve", "--listen", "127.0.0.1:0", "--zookeeper-version", version}, flags...)...)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { cancel(); _ = cmd.Wait() })
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	return strings.TrimSpace(line)
}

// jaasClient returns the property by which Java's clients log in. A client of 3.9 has no DIGEST-MD5
// in its FIPS mode.
func jaasClient(t *testing.T, user, password string) []string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "jaas.conf")
	section := fmt.Sprintf(`Client { org.apache.zookeeper.server.auth.DigestLoginModule required username="%s" password="%s"; };`, user, password)
	require.NoError(t, os.WriteFile(file, []byte(section), 0o600))
	return []string{"-Djava.security.auth.login.config=" + file, "-Dzookeeper.fips-mode=false"}
}

var (
	zkCliEvent = regexp.MustCompile(`\n*WATCHER::\s*(WatchedEvent .*)\n*`)
	zkCliTime  = regexp.MustCompile(`time = .*`)
)

// zkCli gives zkCli the commands, and returns its output without times. The events, which another
// thread prints, follow the rest.
func zkCli(t *testing.T, java []string, addr string, commands ...string) string {
	t.Helper()
	jars, err := zkserver.ClassPath()
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "java", append(java, curatorArgs(strings.Join(jars, ":"), "org.apache.zookeeper.ZooKeeperMain", "-waitforconnection", "-server", addr)...)...)
	cmd.Stdin = strings.NewReader(strings.Join(append(commands, "quit"), "\n") + "\n")
	out, err := cmd.CombinedOutput()
	require.NoError(t, ctx.Err(), "%s", out)
	text := zkCliTime.ReplaceAllString(strings.ReplaceAll(string(out), addr, "ADDR"), "time")
	var events []string
	for _, event := range zkCliEvent.FindAllStringSubmatch(text, -1) {
		events = append(events, event[1])
	}
	events = append(events, fmt.Sprint("ended with ", err))
	return strings.Join(append(strings.FieldsFunc(zkCliEvent.ReplaceAllString(text, "\n"), func(r rune) bool { return r == '\n' }), events...), "\n")
}

// saslUsersFile writes a file for serve --sasl-users.
func saslUsersFile(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "users")
	require.NoError(t, os.WriteFile(file, []byte("ann:secret\n"), 0o600))
	return file
}

func TestCredentials_ZkCli_AsOnARealServer(t *testing.T) {
	suites(t)
	command, users := buildCommand(t), saslUsersFile(t)
	passwords := map[string]string{"ann": "secret"}
	digest := zktest.Digest("boss:secret")

	authority, dir := testca.New(t, "authority"), t.TempDir()
	own, client := authority.Issue("zk.test", 24*time.Hour), authority.Issue("client.test", 24*time.Hour)
	file := func(name string, content ...[]byte) string {
		testca.Write(t, filepath.Join(dir, name), slices.Concat(content...))
		return filepath.Join(dir, name)
	}
	ca, server, both := file("ca.pem", authority.Own().PEM), file("server.pem", own.KeyPEM, own.PEM), file("client.pem", client.KeyPEM, client.PEM)
	port, err := zkserver.FreePort()
	require.NoError(t, err)
	secure := "127.0.0.1:" + strconv.Itoa(port)

	for name, tc := range map[string]struct {
		real     []zkserver.Option
		flags    []string
		java     []string
		secure   string
		commands []string
		shows    string
	}{
		"SASL": {
			real:  []zkserver.Option{zkserver.SASLUsers(passwords), zkserver.SASLRequired()},
			flags: []string{"--sasl-users", users, "--sasl-required"}, java: jaasClient(t, "ann", "secret"),
			commands: []string{"create /a x sasl:ann:cdrwa", "getAcl /a", "get -s /a", "create -e -s /e- y auth::cdrwa", "ls -R /", "set /a z", "stat /a",
				"create /bad x sasl:a@b@c:r", "setAcl /a sasl:bob:r", "get /a", "getEphemerals", "sync /", "delete /a"},
			shows: "state:SaslAuthenticated",
		},
		"SASL, which is not required": {
			real:  []zkserver.Option{zkserver.SASLUsers(passwords)},
			flags: []string{"--sasl-users", users}, java: jaasClient(t, "ann", "secret"),
			commands: []string{"create /a x auth::cdrwa", "getAcl /a"}, shows: "'sasl,'ann",
		},
		"SASL with a wrong password": {
			real:  []zkserver.Option{zkserver.SASLUsers(passwords)},
			flags: []string{"--sasl-users", users}, java: jaasClient(t, "ann", "wrong"),
			commands: []string{"create /a x"}, shows: "state:AuthFailed",
		},
		"digest": {
			real: []zkserver.Option{zkserver.Own()},
			commands: []string{"addauth digest ann:secret", "create /a x auth::cdrwa", "create /b y digest:ann:x:r", "getAcl /a", "get /a", "get /b",
				"setAcl /a world:anyone:r", "delete /a"},
			shows: "'digest,'ann:",
		},
		"superDigest": {
			real:     []zkserver.Option{zkserver.Property("zookeeper.DigestAuthenticationProvider.superDigest", digest)},
			flags:    []string{"--super-digest", digest},
			commands: []string{"create /a x digest:ann:x:r", "get /a", "addauth digest boss:secret", "get /a", "delete /a"},
			shows:    "\nx\n",
		},
		"TLS": {
			real:   []zkserver.Option{zkserver.TLS(secure, server, ca)},
			flags:  []string{"--tls-cert", server, "--tls-key", server, "--tls-client-ca", ca},
			secure: secure,
			java: []string{"-Dzookeeper.client.secure=true", "-Dzookeeper.clientCnxnSocket=org.apache.zookeeper.ClientCnxnSocketNetty",
				"-Dzookeeper.ssl.keyStore.location=" + both, "-Dzookeeper.ssl.trustStore.location=" + ca, "-Dzookeeper.ssl.hostnameVerification=false"},
			commands: []string{"create /a x", "get /a", "ls /"}, shows: "Created /a",
		},
	} {
		t.Run(name, func(t *testing.T) {
			real := zkserver.Single(t, tc.real...).Addr()
			ours := served(t, command, real, tc.flags...)
			want := zkCli(t, tc.java, cmp.Or(tc.secure, real), tc.commands...)
			require.Contains(t, want, tc.shows)
			require.Equal(t, want, zkCli(t, tc.java, ours, tc.commands...))
		})
	}
}

func TestCredentials_Curator_SASL_AsOnARealServer(t *testing.T) {
	suites(t)
	real := startReal(t, zkserver.SASLUsers(map[string]string{"ann": "secret"}), zkserver.SASLRequired())
	ours := served(t, buildCommand(t), real, "--ttl-nodes", "--sasl-users", saslUsersFile(t), "--sasl-required")
	sameTranscripts(t, real, ours, jaasClient(t, "ann", "secret")...)
}
