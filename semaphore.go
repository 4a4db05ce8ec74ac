package zklock

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/zklock/internal/node"
	"github.com/zklock/zklock/internal/queue"
	"github.com/zklock/zklock/internal/reply"
)

// Semaphore is a number of permits on a path, which all clients of the ensemble share. It is safe
// for concurrent use. Curator's InterProcessSemaphoreV2 shares the permits.
type Semaphore struct {
	m *Mutex // on the queue
}

// NewSemaphore returns the semaphore on path with n permits, and sends nothing. All clients must
// give the same n, or share a limit ([WithSharedLimit]); otherwise up to the largest n permits are
// in use, and a client that waits with a smaller n logs a warning.
//
// The path must be the semaphore's own: the first acquire returns an error if it finds nodes of
// other recipes or of kazoo.
func NewSemaphore(s *Session, path string, n int, opts ...SemaphoreOption) (*Semaphore, error) {
	fail := func(err error) (*Semaphore, error) {
		return nil, &Error{Op: "new semaphore", Path: path, Err: err}
	}
	if !s.isConnected() {
		return fail(errNoSession)
	}
	o := newLockOptions(opts)
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
	default:
		err = o.check()
	}
	if err != nil {
		return fail(badArgument{err})
	}
	queued := s.rootOptions(path, queue.Rule{Name: queue.MutexName, Markers: queue.Markers}, &o)
	leases := queued
	leases.Rule.Markers = []string{queue.LeaseName}
	queued.Second = node.NewRoot(s.chroot+path+"/leases", leases)
	p := &permits{leases: queued.Second, n: n}
	if o.limit != "" {
		if p.limit = s.chroot + o.limit; !o.container {
			limit := p.limitNode(n)
			queued.Also = &limit
		}
	}
	root := node.NewRoot(s.chroot+path+"/locks", queued)
	p.base, p.each = p.lengths(root, o.data)
	return &Semaphore{&Mutex{s: s, root: lockRoot{Root: root, share: queue.LeaseName, isFresh: true}, opts: o, recipe: p, traced: KindSemaphore}}, nil
}

func (sem *Semaphore) isMade() bool { return sem != nil && sem.m.isMade() }

func (sem *Semaphore) made() *Semaphore { return usable(sem, sem.isMade(), errNoSemaphore) }

// Acquire takes n permits in one hold, all or none, and waits for them until ctx ends. The release
// of the hold frees all of them. On failure the call holds nothing; [Mutex.Acquire] lists the
// errors.
//
// A call that can never be granted sends nothing and returns a final error ([IsFinal]): n is below
// 1 or above the number given to NewSemaphore, also with WithSharedLimit; n + 1 nodes exceed
// [WithMaxLockNodes]; or the request exceeds the servers' jute.maxbuffer ([WithJuteMaxBuffer]).
//
// Each call takes permits of its own, and does not re-enter. So a call that holds permits and asks
// for more may wait for itself.
//
// Permits are granted in the order of the queue, but callers that want few may overtake a caller
// that wants many, until that caller is first. A caller that wants more than the shared limit
// blocks all callers behind it.
//
// If one node of the hold is deleted, the whole hold is lost. If several holds can exist at a time,
// a resource must not reject a smaller token: use [Hold.Checks] or [Hold.Deadline]. Callers of
// several permits can deadlock with a Curator client that takes several (docs/curator.md).
func (sem *Semaphore) Acquire(ctx context.Context, n int) (*Hold, error) {
	if !sem.isMade() {
		return nil, &Error{Op: "acquire", Err: errNoSemaphore}
	}
	return sem.mutexFor(n).Acquire(ctx)
}

// TryAcquire takes n permits if they are free and no earlier caller needs them, and otherwise
// returns [ErrNotAcquired]. It waits at most two heartbeats, as [Mutex.TryAcquire] does.
func (sem *Semaphore) TryAcquire(ctx context.Context, n int) (*Hold, error) {
	if !sem.isMade() {
		return nil, &Error{Op: "try", Err: errNoSemaphore}
	}
	return sem.mutexFor(n).TryAcquire(ctx)
}

// Do takes n permits as Acquire does, runs f under the hold, and releases all of them. [Mutex.Do]
// describes the context of f, the options and the errors. With WaitAtMost(0) Do takes the permits
// as TryAcquire does.
func (sem *Semaphore) Do(ctx context.Context, n int, f func(ctx context.Context, hold *Hold) error, opts ...DoOption) error {
	if !sem.isMade() {
		return &Error{Op: "do", Err: errNoSemaphore}
	}
	return sem.mutexFor(n).Do(ctx, f, opts...)
}

// Permits returns a Lock that takes n permits, for [NewMulti] and for functions that take a Lock.
func (sem *Semaphore) Permits(n int) Lock { return permitLock{sem.made().mutexFor(n)} }

