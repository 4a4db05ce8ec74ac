// Package zklockgocron runs each of gocron's jobs on one host at a time. It provides a [Locker],
// with a lock for each job, and an [Elector], with one leader for all jobs. If a scheduler has
// both, gocron asks only the Elector.
//
// Both decide only whether a run begins. The context that gocron gives a job ends with the
// scheduler and not with the lock, so a job that loses its lock continues, and may overlap with the
// next run. The Session logs the loss, and [zklock.Trace] reports it. A job that must stop then
// takes the lock itself with TryDo, as the package's example does. It then also has a token for its
// writes.
//
// Shut down in this order: the scheduler, whose Shutdown waits for its jobs (ten seconds, unless
// WithStopTimeout sets another limit); then the Elector's context; then the Session.
package zklockgocron

import (
	"context"
	"fmt"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/zklock/zklock"
)

// Locker is a [gocron.Locker], for gocron.WithDistributedLocker or WithDistributedJobLocker. Each
// job has a lock named after it. Name each job with gocron.WithName: otherwise gocron uses the name
// of the function, which may differ in the next version of the program.
type Locker struct {
	s    *zklock.Session
	root string
	opts []zklock.MutexOption
}

// NewLocker returns a Locker whose locks are below root, at zklock.PathOf(root, name), and sends
// nothing. All hosts of a program use the same root, and each program has its own root.
//
// For atLeast, counted from its beginning, a run excludes other hosts even if it has ended
// (zklock.WithMinHold). atLeast must be longer than the difference between the times at which the
// hosts are due, and shorter than the time between two runs. With 0, a job that is shorter than
// that difference runs once on each host. Closing the Session frees the lock. If that happens soon
// after a run, a host that is due later runs the job again.
//
// For cron jobs, and jobs with the same gocron.WithStartAt on all hosts, the times differ as the
// clocks do. Other jobs by duration are due at any time of the period on each host: give nearly the
// period, or use an Elector.
func NewLocker(s *zklock.Session, root string, atLeast time.Duration, opts ...zklock.MutexOption) (*Locker, error) {
	if atLeast != 0 {
		opts = append([]zklock.MutexOption{zklock.WithMinHold(atLeast)}, opts...)
	}
	l := &Locker{s: s, root: root, opts: opts}
	if _, err := l.mutex("job"); err != nil { // checks the root, the options and the Session
		return nil, err
	}
	return l, nil
}

func (l *Locker) mutex(name string) (*zklock.Mutex, error) {
	return zklock.NewMutex(l.s, zklock.PathOf(l.root, name), l.opts...)
}

// Lock takes the lock of a job if it is free, and does not wait. After any error gocron skips the
// run, and passes the error to AfterLockError. zklock.ErrNotAcquired means that another host has
// begun the job. After other errors the job may not have run on any host: for example,
// zklock.ErrNotConnected means that no server responded.
func (l *Locker) Lock(ctx context.Context, name string) (gocron.Lock, error) {
	m, err := l.mutex(name)
	if err != nil {
		return nil, err
	}
	// Two schedulers may share a Session, and a context with an owner or a hold, so each run is an
	// owner of its own.
	hold, err := m.TryAcquire(zklock.WithOwner(ctx, zklock.NewOwner("")))
	if err != nil {
		return nil, err
	}
	return lock{hold}, nil
}

type lock struct{ hold *zklock.Hold }

// Unlock releases the lock. gocron calls it when the job has ended, and drops the error. At a
// shutdown ctx has ended, and Release then tries for half a second.
func (l lock) Unlock(ctx context.Context) error { return l.hold.Release(ctx) }

// Elector is a [gocron.Elector], for gocron.WithDistributedElector: the jobs of all schedulers run
// on the leader. Jobs that are running when the leader loses its leadership continue, and may
// overlap with the next leader's jobs. Because clocks differ, a run that is due just as the leader
// changes may run on both hosts or on neither.
type Elector struct{ election *zklock.Election }

// NewElector returns an Elector that leads while the candidate leads.
func NewElector(e *zklock.Election) *Elector { return &Elector{e} }

// Run campaigns, and leads when elected, until ctx ends. It returns the error of
// zklock.Election.Run: the cause of ctx, or an error for which zklock.IsFinal is true. After
// that, IsLeader returns an error.
func (e *Elector) Run(ctx context.Context) error {
	return e.election.Run(ctx, func(ctx context.Context, _ *zklock.Hold) error {
		<-ctx.Done()
		return context.Cause(ctx)
	})
}

// IsLeader returns nil while this candidate leads. It sends nothing, and compares the clock with
// the lease first.
func (e *Elector) IsLeader(context.Context) error {
	if e.election.Hold() == nil {
		return fmt.Errorf("zklockgocron: this candidate does not lead: %v", e.election)
	}
	return nil
}
