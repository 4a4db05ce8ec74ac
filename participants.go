package zklock

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/zklock/internal/answer"
	"github.com/zklock/zklock/internal/link"
	"github.com/zklock/zklock/internal/queue"
	"github.com/zklock/zklock/internal/wire"
)

// Participant is one node in a lock's queue, of any client.
type Participant struct {
	Node      string // absolute
	Data      []byte
	SessionID int64 // 0 if the node is not ephemeral
	Token     int64 // its czxid: the fencing token that its owner has, or will have. The two nodes of a writer that reads stand for one hold, with the writer's
	Shared    bool  // a reader: it holds beside the readers just ahead and behind
	Created   time.Time
	Age       time.Duration // by this machine's clock

	// Until when the lock-delay lasts for which it waits, by its clock. Of a Mutex WithLockDelay, and of the front only; otherwise zero.
	DelayUntil time.Time
}

// Participants returns the queue, the holder first. If the lock root is not there, the queue is empty. Nodes that go while
// the queue is read are left out. While no server can be reached, Participants waits for one until ctx ends.
func (m *Mutex) Participants(ctx context.Context) ([]Participant, error) {
	if !m.isMade() {
		return nil, &Error{Op: "participants", Err: errNoMutex}
	}
	var ps []Participant
	err := m.reading(ctx, "participants", func(e *era) (err error) {
		ps, err = m.participantsIn(ctx, e)
		return err
	})
	return ps, err
}

// reading calls read until a connection lasts for as long as it takes. read returns nil, or an error of the requests in it; a bad
// argument, too, is final.
func (m *Mutex) reading(ctx context.Context, op string, read func(e *era) error) error {
	fail := func(err error) error { return &Error{Op: op, Path: m.root.given, Err: forCaller(ctx, err)} }
	if ctx == nil {
		return fail(errNilContext)
	}
	for backoff := link.NewBackoff(); ; {
		e, err := attachedEra(ctx, m.s.link)
		if err != nil {
			return fail(err)
		}
		err = read(e)
		var bad badArgument
		switch {
		case err == nil:
			return nil
		case err == link.ErrCtxEnded, errors.Is(err, ErrClosed), answer.IsRefusal(err), errors.As(err, &bad):
			return fail(err)
		}
		// The connection or the ZooKeeper session was lost, or the servers are busy: read again.
		_ = e.PauseUnder(ctx, backoff.Next())
	}
}

func (m *Mutex) participantsIn(ctx context.Context, e *era) ([]Participant, error) {
	l := e.lists.List(m.root.path)
	err := l.Wait(ctx, e.Era)
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
	members := queue.Members(l.Names, m.root.rule.Markers)
	reads := make([]read, len(members))
	var all sync.WaitGroup
	few := make(chan struct{}, 16) // in flight at a time
	for i, mem := range members {
		reads[i].mem = mem
		few <- struct{}{}
		all.Go(func() {
			defer func() { <-few }()
			r := &reads[i]
			r.p, r.err = readParticipant(ctx, e, m.root.path+"/"+mem.Name)
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
	ps := make([]Participant, len(reads))
	for i, r := range reads {
		ps[i] = r.p
	}
	if m.root.delay > 0 && len(ps) > 0 {
		ps[0].DelayUntil, err = m.delayUntil(ctx, e, nameOf(ps[0].Node))
	}
	return ps, err
}

func readParticipant(ctx context.Context, e *era, node string) (Participant, error) {
	var got wire.DataResponse
	if _, err := e.Read(ctx, wire.OpGetData, wire.PathWatchRequest{Path: node}, &got); err != nil {
		return Participant{}, answer.Denied(err, "get", "READ", node)
	}
	return participantOf(node, got.Data, got.Stat), nil
}

func participantOf(node string, data []byte, stat wire.Stat) Participant {
	created := time.UnixMilli(stat.Ctime)
	return Participant{Node: node, Data: data, SessionID: stat.EphemeralOwner, Token: stat.Czxid, Shared: queue.IsReader(nameOf(node)), Created: created, Age: time.Since(created)}
}

// delayUntil returns until when the node in front says that it waits for the lock-delay, zero if it does not say so.
func (m *Mutex) delayUntil(ctx context.Context, e *era, front string) (until time.Time, err error) {
	var root wire.DataResponse
	if _, err := e.Read(ctx, wire.OpGetData, wire.PathWatchRequest{Path: m.root.path}, &root); err != nil {
		return until, ignoring(answer.Denied(err, "get", "READ", m.root.path), zk.ErrNoNode)
	}
	record, _ := queue.ParseRecord(root.Data)
	if record.Word(queue.HeldWord) != front { // otherwise it holds
		until, _ = time.Parse(time.RFC3339, record.Word(queue.UntilWord))
	}
	return until, nil
}
