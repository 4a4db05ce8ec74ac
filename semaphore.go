package zklock

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/zklock/internal/answer"
	"github.com/zklock/zklock/internal/link"
	"github.com/zklock/zklock/internal/queue"
	"github.com/zklock/zklock/internal/wire"
)

// Semaphore is a number of permits on a path: so many may hold at a time, among all clients of the ensemble. It is reusable, safe
// for many goroutines, and costs nothing until it is used. Its nodes are those of Curator's InterProcessSemaphoreV2: a queue below
// path/locks, and below path/leases a node for each permit.
//
// It keeps the promises of the package in this sense. I1: there are never more permits in use than the largest limit that was set.
// I2: a call has at most one node in the queue, and as many leases as it wants permits. I5: a hold is lost with its lease, and with any
// of its nodes. I8: grants follow the queue, and a permit that is freed wakes one waiter; more only if it finds room for more. A Session
// that found room at its last acquire takes a permit as it takes a mutex: in one round trip and with one write.
type Semaphore struct {
	m Mutex // on the queue
	n int
}

// NewSemaphore returns the semaphore on path with n permits. All clients must give the same n, or share it (WithSharedLimit): with
// different ones, up to the largest is in use at a time, and a client that waits behind more than its own n warns of it in its log.
//
// The path must be the semaphore's own. The first acquire of a Session on a path looks, and returns an error if another recipe's nodes are
// there: those of a mutex, a read/write lock, an election, or kazoo's semaphore. That look takes a round trip. The options are those of NewMutex. NewSemaphore sends nothing.
func NewSemaphore(s *Session, path string, n int, opts ...MutexOption) (*Semaphore, error) {
	fail := func(err error) (*Semaphore, error) {
		return nil, &Error{Op: "new semaphore", Path: path, Err: err}
	}
	if !s.isConnected() {
		return fail(errNoSession)
	}
	o := newMutexOptions(opts)
	err := checkPath(path)
	switch {
	case err != nil:
	case n < 1 || n > math.MaxInt32:
		err = fmt.Errorf("%d permits: give 1 to %d", n, math.MaxInt32)
	case o.limit != "" && n > mostPermits:
		err = fmt.Errorf("%d permits WithSharedLimit: give 1 to %d", n, mostPermits)
	case o.limit == path, o.limit == path+"/locks", o.limit == path+"/leases", strings.HasPrefix(o.limit, path+"/locks/"), strings.HasPrefix(o.limit, path+"/leases/"),
		o.limit != "" && strings.HasPrefix(path, o.limit+"/"):
		err = fmt.Errorf("WithSharedLimit: %s is a node of the semaphore or above it: give another, such as %s/limit", o.limit, path)
	case o.name == queue.LatchName:
		err = errors.New("WithLatchNodes: only an election can have them: give it to NewElection, or leave the option out")
	case o.delay > 0:
		err = errDelayOfOthers
	case o.minHold > 0:
		err = errMinHoldOfOthers
	case o.keptRuns > 0:
		err = errKeptRunsOfOthers
	default:
		err = o.check()
	}
	if err != nil {
		return fail(badArgument{err})
	}
	root := lockRoot{chroot: s.chroot, given: path, acl: o.acl, container: o.container, rule: queue.Rule{Name: queue.MutexName, Markers: queue.Markers}, roots: &s.roots}
	leases := root
	root.path, leases.path = s.chroot+path+"/locks", s.chroot+path+"/leases"
	leases.rule.Markers = []string{queue.LeaseName}
	p := &permits{leases: leases, n: n}
	if o.limit != "" {
		p.limit = s.chroot + o.limit
		if !o.container {
			root.with = func(z *link.Era) { ask(z, wire.OpCreate, p.limitNode(n), nil) }
		}
	}
	root.share, root.isFresh, root.more, root.fits = queue.LeaseName, true, &p.leases, fitsSemaphore
	return &Semaphore{m: Mutex{s: s, root: root, opts: o, recipe: p, traced: "semaphore"}, n: n}, nil
}

// String returns the path, in one word.
func (sem *Semaphore) String() string { return "Semaphore(" + sem.Path() + ")" }

// Path returns the path as given to NewSemaphore.
func (sem *Semaphore) Path() string { return sem.made().m.root.given }

func (sem *Semaphore) isMade() bool { return sem != nil && sem.m.isMade() }

// made is for methods that return no error.
func (sem *Semaphore) made() *Semaphore {
	if !sem.isMade() {
		panic(fmt.Errorf("zklock: %w", errNoSemaphore))
	}
	return sem
}

