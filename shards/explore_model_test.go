package shards

// The model of the rule that TestExploreShards walks through.

import (
	"fmt"
	"slices"

	"github.com/zklock/zklock/internal/explore"
)

const (
	mProcs  = 3
	mShards = 2
)

// What happens to the members from outside, as often as a state's budget says.
const (
	evJoin  = iota
	evLeave // in order
	evCrash
	evDie  // as evCrash, but its session remains until it expires
	evLose // the session; the functions of its holds still run
	evFail // the member cannot follow the plan any more
	evDrop // a plan that was sent is lost
	evKinds
)

// The states of a process.
const (
	isOut mState = iota
	isUp
	isLeaving
	isDead // its session has not expired
	isDeaf // a planted mistake: it cannot follow the plan, and remains a member
)

// mState is what a process does.
type mState int8

// mProc is one process. Its stages are those of a worker, with working for one that waits for
// another client, too.
type mProc struct {
	state   mState
	hasRead bool
	isReady bool
	suspect bool          // the planner has not found it in the queues of its shards
	read    [mShards]int8 // the owners in the plan that it has read
	stage   [mShards]stage
	lost    [mShards]bool // the function of a lost hold still runs
	late    [mShards]bool // a planted mistake: the function still runs after the release
}

// mWrite is a plan on its way to the servers.
type mWrite struct {
	node, ver int8 // the planner's node, 0 if there is no write, and the version that it replaces
	owners    [mShards]int8
}

// model is a state. A node is 1 + process + mProcs·generation.
type model struct {
	queue  [mProcs]int8 // of members' nodes
	gen    [mProcs]int8
	ver    int8
	owners [mShards]int8 // processes, or nobody
	procs  [mProcs]mProc
	shards [mShards][mProcs]int8 // the queues: 1 + process
	writes [mProcs]mWrite
	budget [evKinds]int8

	byOther bool // the last plan came from a member that is not the first
}

// mistakes that are planted in the rule.
type mistakes struct{ doesNotWait, releasesEarly, noCheck, staysDeaf, staysSuspect bool }

// explorer walks through all states that can be reached.
type explorer struct {
	names [mProcs]string
	plant mistakes
	ready bool // every member is, from its start on
	take  func(next *model, must bool, what func() string)
}

func push(q *[mProcs]int8, x int8) {
	for i := range q {
		if q[i] == 0 {
			q[i] = x
			return
		}
	}
}

func drop(q *[mProcs]int8, is func(int8) bool) {
	left := slices.DeleteFunc(q[:], func(x int8) bool { return x == 0 || is(x) })
	clear(q[len(left):])
}

func procOf(node int8) int { return int(node-1) % mProcs }

func (x *explorer) node(m *model, p int) int8 { return int8(1 + p + mProcs*int(m.gen[p])) }

// member returns the process as a member; two processes with one name differ in their id.
func (x *explorer) member(p int) Member {
	return Member{Name: x.names[p], Weight: 1, ID: fmt.Sprint(p)}
}

// planOf returns the owners as a plan.
func (x *explorer) planOf(owners [mShards]int8) plan {
	p := plan{Format: format}
	for i := range mProcs {
		p.Members = append(p.Members, x.member(i))
	}
	for _, o := range owners {
		p.Shards = append(p.Shards, int(o))
	}
	return p
}

func ownersOf(p plan) (owners [mShards]int8) {
	for shard := range owners {
		owners[shard] = nobody
		if m, ok := p.owner(shard); ok {
			owners[shard] = int8(m.ID[0] - '0')
		}
	}
	return owners
}

// present returns the members in the order of the queue, without those that are suspect: the ones
// that are ready, and the others. If none is ready, all count as ready.
func (x *explorer) present(m *model) (ready, others []Member) {
	for _, node := range m.queue {
		if node == 0 {
			continue
		}
		switch pr := m.procs[procOf(node)]; {
		case pr.suspect:
		case pr.isReady:
			ready = append(ready, x.member(procOf(node)))
		default:
			others = append(others, x.member(procOf(node)))
		}
	}
	if len(ready) == 0 {
		return others, nil
	}
	return ready, others
}

// steps gives all states that can come next.
func (x *explorer) steps(m *model, take func(next *model, must bool, what func() string)) {
	x.take = take
	x.plans(*m)
	for p := range mProcs {
		x.works(*m, p)
		x.suffers(*m, p)
	}
}

// step takes a state. A step from within must come some time.
func (x *explorer) step(to model, must bool, format string, args ...any) {
	x.take(&to, must, func() string { return fmt.Sprintf(format, args...) })
}

