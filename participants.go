package zklock

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/zklock/zklock/internal/eventlog"
	"github.com/zklock/zklock/internal/lease"
	"github.com/zklock/zklock/internal/link"
	"github.com/zklock/zklock/internal/node"
	"github.com/zklock/zklock/internal/queue"
	"github.com/zklock/zklock/internal/reply"
	"github.com/zklock/zklock/internal/wire"
)

// Participant is one node in a lock's queue, of any client.
type Participant struct {
	Node      string // absolute
	Data      []byte
	SessionID int64 // 0 if the node is not ephemeral
	// Token is the node's czxid, the fencing token of its hold, now or after the grant. If a writer
	// also reads, both holds have the token of the writer's node.
	Token   int64
	Shared  bool      // a reader: it holds together with adjacent readers
	Created time.Time // by the servers' clock

	// Holds reports whether the node has the lock: it is first, a reader without a writer or mutex
	// ahead, the reader of the first writer, or a granted permit (Semaphore.Participants). Its
	// client may not have observed the grant yet, or its lease may have ended.
	Holds bool

	// DelayUntil is the end of the first node's lock-delay (WithLockDelay), by its client's clock,
	// or zero. Until then Holds is false. Holds is also false for some seconds if that client has
	// no lock-delay.
	DelayUntil time.Time
}

// delayedUntil records the end of the lock-delay that the first participant waits for. Until then
// it does not hold.
func (p *Participant) delayedUntil(until time.Time) {
	p.DelayUntil = until
	p.Holds = p.Holds && until.IsZero()
}

// participantsIn returns the nodes below a root, in the order of the queue. If it cannot read one,
// it returns an error.
func participantsIn(ctx context.Context, e *node.ZKSession, root *node.Root) ([]Participant, error) {
	l := e.Lists.List(root.Path())
	err := l.Wait(ctx, e.ZKSession)
	if errors.Is(err, zk.ErrNoNode) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	type read struct {
		mem queue.Member
		p   Participant
		err error
	}
	members := queue.Members(l.Names, root.Rule().Markers)
	reads := make([]read, len(members))
	var all sync.WaitGroup
	few := make(chan struct{}, 16) // in flight at a time
	for i, mem := range members {
		reads[i].mem = mem
		few <- struct{}{}
		all.Go(func() {
			defer func() { <-few }()
			r := &reads[i]
			r.p, r.err = readParticipant(ctx, e, root.Path()+"/"+mem.Name)
		})
	}
	all.Wait()
	for _, r := range reads {
		if r.err != nil && !errors.Is(r.err, zk.ErrNoNode) {
			return nil, r.err
		}
	}
	reads = slices.DeleteFunc(reads, func(r read) bool { return r.err != nil })
	slices.SortFunc(reads, func(a, b read) int {
		return cmp.Or(queue.ByNumber(a.mem, b.mem), cmp.Compare(a.p.Token, b.p.Token))
	})
	ps, there := make([]Participant, len(reads)), make([]queue.Member, len(reads))
	for i, r := range reads {
		ps[i], there[i] = r.p, r.mem
	}
	for i, holds := range queue.HoldersOf(there) {
		ps[i].Holds = holds
	}
	return ps, nil
}

func readParticipant(ctx context.Context, e *node.ZKSession, node string) (Participant, error) {
	var got wire.DataResponse
	if _, err := e.Read(ctx, wire.OpGetData, wire.PathWatchRequest{Path: node}, &got); err != nil {
		return Participant{}, reply.Denied(err, "get", "READ", node)
	}
	return participantOf(node, got.Data, got.Stat), nil
}

func participantOf(node string, data []byte, stat wire.Stat) Participant {
	return Participant{Node: node, Data: data, SessionID: stat.EphemeralOwner, Token: stat.Czxid, Shared: queue.IsReader(nameOf(node)), Created: time.UnixMilli(stat.Ctime)}
}

