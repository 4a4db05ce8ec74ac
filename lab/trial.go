package main

// A trial is one run of an experiment with one system, on a lock of its own. The experiment reads
// as a list of steps. A step that fails ends the trial, which is then counted and reported as
// failed.

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// outcome has the figures of a trial by name. A time is in seconds. A condition is 1 or 0. An event
// that did not occur has no figure.
type outcome map[string]float64

type trial struct {
	ctx     context.Context
	sys     *System
	size    int
	cluster Cluster
	clocks  *clocks  // of the servers, if the experiment sets them
	command []string // the client's process
	lock    string
	ttl     time.Duration
	tick    time.Duration   // ZooKeeper's
	number  int             // of the trial: 0, 1, …
	shared  map[string]bool // the clients that are readers
	ledger  ledger
	players []*player

	stands        func(sequencer string) (bool, error) // of System.Resource
	closeResource func() error
	unknown       atomic.Value // an error of stands: a write has no verdict
	out           outcome
	began         time.Time // the time of the fault: the zero of the picture
	ended         time.Time
	random        *rand.Rand
}

// entries returns the ledger's entries up to the end of the trial's steps.
func (t *trial) entries() []entry {
	return slices.DeleteFunc(t.ledger.read(), func(e entry) bool { return e.At.After(t.ended) })
}

// giveUp is the panic that ends a trial.
type giveUp struct{ err error }

func (t *trial) must(err error) {
	if err != nil {
		panic(giveUp{err})
	}
}

func (t *trial) failf(format string, args ...any) { t.must(fmt.Errorf(format, args...)) }

// play runs an experiment's steps, ends all clients and adds the verdict on the ledger.
func (t *trial) play(steps func(*trial)) (err error) {
	defer func() {
		r := recover()
		if g, ok := r.(giveUp); ok {
			err, r = g.err, nil
		}
		t.ended = time.Now() // later entries are not part of the trial
		for _, p := range t.players {
			err = errors.Join(err, p.agent.close())
		}
		if t.closeResource != nil {
			unknown, _ := t.unknown.Load().(error)
			err = errors.Join(err, unknown, t.closeResource())
		}
		if r != nil {
			panic(r)
		}
		v := judge(t.entries(), t.sys.Kind.room())
		for name, n := range map[string]int{"enters": v.Enters, "doubles": v.Doubles, "unfenced": v.Unfenced, "fenced": v.Fenced, "backwards": v.Backwards} {
			t.out[name] = float64(n)
		}
		if v.Tokens {
			t.out["tokens"] = 1
		}
		if _, told := t.out["told"]; told && v.Doubles > 0 { // if no client was notified, the trial does not see the end of a hold
			t.out["both"] = v.Both.Seconds()
		}
	}()
	steps(t)
	return nil
}

func (t *trial) took(name string, d time.Duration) { t.out[name] = d.Seconds() }
func (t *trial) figure(name string, f float64)     { t.out[name] = f }

func (t *trial) was(name string, yes bool) {
	t.out[name] = 0
	if yes {
		t.out[name] = 1
	}
}

// limit is how long the lab waits before a grant counts as "never" on the page.
func (t *trial) limit() time.Duration { return 2*t.ttl + 3*time.Second + t.sys.Delay }

// pause lets time pass, as one of the steps.
func (t *trial) pause(d time.Duration) {
	select {
	case <-time.After(d):
	case <-t.ctx.Done():
		t.must(context.Cause(t.ctx))
	}
}

// settle lets a random time pass, up to a third of the lock's time, so that faults do not
// synchronize with renewals.
func (t *trial) settle() {
	t.pause(200*time.Millisecond + time.Duration(t.random.Int64N(int64(t.ttl/3))))
}

// zero sets the time of the fault.
func (t *trial) zero(at time.Time) time.Time {
	t.began = at
	return at
}

// client starts a client. A killed client of that name is started again.
func (t *trial) client(name string) *player { return t.clientOf(name, t.cluster.Addrs()...) }

// clientOf starts a client that has the addresses of some servers only.
func (t *trial) clientOf(name string, addrs ...string) *player {
	a := arguments{System: t.sys.Name, Servers: addrs, Lock: t.lock, Options: Options{Client: name, TTL: t.ttl, Size: t.size, Tick: t.tick}}
	if t.sys.Resource != nil && t.stands == nil {
		var err error
		t.stands, t.closeResource, err = t.sys.Resource(t.ctx, t.cluster.Addrs(), t.lock, a.Options)
		t.must(err)
	}
	ag, err := startAgent(t.ctx, t.command, a, &t.ledger, t.arrive)
	t.must(err)
	p := &player{t: t, agent: ag}
	t.players = append(t.players, p)
	return p
}

// arrive is a write's arrival at the resource.
func (t *trial) arrive(e entry) {
	if t.stands != nil {
		stands, err := t.stands(e.Sequencer)
		if e.Refused = !stands; err != nil {
			t.unknown.Store(err)
		}
	}
	t.ledger.say(e)
}

