package command

// The positions in a queue that is watched, and the changes between two reads. Nothing here sends a
// request.

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/internal/nodes"
	"github.com/zklock/zklock/internal/queue"
)

// picture is a lock as it was read.
type picture struct {
	root           string // absolute
	queued, leases []string
	isSemaphore    bool
	limit          *int                 // of a semaphore, if a node has it
	record         queue.Record         // of a lock-delay
	now            time.Time            // when it was read
	came           map[string]time.Time // since when each first node that the record delays is seen there

	nodes map[string]zklock.Participant // by path
}

// party is a holder or a waiter: a node, or all nodes of one call for permits.
type party struct {
	key     string // the same for as long as it is there
	p       zklock.Participant
	holds   bool
	place   int // of a waiter: 1 is first in the queue; of a semaphore, the first waiter
	permits int // of a call for permits, if it has leases
}

// parties returns the holders and waiters, in the order of the queue.
func (v *picture) parties() (parties []party) {
	if v.isSemaphore {
		return v.permits()
	}
	for _, markers := range [][]string{queue.Markers, {queue.LatchName}} { // which do not see each other
		ms := v.members(v.root, v.queued, markers)
		for i, holds := range queue.HoldersOf(ms) {
			p := v.nodes[v.root+"/"+ms[i].Name]
			holds = holds && (i > 0 || !v.isDelayed() || !v.now.Before(nodes.WaitsUntil(v.record, v.came[ms[i].Name])))
			parties = append(parties, party{key: p.Node, p: p, holds: holds, place: i + 1})
		}
	}
	return parties
}

// notes records when the picture was read, and since when each first node is there that may wait
// for the lock-delay. In the first picture, that is when the node was created, at the latest. again
// is when a first node will count as holding if nothing changes; zero if none waits.
func (v *picture) notes(now time.Time, isFirst bool) (again time.Time) {
	came := map[string]time.Time{}
	for _, markers := range [][]string{queue.Markers, {queue.LatchName}} {
		ms := v.members(v.root, v.queued, markers)
		if v.isSemaphore || len(ms) == 0 || !v.isDelayed() {
			continue
		}
		at, isKnown := v.came[ms[0].Name]
		switch {
		case isKnown:
		case isFirst:
			at = v.nodes[v.root+"/"+ms[0].Name].Created
		default:
			at = now
		}
		came[ms[0].Name] = at
		if end := nodes.WaitsUntil(v.record, at); end.After(now) && (again.IsZero() || end.Before(again)) {
			again = end
		}
	}
	v.now, v.came = now, came
	return again
}

// isDelayed reports whether the first in the queue may wait for the lock-delay: the record names a
// holder whose node was deleted.
func (v *picture) isDelayed() bool {
	held := v.record.Word(queue.HeldWord)
	return held != "" && !slices.Contains(v.queued, held)
}

// permits is parties for a semaphore. Each call is one party, whatever nodes it has: while it is
// granted, it has one in the queue and its leases.
func (v *picture) permits() (parties []party) {
	leases := v.members(v.root+"/leases", v.leases, []string{queue.LeaseName})
	queued := v.members(v.root+"/locks", v.queued, queue.Markers)
	granted, front, limit := make([]queue.Owned, len(leases)), queue.Owned{}, 1 // without a limit, the first in the queue still waits
	for i, m := range leases {
		granted[i] = v.owned("/leases/", m)
	}
	if len(queued) > 0 {
		front = v.owned("/locks/", queued[0])
	}
	if v.limit != nil {
		limit = *v.limit
	}
	held, waiting, at := queue.GrantedLeases(granted, front, limit), 0, map[string]int{}
	if held < len(leases) {
		queued = queued[1:]
	}
	take := func(node string, holds, isLease bool) {
		key, isOurs := queue.ProtectionID(nameOf(node))
		if !isOurs {
			key = node
		}
		i, isKnown := at[key]
		if !isKnown {
			if !holds {
				waiting++
			}
			i, at[key] = len(parties), len(parties)
			parties = append(parties, party{key: key, p: v.nodes[node], holds: holds, place: waiting})
		}
		if isLease {
			parties[i].permits++
		}
	}
	for i, m := range leases {
		take(v.root+"/leases/"+m.Name, i < held, true)
	}
	for _, m := range queued {
		take(v.root+"/locks/"+m.Name, false, false)
	}
	return parties
}

func (v *picture) owned(below string, m queue.Member) queue.Owned {
	p := v.nodes[v.root+below+m.Name]
	return queue.Owned{Name: m.Name, Session: p.SessionID, Token: p.Token}
}