// Permits returns a Lock that takes k permits, all or none, in one hold. What can never be granted, its calls refuse at once, before they
// send anything, with an error that says the limit and for which IsFinal is true: k is below 1 or above the n given to NewSemaphore, also
// with WithSharedLimit; k leases and a node in the queue are more than WithMaxLockNodes; or the request that makes the leases, with
// data and ACL in each, is longer than the servers read (WithJuteMaxBuffer): by default 1,048,575 bytes, which are some 8,000 leases with
// short data. Otherwise its calls are those of a Mutex, but for this:
//
// Each call takes permits of its own. It does not re-enter, even if its context carries a hold of the semaphore or an owner: a call
// that has permits and asks for more may wait for itself, as with every semaphore. The owner that WithOwner sets is the hold's, for logs.
//
// Calls take their turn in the order of their queue. Several take permits at a time, where there is room for all who came before, of whom each
// counts with one permit. So a call that wants many may be overtaken by those that want few, but not once it is first in line. That
// applies also to a call that wants more than the shared limit is now: it waits until the limit is raised or its context ends, and all behind it
// wait with it. A try returns ErrNotAcquired then. If a permit is free that those ahead may take, a try waits until they have, for two
// heartbeats at most.
//
// The hold's Node is its first lease, and Hold.Checks has a check for each. If one lease is deleted, the whole hold is lost, and the
// other permits are free. Its Token is the czxid of its leases. Where only one can hold at a time, it grows with each grant. Where several
// do, a resource must not refuse the smaller token of one that still holds: use Checks or Deadline.
//
// A Curator client that acquires several leases takes them one by one and keeps what it has. Two such clients can wait for each
// other, and all others with them, for as long as they wait; so can one of them and a caller of ours. Two callers of ours never do,
// because they do not hold a part.
func (sem *Semaphore) Permits(k int) Lock {
	m := sem.made().m
	p := *m.recipe.(*permits)
	p.k, m.recipe = k, &p
	m.wrong = m.neverGrants(&p)
	return &permitLock{&m}
}

// neverGrants returns why the permits cannot be had in one hold, whatever others do; nil if they can. A call hears that before it queues.
func (m *Mutex) neverGrants(p *permits) error {
	if p.k < 1 || p.k > p.n {
		return badPermits(p.k, p.n)
	}
	if all, each := p.lengthOf(p.k, &m.root, m.opts.data); all > int64(m.s.opts.juteMaxBuffer) {
		most := int64(m.s.opts.juteMaxBuffer)
		return badArgument{fmt.Errorf("%d permits take a request of %d bytes, %d for each, and servers read %d (jute.maxbuffer): ask for %d at most, or give less data",
			p.k, all, each, most, int64(p.k)-(all-most+each-1)/each)}
	}
	if most := m.s.opts.maxLockNodes; p.k >= most {
		return badArgument{fmt.Errorf("%d permits are %d lock nodes, one of them in the queue, and this Session may have %d: ask for fewer, or raise WithMaxLockNodes", p.k, int64(p.k)+1, most)}
	}
	return nil
}

// permitLock is a Lock and nothing else: what a Mutex has beside is about owners.
type permitLock struct{ m *Mutex }

func (l *permitLock) mutex() *Mutex { return l.m }

func (l *permitLock) Acquire(ctx context.Context) (*Hold, error)    { return l.m.Acquire(ctx) }
func (l *permitLock) TryAcquire(ctx context.Context) (*Hold, error) { return l.m.TryAcquire(ctx) }
func (l *permitLock) Do(ctx context.Context, f func(ctx context.Context, hold *Hold) error, opts ...DoOption) error {
	return l.m.Do(ctx, f, opts...)
}

func (l *permitLock) TryDo(ctx context.Context, f func(ctx context.Context, hold *Hold) error) error {
	return l.m.TryDo(ctx, f)
}
func (l *permitLock) Path() string { return l.m.Path() }
func (l *permitLock) String() string {
	return fmt.Sprintf("%d permits of %s", l.m.recipe.(*permits).k, l.Path())
}

