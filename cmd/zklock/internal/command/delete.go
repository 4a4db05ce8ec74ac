package command

// The delete command, which deletes one lock node.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/go-zookeeper/zk"
	"github.com/spf13/cobra"

	"github.com/zklock/zklock"
)

const deleteHelp = `Delete deletes one node from the queue of the lock on PATH, and so ends its
client's hold, or its wait. NODE is a name that ls prints, or the whole node, as
in $ZKLOCK_NODE. A node that ls does not list is not a lock node, and is
rejected. Stdout has the client. expire ends a session with all locks of a
service; delete ends one.

The holder's lock ends without waiting for the holder: the next client gets it
at once, or after the lock-delay, and the holder is notified only at its next
heartbeat. Its lease does not protect it: that is what the fencing token is for.
Ask the holder first: see revoke. A client whose node is deleted while it waits
queues again, at the end.

Exit codes:
  0    the node was deleted
  1    there is no such node in the queue of PATH
  122  no server could be reached
  123  rejected: permissions, credentials, a certificate
  125  wrong usage, NODE is not a lock node, or zklock itself failed`

type deleting struct {
	lister
	path string
	node string // as given
	yes  bool
	out  io.Writer
}

func newDeleteCommand() *cobra.Command {
	var d deleting
	cmd := &cobra.Command{
		Use:   "delete --yes [flags] PATH NODE",
		Short: "Delete one lock node, without waiting for its holder",
		Long:  deleteHelp,
		Example: `  zklock ls /locks/nightly
  zklock delete --yes /locks/nightly lock-0000000007`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 2 {
				return fmt.Errorf("%d arguments instead of two: give the PATH of a lock and a NODE, as zklock ls prints it", len(args))
			}
			return nil
		},
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			d.path, d.node, d.stderr, d.out = args[0], args[1], cmd.ErrOrStderr(), printable{cmd.OutOrStdout()}
			if err := zklock.ValidatePath(d.path); err != nil {
				return &exitError{exitUsage, err}
			}
			if !isQueued(nameOf(d.node)) {
				return exitf(exitUsage, "%s is not the name of a lock node: nothing was done. zklock ls %s lists them", d.node, d.path)
			}
			return d.connected(cmd.Context(), d.delete)
		},
	}
	d.addFlags(cmd)
	cmd.Flags().BoolVar(&d.yes, "yes", false, "delete the node; without it, only its client is printed")
	return cmd
}

// delete deletes the node if it is unchanged since it was read, and otherwise reads it again.
func (d *deleting) delete(ctx context.Context) error {
	ctx, cancel := d.within(ctx)
	defer cancel()
	for {
		p, version, err := d.find(ctx)
		if err != nil {
			return err
		}
		if !d.yes {
			return exitf(exitUsage, "%s: with this node %s: deleting it ends that without waiting for the client; nothing was done. Give --yes to confirm", p.Node, isDoing(p, "holds", "waits for"))
		}
		_, err = ask(ctx, d.s, func(c *zk.Conn) (struct{}, error) { return struct{}{}, c.Delete(p.Node, version) })
		switch {
		case err == nil, errors.Is(err, zk.ErrNoNode): // perhaps a response was lost
			fmt.Fprintf(d.out, "%s was deleted: with it %s\n", p.Node, isDoing(p, "held", "waited for"))
			return nil
		case errors.Is(err, zk.ErrBadVersion): // another client wrote into it, as revoke does
			continue
		case errors.Is(err, zk.ErrNoAuth):
			return exitf(exitRefused, "%s: no DELETE permission on the node above: %w", p.Node, err)
		}
		return classify(err)
	}
}

// isDoing describes a participant, and whether it holds or waits with its node.
func isDoing(p zklock.Participant, holds, waits string) string {
	if p.Holds {
		waits = holds
	}
	return fmt.Sprintf("%s %s the lock, token %d", whoIs(p), waits, p.Token)
}

// find returns the participant with the node, and the version of the node's data.
func (d *deleting) find(ctx context.Context) (p zklock.Participant, version int32, err error) {
	root := d.at(d.path)
	// This server may lag behind the one that ls has read from.
	if _, err := ask(ctx, d.s, func(c *zk.Conn) (string, error) { return c.Sync(root) }); err != nil {
		return p, 0, classify(err)
	}
	names, _, err := d.children(ctx, root)
	if err != nil && !errors.Is(err, zk.ErrNoNode) {
		return p, 0, classify(err)
	}
	q, err := d.read(ctx, d.path, names)
	if err != nil {
		return p, 0, err
	}
	found := slices.DeleteFunc(q.all(), func(p zklock.Participant) bool { return !isNamed(p, d.node) })
	switch {
	case len(found) == 0:
		return p, 0, exitf(exitNoNode, "%s: there is no lock node %s", d.path, d.node)
	case len(found) > 1:
		return p, 0, exitf(exitUsage, "%s: %d lock nodes are called %s: nothing was done. Give one as zklock ls --json prints it", d.path, len(found), d.node)
	}
	p = found[0]
	stat, err := ask(ctx, d.s, func(c *zk.Conn) (*zk.Stat, error) {
		_, stat, err := c.Get(p.Node)
		return stat, err
	})
	switch {
	case errors.Is(err, zk.ErrNoNode):
		return p, 0, exitf(exitNoNode, "%s: there is no lock node %s", d.path, d.node)
	case err != nil:
		return p, 0, classify(readable(err))
	case stat.NumChildren > 0:
		return p, 0, exitf(exitUsage, "%s has children, and is no lock node: nothing was done", p.Node)
	}
	return p, stat.Version, nil
}
