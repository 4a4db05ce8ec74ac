package command

// The revoke command, which asks the holder of a lock to give way.

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/spf13/cobra"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/internal/queue"
)

// revokeWait is the default of --wait.
const revokeWait = 30 * time.Second

// revokedData replaces the data of a holder's node when the holder is asked.
const revokedData = "__REVOKE__"

const revokeHelp = `Revoke asks the holder of the lock on PATH to give way, as Curator's Revoker
does, waits for the time of --wait, and reports the result. It takes nothing
away: the holder releases the lock when it has ended its work, if it listens. A
run listens with --revocable, a program with zklock's WithRevocation or
Curator's makeRevocable. No other client can determine whether a holder does.

If there are several holders, readers or permits of a semaphore, give the node
of one with --holder, as ls prints it, or --all-holders. The message replaces
the data that the holder has written into its node: ls shows ` + revokedData + ` as WHO
from then on.

Exit codes:
  0    the lock is no longer held: the holder has released it, or died; with
       --wait 0, the holder was asked
  1    no client was asked: none holds the lock, or the holder has released it
  121  the holder still holds the lock, and the wait has ended
  122  no server could be reached
  123  rejected: permissions, credentials, a certificate
  125  wrong usage, or zklock itself failed`

type revoking struct {
	lister
	path   string
	holder string // the node of one, as ls prints it; "": any holder
	all    bool
	wait   time.Duration
	out    io.Writer
}

func newRevokeCommand() *cobra.Command {
	var r revoking
	cmd := &cobra.Command{
		Use:   "revoke [flags] PATH",
		Short: "Ask the holder of a lock to give way",
		Long:  revokeHelp,
		Example: `  zklock revoke /locks/nightly
  zklock revoke --wait 0 --holder lease-0000000012 /locks/import`,
		Args:              one("the PATH of a lock, such as /locks/nightly"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			r.path, r.stderr, r.out = args[0], cmd.ErrOrStderr(), printable{cmd.OutOrStdout()}
			if err := r.check(); err != nil {
				return err
			}
			return r.connected(cmd.Context(), r.revoke)
		},
	}
	r.addFlags(cmd)
	f := cmd.Flags()
	f.DurationVarP(&r.wait, "wait", "w", revokeWait, "how long to wait for the holder to give way; 0: only ask")
	f.StringVar(&r.holder, "holder", "", "ask only the holder with this `NODE`, as ls or ls --json prints it")
	f.BoolVar(&r.all, "all-holders", false, "ask all holders")
	completesNothing(cmd, "wait", "holder")
	return cmd
}

func (r *revoking) check() error {
	if err := zklock.ValidatePath(r.path); err != nil {
		return &exitError{exitUsage, err}
	}
	switch {
	case r.wait < 0:
		return exitf(exitUsage, "--wait %v is negative: give 0 or more", r.wait)
	case r.all && r.holder != "":
		return exitf(exitUsage, "--holder and --all-holders contradict each other: give one of them")
	}
	return nil
}

func (r *revoking) revoke(ctx context.Context) error {
	names, _, err := r.children(ctx, r.at(r.path))
	if err != nil && !errors.Is(err, zk.ErrNoNode) {
		return classify(err)
	}
	q, err := r.read(ctx, r.path, names)
	if err != nil {
		return err
	}
	if len(q.all()) == 0 {
		if err := r.noteMissing(ctx, r.path); err != nil {
			return err
		}
	}
	chosen, err := r.choose(q)
	if err != nil {
		return err
	}
	began := time.Now()
	var asked []zklock.Participant
	for _, p := range chosen {
		isThere, err := r.ask(ctx, p)
		if err != nil {
			return err
		}
		if isThere {
			asked = append(asked, p)
		}
	}
	switch {
	case len(asked) == 0:
		return &exitError{code: exitNoHolder}
	case r.wait == 0:
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, r.wait, errWaited{r.wait})
	defer cancel()
	for _, p := range asked {
		if err := awaitGone(ctx, r.s, p.Node); err != nil {
			return r.stillHeld(p, err)
		}
		fmt.Fprintf(r.out, "%s: no longer held, %v after it was asked, by %s, node %s\n", r.path, time.Since(began).Round(time.Millisecond), whoIs(p), p.Node)
	}
	return nil
}

