package zklock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"
)

// Hold is one successful acquire. It is released once, from any goroutine. All its methods are safe for use from many
// goroutines, and answer from memory, but for Release.
type Hold struct {
	m        *Mutex
	d        *lockData
	ctx      *holdContext
	cancel   context.CancelCauseFunc
	released bool  // guarded by the lock table
	end      error // with released: what Err says from then on
}

// newHandleLocked makes a handle for a joiner, with its context's values.
func (d *lockData) newHandleLocked(ctx context.Context, m *Mutex) *Hold {
	h := &Hold{m: m, d: d}
	inner, cancel := context.WithCancelCause(context.WithValue(context.WithoutCancel(ctx), ownerKey{}, d.key.owner))
	h.ctx, h.cancel = &holdContext{inner, h}, cancel
	d.handles[h] = struct{}{}
	return h
}

// holdContext compares the clock with the lease whenever somebody asks whether it has ended: after a pause the loss
// shows at the first look, whatever timers did (F18).
type holdContext struct {
	context.Context
	h *Hold
}

func (c *holdContext) Err() error {
	if err := c.h.Err(); err != nil {
		c.h.cancel(err) // whoever tells the handles one by one may not have come to this one
		if c.Context.Err() == nil {
			return context.Canceled // Do's context, which is just being told
		}
	}
	return c.Context.Err()
}

// Context returns a context to work under. It ends when the lock is lost, when this handle is released, and when the
// Session is closed; context.Cause tells which: ErrLost, ErrNotHeld, ErrClosed. Its Err compares the clock with the
// lease first.
//
// It has the values of the context given to Acquire, but not its cancellation or deadline. It carries the owner: an
// Acquire with it, or with a context derived from it, re-enters. Goroutines that share it do not exclude each other,
// so do not fan out with it to code that takes the lock.
func (h *Hold) Context() context.Context { return h.ctx }

// Lost returns a channel that is closed when the lock is lost, or the Session closed. Release does not close it.
func (h *Hold) Lost() <-chan struct{} {
	h.m.s.locks.mu.Lock()
	defer h.m.s.locks.mu.Unlock()
	return h.d.lostCh
}

// Err returns nil while the lock is held: it compares the clock with the lease first. Otherwise the error is ErrLost
// with the reason, ErrClosed, or after Release ErrNotHeld; a hold that was lost before its release stays lost.
func (h *Hold) Err() error {
	h.look()
	t := &h.m.s.locks
	t.mu.Lock()
	defer t.mu.Unlock()
	if h.released {
		return h.end
	}
	return h.d.lost
}

// look ends the hold if the lease has ended. While somebody else is just ending the ZooKeeper session's holds one by
// one, it does not wait for its turn.
func (h *Hold) look() {
	e := h.d.e
	e.look(h.m.s.clock.now())
	if e.isOver() {
		h.m.s.locks.lose(h.d, lostBecause(e.why()))
	}
}

// Token returns the fencing token: the czxid of the lock node, which is larger than that of every earlier hold of this
// lock, across sessions, re-created lock roots and the end of the sequence (I1). Pass it to the resource with each
// write, and have the resource refuse a smaller one than it has seen.
func (h *Hold) Token() int64 { return h.d.token }

// Deadline returns until when, with no further news, this hold may be relied on. It moves ahead with each heartbeat.
func (h *Hold) Deadline() time.Time { return h.m.s.clock.wall(h.d.e.leaseEnd()) }

// Path returns the lock node's path, absolute, with the chroot.
func (h *Hold) Path() string { return h.d.node }

// Owner returns the owner that holds.
func (h *Hold) Owner() Owner { return h.d.key.owner }

// Check returns a version check of the lock node, to be put first in a Multi on Session.Conn: the other operations are
// then done only if the lock node is there, which fences writes to ZooKeeper by ZooKeeper itself. A Multi that fails
// by it returns zk.ErrNoNode for this operation.
func (h *Hold) Check() *zk.CheckVersionRequest {
	return &zk.CheckVersionRequest{Path: h.d.node, Version: -1} // any version: revocation and admins change it
}

// Release gives the lock back: it ends this handle's context and then, if it is the owner's last handle, deletes the
// node. It may be called from any goroutine; a second call does nothing and returns nil.
//
// A nil error means that the lock was held until now, and is free if this was the last handle. ErrLost means that it
// was lost before: what ran under it may have overlapped with the next holder. Any other error (ctx ended, no DELETE)
// means that the lock is given up here, and the node is still being deleted in the background, until it is gone or
// its session is. A ctx that has already ended still gets a short try.
func (h *Hold) Release(ctx context.Context) error {
	if ctx == nil {
		return h.errorf("release", errors.New("nil context"))
	}
	h.look()
	first, last, lost := h.m.s.locks.release(h)
	if !first {
		return nil
	}
	h.cancel(h.errorf("hold", errReleased))
	if lost != nil {
		return h.errorf("release", errors.Unwrap(lost))
	}
	if !last {
		return nil
	}
	d := h.d
	d.e.unhold(d.node) // no heartbeat may miss the node
	x := d.e.erase(d.node)
	h.m.afterErasure(d.e, d.node, x)
	select {
	case <-x.done:
	case <-x.refused:
		return h.errorf("release", fmt.Errorf("%w; the node is still being deleted in the background", x.refusal))
	case <-ctx.Done():
		t := time.NewTimer(grace)
		defer t.Stop()
		select {
		case <-x.done:
		case <-x.refused:
			return h.errorf("release", fmt.Errorf("%w; the node is still being deleted in the background", x.refusal))
		case <-t.C:
			return h.errorf("release", fmt.Errorf("%w; the node is still being deleted in the background", ctxError(ctx)))
		}
	}
	switch {
	case x.ok:
		return nil
	case errors.Is(x.err, errExpired):
		return nil // held until now, by the look at the lease; the node went with its session instead of by our delete
	case errors.Is(x.err, ErrClosed):
		return h.errorf("release", x.err)
	case errors.Is(x.err, zk.ErrNoNode):
		return h.errorf("release", lostBecause(errNodeGone))
	default:
		return h.errorf("release", lostBecause(x.err))
	}
}

func (h *Hold) errorf(op string, err error) error {
	return &Error{Op: op, Path: h.m.path, Node: h.d.node, Err: err}
}

// ctxError is the cause of an ended context, and that it ended, both visible to errors.Is.
func ctxError(ctx context.Context) error {
	cause, err := context.Cause(ctx), ctx.Err()
	if errors.Is(cause, err) {
		return cause
	}
	return fmt.Errorf("%w: %w", err, cause)
}