// explores visits all states.
func explores(names [mProcs]string, start int, budget [evKinds]int8, plant mistakes) explore.Found {
	x := &explorer{names: names, plant: plant, ready: budget[evDie] == 0 && !plant.staysSuspect}
	m := model{budget: budget, owners: [mShards]int8{nobody, nobody}}
	for p := range start {
		m.procs[p].state, m.procs[p].isReady = isUp, x.ready
		push(&m.queue, x.node(&m, p))
	}
	return explore.Model[model]{First: m, Steps: x.steps, Broken: x.broken, Stuck: x.stuck}.Run()
}

// plans has the first member plan, and the servers do what was sent.
func (x *explorer) plans(m model) {
	if f := m.queue[0]; f != 0 && m.procs[procOf(f)].state != isDead && m.writes[procOf(f)].node == 0 {
		old := x.planOf(m.owners)
		ready, others := x.present(&m)
		present := slices.Concat(ready, others)
		keepers := slices.DeleteFunc(slices.Clone(others), func(o Member) bool {
			return !slices.ContainsFunc(ready, func(p Member) bool { return p.Name == o.Name }) && old.owners()[o.Name].Name == ""
		})
		x.checks(m)
		var absent []Member
		for _, o := range old.owners() {
			if !slices.ContainsFunc(present, func(p Member) bool { return p.Name == o.Name }) {
				absent = append(absent, o)
			}
		}
		for _, p := range []plan{next(old, mShards, ready, slices.Concat(keepers, absent), false), next(old, mShards, present, absent, false),
			next(old, mShards, present, nil, false), next(old, mShards, ready, keepers, false), next(old, mShards, ready, keepers, true)} {
			if owners := ownersOf(p); owners != m.owners {
				n := m
				n.writes[procOf(f)] = mWrite{f, m.ver, owners}
				x.step(n, true, "%d plans %v", procOf(f), owners)
			}
		}
	}
	for p, w := range m.writes {
		if w.node == 0 {
			continue
		}
		n := m
		n.writes[p] = mWrite{}
		if x.plant.noCheck || slices.Contains(m.queue[:], w.node) && w.ver == m.ver {
			n.ver, n.owners, n.byOther = m.ver+1, w.owners, m.queue[0] != w.node
		}
		x.step(n, true, "the plan of %d arrives", p)
		if m.budget[evDrop] > 0 {
			n := m
			n.writes[p] = mWrite{}
			n.budget[evDrop]--
			x.step(n, false, "the plan of %d is lost", p)
		}
	}
}

// checks has the planner look for members that are not ready in the queues of their shards.
func (x *explorer) checks(m model) {
	for _, node := range m.queue {
		p := procOf(node)
		if node == 0 || m.procs[p].isReady || m.procs[p].suspect {
			continue
		}
		for shard, o := range m.owners {
			if int(o) == p && !slices.Contains(m.shards[shard][:], o+1) {
				n := m
				n.procs[p].suspect = true
				x.step(n, true, "%d is suspect", p)
				break
			}
		}
	}
}

// works has a process read the plan and work.
func (x *explorer) works(m model, p int) {
	do := func(change func(n *model, pr *mProc), format string, args ...any) {
		n := m
		change(&n, &n.procs[p])
		x.step(n, true, format, args...)
	}
	pr := m.procs[p]
	if pr.state == isUp && (!pr.hasRead || pr.read != m.owners) {
		do(func(n *model, pr *mProc) { pr.hasRead, pr.read = true, m.owners }, "%d reads %v", p, m.owners)
	}
	if pr.state == isUp && pr.hasRead && !pr.isReady {
		do(func(n *model, pr *mProc) { pr.isReady, pr.suspect = true, pr.suspect && x.plant.staysSuspect }, "%d is ready", p)
	}
	if pr.state == isDead {
		do(func(n *model, pr *mProc) { x.gone(n, p); *pr = mProc{} }, "the session of %d expires", p)
		return
	}
	if pr.state == isLeaving && pr.stage == [mShards]stage{} && pr.lost == [mShards]bool{} {
		do(func(n *model, pr *mProc) { *pr = mProc{} }, "%d has left", p)
	}
	leaveQueue := func(n *model, shard int) { drop(&n.shards[shard], func(q int8) bool { return q == int8(p+1) }) }
	for shard := range mShards {
		isWanted := pr.state != isLeaving && pr.hasRead && pr.read[shard] == int8(p)
		q := m.shards[shard]
		if pr.lost[shard] || pr.late[shard] {
			do(func(n *model, pr *mProc) { pr.lost[shard], pr.late[shard] = false, false }, "%d: the earlier function of %d returns", p, shard)
		}
		switch pr.stage[shard] {
		case idle:
			if isWanted && (!pr.lost[shard] || x.plant.doesNotWait) { // a worker's rounds come one after the other
				do(func(n *model, pr *mProc) { pr.stage[shard] = queued; push(&n.shards[shard], int8(p+1)) }, "%d queues for %d", p, shard)
			}
		case queued:
			if !isWanted {
				do(func(n *model, pr *mProc) { pr.stage[shard] = idle; leaveQueue(n, shard) }, "%d leaves the queue of %d", p, shard)
			}
			if q[0] == int8(p+1) {
				do(func(n *model, pr *mProc) { pr.stage[shard] = working }, "%d works on %d", p, shard)
			}
		case working:
			if !isWanted && (q[1] != 0 || pr.state == isLeaving) { // a member that leaves does not wait for ever
				do(func(n *model, pr *mProc) {
					if pr.stage[shard] = returning; x.plant.releasesEarly {
						pr.stage[shard], pr.late[shard] = idle, true
						leaveQueue(n, shard)
					}
				}, "%d ends its function of %d", p, shard)
			}
		case returning:
			do(func(n *model, pr *mProc) { pr.stage[shard] = idle; leaveQueue(n, shard) }, "%d: the function of %d returns, and it is released", p, shard)
		}
	}
}

