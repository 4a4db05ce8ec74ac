// Package demo shows the lock at work: three worker processes contend for it, and the demo kills
// one, cuts one off and stops one, each while it holds. It ends with the results of its checks.
package demo

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/zklock/zklock/zktest"
)

// The kinds of event, in the words that are shown for them.
const (
	// Reported by a worker.
	queues   = "queues"
	holds    = "HOLDS"
	writes   = "writes"
	looks    = "checks: it holds" // and is about to write
	notified = "NOTIFIED: lost"
	releases = "releases" // it has stopped working

	// Added by the demo.
	starts    = "starts"
	refused   = "writes too late" // the resource rejects it
	killed    = "KILLED"
	cut       = "CUT OFF" // no data reaches the server any more
	healed    = "connected again"
	stopped   = "STOPPED"
	continues = "CONTINUES"
	ends      = "ends"
	failed    = "FAILED"
)

// All processes run on one host, so one clock gives all times.
type event struct {
	At    time.Time
	Who   string
	Kind  string
	Token int64  `json:",omitempty"`
	Text  string `json:",omitempty"`
}

const (
	lockPath = "/job"
	turnTime = 800 * time.Millisecond
)

var names = []string{"A", "B", "C"}

type demo struct {
	out            io.Writer
	tick           time.Duration // of the server
	sessionTimeout time.Duration
	deaf, gullible bool // workers that ignore a loss, a resource that accepts everything: the checks must find both

	began   time.Time
	server  *zktest.Server
	workers map[string]*process

	mu      sync.Mutex
	events  []event
	changed chan struct{} // closed, and replaced, with each event
	seen    int64         // the largest token that the resource has seen
	screen  screen
}

type process struct {
	proxy  *zktest.Proxy // its own way to the server
	cmd    *exec.Cmd
	stdin  io.Writer
	killed bool          // by the demo; guarded by its mu
	done   chan struct{} // closed when it has ended and its output has been read
}

// Run runs the demo. The workers are processes of this program, which calls RunWorker for them: see
// EnvWorker. Run returns an error if it could not finish, or if a check failed.
func Run(ctx context.Context, out io.Writer) error {
	return (&demo{out: out, tick: 300 * time.Millisecond, sessionTimeout: 5 * time.Second}).run(ctx)
}

func (d *demo) run(ctx context.Context) (err error) {
	d.began, d.changed, d.workers = time.Now(), make(chan struct{}), map[string]*process{}
	d.screen = screen{w: d.out, began: d.began, lanes: map[string]string{}}
	if d.server, err = zktest.NewServer(zktest.WithConfig(fmt.Sprintf("tickTime=%d", d.tick.Milliseconds()))); err != nil {
		return err
	}
	defer d.server.Close()
	atMost := 30*time.Second + 4*(d.sessionTimeout+2*d.tick)
	ctx, cancel := context.WithTimeoutCause(ctx, atMost, fmt.Errorf("not done after %v", atMost))
	defer cancel()
	d.screen.head(d.sessionTimeout)
	if err := d.scenes(ctx); err != nil {
		return err
	}
	return verify(d.out, facts{d.events, len(d.server.Children(lockPath)), d.began,
		// The server ends a session on a boundary of its tick, up to two ticks after the timeout; a
		// second for busy machines.
		d.sessionTimeout + 2*d.tick + time.Second})
}

