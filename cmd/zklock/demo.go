package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/zklock/zklock/internal/demo"
)

func newDemoCommand() *cobra.Command {
	var c demo.Config
	var noTimeline bool
	cmd := &cobra.Command{
		Use:   "demo [flags]",
		Short: "Show the lock at work: holders are killed, cut off and stopped",
		Long: `Demo shows the lock at work, and needs nothing: it starts a ZooKeeper server in
this process, and three workers, processes of this binary, that contend for one
lock. While they hold, one is killed, one is cut off from the servers, and one
is stopped between its look at the lock and its write. It ends with what was
verified, and with exit code 1 if anything was not as promised.

With --servers it does the same on servers of yours, below a node of its own
which it removes in the end. Give the --leader-ping that fits their tickTime.` + demoPlatformHelp(),
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			exe, err := os.Executable()
			if err != nil {
				return exitf(exitUsage, "demo: %w", err)
			}
			if c.SessionTimeout < 0 || c.LeaderPing < 0 {
				return exitf(exitUsage, "demo: a time below zero")
			}
			if c.Servers == "" && (c.SessionTimeout > 0 || c.LeaderPing > 0) {
				return exitf(exitUsage, "demo: --session-timeout and --leader-ping go with --servers")
			}
			c.Worker = []string{exe, cmd.Name(), "worker"}
			c.Out = cmd.OutOrStdout()
			if f, ok := c.Out.(*os.File); ok && !noTimeline {
				c.Live = demo.NewTerminal(f)
			}
			ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			err = demo.Run(ctx, c)
			switch {
			case ctx.Err() != nil:
				return exitf(exitSignal+int(syscall.SIGINT), "demo: interrupted")
			case err != nil:
				return exitf(1, "demo: %w", trim(err))
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVarP(&c.Servers, "servers", "s", "", "ZooKeeper `servers` to use in place of one in this process, host:port,host:port/chroot")
	f.DurationVar(&c.SessionTimeout, "session-timeout", 0, "with --servers: session timeout to ask for (default 10s)")
	f.DurationVar(&c.LeaderPing, "leader-ping", 0, "with --servers: two ticks (tickTime) of theirs (default 4s)")
	f.BoolVar(&noTimeline, "plain", false, "print lines only, also on a terminal")
	for _, name := range []string{"servers", "session-timeout", "leader-ping"} {
		_ = cmd.RegisterFlagCompletionFunc(name, cobra.NoFileCompletions)
	}
	cmd.AddCommand(newDemoWorkerCommand())
	return cmd
}

func demoPlatformHelp() string {
	if runtime.GOOS == "windows" {
		return `

On this system a process cannot be stopped, so that part is left out, and the
timeline is printed as lines.`
	}
	return ""
}

// newDemoWorkerCommand is what the demo runs three of.
func newDemoWorkerCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "worker",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if os.Getenv(demo.EnvWorker) == "" {
				return &exitError{exitUsage, errors.New("demo worker: this is for zklock demo to run")}
			}
			c, err := demo.WorkerFromEnvironment()
			if err == nil {
				err = demo.Worker(c)
			}
			if err != nil {
				return &exitError{exitUsage, fmt.Errorf("demo worker: %w", err)}
			}
			return nil
		},
	}
}
