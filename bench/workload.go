package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// session is one connected client of a rival.
type session interface {
	lock(path string) lock
	close()
}

// family is a session with more recipes than a mutex.
type family interface {
	// recipe returns the lock that the workload needs. For a read/write lock it also returns the
	// reader's side.
	recipe(w workload, path string) (l, reader lock)
}

// ownerless is a session whose locks do not exclude each other's users.
type ownerless interface {
	// owner returns a session of the same client for one more owner.
	owner() (session, error)
}

// another returns a session for one more owner.
func another(s session) (session, error) {
	if s, ok := s.(ownerless); ok {
		return s.owner()
	}
	return s, nil
}

// lockOf returns the lock that the workload needs.
func lockOf(s session, w workload, path string) (l, reader lock) {
	switch zklock, ok := s.(ours); {
	case w.isRecipe():
		return s.(family).recipe(w, path)
	case w.Several > 0 && ok:
		return zklock.multi(w.Several, path), nil
	case w.Several > 0:
		return inTurn(s, w.Several, path), nil
	}
	return s.lock(path), nil
}

// inTurn acquires several locks one after the other.
func inTurn(s session, n int, path string) lock {
	var all []lock
	for i := range n {
		all = append(all, s.lock(fmt.Sprintf("%s-%d", path, i)))
	}
	return calls{func() (err error) {
		for _, l := range all {
			err = errors.Join(err, l.acquire())
		}
		return err
	}, func() (err error) {
		for _, l := range slices.Backward(all) {
			err = errors.Join(err, l.release())
		}
		return err
	}}
}

// lock is used by one goroutine at a time.
type lock interface {
	acquire() error
	release() error
}

// workload is the task that every rival performs.
type workload struct {
	Name     string
	Sessions int           // the number of clients
	Threads  int           // the number of owners in each
	Locks    int           // the number of locks that each owner takes in turn
	Hold     time.Duration // how long each hold lasts
	Drain    int           // if set: so many wait, over the sessions, and the time until the queue is empty is measured
	Burst    int           // so many of one session queue one after the other
	Waiters  int           // if set: so many queue at once, over the sessions, and their joining is measured, then the drain
	Several  int           // if set: so many locks at a time
	Reads    int           // if set: a read/write lock, and so many of 100 acquisitions are a reader's
	Permits  int           // if set: a semaphore of so many permits
	Election bool          // if set: the holder leads, and hands over in order
}

// isRecipe reports whether the workload needs a recipe or an option other than a plain mutex.
func (w workload) isRecipe() bool { return w.Reads+w.Permits > 0 || w.Election }

// reads reports whether the i-th acquisition of an owner is a reader's. Each owner has an order of
// its own, the same for every rival.
func (w workload) reads(owner, i int) bool { return (61*i+37*owner)%100 < w.Reads }

// room is how many readers or permits may be in at a time.
func (w workload) room() int32 {
	if w.Reads > 0 {
		return 1 << 20
	}
	return int32(max(1, w.Permits))
}

// result has the figures of a workload.
type result struct {
	Ops      int           // acquisitions, each with its release
	Took     time.Duration // all of them
	P50      time.Duration // of an acquire with its release, less the hold
	Between  time.Duration // from the end of a hold to the beginning of the next, if there is one lock and each hold lasts for a while
	Overlaps int           // how often more were in than allowed
	CPU      time.Duration // of the client's process, for each acquisition
	Server   time.Duration // of the servers' processes, for each acquisition; 0 if unknown
	Requests float64       // that the servers receive for each acquisition; 0 if unknown
	Events   float64       // that the servers send for each acquisition
	Mallocs  float64       // for each acquisition; 0 if unknown
	Bytes    float64       // for each waiter, of heap and stacks
	Drain    time.Duration // for each of the waiters, if they are drained
}

func (r result) perSecond() float64 { return float64(r.Ops) / r.Took.Seconds() }

// inside counts the holders of each lock of a workload, by the room that each takes. A writer takes
// all of it.
type inside struct {
	in       []atomic.Int32
	overlaps atomic.Int32
	held     atomic.Int64 // how long, in total
}

func (i *inside) visit(k int, takes, room int32, hold time.Duration) {
	if i.in[k].Add(takes) > room {
		i.overlaps.Add(1)
	}
	if hold > 0 {
		began := time.Now()
		time.Sleep(hold)
		i.held.Add(int64(time.Since(began)))
	}
	i.in[k].Add(-takes)
}

