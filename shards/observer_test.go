package shards

// The observer of a world: it sees which functions run, and asks each hold whether it still
// believes to hold. It knows nothing of the plan.

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/zklock/zklock"
)

// job is one function that runs.
type job struct {
	p       *proc
	hold    *zklock.Hold
	isFreed bool
	excused bool // its session was ended from outside: it is notified later
}

// work is the usual function: it works until its context ends, and takes its time to return.
func (p *proc) work(ctx context.Context, shard int, hold *zklock.Hold) error {
	j := &job{p: p, hold: hold}
	p.w.began(shard, j)
	defer p.w.ended(shard, j)
	stop := context.AfterFunc(hold.Context(), func() { p.w.freed(shard, j) })
	defer stop()
	if p.f != nil {
		return p.f(ctx, shard, hold)
	}
	<-ctx.Done()
	if p.w.return_ != nil {
		time.Sleep(p.w.return_(shard))
	}
	return context.Cause(ctx)
}

// began is where the observer looks for overlaps.
func (w *world) began(shard int, j *job) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if j.p.isDead {
		return
	}
	for _, other := range w.running[shard] {
		switch {
		case other.p == j.p:
			w.failLocked("shard %d: %s runs two functions", shard, j.p.name)
		case !other.p.isDead && !other.excused && !isLost(other.hold):
			w.failLocked("shard %d: %s and %s both work and believe to hold", shard, other.p.name, j.p.name)
		}
	}
	if token := j.hold.Token(); token <= w.tokens[shard] {
		w.failLocked("shard %d: token %d after %d", shard, token, w.tokens[shard])
	} else {
		w.tokens[shard] = token
	}
	w.starts++
	if w.last[shard] != "" && w.last[shard] != j.p.name {
		w.moves++
	}
	if w.last[shard] != "" && w.countLocked(shard) == 0 {
		w.gaps = append(w.gaps, time.Since(w.endedAt[shard]))
		w.idle--
	}
	w.last[shard] = j.p.name
	w.running[shard] = append(w.running[shard], j)
}

// isLost reports whether the hold has ended otherwise than by a release: then the function knows
// that it must stop.
func isLost(h *zklock.Hold) bool {
	err := h.Err()
	return errors.Is(err, zklock.ErrLost) || errors.Is(err, zklock.ErrClosed)
}

func (w *world) failLocked(format string, args ...any) {
	w.failures = append(w.failures, fmt.Sprintf(format, args...))
}

func (w *world) countLocked(shard int) (n int) {
	for _, j := range w.running[shard] {
		if !j.p.isDead && j.hold.Err() == nil {
			n++
		}
	}
	return n
}

func (w *world) ended(shard int, j *job) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.running[shard] = slices.DeleteFunc(w.running[shard], func(o *job) bool { return o == j })
	w.freedLocked(shard, j)
}

// freed notes that nobody works on the shard from now on: the function has returned, or its hold is
// lost.
func (w *world) freed(shard int, j *job) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.freedLocked(shard, j)
}

func (w *world) freedLocked(shard int, j *job) {
	if !j.p.isDead && !j.isFreed {
		j.isFreed, w.endedAt[shard] = true, time.Now()
		w.idle++
		w.mostIdle = max(w.mostIdle, w.idle)
	}
}

// loads returns how many shards each process works on, and how many nobody works on.
func (w *world) loads() (loads map[string]int, free int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	loads = map[string]int{}
	for _, p := range w.procs {
		loads[p.name] = 0
	}
	for shard := range w.running {
		n := 0
		for _, j := range w.running[shard] {
			if !j.p.isDead && j.hold.Err() == nil {
				loads[j.p.name]++
				n++
			}
		}
		if n == 0 {
			free++
		}
	}
	return loads, free
}

// isEven reports whether each shard is worked on, and the numbers of shards of the processes differ
// by one at most.
func (w *world) isEven() bool {
	loads, free := w.loads()
	least, most := w.n, 0
	for _, n := range loads {
		least, most = min(least, n), max(most, n)
	}
	return free == 0 && len(loads) == len(w.procs) && most-least <= 1
}

func (w *world) isComplete() bool {
	_, free := w.loads()
	return free == 0
}

// reset forgets the numbers and returns them.
func (w *world) reset() (moves int, gaps []time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	moves, gaps = w.moves, w.gaps
	w.moves, w.gaps = 0, nil
	slices.Sort(gaps)
	return moves, gaps
}

func median(d []time.Duration) time.Duration {
	if len(d) == 0 {
		return 0
	}
	return d[len(d)/2]
}

func longest(d []time.Duration) time.Duration {
	if len(d) == 0 {
		return 0
	}
	return d[len(d)-1]
}
