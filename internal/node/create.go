package node

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/google/uuid"

	"github.com/zklock/zklock/internal/link"
	"github.com/zklock/zklock/internal/mux"
	"github.com/zklock/zklock/internal/queue"
	"github.com/zklock/zklock/internal/reply"
	"github.com/zklock/zklock/internal/wire"
)

// The creation of a lock node whose reply may be lost: the node has a protection id, and is found
// by it.

// Create creates one protected ephemeral sequential node although replies may be lost. It
// continues until the outcome is known, even if no call waits any more: only then can an unwanted
// node be deleted (I4).
type Create struct {
	wanted context.Context // once it has ended, no further create is sent

	e           *ZKSession
	reservation Reservation
	root        *Root
	data        []byte
	withRoot    bool            // the transaction of newroot.go is sent; not again once a reply was lost
	last        *link.LastError // the call's last error; nil if nothing records it

	id    string                // of the current try: each id belongs to one node, and names do not grow (R32)
	sent  bool                  // the request of the current try was sent
	reply chan mux.Reply        // the reply to it
	made  wire.PathStatResponse // the node that it created, if the reply names it; set before the reply is passed on, like the next two
	err   error                 // of the reply
	part  int                   // the operation of the transaction that was rejected; −1 for none

	Node     string // absolute
	Token    int64  // czxid
	MadeRoot bool   // the transaction of newroot.go created the node
	denied   error  // why the servers rejected the last create; nil if they did not
}

// create begins the creation of a node for a rule under root, and sends its first request if that
// is possible now. Requests that are sent later reach the servers after it. The caller must call
// finish. An error means that nothing was sent. withRoot creates the lock root with the node
// (newroot.go).
func (e *ZKSession) create(wanted context.Context, root *Root, data []byte, withRoot bool, last *link.LastError) (*Create, error) {
	reservation, err := e.Own.Reserve(1, 0)
	if err != nil {
		return nil, err
	}
	c := &Create{wanted: wanted, e: e, reservation: reservation, root: root, data: data, withRoot: withRoot, last: last, reply: make(chan mux.Reply, 1)}
	if err := c.send(); err != nil {
		c.reservation.Free()
		return nil, err
	}
	return c, nil
}

// send sends a create if the session is attached, with another id than the last one. It returns an
// error if the request is too long.
func (c *Create) send() error {
	c.id, c.made = uuid.NewString(), wire.PathStatResponse{}
	node := wire.CreateRequest{Path: queue.ProtectedPath(c.root.path, c.id, c.root.o.Rule.Name), Data: c.data, ACL: c.root.o.ACL, Flags: wire.FlagEphemeralSequential}
	var req *mux.Request
	if c.withRoot {
		req = mux.NewRequest(wire.OpMulti, c.root.withNode(node), c.noteReply)
		c.withRoot = link.TooLong(req, c.e.Longest) == nil
	}
	if !c.withRoot {
		req = mux.NewRequest(wire.OpCreate2, node, c.noteReply)
	}
	if err := link.TooLong(req, c.e.Longest); err != nil {
		return err
	}
	c.sent = c.e.Carrier.Send(c.e.ZKSession, req)
	return nil
}

// noteReply stores the node before any later reply is read, because a list may show the node as
// another node's predecessor.
func (c *Create) noteReply(a mux.Reply) {
	var made wire.PathStatResponse
	c.part, c.err = -1, reply.ErrOf(a)
	isKnown := c.err == nil
	switch {
	case isKnown && c.withRoot:
		made, c.part, c.err = madeWithRoot(a, c.e.ID)
		isKnown = c.err == nil
	case isKnown:
		isKnown = a.Decode(&made) == nil
	}
	if isKnown && c.isOurs(made) {
		c.made = made
		c.reservation.Taken(made.Path)
	}
	a.Body = nil
	c.reply <- a
}

// isOurs reports whether a reply names the node that we requested, and that node belongs to this
// session.
func (c *Create) isOurs(made wire.PathStatResponse) bool {
	name, ok := strings.CutPrefix(made.Path, c.root.path+"/")
	id, protected := queue.ProtectionID(name)
	return ok && protected && id == c.id && made.Stat.EphemeralOwner == c.e.ID
}

