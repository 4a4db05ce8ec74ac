package command

// The ls command, which prints the queue of a lock for people and for programs: its flags.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/cmd/zklock/internal/supervise"
)

const listHelp = `Ls lists the queue of the lock on PATH: the holder first, then the waiters, in
their order. The list of an unused lock is empty; if there is no node at PATH at
all, a line on stderr reports that. WHO is the data that zklock and its library
write into the node, host:pid and the text of run --name, or the name of a
candidate; other clients write other data. QUEUED is the time from the creation
of the node, by the servers' clock, until now, by this host's. A table fits in
80 columns, unless a path is long. With --wide it has more columns, and fits in
120. With --json it has whole nodes and data. The token is the fencing token
that a participant has or will have (of a permit, a larger number). A node that
is not ephemeral, and so survives the end of every session, is named on stderr.

The mode is how a node holds:

  exclusive  alone: a mutex, a writer, a leader
  shared     with others: a reader
  permit     a permit of a semaphore, or a position in the line for some
  latch      alone: a leader, with nodes of Curator's LeaderLatch

With --held it lists only holders, and with --recursive only the locks that have
one. The first in the queue does not hold while it waits for a lock-delay.

With --recursive it lists the locks on PATH and below, a line for each, with the
number of holders, the length of the queue, and the first client. Unused locks
are left out, unless --all is given. A node that has no children now, but has
had some, counts as one. For a semaphore whose limit is in PATH/limit, as
Curator's SharedCount writes it, the limit follows the holders: 2/3. Without
--recursive a line on stderr has it, also of a limit in another node:
--semaphore-limit NODE.

With --watch it continues until a signal ends it: it prints the queues, and
prints them again when they have changed, at most once a second. On a terminal
the new queues replace the old ones. Otherwise a line with the time and the PATH
precedes each table. Changes that last less than a second may not be seen. With
--json it prints one object per line: the time, the path, and the queue.

` + listExitCodes

type listing struct {
	lister
	printer
	recursive, watch, held bool

	screen io.Writer // the terminal on which --watch redraws, nil if stdout is none
}

func newListCommand() *cobra.Command {
	var l listing
	cmd := &cobra.Command{
		Use:               "ls [flags] PATH...",
		Short:             "List or watch the queue of a lock, or list the locks below a path",
		Long:              listHelp,
		Args:              l.checkArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, paths []string) error {
			l.stderr, l.out = cmd.ErrOrStderr(), printable{cmd.OutOrStdout()}
			if err := l.check(paths, cmd.Flags().Changed); err != nil {
				return err
			}
			if l.watch {
				if supervise.IsTerminal(os.Stdout) {
					l.screen = os.Stdout
				}
				ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
				defer stop()
				context.AfterFunc(ctx, stop) // a second signal ends zklock while Close waits
				outliveReaders()             // of notes; not of queues
				err := l.list(ctx, paths)
				if errors.Is(err, syscall.EPIPE) {
					return interrupted{signal: syscall.SIGPIPE}
				}
				return err
			}
			return l.list(cmd.Context(), paths)
		},
	}
	l.addFlags(cmd)
	f := cmd.Flags()
	f.BoolVar(&l.asJSON, "json", false, "print a JSON array; with --watch, one object per line")
	f.StringVar(&l.limit, "semaphore-limit", "", "the `NODE` that has the limit of the semaphore on PATH (default PATH/limit)")
	completesNothing(cmd, "semaphore-limit")
	f.BoolVarP(&l.recursive, "recursive", "r", false, "list the locks on PATH and below")
	f.BoolVarP(&l.all, "all", "a", false, "with --recursive, also list unused locks")
	f.BoolVar(&l.held, "held", false, "list only holders; with --recursive, only the locks that have one")
	f.BoolVar(&l.wide, "wide", false, "print more columns: the mode, the token, the time")
	f.BoolVar(&l.watch, "watch", false, "print the queues again when they change, until a signal ends it")
	return cmd
}

func (l *listing) checkArgs(cmd *cobra.Command, args []string) error {
	if l.watch && len(args) > 0 {
		return nil
	}
	return one("the PATH of a lock, such as /locks/nightly, or --recursive /; with --watch, one or more")(cmd, args)
}

func (l *listing) check(paths []string, given func(string) bool) error {
	for _, path := range paths {
		if l.recursive && path == "/" {
			continue
		}
		if err := zklock.ValidatePath(path); err != nil {
			return &exitError{exitUsage, err}
		}
	}
	switch {
	case l.watch && l.recursive:
		return exitf(exitUsage, "--watch with --recursive: give --watch the PATHs to watch; ls -r lists them")
	case l.all && !l.recursive:
		return exitf(exitUsage, "--all is for --recursive")
	case l.held && l.all:
		return exitf(exitUsage, "--held and --all contradict each other: give one of them")
	case l.held && l.watch:
		return exitf(exitUsage, "--held with --watch: leave one of them out; --watch prints holders and waiters")
	case !given("semaphore-limit"):
		return nil
	case l.recursive, len(paths) > 1:
		return exitf(exitUsage, "--semaphore-limit is for one semaphore: leave it out with --recursive, or with several PATHs")
	}
	return checkLimit(paths[0], l.limit)
}

// list prints the queue of the lock on a path, or the locks there and below, or watches queues.
func (l *listing) list(ctx context.Context, paths []string) error {
	if err := l.open(ctx); err != nil {
		if l.watch && ctx.Err() != nil {
			return nil
		}
		return err
	}
	defer l.s.Close()
	path := paths[0]
	if l.watch {
		return l.watchUntil(ctx, paths)
	}
	if !l.recursive {
		q, err := l.lister.queue(ctx, path)
		if err != nil {
			return err
		}
		if l.held {
			q.waiters = nil
		}
		return l.printer.queue(entriesOf(q))
	}
	locks, failed := l.lister.locks(ctx, path)
	if l.held {
		locks = heldOf(locks)
	}
	unused, err := l.printer.locks(locks)
	if unused > 0 {
		fmt.Fprintf(l.stderr, "zklock: %s: unused locks are left out: %d; --all lists them\n", path, unused)
	}
	if err != nil {
		return err
	}
	return failed // the locks that could be read are printed nevertheless
}
