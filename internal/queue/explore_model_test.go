package queue

// The explorer's model: a world of servers and clients, and the steps that it can take.

import (
	"fmt"
	"math/bits"
	"slices"
	"strings"

	"github.com/zklock/zklock/internal/mux"
	"github.com/zklock/zklock/internal/reply"
)

// The explorer's model: ZooKeeper's guarantees, and clients that decide with the library's own
// functions (Machine, PositionOf, isFirstNow, HandoffAfter, reply.FateOf). A world is a value; a
// step turns one into another. The model's assumptions:
//
//   - writes have one order, and each session's server applies them in that order, some time later
//     (queue)
//   - a read is answered from the writes that the session's server has applied; a server that lags
//     answers with the past
//   - an event comes before any later response on its connection; the events of one transaction
//     come in any order
//   - on another connection a session never sees less than it has seen; setWatches replays missed
//     events in any order
//   - the end of a session is one transaction that deletes its nodes; its client is notified of it
//     some time later
//
// A request and its response are one step: a request in flight is one that is not made yet. The
// exception is a request that was in flight when the connection was lost, which may have arrived
// (see disconnects).
//
// An owner that does not await its release is two clients of one session: one deletes its node
// while the other acquires.
//
// The explorer looks for a state without a next step; not for a circle in which there always is
// one.
//
// Outside the model: time, and so leases; the slow re-check of watches, which would hide a stop;
// creates that a server takes from the socket of a lost connection, after the sync that looked for
// them (deleteOrphans deletes them).
const (
	maxNodes    = 12
	maxSessions = mostSessions
	maxWaiters  = 4
	maxWatched  = 8
	noNode      = 255
	stranger    = 254 // the owner of another program's node
)

type nodes uint16 // a set of lock nodes, by the order in which they were made

func (s nodes) has(i uint8) bool { return i < maxNodes && s&(1<<i) != 0 }

func only(i uint8) nodes { return 1 << i }

func (s nodes) each(f func(i uint8)) {
	for ; s != 0; s &= s - 1 {
		f(uint8(bits.TrailingZeros16(uint16(s))))
	}
}

type phase uint8

const (
	idle phase = iota
	creating
	resolving // the create's answer was lost
	walking
	holding
	deleting // released, or given up
	readsOn  // the writer's node is deleted, and its reader's is held
	leaving  // its reader's node is being deleted
)

type fired uint8

const (
	notFired fired = iota
	goneEvent
	otherEvent
)

// client is one owner that acquires and releases.
type client struct {
	left      uint8 // acquisitions to go
	phase     phase
	committed bool // the write under way has reached the leader
	unsure    bool // a delete has not been answered before
	node      uint8
	walk      Machine
	ahead     uint8 // the predecessor
	list      nodes // the last list

	watch      [maxWatched]uint8 // those ahead that it watches, the predecessor first
	hears      nodes             // of these, the nodes of the same session whose deletion is reported to it
	ownFired   fired
	aheadFired [maxWatched]fired

	// The watch on a node ahead continues over the next list, if it had not fired when that was
	// sent (attempt.listQueue).
	watched  nodes             // whose that are
	keeps    nodes             // those that the list shows as ones to be watched still
	keptConn [maxWatched]uint8 // over which the watches were set

	told   Handoff // by the predecessor, of the same session
	passes bool    // it deletes the node of a hold
	next   uint8   // whose node the transaction under way has checked
	stood  bool    // a transaction found this node there when it deleted the predecessor

	dead bool // at the predecessor's event our own node was deleted already

	writerReads // explore_rw_test.go
}

// change is the last transaction, and its result.
type change struct {
	kind  uint8 // made, deleted, written
	nodes nodes
	alive nodes
}

const (
	made uint8 = iota + 1
	deleted
	written
)

// session is one ZooKeeper session, at its server and at its client.
type session struct {
	gen      uint8 // which session of this client it is
	ended    bool  // at the leader
	open     bool  // requests may go
	restored bool

	last  nodes // what the transaction applied last deleted
	quiet nodes // nodes whose deletion a lost event did not report
	armed nodes // watches that are set, and over which connection
	over  [maxNodes]uint8

	server, client        nodes // watches at the server; those the client would restore
	missed                nodes // written meanwhile
	toldGone, toldWritten nodes // events on their way
}

type world struct {
	servers[change]
	n        uint8 // nodes made
	foreign  nodes
	kinds          // explore_rw_test.go
	writer   uint8 // a foreign node of a read/write lock, and the node of its reader; noNode if there is none
	reader   uint8
	owner    [maxNodes]uint8 // session<<4 | gen
	who      [maxNodes]uint8 // client
	nClients uint8
	of       [maxWaiters]uint8 // whose session is whose
	nSess    uint8
	s        [maxSessions]session
	c        [maxWaiters]client
	faults   uint8 // that may yet strike
	giveUps  uint8
	mute     bool // tellsNobody
	deaf     bool // an event or a watch got lost: only the re-check would help

	broken string // which promise
}

// kinds of faults
type faults uint16