// finish tries until the outcome is known: a node of this ZooKeeper session, or an error. After an
// error no node remains, except nodes that the reaper is still deleting. finish returns no later
// than the session ends.
func (c *Create) finish() error {
	defer c.reservation.Free()
	e, backoff := c.e, link.Backoff{}
	var hungUp link.HangUps
	for try := 0; ; try++ {
		if try > 0 && c.wanted.Err() != nil { // the last try left no node, and no call waits
			return link.ErrCtxEnded
		}
		if try > 1 && !e.Pause(backoff.Next()) {
			return e.EndErr()
		}
		for !c.sent {
			if _, err := e.WaitAttached(c.wanted); err != nil { // no request is under way
				return err
			}
			if err := c.send(); err != nil {
				return err
			}
		}
		a, err := link.Await(context.Background(), e.ZKSession, c.reply)
		if err != nil {
			return err
		}
		c.sent = false
		c.last.Note(c.err)
		switch reply.FateOf(a.Fate, reply.OutcomeOf(c.err), e.HasEnded()) {
		case reply.NodeMade:
			if c.made.Path == "" {
				break // the reply names another node, or cannot be decoded: look for the node
			}
			c.Node, c.Token, c.MadeRoot = c.made.Path, c.made.Stat.Czxid, c.withRoot
			return nil

		case reply.NothingMade:
			if a.Fate == mux.WasAnswered && !e.Pause(200*time.Millisecond) { // the servers are busy
				return e.EndErr()
			}
			continue

		case reply.NodeDenied:
			c.denied = c.err
			return reply.Denied(c.err, "create", "CREATE", c.root.path)

		case reply.GoneIfMade:
			return e.EndErr()

		case reply.NodeUnclear:
		}

		// From here on the node may or may not exist. A second create would queue us behind
		// ourselves (I2).
		if err := c.resolve(); c.Node != "" || err != nil {
			return err
		}
		c.withRoot = false
		if err := hungUp.Count(a); err != nil {
			return err
		}
	}
}

// resolve determines the outcome of a create whose reply was lost. It sets node, or returns an
// error. It does neither if the node does not exist and never will.
//
// Sync first: the server to which we are connected now may lag behind the server that took the
// create (F4). After the sync, a create that reached the leader before we moved is visible. A
// create that the old server has read and holds up will be rejected, because the session has moved
// (F2). A create that the old server has not read yet may still arrive (NoteOrphan).
func (c *Create) resolve() error {
	e := c.e
	found, err := e.FindMade(c.root, c.id, c.withRoot)
	switch {
	case err != nil:
		return err
	case len(found) == 0:
		e.Reaper.NoteOrphan(c.root.path, c.id, c.withRoot)
		return nil
	}
	stat, err := e.StatOf(found[0])
	switch {
	case err == nil && stat.EphemeralOwner == e.ID:
		e.Carrier.Executed(wire.OpCreate2)
		c.last.Note(nil)
		c.Node, c.Token, c.MadeRoot = found[0], stat.Czxid, c.withRoot
		c.reservation.Taken(c.Node)
	case errors.Is(err, zk.ErrNoNode):
		return nil
	case err == nil, reply.IsRefusal(err): // it belongs to a session that is ending: never grant on it (R30). Or READ is denied
		e.Reaper.Delete(found[0])
	}
	return err
}

// FindMade looks below root for the nodes that a create with that protection id has made, after a
// sync, until the list succeeds or is rejected. It returns the nodes in the order of their numbers:
// all nodes of one transaction have the same id. Concurrent calls share one sync and one list
// (R69).
//
// If READ is denied, FindMade logs that, and registers the id so that a later list is searched for
// it: no client can acquire here, and the node, if it exists, blocks every client (R74).
func (e *ZKSession) FindMade(root *Root, id string, withRoot bool) (found []string, err error) {
	for backoff := (link.Backoff{}); ; {
		l := e.Lists.ListSynced(root.path)
		err := l.Wait(context.Background(), e.ZKSession)
		switch {
		case errors.Is(err, zk.ErrNoNode):
			return nil, nil
		case reply.IsRefusal(err):
			e.Reaper.NoteOrphan(root.path, id, withRoot)
			e.Log.Error("zklock: cannot determine whether a lock node was created; if it was, it blocks the lock until READ is granted again or this ZooKeeper session ends", "path", root.ShownPath(), "err", err)
			return nil, err
		case err == nil:
			for _, n := range l.Names {
				if got, ok := queue.ProtectionID(n); ok && got == id {
					found = append(found, root.path+"/"+n)
				}
			}
			slices.Sort(found)
			return found, nil
		case !e.Pause(backoff.Next()):
			return nil, e.EndErr()
		}
	}
}

// StatOf returns the Stat of a node that a list has shown, which identifies the session that
// created the node. It tries until the session ends. The session never moves to a server that lags
// behind that list. Servers from 3.9.3 on require READ.
func (e *ZKSession) StatOf(node string) (*wire.Stat, error) {
	for backoff := (link.Backoff{}); ; {
		stat, err := e.Stat(node)
		switch {
		case err == nil, reply.IsRefusal(err):
			return stat, reply.Denied(err, "exists", "READ", node)
		case !e.Pause(backoff.Next()):
			return nil, e.EndErr()
		}
	}
}

// IsAlone reports whether the create was sent already, and creates the node alone: then a list that
// is requested now shows the node.
func (c *Create) IsAlone() bool { return c.sent && !c.withRoot }
