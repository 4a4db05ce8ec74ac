package shards

// Which members get shards. That a member is present shows little: a crashed process is present
// until its ZooKeeper session expires, and the next one may crash as soon as it works. So the
// shards of a crash, and of a balance, are given to members that have written that they are ready,
// which a dead one never does. Before that, a member gets shards only if no member is ready, as at
// a start, or from members that leave in order, which still work; and the planner checks that it
// queues for them.

import (
	"slices"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"
)

const (
	maxProbation = 5 * time.Minute
	maxCrashes   = 5
	early        = 2 * time.Minute  // a crash this soon after a member has got shards doubles the probation
	forgiven     = 30 * time.Minute // after this long without one, it is halved

	queuesBy     = 3 * time.Second // when a member that is not ready must be in the queues of its shards
	takesOverBy  = time.Second     // the same, if it takes over from a member that leaves
	trustReturns = 1               // crashes up to which a member that returns under its name keeps its shards
)

// probation is for how long a member must be present before it is ready.
func probation(quiet time.Duration, crashes int) time.Duration {
	return min(min(quiet, maxProbation)<<min(crashes, maxCrashes), maxProbation)
}

// check is whether a member that is not ready queues for the shards that the plan gives it. If it
// fails, the member gets nothing until its session has ended, or it is ready.
type check struct {
	due    time.Time // not later for the next member of its name: a loop may be faster than checks
	id     string    // of the member, once it was checked
	passed bool
}

func (c check) hasFailed(m candidate) bool { return c.id == m.ID && !c.passed }

// vanished is a member that has disappeared: its last state, its name, and when.
type vanished struct {
	state, name string
	at          time.Time
}

// hasCrashed reports whether the member has disappeared for longer than one that has lost its
// ZooKeeper session.
func (m vanished) hasCrashed(now time.Time) bool { return now.Sub(m.at) >= settleMax }

// trusted returns the members that can keep or take shards, and after how long to check again.
func (p *planner) trusted(conn *zk.Conn, now time.Time, old plan, present []candidate) (trusted []candidate, again time.Duration, err error) {
	owners, checks := old.owners(), map[string]check{}
	var due []candidate
	for _, m := range present {
		c, isKnown := p.checks[m.Name]
		owner, owns := owners[m.Name]
		if m.isReady || !owns && !c.hasFailed(m) {
			continue
		}
		if !isKnown || c.id != "" && c.id != m.ID {
			c = check{due: now.Add(queuesBy)}
		}
		if checks[m.Name] = c; c.id == "" && owner.ID == m.ID && !now.Before(c.due) {
			due = append(due, m)
		}
	}
	var mu sync.Mutex
	err = each(len(due), func(i int) error {
		m := due[i]
		passed, err := p.queues(conn, old, m)
		mu.Lock()
		defer mu.Unlock()
		if err == nil {
			checks[m.Name] = check{id: m.ID, passed: passed}
		}
		return err
	})
	again = lookAgain
	for _, m := range present {
		c, isChecked := checks[m.Name]
		switch owner := owners[m.Name]; {
		case c.hasFailed(m):
			if delete(p.gains, m.ID); !p.checks[m.Name].hasFailed(m) {
				p.r.g.o.log.Warn("shards: a member does not queue for its shards: other members get them", "path", p.l.path, "member", m.Name)
			}
			continue
		case isChecked && c.id == "":
			again = min(again, max(c.due.Sub(now), pauseMin))
			if owner.ID != m.ID && old.Crashes > trustReturns {
				continue
			}
		}
		trusted = append(trusted, m)
	}
	p.checks = checks
	if !slices.ContainsFunc(trusted, func(m candidate) bool { return m.Weight > 0 }) { // no better ones are present
		trusted = present
	}
	return trusted, again, err
}

// queues reports whether the member is in the queue of the first or the last of its shards. It is
// true if a queue cannot be read.
func (p *planner) queues(conn *zk.Conn, old plan, m candidate) (is bool, err error) {
	var own []int
	for shard := range old.Shards {
		if o, _ := old.owner(shard); o.ID == m.ID {
			own = append(own, shard)
		}
	}
	for _, shard := range []int{own[0], own[len(own)-1]} {
		is, err = p.l.isQueued(conn, shard, m.session)
		switch err = p.l.errorf("read a queue", err); {
		case isRejected(err):
			return true, nil
		case err != nil || is:
			return is, err
		}
	}
	return false, nil
}

// gave records which members have got shards by a new plan.
func (p *planner) gave(now time.Time, due, old plan) {
	for shard := range due.Shards {
		m, _ := due.owner(shard)
		was, _ := old.owner(shard)
		if m.ID == was.ID || m.ID == "" {
			continue
		}
		p.gains[m.ID] = now
		by := now.Add(queuesBy)
		if _, inOrder := p.left[was.ID]; inOrder {
			by = now.Add(takesOverBy)
		}
		if c, isKnown := p.checks[m.Name]; !isKnown || c.passed || by.Before(c.due) {
			p.checks[m.Name] = check{due: by}
		}
	}
}

// crashes returns the number of crashes for the next plan. It rises if a member crashes soon after
// it has got shards, and from 0 to 1 if one crashes before it is ready. It falls by one after a
// long time without either.
func (p *planner) crashes(now time.Time, old plan) (is int, crashed string) {
	is = old.Crashes
	if old.Raised > p.raised.Unix() {
		p.raised = time.Unix(old.Raised, 0)
	}
	for id, m := range p.vanished {
		if !m.hasCrashed(now) {
			continue
		}
		if m.at.Sub(p.gains[id]) < early {
			is, p.raised, crashed = min(old.Crashes+1, maxCrashes), now, m.name
		} else if m.state == newPrefix {
			is, p.raised, crashed = max(is, 1), now, m.name
		}
	}
	if is > 0 && now.Sub(p.raised) > forgiven {
		is--
	}
	return is, crashed
}

// counted forgets the members that have crashed, when the plan has their number.
func (p *planner) counted(now time.Time) {
	for id, m := range p.vanished {
		if m.hasCrashed(now) {
			delete(p.gains, id)
			delete(p.vanished, id)
		}
	}
}
