package command

// The flags of run, and their checks.

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/spf13/cobra"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/cmd/zklock/internal/supervise"
	"github.com/zklock/zklock/internal/queue"
)

type runOptions struct {
	connection
	recipeFlags
	lease       string
	leaderPing  time.Duration
	wait        time.Duration
	lockDelay   time.Duration
	atLeast     time.Duration
	once        string        // the key
	onceKeep    int64         // how many keys are kept
	noWait      bool          // also with --wait 0
	killAfter   time.Duration // negative: not given
	container   bool
	chroot      bool // --create-chroot
	acl         string
	leftovers   string
	conflict    int64 // the exit code of a run that did not get the lock
	quiet       bool
	verbose     bool
	metrics     string // the name of the file
	name        string // of this process and its purpose
	sessionFile string

	path   string
	argv   []string
	stderr io.Writer
	ours   ourNode
	waited bool // and this was reported
	report *metricsFile

	revocable bool
	asked     chan *zklock.Hold // those that another client has asked for

	redraws func() bool // whether the progress of a wait is overwritten
	columns func() int  // of the terminal then
	drawn   bool        // and some is on the terminal
}

const runHelp = `Run waits for the lock on PATH, runs COMMAND, ends the processes that COMMAND
leaves running (see --leftovers), and releases the lock. The lock is a mutex, or

  --shared              the read side of a read/write lock: readers run
                        together, but not with a run without --shared, which
                        writes
  --semaphore N         permits of a semaphore: N may be in use at a time. All
                        runs give the same N; --permits K takes K, or none.
                        With --semaphore-limit NODE the number is in that node
                        for all runs, as Curator's SharedCount writes it, and
                        can be changed there. The first run creates it, with N
  --elect               the leadership among candidates: COMMAND runs for as
                        long as this run leads. If it ends by itself, the run
                        ends. If the leadership is lost, COMMAND is ended, and
                        started again when this run is elected again. --wait
                        and --no-wait apply to each campaign

Runs without any of these, with --shared and with --elect share one queue; a
PATH with nodes of another kind is rejected. Curator's names for them are
InterProcessMutex, InterProcessReadWriteLock (whose clients do not see a run
without --shared), InterProcessSemaphoreV2 and LeaderSelector.

COMMAND has in its environment:

  ZKLOCK_TOKEN  the fencing token, a number that grows with every holder: the
                resource that COMMAND writes to should reject a smaller one than
                it has seen. Tokens of readers are larger than those of earlier
                writers, and in no order among themselves. A semaphore has
                several holders at a time: reject no token. Each term of a
                leader has its own
  ZKLOCK_PATH   PATH
  ZKLOCK_NODE   the lock node, absolute; of several permits the first
  ZKLOCK_OUTER  nodes and tokens of the runs around this one, if there are any

and zklock's own environment, without ZKLOCK_AUTH, which is a secret, and
without variables of flags that are about this run alone, such as ZKLOCK_WAIT.
It inherits the variables for reaching the servers, such as ZKLOCK_SERVERS and
ZKLOCK_AUTH_FILE, and those of --lease, --leader-ping and --acl.

A run inside a run of the same lock, which would wait for its own parent, is
rejected at once (exit code 125): for a semaphore, only if the permits of both
cannot be in use together. Without ZKLOCK_NODE in its environment it queues like
any other.

No process that COMMAND started runs together with the next holder. When the
lease is not renewed in time, all get SIGTERM, and after --kill-after SIGKILL,
before another client can get the lock; the same happens when zklock is killed.
When another client deletes the node or ends the session, the next holder may
run together with them for --kill-after. On macOS this covers COMMAND's process
group. It does not cover processes of another user or PID namespace, nor those
that other programs start for COMMAND (dockerd, at).

With --revocable a run gives way when another client asks for the lock (zklock
revoke, or Curator's Revoker): COMMAND gets SIGTERM, as if that had been sent to
zklock, and the lock is released when it has ended. COMMAND is not killed for
it, and may take its time. The exit code is COMMAND's own, or 143 if it ended by
the SIGTERM. With --elect, the run campaigns again.

Standard streams, signals, the terminal and the exit code are COMMAND's. A
second SIGINT sent to zklock ends everything at once. A COMMAND that is
suspended (Ctrl-Z) suspends zklock, and the lock is lost unless it is resumed
before the lease ends.

With --once KEY, for example a day, COMMAND runs if no run with KEY has ended
with exit code 0 under this lock, on any host. If one has, the run prints that,
and ends with 0. PATH-done has the last --once-keep keys: zklock runs PATH lists
them. If zklock dies before it has marked KEY there, COMMAND runs again.

With --metrics-file F, F describes the latest run of a job, for the textfile
collector of Prometheus' node_exporter. It is replaced when the run begins, when
it gets the lock, and when it ends. While a run holds the lock, other runs on
the host leave its F alone. Give each job an F of its own, whose name ends in
.prom; and also each of several runs that hold at a time.

A run that gets the lock at once prints nothing, unless stderr is a terminal or
--verbose is given. A run that gives up prints one line, and none with --quiet.

`

