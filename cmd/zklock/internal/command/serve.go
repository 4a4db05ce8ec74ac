package command

// The serve command: a ZooKeeper server for development, zktest's, in this process.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/zklock/zklock/zktest"
)

const maxMembers = 9

type serving struct {
	listen            string
	allowRemote       bool
	tick              time.Duration
	maxSessionTimeout time.Duration
	members           int64
	control           string
	version           string
	superDigest       string
	ttlNodes          bool
	enforceQuotas     bool
	containerCheck    time.Duration
	whitelist         string
	auth              serveAuth
	admin             string
	metrics           string
	data              serveData
	maxClientCnxns    int64
	settings          []string // of $ZOO_CFG_EXTRA, as zoo.cfg has them
}

type zkServer interface {
	Close()
	Addrs() []string
	Inject(zktest.Fault) *zktest.Injection
	Sessions() []zktest.Session
	ExpireSession(id int64) bool
	DropConnection(id int64) bool
	Freeze()
	Thaw()
	Dump() string
	History() []zktest.Applied
	Reset()
	Load(nodes map[string]string) error
	Restore(zktest.Snapshot)
	Snapshot() zktest.Snapshot
	Zxid() int64
}

type single struct{ *zktest.Server }

func (s single) Addrs() []string { return []string{s.Addr()} }

func newServeCommand() *cobra.Command {
	var s serving
	cmd := &cobra.Command{
		Use:   "serve [flags]",
		Short: "Run a ZooKeeper server for development, in memory",
		Long: `Serve runs a ZooKeeper server for development and tests. It speaks ZooKeeper's
protocol to any client, needs no Java, and keeps everything in memory: when it
ends, nodes and sessions are lost. With --data, nodes that are not ephemeral are
restored at the next start. It listens on the loopback interface only, unless
--allow-remote is given.

  zklock serve &
  zklock run --servers 127.0.0.1:2181 --lease single /locks/try -- sleep 5

It takes the variables of the official ZooKeeper image, such as $ZOO_TICK_TIME.
With --control, tests inject faults over HTTP: / on that port describes the
requests.

  zklock serve --control 127.0.0.1:8474 &
  curl -d 'After(create).Once().DropReply().Close()' 127.0.0.1:8474/faults

When it accepts connections it prints the connection string on standard output.
It ends with exit code 0 on SIGINT or SIGTERM.`,
		Args:              none,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(cmd *cobra.Command, _ []string) error { return s.run(cmd) },
	}
	s.flags(cmd)
	completesNothing(cmd, "listen", "tick", "max-session-timeout", "members", "control", "admin", "metrics", "max-client-cnxns", "super-digest", "container-check", "whitelist")
	return cmd
}

// run serves until a signal arrives, and then writes the nodes if --data is given.
func (s serving) run(cmd *cobra.Command) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	outliveReaders()
	stderr := cmd.ErrOrStderr()
	unknown, err := s.takeOfficial(os.Environ(), cmd.Flags().Changed)
	if err != nil {
		return &exitError{exitUsage, err}
	}
	if len(unknown) > 0 {
		fmt.Fprintln(stderr, "zklock: serve ignores "+strings.Join(unknown, ", "))
	}
	srv, err := s.start(ctx, stderr)
	if err != nil {
		return err
	}
	defer srv.Close()
	stopPorts, err := s.serveHTTP(ctx, srv, stderr)
	defer stopPorts()
	if err != nil {
		return &exitError{exitUsage, err}
	}
	after := "forgets everything when it ends"
	if s.data.dir != "" {
		after = "writes its nodes to " + s.data.file() + " when it ends"
	}
	fmt.Fprintln(stderr, "zklock: a ZooKeeper server for development only: it keeps everything in memory, and "+after)
	fmt.Fprintln(cmd.OutOrStdout(), strings.Join(srv.Addrs(), ","))
	<-ctx.Done()
	srv.Close()
	if err := s.data.save(srv); err != nil {
		return fmt.Errorf("--data: the nodes were not written, and the file is unchanged: %w", err)
	}
	return nil
}

