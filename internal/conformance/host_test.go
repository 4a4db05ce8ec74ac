package conformance

// The servers that other projects' test suites start and stop with the shim.

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock/zktest"
)

// suites skips a test that belongs to make nightly PART=conformance, unless it is requested: a test
// with another project's suite, which takes minutes, or with a new seed.
func suites(t *testing.T) {
	t.Helper()
	if os.Getenv("ZKLOCK_CONFORMANCE") != "1" {
		t.Skip("runs only with ZKLOCK_CONFORMANCE=1; see make nightly PART=conformance")
	}
}

// lacking skips a test because of a missing requirement, or fails it if ZKLOCK_REQUIRE=1.
func lacking(t *testing.T, what string) {
	t.Helper()
	if os.Getenv("ZKLOCK_REQUIRE") == "1" {
		t.Fatalf("ZKLOCK_REQUIRE=1, and %s", what)
	}
	t.Skipf("not covered: %s", what)
}

// host holds servers for the shim.
type host struct {
	dir     string // has the shim, as zkServer.sh and as java
	socket  string
	faults  []zktest.Fault
	version string // the version for zktest.WithVersion; empty: the newest

	wg sync.WaitGroup
	mu struct {
		sync.Mutex                          // held while a server starts or stops, so that a start follows the previous stop
		servers    map[string]machine       // by the marker in their data directory
		ensembles  map[string]*shimEnsemble // by the lines that name their members
	}
}

// machine is a server of ours, or a member of an ensemble.
type machine interface {
	Start() error
	Stop()
}

// newHost builds the shim and serves it for the length of the test. Single servers get the version,
// and the faults.
func newHost(t *testing.T, version string, faults ...zktest.Fault) *host {
	t.Helper()
	dir, err := os.MkdirTemp("", "zk") // the test's own would make the socket's name too long
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	h := &host{dir: dir, socket: filepath.Join(dir, "socket"), version: version, faults: faults}
	h.mu.servers = make(map[string]machine)
	h.mu.ensembles = make(map[string]*shimEnsemble)
	shim := filepath.Join(dir, "zkServer.sh")
	out, err := exec.Command("go", "build", "-o", shim, "./shim").CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.NoError(t, os.Symlink(shim, filepath.Join(dir, "java")))
	ln, err := net.Listen("unix", h.socket)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	h.wg.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			h.wg.Go(func() { h.serve(ctx, conn) })
		}
	})
	t.Cleanup(func() {
		cancel()
		ln.Close()
		h.wg.Wait()
		for _, m := range h.mu.servers {
			if s, ok := m.(interface{ Close() }); ok {
				s.Close()
			}
		}
		for _, e := range h.mu.ensembles {
			e.close()
		}
	})
	return h
}

// env returns the environment in which a suite finds the shim.
func (h *host) env() []string {
	return append(os.Environ(), "ZKLOCK_SHIM_SOCKET="+h.socket, "ZOOKEEPER_BIN_PATH="+h.dir,
		"PATH="+h.dir+string(os.PathListSeparator)+os.Getenv("PATH"))
}

// serve runs a server as long as the shim at the other end lives, and closes the connection when
// the server has stopped.
func (h *host) serve(ctx context.Context, conn net.Conn) {
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	r := bufio.NewReader(conn)
	line, err := r.ReadBytes('\n')
	if err != nil {
		return
	}
	var ask struct {
		Config     string
		Properties map[string]string
	}
	if err := json.Unmarshal(line, &ask); err != nil {
		fmt.Fprint(conn, err)
		return
	}
	m, err := h.start(ask.Config, ask.Properties)
	if err != nil {
		fmt.Fprint(conn, err)
		return
	}
	io.Copy(io.Discard, r)
	h.mu.Lock()
	m.Stop()
	h.mu.Unlock()
	awaitHangUp(ask.Config)
}

// awaitHangUp returns when the clients of a stopped server have also closed their ends of its
// connections.
//
// go-zookeeper's DNSHostProviderReconnect stops the server, starts it, and makes its next request
// at once. If its client has not yet seen the end of the connection, it writes the request there
// and loses it. Its authors' servers take so long to start and stop that this does not happen; ours
// would have to sleep. The client closes its end when nothing more will be written there, which the
// kernel shows: until then the connection is in CLOSE_WAIT, the state after the peer has closed.
func awaitHangUp(configPath string) {
	cfg, err := readZooCfg(configPath)
	if err != nil {
		return // the suite has removed it, and is through with the server
	}
	port, err := strconv.Atoi(cfg["clientPort"])
	if err != nil {
		return
	}
	const closeWait = "08"
	waits := func() bool {
		table, _ := os.ReadFile("/proc/net/tcp") // elsewhere than on Linux there is none, and nothing is waited for
		for line := range strings.Lines(string(table)) {
			// sl local_address rem_address st ...
			if f := strings.Fields(line); len(f) > 3 && f[3] == closeWait && strings.HasSuffix(f[2], fmt.Sprintf(":%04X", port)) {
				return true
			}
		}
		return false
	}
	// A client that never closes its end must not block the suite.
	for deadline := time.Now().Add(5 * time.Second); waits() && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
}

