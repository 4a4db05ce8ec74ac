package main

// The queue of a lock, for people and for programs.

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/zklock/zklock"
)

func newListCommand() *cobra.Command {
	var c connection
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "ls [flags] PATH",
		Short: "List the queue of a lock, front first",
		Long: `Ls lists the queue of the lock on PATH: its holder first, then those who wait, in
their order. A lock that nobody uses is an empty list. The token is the fencing
token that a participant has or will have; host and pid are what zklock and its
library write into the node's data, and other clients may not.

` + listExitCodes,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			ps, err := c.participants(cmd.Context(), args[0], cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			if asJSON {
				return writeJSON(cmd.OutOrStdout(), ps)
			}
			return writeTable(cmd.OutOrStdout(), ps)
		},
	}
	c.addFlags(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a JSON array")
	return cmd
}

func (c *connection) participants(ctx context.Context, path string, stderr io.Writer) ([]zklock.Participant, error) {
	if err := zklock.ValidatePath(path); err != nil {
		return nil, &exitError{exitUsage, err}
	}
	opts, err := c.options(stderr)
	if err != nil {
		return nil, err
	}
	// Nothing is held here, so the lease does not matter; this mode has room in any session timeout.
	s, err := c.connect(ctx, append(opts, zklock.WithLease(zklock.SingleServerLease())))
	if err != nil {
		return nil, err
	}
	defer s.Close()
	m, err := zklock.NewMutex(s, path)
	if err != nil {
		return nil, classify(err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, c.connectTimeout, errNoServer{c.connectTimeout})
	defer cancel()
	ps, err := m.Participants(ctx)
	if err != nil {
		return nil, classify(err)
	}
	return ps, nil
}

// entry is one participant in the JSON output.
type entry struct {
	Node       string    `json:"node"`
	Token      int64     `json:"token"`
	Session    string    `json:"session,omitempty"` // hexadecimal, as in the servers' logs
	Host       string    `json:"host,omitempty"`
	Pid        int       `json:"pid,omitempty"`
	Data       string    `json:"data"`
	Created    time.Time `json:"created"`
	AgeSeconds float64   `json:"age_seconds"`
}

func entryOf(p zklock.Participant) entry {
	e := entry{Node: p.Node, Token: p.Token, Data: string(p.Data), Created: p.Created, AgeSeconds: max(p.Age, 0).Seconds()}
	if p.SessionID != 0 {
		e.Session = fmt.Sprintf("%#x", uint64(p.SessionID))
	}
	e.Host, e.Pid = hostAndPid(e.Data)
	return e
}

// hostAndPid reads "host:pid", the data that zklock writes; other clients write what they like.
func hostAndPid(data string) (host string, pid int) {
	i := strings.LastIndexByte(data, ':')
	if i <= 0 {
		return "", 0
	}
	pid, err := strconv.Atoi(data[i+1:])
	if err != nil || pid <= 0 || strings.ContainsFunc(data[:i], func(r rune) bool { return r <= ' ' || r == 0x7f }) {
		return "", 0
	}
	return data[:i], pid
}

func writeJSON(w io.Writer, ps []zklock.Participant) error {
	entries := make([]entry, len(ps)) // not nil: an empty queue is []
	for i, p := range ps {
		entries[i] = entryOf(p)
	}
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(entries)
}

func writeTable(w io.Writer, ps []zklock.Participant) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "NODE\tTOKEN\tSESSION\tHOST\tPID\tAGE")
	for _, p := range ps {
		e := entryOf(p)
		host, pid, session := "-", "-", "-"
		if e.Pid != 0 {
			host, pid = e.Host, strconv.Itoa(e.Pid)
		}
		if e.Session != "" {
			session = e.Session
		}
		fmt.Fprintf(tw, "%s\t%d\t%s\t%s\t%s\t%v\n", e.Node, e.Token, session, host, pid, max(p.Age, 0).Round(time.Second))
	}
	return tw.Flush()
}