// suffers has something happen to the process.
func (x *explorer) suffers(m model, p int) {
	do := func(ev int, change func(n *model, pr *mProc), what string) {
		if m.budget[ev] > 0 {
			n := m
			n.budget[ev]--
			change(&n, &n.procs[p])
			x.step(n, false, "%d %s", p, what)
		}
	}
	gone := func(n *model) { x.gone(n, p) }
	comes := func(n *model) { n.gen[p]++; push(&n.queue, x.node(n, p)) }
	switch m.procs[p].state {
	case isDead:
		return
	case isOut:
		do(evJoin, func(n *model, pr *mProc) { pr.state, pr.isReady = isUp, x.ready; comes(n) }, "joins")
		return
	case isUp:
		leave := func(n *model, pr *mProc) {
			pr.state = isLeaving
			drop(&n.queue, func(node int8) bool { return procOf(node) == p })
		}
		do(evLeave, leave, "begins to leave")
		do(evFail, func(n *model, pr *mProc) {
			if leave(n, pr); x.plant.staysDeaf {
				*n, *pr = m, m.procs[p]
				n.budget[evFail]--
				n.procs[p].state = isDeaf
			}
		}, "cannot follow any more")
		do(evLose, func(n *model, pr *mProc) {
			gone(n)
			for shard, s := range pr.stage {
				pr.lost[shard] = pr.lost[shard] || s == working || s == returning
			}
			pr.stage, pr.isReady, pr.suspect = [mShards]stage{}, x.ready, false
			comes(n)
		}, "loses its session")
		do(evDie, func(n *model, pr *mProc) { *pr = mProc{state: isDead, isReady: pr.isReady, suspect: pr.suspect} }, "dies")
	}
	do(evCrash, func(n *model, pr *mProc) { gone(n); *pr = mProc{} }, "crashes")
}

// gone deletes the nodes of the process.
func (x *explorer) gone(n *model, p int) {
	drop(&n.queue, func(node int8) bool { return procOf(node) == p })
	for shard := range n.shards {
		drop(&n.shards[shard], func(q int8) bool { return q == int8(p+1) })
	}
}

// broken looks for two functions in one state, and for a plan of a member that was not the first.
func (x *explorer) broken(m *model) string {
	if m.byOther {
		return "a member that is not the first member writes a plan"
	}
	for shard := range mShards {
		holders := 0
		for p, pr := range m.procs {
			runs := pr.stage[shard] == working || pr.stage[shard] == returning
			if runs && (pr.lost[shard] || pr.late[shard]) {
				return fmt.Sprintf("%d runs two functions for %d", p, shard)
			}
			if runs || pr.late[shard] {
				holders++
			}
		}
		if holders > 1 {
			return fmt.Sprintf("two processes work on %d", shard)
		}
	}
	return ""
}

// stuck looks for shards that are not worked on when nothing can happen any more from within.
func (x *explorer) stuck(m *model) string {
	if m.queue[0] == 0 {
		return ""
	}
	loads, names := map[string]int{}, map[string]int{}
	for _, node := range m.queue {
		if node != 0 {
			if name := x.names[procOf(node)]; names[name] == 0 {
				names[name], loads[name] = int(node), 0
			}
		}
	}
	for shard, o := range m.owners {
		if o == nobody || names[x.names[o]] == 0 || procOf(int8(names[x.names[o]])) != int(o) {
			return fmt.Sprintf("the plan gives %d to %d, which is no member, for ever", shard, o)
		}
		loads[x.names[o]]++
		if m.shards[shard][0] != o+1 || m.procs[o].stage[shard] != working {
			return fmt.Sprintf("nobody works on %d, for ever", shard)
		}
	}
	least, most := mShards, 0
	for _, n := range loads {
		least, most = min(least, n), max(most, n)
	}
	if most-least > 1 {
		return fmt.Sprintf("uneven for ever: %v", loads)
	}
	return ""
}