const (
	disconnects faults = 1 << iota
	expiries
	adminDeletes
	adminDeletesTwo
	adminWrites
	foreigners
	writers // of another program, that take the read lock, too
	lostEvents
	lateRestores // the client takes too long to restore its watches: requests go before
	lostRestores // or cannot
	givenUps     // a client gives its session up, and the servers keep its nodes until it expires
	usual        = disconnects | expiries | adminDeletes | adminDeletesTwo | adminWrites | foreigners
	all          = usual | lateRestores | lostRestores | lostEvents
)

// mistakes are ways to hand over that the library does not go.
type mistakes uint16

const (
	noCheck      mistakes = 1 << iota // the next node is not checked
	noCheckAgain                      // or not when the answer was lost
	passedEarly                       // the next is notified before the response
	passedByAll                       // a waiter that gives up hands off too
	tellsNobody                       // its node is deleted without a handoff
	watchesOurs                       // a node of the same session is watched as any other
	anyEvent                          // any event of a node ahead counts as its deletion
)

type explorer struct {
	sessions []uint8 // of each client
	acquire  uint8   // how often each
	faults   uint8
	kinds    faults
	giveUps  uint8
	queued   bool   // they are in the queue at the start
	upTo     Stage  // and the last of them has come to this
	released bool   // since then the first has released, which the other servers have not applied
	rules    []Rule // of each client; nil: all are mutexes
	reads    bool   // a writer may take the read lock, too
	lagging  uint8
	suffixes func(i int) string // of the i-th node

	place func(rule Rule, self string, children []string) Position
	turns func(r Rule, downgraded bool) bool // Rule.HandsOff
	rule  func(evidence) bool
	after func(done bool, failed int, noNode bool) Handoff
	wrong mistakes
	fate  func(f mux.Fate, o reply.Outcome, over bool) reply.CreateFate

	places map[placeKey]placed
	grants [ToEnd]int // how many steps granted, by the stage: ToList, ToAwaitHandoff, ToAwait
	last   int        // how many of them did on the last of several events
}

type placeKey struct {
	list, foreign        nodes
	self, writer, reader uint8
	kinds                kinds
}

type placed struct {
	Position
	watch [maxWatched]uint8
}

// nobody: no node is watched.
var nobody = [maxWatched]uint8{noNode, noNode, noNode, noNode, noNode, noNode, noNode, noNode}

func (x *explorer) start() world {
	w := world{writer: noNode, reader: noNode, nClients: uint8(len(x.sessions)), faults: x.faults, giveUps: x.giveUps, mute: x.wrong&tellsNobody != 0}
	for i, s := range x.sessions {
		w.of[i] = s
		w.nSess = max(w.nSess, s+1)
		w.c[i] = blank(x.acquire)
	}
	for i := range w.nSess {
		w.s[i] = session{open: true, restored: true}
	}
	w.most, w.numbered = x.lagging, true
	w.servers.start(int(w.nSess), change{})
	if x.queued {
		x.queueUp(&w)
	}
	return w
}

// queueUp queues all clients in their order: the first holds, and each other one watches its
// blockers.
func (x *explorer) queueUp(w *world) {
	for c := range w.nClients {
		w.c[c].phase = creating
		to := ToAwait
		if c == w.nClients-1 {
			to = x.upTo
		}
		for !w.c[c].does(to) && w.c[c].phase != holding {
			next := *w
			x.steps(w, func(n *world, must bool, _ func() string) {
				asked := w.c[c] != n.c[c] && n.c[c].phase != idle && n.c[c].phase != deleting
				learnt := w.c == n.c && (w.s != n.s || w.servers != n.servers)
				if must && (asked || learnt) {
					next = *n
				}
			})
			if next == *w {
				panic("nobody queues")
			}
			*w = next
		}
	}
	if x.released {
		for w.link[0].lag > 0 {
			w.apply(0)
		}
		w.commit(change{kind: deleted, nodes: only(w.c[0].node)})
		w.apply(0)
		w.c[0] = blank(0)
	}
}

func (x *explorer) nodeName(w *world, i uint8) string {
	suffix := fmt.Sprintf("%010d", i)
	switch i {
	case w.writer:
		return fmt.Sprintf("_c_%08x-0000-4000-8000-000000000000-__WRIT__%s", 100-i, suffix)
	case w.reader: // with the writer's number, as Curator 5.5 has it
		return fmt.Sprintf("_c_%08x-0000-4000-8000-000000000000-__READ__%010d", 100-i, w.writer)
	}
	if x.suffixes != nil {
		suffix = x.suffixes(int(i))
	}
	if x.rules != nil {
		return fmt.Sprintf("_c_%08x-0000-4000-8000-000000000000-%s%010d", 100-i, w.ruleOf(i).Name, w.number(i))
	}
	if w.foreign.has(i) {
		return fmt.Sprintf("%032x__lock__%s", 100-i, suffix) // kazoo's
	}
	return fmt.Sprintf("_c_%08x-0000-4000-8000-000000000000-lock-%s", 100-i, suffix) // by name the later one is first
}

