package main

import (
	"context"
	"os"
	"os/signal"
	"time"

	"github.com/spf13/cobra"

	"github.com/zklock/zklock/internal/demo"
	"github.com/zklock/zklock/internal/zkserver"
)

// newDemoCommand is what `make demo` runs. It is hidden: it is for who looks at zklock, and not for who uses it.
func newDemoCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "demo",
		Short:  "Show a takeover: three contenders, and the holder is killed",
		Args:   cobra.NoArgs,
		Hidden: true,
		RunE: func(c *cobra.Command, _ []string) error {
			exe, err := os.Executable()
			if err != nil {
				return exitf(exitUsage, "demo: %w", err)
			}
			ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
			defer stop()
			err = demo.Run(ctx, demo.Config{Zklock: exe, Start: startZooKeeper, Out: c.OutOrStdout()})
			if err != nil {
				return exitf(1, "demo: %w", err)
			}
			return nil
		},
	}
}

// startZooKeeper runs an installed ZooKeeper as a child process, on the loopback interface.
func startZooKeeper() (demo.Server, error) {
	srv, err := zkserver.Start(zkserver.Config{TickTime: 500 * time.Millisecond})
	if err != nil {
		return nil, err
	}
	return srv, nil
}