// left records the nodes, keys or rows of the lock that remain on the servers when all its clients
// have ended cleanly.
func (t *trial) left() {
	if t.sys.Left == nil {
		return
	}
	ctx, cancel := context.WithTimeout(t.ctx, 10*time.Second)
	defer cancel()
	n, err := t.sys.Left(ctx, t.cluster.Addrs(), t.lock)
	t.must(err)
	t.out["left"] = float64(n)
}

// player is a client in a trial: an agent whose failures end the trial.
type player struct {
	t      *trial
	agent  *agent
	asking bool // it has an acquire command without a result
}

func (p *player) tell(format string, args ...any) { p.t.must(p.agent.tell(format, args...)) }

// acquire takes the lock, which must be free.
func (p *player) acquire() said {
	p.asks(20 * time.Second)
	s, err := p.agent.await(25*time.Second, "acquired", "busy", "failed")
	p.t.must(err)
	p.asking = false
	if s.Word != "acquired" {
		p.t.failf("%s asks for a lock that nobody has: %s %s", p.agent.name, s.Word, s.text())
	}
	return s
}

// asks sends an acquire command with the time limit d.
func (p *player) asks(d time.Duration) {
	how := ""
	if p.t.shared[p.agent.name] {
		how = " shared"
	}
	p.tell("acquire %d%s", d.Milliseconds(), how)
	p.asking = true
}

// waits sends an acquire command for a lock that another client holds. It returns when the request
// has almost certainly arrived.
func (p *player) waits() {
	p.asks(10 * time.Minute)
	p.t.pause(400 * time.Millisecond)
}

// granted waits for the grant of a pending acquire and returns its time, or false if there is none
// within d. A failed acquire is tried again, as a user would.
func (p *player) granted(d time.Duration) (time.Time, bool) {
	for end := time.Now().Add(d); ; {
		s, err := p.agent.await(time.Until(end), "acquired", "failed", "busy")
		if errors.Is(err, errQuiet) {
			return time.Time{}, false
		}
		p.t.must(err)
		p.asking = false
		if s.Word == "acquired" {
			return s.At, true
		}
		p.t.out["acquires that failed"]++
		p.t.pause(100 * time.Millisecond)
		p.asks(10 * time.Minute)
	}
}

// turn waits until the lock is granted, records how long after since that was, and releases.
func (p *player) turn(since time.Time) {
	if at, ok := p.granted(p.t.limit()); ok {
		p.t.took("granted", at.Sub(since))
		p.release()
	}
}

func (p *player) release() bool {
	p.tell("release")
	s, err := p.agent.await(20*time.Second, "released", "unreleased")
	p.t.must(err)
	return s.Word == "released"
}

// write has the client write to the resource if it believes that it holds, and reports whether it
// did.
func (p *player) write() bool {
	p.tell("write")
	return p.wrote()
}

func (p *player) wrote() bool {
	s, err := p.agent.await(20*time.Second, "write", "refrained")
	p.t.must(err)
	return s.Word == "write"
}

// told returns when the client was first notified of the loss of its hold, and waits at most d for
// it.
func (p *player) told(d time.Duration) (time.Time, bool) {
	for end := time.Now().Add(d); ; time.Sleep(10 * time.Millisecond) {
		if s, ok := p.agent.heard("lost"); ok {
			return s.At, true
		}
		if time.Now().After(end) {
			return time.Time{}, false
		}
	}
}

func (p *player) kill() time.Time {
	at, err := p.agent.kill()
	p.t.must(err)
	return at
}

func (p *player) stop() time.Time {
	at, err := p.agent.stop()
	p.t.must(err)
	return at
}

func (p *player) cont() time.Time {
	at, err := p.agent.cont()
	p.t.must(err)
	return at
}

// quit ends the client cleanly; a client that still waits for the lock is killed.
func (p *player) quit() {
	if p.asking {
		p.kill()
		return
	}
	p.tell("quit")
	ended := make(chan struct{})
	go func() {
		p.agent.reading.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(10 * time.Second):
		p.t.failf("%s does not end", p.agent.name)
	}
}

// cpu returns the processor time that the processes have used, as far as they still run.
func cpu(pids []int) (d time.Duration) {
	for _, pid := range pids {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			continue
		}
		_, rest, _ := strings.Cut(string(stat), ") ") // the name may contain spaces
		f := strings.Fields(rest)
		if len(f) < 13 {
			continue
		}
		user, _ := strconv.Atoi(f[11])
		system, _ := strconv.Atoi(f[12])
		d += time.Duration(user+system) * 10 * time.Millisecond // USER_HZ is 100 on every Linux
	}
	return d
}

// hash returns a seed from words.
func hash(words ...string) uint64 {
	h := fnv.New64a()
	for _, w := range words {
		h.Write([]byte(w))
		h.Write([]byte{0})
	}
	return h.Sum64()
}