// where asks PositionOf, once for each question.
func (x *explorer) where(w *world, c *client, list nodes) placed {
	key := placeKey{list, w.foreign & list, c.node, w.writer, w.reader, w.kinds.named()}
	if p, ok := x.places[key]; ok {
		return p
	}
	children, index := []string{"config"}, map[string]uint8{}
	list.each(func(i uint8) {
		index[x.nodeName(w, i)] = i
		children = append(children, x.nodeName(w, i))
	})
	slices.Sort(children)
	p := x.place(w.ruleOf(c.node), x.nodeName(w, c.node), children)
	r := placed{Position: p, watch: nobody}
	if p.Kind == Behind {
		for j, name := range append([]string{p.Predecessor}, p.Further...) {
			r.watch[j] = index[name]
		}
	}
	x.places[key] = r
	return r
}

// blank is a client that has nothing.
func blank(left uint8) client {
	return client{left: left, node: noNode, ahead: noNode, watch: nobody, next: noNode, writerReads: writerReads{down: noNode}}
}

func (w *world) id(s uint8) uint8 { return s<<4 | w.s[s].gen }

func (w *world) session(c uint8) *session { return &w.s[w.of[c]] }

func (w *world) alive() nodes { return w.leader().alive }

// sees is what the client's server has applied.
func (w *world) sees(c uint8) nodes { return w.view(w.of[c]).alive }

func (w *world) conn(c uint8) uint8 { return w.link[w.of[c]].conn }

func (w *world) answers(c uint8) bool {
	s := w.session(c)
	return w.conn(c) != 0 && s.open && !w.link[w.of[c]].cut && s.toldGone|s.toldWritten == 0
}

func (w *world) breaks(promise string) { w.broken = promise }

// commit executes a transaction at the leader.
func (w *world) commit(ch change) {
	ch.alive = w.alive()
	switch ch.kind {
	case made:
		ch.alive |= ch.nodes
	case deleted:
		ch.nodes.each(func(i uint8) {
			woken, look := 0, 0
			for c := range w.nClients {
				if k := &w.c[c]; k.does(ToAwait) && k.looksAfter(i) && w.alive().has(k.node) && w.alive().has(k.ahead) && !ch.nodes.has(k.node) {
					look++
				}
				if k := &w.c[c]; k.does(ToWatchBlocker, ToAwait) && k.ahead == i && w.alive().has(k.node) && !ch.nodes.has(k.node) && !w.isReader(k.node) {
					woken++
				}
			}
			if woken > 1 || look > 1 {
				w.breaks("I8: one release wakes two, or lets two look")
			}
		})
		ch.alive &^= ch.nodes
	}
	for i := range w.nSess {
		w.skip(i, w.most-1)
	}
	w.servers.commit(func(s *change) { *s = ch })
}

// advance applies a transaction.
func (w *world) advance(i uint8) *change {
	l := &w.link[i]
	l.lag--
	l.seen = l.lag
	return w.view(i)
}

// skip applies transactions without a connection that could report them, until so many are left.
func (w *world) skip(i, left uint8) {
	for w.link[i].lag > left {
		if ch := w.advance(i); ch.kind == written {
			w.s[i].missed |= ch.nodes & w.s[i].client
		}
	}
}

// apply lets a session's server apply the next transaction, which makes events of watches.
func (w *world) apply(i uint8) *change {
	s := &w.s[i]
	ch := w.advance(i)
	hit := ch.nodes & s.server
	switch ch.kind {
	case deleted:
		s.last = ch.nodes
		s.toldGone |= hit
		s.server &^= hit
	case written:
		s.toldWritten |= hit
		s.server &^= hit
		if !s.restored {
			s.missed |= ch.nodes & s.client &^ hit
		}
	}
	w.cuts(i)
	return ch
}

// cuts ends the connection of a session if its server knows that the session has ended.
func (w *world) cuts(i uint8) { w.link[i].cut = w.s[i].ended && w.link[i].lag == 0 }

// event reaches the client: link.ZKSession hands it on.
func (w *world) event(i, node uint8, kind fired) {
	s := &w.s[i]
	s.client &^= only(node)
	s.missed &^= only(node)
	s.armed &^= only(node)
	s.over[node] = 0
	for c := range w.nClients {
		k := &w.c[c]
		if w.of[c] != i {
			continue
		}
		if k.node == node && k.phase == holding && kind == goneEvent {
			w.finish(c) // notified
			continue
		}
		if k.down == node && k.reading && kind == goneEvent {
			w.tellReaderGone(c)
			continue
		}
		if k.node == node && k.does(ToWatchBlocker, ToAwait) && k.ownFired == notFired {
			k.ownFired = kind
		}
		k.watched &^= only(node)
		if j := slices.Index(k.watch[:], node); j >= 0 && (k.isArmed(j) || k.keeps.has(node)) && !k.hears.has(node) && k.aheadFired[j] == notFired {
			k.aheadFired[j] = kind
			k.dead = !w.sees(c).has(k.node)
			// The rule cannot detect that one transaction deleted another session's node and ours
			// (the exception that it names), or that the server lost our event, against its
			// guarantee. Such a hold is lost at the next heartbeat.
			both := only(node) | only(k.node)
			if s.last&both == both && w.owner[node] != w.id(i) || s.last&both != both && s.quiet.has(k.node) {
				k.dead = false
			}
		}
	}
}

// finish ends an acquisition: for a writer that has read, the first half of it.
func (w *world) finish(c uint8) {
	w.tellBehind(c, HandoffUnknown)
	if w.readsOn(c) {
		return
	}
	w.c[c] = blank(w.c[c].left - 1)
}

