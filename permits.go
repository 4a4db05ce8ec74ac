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
	"github.com/zklock/zklock/internal/node"
	"github.com/zklock/zklock/internal/reply"
	"github.com/zklock/zklock/internal/wire"
)

// permits is the recipe of a semaphore. It has nodes below two znodes: a queue like a mutex's, and
// leases, one for each permit. The queue keeps the order, so that a freed permit wakes one waiter.
// Exclusion depends on the leases alone (queue.PositionOfLeases).
//
//	queue ─┬─▶ first ──▶ create leases ──▶ wait for capacity ──────────▶ grant, leave the queue
//	       └─▶ behind ─▶ if the limit has capacity for all before us and for us:
//	                     create leases ─┬─▶ within the limit ─────────▶ grant, leave the queue
//	                                    └─▶ too late: delete the leases, wait to be first
//
// If the last acquire left capacity for all waiters, the next one first tries early permits without
// a node in the queue.
//
// Why only the first in the queue waits with leases: Curator's clients count leases and do not
// order them. If two clients waited with leases, each could wait for the leases of the other
// client. So all other clients take early permits or none (earlypermits.go).
//
// Why hints: the release of one hold may free many permits, but the queue wakes one waiter. So a
// granted client that sees further capacity wakes waiters behind it (hintWaiters). A lost hint
// costs time and no permit, because each waiter still becomes first in the queue.
//
// Why a transaction that got no response is safe: it checks our node in the queue. Once that node
// is deleted, a late copy of the transaction creates no leases (resolveLeases).
type permits struct {
	plain
	leases *node.Root // the parent of the leases; its markers are the names of leases
	k      int        // how many permits a call wants
	n      int        // the limit; if it is shared, the limit until its node exists
	limit  string     // absolute path of the node with the shared limit; "" if the limit is fixed

	base, each int64 // the length of the request that creates the leases: without a lease, and of each
}

// permitState is the state of a semaphore's attempt, and then of its hold.
type permitState struct {
	noState
	p      *permits
	fits   *node.Listing       // lists the semaphore's path, for created; nil if no other recipe uses it
	listed leaseSnapshot       // requested together with the list of the queue; otherwise zero
	leases int                 // how many leases the last list showed
	hungUp link.HangUps        // counts the transactions of all attempts of the call
	leaves chan *node.Deletion // receives the deletion of the node in the queue after the grant; nil without such a node
}

// newState also lists the path, once for each Session: that shows whether another recipe uses it.
func (p *permits) newState(a *attempt, before recipeState) recipeState {
	s, root := &permitState{p: p}, a.d.root
	if !node.NotesOn[recipeNotes](root.Root).fits {
		s.fits = a.e.Lists.List(root.ShownPath())
	}
	if b, ok := before.(*permitState); ok {
		s.hungUp = b.hungUp
	}
	return s
}

// giveBack returns the deletion of the leases, and that of the node in the queue, which began after
// the grant: until it ends no other client is first in the queue.
func (s *permitState) giveBack(d *lockData) (xs [2]*node.Deletion) {
	xs[0] = d.e.Reaper.ToDelete(d.held...)
	s.p.leases.RestartAfter(d.e, d.held[0], xs[0])
	if s.leaves != nil {
		xs[1] = <-s.leaves
	}
	return xs
}

// askLimit requests the shared limit. It sends nothing and returns nil if the limit is fixed.
func (p *permits) askLimit(e *node.ZKSession) <-chan node.DataRead {
	if p.limit == "" {
		return nil
	}
	return e.StartRead(p.limit)
}

// limitWatch returns the operation that sets a watch on the node of the limit. With WithContainer
// the node may be missing, so its creation is an event, too.
func (p *permits) limitWatch() wire.Op {
	if p.leases.IsContainer() {
		return wire.OpExists
	}
	return wire.OpGetData
}

// limitNow waits for the limit on behalf of an observer. An observer creates no node: if the
// limit's node is missing, it returns the number that the node would be created with.
func (p *permits) limitNow(asked <-chan node.DataRead) (int, error) {
	if p.limit == "" {
		return p.n, nil
	}
	got := <-asked
	switch {
	case errors.Is(got.Err, zk.ErrNoNode):
		return p.n, nil
	case got.Err != nil:
		return 0, reply.Denied(got.Err, "get", "READ", p.limit)
	}
	return parseLimit(p.limit, got.Data)
}