func (d *demo) scenes(ctx context.Context) error {
	defer d.endAll()
	ctx, cancel := context.WithCancel(ctx)
	var rows sync.WaitGroup
	rows.Go(func() {
		for sleep(ctx, 500*time.Millisecond) == nil {
			d.mu.Lock()
			d.screen.row(time.Now(), "", "", "")
			d.mu.Unlock()
		}
	})
	defer rows.Wait()
	defer cancel()

	d.title("Three workers queue for one lock; each works a little, and releases")
	for i, name := range names {
		proxy, err := zktest.NewProxy(d.server.Addr())
		if err != nil {
			return err
		}
		if err := d.start(name, proxy); err != nil {
			proxy.Close()
			return err
		}
		if err := d.queued(ctx, i+1); err != nil {
			return err
		}
	}
	for range names {
		if err := d.handOver(ctx); err != nil {
			return err
		}
	}

	err := d.scene(ctx, "The holder is killed: the next takes over when its session ends",
		func(g event, p *process) error {
			d.did(g, killed)
			return d.kill(p)
		},
		func(g event, p *process) error {
			<-p.done
			return d.start(g.Who, p.proxy)
		})
	if err != nil {
		return err
	}

	// The session of a holder that is cut off ends on the server, which cannot notify the holder.
	// It must find out by itself.
	err = d.scene(ctx, "The holder is cut off: it is notified before the next one is granted",
		func(g event, p *process) error {
			d.did(g, cut)
			p.proxy.Freeze()
			return nil
		},
		func(g event, p *process) error {
			if err := d.until(ctx, g, notified); err != nil {
				return err
			}
			d.did(g, healed)
			p.proxy.Thaw()
			return nil
		})
	if err != nil {
		return err
	}

	if !canStop {
		d.title("Left out: a holder that is stopped. This system cannot stop a process")
	} else if err := d.scene(ctx, "The holder is stopped between check and write: only the token can help",
		func(g event, p *process) error {
			if err := d.until(ctx, g, looks, orderDawdle); err != nil {
				return err
			}
			d.did(g, stopped)
			return stopProcess(p.cmd.Process)
		},
		func(g event, p *process) error {
			d.did(g, continues)
			if err := continueProcess(p.cmd.Process); err != nil {
				return err
			}
			return d.until(ctx, g, notified)
		}); err != nil {
		return err
	}

	d.title("All end")
	for _, name := range names {
		if err := d.until(ctx, event{Who: name}, ends, orderFinish); err != nil {
			return err
		}
	}
	return nil
}

// scene waits until a worker holds and all are queued, strikes the holder, waits until another
// holds, and heals.
func (d *demo) scene(ctx context.Context, title string, strike, heal func(g event, p *process) error) error {
	g, err := d.holder(ctx, "")
	if err != nil {
		return err
	}
	if err := d.queued(ctx, len(names)); err != nil {
		return err
	}
	d.title(title)
	p := d.workers[g.Who]
	if err := strike(g, p); err != nil {
		return err
	}
	if _, err := d.holder(ctx, g.Who); err != nil {
		return err
	}
	if err := heal(g, p); err != nil {
		return err
	}
	return d.handOver(ctx)
}

// handOff lets the holder work for a while and release.
func (d *demo) handOver(ctx context.Context) error {
	g, err := d.holder(ctx, "")
	if err != nil {
		return err
	}
	if err := sleep(ctx, time.Until(g.At.Add(turnTime))); err != nil {
		return err
	}
	return d.until(ctx, g, releases, orderRelease)
}

// holder waits until a worker, but not the one named, holds and has written twice, and returns the
// grant.
func (d *demo) holder(ctx context.Context, but string) (g event, err error) {
	err = d.wait(ctx, "a worker holds and works", func() bool {
		g = event{}
		wrote := 0
		for _, e := range d.events {
			switch {
			case e.Kind == holds && e.Who != but:
				g, wrote = e, 0
			case e.Kind == writes && e.Token == g.Token:
				wrote++
			case e.Token == g.Token && endsBelief[e.Kind]:
				g, wrote = event{}, 0
			}
		}
		return wrote >= 2
	})
	return g, err
}

// until gives the orders to the grant's worker, and waits for an event of that hold or, on a busy
// machine, its loss.
func (d *demo) until(ctx context.Context, g event, kind string, orders ...string) error {
	for _, order := range orders {
		if _, err := io.WriteString(d.workers[g.Who].stdin, order+"\n"); err != nil {
			return err
		}
	}
	return d.wait(ctx, g.Who+" "+kind, func() bool {
		return slices.ContainsFunc(d.events, func(e event) bool {
			return e.Who == g.Who && e.Token == g.Token && (e.Kind == kind || kind == releases && e.Kind == notified)
		})
	})
}

