package queue

// The model of TestExplorePermits: a world of clients that take and give permits.

import (
	"fmt"
	"slices"

	"github.com/zklock/zklock/internal/explore"
)

// The model: leases and the queue are two lists at one server. A client proceeds as permits does,
// and decides with PositionOfLeases and HaveCapacity.
//
//	idle ──▶ queued ──▶ making ──▶ waiting ──▶ granted ──▶ holding ──▶ idle  (first)
//	              lost:  resolving ──▶ dropping ──▶ idle
//	         queued ──▶ looking ──▶ making ──▶ trying ──▶ granted             (further back)
//	                                           trying ──▶ withdrawing ──▶ queued
//	idle ──▶ straight ──▶ made ──▶ trying ──▶ granted                         (not in the queue)
//	                               trying ──▶ withdrawing ──▶ idle
//
// A lost response leaves the transaction not executed, executed, or in flight; one that is in
// flight arrives at any time. It checks the queue node that it was sent for, if it was sent for
// one; otherwise its leases are found and deleted later. All leases of one node in the queue have
// that node's id. The servers may deny lists of the leases and deletions for a while
// (permits_denied_model_test.go). A waiter lists when it has to and when the leases or the limit
// have changed. A client further back checks the capacity once, and again when another client
// notifies it; the notification may get lost. Between a list and the next step anything can happen.
// A client of Curator makes its lease when it is first in the queue, and decides by the number of
// leases. How the first in the queue is found is explore_test.go's.
const (
	mostClients = 3
	mostQueued  = 6
	mostLeases  = 10
)

const (
	pIdle uint8 = iota
	pQueued
	pMaking
	pResolving
	pDropping // its queue node is deleted; it lists its leases for the last time
	pWaiting
	pGranted // a list has shown that there is room
	pHolding
	pEnded
	pLooking     // has listed the queue, and not yet the leases
	pStraight    // sends without a place in the queue
	pMade        // the leases are there, and it has not yet listed the queue
	pTrying      // has leases that it must not wait with
	pWithdrawing // them
)

type permitClient struct {
	phase   uint8
	try     uint8 // the id of the queue node and of its leases; without a queue node, of each try
	left    uint8 // acquisitions to go
	late    uint8 // a transaction of this try, from 1, is on its way
	checks  bool  // and checks the queue node
	awake   bool  // has to list
	partly  uint8 // with oneByOne: permits that it has
	ahead   uint8 // a bit for each client that it saw in the queue, ahead of itself
	first   uint8 // of those, the ones that have been there ever since
	further bool  // its leases were not made while it was first in the queue
	looks   bool  // may look for room
	queues  bool  // does not try straight away
	crashed bool

	orphans  uint16 // a bit for each try whose leases may exist, as the Session has noted
	deleting uint16 // a bit for each try whose leases the reaper is to delete
}

type permitWorld struct {
	c       [mostClients]permitClient
	queue   [mostQueued]uint8 // client*16 + try, from 16
	leases  [mostLeases]uint8 // the same
	limit   uint8
	most    uint8 // the largest limit that there was
	faults  uint8
	changes uint8 // of the limit
	giveUps uint8
	denied  uint8 // what the servers deny: denyList, denyLeave and denyDelete
	denials uint8 // how often they may begin to deny something
	broken  string
}

// permitMistakes are what the rules forbid.
type permitMistakes struct {
	byCount      bool // grants by the number of leases
	sendsAgain   bool // after a lost answer, under the same queue node
	dropsLast    bool // the queue node is deleted after the last look
	oneByOne     bool // takes its permits singly, and leaves the queue in between
	noCheck      bool // the transaction does not check the queue node
	limitUnheard bool // the limit is read with the list, and not watched
	makesEarly   bool // makes leases with its queue node, and not when it is first
	waitsFurther bool // a client that is not first waits with leases
	noSum        bool // a client that is not first does not count the clients ahead
	skipsQueue   bool // a client that does not queue does not count the clients in the queue
	orphanByID   bool // a list of any root with an orphan's id counts as if it showed the orphan
	dropsNote    bool // an orphan is not noted if the list that looks for it is denied
}

