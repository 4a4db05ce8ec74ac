package shards

// The member that is first in the queue of members plans: it watches the members, and writes the
// plan under a check of its own node.

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/zklock"
)

const (
	settle     = time.Second      // orphans of a crash are reassigned when no member has joined or left for this long
	settleMax  = 5 * time.Second  // and at the latest after this long
	yieldAgain = 30 * time.Second // how often a member that may not write the plan lets another one plan
)

var errNotWritten = errors.New("the plan was not written")

// schedule decides when to plan. It is pure: its clock is an argument.
type schedule struct {
	quiet   time.Duration
	changed time.Time // when the members last changed
	steady  time.Time // when those that are ready last changed
	pending time.Time // since when there is something to settle; zero if there is nothing
}

// quietAt is when the shards are balanced: members that come and go, and are never ready, delay
// that for twice as long at most.
func (s *schedule) quietAt() time.Time {
	at := s.changed.Add(s.quiet)
	if latest := s.steady.Add(s.quiet).Add(s.quiet); latest.Before(at) {
		at = latest
	}
	return at
}

// decide returns the plan that is due, which is old if none is, whether it is balanced, and after
// how long to decide again: zero if only a change of the members is a reason. left has the ids of
// members that have left in order as its keys.
func (s *schedule) decide(now time.Time, old plan, n int, present []candidate, left map[string]bool) (p plan, isBalanced bool, wait time.Duration) {
	if len(present) == 0 {
		return old, false, 0
	}
	here := map[string]bool{}
	var all, ready []Member
	for _, m := range present {
		here[m.Name] = true
		all = append(all, m.Member)
		if m.isReady && m.Weight > 0 {
			ready = append(ready, m.Member)
		}
	}
	hasReady := len(ready) > 0
	if !hasReady {
		ready = all
	}
	var crashed []Member
	isStart, owners := true, old.owners()
	for name, m := range owners {
		if _, inOrder := left[m.ID]; here[name] || inOrder {
			isStart = false
		} else {
			crashed = append(crashed, m)
		}
	}
	if !isStart && len(crashed) == 0 {
		s.pending = time.Time{}
	} else if s.pending.IsZero() {
		s.pending = now
	}
	due, quietAt := s.changed.Add(settle), s.quietAt()
	// If most members are absent, the servers were perhaps unavailable. Then members come back in
	// bursts, more than a second apart.
	if latest := s.pending.Add(settleMax); latest.Before(due) || !isStart && 2*len(crashed) > len(owners) {
		due = latest
	}
	settling := !s.pending.IsZero() && now.Before(due)
	if isStart && !settling { // a later start is another one
		s.pending = time.Time{}
	}
	if settling && isStart {
		return old, false, due.Sub(now)
	}
	takers := all // of the shards of those that have left in order
	if old.Crashes > 0 {
		takers = ready
	}
	p = next(old, n, takers, append(keepers(old, all, takers), crashed...), false)
	if settling {
		return p, false, due.Sub(now)
	}
	isBalanced = isStart || hasReady && !now.Before(quietAt)
	return next(p, n, ready, keepers(p, all, ready), isBalanced), isBalanced, max(0, quietAt.Sub(now))
}

// keepers returns the members that have shards in the plan and take none.
func keepers(p plan, all, takers []Member) (keepers []Member) {
	owners := p.owners()
	for _, m := range all {
		if _, owns := owners[m.Name]; owns && !slices.ContainsFunc(takers, m.equal) {
			keepers = append(keepers, m)
		}
	}
	return keepers
}

// planner is a member while it is first in the queue of members.
type planner struct {
	r     *run
	l     layout
	hold  *zklock.Hold
	known map[string]candidate // by the name of the node; zero for the node of another client
	left  map[string]bool      // ids of members that have begun to leave, and whether their node for that still exists
	state map[string]string    // of the members by their id, when they were last listed
	ready []string             // ids of the members that were ready then
	seen  []string             // the candidates' nodes then
	schedule

	children []string        // of PATH/members
	listed   time.Time       // when they were listed
	watch    <-chan zk.Event // of them; nil if there is none

	// See probation.go.
	checks   map[string]check     // by the name of the member
	gains    map[string]time.Time // when the member of the id has last got shards
	vanished map[string]vanished  // by the id of the member
	last     string               // the name of the last one
	raised   time.Time            // when the plan's number of crashes has changed, or would have risen
}

