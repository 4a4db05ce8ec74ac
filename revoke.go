package zklock

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/go-zookeeper/zk"
)

// revokeMessage is what Curator's Revoker writes into a lock node to ask its holder to give way.
var revokeMessage = []byte("__REVOKE__")

// Revoke asks the holder of a lock node to release it, as Curator's Revoker does: it sets the node's data to a message
// that a holder with WithRevocation listens for. node is absolute, as Hold.Path and Participant.Node give it. It does
// not wait for the release. A node that is gone is no error.
func Revoke(ctx context.Context, s *Session, node string) error {
	fail := func(err error) error { return &Error{Op: "revoke", Path: node, Err: err} }
	if ctx == nil || s == nil {
		return fail(errors.New("nil context or Session"))
	}
	if err := checkPath(node); err != nil {
		return fail(err)
	}
	e, err := s.attachedEra(ctx)
	if err != nil {
		return fail(err)
	}
	_, _, err = call(ctx, e, func(c *zk.Conn) (*zk.Stat, error) { return c.Set(node, revokeMessage, -1) })
	if err != nil && !errors.Is(err, zk.ErrNoNode) {
		if outcomeOf(err) == unknown {
			err = fmt.Errorf("the message may or may not be written: %w", err)
		}
		return fail(err)
	}
	return nil
}

// startRevocation listens on a granted lock's node, until the hold ends.
func (m *Mutex) startRevocation(d *lockData) {
	if m.opts.revoke == nil {
		return
	}
	m.s.locks.mu.Lock()
	var h *Hold
	for h = range d.handles {
		break
	}
	m.s.locks.mu.Unlock()
	if h == nil {
		return
	}
	e, node := d.e, d.node
	m.s.spawn(func() {
		for {
			w, err := e.watch(h.ctx, node)
			if err != nil {
				if outcomeOf(err) == notApplied || h.ctx.Err() != nil || e.isOver() || !e.pause(heartbeat(e.sessionTimeout())) {
					return
				}
				continue
			}
			// The message may have come before the watch.
			data, _, err := call(h.ctx, e, func(c *zk.Conn) ([]byte, error) {
				data, _, err := c.Get(node)
				return data, err
			})
			if err == nil && bytes.Equal(data, revokeMessage) {
				break
			}
			select {
			case <-w.fired:
			case <-h.ctx.Done():
				return
			case <-e.over:
				return
			}
		}
		// Not a goroutine of the Session's: it is the user's code, and Close does not wait for it.
		go m.opts.revoke(h)
	})
}
