package zklock

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"

	"github.com/go-zookeeper/zk"
	"github.com/zklock/zklock/internal/link"
	"github.com/zklock/zklock/internal/nodes"
	"github.com/zklock/zklock/internal/queue"
	"github.com/zklock/zklock/internal/reply"
	"github.com/zklock/zklock/internal/wire"
)

// permits is the recipe of a semaphore. Who is in front of the queue makes leases, and waits until the limit has room for all of them
// (leases.go, capacity.go). Then it leaves the queue, and the next is in front. Others take permits beside it if there is room (earlypermits.go).
type permits struct {
	plain
	leases lockRoot // above the leases; its markers are those of leases
	k      int      // how many are wanted
	n      int      // the limit, or what it starts with if it is shared
	limit  string   // the node that has the shared limit, absolute; "" if there is none

	base, each int64 // the length of the request that creates the leases: without a lease, and of each
}

// semaphoreNotes are a semaphore's notes on the lock root of its queue.
type semaphoreNotes struct {
	fits    bool // no other recipe uses the path
	roomy   bool // the last acquire showed room for itself and for all waiters
	crowded bool // a warning has been logged: more permits are in use than the limit allows
}

// permitState is the state of a semaphore's attempt, and then of the hold.
type permitState struct {
	noState
	p       *permits
	fits    *nodes.Listing       // of the semaphore's path, for created; nil if no other recipe uses it
	further <-chan error         // the response to the creation of the leases' root; nil if none was sent
	beside  leaseSnapshot        // was sent with the list of the queue; otherwise zero
	leases  int                  // how many leases the last look showed
	hungUp  hangUps              // over the transactions of all attempts of the call
	leaves  chan *nodes.Deletion // gets the deletion of the node in the queue after the grant; nil if there is no such node
}

// permitAttempt is an attempt at permits, with its state.
type permitAttempt struct {
	*attempt
	*permitState
}

func (p *permits) newState(_ *attempt, before recipeState) recipeState {
	s := &permitState{p: p}
	if b, ok := before.(*permitState); ok {
		s.hungUp = b.hungUp
	}
	return s
}

// deleteNodes begins the deletion of the node in the queue and of the leases. The counters of both
// may have to start again.
func (s *permitState) deleteNodes(root *lockRoot, of *grantBasis) (x *nodes.Deletion, restarted <-chan error) {
	x, restarted = s.noState.deleteNodes(root, of)
	if len(of.held) > 0 && restarted == nil {
		restarted = s.p.leases.restarting(of.e, of.held[0], x)
	}
	return x, restarted
}

// giveBack begins the deletion of the leases. The release also waits for the node in the queue, whose
// deletion began earlier: while it exists, no other client gets permits.
func (s *permitState) giveBack(d *lockData) (xs [2]*nodes.Deletion) {
	xs[0] = d.e.reaper.DeleteAll(d.held)
	s.p.leases.restarting(d.e, d.held[0], xs[0])
	if s.leaves != nil {
		xs[1] = <-s.leaves
	}
	return xs
}

// askLimit asks for the limit. If it is fixed, no request is made, and limitNow and limitOf know it.
func (p *permits) askLimit(e *zkSession) <-chan dataRead {
	if p.limit == "" {
		return nil
	}
	return e.askData(p.limit)
}

// limitWatch returns the operation that sets a watch on the node of the limit. Where that may be missing, its creation is an event, too.
func (p *permits) limitWatch() wire.Op {
	if p.leases.container {
		return wire.OpExists
	}
	return wire.OpGetData
}

// limitNow waits for the limit, for those who only look on: to them, a limit that nobody has made yet is what it would start with.
func (p *permits) limitNow(asked <-chan dataRead) (int, error) {
	if p.limit == "" {
		return p.n, nil
	}
	got := <-asked
	switch {
	case errors.Is(got.err, zk.ErrNoNode):
		return p.n, nil
	case got.err != nil:
		return 0, reply.Denied(got.err, "get", "READ", p.limit)
	}
	return parseLimit(p.limit, got.data)
}

// limitOf waits for the limit. If its node is not there, limitOf makes it, or goes by what it would start with (WithContainer). known is
// false if it has to be asked for again.
func (a permitAttempt) limitOf(asked <-chan dataRead) (n int, known bool, err error) {
	p := a.p
	if p.limit == "" {
		return p.n, true, nil
	}
	got, err := link.Await(a.ctx, a.e.ZKSession, asked)
	if err != nil {
		return 0, false, err
	}
	if errors.Is(got.err, zk.ErrNoNode) && p.leases.container {
		return p.n, true, nil // nobody has set one
	}
	if errors.Is(got.err, zk.ErrNoNode) {
		got.err = p.makeLimit(a.ctx, a.e.ZKSession, p.n, false)
		_, err = a.findingOf(got.err)
		return 0, false, err
	}
	if r, err := a.findingOf(reply.Denied(got.err, "get", "READ", p.limit)); err != nil || r != queue.Exists {
		return 0, false, err
	}
	n, err = parseLimit(p.limit, got.data)
	return n, err == nil, err
}

// makeLimit makes the node of the limit with n, unless it is there. One that somebody set has another version than 0: zklock prune leaves it.
func (p *permits) makeLimit(ctx context.Context, z *link.ZKSession, n int, isSet bool) error {
	create := func() (failed int, err error) {
		_, err = z.Ask(ctx, wire.OpCreate, p.limitNode(n))
		return 0, err
	}
	if isSet {
		create = func() (failed int, err error) {
			return z.Multi(ctx, wire.MultiRequest{Ops: []wire.MultiOp{
				{Op: wire.OpCreate, Path: p.limit, Create: p.limitNode(n)}, {Op: wire.OpSetData, Path: p.limit, Data: limitData(n), Version: 0},
			}}, false)
		}
	}
	above := lockRoot{path: parentOf(p.limit), chroot: p.leases.chroot, acl: p.leases.acl, container: p.leases.container}
	for {
		failed, err := create()
		switch {
		case failed == 1:
			return reply.Denied(err, "set", "WRITE", p.limit)
		case errors.Is(err, zk.ErrNodeExists):
			return nil
		case !errors.Is(err, zk.ErrNoNode):
			return reply.Denied(err, "create", "CREATE", above.path)
		case above.path == above.chroot:
			return errChrootLost(above.chroot)
		}
		if _, err := above.ensure(ctx, z); err != nil {
			return err
		}
	}
}