func (w *world) requeue(c uint8) {
	w.tellBehind(c, HandoffUnknown)
	left := w.c[c].left
	w.c[c] = blank(left)
	w.c[c].phase = creating
}

// tellBehind notifies the session's waiters directly behind a client's node: node.Own.Gone.
func (w *world) tellBehind(c uint8, t Handoff) {
	if w.c[c].node == noNode || w.mute {
		return
	}
	for o := range w.nClients {
		k := &w.c[o]
		if w.of[o] == w.of[c] && k.does(ToAwaitHandoff) && k.ahead == w.c[c].node && k.told == NoHandoff {
			k.told = t
		}
		if j := slices.Index(k.watch[:], w.c[c].node); j >= 0 && k.hears.has(w.c[c].node) && k.aheadFired[j] == notFired {
			k.aheadFired[j] = otherEvent
			if t == BlockerDeleted {
				k.aheadFired[j], k.dead = goneEvent, !w.sees(o).has(k.node)
			}
		}
	}
}

// stand is node.Own.WaitBehind.
func (x *explorer) stand(w *world, c uint8) {
	k := &w.c[c]
	if !k.does(ToWaitBehind) {
		return
	}
	x.goOn(w, c, k.walk.WaitsBehind(w.isOurs(c, k.ahead)))
	if k.does(ToWatchOwn) && x.wrong&watchesOurs == 0 {
		for _, node := range k.watch {
			if w.isOurs(c, node) {
				k.hears |= only(node)
			}
		}
	}
}

// isOurs reports whether node.Own has a node.
func (w *world) isOurs(c, node uint8) (yes bool) {
	for o := range w.nClients {
		p := &w.c[o]
		yes = yes || node != noNode && w.of[o] == w.of[c] && p.node == node && slices.Contains([]phase{walking, holding, deleting, readsOn, leaving}, p.phase)
	}
	return yes
}

// next is node.Own's next: the waiter directly behind a client's node.
func (w *world) next(c uint8) (o uint8, ok bool) {
	for o := range w.nClients {
		if k := &w.c[o]; w.of[o] == w.of[c] && k.does(ToAwaitHandoff) && k.ahead == w.c[c].node && k.told == NoHandoff {
			return o, true
		}
	}
	return 0, false
}

// does reports whether the client's next stage is one of these.
func (k *client) does(stages ...Stage) bool {
	return k.phase == walking && slices.Contains(stages, k.walk.Next)
}

// isArmed reports whether the watch on the j-th blocker is set, or its deletion would be reported
// otherwise.
func (k *client) isArmed(j int) bool {
	return k.does(ToAwait) || k.does(ToWatchBlocker) && j < k.walk.At
}

// looksAfter reports whether an event of the node leads to a list although the predecessor exists.
func (k *client) looksAfter(node uint8) bool {
	_, also := k.walk.Awaited()
	return also >= 0 && !k.walk.WatchesAll() && k.watch[also] == node
}

// goOn takes the next step of the walk.
func (x *explorer) goOn(w *world, c uint8, next Machine) {
	k := &w.c[c]
	watched, by := k.watched, k.walk.Next
	for j, node := range k.watch {
		if node != noNode && !k.hears.has(node) && k.aheadFired[j] == notFired && (k.isArmed(j) || k.keeps.has(node)) {
			watched |= only(node)
		}
	}
	if next.Next == ToGrant && k.does(ToAwait) && k.walk.Blockers > 1 {
		x.last++
	}
	k.walk = next
	k.list = 0
	switch next.Next {
	case ToList:
		fresh := blank(k.left)
		fresh.phase, fresh.node, fresh.walk, fresh.watched = walking, k.node, next, watched
		*k = fresh
	case ToGrant:
		x.grant(w, c, by)
	case ToQueueAgain:
		w.requeue(c)
	case ToEnd:
		k.phase, k.committed = deleting, false
	}
}

// grant is attempt.grant.
func (x *explorer) grant(w *world, c uint8, by Stage) {
	k := &w.c[c]
	if k.ownFired == goneEvent {
		w.requeue(c)
		return
	}
	if by == ToAwaitHandoff && !k.stood {
		w.breaks("I1, I3: granted by a turn that no transaction has passed")
	}
	if by == ToAwait && k.dead {
		w.breaks("I1, I3: granted on the event, when that connection had already shown a state without the own node")
	}
	if w.besideAnother(c, k.node) {
		w.breaks("I1: two hold, on live nodes")
	}
	if w.broken == "" && w.earlier(k.node) {
		w.breaks("I8: granted before an earlier node")
	}
	if w.broken == "" && x.rules != nil && w.alive().has(k.node) {
		w.takeToken(k.node, k.node)
	}
	if w.owner[k.node] != w.id(w.of[c]) {
		w.breaks("I3: granted on a node of another session")
	}
	if w.reader != noNode && w.alive().has(w.reader) && w.writer < k.node {
		w.breaks("I1: granted beside a writer that reads")
	}
	held := blank(k.left)
	held.phase, held.node = holding, k.node
	*k = held
	x.grants[by]++
}

