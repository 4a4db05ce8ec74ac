// Package schedulers has small programs that use zklock beside other libraries, each with its test: [cron], [errgroup] with net/http, and
// [fx]. For gocron there is contrib/zklockgocron.
//
// # Task queues
//
// asynq wants one Scheduler for all hosts. Make one in the function of Campaign, Start it, wait until the context ends, and Shutdown: it does
// not start twice. River needs no lock, because it elects a leader in its database.
//
// # Controllers of Kubernetes
//
// Leave LeaderElection off in controller-runtime's Options, and return mgr.Start(ctx) in the function of Campaign. Until they lead, replicas
// then serve nothing: have probes, metrics and webhooks outside the Manager. When ctx ends, Start waits for the reconcilers for
// GracefulShutdownTimeout, 30 s by default. After a stop the next leader waits for that; after a loss it does not. So set what your
// reconcilers need and no more, and have Start's context end that long before the lease does: zklock.Hold.Ending. A Manager starts once, so
// end the process if hold.Err says after Start that the lock is lost.
//
// A resourcelock.Interface of zklock's would use none of the lock. Through it client-go reads and updates a record every two seconds: a
// replica leads while it renews the record, and takes over when that has not changed for LeaseDuration by its own clock. It asks for no
// session, queue, watch or token. So a node with a version would do, and leaders would be no safer than with the Lease that client-go has.
//
// [cron]: https://pkg.go.dev/github.com/robfig/cron/v3
// [errgroup]: https://pkg.go.dev/golang.org/x/sync/errgroup
// [fx]: https://pkg.go.dev/go.uber.org/fx
package schedulers
