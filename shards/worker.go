package shards

// One shard of a member, from the plan that gives it to the member until the function has returned
// and the shard is released.

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/zklock"
)

const (
	workMax   = 30 * time.Second // the longest pause after a function that fails
	goodWork  = time.Minute      // after as much work the pauses begin again
	sayAgain  = time.Minute      // a function that does not return is logged this often
	listAgain = 200 * time.Millisecond

	rejected    = "rejected"
	rejectedMin = time.Second // the shortest pause after a rejection
)

// errAsked is the cause of a function's context that has ended although its hold is not lost.
var errAsked = errors.New("shards: another member takes the shard over, or this member leaves")

// stage is what a worker does.
//
//	queued ── granted ──▶ working ── asked to end, or lost ──▶ returning ── returned ──▶ idle
//	  ▲ └─── unwanted ──────────────────────────────────────────────────────────────────▶ │
//	  └──────────────────────────────── wanted, after a pause ────────────────────────────┘
type stage int

const (
	idle stage = iota
	queued
	working
	returning
)

// worker is one shard that is wanted or worked on. A single goroutine runs its rounds, one after
// the other and across ZooKeeper sessions. So there is never a second function for the shard in
// this process.
type worker struct {
	r       *run
	shard   int
	changed chan struct{} // has a value when a field below may have changed

	// Guarded by run.mu.
	isWanted bool
	reason   string // of the last round's end, as in Idle
	stage    stage
	since    time.Time // of the stage
	idleFrom time.Time // since when the shard is wanted without a function that works on it; otherwise zero
}

func newWorker(r *run, shard int) *worker {
	now := time.Now()
	return &worker{r: r, shard: shard, changed: make(chan struct{}, 1), isWanted: true, since: now, idleFrom: now}
}

func (w *worker) wantLocked(is bool) {
	if w.isWanted != is {
		w.isWanted = is
		w.measureLocked(time.Now())
		w.wake()
	}
}

// measureLocked follows a change: it adds the time for which a wanted shard was not worked on to
// the numbers, or begins to measure it.
func (w *worker) measureLocked(now time.Time) {
	isIdle := w.isWanted && w.stage != working
	switch {
	case isIdle && w.idleFrom.IsZero():
		w.idleFrom = now
	case !isIdle && !w.idleFrom.IsZero():
		w.r.mu.numbers.Unserved += now.Sub(w.idleFrom)
		w.idleFrom = time.Time{}
	}
}

