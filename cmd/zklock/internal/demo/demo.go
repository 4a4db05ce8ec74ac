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
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
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
)

// event is something that a worker did, or that happened to it. All processes run on one host, so
// one clock gives all times.
type event struct {
	At    time.Time
	Who   string
	Kind  string
	Token int64 `json:",omitempty"`
}

const (
	lockPath = "/job"
	turnTime = 800 * time.Millisecond
)

var names = []string{"A", "B", "C"}

// stopSignal and contSignal are nil where no signal stops a process.
var stopSignal, contSignal os.Signal

type demo struct {
	ctx            context.Context
	fail           context.CancelCauseFunc // of ctx
	tick           time.Duration           // of the server
	sessionTimeout time.Duration
	server         *zktest.Server
	workers        map[string]*process

	mu      sync.Mutex
	changed sync.Cond // with each event, and at the end of ctx
	events  []event
	orders  map[string]string // to workers, each in the response to the worker's next event
	seen    int64             // the largest token that the resource has seen
	screen  screen
}

type process struct {
	proxy  *zktest.Proxy // its own way to the server
	cmd    *exec.Cmd
	killed atomic.Bool   // by the demo
	done   chan struct{} // closed when it has ended and its output has been read
}

// Run runs the demo. The workers are processes of this program, which calls RunWorker for them: see
// EnvWorker. Run returns an error if it could not finish, or if a check failed.
func Run(ctx context.Context, out io.Writer) error {
	return run(ctx, out, 300*time.Millisecond, 5*time.Second)
}

func run(ctx context.Context, out io.Writer, tick, sessionTimeout time.Duration) error {
	server, err := zktest.NewServer(zktest.WithConfig(fmt.Sprintf("tickTime=%d", tick.Milliseconds())))
	if err != nil {
		return err
	}
	defer server.Close()
	atMost := 30*time.Second + 4*(sessionTimeout+2*tick)
	ctx, cancel := context.WithTimeoutCause(ctx, atMost, fmt.Errorf("not done after %v", atMost))
	defer cancel()

	d := &demo{tick: tick, sessionTimeout: sessionTimeout, server: server, workers: map[string]*process{},
		orders: map[string]string{}, screen: screen{w: out, began: time.Now(), lanes: map[string]string{}}}
	d.changed.L = &d.mu
	d.ctx, d.fail = context.WithCancelCause(ctx)
	context.AfterFunc(d.ctx, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.changed.Broadcast()
	})
	d.screen.head(sessionTimeout)
	var rows, scenes sync.WaitGroup
	rows.Go(func() {
		for d.sleep(500 * time.Millisecond) {
			d.mu.Lock()
			d.screen.row(time.Now(), "", "", "")
			d.mu.Unlock()
		}
	})
	scenes.Go(d.scenes)
	scenes.Wait()
	err = context.Cause(d.ctx)
	d.fail(nil)
	rows.Wait()
	d.endAll()
	if err != nil {
		return err
	}
	// The server ends a session on a boundary of its tick, up to two ticks after the timeout; a
	// second for busy machines.
	return verify(out, facts{d.events, len(server.Children(lockPath)), d.screen.began, sessionTimeout + 2*tick + time.Second})
}

// scenes ends early, with its goroutine, if the demo fails.
func (d *demo) scenes() {
	d.title("Three workers queue for one lock; each works a little, and releases")
	for i, name := range names {
		proxy, err := zktest.NewProxy(d.server.Addr())
		d.must(err)
		d.start(name, proxy)
		d.queued(i + 1)
	}
	for range names {
		d.handOver()
	}

	g, p := d.scene("The holder is killed: the next takes over when its session ends")
	d.did(g, killed)
	d.must(p.kill())
	d.holder(g.Who)
	<-p.done
	d.start(g.Who, p.proxy)
	d.handOver()

	// The session of a holder that is cut off ends on the server, which cannot notify the holder.
	// It must find out by itself.
	g, p = d.scene("The holder is cut off: it is notified before the next one is granted")
	d.did(g, cut)
	p.proxy.Freeze()
	d.holder(g.Who)
	d.until(g, notified)
	d.did(g, healed)
	p.proxy.Thaw()
	d.handOver()

	if stopSignal == nil {
		d.title("Left out: a holder that is stopped. This system cannot stop a process")
	} else {
		g, p = d.scene("The holder is stopped between check and write: only the token can help")
		d.order(g.Who, orderDawdle)
		d.until(g, looks)
		d.did(g, stopped)
		d.must(p.cmd.Process.Signal(stopSignal))
		d.holder(g.Who)
		d.did(g, continues)
		d.must(p.cmd.Process.Signal(contSignal))
		d.until(g, notified)
		d.handOver()
	}

	d.title("All end")
	for _, name := range names {
		d.order(name, orderFinish)
	}
	for _, name := range names {
		d.until(event{Who: name}, ends)
	}
}

