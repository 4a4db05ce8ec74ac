package zklock

import (
	"context"
	"errors"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/google/uuid"

	"github.com/zklock/zklock/internal/tap"
	"github.com/zklock/zklock/internal/wire"
)

// creation makes one protected ephemeral sequential node although answers get lost. It goes on until the outcome is known,
// even if nobody waits any more: only then can an unwanted node be deleted (I4).
type creation struct {
	wanted context.Context // once it has ended, no further create is sent

	r    *reaper
	seat *seat
	root string
	data []byte
	acl  []wire.ACL

	id     string                // of the try under way: one node an id, and names do not grow (R32)
	sent   bool                  // its request is on its way
	answer chan tap.Answer       // to it
	made   wire.PathStatResponse // the node that it made, if the answer says so; set before the answer is passed on

	node  string // absolute
	token int64  // czxid
}

// create begins a creation under root, and sends its first request if that is possible now. Requests sent later reach the
// servers after it. The caller must call finish. An error says that nothing was sent.
func (r *reaper) create(wanted context.Context, root string, data []byte, acl []zk.ACL) (*creation, error) {
	seat, err := r.nodes.reserve()
	if err != nil {
		return nil, err
	}
	c := &creation{wanted: wanted, r: r, seat: seat, root: root, data: data, acl: wireACL(acl), answer: make(chan tap.Answer, 1)}
	if err := c.send(); err != nil {
		seat.free()
		return nil, err
	}
	return c, nil
}

// send sends a create if the session is attached. An error says that it is too long.
func (c *creation) send() error {
	c.id, c.made = uuid.NewString(), wire.PathStatResponse{}
	body := wire.CreateRequest{Path: c.root + "/" + protectedPrefix + c.id + "-" + lockName, Data: c.data, ACL: c.acl, Flags: wire.FlagEphemeralSequential}
	req := tap.NewRequest(wire.OpCreate2, body, c.answered)
	if err := tooLong(req); err != nil {
		return err
	}
	c.sent = c.r.z.carrier.send(c.r.z, req)
	return nil
}

// answered notes the node before any later answer is read: a list may show the node as somebody's predecessor.
func (c *creation) answered(a tap.Answer) {
	var made wire.PathStatResponse
	if answerErr(a) == nil && a.Decode(&made) == nil && c.isOurs(made) {
		c.made = made
		c.seat.taken(made.Path)
	}
	a.Body = nil
	c.answer <- a
}

// isOurs says whether an answer is about the node that we asked for, and about one of this session.
func (c *creation) isOurs(made wire.PathStatResponse) bool {
	name, ok := strings.CutPrefix(made.Path, c.root+"/")
	id, protected := protectionID(name)
	return ok && protected && id == c.id && made.Stat.EphemeralOwner == c.r.z.id
}

// finish tries until the outcome is known: a node of this ZooKeeper session, or an error. After an error no node remains,
// except those that the reaper is still deleting. finish ends with the session at the latest.
func (c *creation) finish() error {
	defer c.seat.free()
	z, backoff := c.r.z, newBackoff()
	for try := 0; ; try++ {
		if try > 0 && c.wanted.Err() != nil { // the last try left nothing, and nobody waits
			return errCtxEnded
		}
		if try > 1 && !z.pause(backoff.next()) {
			return z.overErr()
		}
		for !c.sent {
			if _, err := z.waitAttached(c.wanted); err != nil { // nothing is on its way
				return err
			}
			if err := c.send(); err != nil {
				return err
			}
		}
		var a tap.Answer
		select {
		case a = <-c.answer:
		case <-z.over:
			return z.overErr()
		}
		c.sent = false
		switch fateOf(a.Fate, outcomeOf(answerErr(a)), z.isOver()) {
		case nodeMade:
			if c.made.Path == "" {
				break // the answer says something else, or is not readable: look for the node
			}
			c.node, c.token = c.made.Path, c.made.Stat.Czxid
			return nil

		case nothingMade:
			if a.Fate == tap.WasAnswered && !z.pause(200*time.Millisecond) { // the servers are busy
				return z.overErr()
			}
			continue

		case nodeDenied:
			return denied(answerErr(a), "create", "CREATE", c.root)

		case goneIfMade:
			return z.overErr()

		case nodeUnclear:
		}

		// From here on the node may or may not exist. Creating again would queue us behind ourselves (I2).
		if err := c.resolve(); c.node != "" || err != nil {
			return err
		}
	}
}