// Participants returns the permits that are in use, one for each lease, and then the waiters, the next in line first. A caller
// appears as often as it has nodes there. The Token of a lease is that of its hold. Nodes that go meanwhile are left out.
// While no server can be reached, Participants waits for one until ctx ends.
//
// A lease that was granted is in use until it goes, so there may be more holders than the limit: it was lowered, or other clients go by a
// larger one. No node says that its lease was granted. But only the client in front of the queue can have leases that are not: those it made
// last, after its node in the queue, if all leases together are more than the limit. These wait. So for a moment, while leases are made and
// nodes leave the queue, a caller that was just granted is in both, and a hold of the front's Session may be taken for the front's. For a round trip,
// leases that were made in vain, because others were quicker, look like holds. And a caller that waits with leases counts as a holder if somebody
// deletes its node in the queue.
func (sem *Semaphore) Participants(ctx context.Context) (holders, waiters []Participant, err error) {
	if !sem.isMade() {
		return nil, nil, &Error{Op: "participants", Err: errNoSemaphore}
	}
	err = sem.m.reading(ctx, "participants", func(e *era) error {
		p := sem.m.recipe.(*permits)
		asked := p.askLimit(e)
		leases, err := participantsIn(ctx, e, &p.leases)
		if err != nil {
			return err
		}
		queued, err := participantsIn(ctx, e, &sem.m.root)
		if err != nil {
			return err
		}
		n, err := p.limitNow(asked)
		if err != nil {
			return err
		}
		holders, waiters = splitLeases(leases, queued, n)
		return nil
	})
	return holders, waiters, err
}

// Limit returns the shared limit, as the Session's server has it: just after a change, another may have it first. Where nobody has made
// its node yet, it is the number given to NewSemaphore. Only a semaphore WithSharedLimit has one; data that is no limit is an error that names
// the node. Of both IsFinal is true. While no server can be reached, Limit waits for one until ctx ends.
func (sem *Semaphore) Limit(ctx context.Context) (n int, err error) {
	err = sem.onLimit(ctx, "limit", func(e *era, p *permits) error {
		now, err := p.readLimit(ctx, e.Era)
		if n = p.n; errors.Is(err, zk.ErrNoNode) {
			return nil
		}
		if err == nil {
			n, err = parseLimit(p.limit, now.Data)
		}
		return err
	})
	if err != nil {
		return 0, err
	}
	return n, nil
}

// SetLimit sets the shared limit for all, from 0, with which nobody is granted, to 2^24. It makes the node if that is not there, as
// acquires do, and replaces data that is no limit. WithSharedLimit says what follows for holders and waiters.
//
// It does not overwrite a limit that somebody else sets at the same time, or did just before: then the error wraps zk.ErrBadVersion and
// says what the limit is now, and IsFinal is false. (Of two that find no node, both may return nil, and the later one's number stays.) What
// was set before the call, it replaces: a program that computes n from Limit takes a lock for the two calls.
//
// While no server can be reached, SetLimit waits for one until ctx ends. If ctx ends while the change is on its way, the limit may or may
// not be set; the error says so.
func (sem *Semaphore) SetLimit(ctx context.Context, n int) error {
	if sem.isMade() && (n < 0 || n > mostPermits) {
		return &Error{Op: "set limit", Path: sem.m.root.given, Err: badArgument{fmt.Errorf("a limit of %d permits: give 0 to %d", n, mostPermits)}}
	}
	c := limitChange{to: n}
	err := sem.onLimit(ctx, "set limit", func(e *era, p *permits) error { return c.try(ctx, e.Era, p) })
	if e, ok := err.(*Error); ok && c.sent && !answer.IsRefusal(e.Err) {
		e.Err = fmt.Errorf("the limit may or may not be set: %w", e.Err)
	}
	return err
}

// onLimit calls f until a connection lasts for as long as it takes.
func (sem *Semaphore) onLimit(ctx context.Context, op string, f func(e *era, p *permits) error) error {
	if !sem.isMade() {
		return &Error{Op: op, Err: errNoSemaphore}
	}
	p := sem.m.recipe.(*permits)
	if p.limit == "" {
		return &Error{Op: op, Path: sem.m.root.given, Err: badArgument{fmt.Errorf("the limit is fixed, %d: give NewSemaphore WithSharedLimit", p.n)}}
	}
	return sem.m.reading(ctx, op, func(e *era) error { return f(e, p) })
}

// splitLeases tells who holds from who waits. Who waits with leases has also a node in front of the queue, which is left out.
func splitLeases(leases, queued []Participant, limit int) (holders, waiters []Participant) {
	var front queue.Owned
	if len(queued) > 0 {
		front = ownedBy(queued[0])
	}
	owned := make([]queue.Owned, len(leases))
	for i, p := range leases {
		owned[i] = ownedBy(p)
	}
	held := queue.GrantedLeases(owned, front, limit)
	if held < len(leases) {
		queued = queued[1:]
	}
	holders, waiters = leases[:held:held], slices.Concat(leases[held:], queued)
	setHolds(holders, true)
	setHolds(waiters, false)
	return holders, waiters
}

func ownedBy(p Participant) queue.Owned {
	return queue.Owned{Name: nameOf(p.Node), Session: p.SessionID, Token: p.Token}
}

func setHolds(ps []Participant, holds bool) {
	for i := range ps {
		ps[i].Holds = holds
	}
}
