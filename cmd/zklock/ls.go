package main

// The queue of a lock, for people and for programs.

import (
	"context"
	bigendian "encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/spf13/cobra"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/internal/queue"
)

func newListCommand() *cobra.Command {
	var l lister
	var asJSON, recursive bool
	cmd := &cobra.Command{
		Use:   "ls [flags] PATH",
		Short: "List the queue of a lock, front first, or the locks below a path",
		Long: `Ls lists the queue of the lock on PATH: who holds first, then those who wait, in
their order. A lock that nobody uses is an empty list; if there is no node at
PATH at all, a line on stderr says so. The token is the fencing token that a
participant has or will have (of a permit, a larger number); host and pid are what
zklock and its library write into the node's data, and other clients may not.

The mode says how a node holds:

  exclusive  alone: a mutex, a writer, a leader
  shared     with others: a reader
  permit     a permit of a semaphore, or a place in the line for some
  latch      alone: a leader, with nodes of Curator's LeaderLatch

With --recursive it lists the locks on PATH and below, a line for each, with how
many hold it, how many are in its queue, the holders among them, and the first
holder. Of a semaphore whose limit is in PATH/limit, as Curator's SharedCount writes
it, that follows the holders: 2/3. Without --recursive a line on stderr has it, also
of a limit in another node: --semaphore-limit NODE. A node below which there is nothing any more, and
once was, counts as a lock that nobody uses.

` + listExitCodes,
		Args:              one("the PATH of a lock, such as /locks/nightly, or --recursive /"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			l.stderr = cmd.ErrOrStderr()
			out := printable{cmd.OutOrStdout()}
			path := args[0]
			if !(recursive && path == "/") {
				if err := zklock.ValidatePath(path); err != nil {
					return &exitError{exitUsage, err}
				}
			}
			if cmd.Flags().Changed("semaphore-limit") {
				if recursive {
					return exitf(exitUsage, "--semaphore-limit is for one semaphore: leave it out with --recursive")
				}
				if err := checkLimit(path, l.limit); err != nil {
					return err
				}
			}
			if err := l.open(cmd.Context()); err != nil {
				return err
			}
			defer l.s.Close()
			if !recursive {
				q, err := l.queue(cmd.Context(), path)
				switch {
				case err != nil:
					return err
				case asJSON:
					return writeJSON(out, entriesOf(q))
				}
				return writeTable(out, entriesOf(q))
			}
			locks, failed := l.locks(cmd.Context(), path)
			write := writeLocks
			if asJSON {
				write = func(w io.Writer, ls []lockEntry) error { return writeJSON(w, ls) }
			}
			if err := write(out, locks); err != nil {
				return err
			}
			return failed // what could be read is printed all the same
		},
	}
	l.addFlags(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a JSON array")
	cmd.Flags().StringVar(&l.limit, "semaphore-limit", "", "the `NODE` that has the limit of the semaphore on PATH (default PATH/limit)")
	_ = cmd.RegisterFlagCompletionFunc("semaphore-limit", cobra.NoFileCompletions)
	cmd.Flags().BoolVarP(&recursive, "recursive", "r", false, "list the locks on PATH and below")
	return cmd
}

// lister reads queues over a session of its own.
type lister struct {
	connection
	s      *zklock.Session
	limit  string // the node that has a semaphore's limit, if it is not the usual one
	stderr io.Writer
}

// open connects. Nothing is held here, so the lease does not matter; this mode has room in any session timeout.
func (l *lister) open(ctx context.Context) error {
	opts, err := l.options(l.stderr)
	if err != nil {
		return err
	}
	l.s, err = l.connect(ctx, append(opts, zklock.WithLease(zklock.SingleServerLease())))
	return err
}

// queue reads the queue of the lock on path. Of an empty one it says on stderr if there is no such node, or if the locks may
// be further down.
func (l *lister) queue(ctx context.Context, path string) (lockQueue, error) {
	names, _, listed := l.children(ctx, chrootOf(l.servers)+path)
	q, err := l.read(ctx, path, names)
	switch over := q.overLimit(); {
	case err != nil:
	case q.noLimit != "":
		fmt.Fprintf(l.stderr, "zklock: %s: %s\n", path, q.noLimit)
	case q.limit == nil:
	case over > 0:
		fmt.Fprintf(l.stderr, "zklock: %s: %d permits are in use, %d over the limit of %d\n", path, len(q.holders), over, *q.limit)
	default:
		fmt.Fprintf(l.stderr, "zklock: %s: the limit is %d\n", path, *q.limit)
	}
	if err != nil || q.isSemaphore || len(q.holders) > 0 {
		return q, err
	}
	switch {
	case errors.Is(listed, zk.ErrNoNode):
		return q, l.noteMissing(ctx, path)
	case listed != nil:
		return q, classify(listed)
	case len(names) > 0:
		fmt.Fprintf(l.stderr, "zklock: %s: nobody queues here; there are nodes below: zklock ls -r %s lists the locks among them\n", path, path)
	}
	return q, nil
}

// read reads the queue of the lock on path, whatever its recipe. names are the children of the path.
func (l *lister) read(ctx context.Context, path string, names []string) (lockQueue, error) {
	if mayBeSemaphore(names) {
		leases, _, err := l.children(ctx, chrootOf(l.servers)+path+"/leases")
		if err == nil && areLeases(leases) {
			return l.semaphore(ctx, path, names)
		}
	}
	m, err := zklock.NewMutex(l.s, path, zklock.WithQueuePattern(queue.LatchName), zklock.WithLockDelay(time.Nanosecond)) // which sees all but semaphores, and whether a lock-delay lasts
	if err != nil {
		return lockQueue{}, classify(err)
	}
	ctx, cancel := l.within(ctx)
	defer cancel()
	ps, err := m.Participants(ctx)
	if err != nil {
		return lockQueue{}, classify(err)
	}
	return queueOf(ps), nil
}

// semaphore reads a semaphore's leases and queue. Its limit is known only if it is in the node called limit, or in the one that was given.
func (l *lister) semaphore(ctx context.Context, path string, names []string) (q lockQueue, err error) {
	ctx, cancel := l.within(ctx)
	defer cancel()
	n, opts := 1, []zklock.MutexOption(nil) // without a limit, whoever has a node in front of the queue still waits
	node := l.limit
	if node == "" && slices.Contains(names, "limit") {
		node = path + "/limit"
	}
	if node != "" {
		data, err := ask(ctx, l.s, func(c *zk.Conn) ([]byte, error) {
			data, _, err := c.Get(chrootOf(l.servers) + node)
			return data, err
		})
		isLimit := err == nil && len(data) == 4 && bigendian.BigEndian.Uint32(data) <= maxSharedLimit // otherwise no semaphore takes it for one
		q.noLimit = fmt.Sprintf("%s has %q, which is no limit", node, data[:min(len(data), 40)])
		switch {
		case isLimit:
			is := int(bigendian.BigEndian.Uint32(data))
			q.limit, q.noLimit, opts = &is, "", []zklock.MutexOption{zklock.WithSharedLimit(node)}
		case err != nil && l.limit != "":
			return q, classify(fmt.Errorf("--semaphore-limit %s: %w", node, err))
		case l.limit != "":
			return q, exitf(exitUsage, "--semaphore-limit %s: give the node that zklock run --semaphore-limit names", q.noLimit)
		case err != nil:
			q.noLimit = fmt.Sprintf("%s is not known: %v", node, err)
		}
	}
	sem, err := zklock.NewSemaphore(l.s, path, n, opts...)
	if err == nil {
		q.holders, q.waiters, err = sem.Participants(ctx)
	}
	if err != nil {
		return lockQueue{}, classify(err)
	}
	q.isSemaphore = true
	return q, nil
}

// noteMissing says on stderr if no node is at path. An empty list alone could mean an unused lock or a typing error.
func (l *lister) noteMissing(ctx context.Context, path string) error {
	ctx, cancel := l.within(ctx)
	defer cancel()
	node := strings.TrimSuffix(chrootOf(l.servers)+path, "/")
	if node == "" {
		return nil
	}
	there, err := exists(ctx, l.s, node)
	if err != nil {
		return classify(err)
	}
	if !there {
		fmt.Fprintf(l.stderr, "zklock: %s: there is no node %s: no lock was ever taken there, or an unused one was removed\n", path, node)
	}
	return nil
}

// within bounds one look at the servers.
func (l *lister) within(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, l.connectTimeout, errNoServer{l.connectTimeout})
}

