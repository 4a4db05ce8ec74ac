package command

// The prune command, which removes empty lock roots. They stay indefinitely unless they are
// containers.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/zklock/zklock"
)

func newPruneCommand() *cobra.Command {
	p := pruner{changed: map[string]int32{}}
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "prune [--older-than D] [--with-path] [--yes] [flags] PATH",
		Short: "Remove the empty roots of unused locks",
		Long:  pruneHelp,
		Example: `  zklock prune /orders
  zklock prune --yes --older-than 720h /orders`,
		Args:              one("the PATH of a lock or above locks, such as /locks"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			p.stderr = cmd.ErrOrStderr()
			if args[0] == "/" {
				return exitf(exitUsage, "prune /: the tree does not have locks alone: give a PATH in it, such as /locks")
			}
			if err := zklock.ValidatePath(args[0]); err != nil {
				return &exitError{exitUsage, err}
			}
			if p.olderThan < 0 {
				return exitf(exitUsage, "--older-than %v is negative: give 0 or more", p.olderThan)
			}
			if err := p.open(cmd.Context()); err != nil {
				return err
			}
			defer p.s.Close()
			rows, err := p.prune(cmd.Context(), args[0])
			if err != nil && rows == nil {
				return err
			}
			write := writePruned
			if asJSON {
				write = func(w io.Writer, rows []pruned) error { return writeJSON(w, rows) }
			}
			if err := write(printable{cmd.OutOrStdout()}, rows); err != nil {
				return err
			}
			if err == nil || p.refused {
				p.summarize(args[0], rows)
			}
			return err
		},
	}
	p.addFlags(cmd)
	cmd.Flags().BoolVar(&p.yes, "yes", false, "remove; without it, nothing is removed")
	cmd.Flags().DurationVar(&p.olderThan, "older-than", 0, "keep nodes that were in use within this `time`, as far as that can be determined")
	cmd.Flags().BoolVar(&p.withTop, "with-path", false, "also remove PATH itself, by the same rules")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a JSON array")
	completesNothing(cmd, "older-than")
	return cmd
}

const pruneHelp = `Prune removes nodes that locks leave behind. Below PATH, these are each node
that has had children, has none now, and has no data; the locks and leases of a
semaphore, its limit if no client has changed it, and its path; and the parents
that become empty, if they have the same ACL as the nodes below them. PATH
itself stays, because its ACL may be an administrator's, or it may be a chroot:
--with-path removes it by the same rules. Without --yes, prune prints what it
would remove, and removes nothing.

Programs may continue to take locks meanwhile: nodes in use stay, and zklock
recreates removed ones. So do Curator and go-zookeeper's lock. A Lock of kazoo
that was used before does not: its next acquire fails with NoNodeError; make a
new one. No lock recreates its program's chroot: give it in --servers, and it
stays. Below PATH, an empty chroot is removed, and the locks of its programs
fail. A folder of another program looks like a lock root if its children are
created and deleted: read the list first.

Prune leaves all other data, nodes that were never used, a root whose record
names a holder that disappeared (--lock-delay), and nodes that change while it
runs. With --older-than it also leaves nodes that were in use within that time.
The servers do not record that, so prune derives it from the times of all nodes
that it reads, and also removes nodes whose last use it cannot determine. The
time counts back from now by the servers' clock, which prune reads by a
transaction on PATH that leaves nothing there.

Exit codes:
  0    the listed nodes were removed, or would be; there may be none
  122  no server could be reached
  123  a request was rejected: permissions, credentials, a certificate
  125  wrong usage, or zklock itself failed`

// pruned is a row of the output: a lock that was removed, or stays.
type pruned struct {
	Path    string   `json:"path"`
	Kind    string   `json:"kind"`
	Nodes   []string `json:"nodes"` // removed together
	Removed bool     `json:"removed"`
	Left    string   `json:"left,omitempty"` // why it stays
}

type pruner struct {
	lister
	yes       bool
	withTop   bool
	olderThan time.Duration
	changed   map[string]int32 // how often it has created or deleted a child of a node
	refused   bool             // the servers have rejected a request
}