// wait waits until cond, which is called with mu held, returns true; it fails as soon as a worker
// does.
func (d *demo) wait(ctx context.Context, what string, cond func() bool) error {
	for {
		d.mu.Lock()
		i := slices.IndexFunc(d.events, func(e event) bool { return e.Kind == failed })
		if i >= 0 {
			defer d.mu.Unlock()
			return fmt.Errorf("worker %s: %s", d.events[i].Who, d.events[i].Text)
		}
		ok, changed := cond(), d.changed
		d.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("waiting: %s: %w", what, context.Cause(ctx))
		}
	}
}

// queued waits until n are in the queue, the holder among them.
func (d *demo) queued(ctx context.Context, n int) error {
	for len(d.server.Children(lockPath)) != n {
		if err := sleep(ctx, 20*time.Millisecond); err != nil {
			return fmt.Errorf("waiting until %d are in the queue: %w", n, err)
		}
	}
	return nil
}

func sleep(ctx context.Context, t time.Duration) error {
	select {
	case <-time.After(t):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (d *demo) title(text string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	fmt.Fprintf(d.out, "\n%s\n", text)
}

// did adds an event of the demo itself, before the demo does it, so that the consequences come
// later.
func (d *demo) did(g event, kind string) {
	d.add(event{At: time.Now().Round(0), Who: g.Who, Kind: kind, Token: g.Token})
}

// add accepts an event. A write is sent to the resource, which has no notion of locks and workers:
// it rejects a token smaller than one it has seen. The comparison and the write are one step, so
// the order of the events is the order of the writes.
func (d *demo) add(e event) (taken bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	note := ""
	if e.Kind == writes {
		if e.Token < d.seen {
			note = fmt.Sprintf("rejects %d < %d", e.Token, d.seen)
			if d.gullible {
				note = fmt.Sprintf("accepts %d < %d", e.Token, d.seen)
			} else {
				e.Kind = refused
			}
		}
		d.seen = max(d.seen, e.Token)
	}
	d.events = append(d.events, e)
	d.screen.event(e, note)
	close(d.changed)
	d.changed = make(chan struct{})
	return e.Kind != refused
}

func (d *demo) start(name string, proxy *zktest.Proxy) error {
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	config, err := json.Marshal(worker{Name: name, Server: proxy.Addr(), SessionTimeout: d.sessionTimeout, LeaderPing: 2 * d.tick, Deaf: d.deaf})
	if err != nil {
		return err
	}
	p := &process{proxy: proxy, cmd: exec.Command(exe, "demo"), done: make(chan struct{})}
	p.cmd.Env = append(p.cmd.Environ(), EnvWorker+"="+string(config))
	var stderr bytes.Buffer
	p.cmd.Stderr = &stderr
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return err
	}
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := p.cmd.Start(); err != nil {
		return err
	}
	d.workers[name] = p
	d.did(event{Who: name}, starts)
	go func() {
		defer close(p.done)
		lines := bufio.NewScanner(stdout)
		for lines.Scan() {
			var e event
			if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
				e = event{At: time.Now().Round(0), Who: name, Kind: failed, Text: lines.Text()}
			}
			taken := d.add(e)
			if e.Kind == writes {
				_, _ = fmt.Fprintln(p.stdin, answers[taken]) // it may have ended
			}
		}
		err := p.cmd.Wait()
		d.mu.Lock()
		wasKilled := p.killed
		d.mu.Unlock()
		switch {
		case wasKilled:
		case err != nil:
			d.add(event{At: time.Now().Round(0), Who: name, Kind: failed, Text: fmt.Sprintf("%v: %s", err, strings.TrimSpace(stderr.String()))})
		default:
			d.did(event{Who: name}, ends)
		}
	}()
	return nil
}

func (d *demo) kill(p *process) error {
	d.mu.Lock()
	p.killed = true
	d.mu.Unlock()
	if err := p.cmd.Process.Kill(); !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return nil
}

// endAll ends every process and closes every proxy.
func (d *demo) endAll() {
	for _, p := range d.workers {
		_ = d.kill(p) // also one that is stopped
		<-p.done
		p.proxy.Close()
	}
}
