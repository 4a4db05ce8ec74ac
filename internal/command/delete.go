package command

// Taking one lock node away: delete.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/go-zookeeper/zk"
	"github.com/spf13/cobra"

	"github.com/zklock/zklock"
)

const deleteHelp = `Delete takes one lock node away, and with it what its client holds or waits for.
expire ends a session, and takes all locks of a service; delete takes one. NODE is
absolute, with the chroot, as ls --wide and $ZKLOCK_NODE have it. What ls does not
list is no lock node, and is refused. Stdout says whose it was.

It ends the holder's lock without waiting for the holder: the next one gets the lock
at once, or after the lock-delay, and the holder hears of it only at its next
heartbeat. No lease can know of it: that is what the fencing token is for. Ask the
holder first: see revoke. A client whose node is taken away while it waits queues
again, at the end.

Exit codes:
  0    the node is gone
  1    there is no such node
  122  no server could be reached
  123  refused: permissions, credentials, a certificate
  125  wrong usage, such as a NODE that is no lock node, or zklock itself failed`

// deleting is what the flags of delete say.
type deleting struct {
	lister
	node string // absolute
	yes  bool
	out  io.Writer
}

func newDeleteCommand() *cobra.Command {
	var d deleting
	cmd := &cobra.Command{
		Use:   "delete --yes [flags] NODE",
		Short: "Take one lock node away, without waiting for its holder",
		Long:  deleteHelp,
		Example: `  zklock ls --wide /locks/nightly
  zklock delete --yes /locks/nightly/_c_0d6c2f6e-93a5-4a8e-8f0c-5b1c1c7c7f3a-lock-0000000007`,
		Args:              one("the NODE of a lock, absolute, as zklock ls --wide prints it"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			d.node, d.stderr, d.out = args[0], cmd.ErrOrStderr(), printable{cmd.OutOrStdout()}
			if err := zklock.ValidatePath(d.node); err != nil {
				return &exitError{exitUsage, err}
			}
			if err := d.open(cmd.Context()); err != nil {
				return err
			}
			defer d.s.Close()
			return d.delete(cmd.Context())
		},
	}
	d.addFlags(cmd)
	cmd.Flags().BoolVar(&d.yes, "yes", false, "delete the node; without it, nothing is done but to say whose it is")
	return cmd
}

// delete takes the node away as it was read: what has changed since is read again.
func (d *deleting) delete(ctx context.Context) error {
	ctx, cancel := d.within(ctx)
	defer cancel()
	for {
		p, version, err := d.find(ctx)
		if err != nil {
			return err
		}
		if !d.yes {
			return exitf(exitUsage, "%s: with this node %s: to delete it ends that without waiting for the client; nothing was done. Give --yes if that is meant", d.node, isDoing(p, "holds", "waits for"))
		}
		_, err = ask(ctx, d.s, func(c *zk.Conn) (struct{}, error) { return struct{}{}, c.Delete(d.node, version) })
		switch {
		case err == nil, errors.Is(err, zk.ErrNoNode): // it went meanwhile, or by a delete of ours whose answer was lost
			fmt.Fprintf(d.out, "%s is gone: with it %s\n", d.node, isDoing(p, "held", "waited for"))
			return nil
		case errors.Is(err, zk.ErrBadVersion): // somebody wrote into it, as revoke does
			continue
		case errors.Is(err, zk.ErrNoAuth):
			return exitf(exitRefused, "%s: no DELETE permission on the node above: %w", d.node, err)
		}
		return classify(err)
	}
}

// isDoing says who a participant is, and which of the two it does with its node.
func isDoing(p zklock.Participant, holds, waits string) string {
	if p.Holds {
		waits = holds
	}
	return fmt.Sprintf("%s %s the lock, token %d", whoIs(p), waits, p.Token)
}

// find returns the participant that the node is of, and the version of its data, if ls would list it.
func (d *deleting) find(ctx context.Context) (p zklock.Participant, version int32, err error) {
	root := chrootOf(d.servers)
	if !strings.HasPrefix(d.node, root+"/") {
		return p, 0, exitf(exitUsage, "%s is not below the chroot of --servers, %s: give the node as zklock ls --wide prints it", d.node, root)
	}
	stat, err := ask(ctx, d.s, func(c *zk.Conn) (*zk.Stat, error) {
		_, stat, err := c.Get(d.node)
		if errors.Is(err, zk.ErrNoNode) { // this server may lag behind the one that ls has asked
			if _, err := c.Sync(d.node); err != nil {
				return nil, err
			}
			_, stat, err = c.Get(d.node)
		}
		return stat, err
	})
	if errors.Is(err, zk.ErrNoNode) {
		return p, 0, exitf(exitNoNode, "%s: there is no such node", d.node)
	}
	if err != nil {
		return p, 0, classify(readable(err))
	}
	for _, path := range lockPathsOf(d.node[len(root):]) {
		names, _, err := d.children(ctx, root+path)
		if errors.Is(err, zk.ErrNoNode) {
			continue
		}
		if err != nil {
			return p, 0, classify(err)
		}
		q, err := d.read(ctx, path, names)
		if err != nil {
			return p, 0, err
		}
		for _, p := range q.all() {
			if p.Node == d.node && stat.NumChildren == 0 {
				return p, stat.Version, nil
			}
		}
	}
	return p, 0, exitf(exitUsage, "%s is no lock node: nothing was done. zklock ls --wide lists those of a lock", d.node)
}

// lockPathsOf returns the paths whose lock the node may be of: of a semaphore, it is a folder further down.
func lockPathsOf(node string) (paths []string) {
	above := func(s string) string { return s[:max(strings.LastIndexByte(s, '/'), 0)] }
	path := above(node)
	if name := nameOf(path); path != "" && (name == "leases" || name == "locks") && above(path) != "" {
		paths = append(paths, above(path))
	}
	if path != "" {
		paths = append(paths, path)
	}
	return paths
}
