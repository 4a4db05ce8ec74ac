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

// session is one client of a rival's, connected.
type session interface {
	lock(path string) lock
	close()
}

// lock is used by one goroutine at a time.
type lock interface {
	acquire() error
	release() error
}

// workload is what every rival is put to.
type workload struct {
	Name     string
	Sessions int           // clients
	Threads  int           // owners in each
	Locks    int           // that each owner takes in turn
	Hold     time.Duration // how long each hold lasts
	Drain    int           // if set: so many wait over the sessions, and the queue is let go
	Connect  bool          // if set: from nothing to the first grant, and back
}

// result is what came of it.
type result struct {
	Ops      int           // acquisitions, each with its release
	Took     time.Duration // all of them
	P50      time.Duration // of an acquire with its release, less the hold
	Overlaps int           // how often two were in
	CPU      time.Duration // of the client's process, for each
	Mallocs  float64       // for each; 0 where it is not known
}

// perSecond is the acquisitions a second.
func (r result) perSecond() float64 { return float64(r.Ops) / r.Took.Seconds() }

// inside counts who holds, for each lock of a workload.
type inside struct {
	in       []atomic.Int32
	overlaps atomic.Int32
}

func (i *inside) visit(k int, hold time.Duration) {
	if i.in[k].Add(1) != 1 {
		i.overlaps.Add(1)
	}
	if hold > 0 {
		time.Sleep(hold)
	}
	i.in[k].Add(-1)
}

// measure runs a workload for so long, in this process.
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
	seen := inside{in: make([]atomic.Int32, w.Locks)}
	var mu sync.Mutex
	var times []time.Duration
	var all sync.WaitGroup
	owners := make([][]lock, w.Sessions*w.Threads)
	for i := range owners {
		for k := range w.Locks {
			owners[i] = append(owners[i], sessions[i/w.Threads].lock(fmt.Sprintf("%s-%d", path, k)))
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
				began := time.Now()
				if failed = locks[k].acquire(); failed != nil {
					break
				}
				seen.visit(k, w.Hold)
				failed = locks[k].release()
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
	r.CPU /= time.Duration(r.Ops)
	r.Mallocs = float64(after.Mallocs-before.Mallocs) / float64(r.Ops)
	return r, nil
}

// queued tells how many nodes are in the queue.
var queued func(path string) int

// drain queues everybody behind one hold, and then lets go.
func drain(sessions []session, w workload, path string) (r result, err error) {
	path += "-0"
	seen := inside{in: make([]atomic.Int32, 1)}
	first := sessions[0].lock(path)
	if err := first.acquire(); err != nil {
		return r, err
	}
	errs := make(chan error, w.Drain)
	for i := range w.Drain {
		l := sessions[i%len(sessions)].lock(path)
		go func() {
			err := l.acquire()
			if err == nil {
				seen.visit(0, 0)
				err = l.release()
			}
			errs <- err
		}()
	}
	for queued(path) < w.Drain+1 {
		time.Sleep(20 * time.Millisecond)
	}
	time.Sleep(time.Second) // until the last watches are set, most likely: it touches what is measured, and no check
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

// connect is what each run of a command pays.
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