// lead plans until ctx ends. A member that may not write the plan queues again, so that another one
// plans.
func (r *run) lead(ctx context.Context, hold *zklock.Hold) error {
	p := &planner{r: r, l: r.l, hold: hold, left: map[string]bool{}, gains: map[string]time.Time{}, vanished: map[string]vanished{},
		schedule: schedule{quiet: r.g.o.quiet, steady: time.Now()}}
	r.count(func(s *Stats) { s.Planner = true })
	defer r.count(func(s *Stats) { s.Planner = false })
	for pause, poll := backoff(0), pauseMin/10; ctx.Err() == nil; {
		if !r.isCurrent() { // our nodes do not prevent SetShards yet
			p.sleep(ctx, poll)
			poll = min(2*poll, time.Second)
			continue
		}
		wait, err := p.round()
		if err == nil {
			pause, r.cannotPlan = 0, false
			if _, leaves := p.left[r.id]; leaves { // that was its last plan
				select {
				case r.planned <- struct{}{}:
				default:
				}
				wait = 0
			}
			p.sleep(ctx, wait)
			continue
		}
		if ctx.Err() == nil {
			r.warn(&r.cannotPlan, "shards: cannot plan, and the shards stay where they are", err)
		}
		if errors.Is(err, errNotWritten) && isRejected(err) && time.Since(r.yielded) > yieldAgain {
			r.yielded = time.Now()
			return nil
		}
		pause.wait(ctx)
	}
	return nil
}

// sleep waits for an event or the end of ctx, for the given time, and a minute at most. Zero means
// a minute.
func (p *planner) sleep(ctx context.Context, wait time.Duration) {
	select {
	case <-p.watch:
		p.watch = nil
	case <-time.After(min(cmp.Or(wait, lookAgain), lookAgain)):
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
		old, err = parsePlan(data, p.r.n) // if it is bad, an operator must decide what becomes of it
	}
	if err != nil {
		return 0, p.l.errorf("read the plan", err)
	}
	if len(data) == 0 { // there was none, or an operator has removed it
		old = p.r.followed()
	}
	now := time.Now()
	crashes, crashed := p.crashes(now, old)
	maps.DeleteFunc(p.left, func(id string, isListed bool) bool {
		return !isListed && !slices.ContainsFunc(old.Members, func(m Member) bool { return m.ID == id })
	})
	present, again, err := p.trusted(conn, now, old, present)
	if err != nil {
		return 0, err
	}
	due, isBalanced, wait := p.decide(now, old, p.r.n, present, p.left)
	if due.Crashes, due.Raised = crashes, old.Raised; crashes != old.Crashes {
		due.Raised = now.Unix()
	}
	isSame := len(data) > 0 && due.sameOwners(old) && crashes == old.Crashes && (!isBalanced || slices.EqualFunc(due.Members, old.Members, Member.equal))
	if len(p.vanished) > 0 {
		again = min(again, settleMax)
	}
	wait = min(cmp.Or(wait, again), again)
	if isSame || len(due.Shards) == 0 {
		p.counted(now)
		return wait, nil
	}
	if crashes > old.Crashes {
		p.r.g.o.log.Warn("shards: a member has crashed soon after its start: new members get shards later", "path", p.l.path,
			"member", crashed, "after", probation(p.quiet, crashes))
	}
	if isBalanced && now.Before(p.changed.Add(p.quiet)) && !now.Before(p.quietAt()) && due.movesFrom(old) > 0 {
		p.r.g.o.log.Warn("shards: members join and leave again and again: balanced without them", "path", p.l.path, "last", p.last)
	}
	return wait, p.write(conn, due, old, stat.Version)
}

