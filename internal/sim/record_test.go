package sim

// The record of the simulation.

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"time"

	zkqueue "github.com/zklock/zklock/internal/queue"
	"github.com/zklock/zklock/zktest"
)

// record is the history of a world: the clients' actions and beliefs, and the servers'
// transactions. Its checks are pure, so that each can be tested with a wrong history.
type record struct {
	start   time.Time
	last    int64 // the order handed out last
	ops     []*op
	applied []zktest.Applied
	killed  []int64        // sessions that an admin ended
	limits  []limit        // of the semaphores
	healed  time.Time      // when the faults ended
	left    map[int64]bool // sessions that zklock has left to expire, by its log
	pauses  []lapse
}

// lapse is a pause of a client, up to its first check of its holds.
type lapse struct {
	client   int
	from, to int64
}

// limit is a change of a semaphore's limit, which took effect between two orders.
type limit struct {
	lock, n  int
	from, to int64
}

// op is one call of a client. Orders are unique and are compared among clients; times are compared
// with the servers'.
type op struct {
	did       deed
	client    int
	owner     string // and, behind a slash, which attempt; the data of its node
	lock      int
	bound     time.Duration
	call, ret int64
	at, end   time.Time
	err       error
	node      string
	token     int64
	grant     *op // that a re-entry, a release, a write or work that is done once is about

	// How the lock is taken.
	shared  bool     // for reading
	beside  *op      // by the holder of this write lock
	permits int      // of a semaphore
	nodes   []string // all nodes of the grant
	amid    bool     // together with other locks

	// Of a grant.
	session int64 // 0 if the hold was lost before it could be read
	until   int64 // believed in until the notification or the release
	untilAt time.Time
	lost    bool // notified

	// Of the register; of work that is done once, its key, and when it began.
	value    int
	point    int64 // when a write took effect, or was rejected
	believed bool  // then
	accepted bool
}

type deed int

const (
	acquired deed = iota + 1
	tried
	reentered
	released
	wrote
	readBack
	once
)

func (d deed) String() string {
	return [...]string{"", "acquire", "try", "re-enter", "release", "write", "read", "once"}[d]
}

// all returns the nodes of a grant.
func (o *op) all() []string {
	if o.permits > 0 {
		return o.nodes
	}
	return []string{o.node}
}

// excludes reports whether two holds of one lock must not overlap.
func (o *op) excludes(other *op) bool {
	return !(o.shared && other.shared) && o.beside != other && other.beside != o
}

// granted says whether the operation began a hold.
func (o *op) granted() bool { return (o.did == acquired || o.did == tried) && o.err == nil }

func (o *op) String() string {
	s := fmt.Sprintf("%v by %s of client %d", o.did, o.owner, o.client)
	if o.node != "" {
		s += fmt.Sprintf(", %s with token %#x", o.node, o.token)
	}
	if o.err != nil {
		s += fmt.Sprintf(": %v", o.err)
	}
	return s
}

// lockNode is the life of one node, by the servers' history.
type lockNode struct {
	path    string
	owner   string
	session int64
	czxid   int64
	dzxid   int64 // 0 while it exists
	made    time.Time
	deleted time.Time
	reads   bool // a reader's
	beside  bool // the reader's node of a writer, which has the writer's position
	touched bool // deleted by an admin, or with a session that an admin killed: its client cannot be notified in time (F24)
}

func (n *lockNode) there() bool { return n.dzxid == 0 }

// takenBy reports whether an admin had deleted the node by then: its client was not notified.
func (n *lockNode) takenBy(at time.Time) bool { return n != nil && n.touched && !n.deleted.After(at) }

// blocks reports whether another node waits for this one if it is behind.
func (n *lockNode) blocks(other *lockNode) bool { return !n.reads || !other.reads }

// nodes returns all lock nodes that ever existed, by path, and the nodes of each lock in the order
// of the queue.
func (r *record) nodes() (byPath map[string]*lockNode, queue map[string][]*lockNode) {
	byPath, queue = map[string]*lockNode{}, map[string][]*lockNode{}
	killed := map[int64]bool{} // zxids that end a session
	for _, a := range r.applied {
		if a.Kind == zktest.Expired && slices.Contains(r.killed, a.Session) {
			killed[a.Zxid] = true
		}
	}
	for _, a := range r.applied {
		switch {
		case a.Kind == zktest.Created && a.Owner != 0:
			n := &lockNode{path: a.Path, owner: string(a.Data), session: a.Owner, czxid: a.Zxid, made: a.Time}
			n.reads = zkqueue.IsReader(n.path)
			byPath[a.Path] = n
			root := path.Dir(a.Path)
			writer := slices.IndexFunc(queue[root], func(m *lockNode) bool { return n.reads && numberOf(m.path) == numberOf(n.path) })
			if n.beside = writer >= 0; n.beside {
				queue[root] = slices.Insert(queue[root], writer+1, n)
			} else {
				queue[root] = append(queue[root], n)
			}
		case a.Kind == zktest.Deleted && byPath[a.Path] != nil:
			n := byPath[a.Path]
			n.dzxid, n.deleted = a.Zxid, a.Time
			n.touched = a.Session == 0 || killed[a.Zxid]
		}
	}
	return byPath, queue
}

// numberOf returns the ten digits at the end of a node's name.
func numberOf(node string) string { return node[len(node)-10:] }

// paused reports whether the client is paused at that order, and until when.
func (r *record) paused(client int, at int64) (to int64, yes bool) {
	for _, p := range r.pauses {
		if p.client == client && p.from < at && at < p.to {
			return p.to, true
		}
	}
	return 0, false
}

// lines returns the history as text, for a failed seed.
func (r *record) lines() (lines []string) {
	type line struct {
		at   time.Duration
		text string
	}
	var all []line
	for _, a := range r.applied {
		all = append(all, line{a.Time.Sub(r.start), fmt.Sprintf("server: %v %s", a, a.Data)})
	}
	for _, o := range r.ops {
		all = append(all, line{o.at.Sub(r.start), fmt.Sprintf("%d: %s by %s begins", o.call, o.did, o.owner)}, line{o.end.Sub(r.start), fmt.Sprintf("%d: %v", o.ret, o)})
		if o.lost && o.granted() {
			all = append(all, line{o.untilAt.Sub(r.start), fmt.Sprintf("%d: %s is told of the loss", o.until, o.owner)})
		}
	}
	slices.SortStableFunc(all, func(a, b line) int { return cmp.Compare(a.at, b.at) })
	for _, l := range all {
		lines = append(lines, fmt.Sprintf("%v %s", l.at, l.text))
	}
	return lines
}
