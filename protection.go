package zklock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/google/uuid"

	"github.com/zklock/zklock/internal/wire"
)

// creation makes one protected ephemeral sequential node although answers get lost. It goes on until the outcome is
// known, whoever waits: only then can a node that nobody wants be deleted (I4).
type creation struct {
	wanted context.Context // once it has ended, no further node is tried for

	e    *era
	root string
	sent chan struct{} // closed when the first create was handed to the connection, or when it is done
	done chan struct{} // closed when the fields below are set

	node  string // absolute
	token int64  // czxid
	err   error  // nothing is left behind, but for what the reaper is after
}

// create starts a creation under root. The caller waits for done, which comes at the latest with the end of the era.
func (e *era) create(wanted context.Context, root string, data []byte, acl []zk.ACL) *creation {
	c := &creation{wanted: wanted, e: e, root: root, sent: make(chan struct{}), done: make(chan struct{})}
	if !e.s.spawn(func() { c.run(data, acl) }) {
		c.err = e.s.closedErr()
		close(c.sent)
		close(c.done)
	}
	return c
}

func (c *creation) run(data []byte, acl []zk.ACL) {
	if err := c.e.reserveNode(); err != nil {
		c.err = err
	} else {
		c.create(data, acl)
		c.e.unreserveNode(c.node)
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
	e := c.e
	backoff := newBackoff()
	for try := 0; ; try++ {
		if try > 0 && c.wanted.Err() != nil { // the last try left nothing, and nobody waits
			c.err = context.Cause(c.wanted)
			return
		}
		if try > 1 && !e.pause(backoff.next()) {
			c.err = e.overErr()
			return
		}
		// A fresh id for each try: one node an id, and names do not grow (R32).
		id := uuid.NewString()
		a, err := c.tryCreate(id, data, acl)
		if err != nil { // the era is over, or the request too long
			c.err = err
			return
		}
		switch fateOf(a.fate, outcomeOf(a.err()), e.isOver()) {
		case nodeMade:
			var made wire.PathResponse
			if err := a.decode(&made); err != nil {
				break // look what it was
			}
			node := made.Path
			if err := checkNodeName(c.root, node, id); err != nil {
				c.err = err
				return
			}
			token, err := e.tokenOf(node, a.zxid)
			switch {
			case err == nil:
				c.node, c.token = node, token
				return
			case errors.Is(err, zk.ErrNoNode):
				continue // deleted by somebody else in between: queue again
			case refused(err):
				e.erase(node)
				c.err = err
				return
			}
			// The connection was lost before the token was read: look for the node.

		case nothingMade:
			if a.fate == wasAnswered && !e.pause(200*time.Millisecond) { // the servers are busy
				c.err = e.overErr()
				return
			}
			continue

		case nodeDenied:
			c.err = denied(a.err(), "create", "CREATE", c.root)
			return

		case goneIfMade:
			c.err = e.overErr()
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
func (c *creation) tryCreate(id string, data []byte, acl []zk.ACL) (answer, error) {
	e := c.e
	ch := make(chan answer, 1)
	body := wire.CreateRequest{Path: c.root + "/" + protectedPrefix + id + "-" + lockName, Data: data, ACL: wireACL(acl), Flags: wire.FlagEphemeralSequential}
	r := newRequest(wire.OpCreate, body, func(a answer) { ch <- a })
	if err := r.tooLong(); err != nil {
		return answer{}, err
	}
	for {
		if _, err := e.waitAttached(context.Background()); err != nil {
			return answer{}, err
		}
		if e.s.send(e, r) {
			break
		}
	}
	c.noteSent()
	select {
	case a := <-ch:
		return a, nil
	case <-e.over:
		return answer{}, e.overErr()
	}
}

// resolve finds out what became of a create whose answer was lost: it sets node, or err, or neither if there is no
// node and there will be none.
//
// Sync first: the server we are on now may lag behind the one that took the create (F4). After it, a create that
// reached the leader before we moved is visible, and one that is still held up at the old server will be refused,
// because the session has moved (F2).
func (c *creation) resolve(id string) {
	e := c.e
	backoff := newBackoff()
	for {
		node, err := e.find(c.root, id)
		switch {
		case err == nil && node == "":
			e.noteStray(c.root, id)
			return
		case err == nil:
			stat, err := e.stat(node)
			switch {
			case err == nil && stat.EphemeralOwner == e.id:
				c.node, c.token = node, stat.Czxid
				return
			case err == nil:
				e.erase(node) // of a session that is dying: never granted on it (R30)
				return
			case errors.Is(err, zk.ErrNoNode):
				return
			}
		case refused(err):
			// The root cannot be read (no READ, say): what we cannot find we must not leave either.
			e.eraseByID(c.root, id)
			c.err = err
			return
		}
		if !e.pause(backoff.next()) {
			c.err = e.overErr()
			return
		}
	}
}

// find looks for our protection id under root, in up-to-date state. "" if it is not there. Those who look at the same time
// share one sync and one list (R69).
func (e *era) find(root, id string) (string, error) {
	l, err := e.list(context.Background(), listKind{root, true})
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

func (e *era) stat(node string) (*wire.Stat, error) {
	var stat wire.Stat
	_, err := e.read(context.Background(), wire.OpExists, wire.PathWatchRequest{Path: node}, &stat)
	return &stat, err
}

// tokenOf is the czxid of a node we just created: the zxid in the header of the create's reply. That this server says
// so is verified with the first node of a ZooKeeper session.
func (e *era) tokenOf(node string, zxid int64) (int64, error) {
	e.mu.Lock()
	mode := e.mu.tokenMode
	e.mu.Unlock()
	if mode == tokenFromHeader && zxid > 0 {
		return zxid, nil
	}
	stat, err := e.stat(node)
	if err != nil {
		return 0, err
	}
	if mode == tokenUnverified {
		mode = tokenFromHeader
		if stat.Czxid != zxid {
			mode = tokenFromStat
		}
		e.mu.Lock()
		e.mu.tokenMode = mode
		e.mu.Unlock()
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
func (e *era) erase(node string) *erasure {
	e.mu.Lock()
	x := e.mu.erasing[node]
	if x == nil {
		x = &erasure{done: make(chan struct{}), refused: make(chan struct{})}
		e.mu.erasing[node] = x
		e.mu.nodes[node] = struct{}{}
	} else {
		e.mu.Unlock()
		return x
	}
	e.mu.Unlock()
	finish := func() {
		e.mu.Lock()
		delete(e.mu.erasing, node)
		delete(e.mu.nodes, node)
		e.mu.Unlock()
		close(x.done)
	}
	if !e.s.spawn(func() {
		e.runErasure(x, node)
		finish()
	}) {
		x.err = e.s.closedErr()
		finish()
	}
	return x
}

// runErasure backs off between tries, and ends with the node or with the session it would die with (R25, R27).
func (e *era) runErasure(x *erasure, node string) {
	backoff := newBackoff()
	unanswered := false
	for {
		_, err := e.ask(context.Background(), wire.OpDelete, wire.PathVersionRequest{Path: node, Version: -1})
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
		case e.isOver(), errors.Is(err, ErrClosed):
			x.err = err
			return
		case outcomeOf(err) == unknown:
			unanswered = true
		}
		if refused(err) && x.refusal == nil {
			e.s.log.error("zklock: the servers refuse to delete a lock node, which goes on blocking the lock; does the ACL give DELETE on the lock root?", "node", node, "err", err)
			x.refusal = denied(err, "delete", "DELETE", parentOf(node))
			close(x.refused)
		}
		if !e.pause(backoff.next()) {
			x.err = e.overErr()
			return
		}
	}
}

// eraseByID deletes the node of a create whose outcome is unknown and could not be looked up.
func (e *era) eraseByID(root, id string) {
	e.s.spawn(func() {
		backoff := newBackoff()
		for {
			node, err := e.find(root, id)
			if err == nil || refused(err) { // without READ there is nothing to be found
				if node != "" {
					e.erase(node)
				}
				e.forgetStray(id)
				return
			}
			if !e.pause(backoff.next()) {
				return
			}
		}
	})
}

// noteStray remembers the id of a create that was looked for and not found: a server may take it yet from the socket
// of the old connection, where nothing says that the session has moved. Every list is searched for it, and it is
// looked for once more after a while.
func (e *era) noteStray(root, id string) {
	e.mu.Lock()
	e.mu.strays[id] = struct{}{}
	e.mu.Unlock()
	e.s.spawn(func() {
		if e.pause(e.sessionTimeout() / 3) {
			e.eraseByID(root, id)
		}
	})
}

func (e *era) forgetStray(id string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.mu.strays, id)
}

// eraseStrays deletes what a list shows of creates that were given up.
func (e *era) eraseStrays(root string, names []string) {
	e.mu.Lock()
	var found []string
	if len(e.mu.strays) > 0 {
		for _, n := range names {
			if id, ok := protectionID(n); ok {
				if _, stray := e.mu.strays[id]; stray {
					delete(e.mu.strays, id)
					found = append(found, n)
				}
			}
		}
	}
	e.mu.Unlock()
	for _, n := range found {
		e.erase(root + "/" + n)
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
