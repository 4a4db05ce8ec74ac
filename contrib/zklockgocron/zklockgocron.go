// Package zklockgocron has gocron's jobs run on one host at a time: a [Locker], with a lock for each job, or an [Elector], with one leader
// for all jobs. If a scheduler has both, gocron asks the Elector only.
//
// Both decide whether a run begins, and no more. The context that gocron gives a job ends with the scheduler and not with the lock, so a job
// whose lock is lost goes on, and may run beside the next. The loss is logged by the Session, and [zklock.Trace] has it. A job that must stop
// then takes the lock itself: it calls TryDo, as the package's example does. Then it also has a token for what it writes to.
//
// End all in this order: Shutdown of the scheduler, which waits for its jobs (for ten seconds, if WithStopTimeout says nothing else); then
// the Elector's context; then the Session.
package zklockgocron

import (
	"context"
	"fmt"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/zklock/zklock"
)

// Locker is a [gocron.Locker], for gocron.WithDistributedLocker or WithDistributedJobLocker. Each job has a lock by its name. Give it one with
// gocron.WithName: otherwise gocron takes the name of the function, which the next version of the program may have changed.
type Locker struct {
	s    *zklock.Session
	root string
	opts []zklock.MutexOption
}

// NewLocker returns a Locker whose locks are below root, at zklock.PathOf(root, name), and sends nothing. All hosts of a program give the
// same root, and each program another.
//
// For atLeast, from its beginning, a run keeps others off although it has ended (zklock.WithMinHold). It must be longer than the clocks of
// the hosts are apart, and shorter than the time from one run to the next. With 0, a job that takes less time than the clocks are apart runs
// once on each host. The lock is free when the Session is closed: soon after a run, that lets a host whose clock is behind run the job again.
func NewLocker(s *zklock.Session, root string, atLeast time.Duration, opts ...zklock.MutexOption) (*Locker, error) {
	if atLeast != 0 {
		opts = append([]zklock.MutexOption{zklock.WithMinHold(atLeast)}, opts...)
	}
	l := &Locker{s: s, root: root, opts: opts}
	if _, err := l.mutex("job"); err != nil { // the root, the options, the Session
		return nil, err
	}
	return l, nil
}

func (l *Locker) mutex(name string) (*zklock.Mutex, error) {
	return zklock.NewMutex(l.s, zklock.PathOf(l.root, name), l.opts...)
}

// Lock takes the lock of a job if nobody has it, and does not wait: after any error gocron skips the run, and gives the error to AfterLockError.
// zklock.ErrNotAcquired says that another host has begun the job. After other errors the job may have run nowhere: zklock.ErrNotConnected
// says that no server answered.
func (l *Locker) Lock(ctx context.Context, name string) (gocron.Lock, error) {
	m, err := l.mutex(name)
	if err != nil {
		return nil, err
	}
	// Two schedulers may share a Session, and a context with an owner or a hold: each run is an owner of its own.
	hold, err := m.TryAcquire(zklock.WithOwner(ctx, zklock.NewOwner("")))
	if err != nil {
		return nil, err
	}
	return lock{hold}, nil
}

type lock struct{ hold *zklock.Hold }

// Unlock releases the lock. gocron calls it when the job has ended, and drops the error. At a shutdown ctx has ended, and Release then
// tries for half a second.
func (l lock) Unlock(ctx context.Context) error { return l.hold.Release(ctx) }

// Elector is a [gocron.Elector], for gocron.WithDistributedElector: the jobs of all schedulers run on the leader. A leader's jobs that are
// under way go on when it leads no more, beside those of the next. As clocks differ, a run that is due just when the leader changes may be
// made by both or by neither.
type Elector struct{ election *zklock.Election }

// NewElector returns an Elector that leads while the candidate does.
func NewElector(e *zklock.Election) *Elector { return &Elector{e} }

// Run stands for election, and leads when elected, until ctx ends. It returns the error of
// zklock.Election.Run: the cause of ctx, or an error for which zklock.IsFinal is true. From then on
// IsLeader returns an error.
func (e *Elector) Run(ctx context.Context) error {
	return e.election.Run(ctx, func(ctx context.Context, _ *zklock.Hold) error {
		<-ctx.Done()
		return context.Cause(ctx)
	})
}

// IsLeader returns nil while this candidate leads. It answers from memory, and compares the clock with the lease first.
func (e *Elector) IsLeader(context.Context) error {
	if e.election.Hold() == nil {
		return fmt.Errorf("zklockgocron: this candidate does not lead: %v", e.election)
	}
	return nil
}