type permitExplorer struct {
	wants    []uint8 // of each client
	limit    uint8
	limits   []uint8 // that it changes to
	acquire  uint8
	faults   uint8
	giveUps  uint8
	denials  uint8
	further  bool // those further back look for room
	straight bool // all try straight away first
	curator  int  // the client that is Curator's, from 1
	mistakes permitMistakes
}

// leaseName has the name of a lease, by its id and its position.
var leaseName = func() (names [256][mostLeases]string) {
	for id := range names {
		for i := range names[id] {
			names[id][i] = fmt.Sprintf("%s-lease-%010d", protectedAs(uint8(id)), i)
		}
	}
	return names
}()

func (w *permitWorld) leaseNames(c, try uint8) (mine, all []string) {
	for i, l := range w.leases {
		if l == 0 {
			break
		}
		name := leaseName[l][i]
		all = append(all, name)
		if l == (c+1)*16+try {
			mine = append(mine, name)
		}
	}
	return mine, all
}

// protectedAs returns the beginning of the names of nodes: their protection id follows from client
// and try.
func protectedAs(id uint8) string { return fmt.Sprintf("_c_%08d-0000-4000-8000-000000000000", id) }

// own returns the client and its try, as nodes have it.
func (w *permitWorld) own(c uint8) uint8 { return (c+1)*16 + w.c[c].try }

func (w *permitWorld) isQueued(c uint8) bool { return slices.Contains(w.queue[:], w.own(c)) }

func (w *permitWorld) isFirst(c uint8) bool { return w.queue[0] == w.own(c) }

// unqueue deletes the client's node in the queue, unless that is denied.
func (w *permitWorld) unqueue(c uint8) {
	if w.denied&denyLeave == 0 {
		own := w.own(c)
		w.dequeue(c, func(id uint8) bool { return id == own })
	}
}

// dequeue deletes nodes of the client in the queue.
func (w *permitWorld) dequeue(c uint8, which func(id uint8) bool) {
	n := 0
	for _, q := range w.queue {
		if q/16 != c+1 || !which(q) {
			w.queue[n] = q
			n++
		}
	}
	clear(w.queue[n:])
	for i := range w.c {
		w.c[i].first &^= 1 << c
	}
}

func (w *permitWorld) enqueue(c uint8) {
	for i := range w.queue {
		if w.queue[i] == 0 {
			w.queue[i] = w.own(c)
			return
		}
	}
	w.broken = "too many queue nodes for the model"
}

// changed wakes the clients that watch.
func (w *permitWorld) changed() {
	for i := range w.c {
		w.c[i].awake = true
	}
}

func (w *permitWorld) make(c, try, k uint8) {
	for i := range w.leases {
		if k > 0 && w.leases[i] == 0 {
			w.leases[i] = (c+1)*16 + try
			k--
		}
	}
	if k > 0 {
		w.broken = "too many leases for the model"
	}
	w.changed()
}

// drop deletes leases of a client: of all tries if of is nil. If that is denied, the reaper has
// them.
func (w *permitWorld) drop(c uint8, of func(try uint8) bool) {
	if of != nil && w.denied&denyDelete != 0 {
		for try := range uint8(16) {
			if of(try) {
				w.c[c].deleting |= 1 << try
			}
		}
		return
	}
	n := 0
	for _, l := range w.leases {
		if l/16 == c+1 && (of == nil || of(l%16)) {
			continue
		}
		w.leases[n] = l
		n++
	}
	clear(w.leases[n:])
	w.changed()
}

// steps gives all worlds that can come next.
func (x *permitExplorer) steps(from *permitWorld, take func(next *permitWorld, must bool, what func() string)) {
	w := *from
	add := func(f func(n *permitWorld)) {
		n := w
		f(&n)
		x.check(&n)
		take(&n, true, nil)
	}
	for i := range x.wants {
		x.stepsOf(w, uint8(i), add)
		x.orphanSteps(w, uint8(i), add)
	}
	x.denialSteps(w, add)
	if int(w.changes) < len(x.limits) {
		add(func(n *permitWorld) {
			n.limit = x.limits[n.changes]
			n.most = max(n.most, n.limit)
			if n.changes++; !x.mistakes.limitUnheard {
				n.changed()
			}
		})
	}
}

