// Package demo shows the lock at work: three worker processes contend for it, and the demo kills one, cuts one off and
// stops one, each while it holds. It ends with what it has verified.
package demo

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/zktest"
)

// Config says what to run.
type Config struct {
	// Servers is the connection string of servers to use; without it there is one in this process.
	Servers        string
	SessionTimeout time.Duration // 0: 5 s on our own server, 10 s on others
	LeaderPing     time.Duration // two ticks of the servers; 0: theirs on our own server, 4 s on others

	// Worker is the command that runs Worker with what is in the environment; see WorkerFromEnvironment.
	Worker []string
	Env    []string // of the workers, beside what they need

	Out  io.Writer
	Live *Terminal // to draw the timeline on; nil for plain lines on Out

	tick     time.Duration // of our own server
	gullible bool          // the resource takes everything
	saw      func(Event)   // told of each event, if not nil
}

const (
	connectWithin = 10 * time.Second
	turnTime      = 800 * time.Millisecond
)

var names = []string{"A", "B", "C"}

// Run runs the demo. It returns an error if it could not be carried through, or if a check failed.
func Run(ctx context.Context, c Config) error {
	own := c.Servers == ""
	if c.tick == 0 {
		c.tick = 300 * time.Millisecond
	}
	if c.SessionTimeout == 0 {
		c.SessionTimeout = 10 * time.Second
		if own {
			c.SessionTimeout = 5 * time.Second
		}
	}
	if c.LeaderPing == 0 {
		c.LeaderPing = zklock.DefaultLeaderPing
		if own {
			c.LeaderPing = 2 * c.tick
		}
	}
	d := &demo{Config: c, began: now(), workers: map[string]*process{}, proxies: map[string][]*zktest.Proxy{}}
	d.changed = make(chan struct{})
	if c.Live != nil {
		d.screen = newLive(c.Live, d.began)
	} else {
		d.screen = &plain{w: c.Out, began: d.began}
	}
	atMost := 30*time.Second + 4*(c.SessionTimeout+c.LeaderPing)
	ctx, cancel := context.WithTimeoutCause(ctx, atMost, fmt.Errorf("not done after %v", atMost))
	defer cancel()
	left, err := d.run(ctx)
	d.screen.close()
	if err != nil {
		return err
	}
	return d.conclude(left)
}

type demo struct {
	Config
	screen
	began    time.Time
	resource *resource
	lock     *zklock.Mutex // to look at the queue
	workers  map[string]*process
	proxies  map[string][]*zktest.Proxy // each worker's own way to each server

	mu      sync.Mutex
	events  []Event
	changed chan struct{} // closed, and replaced, with each event
}

// process is a worker.
type process struct {
	name   string
	cmd    *exec.Cmd
	orders io.WriteCloser
	stderr bytes.Buffer
	done   chan struct{} // closed when it has ended, and all it said has been taken
}

// now is the wall clock, without Go's monotonic reading: other processes' times are compared with it.
func now() time.Time { return time.Now().Round(0) }

// add takes an event.
func (d *demo) add(e Event) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.events = append(d.events, e)
	d.screen.event(e)
	if d.saw != nil {
		d.saw(e)
	}
	close(d.changed)
	d.changed = make(chan struct{})
}

func (d *demo) did(at time.Time, who string, kind Kind, token int64, format string, args ...any) {
	d.add(Event{At: at, Who: who, Kind: kind, Token: token, Text: fmt.Sprintf(format, args...)})
}

// until waits until cond says so of the events, and fails as soon as a worker does.
func (d *demo) until(ctx context.Context, what string, cond func([]Event) bool) error {
	for {
		d.mu.Lock()
		events, changed := slices.Clone(d.events), d.changed
		d.mu.Unlock()
		if i := slices.IndexFunc(events, func(e Event) bool { return e.Kind == Failed }); i >= 0 {
			return fmt.Errorf("worker %s: %s", events[i].Who, events[i].Text)
		}
		if cond(events) {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("waiting until %s: %w", what, context.Cause(ctx))
		}
	}
}

