package zklock

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/zklock/internal/queue"
	"github.com/zklock/zklock/internal/reply"
	"github.com/zklock/zklock/internal/wire"
)

// Participant is one node in a lock's queue, of any client.
type Participant struct {
	Node      string // absolute
	Data      []byte
	SessionID int64     // 0 if the node is not ephemeral
	Token     int64     // its czxid: the fencing token that its owner has, or will have. The two nodes of a writer that reads stand for one hold, with the writer's
	Shared    bool      // a reader: it holds beside the readers just ahead and behind
	Created   time.Time // when the node was created, by the servers' clock

	// Holds says that the nodes show it to hold: it is in front, or a reader with no writer or mutex ahead, or the reader of a writer in front
	// that reads, too, or has a permit that counts as granted (see Semaphore.Participants). A participant in front holds, or is about to: no
	// node tells when its client has heard of it, nor whether that client's lease lasts. It is false while DelayUntil is set.
	Holds bool

	// Until when the lock-delay lasts for which it waits, by its clock. Of a Mutex or an Election WithLockDelay, and of the front only;
	// otherwise zero. A client without a lock-delay does not wait, and nothing marks its node: it counts as waiting for some seconds.
	DelayUntil time.Time
}

// delayedUntil notes until when the participant in front waits for the lock-delay. Until then it does not hold.
func (p *Participant) delayedUntil(until time.Time) {
	p.DelayUntil = until
	p.Holds = p.Holds && until.IsZero()
}

// participantsIn returns the nodes below a root, the first in line first. It returns an error if it was not told.
func participantsIn(ctx context.Context, e *zkSession, root *lockRoot) ([]Participant, error) {
	l := e.lists.List(root.path)
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
	members := queue.Members(l.Names, root.rule.Markers)
	reads := make([]read, len(members))
	var all sync.WaitGroup
	few := make(chan struct{}, 16) // in flight at a time
	for i, mem := range members {
		reads[i].mem = mem
		few <- struct{}{}
		all.Go(func() {
			defer func() { <-few }()
			r := &reads[i]
			r.p, r.err = readParticipant(ctx, e, root.path+"/"+mem.Name)
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

// frontIn returns the node in front, absolute; "" if nobody is in the queue.
func frontIn(ctx context.Context, e *zkSession, root *lockRoot) (node string, err error) {
	l := e.lists.List(root.path)
	if err := l.Wait(ctx, e.ZKSession); err != nil {
		return "", ignoring(err, zk.ErrNoNode)
	}
	if name := queue.FrontOf(l.Names, root.rule.Markers); name != "" {
		node = root.path + "/" + name
	}
	return node, nil
}

// holdsInFront says whether the node in front of a root's queue holds, or is about to.
func (r *lockRoot) holdsInFront(node string) bool {
	mem, isMember := queue.Parse(nameOf(node), r.rule.Markers)
	return isMember && queue.HoldersOf([]queue.Member{mem})[0]
}

func readParticipant(ctx context.Context, e *zkSession, node string) (Participant, error) {
	var got wire.DataResponse
	if _, err := e.Read(ctx, wire.OpGetData, wire.PathWatchRequest{Path: node}, &got); err != nil {
		return Participant{}, reply.Denied(err, "get", "READ", node)
	}
	return participantOf(node, got.Data, got.Stat), nil
}

func participantOf(node string, data []byte, stat wire.Stat) Participant {
	return Participant{Node: node, Data: data, SessionID: stat.EphemeralOwner, Token: stat.Czxid, Shared: queue.IsReader(nameOf(node)), Created: time.UnixMilli(stat.Ctime)}
}
