package zklockgocron_test

// These tests attack the Locker: hosts whose clocks differ, jobs that end late or do not notice a
// loss, names, locks that remain.

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/contrib/zklockgocron"
)

// Three hosts whose clocks differ by more than the job takes run it three times, one after the
// other: a lock does not mean once. With a minimum that is longer than the difference, they run it
// once, and again when it is due again.
func TestLocker_ClocksApart(t *testing.T) {
	for atLeast, want := range map[time.Duration][]int{0: {0, 1, 2, 0, 1, 2}, time.Second: {0, 0}} {
		t.Run(atLeast.String(), func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, sc *scene) {
				for host := range 3 {
					defer sc.lock(host, sc.locker(sc.connect(), atLeast))()
				}
				require.Equal(t, want, sc.pass(2))
				require.Equal(t, 1, sc.mostAtATime())
				require.Len(t, sc.refusals(), 6-len(want))
				require.Empty(t, sc.srv.Children("/jobs/report"), "a lock stays behind")
			})
		})
	}
}

// The README's rows: three hosts run a job of each minute. If they were started 20 s apart, and the
// job is scheduled by its duration, the hosts are due at different times. A minimum of half the
// period does not cover these: then the job runs 90 times an hour.
func TestByDuration_RunsInAnHour(t *testing.T) {
	const startedApart = 20 * time.Second
	for name, c := range map[string]struct {
		apart, atLeast time.Duration // no atLeast: with an Elector
		runs           int
	}{
		"started apart, Locker":                        {startedApart, 30 * time.Second, 90},
		"started apart, Locker with nearly the period": {startedApart, period - time.Second, 60},
		"WithStartAt one time, Locker":                 {apart, 30 * time.Second, 60},
		"started apart, Elector":                       {startedApart, 0, 60},
	} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, sc *scene) {
				sc.apart = c.apart
				if c.atLeast == 0 {
					sc.elect(3)
				} else {
					for host := range 3 {
						defer sc.lock(host, sc.locker(sc.connect(), c.atLeast))()
					}
				}
				sc.pass(1) // all are started
				require.Len(t, sc.pass(60), c.runs)
				require.Equal(t, 1, sc.mostAtATime())
			})
		})
	}
}

// A job that takes longer than the difference between the clocks runs on one host. Until it has
// ended, no host runs it again, not even its own.
func TestLocker_LongJob_OneAtATime(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, sc *scene) {
		sc.jobIs(func(int) { time.Sleep(period + period/4) })
		for host := range 3 {
			defer sc.lock(host, sc.locker(sc.connect(), 0))()
		}
		require.Equal(t, []int{0, 0}, sc.pass(4))
		require.Equal(t, 1, sc.mostAtATime())
		for _, err := range sc.refusals() {
			require.ErrorIs(t, err, zklock.ErrNotAcquired)
		}
	})
}

// Schedulers that share a Session, and even a context that has an owner, exclude each other: no run
// re-enters another's hold.
func TestLocker_SharedSession_NoReentry(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, sc *scene) {
		s := sc.connect()
		ctx := zklock.WithOwner(t.Context(), zklock.NewOwner("all jobs"))
		sc.jobIs(func(int) { time.Sleep(time.Second) })
		for host := range 3 {
			defer sc.schedule(host, gocron.WithDistributedLocker(sc.locker(s, 0)), gocron.WithContext(ctx))()
		}
		require.Equal(t, []int{0, 0}, sc.pass(2))
		require.Equal(t, 1, sc.mostAtATime())
	})
}

// A job's lock is its own, whatever its name: one with a slash is not below another's.
func TestLocker_Names(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, sc *scene) {
		here, there := sc.locker(sc.connect(), 0), sc.locker(sc.connect(), 0)
		names := []string{"report", "report/eu", "..", "", "main.main.func1", "naïve job", strings.Repeat("long/", 100)}
		for _, name := range names {
			lock, err := here.Lock(t.Context(), name)
			require.NoError(t, err, name)
			defer func() { require.NoError(t, lock.Unlock(t.Context())) }()
			_, err = there.Lock(t.Context(), name)
			require.ErrorIs(t, err, zklock.ErrNotAcquired, name)
			require.Len(t, sc.srv.Children(zklock.PathOf("/jobs", name)), 1)
		}
		require.Len(t, sc.srv.Children("/jobs"), len(names))
	})
}

// After Unlock any host can get the lock, even if the scheduler is being shut down, which ends
// gocron's context.
func TestLocker_Unlock_Frees(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, sc *scene) {
		here, there := sc.locker(sc.connect(), 0), sc.locker(sc.connect(), 0)
		for _, shutdown := range []bool{false, true} {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			lock, err := here.Lock(ctx, "report")
			require.NoError(t, err)
			if shutdown {
				cancel()
			}
			require.NoError(t, lock.Unlock(ctx))
			require.Empty(t, sc.srv.Children("/jobs/report"))
			next, err := there.Lock(t.Context(), "report")
			require.NoError(t, err)
			require.NoError(t, next.Unlock(t.Context()))
		}
	})
}