// holder waits until somebody but those named holds and has written twice, and returns the grant.
func (d *demo) holder(ctx context.Context, but string) (g Event, err error) {
	err = d.until(ctx, "a worker holds and works", func(events []Event) bool {
		g = Event{}
		wrote := 0
		for _, e := range events {
			switch {
			case e.Kind == Granted && e.Who != but:
				g, wrote = e, 0
			case e.Kind == Wrote && e.Who == g.Who && e.Token == g.Token:
				wrote++
			case e.Who == g.Who && slices.Contains([]Kind{Released, Lost, Killed, Stopped}, e.Kind):
				g, wrote = Event{}, 0
			}
		}
		return wrote >= 2
	})
	return g, err
}

// queued waits until so many are in the queue, the holder among them.
func (d *demo) queued(ctx context.Context, n int) error {
	for {
		ps, err := d.lock.Participants(ctx)
		if err != nil {
			return err
		}
		if len(ps) == n {
			return nil
		}
		if err := sleep(ctx, 20*time.Millisecond); err != nil {
			return fmt.Errorf("waiting until %d are in the queue, %d are: %w", n, len(ps), err)
		}
	}
}

func sleep(ctx context.Context, t time.Duration) error {
	select {
	case <-time.After(t):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// run goes through the scenes, and returns how many nodes were left in the queue.
func (d *demo) run(ctx context.Context) (left int, err error) {
	own := d.Servers == ""
	if own {
		srv, err := zktest.NewServer(zktest.WithTick(d.tick))
		if err != nil {
			return 0, err
		}
		defer srv.Close()
		d.Servers = srv.Addr()
		d.say("a ZooKeeper server in this process, on %s", d.Servers)
	} else {
		d.say("the servers %s", d.Servers)
	}
	d.say("session timeout %v: so long a holder that is gone keeps the next one waiting", d.SessionTimeout)

	d.resource, err = newResource()
	if err != nil {
		return 0, err
	}
	d.resource.gullible = d.gullible
	defer d.resource.close()

	connecting, cancel := context.WithTimeoutCause(ctx, connectWithin, fmt.Errorf("no server within %v", connectWithin))
	defer cancel()
	session, err := zklock.Connect(connecting, d.Servers, zklock.WithSessionTimeout(d.SessionTimeout),
		zklock.WithLease(zklock.SingleServerLease()), zklock.WithLogger(slog.New(slog.DiscardHandler)))
	if errors.Is(err, zklock.ErrNoChroot) {
		_, chroot := splitChroot(d.Servers)
		err = fmt.Errorf("chroot %s: it is not there", chroot)
	}
	if err != nil {
		return 0, err
	}
	defer session.Close()
	root := fmt.Sprintf("/zklock-demo-%d", d.began.UnixNano())
	lock := root + "/job"
	if d.lock, err = zklock.NewMutex(session, lock); err != nil {
		return 0, err
	}
	if !own {
		defer d.cleanUp(session, lock, root)
	}
	defer d.endAll()
	if err := d.scenes(ctx); err != nil {
		return 0, err
	}
	participants, err := d.lock.Participants(ctx)
	return len(participants), err
}

// cleanUp removes what the demo made on servers of others. Workers that had to be killed have sessions there: all nodes
// in this queue are theirs.
func (d *demo) cleanUp(session *zklock.Session, paths ...string) {
	ctx, cancel := context.WithTimeout(context.Background(), connectWithin)
	defer cancel()
	ps, err := d.lock.Participants(ctx)
	for _, p := range ps {
		err = errors.Join(err, zktest.ExpireSession(d.hosts()[0], p.SessionID))
	}
	_, chroot := splitChroot(d.Servers)
	for _, path := range paths {
		if e := session.Conn().Delete(chroot+path, -1); e != nil && !errors.Is(e, zk.ErrNoNode) {
			err = errors.Join(err, e)
		}
	}
	if err != nil {
		d.say("%s may have stayed behind on the servers: %v", chroot+paths[len(paths)-1], err)
	}
}

func (d *demo) scenes(ctx context.Context) error {
	d.scene("three workers queue for one lock; each works a little, and releases")
	for i, name := range names {
		if err := d.proxy(name); err != nil {
			return err
		}
		if err := d.start(name); err != nil {
			return err
		}
		if err := d.queued(ctx, i+1); err != nil {
			return err
		}
	}
	for range 3 {
		if err := d.handOver(ctx); err != nil {
			return err
		}
	}
	if err := d.killScene(ctx); err != nil {
		return err
	}
	if err := d.cutScene(ctx); err != nil {
		return err
	}
	if canStop {
		if err := d.stopScene(ctx); err != nil {
			return err
		}
	} else {
		d.say("left out: a worker that is stopped in the middle of a write; this system cannot stop a process")
	}
	d.scene("all end")
	for _, name := range names {
		if err := d.order(name, orderFinish); err != nil {
			return err
		}
	}
	for _, name := range names {
		p := d.workers[name]
		select {
		case <-p.done:
		case <-ctx.Done():
			return fmt.Errorf("worker %s does not end: %w", name, context.Cause(ctx))
		}
		if code := p.cmd.ProcessState.ExitCode(); code != 0 {
			d.did(now(), name, Failed, 0, "exit code %d: %s", code, strings.TrimSpace(p.stderr.String()))
			continue
		}
		d.did(now(), name, Ended, 0, "")
	}
	return nil
}

// handOver lets the holder work for a while and release.
func (d *demo) handOver(ctx context.Context) error {
	g, err := d.holder(ctx, "")
	if err != nil {
		return err
	}
	if err := sleep(ctx, time.Until(g.At.Add(turnTime))); err != nil {
		return err
	}
	if err := d.order(g.Who, orderRelease); err != nil {
		return err
	}
	return d.until(ctx, g.Who+" has released", func(es []Event) bool {
		return slices.ContainsFunc(es, func(e Event) bool {
			return e.Token == g.Token && (e.Kind == Released || e.Kind == Lost) // lost: on a machine that is very busy
		})
	})
}

// killScene kills a holder. Its ephemeral node stays until its session ends; then the next in the queue is granted.
func (d *demo) killScene(ctx context.Context) error {
	g, err := d.holder(ctx, "")
	if err != nil {
		return err
	}
	if err := d.queued(ctx, len(names)); err != nil {
		return err
	}
	d.scene("the holder is killed: the next takes over when its session ends")
	p := d.workers[g.Who]
	at := now()
	if err := p.cmd.Process.Kill(); err != nil {
		return err
	}
	d.did(at, g.Who, Killed, g.Token, "process %d", p.cmd.Process.Pid)
	if _, err := d.holder(ctx, g.Who); err != nil {
		return err
	}
	<-p.done
	if err := d.start(g.Who); err != nil {
		return err
	}
	return d.handOver(ctx)
}

// cutScene silences a holder's connections, as a network failure does. Its session ends at the servers, which cannot
// tell it. It has to know by itself, and before the next one is granted.
func (d *demo) cutScene(ctx context.Context) error {
	g, err := d.holder(ctx, "")
	if err != nil {
		return err
	}
	if err := d.queued(ctx, len(names)); err != nil {
		return err
	}
	d.scene("the holder is cut off: it is told before the next one is granted")
	at := now()
	for _, p := range d.proxies[g.Who] {
		p.Freeze()
	}
	d.did(at, g.Who, Cut, g.Token, "")
	if _, err := d.holder(ctx, g.Who); err != nil {
		return err
	}
	if err := d.until(ctx, g.Who+" is told", func(es []Event) bool {
		return slices.ContainsFunc(es, func(e Event) bool { return e.Kind == Lost && e.Token == g.Token })
	}); err != nil {
		return err
	}
	for _, p := range d.proxies[g.Who] {
		p.Thaw()
	}
	d.did(now(), g.Who, Healed, 0, "")
	return d.handOver(ctx)
}

// stopScene stops a holder after it has seen that it holds, and before it writes what it was about to write.
func (d *demo) stopScene(ctx context.Context) error {
	g, err := d.holder(ctx, "")
	if err != nil {
		return err
	}
	d.scene("the holder is stopped between look and write: only the token can help")
	if err := d.order(g.Who, orderDawdle); err != nil {
		return err
	}
	if err := d.until(ctx, g.Who+" is about to write", func(es []Event) bool {
		return slices.ContainsFunc(es, func(e Event) bool { return e.Kind == Checked && e.Token == g.Token })
	}); err != nil {
		return err
	}
	p := d.workers[g.Who]
	at := now()
	if err := stopProcess(p.cmd.Process); err != nil {
		return err
	}
	d.did(at, g.Who, Stopped, g.Token, "")
	if _, err := d.holder(ctx, g.Who); err != nil {
		return err
	}
	d.did(now(), g.Who, Continued, g.Token, "")
	if err := continueProcess(p.cmd.Process); err != nil {
		return err
	}
	if err := d.until(ctx, g.Who+" looks at the lock", func(es []Event) bool {
		return slices.ContainsFunc(es, func(e Event) bool { return e.Kind == Lost && e.Token == g.Token })
	}); err != nil {
		return err
	}
	return d.handOver(ctx)
}

// proxy gives a worker its own way to each server.
func (d *demo) proxy(name string) error {
	for _, host := range d.hosts() {
		p, err := zktest.NewProxy(host)
		if err != nil {
			return err
		}
		d.proxies[name] = append(d.proxies[name], p)
	}
	return nil
}

// hosts returns the servers' addresses.
func (d *demo) hosts() []string {
	list, _ := splitChroot(d.Servers)
	var hosts []string
	for _, host := range strings.Split(list, ",") {
		host = strings.TrimSpace(host)
		if _, _, err := net.SplitHostPort(host); err != nil {
			host = net.JoinHostPort(strings.Trim(host, "[]"), "2181")
		}
		hosts = append(hosts, host)
	}
	return hosts
}

func splitChroot(servers string) (hosts, chroot string) {
	if i := strings.IndexByte(servers, '/'); i >= 0 {
		return servers[:i], strings.TrimSuffix(servers[i:], "/")
	}
	return servers, ""
}

// start starts a worker.
func (d *demo) start(name string) error {
	var addrs []string
	for _, p := range d.proxies[name] {
		addrs = append(addrs, p.Addr())
	}
	_, chroot := splitChroot(d.Servers)
	p := &process{name: name, done: make(chan struct{})}
	p.cmd = exec.Command(d.Worker[0], d.Worker[1:]...)
	p.cmd.Env = append(p.cmd.Environ(), d.Env...)
	p.cmd.Env = append(p.cmd.Env, WorkerConfig{
		Name: name, Servers: strings.Join(addrs, ",") + chroot, LockPath: d.lock.Path(), Resource: d.resource.addr(),
		SessionTimeout: d.SessionTimeout, LeaderPing: d.LeaderPing,
	}.environ()...)
	p.cmd.Stderr = &p.stderr
	var err error
	if p.orders, err = p.cmd.StdinPipe(); err != nil {
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
	d.did(now(), name, Started, 0, "process %d", p.cmd.Process.Pid)
	go func() {
		defer close(p.done)
		lines := bufio.NewScanner(stdout)
		for lines.Scan() {
			var e Event
			if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
				e = Event{At: now(), Kind: Failed, Text: lines.Text()}
			}
			e.Who = name
			d.add(e)
		}
		_ = p.cmd.Wait()
	}()
	return nil
}

func (d *demo) order(name, order string) error {
	_, err := io.WriteString(d.workers[name].orders, order+"\n")
	return err
}

// endAll leaves no process and no proxy behind.
func (d *demo) endAll() {
	for _, p := range d.workers {
		_ = p.cmd.Process.Kill() // one that is stopped, too
		<-p.done
	}
	for _, ps := range d.proxies {
		for _, p := range ps {
			p.Close()
		}
	}
}

// conclude says what was verified.
func (d *demo) conclude(left int) error {
	f := facts{events: d.events, writes: d.resource.writes(), left: left, began: d.began, pausing: canStop,
		// A session ends at the servers on a boundary of their tick, up to two ticks after its timeout; a second for
		// busy machines.
		sessionEnd: d.SessionTimeout + d.LeaderPing + time.Second}
	fmt.Fprintf(d.Out, "\nVerified\n")
	failed := 0
	for _, c := range checks(f.pausing) {
		found, err := c.f(f)
		mark := "ok"
		if err != nil {
			mark, found = "FAILED", err.Error()
			failed++
		}
		fmt.Fprintf(d.Out, "  %-6s  %-12s  %s\n", mark, c.name, found)
	}
	fmt.Fprintf(d.Out, "  in %.1fs\n", time.Since(d.began).Seconds())
	if failed > 0 {
		return fmt.Errorf("%d of %d checks failed", failed, len(checks(f.pausing)))
	}
	return nil
}