func newRunCommand() *cobra.Command {
	o := &runOptions{redraws: redraws, columns: terminalColumns, asked: make(chan *zklock.Hold, 8)}
	cmd := &cobra.Command{
		Use:   "run [flags] PATH -- COMMAND [ARGS...]",
		Short: "Run a command while holding a lock",
		Long:  runHelp + platformHelp() + runExitCodes,
		Example: `  zklock run --servers zk1:2181,zk2:2181,zk3:2181 /locks/nightly -- ./backup.sh
  zklock run --no-wait -E 0 /locks/nightly -- ./backup.sh  # or skip it
  zklock run --semaphore 4 /locks/import -- ./import.sh    # four at a time
  zklock run --elect /leaders/billing -- billing-scheduler
  zklock run --wait 5m /locks/deploy -- sh -c 'deploy --fence "$ZKLOCK_TOKEN"'`,
		Args: func(c *cobra.Command, args []string) error {
			switch dash := c.ArgsLenAtDash(); {
			case dash < 0:
				return errors.New("put -- between PATH and COMMAND")
			case dash != 1:
				return fmt.Errorf("give one PATH before the --, not %d", dash)
			case len(args) < 2:
				return errors.New("give a COMMAND after the --")
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) (err error) {
			o.path, o.argv, o.stderr = args[0], args[1:], c.ErrOrStderr()
			if o.report, err = newMetricsFile(o.metrics, o.path, o.elect, o.stderr); err != nil {
				return err
			}
			o.report.noHoldYet()
			defer func() { o.report.end(codeOf(err)) }()
			if err := o.check(c.Flags().Changed); err != nil {
				return err
			}
			return o.run(c.Context())
		},
	}
	o.connection.addFlags(cmd)
	o.addFlags(cmd)
	cmd.ValidArgsFunction = func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) == 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return nil, cobra.ShellCompDirectiveDefault // the command and its files
	}
	return cmd
}

