package main

// A trial is one run of an experiment with one system, on a lock of its own. The experiment reads as a list of steps: a step that
// cannot be made ends the trial, and the trial is counted as failed and said so.

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

// outcome is what came of a trial: figures by name. A time is in seconds, what was or was not the case is 1 or 0, and what did not
// come to pass is not there.
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
	shared  map[string]bool // the clients who are readers
	ledger  ledger
	players []*player

	stands        func(sequencer string) (bool, error) // of System.Resource
	closeResource func() error
	unknown       atomic.Value // an error of stands: there is no verdict on a write
	out           outcome
	began         time.Time // of the fault: the zero of the picture
	ended         time.Time
	random        *rand.Rand
}

// entries are those of the ledger, until the trial's steps were done.
func (t *trial) entries() []entry {
	return slices.DeleteFunc(t.ledger.read(), func(e entry) bool { return e.At.After(t.ended) })
}

// giveUp is what ends a trial.
type giveUp struct{ err error }

func (t *trial) must(err error) {
	if err != nil {
		panic(giveUp{err})
	}
}

func (t *trial) failf(format string, args ...any) { t.must(fmt.Errorf(format, args...)) }

// play runs an experiment's steps, ends all clients and adds what the ledger shows.
func (t *trial) play(steps func(*trial)) (err error) {
	defer func() {
		r := recover()
		if g, ok := r.(giveUp); ok {
			err, r = g.err, nil
		}
		t.ended = time.Now() // what follows is no part of the trial
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
		if _, told := t.out["told"]; told && v.Doubles > 0 { // of one that is never told the trial sees no end
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

// limit is how long the lab waits for a grant that does not come: what is "never" on the page.
func (t *trial) limit() time.Duration { return 2*t.ttl + 3*time.Second + t.sys.Delay }

// pause lets time pass, as part of what is staged.
func (t *trial) pause(d time.Duration) {
	select {
	case <-time.After(d):
	case <-t.ctx.Done():
		t.must(context.Cause(t.ctx))
	}
}

// settle lets a random time pass, up to a third of the lock's time, so that faults do not fall into step with renewals.
func (t *trial) settle() {
	t.pause(200*time.Millisecond + time.Duration(t.random.Int64N(int64(t.ttl/3))))
}

// zero says that the fault happens at this time.
func (t *trial) zero(at time.Time) time.Time {
	t.began = at
	return at
}

// client starts a client. One of that name that was killed before is started again.
func (t *trial) client(name string) *player { return t.clientOf(name, t.cluster.Addrs()...) }

// clientOf starts a client that knows of some servers only.
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

// left notes what the servers have of the lock when all that used it have ended well.
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
	asking bool // it was told to acquire, and has not said what came of it
}

func (p *player) tell(format string, args ...any) { p.t.must(p.agent.tell(format, args...)) }

// acquire takes the lock, which nobody else has.
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

// asks begins to ask for the lock, for so long.
func (p *player) asks(d time.Duration) {
	how := ""
	if p.t.shared[p.agent.name] {
		how = " shared"
	}
	p.tell("acquire %d%s", d.Milliseconds(), how)
	p.asking = true
}

// waits begins to ask for a lock that somebody else holds, and returns when the question has surely arrived.
func (p *player) waits() {
	p.asks(10 * time.Minute)
	p.t.pause(400 * time.Millisecond)
}

// granted returns when the lock was granted to one who waits, or false if it is not within d. An acquire that fails is tried again,
// as a user would.
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

// turn waits until the lock is granted, notes how long after a time that was, and releases.
func (p *player) turn(since time.Time) {
	if at, ok := p.granted(p.t.limit()); ok {
		p.t.took("granted", at.Sub(since))
		p.release()
	}
}

// release gives the lock up, and says whether the client was told that all was well.
func (p *player) release() bool {
	p.tell("release")
	s, err := p.agent.await(20*time.Second, "released", "unreleased")
	p.t.must(err)
	return s.Word == "released"
}

// write has it write to the resource if it believes that it holds, and returns whether it did.
func (p *player) write() bool {
	p.tell("write")
	return p.wrote()
}

// wrote returns what came of a write that it was told before.
func (p *player) wrote() bool {
	s, err := p.agent.await(20*time.Second, "write", "refrained")
	p.t.must(err)
	return s.Word == "write"
}

// told returns when it first learnt that it holds no more, and waits for that so long.
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

// quit ends it well; one that still waits for the lock is killed.
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

// cpu returns the processor time that processes have used, of those that run.
func cpu(pids []int) (d time.Duration) {
	for _, pid := range pids {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			continue
		}
		_, rest, _ := strings.Cut(string(stat), ") ") // the name may have spaces
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

// hash makes a seed of words.
func hash(words ...string) uint64 {
	h := fnv.New64a()
	for _, w := range words {
		h.Write([]byte(w))
		h.Write([]byte{0})
	}
	return h.Sum64()
}