// A scheduler that is shut down in the middle of a run waits for it, and its lock is free then.
// Another scheduler on the same Session continues.
func TestLocker_Shutdown_ReleasesAndAnotherGoesOn(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, sc *scene) {
		s := sc.connect()
		working, finish := make(chan bool), make(chan bool)
		sc.jobIs(func(int) { close(working); <-finish })
		stop := sc.lock(0, sc.locker(s, 0))
		<-working
		go close(finish) // gocron does not sleep while it waits for jobs, so virtual time stands
		stop()
		require.Empty(t, sc.srv.Children("/jobs/report"))

		sc.jobIs(func(int) {})
		defer sc.lock(1, sc.locker(s, 0))()
		require.Equal(t, []int{1, 1}, sc.pass(1), "at once, and when it is due again")
	})
}

// A session ends in the middle of a run. The job does not notice it, and the other host, whose run
// is due later, runs in parallel, as the package documentation states. Unlock returns the loss, and
// the next run on the first host has a lock again.
func TestLocker_SessionLost_JobGoesOn(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, sc *scene) {
		s := sc.connect()
		sc.jobIs(func(host int) {
			if host == 0 {
				sc.srv.ExpireSession(s.Stats().SessionID)
				time.Sleep(time.Second)
			}
		})
		defer sc.lock(0, sc.locker(s, 0))()
		stop := sc.lock(1, sc.locker(sc.connect(), 0))
		require.Equal(t, []int{0, 1}, sc.pass(1))
		require.Equal(t, 2, sc.mostAtATime())
		stop()
		sc.jobIs(func(int) {})
		require.Equal(t, []int{0, 0}, sc.pass(2))

		lock, err := sc.locker(s, 0).Lock(t.Context(), "report")
		require.NoError(t, err)
		sc.srv.ExpireSession(s.Stats().SessionID)
		time.Sleep(time.Second)
		require.ErrorIs(t, lock.Unlock(t.Context()), zklock.ErrLost)
	})
}

// While no server responds, no host runs the job, and the error for AfterLockError states that it
// may not have run on any host. Then it runs again. With a closed Session it does not.
func TestLocker_NoServer_SkippedAndSaid(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, sc *scene) {
		s := sc.connect()
		defer sc.lock(0, sc.locker(s, time.Second))()
		for _, step := range []struct {
			do   func()
			runs []int
			err  error
		}{
			{func() { sc.srv.Stop() }, nil, zklock.ErrNotConnected},
			{func() {
				require.NoError(t, sc.srv.Start())
				m, err := zklock.NewMutex(s, "/other") // a call that waits makes the Session dial without a long pause
				require.NoError(t, err)
				require.NoError(t, m.Do(t.Context(), func(context.Context, *zklock.Hold) error { return nil }))
			}, []int{0}, nil},
			{func() { require.NoError(t, s.Close()) }, nil, zklock.ErrClosed},
		} {
			step.do()
			require.Equal(t, step.runs, sc.pass(1))
			refused := sc.refusals()
			require.Len(t, refused, 1-len(step.runs))
			for _, err := range refused {
				require.ErrorIs(t, err, step.err)
				require.NotErrorIs(t, err, zklock.ErrNotAcquired)
			}
		}
	})
}

// A Session that is closed within the minimum frees the lock: the host whose clock is behind runs
// the job again.
func TestLocker_ClosedWithinMinimum_RunsAgain(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, sc *scene) {
		s := sc.connect()
		ran := make(chan bool, 2)
		sc.jobIs(func(int) { ran <- true })
		stop := sc.lock(0, sc.locker(s, time.Second))
		defer sc.lock(1, sc.locker(sc.connect(), time.Second))()
		<-ran
		synctest.Wait()
		stop()
		require.NoError(t, s.Close())
		<-ran
		require.Equal(t, period+apart, time.Since(sc.began))
	})
}

func TestNewLocker_Refuses(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, sc *scene) {
		s := sc.connect()
		for what, f := range map[string]func() (*zklockgocron.Locker, error){
			"without a Session": func() (*zklockgocron.Locker, error) { return zklockgocron.NewLocker(nil, "/jobs", 0) },
			"a relative root":   func() (*zklockgocron.Locker, error) { return zklockgocron.NewLocker(s, "jobs", 0) },
			"a negative time":   func() (*zklockgocron.Locker, error) { return zklockgocron.NewLocker(s, "/jobs", -1) },
			"an option": func() (*zklockgocron.Locker, error) {
				return zklockgocron.NewLocker(s, "/jobs", 0, zklock.WithLockDelay(-1))
			},
		} {
			l, err := f()
			require.True(t, zklock.IsFinal(err), "%s: %v", what, err)
			require.Nil(t, l)
		}
	})
}