// locks returns the locks on path and below, in the order of their paths. It leaves out what it may not read, and says so on
// stderr. Then it returns the rest with an error that has only the exit code.
func (l *lister) locks(ctx context.Context, path string) (locks []lockEntry, err error) {
	root, denied := chrootOf(l.servers), false
	var walk func(path string) error
	walk = func(path string) error {
		below := strings.TrimSuffix(path, "/")
		names, stat, err := l.children(ctx, root+below)
		if errors.Is(err, zk.ErrNoNode) {
			return nil // gone meanwhile
		}
		skip := map[string]bool{}
		if err == nil && below != "" && len(names) > 0 {
			var q lockQueue
			q, err = l.read(ctx, path, names)
			if len(q.holders) > 0 || q.isSemaphore {
				locks = append(locks, lockEntry{path, entriesOf(q), q.limit})
			}
			for _, p := range q.all() {
				skip[nameOf(p.Node)] = true
			}
			skip["locks"], skip["leases"] = q.isSemaphore, q.isSemaphore
		}
		if errors.Is(err, zk.ErrNoAuth) {
			denied = true
			fmt.Fprintf(l.stderr, "zklock: %s: left out: %v\n", path, cause(err))
			return nil
		}
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		if below != "" && len(names) == 0 && stat.Cversion > 0 && stat.EphemeralOwner == 0 {
			locks = append(locks, lockEntry{path, []entry{}, nil})
		}
		slices.Sort(names)
		for _, name := range names {
			if skip[name] || root == "" && below == "" && name == "zookeeper" { // the servers' own
				continue
			}
			if err := walk(below + "/" + name); err != nil {
				return err
			}
		}
		return nil
	}
	if err := walk(path); err != nil {
		return locks, classify(err)
	}
	if denied {
		return locks, &exitError{code: exitRefused}
	}
	if len(locks) == 0 {
		return nil, l.noteMissing(ctx, path)
	}
	return locks, nil
}

