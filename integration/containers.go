// Package integration runs zklock against ZooKeeper in containers: a single server, and an ensemble
// whose members are paused, stopped and started again as containers are.
//
// It is a module of its own, so that an importer of zklock does not download testcontainers and its
// dependencies. The image is ZOOKEEPER_IMAGE, or the official zookeeper:3.9;
// scripts/zookeeper-image builds an image where no registry is reachable. Without Docker or the
// image, the tests skip with the reason, or fail if ZKLOCK_REQUIRE is 1.
package integration

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/network"
	"github.com/moby/moby/client"
	"github.com/stretchr/testify/require"
	"github.com/testcontainers/testcontainers-go"
	tcnetwork "github.com/testcontainers/testcontainers-go/network"
	"github.com/testcontainers/testcontainers-go/wait"

	"github.com/zklock/zklock/internal/zkserver"
)

const (
	clientPort = "2181/tcp"
	startLimit = 60 * time.Second       // until a server serves, on a busy machine
	stopGrace  = 10 * time.Second       // between SIGTERM and SIGKILL
	pollEvery  = 20 * time.Millisecond  // how often a condition is checked while waiting for it
	tick       = 500 * time.Millisecond // of every server here
)

// environment configures a server that elects and expires fast, in the terms of the official image.
func environment() map[string]string {
	return map[string]string{
		"ZOO_TICK_TIME":              strconv.FormatInt(tick.Milliseconds(), 10),
		"ZOO_INIT_LIMIT":             "20",
		"ZOO_SYNC_LIMIT":             "5",
		"ZOO_MAX_CLIENT_CNXNS":       "0",
		"ZOO_ADMINSERVER_ENABLED":    "false",
		"ZOO_4LW_COMMANDS_WHITELIST": "*",
		"ZOO_CFG_EXTRA":              "maxSessionTimeout=60000",
		"ZK_SERVER_HEAP":             "128",
		"JVMFLAGS":                   "-Dzookeeper.forceSync=no",
	}
}

func image() string {
	if image := os.Getenv("ZOOKEEPER_IMAGE"); image != "" {
		return image
	}
	return "zookeeper:3.9"
}

// docker returns a client for Docker, or the reason why Docker is missing. It asks once.
var docker = sync.OnceValues(func() (client.APIClient, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute) // includes the pull of the image
	defer cancel()
	provider, err := testcontainers.NewDockerProvider()
	if err != nil {
		return nil, fmt.Errorf("no Docker: %w", err)
	}
	if err := provider.Health(ctx); err != nil {
		return nil, fmt.Errorf("no answer from Docker: %w", err)
	}
	if _, err := provider.Client().ImageInspect(ctx, image()); err == nil {
		return provider.Client(), nil
	}
	if err := provider.PullImage(ctx, image()); err != nil {
		return nil, fmt.Errorf("no image %s (scripts/zookeeper-image builds one, to name in ZOOKEEPER_IMAGE): %w", image(), err)
	}
	return provider.Client(), nil
})

// needDocker returns a client, or ends the test: a skip, unless Docker is required.
func needDocker(t *testing.T) client.APIClient {
	t.Helper()
	// testcontainers panics when it finds no way to reach a daemon.
	defer func() {
		if r := recover(); r != nil {
			without(t, fmt.Errorf("no Docker: %v", r))
		}
	}()
	c, err := docker()
	if err != nil {
		without(t, err)
	}
	return c
}

func without(t *testing.T, err error) {
	t.Helper()
	if zkserver.Required() {
		t.Fatalf("%s=1: %v", zkserver.EnvRequire, err)
	}
	t.Skip(err.Error())
}

// Server is a ZooKeeper in a container, reachable at the same address over stop and start.
type Server struct {
	addr      string
	container *testcontainers.DockerContainer
	docker    client.APIClient
	mu        sync.Mutex
	silent    bool // paused or stopped, so it is not asked
}

// StartSingle returns a single server that serves, and is removed with the test.
func StartSingle(t *testing.T) *Server {
	t.Helper()
	s := runServer(t, environment(), testcontainers.WithWaitStrategy(&serving{}))
	return s
}

