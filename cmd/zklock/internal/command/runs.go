package command

// The runs command, which lists the marks of run --once, and removes one.

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/spf13/cobra"

	"github.com/zklock/zklock"
)

const runsHelp = `Runs lists the runs that --once has marked as done under the lock on PATH, in
the order in which they were marked: the key, the token and the client of the
run, and when it succeeded, by the clock of its host. They are in the node
PATH-done.

With --forget KEY it removes the mark of one key, so that the next run with that
key runs COMMAND again. It asks first, unless --yes is given.

Exit codes:
  0    the marks were printed, or the mark was removed
  1    there is no mark of KEY
  122  no server could be reached
  123  rejected: permissions, credentials, a certificate
  125  wrong usage, no confirmation, or zklock itself failed`

type doneRuns struct {
	lister
	printer
	path   string
	forget string
	yes    bool
	in     io.Reader
}

func newRunsCommand() *cobra.Command {
	var d doneRuns
	cmd := &cobra.Command{
		Use:   "runs [flags] PATH",
		Short: "List the runs that --once has marked as done, or remove a mark",
		Long:  runsHelp,
		Example: `  zklock runs /locks/nightly
  zklock runs --forget 2026-07-01 /locks/nightly`,
		Args:              one("the PATH of a lock, such as /locks/nightly"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			d.path, d.stderr, d.out, d.in = args[0], cmd.ErrOrStderr(), printable{cmd.OutOrStdout()}, cmd.InOrStdin()
			if err := zklock.ValidatePath(d.path); err != nil {
				return &exitError{exitUsage, err}
			}
			isForget := cmd.Flags().Changed("forget")
			switch {
			case isForget && d.asJSON:
				return exitf(exitUsage, "--forget and --json contradict each other: give one of them")
			case d.yes && !isForget:
				return exitf(exitUsage, "--yes is for --forget")
			}
			if isForget {
				return d.connected(cmd.Context(), d.forgetOne)
			}
			return d.connected(cmd.Context(), d.list)
		},
	}
	d.addFlags(cmd)
	f := cmd.Flags()
	f.BoolVar(&d.asJSON, "json", false, "print a JSON array")
	f.StringVar(&d.forget, "forget", "", "remove the mark of this `KEY`")
	f.BoolVar(&d.yes, "yes", false, "with --forget: do not ask")
	completesNothing(cmd, "forget")
	return cmd
}

func (d *doneRuns) marked(ctx context.Context) ([]zklock.OnceRun, error) {
	m, err := zklock.NewMutex(d.s, d.path)
	if err != nil {
		return nil, classify(err)
	}
	ctx, cancel := d.within(ctx)
	defer cancel()
	runs, err := m.Runs(ctx)
	if err != nil {
		return nil, classify(err)
	}
	return runs, nil
}

func (d *doneRuns) list(ctx context.Context) error {
	runs, err := d.marked(ctx)
	if err != nil {
		return err
	}
	if len(runs) == 0 {
		fmt.Fprintf(d.stderr, "zklock: %s: no run is marked as done\n", d.path)
	}
	if d.asJSON {
		return writeJSON(d.out, runs)
	}
	rows := [][]string{{"KEY", "TOKEN", "WHO", "SUCCEEDED"}}
	for _, r := range runs {
		rows = append(rows, []string{r.Key, strconv.FormatInt(r.Token, 10), r.By, r.At.Local().Format(time.RFC3339)})
	}
	return d.table(rows)
}

// forgetOne removes the mark of a key after confirmation.
func (d *doneRuns) forgetOne(ctx context.Context) error {
	runs, err := d.marked(ctx) // it also checks that the node has marks, and nothing else
	if err != nil {
		return err
	}
	noMark := exitf(exitNoNode, "%s: no run with the key %q is marked as done", d.path, d.forget)
	i := slices.IndexFunc(runs, func(r zklock.OnceRun) bool { return r.Key == d.forget })
	if i < 0 {
		return noMark
	}
	if !d.yes {
		r := runs[i]
		fmt.Fprintf(d.stderr, "zklock: %s: %s is done: by %s at %s, token %d. Remove this mark, so that the next run with this key runs it again? [y/N] ",
			d.path, r.Key, escaped(r.By), r.At.Local().Format(time.RFC3339), r.Token)
		answer, _ := bufio.NewReader(d.in).ReadString('\n')
		if a := strings.ToLower(strings.TrimSpace(answer)); a != "y" && a != "yes" {
			return exitf(exitUsage, "%s: not confirmed: nothing was done", d.path)
		}
	}
	ctx, cancel := d.within(ctx)
	defer cancel()
	for {
		isMarked, err := d.rewrite(ctx, d.at(d.path+"-done"))
		switch {
		case errors.Is(err, zk.ErrBadVersion): // a run was marked meanwhile
			continue
		case errors.Is(err, zk.ErrNoAuth):
			return exitf(exitRefused, "%s: no WRITE permission on %s-done: %w", d.path, d.path, err)
		case err != nil:
			return classify(err)
		case !isMarked:
			return noMark
		}
		fmt.Fprintf(d.out, "%s: the mark of %s is removed: the next run with this key runs it again\n", d.path, d.forget)
		return nil
	}
}

// rewrite writes the node's lines without the key's, if the node is unchanged since it was read. It
// reports whether there was one.
func (d *doneRuns) rewrite(ctx context.Context, node string) (isMarked bool, err error) {
	isSent := false // before the connection was lost
	return ask(ctx, d.s, func(c *zk.Conn) (isMarked bool, err error) {
		data, stat, err := c.Get(node)
		if errors.Is(err, zk.ErrNoNode) {
			return false, nil
		}
		var kept [][]byte
		for line := range bytes.Lines(data) {
			var r zklock.OnceRun
			if json.Unmarshal(line, &r) == nil && r.Key == d.forget {
				isMarked = true
				continue
			}
			kept = append(kept, line)
		}
		if err == nil && isMarked {
			isSent = true
			_, err = c.Set(node, bytes.Join(kept, nil), stat.Version)
		}
		return isMarked || isSent, err
	})
}
