package zklockkrb5

// The helpers of the tests: a KDC of MIT's and real servers that require Kerberos, as child
// processes.

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/internal/zkserver"
	"github.com/zklock/zklock/sasl"
)

const (
	realm    = "ZKLOCK.TEST"
	other    = "OTHER.TEST" // the KDC's second realm
	third    = "THIRD.TEST" // which trusts the second alone
	password = "s3cr3t-Wachtwoord"
	patience = 30 * time.Second
)

// errNoKDC is the error of a machine without a KDC.
var errNoKDC = errors.New("no krb5-kdc, krb5-admin-server and krb5-user are installed")

// kdc is a KDC with its files. Its processes end with the thread that started them, so a killed
// test leaves none behind.
type kdc struct {
	dir, addr string
	child     *exec.Cmd
}

// tool finds a program of MIT's.
func tool(name string) (string, error) {
	for _, dir := range append(filepath.SplitList(os.Getenv("PATH")), "/usr/sbin") {
		path := filepath.Join(dir, name)
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("%w: there is no %s", errNoKDC, name)
}

// newKDC makes the databases, and starts the KDC.
func newKDC(dir string) (*kdc, error) {
	for _, name := range []string{"krb5kdc", "kdb5_util", "kadmin.local", "kinit"} {
		if _, err := tool(name); err != nil {
			return nil, err
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	k := &kdc{dir: dir, addr: l.Addr().String()}
	_ = l.Close()
	var realms, databases strings.Builder
	for _, r := range []string{realm, other, third} {
		fmt.Fprintf(&realms, "%s = {\nkdc = %s\n}\n", r, k.addr)
		fmt.Fprintf(&databases, "%s = {\ndatabase_name = %s\nkey_stash_file = %s\nacl_file = %s\nmax_life = 1h\nsupported_enctypes = aes256-cts:normal aes128-cts:normal\n}\n",
			r, k.path(r+".db"), k.path(r+".stash"), k.path("acl"))
	}
	k.write("krb5.conf", "[libdefaults]\ndefault_realm = "+realm+"\ndns_lookup_kdc = false\n"+
		"udp_preference_limit = 1\n[realms]\n"+realms.String()+"[domain_realm]\n.elsewhere.test = "+other+"\n[capaths]\n"+realm+" = {\n"+third+" = "+other+"\n}\n")
	k.write("kdc.conf", "[kdcdefaults]\nkdc_listen = \"\"\nkdc_tcp_listen = "+k.addr+"\n[realms]\n"+databases.String()+
		"[logging]\nkdc = FILE:"+k.path("kdc.log")+"\nadmin_server = FILE:"+k.path("admin.log")+"\n")
	for _, r := range []string{realm, other, third} {
		if err := k.run("", "kdb5_util", "create", "-s", "-r", r, "-P", "master"); err != nil {
			return nil, err
		}
	}
	return k, errors.Join(k.admin(realm, "addprinc -randkey zookeeper/localhost", "ktadd -k "+k.path("server")+" zookeeper/localhost",
		"addprinc -randkey zookeeper/rekeyed", "addprinc -randkey locker", "ktadd -k "+k.path("locker")+" locker",
		"addprinc -randkey zklock/host.test", "ktadd -k "+k.path("zklock")+" zklock/host.test",
		"addprinc -randkey -maxlife 4seconds brief", "ktadd -k "+k.path("brief")+" brief",
		"addprinc -randkey wrong", "ktadd -k "+k.path("wrong")+" wrong", "cpw -randkey wrong",
		"addprinc -randkey +requires_preauth preauth", "ktadd -k "+k.path("preauth")+" preauth",
		"addprinc -randkey +requires_preauth wrongpre", "ktadd -k "+k.path("wrongpre")+" wrongpre", "cpw -randkey wrongpre",
		"addprinc -randkey expired", "ktadd -k "+k.path("expired")+" expired", "modprinc -pwexpire 2020-01-01 expired",
		"addprinc -randkey gone", "ktadd -k "+k.path("gone")+" gone", "delprinc -force gone",
		"addprinc -pw "+password+" person",
		"addprinc -pw cross krbtgt/"+other),
		k.admin(other, "addprinc -pw cross krbtgt/"+other+"@"+realm, "addprinc -randkey zookeeper/zk.elsewhere.test",
			"addprinc -pw cross krbtgt/"+third+"@"+other),
		k.admin(third, "addprinc -pw cross krbtgt/"+third+"@"+other, "addprinc -randkey zookeeper/zk.third.test"),
		k.start())
}

func (k *kdc) path(name string) string { return filepath.Join(k.dir, name) }
func (k *kdc) conf() string            { return k.path("krb5.conf") }

func (k *kdc) write(name, content string) {
	if err := os.WriteFile(k.path(name), []byte(content), 0o600); err != nil {
		panic(err) // the folder is the test's own
	}
}

func (k *kdc) command(name string, args ...string) *exec.Cmd {
	path, err := tool(name)
	if err != nil {
		path = name
	}
	cmd := exec.Command(path, args...)
	cmd.Env = append(os.Environ(), "KRB5_CONFIG="+k.conf(), "KRB5_KDC_PROFILE="+k.path("kdc.conf"), "KRB5CCNAME="+k.path("cache"))
	return cmd
}

func (k *kdc) run(stdin, name string, args ...string) error {
	cmd := k.command(name, args...)
	cmd.Stdin = strings.NewReader(stdin)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", name, err, out)
	}
	return nil
}

// admin carries out commands of kadmin.
func (k *kdc) admin(realm string, commands ...string) error {
	return k.run(strings.Join(commands, "\n")+"\n", "kadmin.local", "-r", realm)
}

// start starts the KDC, and returns when it responds.
func (k *kdc) start() error {
	k.child = k.command("krb5kdc", "-n", "-r", realm, "-r", other, "-r", third, "-P", k.path("pid"))
	k.child.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := k.child.Start(); err != nil {
		return err
	}
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		c, err := net.Dial("tcp", k.addr)
		if err == nil {
			return c.Close()
		}
		if time.Now().After(end) {
			return fmt.Errorf("the KDC does not answer: %w", err)
		}
	}
}

// stop ends the KDC.
func (k *kdc) stop() {
	if k.child != nil {
		_ = k.child.Process.Kill()
		_ = k.child.Wait()
		k.child = nil
	}
}

// issued returns how many tickets a client got: ticket-granting ones and others.
func (k *kdc) issued(t testing.TB, client string) (tgts, others int) {
	t.Helper()
	log, err := os.ReadFile(k.path("kdc.log"))
	require.NoError(t, err)
	for line := range strings.Lines(string(log)) {
		switch issue := strings.Contains(line, "ISSUE: ") && strings.Contains(line, client+"@"+realm+" for "); {
		case issue && strings.Contains(line, "AS_REQ"):
			tgts++
		case issue:
			others++
		}
	}
	return tgts, others
}

// kinit makes a ticket cache.
func (k *kdc) kinit(t testing.TB, cache string, args ...string) {
	t.Helper()
	require.NoError(t, k.run(password+"\n", "kinit", append([]string{"-c", cache}, args...)...))
}

// theKDC is one that tests share; one that stops it makes its own.
var theKDC = sync.OnceValues(func() (*kdc, error) {
	dir, err := os.MkdirTemp("", "zklockkrb5-")
	if err != nil {
		return nil, err
	}
	atEnd = append(atEnd, func() { _ = os.RemoveAll(dir) })
	k, err := newKDC(dir)
	if k != nil {
		atEnd = append(atEnd, k.stop)
	}
	return k, err
})

// theServer is one that tests share.
var theServer = sync.OnceValues(func() (*zkserver.Server, error) {
	k, err := theKDC()
	if err != nil {
		return nil, err
	}
	srv, err := zkserver.Start(zkserver.NewConfig(k.forServer()...))
	if err == nil {
		atEnd = append(atEnd, func() { _ = srv.Close() })
	}
	return srv, err
})

var atEnd []func()

func TestMain(m *testing.M) {
	flag.Parse()
	_ = flag.Set("test.parallel", "8") // most tests wait for tickets to end
	code := m.Run()
	for i := len(atEnd) - 1; i >= 0; i-- {
		atEnd[i]()
	}
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// forServer returns the options of a server that requires Kerberos.
func (k *kdc) forServer() []zkserver.Option {
	k.write("jaas.conf", `Server { com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true useTicketCache=false keyTab="`+
		k.path("server")+`" principal="zookeeper/localhost@`+realm+`"; };`)
	return []zkserver.Option{
		zkserver.Line("authProvider.1=org.apache.zookeeper.server.auth.SASLAuthenticationProvider"),
		zkserver.Property("java.security.auth.login.config", k.path("jaas.conf")),
		zkserver.Property("java.security.krb5.conf", k.conf()), zkserver.SASLRequired(),
	}
}

// sharedKDC returns the KDC that tests share.
func sharedKDC(t testing.TB) *kdc {
	t.Helper()
	k, err := theKDC()
	requireThere(t, err)
	return k
}

// ownKDC returns one that the test may stop.
func ownKDC(t testing.TB) *kdc {
	t.Helper()
	k, err := newKDC(t.TempDir())
	if k != nil {
		t.Cleanup(k.stop)
	}
	requireThere(t, err)
	return k
}

// sharedServer returns the server that tests share.
func sharedServer(t testing.TB) *zkserver.Server {
	t.Helper()
	srv, err := theServer()
	requireThere(t, err)
	return srv
}

// requireThere skips a test if there is no KDC or server, and fails it if they do not start.
func requireThere(t testing.TB, err error) {
	t.Helper()
	if (errors.Is(err, errNoKDC) || errors.Is(err, zkserver.ErrNotInstalled)) && !zkserver.Required() {
		t.Skip(err)
	}
	require.NoError(t, err)
}

// keytabOf returns the mechanism of a principal of the KDC's.
func (k *kdc) keytabOf(t testing.TB, principal string, opts ...Option) sasl.Mechanism {
	t.Helper()
	name, _, _ := strings.Cut(principal, "/")
	m, err := Keytab(principal, k.path(name), append([]Option{WithConfig(k.conf())}, opts...)...)
	require.NoError(t, err)
	return m
}

// connect opens a Session within a time.
func connect(t testing.TB, limit time.Duration, servers string, m sasl.Mechanism, opts ...zklock.Option) (*zklock.Session, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	s, err := zklock.Connect(ctx, servers, append([]zklock.Option{
		zklock.WithSASL(m), zklock.WithSessionTimeout(5 * time.Second), zklock.WithLease(zklock.SingleServerLease()),
		zklock.WithLogger(slog.New(slog.DiscardHandler)),
	}, opts...)...)
	if err == nil {
		t.Cleanup(func() { _ = s.Close() })
	}
	return s, err
}