// check looks for what must never be.
func (x *permitExplorer) check(w *permitWorld) {
	var held uint8
	for i, k := range x.wants {
		if mine, _ := w.leaseNames(uint8(i), w.c[i].try); w.c[i].phase == pHolding && len(mine) > 0 {
			held += k
		}
	}
	if held > w.most {
		w.broken = fmt.Sprintf("%d permits are held of %d", held, w.most)
	}
}

// overtakes reports whether i, which is granted now, takes a permit that a client ahead of it
// lacks. The promise is that this does not happen where each client wants one permit, and the limit
// stays.
func (x *permitExplorer) overtakes(w *permitWorld, i uint8) bool {
	taken := 0
	for c, k := range x.wants {
		if k != 1 || x.limits != nil || x.mistakes.waitsFurther {
			return false
		}
		me := w.c[c]
		own := w.own(uint8(c))
		isAhead := w.c[i].first&(1<<c) != 0
		if uint8(c) == i || isAhead || (me.phase == pHolding || me.phase == pGranted) && slices.Contains(w.leases[:], own) {
			taken++
		}
	}
	return taken > int(w.limit)
}

// without counts the clients that have no leases. It cannot recognize Curator's client.
func (x *permitExplorer) without(w *permitWorld, clients uint8) (n int) {
	for c := range x.wants {
		own := w.own(uint8(c))
		if clients&(1<<c) != 0 && (c+1 == x.curator || !slices.Contains(w.leases[:], own)) {
			n++
		}
	}
	return n
}

// sees notes the clients in the queue ahead of i: all, if i is not in the queue.
func (w *permitWorld) sees(i uint8) {
	var ahead uint8
	for _, q := range w.queue {
		if q == 0 || q == w.own(i) {
			break
		}
		ahead |= 1 << (q/16 - 1)
	}
	w.c[i].ahead, w.c[i].first = ahead, ahead
}

