package zklock

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/zklock/internal/queue"
	"github.com/zklock/zklock/internal/reply"
)

// Semaphore is a number of permits on a path, which all clients of the ensemble share. It is
// reusable, safe for many goroutines, and costs nothing until it is used. As with Curator's
// InterProcessSemaphoreV2, the queue is below path/locks, and each permit is a node below
// path/leases.
//
// The promises of the package apply as follows. There are never more permits in use than the
// largest limit that was set (I1). A call has at most one node in the queue, and as many leases as
// it wants permits (I2). A hold is lost with any of its nodes (I5). A freed permit wakes one
// waiter, which wakes more only if it finds more permits free (I8).
type Semaphore struct {
	m Mutex // on the queue
	n int
}

// NewSemaphore returns the semaphore on path with n permits, and sends nothing. All clients must
// give the same n, or share it (WithSharedLimit). If they give different ones, up to the largest is
// in use at a time, and a client that waits behind more holders than its own n logs a warning.
//
// The path must be the semaphore's own. The first acquire of a Session on a path takes one more
// round trip to look for nodes of another recipe: a mutex, a read/write lock, an election, or
// kazoo's semaphore. If there are any, it returns an error.
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
	root := lockRoot{chroot: s.chroot, given: path, acl: o.acl, container: o.container, rule: queue.Rule{Name: queue.MutexName, Markers: queue.Markers}, roots: &s.roots}
	leases := root
	root.path, leases.path = s.chroot+path+"/locks", s.chroot+path+"/leases"
	leases.rule.Markers = []string{queue.LeaseName}
	p := &permits{leases: leases, n: n}
	if o.limit != "" {
		p.limit = s.chroot + o.limit
	}
	p.base, p.each = p.lengths(&root, o.data)
	root.share, root.isFresh = queue.LeaseName, true
	return &Semaphore{m: Mutex{s: s, root: root, opts: o, recipe: p, traced: KindSemaphore}, n: n}, nil
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

// Acquire takes n permits in one hold, all or none, and waits for them until ctx ends. Every hold
// must be released, which frees all its permits. On failure the call holds nothing, as with
// [Mutex.Acquire], which lists the errors.
//
// A call that can never be granted sends nothing and returns an error for which IsFinal is true: if
// n is below 1 or above the number given to NewSemaphore, also with WithSharedLimit; if n leases
// and a node in the queue exceed WithMaxLockNodes; or if the request that creates the leases is
// longer than the servers read (WithJuteMaxBuffer): by default some 8,000 leases with short data.
//
// Each call takes permits of its own: it does not re-enter, even if ctx carries a hold of the
// semaphore or an owner. So a call that holds permits and asks for more may wait for itself, as
// with every semaphore.
//
// Permits are granted in the order of the queue. Several callers take permits at the same time if
// there are enough; each caller before them counts as one permit. So callers that want few permits
// may overtake a caller that wants many, until it is first in the queue. A caller that wants more
// than the shared limit waits until the limit is raised, and all callers behind it wait, too.
//
// The hold's Node is its first lease, and Hold.Checks has a check for each lease. If one lease is
// deleted, the whole hold is lost, and its other permits are freed. The hold's Token is the czxid
// of its leases, which grows with each grant if only one hold can exist at a time. If several can,
// a resource must not reject the smaller token of a hold that still lasts: use Checks or Deadline.
//
// A Curator client that acquires several leases takes them one by one and keeps those that it has.
// So two such clients, or one and a caller of this package, can wait for each other indefinitely,
// and all other callers with them. Two callers of this package never do.
func (sem *Semaphore) Acquire(ctx context.Context, n int) (*Hold, error) {
	if !sem.isMade() {
		return nil, &Error{Op: "acquire", Err: errNoSemaphore}
	}
	return sem.mutexFor(n).Acquire(ctx)
}

// TryAcquire takes n permits if they are free and no caller before it needs them, and otherwise
// returns ErrNotAcquired. If callers before it are about to take a free permit, it waits until they
// have, for two heartbeats at most. Like [Mutex.TryAcquire], it does not wait for a server.
// Otherwise it is like Acquire.
func (sem *Semaphore) TryAcquire(ctx context.Context, n int) (*Hold, error) {
	if !sem.isMade() {
		return nil, &Error{Op: "try", Err: errNoSemaphore}
	}
	return sem.mutexFor(n).TryAcquire(ctx)
}