func (s *serving) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVarP(&s.listen, "listen", "l", "127.0.0.1:2181", "`address` to listen on, host:port; port 0 for any free one")
	f.BoolVar(&s.allowRemote, "allow-remote", false, "listen on an address that other hosts can reach, too")
	f.DurationVar(&s.tick, "tick", 2*time.Second, "ZooKeeper's tickTime; sessions get timeouts of 2 ticks or more")
	f.DurationVar(&s.maxSessionTimeout, "max-session-timeout", 0, "longest session timeout (default: 20 ticks)")
	f.Int64Var(&s.members, "members", 1, "number of servers, as an ensemble, on consecutive ports")
	f.StringVar(&s.control, "control", "", "`address` of the control port, host:port (default: none)")
	f.StringVar(&s.admin, "admin", "", "`address` of the AdminServer's commands, host:port; ZooKeeper's port is 8080 (default: none)")
	f.StringVar(&s.metrics, "metrics", "", "`address` of the metrics for Prometheus, host:port; ZooKeeper's port is 7000 (default: none)")
	f.Int64Var(&s.maxClientCnxns, "max-client-cnxns", 60, "how many connections of one address each server accepts; 0 for no limit")
	f.StringVar(&s.data.dir, "data", "", "`directory` to write the nodes to at the end, and to read them from at the start (default: none)")
	f.StringVar(&s.data.load, "load", "", "`file` of a real server, dataDir/version-2/snapshot.ZXID, with the nodes to begin with")
	f.StringVar(&s.version, "zookeeper-version", "3.9.6", "the ZooKeeper version to behave as: 3.8.0, 3.9.3 or 3.9.6")
	f.StringVar(&s.superDigest, "super-digest", "", "`user:digest` that may do anything, as superDigest has it")
	f.BoolVar(&s.ttlNodes, "ttl-nodes", false, "allow TTL nodes, as extendedTypesEnabled does")
	f.BoolVar(&s.enforceQuotas, "enforce-quotas", false, "reject requests that exceed a hard quota, as enforceQuota does")
	f.DurationVar(&s.containerCheck, "container-check", time.Minute, "how often to look for empty containers and old TTL nodes")
	f.StringVar(&s.whitelist, "whitelist", "", "four-letter `words` to reply to besides srvr: ruok,mntr, or * for all")
	f.StringVar(&s.auth.tlsCert, "tls-cert", "", "`file` with the server's PEM certificate; the port then accepts only TLS")
	f.StringVar(&s.auth.tlsKey, "tls-key", "", "`file` with the server's PEM key")
	f.StringVar(&s.auth.tlsClientCA, "tls-client-ca", "", "`file` with the PEM certificates that must have signed a client's (default: clients need none)")
	f.StringVar(&s.auth.saslUsers, "sasl-users", "", "`file` with lines user:password, of users for SASL with DIGEST-MD5")
	f.BoolVar(&s.auth.saslRequired, "sasl-required", false, "reject each client that has not authenticated by SASL")
}

func (s serving) start(ctx context.Context, stderr io.Writer) (zkServer, error) {
	addrs, err := s.addrs(ctx)
	if err != nil {
		return nil, &exitError{exitUsage, err}
	}
	switch {
	case s.tick < time.Millisecond:
		return nil, exitf(exitUsage, "--tick %v: give at least 1ms", s.tick)
	case s.containerCheck < time.Millisecond:
		return nil, exitf(exitUsage, "--container-check %v: give at least 1ms", s.containerCheck)
	case s.maxClientCnxns < 0:
		return nil, exitf(exitUsage, "--max-client-cnxns %d: give 0 or more; 0 is no limit", s.maxClientCnxns)
	case s.maxSessionTimeout < 0 || s.maxSessionTimeout > 0 && s.maxSessionTimeout < 2*s.tick:
		return nil, exitf(exitUsage, "--max-session-timeout %v is below the shortest timeout, two ticks of %v", s.maxSessionTimeout, s.tick)
	}
	auth, err := s.auth.options()
	if err != nil {
		return nil, &exitError{exitUsage, err}
	}
	nodes, from, err := s.data.open()
	if err != nil {
		return nil, &exitError{exitUsage, err}
	}
	if from != "" {
		fmt.Fprintln(stderr, "zklock: nodes from "+from)
	}
	opts := slices.Concat(s.options(), auth, nodes)
	if s.members > 1 {
		e, err := zktest.NewEnsemble(int(s.members), append(opts, zktest.WithAddr(addrs...))...)
		if err != nil {
			return nil, &exitError{exitUsage, trim(err)}
		}
		return e, nil
	}
	srv, err := zktest.NewServer(append(opts, zktest.WithAddr(addrs[0]))...)
	if err != nil {
		return nil, &exitError{exitUsage, trim(err)}
	}
	return single{srv}, nil
}

