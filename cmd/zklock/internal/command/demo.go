package command

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/zklock/zklock/cmd/zklock/internal/demo"
)

func newDemoCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "demo",
		Short: "Show the lock at work: holders are killed, cut off and stopped",
		Long: `Demo shows the lock at work, and needs nothing: it starts a ZooKeeper server in
this process, and three workers, processes of this binary, that contend for one
lock. While they hold, one is killed, one is cut off from the server, and one is
stopped between its check of the lock and its write (not on Windows, where no
process can be stopped). At the end it prints what was verified. The exit code
is 1 if a check failed.`,
		Args:              none,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if os.Getenv(demo.EnvWorker) != "" {
				return demo.RunWorker()
			}
			ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGPIPE) // and end the workers
			defer stop()
			err := demo.Run(ctx, cmd.OutOrStdout())
			switch {
			case ctx.Err() != nil:
				return exitf(exitSignal+int(syscall.SIGINT), "demo: interrupted")
			case err != nil:
				return exitf(1, "demo: %w", trim(err))
			}
			return nil
		},
	}
}