// Permits returns a Lock that takes n permits, for [NewMulti], for Do and for code that takes a
// Lock. Its calls behave as Acquire and TryAcquire do; if n can never be granted, they return that
// error.
func (sem *Semaphore) Permits(n int) Lock { return permitLock{sem.made().mutexFor(n)} }

// mutexFor returns a Mutex that takes k permits.
func (sem *Semaphore) mutexFor(k int) *Mutex {
	m := sem.m
	p := *m.recipe.(*permits)
	p.k, m.recipe = k, &p
	m.wrong = m.neverGrants(&p)
	return &m
}

// neverGrants returns the reason if the permits can never be granted in one hold, and otherwise
// nil.
func (m *Mutex) neverGrants(p *permits) error {
	if p.k < 1 || p.k > p.n {
		return badPermits(p.k, p.n)
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
// next to be granted first. A caller appears once for each of its nodes, and the Token of a lease
// is the token of its hold. There are more holders than the limit if the limit was lowered or other
// clients use a larger one. Because no node records which leases were granted, a caller may appear
// in both lists for a moment, and leases that were created in vain among the holders
// (docs/design.md). Nodes that are deleted meanwhile are left out. While no server can be reached,
// Participants waits for one until ctx ends.
func (sem *Semaphore) Participants(ctx context.Context) (holders, waiters []Participant, err error) {
	if !sem.isMade() {
		return nil, nil, &Error{Op: "participants", Err: errNoSemaphore}
	}
	err = sem.m.reading(ctx, "participants", func(e *zkSession) error {
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

// Limit returns the shared limit as the Session's server has it: just after a change, other servers
// may have the new limit first. If no client has created its node yet, Limit returns the number
// given to NewSemaphore. It returns an error for which IsFinal is true if the semaphore has no
// shared limit (WithSharedLimit), or if the data of the node is not a limit; then the error names
// the node. While no server can be reached, Limit waits for one until ctx ends.
func (sem *Semaphore) Limit(ctx context.Context) (n int, err error) {
	err = sem.onLimit(ctx, "limit", func(e *zkSession, p *permits) error {
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

// SetLimit sets the shared limit for all clients, from 0, with which no caller is granted, to 2^24.
// It creates the node if it is missing, as acquires do, and replaces data that is not a limit.
// WithSharedLimit describes the effect on holders and waiters.
//
// SetLimit replaces a limit that was set before the call, so a program that computes n from Limit
// takes a lock for the two calls. It does not overwrite a limit that another client sets at the
// same time, or just before: then the error wraps zk.ErrBadVersion and names the current limit, and
// IsFinal is false. (If two calls find no node, both may return nil, and the number of the later
// one remains.)
//
// While no server can be reached, SetLimit waits for one until ctx ends. If ctx ends after the
// request was sent, the limit may or may not be set, and the error reports that.
func (sem *Semaphore) SetLimit(ctx context.Context, n int) error {
	if sem.isMade() && (n < 0 || n > mostPermits) {
		return &Error{Op: "set limit", Path: sem.m.root.given, Err: badArgument{fmt.Errorf("a limit of %d permits: give 0 to %d", n, mostPermits)}}
	}
	c := limitChange{to: n}
	err := sem.onLimit(ctx, "set limit", func(e *zkSession, p *permits) error { return c.try(ctx, e.ZKSession, p) })
	if e, ok := err.(*Error); ok && c.sent && !reply.IsRefusal(e.Err) {
		e.Err = fmt.Errorf("the limit may or may not be set: %w", e.Err)
	}
	return err
}

// onLimit calls f until a connection lasts for as long as it takes.
func (sem *Semaphore) onLimit(ctx context.Context, op string, f func(e *zkSession, p *permits) error) error {
	if !sem.isMade() {
		return &Error{Op: op, Err: errNoSemaphore}
	}
	p := sem.m.recipe.(*permits)
	if p.limit == "" {
		return &Error{Op: op, Path: sem.m.root.given, Err: badArgument{fmt.Errorf("the limit is fixed, %d: give NewSemaphore WithSharedLimit", p.n)}}
	}
	return sem.m.reading(ctx, op, func(e *zkSession) error { return f(e, p) })
}

// splitLeases separates holders from waiters. A waiter with leases also has the first node in the
// queue, which is left out.
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