// listenForRevocation watches a granted lock's node for the revocation message, and then calls
// revoke with one of the hold's handles. It ends when the lock is lost or its last handle is
// released. Read locks under one write hold share a node: a request to one is not repeated to the
// next.
func listenForRevocation(d *lockData, e *node.ZKSession, node string, revoke func(*Hold)) {
	d.table.mu.Lock()
	ended := d.ended
	d.table.mu.Unlock()
	e.Carrier.Spawn(func() {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		for !link.IsClosed(ended) {
			w := e.Watches.StartWatch(node)
			err := w.WaitArmed(ctx, e.ZKSession)
			var now wire.DataResponse
			if err == nil {
				// The message may have been written before the watch was set.
				_, err = e.Read(ctx, wire.OpGetData, wire.PathWatchRequest{Path: node}, &now)
			}
			switch {
			case reply.IsRefusal(err), e.HasEnded(), errors.Is(err, ErrClosed):
				return
			case err != nil: // the connection was lost
				if !e.Pause(lease.Heartbeat(e.Timeout())) {
					return
				}
				continue
			case bytes.Equal(now.Data, revokeMessage):
				if h := d.takeMessage(now.Stat.Mzxid); h != nil {
					// Close does not wait for the user's code.
					go eventlog.Contain(func() { revoke(h) }, func(p, stack string) {
						e.Log.Error("zklock: the function of WithRevocation panicked", "path", d.root.ShownPath(), "node", node, "panic", p, "stack", stack)
					})
					return
				}
			}
			select {
			case <-w.Fired:
			case <-ended:
				return
			case <-e.Ended():
				return
			}
		}
	})
}

// Revoke asks the holder of a lock node to release it, as Curator's Revoker does: it writes a
// message over the node's data, which WithRevocation observes. node is absolute, like Hold.Node; a
// name without a sequence number is rejected. Revoke does not wait for the release, and returns nil
// if the node does not exist.
//
// Revoke waits for a connection until ctx ends. If the reply is lost, the error reports that the
// message may or may not have been written.
func (s *Session) Revoke(ctx context.Context, node string) error {
	fail := func(err error) error { return &Error{Op: "revoke", Path: node, Err: s.forCaller(ctx, err, nil)} }
	if ctx == nil {
		return fail(errNilContext)
	}
	if !s.isConnected() {
		return fail(errNoSession)
	}
	if err := checkPath(node); err != nil {
		return fail(err)
	}
	if _, ok := queue.Parse(nameOf(node), []string{""}); !ok {
		return fail(badArgument{fmt.Errorf("%s is no lock node, whose name ends in ten digits: give Hold.Node or Participant.Node", shown(node))})
	}
	z, err := s.link.Attached(ctx)
	if err != nil {
		return fail(err)
	}
	_, err = z.Ask(ctx, wire.OpSetData, wire.SetDataRequest{Path: node, Data: revokeMessage, Version: -1})
	switch {
	case err == nil, errors.Is(err, zk.ErrNoNode):
		return nil
	case reply.OutcomeOf(err) == reply.Unknown:
		return fail(fmt.Errorf("the message may or may not be written: %w", forCaller(ctx, err)))
	}
	return fail(reply.Denied(err, "set", "WRITE", node))
}

// revokeMessage is the data that Curator's Revoker writes into a lock node, to ask its holder to
// release.
var revokeMessage = []byte("__REVOKE__")

// takeMessage notes that the hold is given the revocation with that zxid, and returns one of its
// handles. It returns nil if none is left, because the hold has ended, and if the revocation is for
// an earlier hold: a node that stays after its hold keeps the message that the hold was given.
func (d *lockData) takeMessage(written int64) *Hold {
	d.table.mu.Lock()
	defer d.table.mu.Unlock()
	if d.heard != nil {
		if written <= *d.heard {
			return nil
		}
		*d.heard = written
	}
	for h := range d.handles {
		return h
	}
	return nil
}

// reading calls read, in the ZooKeeper session that attached returns, until a connection lasts long
// enough. It returns at once an error of the requests that stays, a badArgument included. The error
// has the path.
func (s *Session) reading(ctx context.Context, op, path string, attached func(context.Context, *link.Link) (*node.ZKSession, error), read func(e *node.ZKSession) error) error {
	var last link.LastError
	fail := func(err error) error { return &Error{Op: op, Path: path, Err: s.forCaller(ctx, err, &last)} }
	if ctx == nil {
		return fail(errNilContext)
	}
	for backoff := (link.Backoff{}); ; {
		e, err := attached(ctx, s.link)
		if err != nil {
			return fail(err)
		}
		err = read(e)
		var bad badArgument
		switch {
		case err == nil:
			return nil
		case err == link.ErrCtxEnded, errors.Is(err, ErrClosed), errors.Is(err, link.ErrHungUp), reply.IsRefusal(err), errors.As(err, &bad):
			return fail(err)
		}
		if !e.HasEnded() { // the connection was lost, or the servers are busy: read again
			last.Note(err)
		}
		_ = e.PauseUnder(ctx, backoff.Next())
	}
}
