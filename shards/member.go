package shards

// One call of Run: a candidate in the queue of members that follows the plan, until it leaves.

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/zklock"
)

const (
	handOver   = 2 * time.Second        // how long a member that leaves waits for the next owners
	lookAround = 500 * time.Millisecond // how often it looks whether any other member is present
)

// run is one call of Run. Its goroutines are the candidate, the follower of the plan, and one for
// each shard that is wanted or worked on, with one more while it queues or works.
type run struct {
	g      *Group
	l      layout
	n      int
	id     string
	f      Func
	began  time.Time
	values context.Context         // of Run, without its end
	stop   context.CancelCauseFunc // ends the membership

	workers  sync.WaitGroup
	requests sync.WaitGroup

	state      string        // the prefix of the node that shows the member's state; "" without one
	cannotPlan bool          // it was logged
	cannotMark bool          // it was logged
	yielded    time.Time     // when this planner has last queued again
	planned    chan struct{} // has a value when this planner leaves, and has given its shards to others

	mu struct {
		sync.Mutex
		shards   map[int]*worker // those that are wanted or worked on
		isLast   bool            // no other member is waited for any more
		plan     plan            // the last one that was read
		session  int64           // the ZooKeeper session in which a plan was read
		isMember bool            // a plan has named this member, so a rejection does not end Run
		numbers  Stats           // its counters and flags
	}
}

func newRun(g *Group, f Func) *run {
	r := &run{g: g, l: g.l, n: g.n, id: rand.Text()[:16], f: f, began: time.Now(), planned: make(chan struct{}, 1)}
	r.l.calls = &r.requests
	r.mu.shards = map[int]*worker{}
	r.mu.numbers = Stats{Name: g.o.name, Shards: g.n, PlanVersion: -1}
	return r
}

// run joins, works, and leaves when ctx ends or this process cannot take part.
func (r *run) run(ctx context.Context) error {
	defer r.requests.Wait()
	member, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	r.values, r.stop = context.WithoutCancel(ctx), stop
	if _, err := persist(member, r.l, func() (any, error) { return nil, r.l.ensure(r.n) }); err != nil {
		return err
	}
	candidacy, withdraw := context.WithCancel(r.values)
	defer withdraw()
	withdrawn := make(chan struct{})
	go func() {
		defer close(withdrawn)
		r.campaign(candidacy)
	}()
	r.follow(member)
	r.leave(withdraw, withdrawn)
	return context.Cause(member)
}

// mark replaces the node that shows the state of this member. If an earlier response was lost, that
// node can remain until the member has left.
func (r *run) mark(state string) error {
	node := func(state string) string { return r.l.members() + "/" + state + r.id }
	ops := []any{&zk.CreateRequest{Path: node(state), Acl: r.l.acl, Flags: zk.FlagEphemeral}}
	if r.state != "" {
		ops = append(ops, &zk.DeleteRequest{Path: node(r.state), Version: -1})
	}
	_, err := r.l.s.Conn().Multi(ops...)
	switch {
	case err == nil, errors.Is(err, zk.ErrNodeExists): // the response to an earlier request was lost
		r.state, err = state, nil
	case errors.Is(err, zk.ErrNoNode): // the ZooKeeper session is a new one
		r.state = ""
	}
	return err
}

// becomeReady marks this member as ready when it is time. It returns when to call it again.
func (r *run) becomeReady() time.Duration {
	if r.state == readyPrefix {
		return lookAgain
	}
	rest := time.Until(r.began.Add(probation(r.g.o.quiet, r.followed().Crashes)))
	if rest <= 0 {
		if rest = pauseMax; r.isCurrent() {
			if err := r.mark(readyPrefix); err == nil {
				rest = lookAgain
			} else {
				r.warn(&r.cannotMark, "shards: cannot report that this member is ready, so it gets no shards of other members", err)
			}
		}
	}
	return min(rest, lookAgain)
}