func (s serving) options() []zktest.Option {
	return []zktest.Option{zktest.WithVersion(s.version), zktest.WithConfig(
		fmt.Sprintf("tickTime=%d", s.tick.Milliseconds()),
		fmt.Sprintf("maxSessionTimeout=%d", s.maxSessionTimeout.Milliseconds()), // 0 is the default
		fmt.Sprintf("maxClientCnxns=%d", s.maxClientCnxns),
		fmt.Sprintf("znode.container.checkIntervalMs=%d", s.containerCheck.Milliseconds()),
		fmt.Sprintf("extendedTypesEnabled=%t", s.ttlNodes),
		fmt.Sprintf("enforceQuota=%t", s.enforceQuotas),
		"4lw.commands.whitelist="+s.whitelist,
		"DigestAuthenticationProvider.superDigest="+s.superDigest,
	), zktest.WithConfig(s.settings...)}
}

// addrs returns the members' addresses. It rejects an address that other hosts can reach, unless
// --allow-remote is given.
func (s serving) addrs(ctx context.Context) ([]string, error) {
	if s.members < 1 || s.members > maxMembers {
		return nil, fmt.Errorf("--members %d: give 1 to %d", s.members, maxMembers)
	}
	for _, other := range []struct {
		flag, addr string
		n          int64
	}{{"--control", s.control, 1}, {"--admin", s.admin, s.members}, {"--metrics", s.metrics, s.members}} {
		if other.addr == "" {
			continue
		}
		if _, err := s.portsFrom(ctx, other.flag, other.addr, other.n); err != nil {
			return nil, err
		}
	}
	return s.portsFrom(ctx, "--listen", s.listen, s.members)
}

// portsFrom returns n addresses on consecutive ports, starting with the flag's address. It rejects
// one that other hosts can reach, unless that is allowed.
func (s serving) portsFrom(ctx context.Context, flag, addr string, n int64) (addrs []string, err error) {
	host, service, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, fmt.Errorf("%s %q: give host:port, such as 127.0.0.1:2181", flag, addr)
	}
	port, err := strconv.ParseUint(service, 10, 16)
	if err != nil {
		return nil, fmt.Errorf("%s %q: %q is not a port", flag, addr, service)
	}
	if !s.allowRemote {
		if err := isLoopback(ctx, host); err != nil {
			return nil, fmt.Errorf("%s %s: %w; this server is for development only, so give --allow-remote to confirm", flag, addr, err)
		}
	}
	for i := range uint64(n) {
		p := port
		if port != 0 {
			p += i
		}
		if p > 65535 {
			return nil, fmt.Errorf("%s %s: fewer than %d ports from there on", flag, addr, n)
		}
		addrs = append(addrs, net.JoinHostPort(host, strconv.FormatUint(p, 10)))
	}
	return addrs, nil
}

// serveHTTP serves the ports that the flags ask for besides ZooKeeper's own, and reports their
// addresses. stop ends those that were begun.
func (s serving) serveHTTP(ctx context.Context, srv zkServer, stderr io.Writer) (stop func(), err error) {
	var stops []func()
	stop = func() {
		for _, stop := range stops {
			stop()
		}
	}
	if s.control != "" {
		url, stopControl, err := serveControl(s.control, srv)
		if err != nil {
			return stop, fmt.Errorf("--control: %w", err)
		}
		stops = append(stops, stopControl)
		fmt.Fprintln(stderr, "zklock: control at "+url)
	}
	members := adminMembers(srv, s.auth.tlsCert != "")
	for _, port := range []struct {
		flag, addr, what, path string
		handler                func(adminMember) http.Handler
	}{{"--admin", s.admin, "commands", "/commands", adminHandler}, {"--metrics", s.metrics, "metrics", "/metrics", metricsHandler}} {
		if port.addr == "" {
			continue
		}
		addrs, err := s.portsFrom(ctx, port.flag, port.addr, s.members)
		if err != nil {
			return stop, err
		}
		var urls []string
		for i, m := range members {
			url, stopPort, err := serveHTTP(addrs[i], port.handler(m))
			if err != nil {
				return stop, fmt.Errorf("%s: %w", port.flag, err)
			}
			stops, urls = append(stops, stopPort), append(urls, url+port.path)
		}
		fmt.Fprintf(stderr, "zklock: %s at %s\n", port.what, strings.Join(urls, ","))
	}
	return stop, nil
}

var errReachable = errors.New("other hosts can reach it")

// isLoopback returns an error with the reason why other hosts may reach the address.
func isLoopback(ctx context.Context, host string) error {
	if host == "" {
		return errReachable
	}
	ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return err
	}
	for _, ip := range ips {
		if !ip.Unmap().IsLoopback() {
			return errReachable
		}
	}
	return nil
}
