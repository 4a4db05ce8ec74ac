package zklock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/google/uuid"

	"github.com/zklock/zklock/internal/tap"
	"github.com/zklock/zklock/internal/wire"
)

// creation makes one protected ephemeral sequential node although answers get lost. It goes on until the outcome is
// known, whoever waits: only then can a node that nobody wants be deleted (I4).
type creation struct {
	wanted context.Context // once it has ended, no further node is tried for

	r    *reaper
	root string
	sent chan struct{} // closed when the first create was handed to the connection, or when it is done
	done chan struct{} // closed when the fields below are set

	node  string // absolute
	token int64  // czxid
	err   error  // nothing is left behind, but for what the reaper is after
}

// create starts a creation under root. The caller waits for done, which comes at the latest with the end of the era.
func (r *reaper) create(wanted context.Context, root string, data []byte, acl []zk.ACL) *creation {
	c := &creation{wanted: wanted, r: r, root: root, sent: make(chan struct{}), done: make(chan struct{})}
	if !r.z.carrier.spawn(func() { c.run(data, acl) }) {
		c.err = r.z.carrier.closedErr()
		close(c.sent)
		close(c.done)
	}
	return c
}

func (c *creation) run(data []byte, acl []zk.ACL) {
	if err := c.r.reserveNode(); err != nil {
		c.err = err
	} else {
		c.create(data, acl)
		c.r.unreserveNode(c.node)
	}
	c.noteSent()
	close(c.done)
}

func (c *creation) noteSent() {
	select {
	case <-c.sent:
	default:
		close(c.sent)
	}
}

// create tries until the outcome is known: a node of this ZooKeeper session, or none.
func (c *creation) create(data []byte, acl []zk.ACL) {
	r, z := c.r, c.r.z
	backoff := newBackoff()
	for try := 0; ; try++ {
		if try > 0 && c.wanted.Err() != nil { // the last try left nothing, and nobody waits
			c.err = context.Cause(c.wanted)
			return
		}
		if try > 1 && !z.pause(backoff.next()) {
			c.err = z.overErr()
			return
		}
		// A fresh id for each try: one node an id, and names do not grow (R32).
		id := uuid.NewString()
		a, err := c.tryCreate(id, data, acl)
		if err != nil { // the era is over, or the request too long
			c.err = err
			return
		}
		switch fateOf(a.Fate, outcomeOf(answerErr(a)), z.isOver()) {
		case nodeMade:
			var made wire.PathResponse
			if err := a.Decode(&made); err != nil {
				break // look what it was
			}
			node := made.Path
			if err := checkNodeName(c.root, node, id); err != nil {
				c.err = err
				return
			}
			token, err := r.tokenOf(node, a.Zxid)
			switch {
			case err == nil:
				c.node, c.token = node, token
				return
			case errors.Is(err, zk.ErrNoNode):
				continue // deleted by somebody else in between: queue again
			case isRefusal(err):
				r.erase(node)
				c.err = err
				return
			}
			// The connection was lost before the token was read: look for the node.

		case nothingMade:
			if a.Fate == tap.WasAnswered && !z.pause(200*time.Millisecond) { // the servers are busy
				c.err = z.overErr()
				return
			}
			continue

		case nodeDenied:
			c.err = denied(answerErr(a), "create", "CREATE", c.root)
			return

		case goneIfMade:
			c.err = z.overErr()
			return

		case nodeUnclear:
		}

		// From here on the node may or may not exist. Creating again would queue us behind ourselves (I2).
		c.resolve(id)
		if c.node != "" || c.err != nil {
			return
		}
	}
}

// tryCreate is one create, not bound to any caller. It marks the creation as sent when it is handed to the connection: what
// is sent after that comes after it. An error says that nothing was sent, or that the era is over.
func (c *creation) tryCreate(id string, data []byte, acl []zk.ACL) (tap.Answer, error) {
	z := c.r.z
	ch := make(chan tap.Answer, 1)
	body := wire.CreateRequest{Path: c.root + "/" + protectedPrefix + id + "-" + lockName, Data: data, ACL: wireACL(acl), Flags: wire.FlagEphemeralSequential}
	req := tap.NewRequest(wire.OpCreate, body, func(a tap.Answer) { ch <- a })
	if err := tooLong(req); err != nil {
		return tap.Answer{}, err
	}
	for {
		if _, err := z.waitAttached(context.Background()); err != nil {
			return tap.Answer{}, err
		}
		if z.carrier.send(z, req) {
			break
		}
	}
	c.noteSent()
	select {
	case a := <-ch:
		return a, nil
	case <-z.over:
		return tap.Answer{}, z.overErr()
	}
}