func (x *permitExplorer) stepsOf(w permitWorld, i uint8, add func(func(n *permitWorld))) {
	me, k := w.c[i], x.wants[i]
	mine, _ := w.leaseNames(i, me.try)
	this := func(try uint8) bool { return try == me.try }
	forget := func(n *permitWorld) { // the reaper deletes the remaining nodes of this try
		c := &n.c[i]
		c.phase, c.try, c.partly, c.ahead, c.first, c.further, c.looks = pIdle, me.try+1, 0, 0, 0, false, false
	}
	again := func(n *permitWorld) { // queue again: all of this try is deleted
		n.unqueue(i)
		n.drop(i, this)
		forget(n)
	}
	ended := func(n *permitWorld) {
		n.c[i].queues = false
		if n.c[i].left--; n.c[i].left == 0 {
			n.c[i].phase = pEnded
		}
	}
	end := func(n *permitWorld) {
		again(n)
		ended(n)
	}
	unknown := func(n *permitWorld) { // leases of this try may exist: it is an orphan
		if !x.mistakes.dropsNote {
			n.c[i].orphans |= 1 << me.try
		}
		forget(n)
		ended(n)
	}
	if int(i+1) == x.curator {
		x.stepsOfCurator(w, i, add, end)
		return
	}
	isChecked := me.late > 0 && me.checks && !x.mistakes.noCheck
	if isChecked && !slices.Contains(w.queue[:], (i+1)*16+me.late-1) { // its check fails
		add(func(n *permitWorld) { n.c[i].late = 0 })
		return
	}
	x.strikes(w, i, add)
	if w.giveUps > 0 && (me.phase == pQueued || me.phase == pWaiting || me.phase == pLooking || me.phase == pTrying) {
		add(func(n *permitWorld) { n.giveUps--; end(n) })
	}
	if w.denied&denyList != 0 {
		switch me.phase {
		case pLooking, pTrying:
			add(end)
			return
		case pWaiting:
			if me.awake {
				add(end)
			}
			return
		case pResolving, pDropping:
			add(unknown)
			return
		}
	}
	switch me.phase {
	case pIdle:
		if x.straight && !me.queues {
			add(func(n *permitWorld) { n.c[i].phase, n.c[i].queues = pStraight, true })
			return
		}
		add(func(n *permitWorld) { n.enqueue(i); n.c[i].phase, n.c[i].looks = pQueued, x.further })
	case pStraight:
		x.makesStraight(w, i, add)
	case pLooking:
		_, all := w.leaseNames(i, me.try)
		ahead := x.without(&w, me.ahead)
		if x.mistakes.noSum {
			ahead = 0
		}
		add(func(n *permitWorld) {
			n.c[i].phase = pQueued
			if HaveCapacity(len(all), ahead, int(k), int(w.limit)) {
				n.c[i].phase, n.c[i].further = pMaking, true
			}
		})
	case pMade:
		add(func(n *permitWorld) { n.sees(i); n.c[i].phase = pTrying })
	case pTrying:
		x.tries(w, i, add, again)
	case pWithdrawing:
		add(func(n *permitWorld) {
			n.drop(i, this)
			switch {
			case n.c[i].deleting&(1<<me.try) != 0: // that is denied
				forget(n)
				ended(n)
			case n.isQueued(i): // the next leases will have the same id
				n.c[i].phase, n.c[i].further = pQueued, false
			default:
				n.c[i].phase, n.c[i].try, n.c[i].further = pIdle, me.try+1, false
			}
		})
	case pQueued:
		if me.looks && w.isQueued(i) && !w.isFirst(i) {
			add(func(n *permitWorld) { n.sees(i); n.c[i].phase, n.c[i].looks = pLooking, false })
		}
		switch {
		case !w.isQueued(i):
			add(again)
		case x.mistakes.makesEarly && len(mine) == 0:
			add(func(n *permitWorld) { n.make(i, me.try, k) })
		case x.mistakes.makesEarly && w.isFirst(i):
			add(func(n *permitWorld) { n.c[i].phase, n.c[i].awake = pWaiting, true })
		case w.isFirst(i):
			add(func(n *permitWorld) { n.c[i].phase = pMaking })
		}
	case pMaking:
		x.makes(w, i, add, again)
	case pResolving:
		switch {
		case len(mine) > 0:
			add(func(n *permitWorld) { n.c[i].made(x) })
		case x.mistakes.sendsAgain:
			add(func(n *permitWorld) { n.c[i].phase, n.c[i].try = pMaking, me.try+1 })
		case x.mistakes.dropsLast:
			add(func(n *permitWorld) { n.c[i].phase = pDropping })
		case w.denied&denyLeave != 0 && w.isQueued(i): // so the transaction may come yet
			add(unknown)
		default:
			add(func(n *permitWorld) { n.unqueue(i); n.c[i].phase = pDropping })
		}
	case pDropping:
		if x.mistakes.dropsLast {
			add(func(n *permitWorld) { n.unqueue(i); n.c[i].phase, n.c[i].try = pIdle, me.try+1 })
			return
		}
		add(again)
	case pWaiting:
		x.waits(w, i, add, again)
	case pGranted:
		if me.partly++; x.mistakes.oneByOne && me.partly < k {
			add(func(n *permitWorld) { n.unqueue(i); n.c[i].phase, n.c[i].partly = pIdle, me.partly })
			return
		}
		hold := func(n *permitWorld) {
			if n.c[i].phase = pHolding; x.overtakes(n, i) {
				n.broken = "overtaken"
			}
		}
		add(hold)
		if x.further { // it notifies the clients further back
			add(func(n *permitWorld) {
				for c := range n.c {
					n.c[c].looks = n.c[c].looks || n.c[c].phase == pQueued
				}
				hold(n)
			})
		}
	case pHolding:
		if w.isQueued(i) {
			add(func(n *permitWorld) { n.unqueue(i) })
		}
		add(end)
	}
}

