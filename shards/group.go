// Package shards divides N shards evenly among the processes of a group: partitions, tenants,
// queues or cron groups, with exactly one owner each.
//
//	g, err := shards.New(s, "/orders/workers", 256, shards.WithMember("orders-3", []byte("10.0.0.7:8080")))
//	err = g.Run(ctx, func(ctx context.Context, shard int, hold *zklock.Hold) error {
//		return consume(ctx, shard, hold.Token()) // until ctx ends
//	})
//
// Each shard is an ordinary mutex, so at most one process works on it, and each of its holds has a
// larger token than all before it. This does not depend on the plan, which only determines which
// member should own which shard. One member writes the plan, the members follow it, and few shards
// move when a member joins or leaves. docs/shards.md describes the rule, the times and the cost.
//
// # Guarantees
//
// Exclusion: at most one function works on a shard at a time, under the guarantees of a
// zklock.Mutex. A process never runs two functions for one shard, also after it has lost a hold:
// the next one waits until the previous one has returned.
//
// Completeness: when no member joins, leaves or fails for WithQuiet, each shard has an owner, and
// the numbers of shards of two members of equal weight differ by one at most. While new members
// crash again and again, a new member may wait for its part for some 5 minutes.
//
// Few moves: a join moves the shards that the new member gets, a leave those that the leaving
// member had, and no others. A member that returns within a second under its name and has lost its
// shards gets them back, unless members crash again and again.
//
// Small faults: a znode that the servers reject, or whose data cannot be read, ends the work that
// needs it, and no other: the work on one shard, the part of one member, or the planning, without
// which the shards stay where they are. That work continues when the znode is repaired.
//
// Short moves: the previous owner continues to work until the next one is queued behind it. So a
// shard that moves is without an owner while the function returns and the lock is passed on. After
// a crash it also is for the session timeout and a second.
package shards

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"os"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/zklock"
)

// The largest values that are accepted.
const (
	MaxShards = 10_000 // of a group
	MaxWeight = 1_000  // of a member
	MaxName   = 128    // bytes
	MaxData   = 1_024  // bytes
)

// DefaultQuiet is how long no member must join or leave before the shards are balanced, unless
// WithQuiet is given.
const DefaultQuiet = 10 * time.Second

var (
	// ErrShardCount: the group was created for another number of shards. All members must have the
	// same number, because with two numbers the same key is in two shards.
	ErrShardCount = zklock.Final(errors.New("wrong number of shards"))
	// ErrMembers: a member is present, so the number of shards cannot be changed.
	ErrMembers = errors.New("the group has members")

	errLayout = zklock.Final(errors.New("not a group of shards that this program supports"))
	errPlan   = errors.New("not a plan that this program can follow")
)

// Func works on one shard until ctx ends, and should return soon after. ctx ends when the shard is
// given to another member, when the hold is lost, and when the member leaves. It has the values of
// Run's context, but does not end with it.
//
// If Func returns earlier, with or without an error, or panics, the shard is released, and the
// member queues for it again after a pause. The pause is 100 ms at first, doubles each time up to
// 30 s, and is reset after a minute of work. If Func does not return, no other member gets the
// shard: no time limit releases it.
type Func func(ctx context.Context, shard int, hold *zklock.Hold) error

// Option configures New.
type Option func(*options)

type options struct {
	name      string
	data      []byte
	weight    int
	quiet     time.Duration
	acl       []zk.ACL
	container bool
	log       *slog.Logger
}

// WithMember sets the member's name, and data that every observer can read, for example an address.
// Two members must not have the same name: the later one waits until the earlier one has left. A
// member that returns under its name keeps its shards if it is back within a second. The default is
// host:pid and a random suffix, which is a new name at each start. The name has at most MaxName
// bytes of UTF-8, and the data at most MaxData bytes.
func WithMember(name string, data []byte) Option {
	return func(o *options) { o.name, o.data = name, data }
}

// WithWeight sets the member's weight, 0 to MaxWeight; the default is 1. A member of weight 2 gets
// twice as many shards as one of weight 1, and one of weight 0 gets none.
func WithWeight(w int) Option { return func(o *options) { o.weight = w } }

// WithQuiet sets for how long no member must join or leave before the shards are balanced; the
// default is DefaultQuiet. Shards without an owner do not wait for that. A new member must be
// present for as long before it gets shards, except at the group's start or from a member that
// leaves. Each crash of a member soon after it has got shards (the first one, before that too)
// doubles that time, up to 5 minutes. All members should have the same value: the one that plans
// uses its own.
func WithQuiet(d time.Duration) Option { return func(o *options) { o.quiet = d } }

// WithACL sets the ACL of all znodes that the group creates, as zklock.WithACL does for a lock.
func WithACL(acl []zk.ACL) Option { return func(o *options) { o.acl = acl } }

// WithContainer creates the lock roots of the shards as containers, which the servers remove when
// they are unused: after SetShards with a smaller number. The other nodes of the group remain.
func WithContainer() Option { return func(o *options) { o.container = true } }

