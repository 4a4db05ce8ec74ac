// Package command is zklock, the command that runs others under ZooKeeper locks; cmd/zklock calls
// it.
//
// The files, from the outside in: main.go, flags.go and runflags.go parse the command line, and
// variables.go adds the environment. run.go performs one run, and explain.go explains why it did
// not get the lock. recipe.go has the kinds of lock, and plan.go fits the end of the command into
// the lease. environ.go is the command's environment, and nested.go a run inside a run.
// internal/supervise supervises the command, and ending.go is its guardian's work for a zklock that
// was killed: it ends the session. signals.go ends zklock by a signal, and stderr.go writes its
// messages. waiting.go reports the progress of a wait, and metrics.go writes the result of the run
// to a file (metricslock_unix.go: which run's), in the format of report.go. once.go keeps a job
// from running again, and runs.go lists its marks. giveway.go is a run that is asked for its lock,
// and revoke.go asks. ls.go has the flags of ls; lister.go reads queues, table.go prints them, and
// watch.go reads and prints them again. prune.go removes empty lock roots, by the rules of
// pruneplan.go. delete.go, expire.go, serve.go and demo.go are commands of their own: the deletion
// of a lock node, the end of a session, a server for development, and the package demo. guard.go
// ends the sessions that other processes leave behind (guard_linux.go: the socket). servecontrol.go
// is the server's control port, and servefault.go parses the faults that it accepts. help.go prints
// the flags of a command, and man.go the man page. credentials.go has the credentials that
// --auth-file and --sasl name, and tls.go the files of the --tls flags. printable.go escapes
// characters that a terminal would interpret.
package command

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/zklock/zklock/cmd/zklock/internal/supervise"
)

// Exit codes if the target does not exist.
const (
	exitNoSession = 1 // expire: there is no session to end
	exitNoHolder  = 1 // revoke: there is no holder to ask
	exitNoNode    = 1 // delete: there is no node to delete
)

// Exit codes of zklock itself. All others are the command's; from 126 on they are a shell's.
const (
	exitLost        = 120                     // the lock was lost, and the command ended for it
	exitNotAcquired = 121                     // the wait has ended, and a server has reported another holder
	exitNoServer    = 122                     // no server replied in time
	exitRefused     = 123                     // a server replied, and rejected the request
	exitUsage       = supervise.ExitFailed    // 125: wrong usage, or zklock itself failed
	exitCannotRun   = supervise.ExitCannotRun // 126: the command exists and cannot be run
	exitNotFound    = supervise.ExitNotFound  // 127: the command does not exist
	exitSignal      = 128                     // + n: the command, or zklock while it waited, was ended by signal n; zklock ends by it, if it can
)

// The exit codes in the help: run can end with each, ls with few.
const runExitCodes = `Exit codes:
  120      the lock was lost: COMMAND was ended, or had already ended by itself
  121      not acquired: another client holds the lock, or --session-file is in
           use; -E sets another code
  122      no server could be reached, or none reported whether the lock is held
  123      rejected: permission, credentials, certificate, quota, deleted chroot
  125      wrong usage, or zklock itself failed
  126, 127 COMMAND cannot be run, was not found
  128+n    signal n ended COMMAND, or zklock while it waited
  others   COMMAND's own`

const listExitCodes = `Exit codes:
  0    the queue was printed, an empty one too; with --watch, a signal ended it
  122  no server could be reached
  123  rejected: permissions, credentials, a certificate
  125  wrong usage, or zklock itself failed`

// exitError ends zklock with a code. Without an error nothing is printed.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

func exitf(code int, format string, args ...any) error {
	return &exitError{code, fmt.Errorf(format, args...)}
}

// Main runs the process's command line, and ends the process.
func Main() {
	if code, ok := supervise.Reexecuted(os.Args, guardianStderr, carryOut); ok {
		exit(code)
	}
	exit(execute(os.Args[1:], os.Stdout, stderr()))
}