// read is one read of a client and its answer, which is of connection conn: 0 if that is not sure.
func (x *explorer) read(w *world, c, conn uint8) string {
	k, s := &w.c[c], w.session(c)
	judge := func() string {
		p := x.where(w, k, k.list)
		k.ahead, k.watch = p.watch[0], p.watch
		if p.Kind == Behind {
			for j, node := range k.watch {
				if k.watched.has(node) && s.armed.has(node) {
					k.keeps |= only(node)
					k.keptConn[j] = s.over[node]
				}
			}
			k.watched = 0
		}
		x.goOn(w, c, k.walk.Listed(p.Position, uint64(conn)))
		x.stand(w, c)
		x.join(w, c)
		switch p.Kind {
		case Missing:
			return "lists, and its node is not there"
		case Front:
			return "lists, is in front, and is granted"
		case Exhausted:
			return "lists, is past the counter's end, and gives up"
		}
		return fmt.Sprintf("lists: %d ahead, the next is %s", p.Position.Blockers, only(p.watch[0]))
	}
	there := func(node uint8) Finding {
		if w.sees(c).has(node) {
			return Exists
		}
		return Absent
	}
	switch k.walk.Next {
	case ToList:
		k.list = w.sees(c)
		return judge()
	case ToWatchOwn, ToWatchBlocker:
		node, who := k.node, "its own node"
		at, ahead := k.walk.At, k.does(ToWatchBlocker)
		if ahead {
			node = k.watch[at]
			who = only(node).String() + " ahead"
		}
		r, owner := there(node), int64(w.owner[node])
		if r == Exists {
			x.arm(w, c, node, conn)
		} else {
			owner = 0
		}
		x.goOn(w, c, k.walk.Watched(r, owner, uint64(conn)))
		if ahead && k.does(ToWatchBlocker, ToAwait) && r == Absent {
			k.aheadFired[at], k.dead = goneEvent, !w.sees(c).has(k.node) && !s.quiet.has(k.node)
		}
		x.join(w, c)
		if r == Absent {
			return "reads " + who + ", which is gone"
		}
		return "watches " + who
	}
	panic("no read")
}

func (x *explorer) arm(w *world, c, node, conn uint8) {
	s := w.session(c)
	s.server |= only(node)
	s.client |= only(node)
	s.missed &^= only(node)
	s.armed |= only(node)
	s.over[node] = conn
	for o := range w.nClients { // the clients of one session share a watch
		if o != c && w.of[o] == w.of[c] {
			x.join(w, o)
		}
	}
}

// join uses watches that are set.
func (x *explorer) join(w *world, c uint8) {
	k, s := &w.c[c], w.session(c)
	for {
		node := uint8(noNode)
		switch {
		case k.does(ToWatchOwn):
			node = k.node
		case k.does(ToWatchBlocker):
			node = k.watch[k.walk.At]
		}
		if k.does(ToWatchBlocker) && k.hears.has(node) {
			k.walk = k.walk.WillBeNotified()
			continue
		}
		if k.does(ToWatchBlocker) && k.keeps.has(node) {
			k.keeps &^= only(node)
			k.walk = k.walk.Watched(Exists, int64(w.owner[node]), uint64(k.keptConn[k.walk.At]))
			continue
		}
		if !s.armed.has(node) {
			return
		}
		k.walk = k.walk.Watched(Exists, int64(w.owner[node]), uint64(s.over[node]))
	}
}

func (k *client) reads() bool {
	return k.does(ToList, ToWatchOwn, ToWatchBlocker)
}

// ask puts what a client knows to the rule, when the i-th of those ahead has had its event.
func (x *explorer) ask(w *world, c uint8, i int) string {
	k := &w.c[c]
	isDeletion, what := k.aheadFired[i] == goneEvent || x.wrong&anyEvent != 0, "is woken by the event of "+only(k.watch[i]).String()+" ahead, and "
	next, isLast := k.walk.observed(i, isDeletion)
	if !isLast {
		k.walk = next
		return what + "waits for others"
	}
	r := x.rule(next.evidence(uint64(w.conn(c)), k.ownFired != notFired))
	x.goOn(w, c, next.ruled(r, uint64(w.conn(c))))
	if r {
		return what + "is granted"
	}
	return what + "is to list"
}

func (s nodes) String() string {
	var out []string
	s.each(func(i uint8) { out = append(out, fmt.Sprintf("n%d", i)) })
	return strings.Join(out, "+")
}

func (w *world) name(c uint8) string {
	k := &w.c[c]
	name := string(rune('A' + c))
	if k.node != noNode {
		name += "(" + only(k.node).String() + ")"
	}
	return name
}

// emit takes a world that one step leads to. A step that is neither a fault nor a client's choice
// must come some time.
type emit = func(next *world, must bool, what func() string)

// steps gives all worlds that one step leads to.
func (x *explorer) steps(w *world, out emit) {
	can := w.canCommit()
	for i := range w.nSess {
		x.serverSteps(w, i, can, out)
	}
	for c := range w.nClients {
		x.clientSteps(w, c, can, out)
	}
	if can {
		w.foreign.each(func(i uint8) { // its owner leaves
			if w.alive().has(i) {
				n := *w
				n.commit(change{kind: deleted, nodes: only(i)})
				out(&n, true, func() string { return "the other program deletes its node " + only(i).String() })
			}
		})
	}
	if w.faults > 0 {
		x.faultSteps(w, can, out)
	}
}