// WithLogger sets the logger; the default is slog.Default().
func WithLogger(l *slog.Logger) Option { return func(o *options) { o.log = l } }

// Group is one member of a group of processes, and a view of the group. It is a member only while
// Run is under way. Its methods may be called from any goroutine.
type Group struct {
	o options
	l layout

	mu        sync.Mutex
	n         int
	run       *run // under way, or the last one
	isRunning bool
}

// New returns a member of the group at path with n shards, 1 to MaxShards, and sends nothing. The
// path must be as zklock.NewMutex accepts it and is used by this group alone: Run creates it. All
// members of a group must give the same n, which must be less than the Session's WithMaxLockNodes.
func New(s *zklock.Session, path string, n int, opts ...Option) (*Group, error) {
	host, _ := os.Hostname()
	o := options{name: fmt.Sprintf("%.90s:%d-%s", host, os.Getpid(), rand.Text()[:6]), weight: 1, quiet: DefaultQuiet, acl: zk.WorldACL(zk.PermAll)}
	for _, opt := range opts {
		if opt == nil {
			return nil, &zklock.Error{Op: "shards: new", Path: path, Err: errors.New("nil Option: leave it out")}
		}
		opt(&o)
	}
	if o.log == nil {
		o.log = slog.Default()
	}
	if err := errors.Join(zklock.ValidatePath(path), o.check(n)); err != nil {
		return nil, &zklock.Error{Op: "shards: new", Path: path, Err: err}
	}
	_, err := zklock.NewMutex(s, path+"/shards/0000", o.lock()...) // the Session and the ACL
	if err == nil && s.Stats().MaxLockNodes <= n {
		err = fmt.Errorf("%d shards are %d lock nodes if no other member is present, and this Session may have %d: raise WithMaxLockNodes", n, n+1, s.Stats().MaxLockNodes)
	}
	if err != nil {
		return nil, &zklock.Error{Op: "shards: new", Path: path, Err: err}
	}
	return &Group{o: o, n: n, l: layout{s: s, path: path, root: s.Chroot() + path, acl: o.acl, calls: new(sync.WaitGroup)}}, nil
}

func (o *options) check(n int) error {
	switch {
	case n < 1 || n > MaxShards:
		return fmt.Errorf("%d shards: give 1 to %d", n, MaxShards)
	case o.name == "" || len(o.name) > MaxName || !utf8.ValidString(o.name):
		return fmt.Errorf("WithMember: the name %.200q: give 1 to %d bytes of UTF-8", o.name, MaxName)
	case len(o.data) > MaxData:
		return fmt.Errorf("WithMember: %d bytes of data: give %d at most", len(o.data), MaxData)
	case o.weight < 0 || o.weight > MaxWeight:
		return fmt.Errorf("WithWeight(%d): give 0 to %d", o.weight, MaxWeight)
	case o.quiet < 0:
		return fmt.Errorf("WithQuiet(%v): give a duration of at least 0", o.quiet)
	}
	return nil
}

func (o *options) lock() []zklock.MutexOption {
	opts := []zklock.MutexOption{zklock.WithACL(o.acl), zklock.WithData([]byte(o.name))}
	if o.container {
		opts = append(opts, zklock.WithContainer())
	}
	return opts
}

func (g *Group) mutex(shard int) (*zklock.Mutex, error) {
	return zklock.NewMutex(g.l.s, g.l.shard(shard), append(g.o.lock(), zklock.WithName(g.l.path))...)
}

// Path returns the path of the group, as given.
func (g *Group) Path() string { return g.l.path }

// Run joins the group, calls f in a goroutine of its own for each shard that the plan gives to this
// member, and leaves the group when ctx ends. It creates the group if it does not exist.
//
// When ctx ends, the other members take over: f continues for each shard until the next owner is
// queued for it, for 2 s at most. Run then ends the contexts of all functions and returns when the
// last function has returned. Give a deployment that much time before it kills the process.
//
// Run returns the cause of ctx. It leaves in the same way if this process can no longer take part,
// and returns the reason: ErrShardCount if the group has another number of shards, also after
// SetShards; zklock.ErrClosed; or, until a plan has named this member, a rejection by the servers
// or an error that describes a path or a plan which this program cannot read.
//
// After that, Run continues if the servers reject a request, and logs that. If the plan cannot be
// read, the member keeps its shards. If the servers reject it for a shard, it tries again after
// 1 s, later after up to 30 s; Run ends if they do so for every one of its shards. While no server
// can be reached, Run waits, and then queues again for the shards that it has lost; a member that
// leaves meanwhile does so within two session timeouts, if its functions return.
func (g *Group) Run(ctx context.Context, f Func) error {
	fail := func(err error) error { return &zklock.Error{Op: "shards: run", Path: g.l.path, Err: err} }
	if ctx == nil || f == nil {
		return fail(errors.New("nil context or function: give Run both"))
	}
	g.mu.Lock()
	if g.isRunning {
		g.mu.Unlock()
		return fail(errors.New("Run is under way in this Group: make another with New"))
	}
	r := newRun(g, f)
	g.run, g.isRunning = r, true
	g.mu.Unlock()
	defer func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.isRunning = false
	}()
	return r.run(ctx)
}