// resolve finds out what became of a create whose answer was lost: it sets node, or err, or neither if there is no
// node and there will be none.
//
// Sync first: the server we are on now may lag behind the one that took the create (F4). After it, a create that
// reached the leader before we moved is visible, and one that is still held up at the old server will be refused,
// because the session has moved (F2).
func (c *creation) resolve(id string) {
	r, z := c.r, c.r.z
	backoff := newBackoff()
	for {
		node, err := r.find(c.root, id)
		switch {
		case err == nil && node == "":
			r.noteStray(c.root, id)
			return
		case err == nil:
			stat, err := z.stat(node)
			switch {
			case err == nil && stat.EphemeralOwner == z.id:
				c.node, c.token = node, stat.Czxid
				return
			case err == nil:
				r.erase(node) // of a session that is dying: never granted on it (R30)
				return
			case errors.Is(err, zk.ErrNoNode):
				return
			case isRefusal(err): // the node gives no READ, for which servers from 3.9.3 on ask
				r.erase(node)
				c.err = denied(err, "exists", "READ", node)
				return
			}
		case isRefusal(err): // no READ, and no other way to see it: the node, if there is one, goes with its session
			z.log.error("zklock: it cannot be found out whether a lock node was made; if it was, it blocks the lock until this ZooKeeper session ends", "path", c.root, "err", err)
			c.err = err
			return
		}
		if !z.pause(backoff.next()) {
			c.err = z.overErr()
			return
		}
	}
}

// find looks for our protection id under root, in up-to-date state. "" if it is not there. Those who look at the same time
// share one sync and one list (R69).
func (r *reaper) find(root, id string) (string, error) {
	l, err := r.lists.list(context.Background(), listKind{root: root, synced: true})
	if errors.Is(err, zk.ErrNoAuth) && r.z.ownListsFailed.Load() < mostOwnListsFailed { // without READ, we see what is ours all the same
		if own, ownErr := r.lists.list(context.Background(), listKind{root: root, synced: true, own: true}); !isRefusal(ownErr) {
			l, err = own, ownErr
		}
	}
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

// tokenOf is the czxid of a node we just created: the zxid in the header of the create's reply. That this server says
// so is verified with the first node of a ZooKeeper session.
func (r *reaper) tokenOf(node string, zxid int64) (int64, error) {
	r.mu.Lock()
	mode := r.mu.tokenMode
	r.mu.Unlock()
	if mode == tokenFromHeader && zxid > 0 {
		return zxid, nil
	}
	stat, err := r.z.stat(node)
	if err != nil {
		return 0, err
	}
	if mode == tokenUnverified {
		mode = tokenFromHeader
		if stat.Czxid != zxid {
			mode = tokenFromStat
		}
		r.mu.Lock()
		r.mu.tokenMode = mode
		r.mu.Unlock()
	}
	return stat.Czxid, nil
}

// checkNodeName refuses a created path that is not what we asked for.
func checkNodeName(root, node, id string) error {
	name, ok := strings.CutPrefix(node, root+"/")
	got, isOurs := protectionID(name)
	if !ok || !isOurs || got != id {
		return fmt.Errorf("the server answered a create below %s with the path %q", root, node)
	}
	return nil
}

// reaper makes and deletes the lock nodes of one ZooKeeper session, whatever failed in between, and knows which there are.
type reaper struct {
	z        *zkSession
	lists    *lister
	maxNodes int

	mu struct {
		sync.Mutex
		nodes     map[string]struct{} // lock nodes made and not known to be gone
		reserved  int                 // lock nodes being made
		erasing   map[string]*erasure // deletions under way, by node
		strays    map[string]struct{} // protection ids of creates that were not found; a list may still show them
		tokenMode tokenMode
	}
}

func newReaper(z *zkSession, lists *lister, maxNodes int) *reaper {
	r := &reaper{z: z, lists: lists, maxNodes: maxNodes}
	r.mu.nodes = make(map[string]struct{})
	r.mu.erasing = make(map[string]*erasure)
	r.mu.strays = make(map[string]struct{})
	lists.seen = r.eraseStrays
	return r
}

// busy says whether anybody waits for a node to be made or deleted.
func (r *reaper) busy() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mu.reserved+len(r.mu.erasing) > 0
}

// underWay returns our own deletion of the node, nil if there is none.
func (r *reaper) underWay(node string) *erasure {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mu.erasing[node]
}

// reserveNode counts a lock node that is about to be made against the cap.
func (r *reaper) reserveNode() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := len(r.mu.nodes) + r.mu.reserved; n >= r.maxNodes {
		return fmt.Errorf("%w: %d; use more Sessions, or raise the cap with WithMaxLockNodes and an eye on the servers", ErrTooManyWaiters, n)
	}
	r.mu.reserved++
	return nil
}