// members returns the known nodes of a queue, the first in line first.
func (v *picture) members(root string, names, markers []string) []queue.Member {
	ms := slices.DeleteFunc(queue.Members(names, markers), func(m queue.Member) bool {
		_, isKnown := v.nodes[root+"/"+m.Name]
		return !isKnown
	})
	token := func(m queue.Member) int64 { return v.nodes[root+"/"+m.Name].Token }
	slices.SortFunc(ms, func(a, b queue.Member) int {
		return cmp.Or(queue.ByNumber(a, b), cmp.Compare(token(a), token(b)))
	})
	return ms
}

const (
	changeHolds       = "holds"
	changeWaits       = "waits"
	changeGone        = "gone"
	changeDisappeared = "disappeared" // deleted without a release
)

// change is one line of ls --watch.
type change struct {
	Time          time.Time `json:"time"`
	Path          string    `json:"path"`
	Change        string    `json:"change"`
	Position      int       `json:"position,omitempty"`
	Permits       int       `json:"permits,omitempty"`
	HeldSeconds   *float64  `json:"held_seconds,omitempty"`
	WaitedSeconds *float64  `json:"waited_seconds,omitempty"`
	OrLonger      bool      `json:"or_longer,omitempty"` // it held or waited when the watch began or resumed
	entry
}

// line formats a change for people. If wide, it has the whole node, and the other columns of the
// table.
func (c change) line(wide bool) string {
	what := c.Change
	switch {
	case c.HeldSeconds != nil:
		what += fmt.Sprintf(", held %v", durationOf(*c.HeldSeconds))
	case c.WaitedSeconds != nil:
		what += fmt.Sprintf(", waited %v", durationOf(*c.WaitedSeconds))
	case c.Change == changeWaits:
		what += fmt.Sprintf(", %d", c.Position)
	}
	if c.OrLonger {
		what += " or longer"
	}
	if c.Permits > 1 {
		what += fmt.Sprintf(", %d permits", c.Permits)
	}
	who, node := c.who(), shortName(c.Node)
	if c.Pid != 0 {
		who = c.process()
	}
	if wide {
		node = fmt.Sprintf("%s, token %d, session %s", c.Node, c.Token, cmp.Or(c.Session, "-"))
	}
	return fmt.Sprintf("%s %s %s: %s (%s)", c.Time.Local().Format(time.TimeOnly), c.Path, what, cutTo(lineWidth, who), node)
}

func durationOf(s float64) time.Duration {
	return time.Duration(s * float64(time.Second)).Round(time.Millisecond)
}

// seen is a party as last printed.
type seen struct {
	party
	since    time.Time
	orLonger bool
}

// progress is the state of one lock as last printed.
type progress struct {
	path    string
	isBegun bool
	isDark  bool     // no server was reachable for a while: a new party may have been there before
	order   []string // of the parties
	parties map[string]seen
}

// next returns the changes since the last picture: the parties that left, and then the new holders
// and waiters.
func (pr *progress) next(v *picture, now time.Time) (changes []change) {
	parties := v.parties()
	order, next := make([]string, len(parties)), make(map[string]seen, len(parties))
	for i, s := range parties {
		before, isThere := pr.parties[s.key]
		order[i] = s.key
		if isThere && before.holds == s.holds {
			before.party = s
			next[s.key] = before
			continue
		}
		next[s.key] = seen{s, now, !pr.isBegun || pr.isDark}
		c := change{Change: changeWaits, Position: s.place}
		if s.holds {
			c = change{Change: changeHolds, Permits: s.permits}
		}
		changes = append(changes, pr.of(c, s, v, now))
	}
	var gone []change
	for _, key := range pr.order {
		if _, isThere := next[key]; isThere {
			continue
		}
		before := pr.parties[key]
		c := change{Change: changeGone, OrLonger: before.orLonger}
		took := now.Sub(before.since).Seconds()
		if before.holds {
			c.HeldSeconds, c.Permits = &took, before.permits
		} else {
			c.WaitedSeconds = &took
		}
		if v.record.Word(queue.HeldWord) == nameOf(before.p.Node) {
			c.Change = changeDisappeared
		}
		gone = append(gone, pr.of(c, before.party, v, now))
	}
	pr.order, pr.parties, pr.isBegun = order, next, true
	return append(gone, changes...)
}

func (pr *progress) of(c change, s party, v *picture, now time.Time) change {
	s.p.Holds = c.Change == changeHolds
	c.Time, c.Path, c.entry = now, pr.path, entryOf(s.p)
	if v.isSemaphore {
		c.Mode = modePermit
	}
	return c
}
