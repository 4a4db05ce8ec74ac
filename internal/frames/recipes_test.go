package frames

// The scenarios of recipes with more than one queue of one root: semaphore, several locks together,
// election.

import (
	"context"
	"time"

	"github.com/zklock/zklock"
)

// permits has the clients take all permits, so one client holds at a time.
func (r *frameRun) permits(k int) {
	r.subs, r.more = []string{"locks", "leases"}, k
	r.lockOf = func(s *zklock.Session, path string) (zklock.Lock, error) {
		sem, err := zklock.NewSemaphore(s, path, k)
		if err != nil {
			return nil, err
		}
		return sem.Permits(k), nil
	}
}

var semaphoreScenarios = []frameScenario{
	{name: "permits, first and free", run: func(r *frameRun) {
		r.permits(2)
		ctx, cancel := r.u.context(r.patience())
		defer cancel()
		r.u.connect(ctx)
		r.begin()
		h := r.u.acquire(r.patience())
		r.dwell()
		h.release()
		r.dwell()
		r.finish()
	}},
	{name: "a permit, free", run: func(r *frameRun) {
		r.permits(1)
		r.ready()
		r.takes()
	}},
	{name: "permits, waited for", run: func(r *frameRun) {
		r.permits(2)
		r.ready(r.o)
		r.waits()
	}},
	{name: "permits, second in line", run: func(r *frameRun) {
		r.permits(1)
		r.ready(r.o, r.third)
		ahead := r.o.acquire(r.patience())
		between := r.third.start()
		r.queued(1 + 2)
		r.begin()
		w := r.u.start()
		r.dwell()
		ahead.release()
		between.wait().release()
		h := w.wait()
		r.dwell()
		r.finish(h)
	}},
	{name: "permits, handed over by the client", run: func(r *frameRun) {
		r.permits(2)
		r.ready(r.o)
		r.handsOver(2 + 3)
	}},
	{name: "permits, a try in vain", run: func(r *frameRun) {
		r.permits(2)
		r.ready(r.o)
		r.triesInVain()
	}},
	{name: "permits, a timed-out wait", run: func(r *frameRun) {
		r.permits(2)
		r.ready(r.o)
		r.waitsInVain()
	}},
}

// frameMulti is an acquire of two locks together, and its hold.
type frameMulti struct {
	c     *frameClient
	done  chan struct{}
	h     *zklock.MultiHold
	holds []*frameHold
}

// together has the clients use two roots below the lock path: alone each is a mutex.
func (r *frameRun) together() {
	r.subs, r.more = []string{"a", "b"}, 1
	r.lockOf = func(s *zklock.Session, path string) (zklock.Lock, error) { return zklock.NewMutex(s, path+"/a") }
}

// second has the client use the second lock.
func (c *frameClient) second() { c.mutex("/b") }

// both begins to acquire a mutex and a write lock together.
func (c *frameClient) both(d time.Duration, expected ...error) *frameMulti {
	return c.bothBy("Multi.Acquire", (*zklock.Multi).Acquire, d, expected)
}

func (c *frameClient) bothBy(what string, enter func(*zklock.Multi, context.Context) (*zklock.MultiHold, error), d time.Duration, expected []error) *frameMulti {
	r, f := c.r, &frameMulti{c: c, done: make(chan struct{})}
	var aOpts []zklock.MutexOption
	var bOpts []zklock.RWMutexOption
	for _, o := range r.lockOpts {
		aOpts, bOpts = append(aOpts, o), append(bOpts, o)
	}
	a, err := zklock.NewMutex(c.s, r.root+"/a", aOpts...)
	if err != nil {
		r.failf("%v", err)
	}
	b, err := zklock.NewRWMutex(c.s, r.root+"/b", bOpts...)
	if err != nil {
		r.failf("%v", err)
	}
	m, err := zklock.NewMulti(b.WriteLock(), a)
	if err != nil {
		r.failf("%v", err)
	}
	ctx, cancel := c.context(d)
	go func() {
		defer close(f.done)
		defer cancel()
		err := c.bounded(what, ctx, callGrace, func() (err error) {
			f.h, err = enter(m, ctx)
			return err
		})
		if err != nil {
			c.refused(what, err, append((&frameHold{c: c}).expected(), expected...)...)
			f.h = nil
			return
		}
		for _, h := range f.h.Holds() {
			f.holds = append(f.holds, r.granted(c, h))
		}
		if len(f.holds) != 2 {
			r.failf("%d holds of two locks", len(f.holds))
		}
	}()
	return f
}

func (f *frameMulti) wait() *frameMulti {
	<-f.done
	return f
}

// release releases both. It does nothing if they were not acquired.
func (f *frameMulti) release() {
	if f.h == nil {
		return
	}
	for _, b := range f.holds {
		b.end()
		close(b.done)
	}
	ctx, cancel := f.c.context(f.c.r.patience())
	defer cancel()
	err := f.c.bounded("MultiHold.Release", ctx, callGrace, func() error { return f.h.Release(ctx) })
	if err != nil {
		f.holds[0].refused("MultiHold.Release", err)
	}
}

func (r *frameRun) waitsForBoth() {
	ahead := r.o.acquire(r.patience())
	r.begin()
	f := r.u.both(r.patience())
	r.dwell()
	ahead.release()
	f.wait()
	r.dwell()
	f.release()
	r.finish()
}