// prune returns the removals at path and below it; without --yes, those that it would make. Its
// error may have only an exit code.
func (p *pruner) prune(ctx context.Context, path string) (rows []pruned, err error) {
	top, err := p.see(ctx, path)
	if err != nil {
		return nil, classify(err)
	}
	if top == nil {
		return nil, p.noteMissing(ctx, path)
	}
	plan := planPruning(top, p.withTop, time.Time{})
	if p.olderThan > 0 && len(plan.removals) > 0 {
		now, err := p.serversNow(ctx, top)
		if err != nil {
			return nil, classify(err)
		}
		plan = planPruning(top, p.withTop, now.Add(-p.olderThan))
	}
	for _, r := range plan.removals {
		row := pruned{Path: r.path, Kind: r.what}
		for _, n := range r.nodes {
			row.Nodes = append(row.Nodes, n.path)
		}
		if p.yes {
			if row.Left, err = p.remove(ctx, r); err != nil {
				return rows, classify(fmt.Errorf("%s: %w", r.path, err))
			}
			row.Removed = row.Left == ""
		}
		rows = append(rows, row)
	}
	for _, l := range plan.left {
		rows = append(rows, pruned{Path: l.path, Kind: pruneLock, Nodes: []string{}, Left: l.why})
	}
	slices.SortStableFunc(rows, func(a, b pruned) int { return strings.Compare(a.Path, b.Path) })
	if p.refused {
		return rows, &exitError{code: exitRefused}
	}
	return rows, nil
}

// see reads a node and everything below it that may matter, and returns nil if the node was
// deleted. It sends one request for each node, one more for data, and two for the ACLs of a parent
// that may be removed.
func (p *pruner) see(ctx context.Context, path string) (*seenNode, error) {
	n := &seenNode{path: path}
	if isQueued(n.name()) {
		return n, nil
	}
	names, stat, err := p.children(ctx, p.at(path))
	switch {
	case errors.Is(err, zk.ErrNoNode):
		return nil, nil
	case errors.Is(err, zk.ErrNoAuth):
		return n, p.deny(path, err)
	case err != nil:
		return nil, err
	}
	n.isRead, n.stat, n.hasQueues = true, *stat, mayBeSemaphore(names)
	slices.Sort(names)
	for _, name := range names {
		child, err := p.see(ctx, path+"/"+name)
		if err != nil {
			return nil, err
		}
		if child != nil {
			n.children = append(n.children, child)
		}
	}
	if stat.DataLength > 0 && stat.EphemeralOwner == 0 {
		if n.data, err = p.data(ctx, path); err != nil {
			n.isRead = false
			return n, p.deny(path, err)
		}
	}
	if n.mayGoWithACL() {
		for _, of := range []*seenNode{n, n.children[0]} {
			if of.acl == nil {
				if of.acl, err = p.acl(ctx, of.path); err != nil {
					n.isRead = false
					return n, p.deny(of.path, err)
				}
			}
		}
	}
	return n, nil
}

// deny reports a node that may not be read or removed. It returns all other errors.
func (p *pruner) deny(path string, err error) error {
	switch {
	case errors.Is(err, zk.ErrNoNode):
		return nil
	case !errors.Is(err, zk.ErrNoAuth):
		return err
	}
	p.refused = true
	fmt.Fprintf(p.stderr, "zklock: %s: left out: %v\n", path, cause(err))
	return nil
}

func (p *pruner) acl(ctx context.Context, path string) ([]zk.ACL, error) {
	ctx, cancel := p.within(ctx)
	defer cancel()
	return ask(ctx, p.s, func(c *zk.Conn) ([]zk.ACL, error) {
		acl, _, err := c.GetACL(p.at(path))
		return acl, err
	})
}

