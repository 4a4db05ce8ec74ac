package shards

// The member that is first in the queue of members plans: it watches the members, and writes the
// plan under a check of its own node.

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/zklock"
)

const (
	settle    = time.Second     // orphans of a crash are reassigned when no member has joined or left for this long
	settleMax = 5 * time.Second // and at the latest after this long
)

// schedule decides when to plan. It is pure: its clock is an argument.
type schedule struct {
	quiet   time.Duration
	changed time.Time // when the members last changed
	pending time.Time // since when there is something to settle; zero if there is nothing
}

// decide returns the plan that is due, which is old if none is, whether it is balanced, and after
// how long to decide again: zero if only a change of the members is a reason. left has the ids of
// members that have left in order as its keys.
func (s *schedule) decide(now time.Time, old plan, n int, present []Member, left map[string]bool) (p plan, isBalanced bool, wait time.Duration) {
	if len(present) == 0 {
		return old, false, 0
	}
	here := map[string]bool{}
	for _, m := range present {
		here[m.Name] = true
	}
	var crashed []Member
	isStart, owners := true, old.owners()
	for name, m := range owners {
		if _, inOrder := left[m.ID]; here[name] {
			isStart = false
		} else if !inOrder {
			crashed = append(crashed, m)
		}
	}
	if !isStart && len(crashed) == 0 {
		s.pending = time.Time{}
	} else if s.pending.IsZero() {
		s.pending = now
	}
	due, quietAt := s.changed.Add(settle), s.changed.Add(s.quiet)
	// If most members are absent, the servers were perhaps unavailable. Then members come back in
	// bursts, more than a second apart.
	if latest := s.pending.Add(settleMax); latest.Before(due) || !isStart && 2*len(crashed) > len(owners) {
		due = latest
	}
	settling := !s.pending.IsZero() && now.Before(due)
	if isStart && !settling { // a later start is another one
		s.pending = time.Time{}
	}
	switch {
	case settling && isStart:
		return old, false, due.Sub(now)
	case settling:
		return next(old, n, present, crashed, false), false, due.Sub(now)
	case isStart || !now.Before(quietAt):
		return next(old, n, present, nil, true), true, max(0, quietAt.Sub(now))
	}
	return next(old, n, present, nil, false), false, quietAt.Sub(now)
}

// planner is a member while it is first in the queue of members.
type planner struct {
	r     *run
	l     layout
	hold  *zklock.Hold
	known map[string]candidate // by the name of the node
	left  map[string]bool      // ids of members that have begun to leave, and whether their node for that still exists
	seen  []string             // the candidates' nodes when they were last listed
	watch <-chan zk.Event      // of the members; nil if there is none
	schedule
}

// lead plans until ctx ends. It returns an error if this process can never plan.
func (r *run) lead(ctx context.Context, hold *zklock.Hold) error {
	p := &planner{r: r, l: r.l, hold: hold, left: map[string]bool{}, schedule: schedule{quiet: r.g.o.quiet}}
	r.count(func(s *Stats) { s.Planner = true })
	defer r.count(func(s *Stats) { s.Planner = false })
	pause, isChecked := backoff(0), false
	for ctx.Err() == nil {
		var wait time.Duration
		err := error(nil)
		if !isChecked { // from here on, our node in the queue prevents SetShards
			err = p.l.ensure(r.n)
			isChecked = err == nil
		}
		if err == nil {
			wait, err = p.round()
		}
		switch {
		case err == nil:
			pause = 0
			p.sleep(ctx, wait)
		case zklock.IsFinal(err):
			return err
		default:
			if pause == 0 && ctx.Err() == nil {
				r.g.o.log.Warn("shards: cannot plan, and the shards stay where they are", "path", p.l.path, "err", err)
			}
			pause.wait(ctx)
		}
	}
	return nil
}

// sleep waits for an event or the end of ctx, for the given time, and a minute at most. Zero means
// a minute.
func (p *planner) sleep(ctx context.Context, wait time.Duration) {
	timer := time.NewTimer(min(cmp.Or(wait, lookAgain), lookAgain))
	defer timer.Stop()
	select {
	case <-p.watch:
		p.watch = nil
	case <-timer.C:
	case <-ctx.Done():
	}
}