func (x *explorer) serverSteps(w *world, i uint8, can bool, out emit) {
	s := &w.s[i]
	told := s.toldGone | s.toldWritten
	who := func() string { return fmt.Sprintf("session %d", i) }
	isOn, lag := w.isOn(i), w.link[i].lag
	if isOn && !w.link[i].cut && told == 0 && lag > 0 {
		n := *w
		ch := n.apply(i)
		out(&n, true, func() string {
			return fmt.Sprintf("%s: its server learns that %s was %s", who(), ch.nodes, []string{"", "made", "deleted", "written"}[ch.kind])
		})
	}
	told.each(func(node uint8) {
		kind := otherEvent
		if s.toldGone.has(node) {
			kind = goneEvent
		}
		n := *w
		n.s[i].toldGone &^= only(node)
		n.s[i].toldWritten &^= only(node)
		lost := n
		n.event(i, node, kind)
		out(&n, true, func() string {
			return fmt.Sprintf("%s: the event of %s comes (%s)", who(), only(node), []string{"", "deleted", "written"}[kind])
		})
		if w.faults > 0 && x.kinds&lostEvents != 0 {
			lost.faults--
			lost.deaf = true
			if kind == goneEvent {
				lost.s[i].quiet |= only(node)
			}
			out(&lost, false, func() string { return fmt.Sprintf("%s: FAULT the event of %s gets lost", who(), only(node)) })
		}
	})
	if !isOn {
		for k := range lag + 1 {
			n := *w
			t := &n.s[i]
			n.skip(i, lag-k)
			n.link[i].conn = n.link[i].lost + 1
			n.cuts(i)
			t.restored = t.client == 0
			t.open = t.restored
			t.last = 0
			out(&n, true, func() string {
				return fmt.Sprintf("%s: connected again, to a server that is %d transactions behind", who(), lag-k)
			})
			if !t.restored && w.faults > 0 && x.kinds&lateRestores != 0 {
				late := n
				late.faults--
				late.s[i].open = true
				out(&late, false, func() string {
					return fmt.Sprintf("%s: FAULT connected again, to a server that is %d transactions behind; watches are restored late", who(), lag-k)
				})
			}
		}
	}
	if isOn && !s.restored && !w.link[i].cut && told == 0 {
		n := *w
		t := &n.s[i]
		t.restored, t.open, t.last = true, true, 0
		view := n.view(i).alive
		t.toldGone |= t.client &^ view
		t.toldWritten |= t.client & view & t.missed
		t.server |= t.client &^ (t.toldGone | t.toldWritten)
		t.missed = 0
		out(&n, true, func() string { return who() + ": the client restores its watches" })
		if w.faults > 0 && x.kinds&lostRestores != 0 {
			n := *w
			n.s[i].restored, n.s[i].open = true, true
			n.deaf = true
			n.faults--
			out(&n, false, func() string { return who() + ": FAULT the client cannot restore its watches" })
		}
	}
	if s.ended { // in any connection, or on the next
		n := *w
		n.another(i)
		out(&n, true, func() string { return who() + ": the client learns that it is over, and has another" })
	}
}

// another gives the clients of a session that has ended the next one.
func (w *world) another(i uint8) {
	t := &w.s[i]
	*t = session{gen: t.gen + 1, open: true, restored: true}
	l := &w.link[i]
	l.conn, l.lost, l.cut = 1, 0, false
	for c := range w.nClients {
		if k := &w.c[c]; w.of[c] == i {
			switch k.phase {
			case idle:
			case holding, deleting, readsOn, leaving:
				w.c[c].writerReads = writerReads{down: noNode}
				w.finish(c)
			default:
				w.requeue(c)
			}
		}
	}
}