// runServer creates and starts a container with its client port bound to a port of 127.0.0.1 that
// we choose: Docker would choose another one at each start.
func runServer(t *testing.T, env map[string]string, opts ...testcontainers.ContainerCustomizer) *Server {
	t.Helper()
	docker := needDocker(t)
	port, err := zkserver.FreePort()
	require.NoError(t, err)
	host := netip.MustParseAddr("127.0.0.1")
	opts = append([]testcontainers.ContainerCustomizer{
		testcontainers.WithEnv(env),
		testcontainers.WithExposedPorts(clientPort),
		testcontainers.WithHostConfigModifier(func(c *container.HostConfig) {
			c.PortBindings = network.PortMap{
				network.MustParsePort(clientPort): {{HostIP: host, HostPort: strconv.Itoa(port)}},
			}
		}),
	}, opts...)
	ctx, cancel := context.WithTimeout(t.Context(), startLimit)
	defer cancel()
	c, err := testcontainers.Run(ctx, image(), opts...)
	if c != nil {
		t.Cleanup(func() {
			if t.Failed() {
				t.Logf("ZooKeeper at 127.0.0.1:%d said:\n%s", port, logTail(c))
			}
			require.NoError(t, testcontainers.TerminateContainer(c, testcontainers.StopTimeout(0)))
		})
	}
	require.NoError(t, err)
	return &Server{addr: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), container: c, docker: docker}
}

func logTail(c testcontainers.Container) string {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	logs, err := c.Logs(ctx)
	if err != nil {
		return err.Error()
	}
	defer logs.Close()
	all, err := io.ReadAll(logs)
	if err != nil {
		return err.Error()
	}
	return string(all[max(0, len(all)-16<<10):])
}

// serving is the wait strategy: a server is up when it replies to srvr with a mode. Its port
// accepts connections earlier, so wait.ForListeningPort is not enough.
type serving struct{}

var _ wait.Strategy = (*serving)(nil)

// WaitUntilReady implements wait.Strategy.
func (*serving) WaitUntilReady(ctx context.Context, target wait.StrategyTarget) error {
	c, err := target.Inspect(ctx)
	if err != nil {
		return err
	}
	bindings := c.HostConfig.PortBindings[network.MustParsePort(clientPort)]
	if len(bindings) != 1 {
		return fmt.Errorf("%d bindings of port %s", len(bindings), clientPort)
	}
	return awaitServing(ctx, net.JoinHostPort("127.0.0.1", bindings[0].HostPort))
}

func awaitServing(ctx context.Context, addr string) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	for {
		_, err := zkserver.Mode(addr)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s does not serve: %w", addr, errors.Join(context.Cause(ctx), err))
		case <-time.After(pollEvery):
		}
	}
}

// Addr returns the address, host:port, that clients use.
func (s *Server) Addr() string { return s.addr }

// Pause freezes every process of the container: its connections stay open and silent.
func (s *Server) Pause(t *testing.T) {
	t.Helper()
	_, err := s.docker.ContainerPause(t.Context(), s.container.GetContainerID(), client.ContainerPauseOptions{})
	require.NoError(t, err)
	s.setSilent(true)
}

// Unpause resumes a paused container. It does not wait for a response: see Ready.
func (s *Server) Unpause(t *testing.T) {
	t.Helper()
	_, err := s.docker.ContainerUnpause(t.Context(), s.container.GetContainerID(), client.ContainerUnpauseOptions{})
	require.NoError(t, err)
	s.setSilent(false)
}

// Stop stops the container, as docker stop does.
func (s *Server) Stop(t *testing.T) {
	t.Helper()
	grace := stopGrace
	s.setSilent(true)
	require.NoError(t, s.container.Stop(t.Context(), &grace))
}

// Start starts a stopped container, with its data and address, and returns when it serves.
func (s *Server) Start(t *testing.T) {
	t.Helper()
	require.NoError(t, s.container.Start(t.Context()))
	s.setSilent(false)
	s.Ready(t)
}

// Ready returns when the server serves.
func (s *Server) Ready(t *testing.T) {
	t.Helper()
	require.NoError(t, awaitServing(t.Context(), s.addr))
}