// unreserveNode ends a reservation: the node was made, or there is none.
func (r *reaper) unreserveNode(node string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.reserved--
	if node != "" {
		r.mu.nodes[node] = struct{}{}
	}
}

func (r *reaper) noteNode(node string, there bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if there {
		r.mu.nodes[node] = struct{}{}
	} else {
		delete(r.mu.nodes, node)
	}
}

// tokenMode says where the czxid of a created node is read.
type tokenMode int

const (
	tokenUnverified tokenMode = iota // nothing created yet: compare the two
	tokenFromHeader                  // the zxid in the header of the create's reply
	tokenFromStat                    // the node's Stat, for servers whose header says something else
)

// erasure is the deletion of one node, tried until it is gone or its session is: the reaper's unit of work. It
// outlives whoever asked for it.
type erasure struct {
	refused chan struct{} // closed when the servers refused (no DELETE): then refusal is set, and it is tried on
	refusal error

	done chan struct{} // closed when the fields below are set
	ok   bool          // our own delete was answered with success, or surely did it
	err  error         // ErrNoNode: it was gone before our first try; otherwise why nothing can be done
}

// fate is what is known of the deletion now; x may be nil, for a node that we do not delete.
func (x *erasure) fate() deleteFate {
	if x == nil {
		return notOurs
	}
	select {
	case <-x.done:
	default:
		return unanswered
	}
	if x.ok {
		return succeeded
	}
	return failed
}

// erase deletes a node of ours. Asked twice for one node, it returns the erasure under way.
func (r *reaper) erase(node string) *erasure {
	r.mu.Lock()
	x := r.mu.erasing[node]
	if x == nil {
		x = &erasure{done: make(chan struct{}), refused: make(chan struct{})}
		r.mu.erasing[node] = x
		r.mu.nodes[node] = struct{}{}
	} else {
		r.mu.Unlock()
		return x
	}
	r.mu.Unlock()
	finish := func() {
		r.mu.Lock()
		delete(r.mu.erasing, node)
		delete(r.mu.nodes, node)
		r.mu.Unlock()
		close(x.done)
	}
	if !r.z.carrier.spawn(func() {
		r.runErasure(x, node)
		finish()
	}) {
		x.err = r.z.carrier.closedErr()
		finish()
	}
	return x
}

// runErasure backs off between tries, and ends with the node or with the session it would die with (R25, R27).
func (r *reaper) runErasure(x *erasure, node string) {
	backoff := newBackoff()
	unanswered := false
	for {
		_, err := r.z.ask(context.Background(), wire.OpDelete, wire.PathVersionRequest{Path: node, Version: -1})
		switch {
		case err == nil:
			x.ok = true
			return
		case errors.Is(err, zk.ErrNoNode):
			// Within one live session, a delete that was not answered did this.
			x.ok = unanswered
			if !x.ok {
				x.err = err
			}
			return
		case r.z.isOver(), errors.Is(err, ErrClosed):
			x.err = err
			return
		case outcomeOf(err) == unknown:
			unanswered = true
		}
		if isRefusal(err) && x.refusal == nil {
			r.z.log.error("zklock: the servers refuse to delete a lock node, which goes on blocking the lock; does the ACL give DELETE on the lock root?", "node", node, "err", err)
			x.refusal = denied(err, "delete", "DELETE", parentOf(node))
			close(x.refused)
		}
		if !r.z.pause(backoff.next()) {
			x.err = r.z.overErr()
			return
		}
	}
}

// eraseByID deletes the node of a create that was looked for and not found, if it is there now.
func (r *reaper) eraseByID(root, id string) {
	r.z.carrier.spawn(func() {
		backoff := newBackoff()
		for {
			node, err := r.find(root, id)
			if err == nil || isRefusal(err) { // nobody can find it
				if node != "" {
					r.erase(node)
				}
				r.forgetStray(id)
				return
			}
			if !r.z.pause(backoff.next()) {
				return
			}
		}
	})
}

// noteStray remembers the id of a create that was looked for and not found: a server may take it yet from the socket
// of the old connection, where nothing says that the session has moved. Every list is searched for it, and it is
// looked for once more after a while.
func (r *reaper) noteStray(root, id string) {
	r.mu.Lock()
	r.mu.strays[id] = struct{}{}
	r.mu.Unlock()
	r.z.carrier.spawn(func() {
		if r.z.pause(r.z.timeout() / 3) {
			r.eraseByID(root, id)
		}
	})
}

func (r *reaper) forgetStray(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.mu.strays, id)
}

// eraseStrays deletes what a list shows of creates that were given up.
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

func newBackoff() *backoff { return &backoff{20 * time.Millisecond} }

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
