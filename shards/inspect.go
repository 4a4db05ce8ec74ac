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
// decoded, or has another number of shards, the rest is returned with the error. While no server
// can be reached, Inspect waits until ctx ends.
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
	var badPlan error
	sn.Plan, badPlan = l.assignment(read, n)
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
	err = each(n, func(shard int) error {
		m, err := zklock.NewMutex(s, l.shard(shard))
		if err == nil {
			sn.Queues[shard], err = m.Participants(ctx)
		}
		return err
	})
	if err != nil {
		return fail(err)
	}
	return sn, badPlan
}

func (l layout) number() (int, error) {
	set, _, err := l.settings()
	switch {
	case errors.Is(err, zk.ErrNoNode), err == nil && set.Shards == 0:
		err = fmt.Errorf("%w: there is no group at %s: its first member creates it", errLayout, l.root)
	case err == nil && set.Shards > MaxShards:
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

// each calls f for 0 to n-1, some at a time, and returns an error of one of the calls.
func each(n int, f func(i int) error) (failed error) {
	var all sync.WaitGroup
	var once sync.Once
	room := make(chan struct{}, readers)
	for i := range n {
		room <- struct{}{}
		all.Go(func() {
			defer func() { <-room }()
			if err := f(i); err != nil {
				once.Do(func() { failed = err })
			}
		})
	}
	all.Wait()
	return failed
}