// measure runs a workload in this process for the duration d.
func measure(open func() (session, error), w workload, path string, d time.Duration) (r result, err error) {
	sessions := make([]session, w.Sessions)
	for i := range sessions {
		if sessions[i], err = open(); err != nil {
			return r, err
		}
		defer sessions[i].close()
	}
	if w.Drain > 0 {
		return drain(sessions, w, path)
	}
	if w.Waiters > 0 {
		return waiters(sessions, w, path)
	}
	seen := inside{in: make([]atomic.Int32, w.Locks)}
	var mu sync.Mutex
	var times []time.Duration
	var all sync.WaitGroup
	owners, readers := make([][]lock, w.Sessions*w.Threads), make([][]lock, w.Sessions*w.Threads)
	for i := range owners {
		s := sessions[i/w.Threads]
		if !w.isRecipe() {
			if s, err = another(s); err != nil {
				return r, err
			}
		}
		for k := range w.Locks {
			l, reader := lockOf(s, w, fmt.Sprintf("%s-%d", path, k))
			owners[i], readers[i] = append(owners[i], l), append(readers[i], reader)
		}
	}
	start, end := begin(), time.Now().Add(d)
	for i, locks := range owners {
		n := i % w.Threads
		all.Go(func() {
			var mine []time.Duration
			var failed error
			for k := n * w.Locks / w.Threads; failed == nil && (len(mine) == 0 || time.Now().Before(end)); k = (k + 1) % w.Locks {
				l, takes := locks[k], int32(1)
				if w.reads(i, len(mine)) {
					l = readers[i][k]
				} else if w.Reads > 0 {
					takes = w.room()
				}
				began := time.Now()
				if failed = l.acquire(); failed != nil {
					break
				}
				seen.visit(k, takes, w.room(), w.Hold)
				failed = l.release()
				mine = append(mine, time.Since(began)-w.Hold)
			}
			mu.Lock()
			defer mu.Unlock()
			times = append(times, mine...)
			if failed != nil {
				err = failed
			}
		})
	}
	all.Wait()
	r, failed := start.end(len(times))
	if err = errors.Join(err, failed); err != nil {
		return r, err
	}
	slices.Sort(times)
	r.P50, r.Overlaps = times[len(times)/2], int(seen.overlaps.Load())
	r.Between = (r.Took - time.Duration(seen.held.Load())) / time.Duration(r.Ops)
	return r, nil
}

// queued returns the number of nodes in the queue.
var queued func(path string) int

// drain queues all clients behind one hold, and then releases it.
func drain(sessions []session, w workload, path string) (r result, err error) {
	path += "-0"
	seen := inside{in: make([]atomic.Int32, 1)}
	first := sessions[0].lock(path)
	if err := first.acquire(); err != nil {
		return r, err
	}
	errs := make(chan error, w.Drain)
	for i := range w.Drain {
		s, err := another(sessions[i/w.Burst%len(sessions)])
		if err != nil {
			return r, err
		}
		l := s.lock(path)
		go func() {
			err := l.acquire()
			if err == nil {
				seen.visit(0, 1, 1, 0)
				err = l.release()
			}
			errs <- err
		}()
		for (i+1)%w.Burst == 0 && queued(path) < i+2 {
			time.Sleep(time.Millisecond)
		}
	}
	time.Sleep(time.Second) // most likely until the last watches are set; only the figures depend on it, no check does
	start := begin()
	if err := first.release(); err != nil {
		return r, err
	}
	for range w.Drain {
		if e := <-errs; e != nil {
			err = e
		}
	}
	r, failed := start.end(w.Drain)
	r.P50, r.Overlaps = r.Took/time.Duration(w.Drain), int(seen.overlaps.Load())
	return r, errors.Join(err, failed)
}

// pause is the time from one look at a long queue to the next.
const pause = 100 * time.Millisecond

// waiters has many clients queue at once behind one hold. They have joined when each has its node
// and this process does nothing more. Then the queue is drained.
func waiters(sessions []session, w workload, path string) (r result, err error) {
	path += "-0"
	holder := sessions[0].lock(path)
	if err := holder.acquire(); err != nil {
		return r, err
	}
	errs := make(chan error, w.Waiters)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	start := begin()
	for i := range w.Waiters {
		l := sessions[i%len(sessions)].lock(path)
		go func() {
			err := l.acquire()
			if err == nil {
				err = l.release()
			}
			errs <- err
		}()
	}
	const idle = 10 * time.Millisecond
	var joined time.Time
	var cpu time.Duration
	for quiet, used := 0, cpuTime(); quiet < 5; quiet++ {
		time.Sleep(pause)
		if len(errs) > 0 {
			return r, fmt.Errorf("a waiter ended: %w", <-errs)
		}
		now := cpuTime()
		if now-used > idle || queued(path) <= w.Waiters {
			quiet, joined, cpu = 0, time.Now(), now
		}
		used = cpuTime() // less that of the question
	}
	if r, err = start.end(w.Waiters); err != nil {
		return r, err
	}
	r.Took, r.CPU = joined.Sub(start.at), (cpu-start.client)/time.Duration(w.Waiters)
	runtime.GC()
	runtime.ReadMemStats(&after)
	r.Bytes = (float64(after.HeapAlloc+after.StackInuse) - float64(before.HeapAlloc+before.StackInuse)) / float64(w.Waiters)
	if _, ok := sessions[0].(goZookeeper); ok { // each handoff lists the queue, which would take too long
		return r, nil
	}
	drained := time.Now()
	if err := holder.release(); err != nil {
		return r, err
	}
	for range w.Waiters {
		err = cmp.Or(err, <-errs)
	}
	if err != nil { // most likely a lease ended, because the servers were slow: the queue has been measured
		fmt.Fprintln(os.Stderr, "not drained:", err)
		return r, nil
	}
	r.Drain = time.Since(drained) / time.Duration(w.Waiters)
	return r, nil
}