// serversNow returns the time by the servers' clock: this host's may differ from it by more than
// --older-than. Only a write reports it, so one transaction makes a node below top, writes to it
// and deletes it. If the servers reject that, they are at least as late as the newest change that
// the walk has seen, and prune keeps more.
func (p *pruner) serversNow(ctx context.Context, top *seenNode) (time.Time, error) {
	ctx, cancel := p.within(ctx)
	defer cancel()
	node := p.at(top.path) + "/zklock-prune-" + uuid.NewString()
	results, err := ask(ctx, p.s, func(c *zk.Conn) ([]zk.MultiResponse, error) {
		results, err := c.Multi(&zk.CreateRequest{Path: node, Acl: zk.WorldACL(zk.PermAll)},
			&zk.SetDataRequest{Path: node, Version: -1}, &zk.DeleteRequest{Path: node, Version: -1})
		if len(results) > 0 {
			err = nil
		}
		return results, err
	})
	if err != nil {
		return time.Time{}, err
	}
	for _, one := range results {
		if one.Error != nil {
			fmt.Fprintf(p.stderr, "zklock: %s: the servers' time is not known (%v): --older-than counts back from the newest change on PATH and below\n", top.path, one.Error)
			return time.UnixMilli(agesOf(top).latest()), nil
		}
	}
	p.changed[top.path] += 2
	return time.UnixMilli(results[1].Stat.Mtime), nil
}

// remove deletes the nodes of a removal in one transaction, if they are as they were read. It
// returns why they stay.
//
// The transaction fails if a node has children or other data by now. No transaction can check
// whether a node was used in between, or created again, so a read directly before it does. A node
// that a lock creates after that read was deleted again, or is a child. So the deleted nodes are as
// empty as when they were read.
func (p *pruner) remove(ctx context.Context, r removal) (left string, err error) {
	ctx, cancel := p.within(ctx)
	defer cancel()
	sent := false
	failed, err := ask(ctx, p.s, func(c *zk.Conn) (failed error, _ error) {
		var ops []any
		for _, n := range r.nodes {
			there, stat, err := c.Exists(p.at(n.path))
			switch {
			case err != nil:
				return nil, err
			case !there && sent: // by the transaction whose response was lost
				return nil, nil
			case !there:
				return zk.ErrNoNode, nil
			case stat.Czxid != n.stat.Czxid || stat.Version != n.stat.Version || stat.Cversion != n.stat.Cversion+p.changed[n.path]:
				return zk.ErrBadVersion, nil
			}
			ops = append(ops, &zk.DeleteRequest{Path: p.at(n.path), Version: n.stat.Version})
		}
		sent = true
		results, err := c.Multi(ops...)
		for _, one := range results { // the first error belongs to the operation that failed
			if one.Error != nil {
				return one.Error, nil
			}
		}
		return nil, err
	})
	if err == nil {
		err = failed
	}
	switch {
	case err == nil:
		for _, n := range r.nodes {
			p.changed[n.path[:strings.LastIndexByte(n.path, '/')]]++
		}
		return "", nil
	case errors.Is(err, zk.ErrNoNode):
		return "another client has removed it", nil
	case errors.Is(err, zk.ErrNotEmpty), errors.Is(err, zk.ErrBadVersion):
		return "it was in use meanwhile", nil
	case errors.Is(err, zk.ErrNoAuth):
		p.refused = true
		return "no DELETE permission", nil
	}
	return "", err
}

func (p *pruner) summarize(path string, rows []pruned) {
	stay, nodes := 0, 0
	for _, r := range rows {
		if r.Left != "" {
			stay++
		} else {
			nodes += len(r.Nodes)
		}
	}
	switch {
	case p.yes:
		fmt.Fprintf(p.stderr, "zklock: %s: removed %s; %d of the list stay\n", path, spellNodes(nodes), stay)
	case nodes > 0:
		fmt.Fprintf(p.stderr, "zklock: %s: this would remove %s; nothing was done. Give --yes to confirm\n", path, spellNodes(nodes))
	default:
		fmt.Fprintf(p.stderr, "zklock: %s: there is nothing to remove\n", path)
	}
}

func spellNodes(n int) string {
	if n == 1 {
		return "1 node"
	}
	return fmt.Sprint(n, " nodes")
}

func writePruned(w io.Writer, rows []pruned) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "PATH\tKIND\tSTATE")
	for _, r := range rows {
		state := "would be removed"
		switch {
		case r.Left != "":
			state = "stays: " + r.Left
		case r.Removed:
			state = "removed"
		}
		fmt.Fprintf(tw, "%s\t%s\t%s\n", r.Path, r.Kind, state)
	}
	return tw.Flush()
}
