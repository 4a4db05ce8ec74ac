package shards

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/zklock"
)

// Snapshot is a group as the servers have it: the plan, the members, and who is in the queue of
// each shard.
type Snapshot struct {
	Plan    Assignment             // Plan.Shards() is 0 as long as there is none
	Members []Member               // that are present, in their queue: the first one plans
	Queues  [][]zklock.Participant // of each shard, the holder first. Data is the name of a member
}

// Inspect reads the group at path without being a member of it, for operators and monitoring. It
// costs two reads for each member, and for each shard a list and a read of each node in its queue.
// The parts are read one after the other, so in a group that changes they do not fit exactly.
//
// It returns an error if there is no group at path, or one of a later format. If the plan cannot be
// decoded, the rest is returned with the error. While no server can be reached, Inspect waits until
// ctx ends.
func Inspect(ctx context.Context, s *zklock.Session, path string) (Snapshot, error) {
	fail := func(err error) (Snapshot, error) {
		return Snapshot{}, &zklock.Error{Op: "shards: inspect", Path: path, Err: err}
	}
	if err := zklock.ValidatePath(path); err != nil {
		return fail(err)
	}
	members, err := zklock.NewElection(s, path+"/members")
	if err != nil {
		return fail(err)
	}
	l := layout{s: s, path: path, root: s.Chroot() + path, calls: new(sync.WaitGroup)}
	n, err := persist(ctx, l, l.number)
	if err != nil {
		return Snapshot{}, err
	}
	read, err := persist(ctx, l, l.planOnce)
	if err != nil {
		return Snapshot{}, err
	}
	sn := Snapshot{Queues: make([][]zklock.Participant, n)}
	p, badPlan := parsePlan(read.data)
	if badPlan != nil {
		badPlan = l.errorf("read the plan", badPlan)
	}
	sn.Plan = Assignment{p.Members, read.version, p}
	candidates, err := members.Candidates(ctx)
	if err != nil {
		return fail(err)
	}
	for _, c := range candidates {
		var m candidate
		if json.Unmarshal(c.Data, &m) == nil {
			sn.Members = append(sn.Members, m.Member)
		}
	}
	if err := l.queues(ctx, sn.Queues); err != nil {
		return fail(err)
	}
	return sn, badPlan
}

func (l layout) number() (int, error) {
	if _, err := l.s.Conn().Sync(l.root); err != nil { // a server may lag behind
		return 0, l.errorf("inspect", err)
	}
	data, _, err := l.s.Conn().Get(l.root)
	if errors.Is(err, zk.ErrNoNode) {
		err = fmt.Errorf("%w: there is no node %s, which the first member creates", errLayout, l.root)
	}
	set := settings{}
	if err == nil {
		set, err = parseSettings(data)
	}
	if err == nil && set.Shards > MaxShards {
		err = fmt.Errorf("%w: it has %d shards, and %d is the most", errLayout, set.Shards, MaxShards)
	}
	if err != nil {
		return 0, l.errorf("inspect", err)
	}
	return set.Shards, nil
}

func (l layout) planOnce() (r reading, err error) {
	data, stat, err := l.s.Conn().Get(l.plan())
	switch {
	case errors.Is(err, zk.ErrNoNode):
		return r, nil
	case err != nil:
		return r, l.errorf("read the plan", err)
	}
	return reading{data: data, version: stat.Version}, nil
}

func (l layout) queues(ctx context.Context, queues [][]zklock.Participant) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var all sync.WaitGroup
	room := make(chan struct{}, readers)
	for shard := range queues {
		room <- struct{}{}
		all.Go(func() {
			defer func() { <-room }()
			m, err := zklock.NewMutex(l.s, l.shard(shard))
			if err == nil {
				queues[shard], err = m.Participants(ctx)
			}
			if err != nil {
				stop(err)
			}
		})
	}
	all.Wait()
	return context.Cause(ctx)
}