func (x *explorer) clientSteps(w *world, c uint8, can bool, out emit) {
	k, s := &w.c[c], w.session(c)
	step := func(must bool, what string, f func(n *world, k *client, s *session)) {
		n := *w
		f(&n, &n.c[c], n.session(c))
		out(&n, must, func() string { return w.name(c) + " " + what })
	}
	ready, sees, lag := w.answers(c), w.sees(c), w.link[w.of[c]].lag
	switch k.phase {
	case idle:
		if k.left > 0 {
			step(true, "acquires", func(n *world, k *client, _ *session) { n.requeue(c) })
		}
	case creating:
		if !k.committed && ready && !s.ended && can && w.n < maxNodes {
			step(true, "creates "+only(w.n).String(), func(n *world, k *client, _ *session) {
				x.create(n, c)
				k.committed = true
			})
		}
		if k.committed && ready && (sees.has(k.node) || !w.alive().has(k.node) && lag == 0) {
			step(true, "has its create's answer", func(n *world, k *client, _ *session) {
				if x.fate(mux.WasAnswered, reply.Applied, false) == reply.NodeMade {
					x.begin(n, c)
				}
			})
		}
	case resolving:
		if ready && lag == 0 && !s.ended { // after the sync
			step(true, "looks for the node of its lost create", func(n *world, k *client, s *session) {
				if k.node != noNode && n.sees(c).has(k.node) {
					x.begin(n, c)
				} else {
					n.requeue(c)
				}
			})
		}
	case walking:
		if k.reads() {
			if ready {
				n := *w
				what := x.read(&n, c, w.conn(c))
				out(&n, true, func() string { return w.name(c) + " " + what })
			}
			break
		}
		if k.does(ToAwaitHandoff) {
			if k.told != NoHandoff {
				what := [...]string{HandoffIsOurs: "is passed the turn", HandoffUnknown: "is told that its predecessor is gone", NodeDeleted: "is told that its own node is",
					BlockerDeleted: "is told that its predecessor is gone"}[k.told]
				step(true, what, func(n *world, k *client, _ *session) { x.goOn(n, c, k.walk.HandedOff(k.told)) })
			}
			break
		}
		if k.does(ToAwait) {
			next, also := k.walk.Awaited()
			for _, i := range []int{next, also} {
				if i >= 0 && k.aheadFired[i] != notFired {
					n := *w
					what := x.ask(&n, c, i)
					out(&n, true, func() string { return w.name(c) + " " + what })
				}
			}
		}
		if k.ownFired != notFired {
			step(true, "is woken by the event of its own node", func(n *world, k *client, _ *session) {
				x.goOn(n, c, k.walk.OwnEvent(k.ownFired == goneEvent))
			})
		}
		if next := k.walk.Reconnected(uint64(w.conn(c))); next != k.walk {
			step(true, "is woken by the reconnect", func(n *world, _ *client, _ *session) { x.goOn(n, c, next) })
		}
	case holding:
		if ready && !sees.has(k.node) {
			step(true, "is told by the heartbeat that its node is gone", func(n *world, _ *client, _ *session) { n.finish(c) })
		}
		step(true, "releases", func(_ *world, k *client, _ *session) {
			k.phase, k.passes = deleting, x.turns(x.ruleOfClient(c), k.tried)
		})
	case deleting:
		x.deleteSteps(w, c, can, step)
	}
	x.readSteps(w, c, can, step)
	if w.giveUps > 0 && k.phase == walking {
		step(false, "gives up", func(n *world, k *client, _ *session) {
			n.giveUps--
			left := blank(k.left)
			left.phase, left.node, left.passes = deleting, k.node, x.wrong&passedByAll != 0
			*k = left
		})
	}
}

// begin starts the walk, as attempt.makeNode does.
func (x *explorer) begin(w *world, c uint8) {
	k := &w.c[c]
	k.phase, k.committed = walking, false
	x.goOn(w, c, Machine{session: int64(w.owner[k.node])})
}

func (x *explorer) create(w *world, c uint8) {
	i := w.n
	w.n++
	(w.alive() & ^w.foreign).each(func(j uint8) {
		if w.who[j] == c {
			w.breaks("I2: two nodes of one owner")
		}
	})
	w.owner[i], w.who[i], w.c[c].node = w.id(w.of[c]), c, i
	w.is[i] = kindOf(x.ruleOfClient(c))
	w.commit(change{kind: made, nodes: only(i)})
}

// deleteSteps is node.Deletion: a hold's node is deleted only if the next one, of the same
// session, exists.
func (x *explorer) deleteSteps(w *world, c uint8, can bool, step func(bool, string, func(*world, *client, *session))) {
	k, s := &w.c[c], w.session(c)
	ready := w.answers(c) && !s.ended
	next, passes := w.next(c)
	passes = passes && k.passes
	checks := passes && x.wrong&noCheck == 0 && (!k.unsure || x.wrong&noCheckAgain == 0)
	switch {
	case !ready:
	case !k.committed && checks && !w.alive().has(w.c[next].node):
		if !w.sees(c).has(w.c[next].node) {
			step(true, "finds the next one's node deleted", func(n *world, _ *client, _ *session) { n.c[next].told = x.after(false, 0, true) })
		}
	case !k.committed && w.alive().has(k.node):
		if can {
			step(true, "has its node deleted", func(n *world, k *client, _ *session) {
				k.committed = true
				if passes {
					k.next = n.c[next].node
					n.c[next].stood = n.alive().has(k.next)
				}
				n.commit(change{kind: deleted, nodes: only(k.node)})
			})
		}
	case w.sees(c).has(k.node):
	case !k.committed:
		step(true, "finds its node deleted", func(n *world, k *client, _ *session) { n.finish(c) })
	default:
		step(true, "has its delete's answer", func(n *world, k *client, _ *session) {
			if next, ok := n.next(c); ok && n.c[next].node == k.next {
				n.c[next].told = x.after(true, -1, false)
			}
			n.tellBehind(c, BlockerDeleted)
			n.finish(c)
		})
	}
	if passes && ready && x.wrong&passedEarly != 0 {
		step(false, "passes the turn before it is answered", func(n *world, _ *client, _ *session) { n.c[next].told = x.after(true, -1, false) })
	}
}

