// Package command is zklock, the command that runs others under ZooKeeper locks; cmd/zklock calls it.
//
// The files, from the outside in: main.go, flags.go and runflags.go take the command line, and
// variables.go what the environment adds to it; run.go walks through one run, and explain.go says
// why it did not get the lock; recipe.go has the kinds of lock; plan.go fits the end of the command
// into the lease; environ.go is what the command finds in its environment, and nested.go a run
// inside a run. internal/supervise looks after the command, and ending.go is what its guardian does
// for a zklock that was killed: it ends the session. signals.go ends zklock by a signal, and
// stderr.go writes what it says. waiting.go says how a wait goes, and metrics.go, in a file
// (metricslock_unix.go: which run's), how the run went, in the words of report.go. once.go keeps a
// job from running again, and runs.go lists its marks; giveway.go is a run that is asked for its
// lock, and revoke.go asks. ls.go takes the flags of ls; lister.go reads queues, table.go prints
// them, watch.go follows them, and parties.go says what has changed. prune.go removes empty lock
// roots, by the rules of pruneplan.go. delete.go, expire.go, serve.go and demo.go are commands of
// their own: the end of a lock node and of a session, a server for development, and internal/demo.
// servecontrol.go is the server's control port, and servefault.go reads the faults that it takes.
// credentials.go has what --auth-file and --sasl name, and tls.go what the --tls flags name.
// printable.go escapes what a terminal would obey.
package command

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/zklock/zklock/internal/supervise"
)

// Exit codes of what was not there.
const (
	exitNoSession = 1 // expire's: there was nothing to end
	exitNoHolder  = 1 // revoke's: there was nobody to ask
	exitNoNode    = 1 // delete's
)

// Exit codes of zklock's own. All others are the command's: those from 126 on as a shell gives them.
const (
	exitLost        = 120                     // the lock was lost, and the command ended for it
	exitNotAcquired = 121                     // the wait is over, and a server has reported another holder
	exitNoServer    = 122                     // no server answered in time
	exitRefused     = 123                     // a server answered, and refused
	exitUsage       = supervise.ExitFailed    // 125: wrong usage, or zklock itself failed
	exitCannotRun   = supervise.ExitCannotRun // 126: the command is there and cannot be run
	exitNotFound    = supervise.ExitNotFound  // 127: the command is not there
	exitSignal      = 128                     // + n: the command, or zklock while it waited, was ended by signal n; zklock ends by it, if it can
)

// What the help says of them: run can end with each, ls with few.
const runExitCodes = `Exit codes:
  120      the lock was lost: COMMAND was ended, or had already ended by itself
  121      not acquired: somebody else holds the lock; -E gives another code
  122      no server could be reached, or none has reported another holder
  123      refused: permissions, credentials, a certificate, a quota, a lost chroot
  125      wrong usage, or zklock itself failed
  126, 127 COMMAND cannot be run, was not found
  128+n    signal n ended COMMAND, or zklock while it waited
  others   COMMAND's own`

const listExitCodes = `Exit codes:
  0    the queue was printed, an empty one too; with --watch, a signal ended it
  122  no server could be reached
  123  refused: permissions, credentials, a certificate
  125  wrong usage, or zklock itself failed`

// exitError ends zklock with a code. Without an error there is nothing to say.
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

// Main is zklock: it carries out the process's command line, and ends the process.
func Main() {
	if code, ok := supervise.Reexecuted(os.Args, stderr, carryOut); ok {
		exit(code)
	}
	exit(execute(os.Args[1:], os.Stdout, stderr()))
}

// execute runs one command line and returns the exit code.
func execute(args []string, stdout, stderr io.Writer) int {
	root := newRootCommand()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	ran, err := root.ExecuteC()
	if err == nil {
		return 0
	}
	var e *exitError
	var i interrupted
	signaled := errors.As(err, &i)
	switch {
	case !errors.As(err, &e) && !signaled:
		// What cobra itself finds wrong with a command line.
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

// codeOf is the exit code of a command that returned this.
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
lock, on whatever host, one at a time runs its command. That is not once: three
hosts that start the same command run it three times, in turn, unless --once names
the run. Run has other kinds of lock, too: readers together, N at a time, or a
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
	root.AddCommand(withVariables(newRunCommand(), newListCommand(), newRunsCommand(), newShardsCommand(), newRevokeCommand(), newDeleteCommand(), newExpireCommand(), newPruneCommand(), newServeCommand(), newVersionCommand(), newDemoCommand())...)
	usage := root.UsageFunc()
	root.SetUsageFunc(func(c *cobra.Command) error {
		err := usage(c)
		if c != root {
			fmt.Fprint(c.OutOrStderr(), variablesHelp(c))
		}
		return err
	})
	return root
}

// didYouMean says what to write in place of a word that is no command.
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