// strikes applies a fault to a client: a transaction arrives late, it crashes, another client
// deletes its queue node.
func (x *permitExplorer) strikes(w permitWorld, i uint8, add func(func(n *permitWorld))) {
	me, k := w.c[i], x.wants[i]
	if me.late > 0 {
		add(func(n *permitWorld) { n.c[i].late = 0; n.make(i, me.late-1, k) })
		if !me.checks {
			add(func(n *permitWorld) { n.c[i].late = 0 }) // it never comes
		}
	}
	if w.faults > 0 && !me.crashed && me.phase != pEnded {
		add(func(n *permitWorld) { // it crashes
			n.faults--
			n.crash(i)
		})
		if w.isQueued(i) && w.denied&denyLeave == 0 {
			add(func(n *permitWorld) { n.faults--; n.unqueue(i) }) // another client deletes its queue node
		}
	}
}

// crash ends the client and its session.
func (w *permitWorld) crash(i uint8) {
	w.dequeue(i, func(uint8) bool { return true })
	w.drop(i, nil)
	w.c[i] = permitClient{phase: pEnded, crashed: true}
}

// makes sends the transaction.
func (x *permitExplorer) makes(w permitWorld, i uint8, add func(func(n *permitWorld)), again func(n *permitWorld)) {
	me, k := w.c[i], x.wants[i]
	if x.mistakes.oneByOne {
		k = 1
	}
	if !w.isQueued(i) && !x.mistakes.noCheck {
		add(again)
		return
	}
	add(func(n *permitWorld) { n.make(i, me.try, k); n.c[i].made(x) })
	if w.faults > 0 {
		add(func(n *permitWorld) { n.faults--; n.make(i, me.try, k); n.c[i].phase = pResolving })
		if me.late == 0 {
			add(func(n *permitWorld) {
				n.faults--
				n.c[i].phase, n.c[i].late, n.c[i].checks = pResolving, me.try+1, true
			})
		}
	}
}

// made continues once the leases exist.
func (c *permitClient) made(x *permitExplorer) {
	if c.phase, c.awake = pWaiting, true; c.further && !x.mistakes.waitsFurther {
		c.phase = pTrying
	}
}

// makesStraight sends the transaction that checks nothing.
func (x *permitExplorer) makesStraight(w permitWorld, i uint8, add func(func(n *permitWorld))) {
	me, k := w.c[i], x.wants[i]
	add(func(n *permitWorld) { n.make(i, me.try, k); n.c[i].phase = pMade })
	if w.faults > 0 { // lost: done and found, done and not found, or on its way
		noted := func(n *permitWorld) {
			n.faults--
			c := &n.c[i]
			c.phase, c.try, c.ahead = pIdle, me.try+1, 0
			if !x.mistakes.dropsNote {
				c.orphans |= 1 << me.try
			}
		}
		switch {
		case w.denied&denyList != 0:
			add(func(n *permitWorld) { n.make(i, me.try, k); noted(n) })
		default:
			add(func(n *permitWorld) { n.faults--; n.make(i, me.try, k); n.c[i].phase = pMade })
		}
		if me.late == 0 {
			add(func(n *permitWorld) { noted(n); n.c[i].late, n.c[i].checks = me.try+1, false })
		}
	}
}

// tries lists once: it is granted, or withdraws.
func (x *permitExplorer) tries(w permitWorld, i uint8, add func(func(n *permitWorld)), again func(n *permitWorld)) {
	me, k := w.c[i], x.wants[i]
	mine, all := w.leaseNames(i, me.try)
	isGranted := PositionOfLeases(mine, all, int(w.limit)).Kind == Front
	if !me.further && !x.mistakes.skipsQueue {
		isGranted = isGranted && HaveCapacity(len(all)-int(k), x.without(&w, me.ahead), int(k), int(w.limit))
	}
	switch {
	case len(mine) < int(k):
		add(again)
	case isGranted:
		add(func(n *permitWorld) { n.c[i].phase = pGranted })
	default:
		add(func(n *permitWorld) { n.c[i].phase = pWithdrawing })
	}
}

