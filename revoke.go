package zklock

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/zklock/internal/queue"
	"github.com/zklock/zklock/internal/reply"
	"github.com/zklock/zklock/internal/wire"
)

// Revoke asks the holder of a lock node to release the lock, as Curator's Revoker does: it sets the
// node's data to a message that a holder with WithRevocation listens for. node is absolute, as
// Hold.Node and Participant.Node return it. Revoke rejects a name without the sequence number of a
// lock node, because the message replaces the data. Revoke does not wait for the release. If the
// node does not exist, Revoke returns nil.
//
// While no server can be reached, Revoke waits for one until ctx ends. If the connection is lost or ctx ends while the
// message is on its way, the servers may or may not have written it; the error reports that.
func (s *Session) Revoke(ctx context.Context, node string) error {
	fail := func(err error) error { return &Error{Op: "revoke", Path: node, Err: s.forCaller(ctx, err, nil)} }
	if ctx == nil {
		return fail(errNilContext)
	}
	if !s.isConnected() {
		return fail(errNoSession)
	}
	if err := checkPath(node); err != nil {
		return fail(err)
	}
	if _, ok := queue.Parse(nameOf(node), []string{""}); !ok {
		return fail(badArgument{fmt.Errorf("%s is no lock node, whose name ends in ten digits: give Hold.Node or Participant.Node", shown(node))})
	}
	z, err := s.link.Attached(ctx)
	if err != nil {
		return fail(err)
	}
	_, err = z.Ask(ctx, wire.OpSetData, wire.SetDataRequest{Path: node, Data: revokeMessage, Version: -1})
	switch {
	case err == nil, errors.Is(err, zk.ErrNoNode):
		return nil
	case reply.OutcomeOf(err) == reply.Unknown:
		return fail(fmt.Errorf("the message may or may not be written: %w", forCaller(ctx, err)))
	}
	return fail(reply.Denied(err, "set", "WRITE", node))
}

// revokeMessage is what Curator's Revoker writes into a lock node to ask its holder to give way.
var revokeMessage = []byte("__REVOKE__")

// hears reports whether a revocation with that zxid is for this hold.
func (d *lockData) hears(written int64) bool {
	d.table.mu.Lock()
	defer d.table.mu.Unlock()
	return d.state.isNewsLocked(d, written)
}

// anyHandle returns a handle that is not released, nil if there is none.
func (d *lockData) anyHandle() *Hold {
	d.table.mu.Lock()
	defer d.table.mu.Unlock()
	for h := range d.handles {
		return h
	}
	return nil
}
