package main

// The runner: the trials, their servers, and how many run at a time.

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

type settings struct {
	Systems     []*System
	Experiments []*Experiment
	Staged      int // how often a staged experiment runs
	Raced       int // how often a raced experiment runs
	Seed        uint64
	TTL         time.Duration
	Jobs        int  // the load at a time: a trial in Go counts 1, one in Python 2, one in Java 3
	Require     bool // a missing program is an error
	Log         io.Writer
}

type row struct {
	System *System
	Size   int
}

func (e *Experiment) rows(s *System) (rs []row) {
	if e.Kind != s.Kind || s.Only != nil && !slices.Contains(s.Only, e.Name) {
		return nil
	}
	for i, size := range s.Sizes {
		if e.Split && size < 3 || e.Split && s.Server != zooKeeper && s.Server != etcdServers || e.Tick != 0 && s.Server != zooKeeper {
			continue
		}
		if i == 0 || e.Sizes || e.Split {
			rs = append(rs, row{s, size})
		}
	}
	return rs
}

// lab runs settings. Servers are started when the first trial needs them, shared, and ended by
// close.
type lab struct {
	settings
	dir     string
	command map[string]func() ([]string, error) // by system: the client's process
	clocked func() ([]string, error)            // the process of a client in Go whose clock can be set
	server  map[string]func() (Cluster, error)  // the shared ones, by kind, size and tick; guarded by mu
	mu      sync.Mutex                          // guards the fields below
	open    []Cluster
	dirs    int
	results map[string]*Result
	version map[string]bool
}

func newLab(s settings) (*lab, error) {
	dir, err := os.MkdirTemp("", "lab-")
	if err != nil {
		return nil, err
	}
	// Servers that run under another user must be able to go through it.
	if err := os.Chmod(dir, 0o755); err != nil {
		return nil, err
	}
	l := &lab{settings: s, dir: dir, command: map[string]func() ([]string, error){}, server: map[string]func() (Cluster, error){},
		results: map[string]*Result{}, version: map[string]bool{}}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	l.clocked = sync.OnceValues(func() ([]string, error) {
		dir, err := l.newDir()
		if err != nil {
			return nil, err
		}
		return clockClient(context.Background(), dir)
	})
	for _, sys := range s.Systems {
		l.command[sys.Name] = sync.OnceValues(func() ([]string, error) {
			if sys.External == nil {
				return []string{self, "client"}, nil
			}
			dir, err := l.newDir()
			if err != nil {
				return nil, err
			}
			return sys.External(context.Background(), dir)
		})
	}
	return l, nil
}

// shared returns servers that several trials use at the same time.
func (l *lab) shared(kind *ServerKind, p Plan) (Cluster, error) {
	key := fmt.Sprint(kind.Name, p.Size, p.Tick)
	l.mu.Lock()
	if l.server[key] == nil {
		l.server[key] = sync.OnceValues(func() (Cluster, error) { return l.start(kind, p) })
	}
	start := l.server[key]
	l.mu.Unlock()
	return start()
}

func (l *lab) newDir() (string, error) {
	l.mu.Lock()
	l.dirs++
	dir := filepath.Join(l.dir, fmt.Sprint(l.dirs))
	l.mu.Unlock()
	return dir, os.Mkdir(dir, 0o755)
}

func (l *lab) start(kind *ServerKind, p Plan) (Cluster, error) {
	var err error
	if p.Dir, err = l.newDir(); err != nil {
		return nil, err
	}
	p.TTL = l.TTL
	c, err := kind.Start(context.Background(), p)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open = append(l.open, c)
	l.version[c.Version()] = true
	return c, nil
}

// close ends the servers and removes their files.
func (l *lab) close() error {
	var errs []error
	for _, c := range l.open {
		errs = append(errs, c.Close())
	}
	return errors.Join(append(errs, os.RemoveAll(l.dir))...)
}

type job struct {
	e      *Experiment
	row    row
	number int
	of     int
}

func (j job) key() string { return fmt.Sprintf("%s %d %s", j.row.System.Name, j.row.Size, j.e.Name) }

func (j job) weight() int {
	switch {
	case j.row.System.External == nil:
		return 1
	case strings.HasPrefix(j.row.System.Name, "kazoo"):
		return 2
	}
	return 3
}

