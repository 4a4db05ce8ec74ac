package zklockgocron_test

// The helpers of the tests: a server, Sessions and schedulers whose clocks differ, in one bubble of
// virtual time.

import (
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/contrib/zklockgocron"
	"github.com/zklock/zklock/zktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	period  = time.Minute            // from a run of the job to the next
	apart   = 100 * time.Millisecond // the clock of each host is behind that of the one before it by so much
	timeout = 30 * time.Second       // of sessions
)

// scene has a server, and a job that hosts run. Its first run is due a period after the beginning.
type scene struct {
	t     *testing.T
	net   *zktest.Network
	srv   *zktest.Server
	began time.Time
	apart time.Duration // each host runs the job so much later than the one before it

	mu      sync.Mutex     // guards the fields below
	work    func(host int) // of the job
	runs    []run
	refused []error // given to AfterLockError
	running int
	most    int // that ran at a time
}

type run struct {
	host int
	at   time.Duration // since the beginning
}

func inVirtualTime(t *testing.T, f func(t *testing.T, sc *scene)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		sc := &scene{t: t, net: zktest.NewNetwork(), began: time.Now(), apart: apart, work: func(int) { time.Sleep(10 * time.Millisecond) }}
		sc.srv = zktest.Start(t, zktest.WithNetwork(sc.net))
		f(t, sc)
	})
}

func (sc *scene) connect() *zklock.Session {
	sc.t.Helper()
	s, err := zklock.Connect(sc.t.Context(), sc.srv.Addr(), zklock.WithDialer(sc.net.Dial), zklock.WithSessionTimeout(timeout),
		zklock.WithLogger(slog.New(slog.DiscardHandler)))
	require.NoError(sc.t, err)
	sc.t.Cleanup(func() { _ = s.Close() })
	return s
}

func (sc *scene) locker(s *zklock.Session, atLeast time.Duration) *zklockgocron.Locker {
	sc.t.Helper()
	l, err := zklockgocron.NewLocker(s, "/jobs", atLeast)
	require.NoError(sc.t, err)
	return l
}

// schedule has a host run the job, by its own clock, until stop.
func (sc *scene) schedule(host int, with gocron.SchedulerOption, opts ...gocron.JobOption) (stop func()) {
	sc.t.Helper()
	scheduler, err := gocron.NewScheduler(with)
	require.NoError(sc.t, err)
	stop = func() { require.NoError(sc.t, scheduler.Shutdown()) }
	due := sc.began.Add(period + time.Duration(host)*sc.apart)
	for !due.After(time.Now()) {
		due = due.Add(period)
	}
	_, err = scheduler.NewJob(gocron.DurationJob(period), gocron.NewTask(func() { sc.run(host) }), append([]gocron.JobOption{
		gocron.WithName("report"), gocron.WithStartAt(gocron.WithStartDateTime(due)),
		gocron.WithEventListeners(gocron.AfterLockError(func(_ uuid.UUID, _ string, err error) {
			sc.mu.Lock()
			defer sc.mu.Unlock()
			sc.refused = append(sc.refused, err)
		})),
	}, opts...)...)
	require.NoError(sc.t, err)
	scheduler.Start()
	return stop
}

// lock schedules the job with a lock.
func (sc *scene) lock(host int, l gocron.Locker) (stop func()) {
	return sc.schedule(host, gocron.WithDistributedLocker(l))
}

// jobIs sets the work of the job from now on. By default it sleeps for 10 ms.
func (sc *scene) jobIs(work func(host int)) {
	sc.mu.Lock()
	defer sc.mu.Unlock()
	sc.work = work
}

func (sc *scene) run(host int) {
	sc.mu.Lock()
	sc.runs = append(sc.runs, run{host, time.Since(sc.began)})
	sc.running++
	sc.most = max(sc.most, sc.running)
	work := sc.work
	sc.mu.Unlock()
	work(host)
	sc.mu.Lock()
	sc.running--
	sc.mu.Unlock()
}

// pass lets periods pass, to the middle between two runs, and returns the hosts that ran the job
// meanwhile.
func (sc *scene) pass(periods int) (hosts []int) {
	sc.t.Helper()
	from := time.Since(sc.began)
	time.Sleep(from.Truncate(period) + time.Duration(periods)*period + period/2 - from)
	synctest.Wait()
	sc.mu.Lock()
	defer sc.mu.Unlock()
	for _, r := range sc.runs {
		if r.at > from {
			hosts = append(hosts, r.host)
		}
	}
	return hosts
}

// refusals returns the errors that gocron has reported, and clears them.
func (sc *scene) refusals() (all []error) {
	sc.mu.Lock()
	defer sc.mu.Unlock()
	all, sc.refused = sc.refused, nil
	return all
}

func (sc *scene) mostAtATime() int {
	sc.mu.Lock()
	defer sc.mu.Unlock()
	return sc.most
}