// planW reads the plan. In a new ZooKeeper session it first creates a node that prevents SetShards,
// and then reads PATH: so a member never works with a number of shards that is no longer valid.
func (r *run) planW() (read reading, err error) {
	session := r.l.s.Stats().SessionID
	if !r.isCurrent() {
		r.wake() // no worker queues before the plan was read
		r.state = ""
		if err = r.mark(newPrefix); errors.Is(err, zk.ErrNoNode) {
			if err = r.l.repair(); err == nil {
				err = r.mark(newPrefix)
			}
		}
		if err == nil {
			err = r.l.ensure(r.n)
		}
	}
	if err == nil {
		read, err = r.l.planW()
	}
	if read.session = session; err == nil && r.l.s.Stats().SessionID != session {
		err = zk.ErrSessionExpired
	}
	return read, err
}

// isCurrent reports whether the plan was read in the current ZooKeeper session.
func (r *run) isCurrent() bool {
	session := r.l.s.Stats().SessionID // before r.mu, because Stats takes other mutexes
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mu.session != 0 && r.mu.session == session
}

// endures reports whether this member stays in the group after the error: if its candidate, PATH or
// the plan is rejected before it was a member, Run ends.
func (r *run) endures(err error) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !zklock.IsFinal(err) && !errors.Is(err, errPlan) || r.mu.isMember && (isRejected(err) || errors.Is(err, errPlan))
}

// warn logs an error once, until isLogged is reset.
func (r *run) warn(isLogged *bool, msg string, err error) {
	if !*isLogged {
		*isLogged = true
		r.g.o.log.Warn(msg, "path", r.l.path, "err", err)
	}
}

// campaign queues with the other members until ctx ends or this process cannot be a member. The
// first in the queue plans.
func (r *run) campaign(ctx context.Context) {
	self := candidate{Member: Member{Name: r.g.o.name, Data: r.g.o.data, Weight: r.g.o.weight, ID: r.id}, Shards: r.n}
	data, _ := json.Marshal(self)
	var e *zklock.Election
	e, err := zklock.NewElection(r.l.s, r.l.path+"/members", zklock.WithACL(r.l.acl), zklock.WithData(data), zklock.WithName(r.l.path),
		zklock.WithRevocation(func(*zklock.Hold) { _ = e.Resign(ctx) })) // and queue again with the data
	hasFailed := false
	for pause := backoff(0); err == nil; pause.wait(ctx) {
		began := time.Now()
		if err = e.Run(ctx, r.lead); ctx.Err() != nil {
			return
		}
		if time.Since(began) > goodWork {
			pause, hasFailed = 0, false
		}
		if r.endures(err) {
			r.warn(&hasFailed, "shards: cannot queue with the other members, which get the shards of this one", err)
			err = nil
		}
	}
	r.stop(err)
}

// follow reads each plan until ctx ends or this process cannot be a member. If a plan cannot be
// read, a member continues with the last one of its ZooKeeper session.
func (r *run) follow(ctx context.Context) {
	hasFailed := false
	for a, err := range r.l.plans(ctx, r.n, r.planW, r.becomeReady) {
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			hasFailed = false
			r.apply(ctx, a)
		case r.endures(err):
			r.warn(&hasFailed, "shards: cannot read the plan, and this member keeps its shards", err)
		default:
			r.stop(err)
			return
		}
	}
}