func (h *host) start(configPath string, properties map[string]string) (machine, error) {
	cfg, err := readZooCfg(configPath)
	if err != nil {
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	// A server's state belongs to its data directory: a suite that wipes it wants an empty server.
	marker := filepath.Join(cfg["dataDir"], "zktest")
	if id, err := os.ReadFile(marker); err == nil && h.mu.servers[string(id)] != nil {
		m := h.mu.servers[string(id)]
		return m, m.Start()
	}
	var opts []zktest.Option
	if h.version != "" {
		opts = append(opts, zktest.WithVersion(h.version))
	}
	if users := jaasUsers(properties["java.security.auth.login.config"]); len(users) > 0 {
		opts = append(opts, zktest.WithSASLUsers(users))
	}
	for _, name := range []string{"tickTime", "maxClientCnxns", "4lw.commands.whitelist", "extendedTypesEnabled", "DigestAuthenticationProvider.superDigest"} {
		for _, value := range []string{cfg[name], properties["zookeeper."+name]} {
			if value != "" {
				opts = append(opts, zktest.WithConfig(name+"="+value))
			}
		}
	}
	addr := "127.0.0.1:" + cfg["clientPort"]
	var m machine
	if cfg["servers"] != "" {
		m, err = h.memberLocked(cfg, addr, opts)
	} else {
		m, err = h.server(append(opts, zktest.WithAddr(addr)))
	}
	if err != nil {
		return nil, err
	}
	id := strconv.Itoa(len(h.mu.servers))
	h.mu.servers[id] = m
	return m, os.WriteFile(marker, []byte(id), 0o600)
}

func (h *host) server(opts []zktest.Option) (machine, error) {
	srv, err := zktest.NewServer(opts...)
	if err != nil {
		return nil, err
	}
	for _, f := range h.faults {
		if err := srv.Inject(f).Err(); err != nil {
			srv.Close()
			return nil, err
		}
	}
	return srv, nil
}

// memberLocked adds a member to the ensemble of its zoo.cfg and starts it.
func (h *host) memberLocked(cfg map[string]string, addr string, opts []zktest.Option) (machine, error) {
	text, err := os.ReadFile(filepath.Join(cfg["dataDir"], "myid"))
	if err != nil {
		return nil, err
	}
	id, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return nil, err
	}
	e := h.mu.ensembles[cfg["servers"]]
	if e == nil {
		e = &shimEnsemble{opts: opts, addrs: make([]string, strings.Count(cfg["servers"], "\n"))}
		h.mu.ensembles[cfg["servers"]] = e
	}
	if id < 1 || id > len(e.addrs) {
		return nil, fmt.Errorf("member %d of %d", id, len(e.addrs))
	}
	m := &member{e, id, addr}
	return m, m.Start()
}

// shimEnsemble is created when its last member starts: no earlier member has the other members'
// client addresses.
type shimEnsemble struct {
	opts  []zktest.Option
	addrs []string
	made  *zktest.Ensemble
}

func (e *shimEnsemble) close() {
	if e.made != nil {
		e.made.Close()
	}
}

type member struct {
	e    *shimEnsemble
	id   int
	addr string
}

// Start is called with the host's mutex held, and so is Stop.
func (m *member) Start() (err error) {
	if m.e.made != nil {
		return m.e.made.Member(m.id).Start()
	}
	m.e.addrs[m.id-1] = m.addr
	if !slices.Contains(m.e.addrs, "") {
		m.e.made, err = zktest.NewEnsemble(len(m.e.addrs), append(m.e.opts, zktest.WithAddr(m.e.addrs...))...)
	}
	return err
}

func (m *member) Stop() {
	if m.e.made != nil {
		m.e.made.Member(m.id).Stop()
		return
	}
	m.e.addrs[m.id-1] = ""
}

// jaasUser is a user in a JAAS file, with its password.
var jaasUser = regexp.MustCompile(`user_(\w+)="([^"]*)"`)

// jaasUsers reads the users in the JAAS file of a server. Without a file it returns none.
func jaasUsers(path string) map[string]string {
	text, _ := os.ReadFile(path) // most suites have no such file
	users := make(map[string]string)
	for _, match := range jaasUser.FindAllStringSubmatch(string(text), -1) {
		users[match[1]] = match[2]
	}
	return users
}

// readZooCfg reads a zoo.cfg. The lines server.N of an ensemble are under "servers".
func readZooCfg(path string) (map[string]string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	cfg := make(map[string]string)
	for line := range strings.Lines(string(text)) {
		key, value, ok := strings.Cut(strings.TrimSpace(line), "=")
		switch {
		case !ok || strings.HasPrefix(key, "#"):
		case strings.HasPrefix(key, "server."):
			cfg["servers"] += strings.TrimSpace(line) + "\n"
		default:
			cfg[key] = value
		}
	}
	if cfg["clientPort"] == "" || cfg["dataDir"] == "" {
		return nil, fmt.Errorf("%s has no clientPort or no dataDir", path)
	}
	return cfg, nil
}
