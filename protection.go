package zklock

import (
	"errors"
	"fmt"
	"time"

	"github.com/zklock/zklock/internal/link"
	"github.com/zklock/zklock/internal/node"
	"github.com/zklock/zklock/internal/queue"
)

// How an attempt creates its node, although the reply may be lost (node.Create), and how it gives
// the node up.

// makeNode creates the node, and the lock root if it is missing.
//
// The list is sent in the same batch as the create, after it, so an uncontended acquire takes one
// round trip. A missing lock root costs one more batch, which sends the root's create before both,
// or creates both together (node.RootUse). Missing parents of the root cost another batch.
func (a *acquisition) makeNode(e *node.ZKSession, by recipe) (_ *attempt, err error) {
	root, at := a.d.root, a.attemptIn(e, by)
	at.use = root.BeginUse(a.newLost)
	defer func() {
		if err != nil {
			at.undoRoots()
		}
	}()
	for {
		c, err := at.use.Create(a.ctx, e, a.opts.data, &a.last)
		if err != nil {
			return nil, err
		}
		at.machine.Early, at.list = c.IsAlone(), nil
		if at.machine.Early {
			at.list = e.Lists.List(root.Path())
			if a.opts.delay > 0 { // a later read may need a sync
				at.delay.early, at.delay.with = e.StartRead(root.Path()), at.list
			}
			_ = at.list.Wait(a.ctx, e.ZKSession) // the create's reply precedes it: wake once for both
		}
		step, err := at.use.Finish(c) // the session's end is the latest end of this wait
		if a.newLost = at.use.Lost; err != nil && step == queue.CreateDenied {
			return nil, err
		}
		at.node = c.Node
		if unfit := by.created(at); unfit != nil {
			if err == nil {
				unfit = at.giveUp(unfit)
			}
			return nil, unfit
		}
		if err == nil {
			return at.adopt(c), nil
		}
		if err = at.use.SendCreates(a.ctx, e.ZKSession, step, &a.last); err != nil {
			return nil, err
		}
	}
}

// attemptIn returns an attempt that has no node yet.
func (a *acquisition) attemptIn(e *node.ZKSession, by recipe) *attempt {
	at := &attempt{acquisition: a, grantBasis: grantBasis{e: e}, recipe: by, machine: queue.Begin(e.ID, a.opts.delay > 0)}
	at.state = by.newState(at, a.before)
	a.before = at.state
	return at
}

// adopt begins the wait of a node, which exists. If it is the first node of a new lock root, the
// attempt needs no list.
func (a *attempt) adopt(c *node.Create) *attempt {
	a.d.root.WarnOfTheEnd(a.e, c.Node)
	a.made.Add(1)
	a.node, a.token, a.madeRoot = c.Node, c.Token, c.MadeRoot
	if c.MadeRoot {
		a.rootCzxid, a.machine = c.Token, a.machine.MadeRoot()
	}
	return a
}

// undoRoots deletes the lock roots that were created for nodes which could not be created.
func (a *attempt) undoRoots() {
	if len(a.held) == 0 {
		a.use.Undo(a.e.ZKSession, a.node != "")
	}
}

// giveUp deletes the attempt's nodes and waits a short time for their deletion, so that they no
// longer exist when the caller gets the error (I4). At the end of the counter giveUp also waits
// until the lock root is deleted, so that another try succeeds; otherwise the error has the reason
// why the root remains.
func (a *attempt) giveUp(why error) error {
	e := a.e
	if errors.Is(why, ErrClosed) || e.HasEnded() {
		return why // the nodes are deleted with their session
	}
	xs, restarted := a.d.root.DeleteNode(e, a.madeRoot, a.record, a.node, a.held...)
	late := make(chan struct{})
	t := time.AfterFunc(grace, func() { close(late) })
	defer t.Stop()
	isGone := true
	for _, x := range xs {
		select {
		case <-x.Done:
		case <-x.Refused:
		case <-e.Ended():
		case <-late:
		}
		isGone = isGone && link.IsClosed(x.Done)
	}
	if restarted != nil && errors.Is(why, ErrSequenceExhausted) && isGone {
		select {
		case err := <-restarted:
			if err != nil {
				return fmt.Errorf("%w; the lock root cannot be created again: %w", why, err)
			}
		case <-e.Ended():
		case <-late:
		}
	}
	return why
}
