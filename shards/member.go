package shards

// One call of Run: a candidate in the queue of members that follows the plan, until it leaves.

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
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
	values context.Context         // of Run, without its end
	stop   context.CancelCauseFunc // ends the membership

	workers  sync.WaitGroup
	requests sync.WaitGroup

	mu struct {
		sync.Mutex
		shards  map[int]*worker // those that are wanted or worked on
		isLast  bool            // no other member is waited for any more
		plan    plan            // the last one that was read
		numbers Stats           // its counters and flags
	}
}

func newRun(g *Group, f Func) *run {
	r := &run{g: g, l: g.l, n: g.n, id: rand.Text()[:16], f: f}
	r.l.calls = &r.requests
	r.mu.shards = map[int]*worker{}
	r.mu.numbers = Stats{Name: g.o.name, PlanVersion: -1}
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
		if err := r.campaign(candidacy); err != nil {
			stop(err)
		}
	}()
	r.follow(member)
	r.leave(withdraw, withdrawn)
	return context.Cause(member)
}

// campaign queues with the other members until ctx ends or this process cannot be a member. The
// first in the queue plans.
func (r *run) campaign(ctx context.Context) error {
	self := candidate{Member: Member{Name: r.g.o.name, Data: r.g.o.data, Weight: r.g.o.weight, ID: r.id}, Shards: r.n}
	data, _ := json.Marshal(self)
	e, err := zklock.NewElection(r.l.s, r.l.path+"/members", zklock.WithACL(r.l.acl), zklock.WithData(data), zklock.WithName(r.l.path))
	if err != nil {
		return err
	}
	return e.Run(ctx, r.lead)
}

// follow reads each plan until ctx ends, or it can no longer do so: then it ends the membership,
// because a member that does not follow the plan would keep shards and not work on them. If a plan
// is bad, a member that has read a good one continues with that.
func (r *run) follow(ctx context.Context) {
	hasFollowed, hasFailed := false, false
	for a, err := range r.l.plans(ctx) {
		if err == nil && a.Shards() != 0 && a.Shards() != r.n {
			err = r.l.errorf("read the plan", ErrShardCount)
		}
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			hasFollowed, hasFailed = true, false
			if a.Shards() > 0 { // otherwise an operator has removed the plan: the planner will write it again
				r.apply(a)
			}
		case zklock.IsFinal(err), errors.Is(err, errPlan) && !hasFollowed:
			r.stop(err)
			return
		case !hasFailed:
			hasFailed = true
			r.g.o.log.Warn("shards: cannot read the plan, and this member keeps its shards", "path", r.l.path, "err", err)
		}
	}
}

// apply records which shards are wanted, and starts the workers of those that are new.
func (r *run) apply(a Assignment) {
	mine, isTaken := map[int]bool{}, false
	for shard := range r.n {
		switch m, ok := a.Owner(shard); {
		case !ok || m.Name != r.g.o.name:
		case m.ID == r.id:
			mine[shard] = true
		default:
			isTaken = true
		}
	}
	r.mu.Lock()
	was := r.mu.numbers.NameTaken
	r.mu.numbers.NameTaken = isTaken
	r.mu.plan, r.mu.numbers.PlanVersion = a.p, a.Version
	r.wantLocked(mine)
	r.mu.Unlock()
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
	r.mark()
	withdraw()
	<-withdrawn
	for isGone := false; !isGone; {
		others, left, err := r.l.others(r.id)
		if err == nil && !left { // the ZooKeeper session is a new one
			r.mark()
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
	_ = r.l.s.Conn().Delete(r.l.left(r.id), -1) // if that fails, the end of the ZooKeeper session deletes it
}

// mark creates the node of a member that leaves.
func (r *run) mark() {
	_, _ = r.l.s.Conn().Create(r.l.left(r.id), nil, zk.FlagEphemeral, r.l.acl)
}

// wantNobody ends the functions whose next owner is not present.
func (r *run) wantNobody() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.isLast = true
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
	return st
}