func (x *explorer) faultSteps(w *world, can bool, out emit) {
	fault := func(what string, f func(n *world)) {
		n := *w
		n.faults--
		f(&n)
		out(&n, false, func() string { return "FAULT " + what })
	}
	for i := range w.nSess {
		s := &w.s[i]
		if w.isOn(i) && x.kinds&disconnects != 0 {
			x.disconnects(w, i, out)
		}
		var his nodes
		w.alive().each(func(n uint8) {
			if w.owner[n] == w.id(i) && !w.foreign.has(n) {
				his |= only(n)
			}
		})
		if !s.ended && his != 0 && x.kinds&givenUps != 0 {
			fault(fmt.Sprintf("session %d is given up, and the servers have %s until it expires", i, his), func(n *world) {
				n.foreign |= his // as if another program had them, and deleted them at some time
				n.another(i)
			})
		}
		if can && !s.ended && his != 0 && x.kinds&expiries != 0 {
			fault(fmt.Sprintf("session %d expires, with %s", i, his), func(n *world) {
				n.s[i].ended = true
				n.commit(change{kind: deleted, nodes: his})
			})
		}
	}
	if !can {
		return
	}
	ours := w.alive() &^ w.foreign
	ours.each(func(a uint8) {
		if x.kinds&adminDeletes != 0 {
			fault("an administrator deletes "+only(a).String(), func(n *world) { n.commit(change{kind: deleted, nodes: only(a)}) })
		}
		if x.kinds&adminWrites != 0 {
			fault("an administrator writes to "+only(a).String(), func(n *world) { n.commit(change{kind: written, nodes: only(a)}) })
		}
		if x.kinds&adminDeletesTwo != 0 {
			(ours &^ (only(a)<<1 - 1)).each(func(b uint8) {
				fault("an administrator deletes "+(only(a)|only(b)).String()+" in one transaction", func(n *world) {
					n.commit(change{kind: deleted, nodes: only(a) | only(b)})
				})
			})
		}
	})
	foreign := func(n *world) {
		n.owner[n.n], n.who[n.n] = stranger, stranger
		n.foreign |= only(n.n)
		n.n++
		n.commit(change{kind: made, nodes: only(n.n - 1)})
	}
	if x.kinds&writers != 0 && w.n < maxNodes && w.writer == noNode {
		fault("another program queues for writing, with "+only(w.n).String(), func(n *world) {
			n.writer = n.n
			foreign(n)
		})
	}
	if w.writer != noNode && w.reader == noNode && w.alive().has(w.writer) && w.alive()&(only(w.writer)-1) == 0 && w.n < maxNodes {
		fault("the writer takes the read lock, with "+only(w.n).String(), func(n *world) {
			n.reader = n.n
			foreign(n)
		})
	}
	if x.kinds&foreigners != 0 && w.n < maxNodes {
		fault("another program queues, with "+only(w.n).String(), foreign)
	}
}

// disconnects loses a session's connection. A request that had been sent may have arrived, for each
// of its clients: then a read was answered, though its connection is not known, and a write that
// was not executed yet never will be.
func (x *explorer) disconnects(w *world, i uint8, out emit) {
	for arrived := range uint8(1) << w.nClients {
		n := *w
		n.faults--
		what, ok := "", true
		for c := range n.nClients {
			k := &n.c[c]
			if n.of[c] != i {
				ok = ok && arrived&(1<<c) == 0
				continue
			}
			sent := arrived&(1<<c) != 0
			switch {
			case k.phase == creating && (k.committed || sent):
				ok = ok && !(k.committed && sent)
				if x.fate(mux.NoAnswer, reply.Unknown, false) == reply.NodeUnclear {
					k.phase, k.committed = resolving, false
				} else {
					n.requeue(c)
				}
			case (k.phase == deleting || k.phase == leaving) && (k.committed || sent):
				ok = ok && !(k.committed && sent)
				k.committed, k.unsure, k.next = false, true, noNode
			case k.phase == holding && sent && x.mayRead(w, c) && !w.s[i].ended:
				k.tried, k.late = true, true
				what += "; " + w.name(c) + " had asked for the read lock, too"
			case k.reads() && sent:
				ok = ok && n.answers(c) && arrived&(1<<c-1) == 0 // one of them, that is enough
				if ok {
					what += "; " + w.name(c) + " just had an answer: " + x.read(&n, c, 0)
				}
			default:
				ok = ok && !sent
			}
		}
		if !ok {
			continue
		}
		s := &n.s[i]
		s.missed |= s.toldWritten & s.client
		s.open, s.restored = false, false
		n.lose(i)
		s.server, s.toldGone, s.toldWritten, s.last = 0, 0, 0, 0
		out(&n, false, func() string { return fmt.Sprintf("FAULT session %d loses its connection%s", i, what) })
		unanswered := n // clients that were about to read had sent the read already, without success
		for c := range n.nClients {
			if k := &unanswered.c[c]; n.of[c] == i && k.does(ToWatchOwn, ToWatchBlocker) {
				x.goOn(&unanswered, c, k.walk.Watched(Unknown, 0, 0))
			}
		}
		if unanswered != n {
			out(&unanswered, false, func() string {
				return fmt.Sprintf("FAULT session %d loses its connection, and what was asked is not answered%s", i, what)
			})
		}
	}
}

// done reports whether all clients have finished all of their acquisitions.
func (w *world) done() bool {
	for c := range w.nClients {
		if w.c[c].left > 0 {
			return false
		}
	}
	return true
}
