// Package schedulers has small programs that use zklock together with other libraries, each with
// its test: [cron], [errgroup] with net/http, and [fx]. For gocron there is contrib/zklockgocron.
//
// # Task queues
//
// asynq needs one Scheduler for all hosts. Create one in the function of Campaign, Start it, wait
// until the context ends, and Shutdown: a Scheduler does not start twice. River needs no lock,
// because it elects a leader in its database.
//
// [cron]: https://pkg.go.dev/github.com/robfig/cron/v3
// [errgroup]: https://pkg.go.dev/golang.org/x/sync/errgroup
// [fx]: https://pkg.go.dev/go.uber.org/fx
package schedulers