func (s *Server) setSilent(silent bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.silent = silent
}

func (s *Server) isSilent() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.silent
}

// Ensemble is three servers in a network of their own.
type Ensemble struct {
	servers []*Server
}

// StartEnsemble returns an ensemble of three whose members all serve. It is removed with the test.
//
// The members have each other's addresses instead of names. Docker's name server does not have the
// name of a stopped container, so it asks the machine's name server, and an election waits for that
// reply.
func StartEnsemble(t *testing.T) *Ensemble {
	t.Helper()
	docker := needDocker(t)
	subnet, net := privateNetwork(t, docker)

	const members = 3
	ip := subnet.Addr().Next() // the gateway's address
	var ips []netip.Addr
	var list []string
	for id := 1; id <= members; id++ {
		ip = ip.Next()
		ips = append(ips, ip)
		list = append(list, fmt.Sprintf("server.%d=%s:2888:3888;2181", id, ip))
	}
	e := &Ensemble{}
	for i, ip := range ips {
		env := environment()
		env["ZOO_MY_ID"] = strconv.Itoa(i + 1)
		env["ZOO_SERVERS"] = strings.Join(list, " ")
		env["ZOO_STANDALONE_ENABLED"] = "false"
		e.servers = append(e.servers, runServer(t, env,
			tcnetwork.WithNetwork(nil, net),
			testcontainers.WithEndpointSettingsModifier(func(settings map[string]*network.EndpointSettings) {
				settings[net.Name].IPAMConfig = &network.EndpointIPAMConfig{IPv4Address: ip}
			})))
	}
	for _, s := range e.servers { // none serves before a second one runs, so all start first
		s.Ready(t)
	}
	return e
}

// privateNetwork returns a network in which addresses can be assigned, and its subnet. Docker
// allows that only if the subnet was requested. So Docker picks a free one, and we then request
// that one.
func privateNetwork(t *testing.T, docker client.APIClient) (netip.Prefix, *testcontainers.DockerNetwork) {
	t.Helper()
	ctx := t.Context()
	const tries = 5 // another program may take the subnet between our two steps
	for try := 1; ; try++ {
		probe, err := tcnetwork.New(ctx)
		require.NoError(t, err)
		inspected, err := docker.NetworkInspect(ctx, probe.ID, client.NetworkInspectOptions{})
		require.NoError(t, errors.Join(err, probe.Remove(ctx)))
		require.NotEmpty(t, inspected.Network.IPAM.Config)
		subnet := inspected.Network.IPAM.Config[0].Subnet

		n, err := tcnetwork.New(ctx, tcnetwork.WithIPAM(&network.IPAM{Config: []network.IPAMConfig{{Subnet: subnet}}}))
		if err != nil && try < tries {
			continue
		}
		require.NoError(t, err)
		testcontainers.CleanupNetwork(t, n)
		return subnet, n
	}
}

// Servers returns the members.
func (e *Ensemble) Servers() []*Server { return append([]*Server(nil), e.servers...) }

// ConnectString returns the members' addresses, comma separated, as clients take them.
func (e *Ensemble) ConnectString() string {
	var addrs []string
	for _, s := range e.servers {
		addrs = append(addrs, s.addr)
	}
	return strings.Join(addrs, ",")
}

// Roles returns the leader and the followers, once exactly one member leads a majority. It
// waits for an election that is under way.
func (e *Ensemble) Roles(t *testing.T) (leader *Server, followers []*Server) {
	t.Helper()
	for deadline := time.Now().Add(startLimit); ; time.Sleep(pollEvery) {
		var leaders []*Server
		followers = nil
		for _, s := range e.servers {
			if s.isSilent() {
				continue
			}
			switch mode, _ := zkserver.Mode(s.addr); mode {
			case "leader":
				leaders = append(leaders, s)
			case "follower":
				followers = append(followers, s)
			}
		}
		if len(leaders) == 1 && len(followers) >= len(e.servers)/2 {
			return leaders[0], followers
		}
		require.True(t, time.Now().Before(deadline), "no leader after %v", startLimit)
	}
}