// run runs all trials: first those that may run in parallel, then those that measure, one after the
// other, alternating between the systems.
func (l *lab) run(ctx context.Context) error {
	var together, alone []job
	for _, e := range l.Experiments {
		of := l.Staged
		switch {
		case e.Raced:
			of = l.Raced
		case e.Runs != 0 && e.Alone:
			of = min(e.Runs, of)
		case e.Runs != 0:
			of = e.Runs
		}
		for number := range of {
			for _, s := range l.Systems {
				for _, r := range e.rows(s) {
					j := job{e, r, number, of}
					if number == 0 {
						l.results[j.key()] = &Result{System: s.Name, Size: r.Size, Experiment: e.Name}
						if e.Skip != nil {
							l.results[j.key()].Skipped = e.Skip(s)
						}
					}
					if l.results[j.key()].Skipped != "" {
						continue
					}
					if e.Alone {
						alone = append(alone, j)
					} else {
						together = append(together, j)
					}
				}
			}
		}
	}
	if slices.ContainsFunc(together, func(j job) bool { return j.e.ClientClock }) {
		_, _ = l.clocked() // compiles while nothing is timed; the trials report why it failed
	}
	total, done := len(together)+len(alone), 0
	began := time.Now()
	finish := func(j job, err error) {
		l.mu.Lock()
		defer l.mu.Unlock()
		done++
		word := "ok"
		if err != nil {
			word = err.Error()
		}
		fmt.Fprintf(l.Log, "%4d/%d %3.0f s  %s, %d of %d: %s\n", done, total, time.Since(began).Seconds(), j.key(), j.number+1, j.of, word)
	}
	all := make(chan struct{}, l.Jobs)
	var wg sync.WaitGroup
	for _, j := range together {
		w := min(j.weight(), l.Jobs)
		for range w { // no other job acquires now
			all <- struct{}{}
		}
		if ctx.Err() != nil {
			break
		}
		wg.Go(func() {
			finish(j, l.trial(ctx, j))
			for range w {
				<-all
			}
		})
	}
	wg.Wait()
	for _, j := range alone {
		if ctx.Err() != nil {
			break
		}
		finish(j, l.trial(ctx, j))
	}
	return context.Cause(ctx)
}

// trial runs one trial, and returns the reason why it failed, which it also records.
func (l *lab) trial(ctx context.Context, j job) (err error) {
	s := j.row.System
	res := l.results[j.key()]
	t := &trial{sys: s, size: j.row.Size, ttl: cmp.Or(j.e.TTL, l.TTL), tick: cmp.Or(j.e.Tick, zkTick), number: j.number, out: outcome{},
		lock:   fmt.Sprintf("lab-%s-%s-%d-%d-%d", s.Name, j.e.Name, j.row.Size, l.Seed, j.number),
		random: rand.New(rand.NewPCG(l.Seed, hash(j.key(), fmt.Sprint(j.number))))}
	if j.e.Tick != 0 { // -ttl may ask for more ticks
		t.ttl = max(t.ttl, l.TTL)
	}
	defer func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		var missing *Missing
		switch {
		case errors.As(err, &missing):
			res.Skipped, res.Missing = missing.Error(), true
		case err != nil:
			res.Failed = append(res.Failed, err.Error())
		default:
			res.Outcomes = append(res.Outcomes, t.out)
			if res.Spans == nil && j.e.Picture && !t.began.IsZero() {
				res.Spans = spans(t.entries(), t.began)
			}
		}
	}()
	var cancel context.CancelFunc
	t.ctx, cancel = context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	command := l.command[s.Name]
	if j.e.ClientClock {
		command = l.clocked
	}
	if t.command, err = command(); err != nil {
		return err
	}
	if !j.e.Own {
		if t.cluster, err = l.shared(s.Server, Plan{Size: j.row.Size, Tick: t.tick}); err != nil {
			return err
		}
		return t.play(j.e.Steps)
	}
	var env func(i int) []string
	if j.e.Clocks {
		dir, err := l.newDir()
		if err != nil {
			return err
		}
		if t.clocks, err = newClocks(t.ctx, dir, j.row.Size); err != nil {
			return err
		}
		env = t.clocks.env
	}
	kind := s.Server
	if j.e.Server != nil {
		kind = j.e.Server(s)
	}
	if t.cluster, err = l.start(kind, Plan{Size: j.row.Size, Tick: t.tick, Env: env, Split: j.e.Split}); err != nil {
		return err
	}
	defer func() {
		l.mu.Lock()
		l.open = slices.DeleteFunc(l.open, func(c Cluster) bool { return c == t.cluster })
		l.mu.Unlock()
		err = errors.Join(err, t.cluster.Close())
	}()
	return t.play(j.e.Steps)
}