func (w *worker) wake() {
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

// wish is what the plan and the member want of the worker.
func (w *worker) wish() (isWanted, isLast bool) {
	w.r.mu.Lock()
	defer w.r.mu.Unlock()
	return w.isWanted, w.r.mu.isLast
}

// mayQueue reports whether the shard is wanted by a plan that was read in this ZooKeeper session.
func (w *worker) mayQueue() bool {
	isWanted, _ := w.wish()
	return isWanted && w.r.isCurrent()
}

func (w *worker) enter(s stage) {
	w.r.mu.Lock()
	defer w.r.mu.Unlock()
	w.stage, w.since = s, time.Now()
	if s == working {
		w.reason = ""
	}
	w.measureLocked(w.since)
}

// endsUnlessWanted removes the worker if the shard is not wanted. The next wish starts another.
func (w *worker) endsUnlessWanted() bool {
	w.r.mu.Lock()
	defer w.r.mu.Unlock()
	if !w.isWanted {
		delete(w.r.mu.shards, w.shard)
	}
	return !w.isWanted
}

// loop queues and works for as long as the shard is wanted.
func (w *worker) loop() {
	m, _ := w.r.g.mutex(w.shard) // New has checked what it needs
	for pause := backoff(0); !w.endsUnlessWanted(); {
		if !w.mayQueue() {
			<-w.changed
			continue
		}
		o := w.round(m)
		w.enter(idle)
		if w.isRejected(o) {
			pause = max(pause, backoff(rejectedMin/2))
		}
		if isWanted, _ := w.wish(); !isWanted || o.isAsked || o.isStale {
			continue
		}
		if o.worked >= goodWork || errors.Is(o.err, zklock.ErrLost) {
			pause = 0
		}
		w.rest(o, pause.next(workMax))
	}
}

// isRejected records how the round has ended, and reports whether the servers have rejected it.
// Then this member gives up the shard, and tries again later. It leaves the group if that is so for
// all its shards.
func (w *worker) isRejected(o outcome) bool {
	isFinal, isAll := zklock.IsFinal(o.err), true
	w.r.mu.Lock()
	switch w.reason = ""; {
	case isFinal:
		w.reason = rejected
	case errors.Is(o.err, zklock.ErrLost):
		w.reason = "lost"
	case o.isCalled && !o.isAsked:
		w.reason = "failed"
	}
	if isFinal {
		for _, o := range w.r.mu.shards {
			isAll = isAll && o.reason == rejected && o.stage != queued
		}
	}
	w.r.mu.Unlock()
	if isFinal && (isAll || !isRejected(o.err)) {
		w.r.stop(o.err) // no shard is wanted after that
	}
	return isFinal
}

type outcome struct {
	err      error // of the lock
	workErr  error // of the function
	isCalled bool  // the function was
	isAsked  bool  // to end, or to stop waiting
	isStale  bool  // it was granted in a ZooKeeper session in which the plan was not read
	worked   time.Duration
}

// rest reports a function that returned early, and pauses before the next round, as long as the
// shard is wanted.
func (w *worker) rest(o outcome, d time.Duration) {
	log, isLost := w.r.g.o.log, errors.Is(o.err, zklock.ErrLost)
	switch {
	case o.isCalled && isLost:
		w.r.count(func(s *Stats) { s.Lost++ })
	case o.isCalled:
		w.r.count(func(s *Stats) { s.Failed++ })
		log.Warn("shards: the function returned early: it is called again", "path", w.r.l.path, "shard", w.shard, "after", d, "err", o.workErr)
	default:
		log.Warn("shards: cannot get the shard now", "path", w.r.l.path, "shard", w.shard, "again", d, "err", o.err)
	}
	for timer := time.After(d); ; {
		select {
		case <-timer:
			return
		case <-w.changed:
			if isWanted, _ := w.wish(); !isWanted {
				return
			}
		}
	}
}

// round queues for the shard, has the function work, and releases. It returns when all that is
// over.
func (w *worker) round(m *zklock.Mutex) (o outcome) {
	ctx, stop := context.WithCancelCause(context.Background()) // an owner in Run's context may hold the lock, and a hold in it would make Do fail
	defer stop(nil)
	granted, done := make(chan *zklock.Hold, 1), make(chan struct{})
	w.enter(queued)
	go func() {
		defer close(done)
		o.err = m.Do(ctx, func(ctx context.Context, hold *zklock.Hold) error {
			if o.isStale = !w.r.isCurrent(); o.isStale {
				return nil
			}
			w.r.count(func(s *Stats) { s.Started++ }) // first: a function that works has started
			granted <- hold
			began := time.Now()
			o.isCalled, o.workErr = true, errors.New("the function called runtime.Goexit") // unless it returns
			o.workErr = w.call(ctx, hold)
			o.worked = time.Since(began)
			return nil
		})
	}()
	for hold := (*zklock.Hold)(nil); hold == nil && !o.isAsked; {
		select {
		case <-done:
			return o
		case <-w.changed:
			if !w.mayQueue() { // it leaves the queue
				stop(errAsked)
				o.isAsked = true
			}
		case hold = <-granted:
			w.enter(working)
			if o.isAsked = w.work(hold, done); o.isAsked { // otherwise the function has returned, or the loss ends its context
				stop(errAsked)
			}
		}
	}
	w.awaitReturn(done)
	return o
}

// work waits while the function works. It reports whether the function must end because another
// client takes over, or none will.
func (w *worker) work(hold *zklock.Hold, done <-chan struct{}) (isAsked bool) {
	var watch <-chan zk.Event  // of the queue
	var again <-chan time.Time // nothing has changed there as long as neither has fired
	for {
		isWanted, isLast := w.wish()
		if !isWanted && isLast {
			return true
		}
		if !isWanted && again == nil {
			others, err := w.r.l.behind(hold, &watch)
			if others {
				return true
			}
			if again = time.After(lookAgain); err != nil {
				again = time.After(listAgain)
			}
		}
		select {
		case <-done:
			return false
		case <-hold.Lost():
			return false
		case <-w.changed:
		case <-watch:
			watch, again = nil, nil
		case <-again:
			again = nil
		}
	}
}

// awaitReturn waits until the function has returned and the shard is released, however long that
// takes.
func (w *worker) awaitReturn(done <-chan struct{}) {
	w.enter(returning)
	for since := time.Now(); ; {
		select {
		case <-done:
			return
		case <-time.After(sayAgain):
			w.r.g.o.log.Warn("shards: the function has not returned, and no member gets the shard before it has", "path", w.r.l.path, "shard", w.shard,
				"for", time.Since(since).Round(time.Second))
		}
	}
}

// call calls the function. A panic is an error like others, so that it does not end the work on
// other shards.
func (w *worker) call(ctx context.Context, hold *zklock.Hold) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return w.r.f(workContext{ctx, w.r.values}, w.shard, hold)
}

// workContext is a function's context: the context of the work under the hold, with the values of
// Run's context in addition.
type workContext struct {
	context.Context
	values context.Context
}

// Value implements context.Context.
func (c workContext) Value(key any) any {
	if v := c.Context.Value(key); v != nil {
		return v
	}
	return c.values.Value(key)
}

func (w *worker) addToLocked(s *Stats, now time.Time) {
	if w.isWanted {
		s.Wanted++
		if w.reason == rejected && w.stage != queued {
			s.Rejected++
		}
	}
	switch {
	case w.stage == working:
		s.Working++
		if !w.isWanted {
			s.Unwanted++
		}
	case w.stage == returning:
		s.Returning++
		s.LongestReturn = max(s.LongestReturn, now.Sub(w.since))
	}
	if !w.idleFrom.IsZero() {
		reason := w.reason
		if w.stage == returning {
			reason = "returning"
		} else if reason == "" || reason == rejected && w.stage == queued {
			reason = "queued"
		}
		s.Idle = append(s.Idle, Idle{w.shard, w.idleFrom, reason})
		s.Waiting = max(s.Waiting, now.Sub(w.idleFrom))
		s.Unserved += now.Sub(w.idleFrom)
	}
}