// mutexFor returns a Mutex that takes k permits.
func (sem *Semaphore) mutexFor(k int) *Mutex {
	m := *sem.m
	p := *m.recipe.(*permits)
	p.k, m.recipe = k, &p
	m.wrong = m.neverGrants(&p)
	return &m
}

// neverGrants returns the reason if the permits can never be granted in one hold, and otherwise
// nil.
func (m *Mutex) neverGrants(p *permits) error {
	if p.k < 1 || p.k > p.n {
		return badArgument{fmt.Errorf("%d permits of a semaphore that has %d: ask for 1 to %d", p.k, p.n, p.n)}
	}
	if all, most := p.base+int64(p.k)*p.each, int64(m.s.opts.juteMaxBuffer); all > most {
		return badArgument{fmt.Errorf("%d permits take a request of %d bytes, %d for each, and servers read %d (jute.maxbuffer): ask for %d at most, or give less data",
			p.k, all, p.each, most, int64(p.k)-(all-most+p.each-1)/p.each)}
	}
	if most := m.s.opts.maxLockNodes; p.k >= most {
		return badArgument{fmt.Errorf("%d permits are %d lock nodes, one of them in the queue, and this Session may have %d: ask for fewer, or raise WithMaxLockNodes", p.k, int64(p.k)+1, most)}
	}
	return nil
}

// permitLock hides the methods of a Mutex that a Lock does not have: they are about owners, and
// permits have none.
type permitLock struct{ Lock }

func (l permitLock) mutex() *Mutex { return l.Lock.(*Mutex) }

func (l permitLock) String() string {
	return fmt.Sprintf("%d permits of %s", l.mutex().recipe.(*permits).k, l.Path())
}

// Participants returns the holders, one Participant for each permit in use, and the waiters, the
// next one to be granted first. For a moment a caller may appear in both lists, or as a holder
// before it is granted (docs/design.md). After the limit was lowered, holders may exceed it.
// Participants waits for a connection until ctx ends.
func (sem *Semaphore) Participants(ctx context.Context) (holders, waiters []Participant, err error) {
	if !sem.isMade() {
		return nil, nil, &Error{Op: "participants", Err: errNoSemaphore}
	}
	err = sem.m.reading(ctx, "participants", func(e *node.ZKSession) error {
		p := sem.m.recipe.(*permits)
		asked := p.askLimit(e)
		leases, err := participantsIn(ctx, e, p.leases)
		if err != nil {
			return err
		}
		queued, err := participantsIn(ctx, e, sem.m.root.Root)
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

// Limit returns the shared limit, or the number given to NewSemaphore if the limit's node does not
// exist yet. After a change, other clients may observe the new limit earlier. The error is final if
// there is no shared limit, or if the node's data is not a limit. Limit waits for a connection
// until ctx ends.
func (sem *Semaphore) Limit(ctx context.Context) (n int, err error) {
	err = sem.onLimit(ctx, "limit", func(e *node.ZKSession, p *permits) error {
		now, err := p.readLimit(ctx, e.ZKSession)
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

// SetLimit sets the shared limit for all clients, to 0 (no caller is granted) up to 2^24. It
// creates the node if it does not exist, and replaces data that is not a limit.
//
// It does not replace a limit that another client sets at the same time or just before: then the
// error wraps zk.ErrBadVersion and is not final. To compute n from Limit, hold a lock during both
// calls. SetLimit waits for a connection until ctx ends; then the limit may or may not be set.
func (sem *Semaphore) SetLimit(ctx context.Context, n int) error {
	if sem.isMade() && (n < 0 || n > mostPermits) {
		return &Error{Op: "set limit", Path: sem.m.root.Given(), Err: badArgument{fmt.Errorf("a limit of %d permits: give 0 to %d", n, mostPermits)}}
	}
	c := limitChange{to: n}
	err := sem.onLimit(ctx, "set limit", func(e *node.ZKSession, p *permits) error { return c.try(ctx, e.ZKSession, p) })
	if e, ok := err.(*Error); ok && c.sent && !reply.IsRefusal(e.Err) {
		e.Err = fmt.Errorf("the limit may or may not be set: %w", e.Err)
	}
	return err
}

// onLimit calls f until a connection lasts long enough.
func (sem *Semaphore) onLimit(ctx context.Context, op string, f func(e *node.ZKSession, p *permits) error) error {
	if !sem.isMade() {
		return &Error{Op: op, Err: errNoSemaphore}
	}
	p := sem.m.recipe.(*permits)
	if p.limit == "" {
		return &Error{Op: op, Path: sem.m.root.Given(), Err: badArgument{fmt.Errorf("the limit is fixed, %d: give NewSemaphore WithSharedLimit", p.n)}}
	}
	return sem.m.reading(ctx, op, func(e *node.ZKSession) error { return f(e, p) })
}

// splitLeases separates holders from waiters. A waiter with leases also has the first node in the
// queue, which is omitted.
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
