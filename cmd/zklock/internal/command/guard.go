package command

// The guard command, which ends the ZooKeeper sessions of processes that have died.

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/zklock/zklock/cmd/zklock/internal/supervise"
	"github.com/zklock/zklock/internal/sessionkey"
)

type guarding struct {
	connection
	listen string
	argv   []string
	only   []string // the servers of --servers; nil for those that each process names
	out    supervise.Output
}

func newGuardCommand() *cobra.Command {
	var g guarding
	cmd := &cobra.Command{
		Use:   "guard [flags] {--listen PATH | -- COMMAND [ARGS...]}",
		Short: "End the ZooKeeper sessions of processes that die",
		Long: `Guard ends the ZooKeeper session of a process on this host as soon as the
process has died, by kill -9, the OOM killer, a crash or an exit. Its locks are
then free at once, and not only after the session timeout. It is for programs
that use zklock as a library: they find the guard by $ZKLOCK_GUARD, or by
WithGuard.

With --listen, guard serves the processes of its user that connect to the socket
PATH. Run it as a service, or as a sidecar, so that what kills the process does
not kill the guard: the OOM killer of Kubernetes kills a whole container, and
systemd kills all processes of a unit.

With COMMAND, guard runs COMMAND with a socket of its own, and ends with the
exit code of COMMAND. It passes signals on to COMMAND, and as the first process
of a container it reaps orphans.

A session is ended only if the kernel reports that its process is dead and its
connection has ended. Guard ends no process. If guard is killed, processes
continue, connect to the next guard at PATH, and until then their sessions last
for the session timeout after a crash. While no process dies, guard sends
nothing to the servers.

Guard needs Linux: 6.5 or later if it has another PID namespace than the
processes, as a sidecar has.

Exit codes:
  125      wrong usage, or the socket cannot be created
  126, 127 COMMAND cannot be run, was not found
  128+n    signal n ended COMMAND, or guard without a COMMAND
  others   COMMAND's own`,
		Example: `  zklock guard --listen /run/orders/guard.sock
  ZKLOCK_GUARD=/run/orders/guard.sock ./orders
  zklock guard -- ./orders`,
		Args: func(c *cobra.Command, args []string) error {
			switch dash := c.ArgsLenAtDash(); {
			case (g.listen == "") == (len(args) == 0):
				return errors.New("give either --listen PATH or -- COMMAND")
			case len(args) > 0 && dash != 0:
				return errors.New("put -- before COMMAND")
			}
			return nil
		},
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return nil, cobra.ShellCompDirectiveDefault // the command and its files
		},
		RunE: func(c *cobra.Command, args []string) error {
			g.argv, g.out = args, stderr()
			if g.logFormat == logJSON {
				g.out = jsonWriter{g.out}
			}
			if _, err := g.identity(); err != nil {
				return err
			}
			if strings.Contains(g.servers, "@") {
				return exitf(exitUsage, "--servers contains an @: give host:port,host:port, and credentials by --auth-file")
			}
			if g.only = g.named(); g.only == nil && g.servers != "" {
				return exitf(exitUsage, "--servers %q names no server: give host:port,host:port", g.servers)
			}
			outliveReaders()
			return g.run()
		},
	}
	f := cmd.Flags()
	f.StringVarP(&g.servers, "servers", "s", "", "connect to these ZooKeeper `servers` only, host:port,host:port (default $"+envServers+", or the servers of each process)")
	f.StringVarP(&g.listen, "listen", "l", "", "create this Unix `socket`, and serve until a signal arrives")
	completesNothing(cmd, "servers")
	g.addIdentityFlags(cmd)
	return cmd
}

func (g *guarding) logf(format string, args ...any) {
	fmt.Fprintf(g.out, "zklock: guard: "+format+"\n", args...)
}

// named returns the servers of --servers. A chroot does not matter: sessions have none.
func (g *guarding) named() (servers []string) {
	hosts, _, _ := strings.Cut(g.servers, "/")
	for host := range strings.SplitSeq(hosts, ",") {
		if host = strings.TrimSpace(host); host == "" {
			continue
		}
		if _, _, err := net.SplitHostPort(host); err != nil {
			host = net.JoinHostPort(strings.Trim(host, "[]"), "2181")
		}
		servers = append(servers, host)
	}
	return servers
}

// end ends a session that a process has left behind.
func (g *guarding) end(key sessionkey.Key, pid int) {
	since, began := supervise.Now(), time.Now()
	if g.only != nil {
		key.Servers = g.only
	}
	e := ending{Key: key, Creds: g.creds(), TLS: g.forGuardian()}
	who := fmt.Sprintf("process %d", pid)
	if pid == 0 {
		who = "a process of another PID namespace"
	}
	was, err := e.endKnown(since)
	switch {
	case err != nil:
		g.logf("%s: its session %#x was not ended: %v; its locks are free when the session expires, within %v", who, uint64(key.ID), err, key.Timeout)
		return
	case !was:
		g.logf("%s: the servers did not have its session %#x; are they the servers of the process?", who, uint64(key.ID))
		return
	}
	g.logf("%s: ended its session %#x in %v", who, uint64(key.ID), time.Since(began).Round(time.Millisecond))
}