func (o *runOptions) addFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&o.lease, "lease", "quorum", "the proof that the session is alive: quorum or single (one server)")
	f.DurationVar(&o.leaderPing, "leader-ping", 4*time.Second, "with --lease quorum: two ticks (tickTime) of the servers")
	f.BoolVar(&o.shared, "shared", false, "share the lock with others that share it; a run without --shared excludes them")
	f.Int64Var(&o.semaphore, "semaphore", 0, "take permits of a semaphore that has `N`, instead of a lock")
	f.StringVar(&o.limit, "semaphore-limit", "", "with --semaphore: keep the number in this `NODE`, for all runs; it begins with N")
	f.Int64Var(&o.permits, "permits", 1, "with --semaphore: take `K` permits, all or none")
	f.BoolVar(&o.elect, "elect", false, "run COMMAND for as long as this run leads, and again when it is elected again")
	f.DurationVarP(&o.wait, "wait", "w", 0, "give up after this time, connecting included; 0 is --no-wait (default: wait indefinitely)")
	f.BoolVarP(&o.noWait, "no-wait", "n", false, "give up at once if another client holds the lock")
	f.DurationVarP(&o.killAfter, "kill-after", "k", 0, "time from SIGTERM to SIGKILL; must fit into the lease (default: half of what fits, at most 10s)")
	f.DurationVar(&o.lockDelay, "lock-delay", 0, "after a holder disappeared without a release, no client gets the lock for this time; give all runs the same")
	f.StringVar(&o.once, "once", "", "run COMMAND only if no run with this `KEY`, for example a day, has succeeded under the lock")
	f.Int64Var(&o.onceKeep, "once-keep", 100, "with --once: keep this many keys as done, 1 to 1000; give all runs the same")
	f.DurationVar(&o.atLeast, "hold-at-least", 0, "hold the lock for at least this time, even if COMMAND ends earlier: until then zklock continues to run")
	f.BoolVar(&o.revocable, "revocable", false, "give way when another client asks for the lock (zklock revoke): send COMMAND SIGTERM, and release when it has ended")
	f.BoolVar(&o.container, "container", false, "create the lock root and its parents as containers, which the servers remove when they are no longer used")
	f.BoolVar(&o.chroot, "create-chroot", false, "create the chroot of --servers if it does not exist")
	f.StringVar(&o.acl, "acl", "world", "the clients that may use the created nodes: world, user (the one of --auth-file), or creator (each identity of this client: its user or principal, and its certificate)")
	f.StringVar(&o.leftovers, "leftovers", string(supervise.EndThem), "processes that COMMAND leaves running: end them; leave those in a session of their own, also when the lock is lost; or wait for them, and hold the lock meanwhile")
	f.Int64VarP(&o.conflict, "conflict-exit-code", "E", exitNotAcquired, "exit code instead of 121: another client holds the lock, or --session-file is in use; 0 to 255")
	f.StringVar(&o.name, "name", "", "`TEXT` that ls and the messages of waiters show with host and pid: the name and purpose of this process")
	f.StringVar(&o.metrics, "metrics-file", "", "describe the run in `F`, whose name ends in .prom, for node_exporter's textfile collector")
	f.StringVar(&o.sessionFile, "session-file", "", "keep the ZooKeeper session in `FILE`, so that the next run with it ends the session if zklock and its guardian are killed; while another run has FILE, wait as for the lock")
	f.BoolVarP(&o.quiet, "quiet", "q", false, "print nothing unless something fails; that another client holds the lock is not a failure")
	f.BoolVarP(&o.verbose, "verbose", "v", false, "also print when the lock is acquired, as on a terminal")
	_ = cmd.RegisterFlagCompletionFunc("lease", cobra.FixedCompletions([]string{"quorum", "single"}, cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.RegisterFlagCompletionFunc("leftovers", cobra.FixedCompletions([]string{"end", "leave", "wait"}, cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.MarkFlagFilename("metrics-file", "prom")
	_ = cmd.MarkFlagFilename("session-file")
	_ = cmd.RegisterFlagCompletionFunc("acl", cobra.FixedCompletions([]string{"world", "creator", "user"}, cobra.ShellCompDirectiveNoFileComp))
	completesNothing(cmd, "leader-ping", "wait", "kill-after", "conflict-exit-code", "semaphore", "semaphore-limit", "permits", "lock-delay", "hold-at-least", "once", "once-keep", "name")
}

// check rejects flags that contradict each other.
func (o *runOptions) check(given func(flag string) bool) error {
	if err := o.recipeFlags.check(given); err != nil {
		return err
	}
	if given("semaphore-limit") {
		if err := checkLimit(o.path, o.limit); err != nil {
			return err
		}
	}
	if !given("kill-after") {
		o.killAfter = -1
	} else if o.killAfter < 0 {
		return exitf(exitUsage, "--kill-after %v is negative: give 0 or more", o.killAfter)
	}
	if o.noWait && o.wait > 0 {
		return exitf(exitUsage, "--no-wait and --wait %v contradict each other: give one of them", o.wait)
	}
	o.noWait = o.noWait || given("wait") && o.wait == 0
	if o.revocable && runtime.GOOS == "windows" {
		return exitf(exitUsage, "--revocable: this system has no SIGTERM, with which COMMAND would be asked to end: leave it out")
	}
	if err := o.checkOnce(given); err != nil {
		return err
	}
	if given("name") && !queue.IsKey(o.name) {
		return exitf(exitUsage, "--name %q: give 1 to %d bytes of printable text", o.name, queue.MaxKey)
	}
	if o.quiet && o.verbose {
		return exitf(exitUsage, "--quiet and --verbose contradict each other: give one of them")
	}
	if o.conflict < 0 || o.conflict > 255 {
		return exitf(exitUsage, "--conflict-exit-code %d: give 0 to 255", o.conflict)
	}
	o.verbose = o.verbose || supervise.IsTerminal(os.Stderr)
	if given("leader-ping") && o.lease != "quorum" {
		return exitf(exitUsage, "--leader-ping is for --lease quorum")
	}
	return nil
}

func (o *runOptions) leaseMode() (zklock.LeaseMode, error) {
	switch o.lease {
	case "quorum":
		if o.leaderPing <= 0 {
			return zklock.LeaseMode{}, exitf(exitUsage, "--leader-ping %v: give two ticks of the servers", o.leaderPing)
		}
		return zklock.QuorumLease(o.leaderPing), nil
	case "single":
		return zklock.SingleServerLease(), nil
	}
	return zklock.LeaseMode{}, exitf(exitUsage, "--lease %q: give quorum or single", o.lease)
}

// lockOptions returns the options of the lock, whatever its recipe, and rejects flags that no lock
// can have.
func (o *runOptions) lockOptions() ([]zklock.LockOption, error) {
	var opts []zklock.LockOption
	if o.container {
		opts = append(opts, zklock.WithContainer())
	}
	if o.name != "" {
		opts = append(opts, zklock.WithData(nodeData(o.name)))
	}
	if o.revocable {
		opts = append(opts, zklock.WithRevocation(o.heard))
	}
	switch {
	case o.lockDelay < 0:
		return nil, exitf(exitUsage, "--lock-delay %v is negative: give how long no client gets the lock after a holder disappeared, or leave it out", o.lockDelay)
	case o.lockDelay > 0 && (o.shared || o.semaphore > 0):
		return nil, exitf(exitUsage, "--lock-delay is for a mutex and an election: leave it out with --shared and --semaphore")
	case o.lockDelay > 0 && o.container:
		return nil, exitf(exitUsage, "--lock-delay and --container: the servers remove an empty container, and the delay with it: leave one of them out")
	}
	acl, err := o.nodeACL()
	return append(opts, zklock.WithACL(acl)), err
}

// nodeACL returns the ACL of created nodes. The servers expand the ACL of creator to each identity
// of the connection, and each suffices: the user, and the certificate where the servers
// authenticate by x509.
func (o *runOptions) nodeACL() ([]zk.ACL, error) {
	creds := o.creds()
	user, password, hasUser := strings.Cut(string(creds.Auth), ":")
	switch {
	case o.acl == "world":
		return zk.WorldACL(zk.PermAll), nil
	case o.acl == "creator" && creds.areNone() && o.tlsCert == "":
		return nil, exitf(exitUsage, "--acl creator needs --auth-file or %s, --sasl kerberos, or a --tls-cert", envAuth)
	case o.acl == "creator":
		return zk.AuthACL(zk.PermAll), nil
	case o.acl == "user" && !hasUser:
		return nil, exitf(exitUsage, "--acl user needs --auth-file or %s; for a principal of --sasl kerberos give creator", envAuth)
	case o.acl == "user" && creds.SASL == saslDigest:
		return []zk.ACL{{Perms: zk.PermAll, Scheme: "sasl", ID: user}}, nil
	case o.acl == "user":
		return zk.DigestACL(zk.PermAll, user, password), nil
	}
	return nil, exitf(exitUsage, "--acl %q: give world, creator or user", o.acl)
}

func platformHelp() string {
	if supervise.Guards {
		return ""
	}
	return `On this system there are no process groups and no guardian: when the lock is lost
COMMAND itself is killed, without SIGTERM where there is none, and its children are
not; and COMMAND runs on when zklock is killed.

`
}