// resolve finds out what became of a create whose answer was lost. It sets node, or returns an error. It does neither if
// there is no node and there will be none.
//
// Sync first: the server we are on now may lag behind the one that took the create (F4). After it, a create that
// reached the leader before we moved is visible, and one that the old server has read and holds up will be refused,
// because the session has moved (F2). One that it has not read yet may still come (noteStray).
func (c *creation) resolve() error {
	r, z := c.r, c.r.z
	backoff := newBackoff()
	for {
		node, err := r.find(c.root, c.id)
		switch {
		case err == nil && node == "":
			r.noteStray(c.root, c.id)
			return nil
		case err == nil:
			stat, err := z.stat(node)
			switch {
			case err == nil && stat.EphemeralOwner == z.id:
				c.node, c.token = node, stat.Czxid
				c.seat.taken(node)
				return nil
			case err == nil:
				r.erase(node) // it is of a session that is dying: never grant on it (R30)
				return nil
			case errors.Is(err, zk.ErrNoNode):
				return nil
			case isRefusal(err): // the node gives no READ, for which servers from 3.9.3 on ask
				r.erase(node)
				return denied(err, "exists", "READ", node)
			}
		case isRefusal(err): // no READ: nobody can acquire here, and the node, if there is one, is in everybody's way (R74)
			r.noteStray(c.root, c.id)
			z.log.error("zklock: cannot find out whether a lock node was made; if it was, it blocks the lock until READ comes back or this ZooKeeper session ends", "path", c.root, "err", err)
			return err
		}
		if !z.pause(backoff.next()) {
			return z.overErr()
		}
	}
}

// find looks for our protection id under root, in up-to-date state. It returns "" if the id is not there. All who look at
// the same time share one sync and one list (R69).
func (r *reaper) find(root, id string) (string, error) {
	l := r.lists.list(listKind{root: root, synced: true})
	err := l.wait(context.Background(), r.z)
	switch {
	case errors.Is(err, zk.ErrNoNode):
		return "", nil
	case err != nil:
		return "", err
	}
	for _, n := range l.names {
		if got, ok := protectionID(n); ok && got == id {
			return root + "/" + n, nil
		}
	}
	return "", nil
}

// reaper makes and deletes the lock nodes of one ZooKeeper session, even if requests fail in between. ownNodes knows which
// nodes there are.
type reaper struct {
	z     *zkSession
	lists *lister
	nodes *ownNodes

	mu struct {
		sync.Mutex
		erasing map[string]*deletion // deletions under way, by node
		strays  map[string]string    // by the protection id of a create that was not found: its lock root
		looking bool                 // for strays (lookForStrays)
	}
}

func newReaper(z *zkSession, lists *lister, nodes *ownNodes) *reaper {
	r := &reaper{z: z, lists: lists, nodes: nodes}
	r.mu.erasing = make(map[string]*deletion)
	r.mu.strays = make(map[string]string)
	lists.seen = r.eraseStrays
	return r
}

// isErasing says whether any node is being deleted.
func (r *reaper) isErasing() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.mu.erasing) > 0
}

// deletion is the deletion of one node, the reaper's unit of work. It is tried until the node is gone or its session is, and
// outlives the call that asked for it.
type deletion struct {
	r    *reaper
	node string
	next func() *waiter // returns the waiter that gets the turn, nil if there is none

	unanswered bool // one of its requests has had no answer

	refused chan struct{} // closed when the servers refused (no DELETE): then refusal is set. The tries go on
	refusal error

	done chan struct{} // closed when the fields below are set
	ok   bool          // our own delete was answered with success, or surely did it
	err  error         // ErrNoNode: it was gone before our first try; otherwise why nothing can be done
}

// erase deletes a node of ours. If the node is being deleted already, it returns the deletion under way.
func (r *reaper) erase(node string) *deletion {
	return r.begin(node, func() *waiter { return nil })
}

// handOver deletes the node of a hold that is released. It passes the turn to a waiter of this ZooKeeper session that stands
// directly behind the node and sees the same queue.
func (r *reaper) handOver(node string, markers []string) *deletion {
	return r.begin(node, func() *waiter { return r.nodes.next(node, markers) })
}

func (r *reaper) begin(node string, next func() *waiter) *deletion {
	r.mu.Lock()
	x := r.mu.erasing[node]
	if x != nil {
		r.mu.Unlock()
		return x
	}
	x = &deletion{r: r, node: node, next: next, done: make(chan struct{}), refused: make(chan struct{})}
	r.mu.erasing[node] = x
	r.mu.Unlock()
	r.nodes.add(node)
	w := next()
	op, body := x.request(w)
	first := tap.NewRequest(op, body, func(a tap.Answer) { // mostly the only one
		if a.Fate == tap.NeverSent {
			x.goOn(false)
		} else if ended, wait := x.tried(w, a, r.z.errOf(a)); !ended {
			x.goOn(wait)
		}
	})
	if !r.z.carrier.send(r.z, first) {
		x.goOn(false)
	}
	return x
}

// goOn goes on with the tries on a goroutine of its own.
func (x *deletion) goOn(wait bool) {
	if !x.r.z.carrier.spawn(func() { x.run(wait) }) {
		x.end(x.r.z.carrier.closedErr())
	}
}

// run backs off between tries, and ends with the node or with the session it would die with (R25, R27).
func (x *deletion) run(wait bool) {
	backoff := newBackoff()
	for {
		if wait && !x.r.z.pause(backoff.next()) {
			x.end(x.r.z.overErr())
			return
		}
		w := x.next()
		op, body := x.request(w)
		a, err := x.r.z.ask(context.Background(), op, body)
		var ended bool
		if ended, wait = x.tried(w, a, err); ended {
			return
		}
	}
}