// scene waits until a worker holds and all are queued, and returns the grant and the holder.
func (d *demo) scene(title string) (g event, holder *process) {
	g = d.holder("")
	d.queued(len(names))
	d.title(title)
	return g, d.workers[g.Who]
}

// handOver lets the holder work for a while and release.
func (d *demo) handOver() {
	g := d.holder("")
	d.sleep(time.Until(g.At.Add(turnTime)))
	d.order(g.Who, orderRelease)
	d.until(g, releases)
	d.respond(g.Who) // if the hold was lost, the worker has not read the order
}

// holder waits until a worker, but not the one named, holds and has written twice, and returns the
// grant.
func (d *demo) holder(but string) (g event) {
	d.wait(func() bool {
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
	return g
}

func (d *demo) order(who, order string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.orders[who] = order
}

// until waits for an event of the grant's hold or, instead of its release, for its loss, which a
// busy machine can cause.
func (d *demo) until(g event, kind string) {
	d.wait(func() bool {
		return slices.ContainsFunc(d.events, func(e event) bool {
			return e.Who == g.Who && e.Token == g.Token && (e.Kind == kind || kind == releases && e.Kind == notified)
		})
	})
}

// wait waits until cond, which is called with mu held, returns true.
func (d *demo) wait(cond func() bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for !cond() {
		d.must(d.ctx.Err())
		d.changed.Wait()
	}
}

// queued waits until n are in the queue, the holder among them.
func (d *demo) queued(n int) {
	for len(d.server.Children(lockPath)) != n {
		d.sleep(20 * time.Millisecond)
		d.must(d.ctx.Err())
	}
}

// must ends the scenes if err is not nil.
func (d *demo) must(err error) {
	if err != nil {
		d.fail(err) // no effect if ctx has ended
		runtime.Goexit()
	}
}

func (d *demo) sleep(t time.Duration) (slept bool) {
	select {
	case <-time.After(t):
		return true
	case <-d.ctx.Done():
		return false
	}
}

func (d *demo) title(text string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	fmt.Fprintf(d.screen.w, "\n%s\n", text)
}

// did adds an event of the demo itself, before the demo does it, so that the consequences come
// later.
func (d *demo) did(g event, kind string) {
	d.add(event{At: time.Now().Round(0), Who: g.Who, Kind: kind, Token: g.Token})
}

// add accepts an event. A write is sent to the resource, which has
// no notion of locks and workers: it rejects a token smaller than one it has seen. The comparison
// and the write are one step, so the order of the events is the order of the writes.
func (d *demo) add(e event) {
	d.mu.Lock()
	defer d.mu.Unlock()
	note := ""
	if e.Kind == writes {
		if e.Token < d.seen {
			e.Kind, note = refused, fmt.Sprintf("rejects %d < %d", e.Token, d.seen)
		}
		d.seen = max(d.seen, e.Token)
	}
	d.events = append(d.events, e)
	d.screen.event(e, note)
	d.changed.Broadcast()
}

// respond returns the order that the worker has not read.
func (d *demo) respond(who string) (order string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	order = d.orders[who]
	delete(d.orders, who)
	return order
}

func (d *demo) start(name string, proxy *zktest.Proxy) {
	exe, err := os.Executable()
	d.must(err)
	config, err := json.Marshal(worker{Name: name, Server: proxy.Addr(), SessionTimeout: d.sessionTimeout, LeaderPing: 2 * d.tick})
	d.must(err)
	p := &process{proxy: proxy, cmd: exec.Command(exe, "demo"), done: make(chan struct{})}
	p.cmd.Env = append(p.cmd.Environ(), EnvWorker+"="+string(config))
	var stderr bytes.Buffer
	p.cmd.Stderr = &stderr
	stdin, err := p.cmd.StdinPipe()
	d.must(err)
	stdout, err := p.cmd.StdoutPipe()
	d.must(err)
	d.must(p.cmd.Start())
	d.workers[name] = p
	d.did(event{Who: name}, starts)
	go func() {
		defer close(p.done)
		lines := bufio.NewScanner(stdout)
		for lines.Scan() {
			var e event
			if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
				d.fail(fmt.Errorf("worker %s: %s", name, lines.Text()))
				continue
			}
			d.add(e)
			_, _ = fmt.Fprintln(stdin, d.respond(name)) // it may have ended
		}
		if err := p.cmd.Wait(); err == nil {
			d.did(event{Who: name}, ends)
		} else if !p.killed.Load() {
			d.fail(fmt.Errorf("worker %s: %w: %s", name, err, strings.TrimSpace(stderr.String())))
		}
	}()
}

// endAll ends every process and closes every proxy.
func (d *demo) endAll() {
	for _, p := range d.workers {
		_ = p.kill() // also one that is stopped
		<-p.done
		p.proxy.Close()
	}
}

func (p *process) kill() error {
	p.killed.Store(true)
	if err := p.cmd.Process.Kill(); !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return nil
}