func (p *permits) limitNode(n int) wire.CreateRequest {
	return wire.CreateRequest{Path: p.limit, Data: limitData(n), ACL: wireACL(p.leases.acl), Flags: wire.FlagPersistent}
}

// readLimit reads the node of the limit.
func (p *permits) readLimit(ctx context.Context, z *link.ZKSession) (node wire.DataResponse, err error) {
	_, err = z.Read(ctx, wire.OpGetData, wire.PathWatchRequest{Path: p.limit}, &node)
	return node, reply.Denied(err, "get", "READ", p.limit)
}

// limitChange is one call that sets a limit, over as many connections as it takes.
type limitChange struct {
	to     int
	sent   bool       // a request that sets it
	before *wire.Stat // of the node when it was first read; nil until then
}

// try sets the limit, unless somebody else has since the first look. Each try begins with a look: if the answer to the one before was lost,
// the limit may be what we want by now. If it still has the version first seen, that request may also arrive late; then it makes ours fail,
// or ours makes that one fail.
func (c *limitChange) try(ctx context.Context, z *link.ZKSession, p *permits) error {
	for {
		now, err := p.readLimit(ctx, z)
		switch {
		case errors.Is(err, zk.ErrNoNode):
			c.sent, c.before = true, nil
			if err := p.makeLimit(ctx, z, c.to, true); err != nil {
				return err
			}
			continue // somebody else may have made it
		case err != nil:
			return err
		case c.sent && bytes.Equal(now.Data, limitData(c.to)):
			return nil
		case c.before == nil:
			c.before = &now.Stat
		case now.Stat.Version != c.before.Version || now.Stat.Czxid != c.before.Czxid:
			return fmt.Errorf("%w: somebody else has set %s meanwhile, to %s: ask for the limit, and decide again", zk.ErrBadVersion, p.limit, spellLimit(now.Data))
		}
		c.sent = true
		_, err = z.Ask(ctx, wire.OpSetData, wire.SetDataRequest{Path: p.limit, Data: limitData(c.to), Version: c.before.Version})
		if !errors.Is(err, zk.ErrBadVersion) && !errors.Is(err, zk.ErrNoNode) {
			return reply.Denied(err, "set", "WRITE", p.limit)
		}
	}
}

func spellLimit(data []byte) string {
	if n, err := parseLimit("", data); err == nil {
		return strconv.Itoa(n)
	}
	return fmt.Sprintf("%q", data[:min(len(data), maxShown)])
}

// limitData is the limit as Curator's SharedCount writes it.
func limitData(n int) []byte { return binary.BigEndian.AppendUint32(nil, uint32(n)) }

// mostPermits is the largest limit that is believed. Four characters of text, which zkCli writes, would be a larger one.
const mostPermits = 1 << 24

func parseLimit(node string, data []byte) (int, error) {
	if len(data) == 4 {
		if n := int32(binary.BigEndian.Uint32(data)); n >= 0 && n <= mostPermits {
			return int(n), nil
		}
	}
	return 0, badArgument{fmt.Errorf("%w: %s has %q: write 4 bytes, big endian, from 0 to %d, as Curator's SharedCount does, and no text", errBadLimit, node, data[:min(len(data), maxShown)], mostPermits)}
}

// errBadLimit says that the node of a shared limit has something else in it.
var errBadLimit = errors.New("no limit")

// overLimit says, for people, that the shared limit is smaller than what is wanted; otherwise "". Somebody may raise it, so the call waits.
func (p *permits) overLimit(n int) string {
	if p.k <= n {
		return ""
	}
	return fmt.Sprintf("it wants %d, and the limit in %s is %d", p.k, p.limit, n)
}

func badPermits(k, n int) error {
	return badArgument{fmt.Errorf("%d permits of a semaphore that has %d: ask for 1 to %d", k, n, n)}
}

// WithSharedLimit takes the limit of a Semaphore from a node, so that all clients share it. The
// node is below the Session's chroot, and may have any path outside the semaphore's locks and
// leases. Its data has the format of Curator's SharedCount: 4 bytes, big endian, from 0 to 2^24. If
// the node does not exist, the first acquire creates it with the number given to NewSemaphore; with
// WithContainer, acquires use that number and create no node.
//
// Semaphore.SetLimit and Curator's SharedCount change the limit for all clients. A higher limit
// wakes waiters at once. A lower limit ends no hold: every hold lasts until it is released. With a
// limit of 0, every caller waits until the limit is raised. While the node has other data, acquires
// return an error that names the node. The option costs one more request each time that a client
// reads the leases, and no round trip.
func WithSharedLimit(node string) SemaphoreOption {
	return lockOption(func(o *lockOptions) {
		if o.limit = node; checkPath(node) != nil {
			o.wrong = fmt.Errorf("WithSharedLimit: %w", checkPath(node))
		}
	})
}

// leaseSnapshot is a list of the leases and the limit, requested in one flight. If the caller needs it, a list
// of the queue precedes them. The zero look is none.
type leaseSnapshot struct {
	queue *nodes.Listing
	list  *nodes.Listing
	limit <-chan dataRead
}