// makeLimit creates the node of the limit with n, unless it exists. With isSet its version is not
// 0, which marks a limit that a user has set: zklock prune keeps such a node.
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
	above := p.leases.At(parentOf(p.limit))
	for {
		failed, err := create()
		switch {
		case failed == 1:
			return reply.Denied(err, "set", "WRITE", p.limit)
		case errors.Is(err, zk.ErrNodeExists):
			return nil
		case !errors.Is(err, zk.ErrNoNode):
			return reply.Denied(err, "create", "CREATE", above.Path())
		}
		if _, err := above.Ensure(ctx, z); err != nil {
			return err
		}
	}
}

func (p *permits) limitNode(n int) wire.CreateRequest {
	return wire.CreateRequest{Path: p.limit, Data: limitData(n), ACL: p.leases.ACL(), Flags: wire.FlagPersistent}
}

// readLimit reads the node of the limit.
func (p *permits) readLimit(ctx context.Context, z *link.ZKSession) (node wire.DataResponse, err error) {
	_, err = z.Read(ctx, wire.OpGetData, wire.PathWatchRequest{Path: p.limit}, &node)
	return node, reply.Denied(err, "get", "READ", p.limit)
}

// limitChange is one call that sets a limit, over as many connections as it needs.
type limitChange struct {
	to     int
	sent   bool       // a request that sets the limit was sent
	before *wire.Stat // the node's first observed Stat; nil until it was read
}

// try sets the limit, unless another client has set it since our first read. Each pass begins with
// a read: if a response was lost, the limit may already have our value. Every write names the
// version of the first read. So if a lost write arrives late, either it makes ours fail or ours
// makes it fail.
func (c *limitChange) try(ctx context.Context, z *link.ZKSession, p *permits) error {
	for {
		now, err := p.readLimit(ctx, z)
		switch {
		case errors.Is(err, zk.ErrNoNode):
			c.sent, c.before = true, nil
			if err := p.makeLimit(ctx, z, c.to, true); err != nil {
				return err
			}
			continue // another client may have created it
		case err != nil:
			return err
		case c.sent && bytes.Equal(now.Data, limitData(c.to)):
			return nil
		case c.before == nil:
			c.before = &now.Stat
		case now.Stat.Version != c.before.Version || now.Stat.Czxid != c.before.Czxid:
			return fmt.Errorf("%w: another client has set %s meanwhile, to %s: ask for the limit, and decide again", zk.ErrBadVersion, p.limit, spellLimit(now.Data))
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
	return fmt.Sprintf("%q", data[:min(len(data), node.MaxShown)])
}

// limitData encodes the limit in the format of Curator's SharedCount.
func limitData(n int) []byte { return binary.BigEndian.AppendUint32(nil, uint32(n)) }

// mostPermits is the largest limit that is accepted. Text of four characters, as zkCli writes it,
// would decode to a larger number.
const mostPermits = 1 << 24

func parseLimit(path string, data []byte) (int, error) {
	if len(data) == 4 {
		if n := int32(binary.BigEndian.Uint32(data)); n >= 0 && n <= mostPermits {
			return int(n), nil
		}
	}
	return 0, badArgument{fmt.Errorf("%w: %s has %q: write 4 bytes, big endian, from 0 to %d, as Curator's SharedCount does, and no text", errBadLimit, path, data[:min(len(data), node.MaxShown)], mostPermits)}
}

// errBadLimit: the data in the node of a shared limit is no limit.
var errBadLimit = errors.New("no limit")

// overLimit returns a message for the user if the shared limit is smaller than the number of
// permits that the call wants, otherwise "". The call still waits, because the limit may be raised.
func (p *permits) overLimit(n int) string {
	if p.k <= n {
		return ""
	}
	return fmt.Sprintf("it wants %d, and the limit in %s is %d", p.k, p.limit, n)
}

// WithSharedLimit reads a Semaphore's limit from a node that all clients share. By default the
// limit is fixed. The node may have any path below the chroot, outside the semaphore's locks and
// leases. If it is missing, the first acquire creates it with NewSemaphore's number; with
// WithContainer, acquires use that number and create no node.
//
// A higher limit wakes waiters at once; a lower one ends no hold, and with 0 every caller waits.
// The data is 4 bytes, big endian, 0 to 2^24 (Curator's SharedCount); acquires fail on other
// data.
func WithSharedLimit(node string) SemaphoreOption {
	return lockOption(func(o *lockOptions) {
		if o.limit = node; checkPath(node) != nil {
			o.wrong = fmt.Errorf("WithSharedLimit: %w", checkPath(node))
		}
	})
}

// leaseSnapshot is a list of the leases and the limit, requested together. If the client has no
// node in the queue, a list of the queue precedes them. The zero snapshot is empty.
type leaseSnapshot struct {
	queue *node.Listing
	list  *node.Listing
	limit <-chan node.DataRead
}