// choose returns the nodes of the holders to ask.
func (r *revoking) choose(q lockQueue) ([]zklock.Participant, error) {
	if len(q.holders) == 0 {
		if len(q.waiters) > 0 && !q.waiters[0].DelayUntil.IsZero() {
			return nil, exitf(exitNoHolder, "%s: no client was asked: %s", r.path, delayedUntil(q.waiters[0].DelayUntil))
		}
		return nil, exitf(exitNoHolder, "%s: no client was asked: no client holds it", r.path)
	}
	if r.holder != "" {
		for _, p := range q.holders {
			if isNamed(p, r.holder) {
				return []zklock.Participant{p}, nil
			}
		}
		return nil, exitf(exitNoHolder, "%s: no client was asked: no holder has the node %s; zklock ls --held %s lists the holders", r.path, r.holder, r.path)
	}
	if n := len(holdsOf(q.holders)); n > 1 && !r.all {
		return nil, exitf(exitUsage, "%s: it has %d holders, and none was asked: give --holder with the NODE of one, as zklock ls --held %s prints it, or --all-holders", r.path, n, r.path)
	}
	return q.holders, nil
}

// isNamed reports whether the participant's node is the one with this name: as ls or ls --json
// prints it, or without the path.
func isNamed(p zklock.Participant, name string) bool {
	return slices.Contains([]string{p.Node, nameOf(p.Node), shortName(p.Node)}, name)
}

// holdsOf returns one id for each hold: a hold of several permits has as many nodes.
func holdsOf(ps []zklock.Participant) (holds []string) {
	for _, p := range ps {
		id, _ := queue.ProtectionID(nameOf(p.Node))
		if id = cmp.Or(id, p.Node); !slices.Contains(holds, id) {
			holds = append(holds, id)
		}
	}
	return holds
}

// ask asks one holder, as Session.Revoke does. It reports whether the holder's node was still
// there.
func (r *revoking) ask(ctx context.Context, p zklock.Participant) (isThere bool, err error) {
	ctx, cancel := r.within(ctx)
	defer cancel()
	_, err = ask(ctx, r.s, func(c *zk.Conn) (*zk.Stat, error) { return c.Set(p.Node, []byte(revokedData), -1) })
	switch {
	case errors.Is(err, zk.ErrNoNode):
		fmt.Fprintf(r.stderr, "zklock: %s: not asked: %s, node %s, no longer held it\n", r.path, whoIs(p), p.Node)
		return false, nil
	case errors.Is(err, zk.ErrNoAuth):
		return false, exitf(exitRefused, "%s: no WRITE permission on %s: %w", r.path, p.Node, err)
	case err != nil:
		return false, classify(err)
	}
	again := ""
	if string(p.Data) == revokedData {
		again = ", which another client had asked before"
	}
	fmt.Fprintf(r.out, "%s: asked %s, node %s%s\n", r.path, whoIs(p), p.Node, again)
	return true, nil
}

// stillHeld returns the error of a wait that has ended.
func (r *revoking) stillHeld(p zklock.Participant, err error) error {
	var w errWaited
	switch {
	case !errors.As(err, &w):
		return classify(err)
	case r.s.Stats().Server == "":
		err := r.unreached(fmt.Errorf("%w, and there is no connection to a server now: it is not known whether it is still held", w))
		return exitf(codeUnreached(err), "%s: %w", r.path, err)
	}
	return exitf(exitNotAcquired, "%s: still held, %v after it was asked, by %s, node %s: it has not ended its work yet, or does not listen, as zklock run --revocable does", r.path, w.after, whoIs(p), p.Node)
}

func whoIs(p zklock.Participant) string {
	e := entryOf(p)
	var words []string
	switch {
	case e.Pid != 0:
		words = append(words, e.process())
	case e.Data != "" && e.Data != revokedData:
		words = append(words, fmt.Sprintf("%.64q", e.Data))
	}
	if e.Session != "" {
		words = append(words, "session "+e.Session)
	}
	if words == nil {
		return "an unknown client"
	}
	return strings.Join(words, ", ")
}

// lookAgain limits how long a lost event goes unnoticed.
const lookAgain = 5 * time.Second

// awaitGone waits until a node was deleted, or returns the cause of ctx.
func awaitGone(ctx context.Context, s *zklock.Session, node string) error {
	for {
		deleted, err := ask(ctx, s, func(c *zk.Conn) (<-chan zk.Event, error) {
			isThere, _, fired, err := c.ExistsW(node)
			if !isThere {
				return nil, err
			}
			return fired, err
		})
		if err != nil || deleted == nil {
			return readable(err)
		}
		select {
		case <-deleted:
		case <-time.After(lookAgain):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