// Assignment is a plan: which member should own which shard.
type Assignment struct {
	Members []Member // by name. One that has just joined may be missing until the shards are balanced
	Version int32    // of the plan's node
	p       plan
	session int64 // of a member, as in reading
}

// Owner returns the member to which the plan gives the shard, and false if there is no such member.
// During a move the previous owner may still work on the shard, and after a crash no member does:
// so a member that gets a request for a shard that it does not hold must reject it.
func (a Assignment) Owner(shard int) (Member, bool) { return a.p.owner(shard) }

// Shards returns the number of shards in the plan, which is 0 without a plan.
func (a Assignment) Shards() int { return len(a.p.Shards) }

// Observe returns an iterator over the assignments: the current one, and then each next one. A
// reader that is slow may miss some in between, but never the last. It costs one read and one watch
// for each change. It does not make the process a member.
//
// While no server can be reached, the iterator waits, and the last assignment may be outdated. A
// pair with an error has the reason why the assignment is not known, and the iterator continues. It
// ends with the cause of ctx or an error for which zklock.IsFinal is true as its last pair.
func (g *Group) Observe(ctx context.Context) iter.Seq2[Assignment, error] {
	return func(yield func(Assignment, error) bool) {
		for a, err := range g.l.plans(ctx, 0, g.l.planW, func() time.Duration { return lookAgain }) {
			if !yield(a, err) || zklock.IsFinal(err) {
				return
			}
		}
	}
}

// Holder returns the client that holds the shard's lock now, whatever the plan says: Data is the
// member's name, and Token its fencing token. If no client does, Node is empty. It reads each node
// in the lock's queue.
func (g *Group) Holder(ctx context.Context, shard int) (zklock.Participant, error) {
	g.mu.Lock()
	n := g.n
	g.mu.Unlock()
	if shard < 0 || shard >= n {
		return zklock.Participant{}, &zklock.Error{Op: "shards: holder", Path: g.l.path, Err: fmt.Errorf("shard %d: give 0 to %d", shard, n-1)}
	}
	m, err := g.mutex(shard)
	if err != nil {
		return zklock.Participant{}, err
	}
	ps, err := m.Participants(ctx)
	if err != nil || len(ps) == 0 {
		return zklock.Participant{}, err
	}
	return ps[0], nil
}

// SetShards changes the number of shards of the group, and of this Group, to n, and returns the
// previous number, or 0 if the group did not exist. It returns ErrMembers, and changes nothing,
// while a member is present, or one that has left still works. The new plan has no memory of the
// old one. If the connection is lost meanwhile, the number may or may not be changed.
func (g *Group) SetShards(ctx context.Context, n int) (was int, err error) {
	if err := g.o.check(n); err != nil {
		return 0, &zklock.Error{Op: "shards: set the number of shards", Path: g.l.path, Err: err}
	}
	if was, err = await(ctx, g.l, func() (int, error) { return g.l.setShards(n) }); err == nil {
		g.mu.Lock()
		g.n = n
		g.mu.Unlock()
	}
	return was, err
}

// Idle is a shard that the plan gives to this member, and on which no function works.
type Idle struct {
	Shard int
	Since time.Time
	// Reason is "queued" (another client holds the lock, or no server replies), "rejected" (by the
	// servers), "lost" (the hold), "failed" (the function returned early) or "returning".
	Reason string
}

// Stats is a member in numbers.
type Stats struct {
	Name        string
	Planner     bool  // this member writes the plan
	NameTaken   bool  // another member has the same name: this one waits
	PlanVersion int32 // that this member follows; -1 before it has read one

	Shards    int // of the group
	Wanted    int // shards that the plan gives to this member
	Rejected  int // of those, the ones for which the servers rejected this member
	Working   int // shards on which a function works
	Unwanted  int // of those, the ones that wait for another member to take them over
	Returning int // shards whose function was asked to end and has not returned

	Waiting       time.Duration // the longest time since when a shard has been wanted without a function that works on it
	LongestReturn time.Duration // of the functions that were asked to end, the longest time since then
	Unserved      time.Duration // for how long shards were wanted without a function that works on them, in total over the shards
	Idle          []Idle        // the shards that are wanted without a function that works on them, the oldest first

	Started int64 // functions
	Failed  int64 // functions that returned early or panicked
	Lost    int64 // holds that were lost while a function worked
	Plans   int64 // written by this member
	Moves   int64 // of shards, in those plans
}

// Stats returns the numbers of the Run that is under way, or of the last one. It sends nothing.
func (g *Group) Stats() Stats {
	g.mu.Lock()
	r := g.run
	g.mu.Unlock()
	if r == nil {
		return Stats{Name: g.o.name, PlanVersion: -1}
	}
	return r.stats()
}
