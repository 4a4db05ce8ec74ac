package command

// The expire command, which ends a session from outside: a dead client's, or in a test.

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/internal/expire"
)

func newExpireCommand() *cobra.Command {
	var c connection
	var yes bool
	cmd := &cobra.Command{
		Use:   "expire --yes [flags] SESSION",
		Short: "End a ZooKeeper session, and with it all its locks",
		Long: `Expire ends a ZooKeeper session on the servers, at once, as if its timeout had
passed: its ephemeral nodes are deleted, lock nodes among them, and its client
is notified when it next reaches a server. Use it if the client is dead and its
session would last too long. Or test a program in any language: has the job
stopped when the next holder starts? SESSION is the session's id as ls prints it
and the servers log it, 0x10000658c6e0000, or in decimal.

Nothing protects the session's owner: servers derive a session's password from
its id. And a holder whose session is ended in this way is not notified before
the next one has the lock: no lease can cover that. That is what the fencing
token is for.

If the servers reject the end, the session continues, and its owner keeps its
locks. If the owner is dead, the session then expires after the longest timeout
that the servers grant, 20 ticks unless set otherwise.

Exit codes:
  0    the session has ended
  1    the servers have no such session
  122  no server could be reached
  123  rejected: credentials, a certificate; or the server resumes no sessions
  125  wrong usage, or zklock itself failed`,
		Example: `  zklock expire --yes --servers 127.0.0.1:2181 0x10000658c6e0000
  zklock expire --yes $(zklock ls --json /locks/nightly | jq -r '.[0].session')`,
		Args:              one("the id of a SESSION, as zklock ls shows it"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := parseSession(args[0])
			if err != nil {
				return &exitError{exitUsage, err}
			}
			if !yes {
				return exitf(exitUsage, "session %#x: this ends the session of a running program, and its locks with it; nothing was done. Give --yes to confirm", id)
			}
			opts, err := c.options(cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			c.servers, _, _ = strings.Cut(c.servers, "/") // sessions have no chroot
			// Our own session finds a server that serves, or the error has the reason.
			s, err := c.connect(cmd.Context(), append(opts, zklock.WithLease(zklock.SingleServerLease())))
			if err != nil {
				return err
			}
			defer s.Close()
			addr := s.Conn().Server()
			was, err := expire.Session(c.dialInTurn(addr), int64(id),
				func(until time.Time) (expire.Credentials, error) {
					ctx, cancel := context.WithDeadline(context.Background(), until)
					defer cancel()
					return c.creds().forOne(ctx, addr)
				})
			switch {
			case expire.Refused(err):
				return exitf(exitRefused, "%s: %w", addr, err)
			case err != nil:
				return exitf(exitNoServer, "%s: %w", addr, err)
			case !was:
				return exitf(exitNoSession, "session %#x: the servers have no such session: it has ended already, or the id is wrong", id)
			}
			fmt.Fprintf(cmd.OutOrStdout(), "session %#x ended: its ephemeral nodes were deleted\n", id)
			return nil
		},
	}
	c.addFlags(cmd)
	cmd.Flags().BoolVar(&yes, "yes", false, "end the session; without it, nothing is done")
	return cmd
}

// parseSession reads a session id: hexadecimal with 0x, as zklock and the servers print it, or
// decimal, as clients print it, perhaps with a minus sign.
func parseSession(s string) (uint64, error) {
	var id uint64
	var err error
	if hex, ok := strings.CutPrefix(s, "0x"); ok {
		id, err = strconv.ParseUint(hex, 16, 64)
	} else if id, err = strconv.ParseUint(s, 10, 64); err != nil {
		var signed int64
		signed, err = strconv.ParseInt(s, 10, 64)
		id = uint64(signed)
	}
	if err != nil || id == 0 {
		return 0, fmt.Errorf("%q is no session id: give one as zklock ls prints it, such as 0x10000658c6e0000", s)
	}
	return id, nil
}

// dialInTurn returns a dial of a server's addresses, over TLS if the flags ask for it.
func (c *connection) dialInTurn(server string) func(timeout time.Duration) (net.Conn, error) {
	lookup := func(ctx context.Context) ([]string, error) { return expire.Addresses(ctx, server) }
	return expire.InTurn(lookup, func(at string, timeout time.Duration) (net.Conn, error) {
		config := configFor(c.tlsBase, c.files, server)
		d := &net.Dialer{Timeout: timeout}
		if config == nil {
			return d.Dial("tcp", at)
		}
		return tls.DialWithDialer(d, "tcp", at, config)
	})
}