// members returns the members that can take shards, in the order of the queue, and the first one of
// each name. The newest ones are left out if the plan could become too long with them.
func (p *planner) members(conn *zk.Conn) (present []candidate, err error) {
	if p.watch == nil || time.Since(p.listed) >= lookAgain { // otherwise nothing has changed
		if p.children, err = p.l.children(conn, p.l.members(), &p.watch); err != nil {
			return nil, err
		}
		p.listed = time.Now()
	}
	for id := range p.left {
		p.left[id] = false
	}
	state := map[string]string{}
	var nodes, ready []string
	for _, c := range p.children {
		prefix, id := stateOf(c)
		switch state[id] = prefix; prefix {
		case leftPrefix:
			p.left[id] = true
		case readyPrefix:
			ready = append(ready, id)
		case "":
			nodes = append(nodes, c)
		}
	}
	for _, m := range p.known {
		if before := p.state[m.ID]; before != "" && before != leftPrefix && state[m.ID] == "" {
			p.vanished[m.ID], p.last = vanished{before, m.Name, time.Now()}, m.Name
		}
	}
	maps.DeleteFunc(p.vanished, func(id string, _ vanished) bool { return state[id] != "" }) // it is back
	p.state = state
	slices.Sort(ready)
	slices.SortFunc(nodes, func(a, b string) int { return cmp.Compare(sequence(a), sequence(b)) })
	isNew := !slices.Equal(nodes, p.seen)
	if isNew {
		p.seen, p.changed = nodes, time.Now()
	}
	if !slices.Equal(ready, p.ready) {
		p.ready, p.steady = ready, time.Now()
	}
	if err := p.read(conn, nodes); err != nil {
		return nil, err
	}
	size, names := 8*p.r.n, map[string]bool{}
	for _, c := range nodes {
		m, ok := p.known[c]
		if _, isLeaving := p.left[m.ID]; !ok || isLeaving || m.Shards != p.r.n || names[m.Name] {
			continue
		}
		names[m.Name] = true
		_, m.isReady = slices.BinarySearch(ready, m.ID)
		if size += m.size; size <= maxPlan {
			present = append(present, m)
		} else if isNew {
			p.r.g.o.log.Warn("shards: a member gets no shards, because the plan would be too long: give the members less data or shorter names",
				"path", p.l.path, "member", m.Name)
		}
	}
	return present, nil
}

func sequence(node string) string { return node[max(0, len(node)-10):] }

// read reads the nodes that are new, or could not be read, and forgets those that were deleted.
func (p *planner) read(conn *zk.Conn, nodes []string) error {
	var mu sync.Mutex
	known := make(map[string]candidate, len(nodes))
	err := each(len(nodes), func(i int) (err error) {
		m, isKnown := p.known[nodes[i]]
		if m.Shards == 0 {
			m, err = p.l.candidate(conn, nodes[i])
		}
		mu.Lock()
		defer mu.Unlock()
		if errors.Is(err, zk.ErrNoNode) { // it has left since
			return nil
		}
		if err = p.l.errorf("read a member", err); err == nil || isRejected(err) {
			if known[nodes[i]] = m; m.Shards == 0 && !isKnown {
				p.r.g.o.log.Warn("shards: a node in the queue of members cannot be read as a member, which gets no shards", "path", p.l.path, "node", nodes[i], "err", err)
			}
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
	results, err := conn.Multi(p.hold.Checks()[0], &zk.SetDataRequest{Path: p.l.plan(), Data: data, Version: version})
	if err != nil {
		return fmt.Errorf("%w: %w", errNotWritten, p.l.errorf("write the plan", err))
	}
	now := time.Now()
	p.counted(now)
	p.gave(now, due, old)
	moves := due.movesFrom(old)
	p.r.count(func(s *Stats) { s.Plans, s.Moves = s.Plans+1, s.Moves+int64(moves) })
	p.r.g.o.log.Info("shards: plan written", "path", p.l.path, "version", results[1].Stat.Version, "members", len(due.Members), "moves", moves)
	return nil
}
