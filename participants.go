package zklock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
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
}

// Participants returns the queue, the holder first. If the lock root is not there, the queue is empty. Nodes that go while
// the queue is read are left out. While no server can be reached, Participants waits for one until ctx ends.
func (m *Mutex) Participants(ctx context.Context) ([]Participant, error) {
	if !m.isMade() {
		return nil, &Error{Op: "participants", Err: errNoMutex}
	}
	fail := func(err error) ([]Participant, error) {
		return nil, &Error{Op: "participants", Path: m.root.given, Err: forCaller(ctx, err)}
	}
	if ctx == nil {
		return fail(errNilContext)
	}
	for {
		e, err := attachedEra(ctx, m.s.link)
		if err != nil {
			return fail(err)
		}
		ps, err := m.participantsIn(ctx, e)
		switch {
		case err == nil:
			return ps, nil
		case err == link.ErrCtxEnded, errors.Is(err, ErrClosed), answer.IsRefusal(err):
			return fail(err)
		}
		// The connection or the ZooKeeper session was lost: read again.
		_ = e.Pause(20 * time.Millisecond)
	}
}

// whoIs says who made a node: by its data, mostly host and pid, by its session, and by since when it is queued.
func whoIs(node string, data []byte, stat wire.Stat) string {
	who := string(data[:min(len(data), maxShown)])
	if who == "" {
		who = nameOf(node)
	}
	who = shown(who)
	if stat.EphemeralOwner != 0 {
		who += fmt.Sprintf(", session %#x", uint64(stat.EphemeralOwner))
	}
	return who + ", queued since " + time.UnixMilli(stat.Ctime).Format(time.RFC3339)
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
	isReader, queue := queue.IsReader, queue.Members(l.Names, m.root.rule.Markers)
	reads := make([]read, len(queue))
	var all sync.WaitGroup
	few := make(chan struct{}, 16) // in flight at a time
	for i, mem := range queue {
		reads[i].mem = mem
		few <- struct{}{}
		all.Go(func() {
			defer func() { <-few }()
			r := &reads[i]
			node := m.root.path + "/" + mem.Name
			var got wire.DataResponse
			if _, err := e.Read(ctx, wire.OpGetData, wire.PathWatchRequest{Path: node}, &got); err != nil {
				r.err = answer.Denied(err, "get", "READ", node)
				return
			}
			created := time.UnixMilli(got.Stat.Ctime)
			r.p = Participant{node, got.Data, got.Stat.EphemeralOwner, got.Stat.Czxid, isReader(r.mem.Name), created, time.Since(created)}
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
		return cmp.Or(cmp.Compare(uint32(a.mem.Seq), uint32(b.mem.Seq)), cmp.Compare(a.p.Token, b.p.Token)) // negative ones are past the end
	})
	ps := make([]Participant, len(reads))
	for i, r := range reads {
		ps[i] = r.p
	}
	return ps, nil
}

// nameOf returns the last part of a path.
func nameOf(path string) string { return path[strings.LastIndexByte(path, '/')+1:] }