func (l *lister) children(ctx context.Context, node string) (names []string, stat *zk.Stat, err error) {
	if node == "" {
		node = "/"
	}
	ctx, cancel := l.within(ctx)
	defer cancel()
	type children struct {
		names []string
		stat  *zk.Stat
	}
	c, err := ask(ctx, l.s, func(conn *zk.Conn) (c children, err error) {
		c.names, c.stat, err = conn.Children(node)
		return c, err
	})
	if errors.Is(err, zk.ErrNoAuth) {
		err = fmt.Errorf("no READ permission: %w", err)
	}
	return c.names, c.stat, err
}

// lockEntry is one lock in the recursive list.
type lockEntry struct {
	Path  string  `json:"path"`
	Queue []entry `json:"queue"`
	Limit *int    `json:"limit,omitempty"` // of a semaphore whose clients share it
}

// entry is one participant in the JSON output.
type entry struct {
	Node       string    `json:"node"`
	Mode       string    `json:"mode"`
	Holds      bool      `json:"holds"`
	Token      int64     `json:"token"`
	Session    string    `json:"session,omitempty"` // hexadecimal, as in the servers' logs
	Host       string    `json:"host,omitempty"`
	Pid        int       `json:"pid,omitempty"`
	Data       string    `json:"data"`
	Created    time.Time `json:"created"`
	AgeSeconds float64   `json:"age_seconds"`

	DelayUntil *time.Time `json:"delay_until,omitempty"` // it waits for the lock-delay
}