// request returns the request that deletes the node. With a waiter w, it deletes the node only if w's node is there. The check
// of w's node comes first, so that each answer tells of it.
func (x *deletion) request(w *waiter) (wire.Op, wire.Record) {
	if w == nil {
		return wire.OpDelete, wire.PathVersionRequest{Path: x.node, Version: -1}
	}
	return wire.OpMulti, wire.MultiRequest{Ops: []wire.MultiOp{
		{Op: wire.OpCheck, Path: w.node, Version: -1}, {Op: wire.OpDelete, Path: x.node, Version: -1},
	}}
}

// tried takes the answer to a request, which was to pass the turn to w, or to nobody if w is nil. It returns whether the
// deletion has ended, and otherwise whether to wait before the next try.
func (x *deletion) tried(w *waiter, a tap.Answer, err error) (ended, wait bool) {
	z := x.r.z
	if w != nil {
		failed := -1
		if err == nil {
			failed, err = multiResult(a, 2)
		}
		switch turnAfter(err == nil, failed, errors.Is(err, zk.ErrNoNode)) {
		case turnIsYours:
			w.tell(turnIsYours)
		case nodeIsGone:
			x.r.nodes.stepOut(w)
			w.tell(nodeIsGone)
			return false, false
		case turnUnknown:
			x.r.nodes.skip(w)
			return false, false
		}
	}
	switch {
	case err == nil:
		x.ok = true
		x.end(nil)
		return true, false
	case errors.Is(err, zk.ErrNoNode):
		// Within one live session, a delete that was not answered did this.
		if x.ok = x.unanswered; x.ok {
			err = nil
		}
		x.end(err)
		return true, false
	case z.isOver(), errors.Is(err, ErrClosed):
		x.end(err)
		return true, false
	case outcomeOf(err) == unknown:
		x.unanswered = true
	}
	if isRefusal(err) && x.refusal == nil {
		z.log.error("zklock: the servers refuse to delete a lock node, which goes on blocking the lock; does the ACL give DELETE on the lock root?", "node", x.node, "err", err)
		x.refusal = denied(err, "delete", "DELETE", parentOf(x.node))
		close(x.refused)
		x.r.nodes.stays(x.node)
	}
	return false, true
}

func (x *deletion) end(err error) {
	x.r.mu.Lock()
	delete(x.r.mu.erasing, x.node)
	x.r.mu.Unlock()
	x.r.nodes.gone(x.node)
	x.err = err
	close(x.done)
}

// noteStray remembers the id of a create whose node nobody has seen, and which may be there all the same: the list that
// looked for it was refused; or it showed nothing, but a server may still read the create from the socket of the old
// connection, where nothing says that the session has moved. The id is kept until a list of later has been searched for it
// (R74); but of very many, as under a root that refuses lists for long, not all are kept (I7).
func (r *reaper) noteStray(root, id string) {
	const most = 1000
	r.mu.Lock()
	if len(r.mu.strays) < most {
		r.mu.strays[id] = root
	}
	begin := !r.mu.looking
	r.mu.looking = true
	r.mu.Unlock()
	if begin {
		r.z.carrier.spawn(r.lookForStrays)
	}
}

// lookForStrays lists the roots of strays every third of a session timeout until there are none. A list that succeeds has
// shown what there is (eraseStrays), and the strays that were noted that long before it need no other.
func (r *reaper) lookForStrays() {
	for {
		r.mu.Lock()
		strays := maps.Clone(r.mu.strays)
		r.mu.looking = len(strays) > 0
		r.mu.Unlock()
		if len(strays) == 0 || !r.z.pause(r.z.timeout()/3) {
			return
		}
		listed := map[string]bool{}
		for id, root := range strays {
			if _, asked := listed[root]; !asked {
				err := r.lists.list(listKind{root: root, synced: true}).wait(context.Background(), r.z)
				listed[root] = err == nil || errors.Is(err, zk.ErrNoNode)
			}
			if listed[root] {
				r.mu.Lock()
				delete(r.mu.strays, id)
				r.mu.Unlock()
			}
		}
	}
}

// eraseStrays deletes the strays that a list shows.
func (r *reaper) eraseStrays(root string, names []string) {
	r.mu.Lock()
	var found []string
	if len(r.mu.strays) > 0 {
		for _, n := range names {
			if id, ok := protectionID(n); ok {
				if _, stray := r.mu.strays[id]; stray {
					delete(r.mu.strays, id)
					found = append(found, n)
				}
			}
		}
	}
	r.mu.Unlock()
	for _, n := range found {
		r.erase(root + "/" + n)
	}
}

// backoff doubles from 20 ms to 5 s.
type backoff struct{ d time.Duration }

func newBackoff() backoff { return backoff{20 * time.Millisecond} }

func (b *backoff) next() time.Duration {
	d := b.d
	b.d = min(2*b.d, 5*time.Second)
	return d
}

func wireACL(acl []zk.ACL) []wire.ACL {
	w := make([]wire.ACL, len(acl))
	for i, a := range acl {
		w[i] = wire.ACL{Perms: a.Perms, ID: wire.ID{Scheme: a.Scheme, ID: a.ID}}
	}
	return w
}
