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

func (w *worker) enter(s stage) {
	w.r.mu.Lock()
	defer w.r.mu.Unlock()
	w.stage, w.since = s, time.Now()
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
		o := w.round(m)
		w.enter(idle)
		if zklock.IsFinal(o.err) {
			w.r.stop(o.err) // the member leaves, and then no shard is wanted
		}
		if isWanted, _ := w.wish(); !isWanted || o.isAsked {
			continue
		}
		if o.worked >= goodWork || errors.Is(o.err, zklock.ErrLost) {
			pause = 0
		}
		w.rest(o, pause.next(workMax))
	}
}

type outcome struct {
	err      error // of the lock
	workErr  error // of the function
	isCalled bool  // the function was
	isAsked  bool  // to end, or to stop waiting
	worked   time.Duration
}

// rest reports a function that returned early, and pauses before the next round, as long as the
// shard is wanted.
func (w *worker) rest(o outcome, d time.Duration) {
	log, isLost := w.r.g.o.log, errors.Is(o.err, zklock.ErrLost)
	switch {
	case zklock.IsFinal(o.err): // Run returns it
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
	ctx, stop := context.WithCancelCause(context.Background()) // an owner or a hold in Run's context would re-enter the lock
	defer stop(nil)
	granted, done := make(chan *zklock.Hold, 1), make(chan struct{})
	w.enter(queued)
	go func() {
		defer close(done)
		o.err = m.Do(ctx, func(ctx context.Context, hold *zklock.Hold) error {
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
			if isWanted, _ := w.wish(); !isWanted { // it leaves the queue
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
	var watch <-chan zk.Event // of the queue; nothing has changed there as long as it has not fired
	var again <-chan time.Time
	for {
		isWanted, isLast := w.wish()
		if !isWanted && isLast {
			return true
		}
		if !isWanted && watch == nil {
			others, events, err := w.r.l.behind(hold)
			if others {
				return true
			}
			if watch, again = events, time.After(lookAgain); err != nil {
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
			watch = nil
		case <-again:
			watch = nil
		}
	}
}

// awaitReturn waits until the function has returned and the shard is released, however long that
// takes.
func (w *worker) awaitReturn(done <-chan struct{}) {
	w.enter(returning)
	since := time.Now()
	for ticker := time.NewTicker(sayAgain); ; {
		select {
		case <-done:
			ticker.Stop()
			return
		case <-ticker.C:
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
		s.Waiting = max(s.Waiting, now.Sub(w.idleFrom))
		s.Unserved += now.Sub(w.idleFrom)
	}
}