// stepsOfCurator: one lease, made by the first in the queue.
func (x *permitExplorer) stepsOfCurator(w permitWorld, i uint8, add func(func(n *permitWorld)), end func(n *permitWorld)) {
	me := w.c[i]
	if w.faults > 0 && me.phase != pEnded {
		add(func(n *permitWorld) { // it crashes
			n.faults--
			n.crash(i)
		})
	}
	if w.giveUps > 0 && (me.phase == pQueued || me.phase == pWaiting) {
		add(func(n *permitWorld) { n.giveUps--; end(n) })
	}
	switch me.phase {
	case pIdle:
		add(func(n *permitWorld) { n.enqueue(i); n.c[i].phase = pQueued })
	case pQueued:
		if w.isFirst(i) {
			add(func(n *permitWorld) { n.make(i, me.try, 1); n.c[i].phase, n.c[i].awake = pWaiting, true })
		}
	case pWaiting:
		if !me.awake {
			return
		}
		_, all := w.leaseNames(i, me.try)
		add(func(n *permitWorld) {
			if n.c[i].awake = false; len(all) <= int(w.limit) {
				n.c[i].phase = pHolding
			}
		})
	case pHolding:
		if w.isQueued(i) {
			add(func(n *permitWorld) { n.unqueue(i) })
			return
		}
		add(end)
	}
}

// waits lists, if it has reason to.
func (x *permitExplorer) waits(w permitWorld, i uint8, add func(func(n *permitWorld)), again func(n *permitWorld)) {
	me, k := w.c[i], x.wants[i]
	if !me.awake {
		return
	}
	mine, all := w.leaseNames(i, me.try)
	if len(mine) < int(k) && !x.mistakes.oneByOne {
		add(again)
		return
	}
	p := PositionOfLeases(mine, all, int(w.limit))
	if x.mistakes.byCount && p.Kind == Front && len(all) > int(w.limit) {
		p.Kind = Behind
	}
	switch {
	case p.Kind == Front:
		add(func(n *permitWorld) { n.c[i].phase = pGranted })
	case p.Kind != Behind:
		add(again)
	default:
		add(func(n *permitWorld) { n.c[i].awake = false })
	}
}

// explore visits all worlds.
func (x *permitExplorer) explore() explore.Found {
	w := permitWorld{limit: x.limit, most: x.limit, faults: x.faults, giveUps: x.giveUps, denials: x.denials}
	for i := range w.c {
		w.c[i].phase = pEnded
		if i < len(x.wants) {
			w.c[i] = permitClient{left: max(x.acquire, 1)}
		}
	}
	return explore.Model[permitWorld]{First: w, Steps: x.steps, Broken: func(w *permitWorld) string { return w.broken }, Stuck: x.atTheEnd}.Run()
}

// atTheEnd checks a world without a next step.
func (x *permitExplorer) atTheEnd(w *permitWorld) string {
	if x.isPaused(w) {
		return ""
	}
	for i := range w.c {
		if w.c[i].phase != pEnded {
			return "a client waits for ever"
		}
	}
	if w.leases[0] != 0 {
		return "a lease is left"
	}
	if w.queue[0] != 0 {
		return "a queue node is left"
	}
	return ""
}

// isPaused reports whether the first of all leases belongs to a client that waits for a larger
// limit, and all other leases are behind it.
func (x *permitExplorer) isPaused(w *permitWorld) bool {
	if w.leases[0] == 0 {
		return false
	}
	first := w.leases[0]/16 - 1
	if w.c[first].phase != pWaiting || x.wants[first] <= w.limit {
		return false
	}
	for i := range w.c {
		if p := w.c[i].phase; p != pEnded && p != pWaiting && p != pQueued {
			return false
		}
	}
	return true
}