// round reads the members and the plan, and writes the plan that is due.
func (p *planner) round() (wait time.Duration, err error) {
	conn := p.l.s.Conn()
	present, err := p.members(conn)
	if err != nil {
		return 0, p.l.errorf("list the members", err)
	}
	data, stat, err := conn.Get(p.l.plan())
	if errors.Is(err, zk.ErrNoNode) {
		err, stat = p.l.repair(), &zk.Stat{}
	}
	old := plan{}
	if err == nil {
		old, err = parsePlan(data) // if it is bad, an operator must decide what becomes of it
	}
	if err != nil {
		return 0, p.l.errorf("read the plan", err)
	}
	if len(data) == 0 { // there was none, or an operator has removed it
		old = p.r.followed()
	}
	maps.DeleteFunc(p.left, func(id string, isListed bool) bool {
		return !isListed && !slices.ContainsFunc(old.Members, func(m Member) bool { return m.ID == id })
	})
	due, isBalanced, wait := p.decide(time.Now(), old, p.r.n, present, p.left)
	isSame := len(data) > 0 && due.sameOwners(old) && (!isBalanced || slices.EqualFunc(due.Members, old.Members, Member.equal))
	if isSame || len(due.Shards) == 0 {
		return wait, nil
	}
	return wait, p.write(conn, due, old, stat.Version)
}

// list returns the children of PATH/members. A watch that has not fired yet is used again, because
// go-zookeeper would keep both.
func (p *planner) list(conn *zk.Conn) (children []string, err error) {
	if p.watch != nil {
		children, _, err = conn.Children(p.l.members())
		return children, err
	}
	children, _, watch, err := conn.ChildrenW(p.l.members())
	if err == nil {
		p.watch = watch
	}
	return children, err
}

// members returns the members that can take shards, in the order of the queue. The newest ones are
// left out if the plan could become too long with them.
func (p *planner) members(conn *zk.Conn) (present []Member, err error) {
	children, err := p.list(conn)
	if err != nil {
		return nil, err
	}
	for id := range p.left {
		p.left[id] = false
	}
	nodes := children[:0]
	for _, c := range children {
		if id, isLeaving := strings.CutPrefix(c, leftPrefix); isLeaving {
			p.left[id] = true
		} else {
			nodes = append(nodes, c)
		}
	}
	slices.SortFunc(nodes, func(a, b string) int { return cmp.Compare(sequence(a), sequence(b)) })
	isNew := !slices.Equal(nodes, p.seen)
	if isNew {
		p.seen, p.changed = nodes, time.Now()
	}
	if err := p.read(conn, nodes); err != nil {
		return nil, err
	}
	size := 8 * p.r.n
	for _, c := range nodes {
		m, ok := p.known[c]
		if _, isLeaving := p.left[m.ID]; !ok || isLeaving || m.Shards != p.r.n {
			continue
		}
		if size += m.size; size <= maxPlan {
			present = append(present, m.Member)
		} else if isNew {
			p.r.g.o.log.Warn("shards: a member gets no shards, because the plan would be too long: give the members less data or shorter names",
				"path", p.l.path, "member", m.Name)
		}
	}
	return present, nil
}

func sequence(node string) string { return node[max(0, len(node)-10):] }

// read reads the nodes that are new, and forgets those that were deleted.
func (p *planner) read(conn *zk.Conn, nodes []string) error {
	var mu sync.Mutex
	known := make(map[string]candidate, len(nodes))
	err := each(len(nodes), func(i int) (err error) {
		m, ok := p.known[nodes[i]]
		if !ok {
			m, err = p.l.candidate(conn, nodes[i])
		}
		mu.Lock()
		defer mu.Unlock()
		switch {
		case err == nil:
			known[nodes[i]] = m
		case errors.Is(err, zk.ErrNoNode): // it has left since
			err = nil
		}
		return err
	})
	p.known = known
	return err
}

// write replaces the plan, provided that this member is still first and that no other client has
// written since.
func (p *planner) write(conn *zk.Conn, due, old plan, version int32) error {
	data, _ := json.Marshal(due)
	results, err := conn.Multi(p.hold.Check(), &zk.SetDataRequest{Path: p.l.plan(), Data: data, Version: version})
	if err != nil {
		return p.l.errorf("write the plan", err)
	}
	moves := due.movesFrom(old)
	p.r.count(func(s *Stats) { s.Plans, s.Moves = s.Plans+1, s.Moves+int64(moves) })
	p.r.g.o.log.Info("shards: plan written", "path", p.l.path, "version", results[1].Stat.Version, "members", len(due.Members), "moves", moves)
	return nil
}