func execute(args []string, stdout, stderr io.Writer) int {
	root := newRootCommand()
	root.SetArgs(args)
	out := &output{w: stdout}
	root.SetOut(out)
	root.SetErr(stderr)
	ran, err := root.ExecuteC()
	if out.err != nil && (err == nil || errors.Is(err, out.err)) && !errors.As(err, new(interrupted)) {
		err = exitf(exitUsage, "the output could not be written: %w", bare(out.err))
	}
	if err == nil {
		return 0
	}
	var e *exitError
	var i interrupted
	signaled := errors.As(err, &i)
	switch {
	case !errors.As(err, &e) && !signaled:
		// Errors that cobra itself finds in a command line.
		if ran == root && len(args) > 0 {
			err = fmt.Errorf("%w%s", err, didYouMean(root, args[0]))
		}
		fmt.Fprintf(stderr, "zklock: %v\nSee '%s --help'.\n", err, ran.CommandPath())
		return exitUsage
	case e != nil && e.err != nil:
		writeError(root.ErrOrStderr(), fmt.Sprintf("zklock: %v", e.err))
	}
	if signaled {
		i.end()
	}
	return e.code
}

// output is stdout, and keeps the first error of a write: cobra prints the help without a check.
type output struct {
	w   io.Writer
	err error
}

func (o *output) Write(text []byte) (int, error) {
	n, err := o.w.Write(text)
	o.err = cmp.Or(o.err, err)
	return n, err
}

func codeOf(err error) int {
	var e *exitError
	var i interrupted
	switch {
	case err == nil:
		return 0
	case errors.As(err, &i):
		return exitCodeOf(i.signal)
	case errors.As(err, &e):
		return e.code
	}
	return exitUsage
}

func newRootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "zklock",
		Short: "Run commands under ZooKeeper locks",
		Long: `zklock runs commands under ZooKeeper locks: of all processes that name the same
lock, on any host, one at a time runs its command. Each of them runs it: three
hosts that start the same command run it three times, unless --once names the
run. Run has other kinds of lock, too: readers together, N at a time, or a
leader.

  zklock run /locks/nightly -- ./backup.sh
  zklock ls /locks/nightly

To try it without servers:

  zklock demo
  zklock serve`,
		Version:       version(),
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE:          func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	root.DisableSuggestions = true // in favour of didYouMean
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error {
		switch s := err.Error(); {
		case strings.Contains(s, "time: "):
			return fmt.Errorf("%w: give a time with its unit, such as 30s or 5m", err)
		case strings.Contains(s, "strconv.ParseInt"):
			return fmt.Errorf("%w: give a whole number", err)
		case strings.Contains(s, "strconv.ParseBool"): // from the environment
			return fmt.Errorf("%w: give true or false", err)
		}
		return err
	})
	root.SetVersionTemplate("zklock {{.Version}}\n")
	root.AddCommand(withVariables(newRunCommand(), newListCommand(), newRunsCommand(), newShardsCommand(), newRevokeCommand(), newDeleteCommand(), newExpireCommand(), newGuardCommand(), newPruneCommand(), newServeCommand(), newVersionCommand(), newDemoCommand(), newManCommand())...)
	usage := root.UsageFunc()
	root.SetUsageFunc(func(c *cobra.Command) error {
		if c.HasAvailableSubCommands() {
			return usage(c)
		}
		printUsage(c)
		return nil
	})
	return root
}

// didYouMean suggests a command for a word that is not one.
func didYouMean(root *cobra.Command, word string) string {
	if strings.HasPrefix(word, "-") || strings.HasPrefix(word, "/") {
		return ": the command comes first, as in zklock run"
	}
	for root.SuggestionsMinimumDistance = 1; root.SuggestionsMinimumDistance <= 2; root.SuggestionsMinimumDistance++ {
		if names := root.SuggestionsFor(word); len(names) > 0 {
			return fmt.Sprintf(": did you mean %s?", strings.Join(names, " or "))
		}
	}
	return ""
}
