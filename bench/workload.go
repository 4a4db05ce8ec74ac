package main

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
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
	Waiters  int           // if set: so many wait, over the sessions and locks, and their cost is measured
	Holding  bool          // if set: each session holds a lock of its own, and the server's requests are counted
	Connect  bool          // if set: from no connection to the first grant, and back
	Turns    int           // if set: one of two clients takes the lock so often, then the other once, and so on: neither waits
	TakeOver bool          // if set: the holder's process is killed, and the time after the end of its session is measured
	Guard    bool          // with TakeOver: the holder has a guard, and the time after its death is measured
	File     bool          // with TakeOver: the holder has a session file, and is started again after its death
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
	Mallocs  float64       // for each acquisition; 0 if unknown
	Bytes    float64       // for each waiter, of heap and stacks
	Requests float64       // that the server receives in a second
	Routines float64       // goroutines for each waiter, including its caller's
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
	if w.Connect {
		return connect(open, path, d)
	}
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
	if w.Holding {
		return holding(sessions, path)
	}
	if w.Turns > 0 {
		return turns(sessions, w, path, d)
	}
	seen := inside{in: make([]atomic.Int32, w.Locks)}
	var mu sync.Mutex
	var times []time.Duration
	var all sync.WaitGroup
	owners, readers := make([][]lock, w.Sessions*w.Threads), make([][]lock, w.Sessions*w.Threads)
	for i := range owners {
		s := sessions[i/w.Threads]
		for k := range w.Locks {
			name := fmt.Sprintf("%s-%d", path, k)
			if w.isRecipe() {
				l, reader := s.(family).recipe(w, name)
				owners[i], readers[i] = append(owners[i], l), append(readers[i], reader)
			} else {
				owners[i] = append(owners[i], s.lock(name))
			}
		}
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	cpu, start := cpuTime(), time.Now()
	end := start.Add(d)
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
	r.Took, r.CPU = time.Since(start), cpuTime()-cpu
	runtime.ReadMemStats(&after)
	if err != nil {
		return r, err
	}
	slices.Sort(times)
	r.Ops, r.P50, r.Overlaps = len(times), times[len(times)/2], int(seen.overlaps.Load())
	r.Between = (r.Took - time.Duration(seen.held.Load())) / time.Duration(r.Ops)
	r.CPU /= time.Duration(r.Ops)
	r.Mallocs = float64(after.Mallocs-before.Mallocs) / float64(r.Ops)
	return r, nil
}

// turns has two clients take one lock, a busy one and a rare one, neither of which ever waits.
func turns(sessions []session, w workload, path string, d time.Duration) (r result, err error) {
	busy, rare := sessions[0].lock(path+"-0"), sessions[1].lock(path+"-0")
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	cpu, start := cpuTime(), time.Now()
	for i := 0; time.Since(start) < d; i++ {
		l := busy
		if i%(w.Turns+1) == w.Turns {
			l = rare
		}
		if err := l.acquire(); err != nil {
			return r, err
		}
		if err := l.release(); err != nil {
			return r, err
		}
		r.Ops++
	}
	r.Took, r.CPU = time.Since(start), (cpuTime()-cpu)/time.Duration(r.Ops)
	runtime.ReadMemStats(&after)
	r.P50 = r.Took / time.Duration(r.Ops)
	r.Mallocs = float64(after.Mallocs-before.Mallocs) / float64(r.Ops)
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
		l := sessions[i/w.Burst%len(sessions)].lock(path)
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
	cpu, start := cpuTime(), time.Now()
	if err := first.release(); err != nil {
		return r, err
	}
	for range w.Drain {
		if e := <-errs; e != nil {
			err = e
		}
	}
	r = result{Ops: w.Drain, Took: time.Since(start), Overlaps: int(seen.overlaps.Load()), CPU: (cpuTime() - cpu) / time.Duration(w.Drain)}
	r.P50 = r.Took / time.Duration(w.Drain)
	return r, err
}

// received returns the number of requests that the server has received.
var received func() (int, error)

// holding counts the server's requests while every session holds.
func holding(sessions []session, path string) (r result, err error) {
	for i, s := range sessions {
		if err := s.lock(fmt.Sprintf("%s-%d", path, i)).acquire(); err != nil {
			return r, err
		}
	}
	time.Sleep(timeout / 3) // until each has its rhythm
	before, err := received()
	if err != nil {
		return r, err
	}
	start := time.Now()
	time.Sleep(timeout)
	after, err := received()
	r.Took, r.Ops = time.Since(start), len(sessions)
	r.Requests = float64(after-before) / r.Took.Seconds()
	return r, err
}

// waiters has many clients wait, and measures the cost of each.
func waiters(sessions []session, w workload, path string) (r result, err error) {
	var all sync.WaitGroup
	var failed atomic.Pointer[error]
	holders := make([]lock, w.Locks)
	name := func(k int) string { return fmt.Sprintf("%s-%d", path, k) }
	for k := range holders {
		holders[k] = sessions[0].lock(name(k))
		if err := holders[k].acquire(); err != nil {
			return r, err
		}
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	routines, start := runtime.NumGoroutine(), time.Now()
	for i := range w.Waiters {
		l := sessions[i%len(sessions)].lock(name(i % w.Locks))
		all.Go(func() {
			err := l.acquire()
			if err == nil {
				err = l.release()
			}
			if err != nil {
				failed.Store(&err)
			}
		})
		for at := i / w.Locks; (i+1)%w.Locks == 0 && queued(name(w.Locks-1)) < at+2; {
			time.Sleep(time.Millisecond)
		}
	}
	for k := range holders {
		for queued(name(k)) < w.Waiters/w.Locks+1 {
			time.Sleep(time.Millisecond)
		}
	}
	r.Took = time.Since(start)
	time.Sleep(time.Second) // most likely until the last watches are set
	runtime.GC()
	runtime.ReadMemStats(&after)
	n := float64(w.Waiters)
	r.Ops = w.Waiters
	r.Bytes = (float64(after.HeapAlloc+after.StackInuse) - float64(before.HeapAlloc+before.StackInuse)) / n
	r.Routines = float64(runtime.NumGoroutine()-routines) / n
	for k := range holders {
		if err := holders[k].release(); err != nil {
			return r, err
		}
	}
	all.Wait()
	if e := failed.Load(); e != nil {
		err = *e
	}
	return r, err
}

// connect measures the time that each run of a command needs until its first grant.
func connect(open func() (session, error), path string, d time.Duration) (r result, err error) {
	var times []time.Duration
	start := time.Now()
	for time.Since(start) < d || len(times) < 5 {
		began := time.Now()
		s, err := open()
		if err != nil {
			return r, err
		}
		l := s.lock(path + "-0")
		if err := l.acquire(); err != nil {
			return r, err
		}
		times = append(times, time.Since(began))
		err = l.release()
		s.close()
		if err != nil {
			return r, err
		}
	}
	slices.Sort(times)
	return result{Ops: len(times), Took: time.Since(start), P50: times[len(times)/2]}, nil
}

func cpuTime() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