// apply records which shards are wanted, and starts the workers of those that are new.
func (r *run) apply(ctx context.Context, a Assignment) {
	mine, other := map[int]bool{}, ""
	for shard := range r.n {
		switch m, ok := a.Owner(shard); {
		case !ok || m.Name != r.g.o.name:
		case m.ID == r.id:
			mine[shard] = true
		default:
			other = m.ID
		}
	}
	isTaken := false
	if other != "" {
		isTaken, _ = await(ctx, r.l, func() (bool, error) { return r.l.isPresent(other) })
	}
	r.mu.Lock()
	was := r.mu.numbers.NameTaken
	r.mu.numbers.NameTaken = isTaken
	if a.Shards() > 0 || r.mu.session != a.session { // otherwise an operator has removed the plan: the planner will write it again
		r.mu.numbers.PlanVersion = a.Version
		r.wantLocked(mine)
	}
	if a.Shards() > 0 {
		r.mu.plan = a.p
	}
	r.mu.session = a.session
	r.mu.isMember = r.mu.isMember || slices.ContainsFunc(a.Members, func(m Member) bool { return m.ID == r.id })
	r.mu.Unlock()
	r.wake()
	if isTaken && !was {
		r.g.o.log.Warn("shards: another member has this name: this one gets no shards until the other has left", "path", r.l.path, "name", r.g.o.name)
	}
}

// wantLocked notifies the workers whether their shards are wanted, and starts missing workers.
func (r *run) wantLocked(mine map[int]bool) {
	for shard, w := range r.mu.shards {
		w.wantLocked(mine[shard])
	}
	for shard := range mine {
		if r.mu.shards[shard] == nil {
			w := newWorker(r, shard)
			r.mu.shards[shard] = w
			r.workers.Go(w.loop)
		}
	}
}

// leave withdraws the candidate, hands the shards over to the members that the plan names from now
// on, and returns when the last function has returned. Meanwhile a node shows that this member
// leaves in order: so its shards are reassigned at once, and SetShards is rejected.
func (r *run) leave(withdraw func(), withdrawn <-chan struct{}) {
	r.mu.Lock()
	r.wantLocked(nil)
	r.mu.Unlock()
	last := time.AfterFunc(handOver, r.wantNobody)
	defer last.Stop()
	gone := make(chan struct{})
	go func() {
		r.workers.Wait()
		close(gone)
	}()
	r.requests.Wait()
	_ = r.mark(leftPrefix)
	if r.stats().Planner { // the next in the queue may be a dead session
		select {
		case <-r.planned:
		case <-withdrawn:
		case <-time.After(settle):
		}
	}
	withdraw()
	<-withdrawn
	for isGone := false; !isGone; {
		others, left, err := r.l.others(r.id)
		if err == nil && !left { // the ZooKeeper session is a new one
			r.state = ""
			_ = r.mark(leftPrefix)
		}
		if err == nil && !others {
			r.wantNobody()
		}
		select {
		case <-gone:
			isGone = true
		case <-time.After(lookAround):
		}
	}
	ctx, cancel := context.WithTimeout(r.values, handOver) // if that is too short, the end of the ZooKeeper session deletes it
	defer cancel()
	for _, state := range []string{newPrefix, readyPrefix, leftPrefix} { // an earlier one is there if its response was lost
		_, _ = persist(ctx, r.l, func() (any, error) {
			err := r.l.s.Conn().Delete(r.l.members()+"/"+state+r.id, -1)
			if errors.Is(err, zk.ErrNoNode) {
				err = nil
			}
			return nil, r.l.errorf("leave", err)
		})
	}
}

// wantNobody ends the functions whose next owner is not present.
func (r *run) wantNobody() {
	r.mu.Lock()
	r.mu.isLast = true
	r.mu.Unlock()
	r.wake()
}

// wake has each worker look at what is wanted.
func (r *run) wake() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, w := range r.mu.shards {
		w.wake()
	}
}

// followed returns the last plan that was read, which is empty before the first.
func (r *run) followed() plan {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mu.plan
}

func (r *run) count(f func(s *Stats)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f(&r.mu.numbers)
}

func (r *run) stats() Stats {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	st := r.mu.numbers
	for _, w := range r.mu.shards {
		w.addToLocked(&st, now)
	}
	slices.SortFunc(st.Idle, func(a, b Idle) int { return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Shard, b.Shard)) })
	return st
}