func entryOf(p zklock.Participant) entry {
	e := entry{Node: p.Node, Mode: modeOf(nameOf(p.Node)), Token: p.Token, Data: string(p.Data), Created: p.Created, AgeSeconds: max(p.Age, 0).Seconds()}
	if p.SessionID != 0 {
		e.Session = fmt.Sprintf("%#x", uint64(p.SessionID))
	}
	e.Host, e.Pid = hostAndPid(e.Data)
	if !p.DelayUntil.IsZero() {
		e.DelayUntil = &p.DelayUntil
	}
	return e
}

// hostAndPid reads "host:pid", the data that zklock writes; other clients write what they like.
func hostAndPid(data string) (host string, pid int) {
	i := strings.LastIndexByte(data, ':')
	if i <= 0 {
		return "", 0
	}
	pid, err := strconv.Atoi(data[i+1:])
	if err != nil || pid <= 0 || strings.ContainsFunc(data[:i], func(r rune) bool { return r == ' ' || !strconv.IsPrint(r) }) {
		return "", 0
	}
	return data[:i], pid
}

func entriesOf(q lockQueue) []entry {
	ps := q.all()
	entries := make([]entry, len(ps)) // not nil: an empty queue is []
	for i, p := range ps {
		entries[i] = entryOf(p)
		if entries[i].Holds = i < len(q.holders); q.isSemaphore {
			entries[i].Mode = modePermit
		}
	}
	return entries
}

func writeJSON[T any](w io.Writer, list []T) error {
	if list == nil {
		list = []T{}
	}
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(list)
}

func writeTable(w io.Writer, entries []entry) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "NODE\tMODE\tSTATE\tTOKEN\tSESSION\tHOST\tPID\tQUEUED SINCE")
	for _, e := range entries {
		state := "waits"
		if e.Holds {
			state = "holds"
		}
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\n", e.Node, e.Mode, state, e.columns())
	}
	return tw.Flush()
}

func writeLocks(w io.Writer, locks []lockEntry) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "LOCK\tMODE\tHOLD\tQUEUE\tTOKEN\tSESSION\tHOST\tPID\tQUEUED SINCE")
	for _, l := range locks {
		mode, columns, hold := "-", "-\t-\t-\t-\t-", 0
		if len(l.Queue) > 0 {
			mode, columns = l.Queue[0].Mode, l.Queue[0].columns()
		}
		for _, e := range l.Queue {
			if e.Holds {
				hold++
			}
		}
		holds := strconv.Itoa(hold)
		if l.Limit != nil {
			holds += "/" + strconv.Itoa(*l.Limit)
		}
		fmt.Fprintf(tw, "%s\t%s\t%s\t%d\t%s\n", l.Path, mode, holds, len(l.Queue), columns)
	}
	return tw.Flush()
}

// queued says since when the node exists. No node tells when its owner got the lock.
func (e entry) queued() string {
	delayed := ""
	if e.DelayUntil != nil {
		delayed = ", and waits for the lock-delay until " + e.DelayUntil.Local().Format(time.RFC3339)
	}
	return fmt.Sprintf("%s (%v)%s", e.Created.Local().Format(time.RFC3339), time.Duration(e.AgeSeconds*float64(time.Second)).Round(time.Second), delayed)
}

// columns are token, session, host, pid, and since when it is queued.
func (e entry) columns() string {
	host, pid, session := "-", "-", "-"
	if e.Pid != 0 {
		host, pid = e.Host, strconv.Itoa(e.Pid)
	}
	if e.Session != "" {
		session = e.Session
	}
	return fmt.Sprintf("%d\t%s\t%s\t%s\t%s", e.Token, session, host, pid, e.queued())
}