var multiScenarios = []frameScenario{
	{name: "two locks, free", run: func(r *frameRun) {
		r.together()
		r.ready()
		r.begin()
		f := r.u.both(r.patience()).wait()
		r.dwell()
		f.release()
		r.dwell()
		r.finish()
	}},
	{name: "two locks, the first is waited for", run: func(r *frameRun) {
		r.together()
		r.ready(r.o)
		r.waitsForBoth()
	}},
	{name: "two locks, the second is waited for", run: func(r *frameRun) {
		r.together()
		r.ready(r.o)
		r.o.second()
		r.waitsForBoth()
	}},
	{name: "two locks, handed over by the client", run: func(r *frameRun) {
		r.together()
		r.ready(r.o, r.third)
		r.o.second()
		f := r.u.both(r.patience()).wait()
		second, first := r.o.start(), r.third.start()
		r.queued(4)
		r.begin()
		r.dwell()
		f.release()
		holds := []*frameHold{second.wait(), first.wait()}
		r.dwell()
		r.finish(holds...)
	}},
	{name: "two locks, handed over within the session", run: func(r *frameRun) {
		r.together()
		r.ready()
		f := r.u.both(r.patience()).wait()
		x, y := r.u.another(), r.u.another()
		y.second()
		first, second := x.start(), y.start()
		r.queued(4)
		r.begin()
		f.release()
		holds := []*frameHold{first.wait(), second.wait()}
		r.dwell()
		r.finish(holds...)
	}},
	{name: "two locks, one handed over by the client and one within the session", run: func(r *frameRun) {
		r.together()
		r.ready(r.o)
		r.o.second()
		f := r.u.both(r.patience()).wait()
		second, first := r.o.start(), r.u.another().start()
		r.queued(4)
		r.begin()
		f.release()
		holds := []*frameHold{second.wait(), first.wait()}
		r.dwell()
		r.finish(holds...)
	}},
	{name: "two locks in new lock roots, and another queues at one", run: func(r *frameRun) {
		r.together()
		r.lockOpts = []zklock.LockOption{zklock.WithContainer()}
		r.ready(r.o)
		r.begin()
		r.u.both(r.patience()).wait().release()
		f := r.u.both(r.patience()).wait()
		w := r.o.start()
		r.dwell()
		f.release()
		next := w.wait()
		r.dwell()
		r.finish(next)
	}},
	{name: "two locks, a try in vain", run: func(r *frameRun) {
		r.together()
		r.ready(r.o)
		r.o.second()
		ahead := r.o.acquire(r.patience())
		r.begin()
		f := r.u.bothBy("Multi.TryAcquire", (*zklock.Multi).TryAcquire, r.patience(), []error{zklock.ErrNotAcquired, zklock.ErrNotConnected}).wait()
		if f.h != nil {
			r.failf("both locks were acquired, and another has one")
		}
		r.finish(ahead)
	}},
	{name: "two locks, a timed-out wait for the second", run: func(r *frameRun) {
		r.together()
		r.ready(r.o)
		r.o.second()
		ahead := r.o.acquire(r.patience())
		r.begin()
		f := r.u.both(9*time.Second, context.DeadlineExceeded).wait()
		if f.h != nil {
			r.failf("both locks were acquired, and another has one")
		}
		r.dwell()
		r.finish(ahead)
	}},
}

// frameCampaign is a campaign of the client under test.
type frameCampaign struct {
	e           *zklock.Election
	leads, done chan struct{} // it leads for the first time; it has ended
	stop        chan struct{} // closed when it is to end
}

// campaign campaigns. After a loss it campaigns again, until it is stopped. Its nodes are a
// mutex's.
func (c *frameClient) campaign(expected ...error) *frameCampaign {
	f := &frameCampaign{leads: make(chan struct{}), done: make(chan struct{}), stop: make(chan struct{})}
	var err error
	if f.e, err = zklock.NewElection(c.s, c.r.root); err != nil {
		c.r.failf("%v", err)
	}
	ctx, cancel := c.context(c.r.patience())
	reigns := 0
	lead := func(ctx context.Context, hold *zklock.Hold) error {
		b := c.r.granted(c, hold)
		if reigns++; reigns == 1 {
			close(f.leads)
		}
		select {
		case <-f.stop:
		case <-ctx.Done():
		}
		b.end()
		close(b.done)
		return nil
	}
	go func() {
		defer close(f.done)
		defer cancel()
		err := c.bounded("Campaign", ctx, callGrace, func() error { return f.e.Campaign(ctx, lead) })
		if err != nil {
			c.refused("Campaign", err, append((&frameHold{c: c}).expected(), expected...)...)
		}
	}()
	return f
}

// led returns when it leads, or has ended without leading.
func (f *frameCampaign) led() {
	select {
	case <-f.leads:
	case <-f.done:
	}
}

// end has the leader return.
func (f *frameCampaign) end() {
	close(f.stop)
	<-f.done
}

var electionScenarios = []frameScenario{
	{name: "a campaign, nobody else stands", run: func(r *frameRun) {
		r.ready()
		r.begin()
		f := r.u.campaign()
		f.led()
		r.dwell()
		f.end()
		r.dwell()
		r.finish()
	}},
	{name: "a campaign, behind a leader", run: func(r *frameRun) {
		r.ready(r.o)
		ahead := r.o.acquire(r.patience())
		r.begin()
		f := r.u.campaign()
		r.dwell()
		ahead.release()
		f.led()
		r.dwell()
		f.end()
		r.finish()
	}},
	{name: "a leader resigns, another follows", run: func(r *frameRun) {
		r.ready(r.o)
		f := r.u.campaign(zklock.ErrResigned)
		f.led()
		w := r.o.start()
		r.queued(2)
		r.begin()
		r.dwell()
		ctx, cancel := r.u.context(r.patience())
		defer cancel()
		err := r.u.bounded("Resign", ctx, callGrace, func() error { return f.e.Resign(ctx) })
		if err != nil {
			r.u.refused("Resign", err, (&frameHold{c: r.u}).expected()...)
		}
		f.end()
		next := w.wait()
		r.dwell()
		r.finish(next)
	}},
}
