package zklock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/zklock/internal/clock"
	"github.com/zklock/zklock/internal/link"
	"github.com/zklock/zklock/internal/node"
	"github.com/zklock/zklock/internal/queue"
	"github.com/zklock/zklock/internal/reply"
	"github.com/zklock/zklock/internal/wire"
)

// The lock-delay: after the proof that no node blocks ours and before the grant, an attempt reads
// the lock root's record, waits if the record names another node, and records itself
// (queue.Machine). The release removes the record (node.GrantRecord). Exclusion does not depend on
// the record. An acquire reads the record together with the first list.

// WithLockDelay delays the next grant by d after a holder disappeared without a release: it
// crashed, lost its session or its hold, or its node was deleted. The default is no delay. Give all
// clients of the path the same d, because a client without the option is granted the lock at once.
//
// The lock root's data records the holder. So acquires need WRITE on the root, and fail if the root
// has other data. The delay begins when a Session first finds the holder's node deleted, so it
// starts again in each new Session. During the delay, TryAcquire returns ErrNotAcquired, with
// DelayUntil in its Error.
func WithLockDelay(d time.Duration) MutexOrElectionOption {
	return lockOption(func(o *lockOptions) {
		if o.delay = d; d <= 0 || d > 365*24*time.Hour {
			o.wrong = fmt.Errorf("WithLockDelay(%v): give how long no client is granted after a holder disappeared, a year at most, or leave the option out", d)
		}
	})
}

// delayNotes are the notes on a lock root with a lock-delay.
type delayNotes struct {
	gone  string        // the node of the last holder, if the holder disappeared
	since clock.Instant // when this Session first observed that
}

// IsLasting makes the Session keep the notes, because the delay counts from the time in them.
func (*delayNotes) IsLasting() {}

// delayWait is the part of an attempt that waits for a lock-delay. The zero value has read no
// record.
type delayWait struct {
	early   <-chan node.DataRead // the record, if it was requested with the node
	with    *node.Listing        // the list that was requested with early
	found   queue.Record         // the record, as it was read
	version int32                // the data version of found
	until   clock.Instant        // when the attempt may be granted, if it waits for the delay
}

// describe adds the time until which the first node in the queue waits for the lock-delay.
func (o *lockOptions) describe(ctx context.Context, e *node.ZKSession, root *lockRoot, first *Participant) error {
	if o.delay == 0 {
		return nil
	}
	var got wire.DataResponse
	if _, err := e.Read(ctx, wire.OpGetData, wire.PathWatchRequest{Path: root.Path()}, &got); err != nil {
		return reply.Ignoring(reply.Denied(err, "get", "READ", root.Path()), zk.ErrNoNode)
	}
	first.delayedUntil(o.delayUntil(got.Data, first.Node, first.Created))
	return nil
}

// delayUntil returns the time until which the first node in the queue waits for the lock-delay,
// according to the lock root's data: the zero time if the node holds the lock, or if no holder
// disappeared. If the client has not recorded that time, delayUntil assumes that its wait begins
// now. It returns the zero time if the node is so old that its wait must have ended.
func (o *lockOptions) delayUntil(data []byte, front string, came time.Time) (until time.Time) {
	record, _ := queue.ParseRecord(data)
	held := record.Word(queue.HeldWord)
	if held == "" || held == nameOf(front) || !time.Now().Before(node.WaitsUntil(record, came)) {
		return until
	}
	until, err := time.Parse(time.RFC3339, record.Word(queue.UntilWord))
	if err != nil {
		until = time.Now().Add(o.delay)
	}
	return until
}

// delayEnd returns the end of the delay after the holder with that node disappeared, and reports
// whether this Session had observed that before. If not, and isNoted is true, the delay counts from
// now. The note outlives the call, so repeated calls with short deadlines reach the end of the
// delay, too.
func (a *attempt) delayEnd(holder string, isNoted bool) (end clock.Instant, isKnown bool) {
	root, d, now := a.d.root, a.opts.delay, a.e.Clock.Now()
	before := node.NotesOn[delayNotes](root.Root)
	if isNoted {
		before = node.Note(root.Root, func(n *delayNotes) {
			if n.gone != holder {
				n.gone, n.since = holder, now
			}
		})
	}
	if before.gone != holder {
		return now.Add(d), false
	}
	return before.since.Add(d), true
}

// readRecord reads the lock root's record, unless the read was sent with the create, together with
// the list that shows that no node blocks ours.
func (a *attempt) readRecord() error {
	e, root, w, s := a.e, a.d.root, &a.machine, &a.delay
	asked, isEarly, synced := s.early, s.early != nil && s.with == a.list, uint64(0)
	if s.early, s.with = nil, nil; !isEarly {
		if w.Sync {
			got, err := e.Ask(a.ctx, wire.OpSync, wire.PathRequest{Path: root.Path()})
			if r, err := a.findingOf(err); err != nil || r != queue.Exists {
				return err
			}
			synced = got.Conn
		}
		asked = e.StartRead(root.Path())
	}
	got, err := link.Await(a.ctx, a.e.ZKSession, asked)
	if err != nil {
		return err
	}
	r, err := a.findingOf(reply.Denied(got.Err, "get", "READ", root.Path()))
	if err != nil || r == queue.Unknown {
		return err
	}
	if r == queue.Absent { // our node was deleted with it
		*w = w.NotListed(r)
		return nil
	}
	record, isOurs := queue.ParseRecord(got.Data)
	if !isOurs {
		return badArgument{fmt.Errorf("%s has data of another program, %q: a lock with WithLockDelay keeps its record there: give it a path of its own, or remove the data",
			root.Path(), got.Data[:min(len(got.Data), node.MaxShown)])}
	}
	s.found, s.version = record, got.Stat.Version
	held, own := record.Word(queue.HeldWord), nameOf(a.node)
	end, isKnown := a.delayEnd(held, false)
	*w = w.RecordRead(queue.Reading{Held: held, Own: own, Conn: got.Conn, Early: isEarly, Synced: synced != 0 && synced == got.Conn, Over: isKnown && e.Clock.Now() >= end})
	if w.Next == queue.ToAwaitDelay {
		return a.beginDelay(held)
	}
	return nil
}

// beginDelay begins the wait for the delay of a deleted node, and logs it once per Session. Tries
// end here. If it can, it records the end of the delay for observers; nothing depends on that.
func (a *attempt) beginDelay(held string) error {
	e, root, s := a.e, a.d.root, &a.delay
	end, isKnown := a.delayEnd(held, true)
	s.until = end
	until := e.Clock.Wall(end)
	if !isKnown {
		e.Log.Info("zklock: the holder disappeared; no client is granted before the end of the lock-delay", "path", root.Path(), "node", a.node, "holder", held, "until", until)
	}
	at := position{node: a.node, rank: 1, blockerText: held + ", which disappeared", until: until}
	if !a.d.table.noteBehind(a.acquisition, at) {
		return ErrNotAcquired
	}
	a.beginWait(at)
	told := s.found.Delayed(until.UTC().Format(time.RFC3339))
	version, failed, err := a.writeRecordData(told)
	switch {
	case err == nil:
		s.found, s.version = told, version
	case failed == 1 && errors.Is(err, zk.ErrNoAuth): // then we could not record our grant, either
		return reply.Denied(err, "set", "WRITE", root.Path())
	case failed == 0 && errors.Is(err, zk.ErrNoNode):
		a.machine = a.machine.RecordWritten(queue.Absent)
	}
	return nil
}

// awaitDelay waits until the delay has passed.
func (a *attempt) awaitDelay() error {
	for left := a.delay.until.Sub(a.e.Clock.Now()); left > 0; left = a.delay.until.Sub(a.e.Clock.Now()) {
		select {
		case <-time.After(left):
		case <-a.logNow:
			return nil
		case <-a.e.Ended():
			return a.e.EndErr()
		case <-a.ctx.Done():
			return link.ErrCtxEnded
		}
	}
	a.machine = a.machine.DelayOver()
	return nil
}

// writeRecord records the grant. From here on, giving up also removes the record, as a release
// does.
func (a *attempt) writeRecord() error {
	root, w := a.d.root, &a.machine
	granted := a.delay.found.Granted(nameOf(a.node))
	a.record = &node.GrantRecord{Root: root.Path()}
	version, failed, err := a.writeRecordData(granted)
	switch {
	case err == nil:
		a.record = &node.GrantRecord{Root: root.Path(), Record: granted, Version: version, IsKnown: true}
	case errors.Is(err, zk.ErrBadVersion):
		*w = w.RecordWritten(queue.Unknown)
		return nil
	case failed == 0:
		err = reply.Denied(err, "check", "READ", a.node)
	default:
		err = reply.Denied(err, "set", "WRITE", root.Path())
	}
	r, err := a.findingOf(err)
	if err == nil {
		*w = w.RecordWritten(r)
	}
	return err
}

// writeRecordData writes the record if our node exists and the data has not changed since it was
// read. It returns the new version.
func (a *attempt) writeRecordData(r queue.Record) (version int32, failed int, err error) {
	got, err := a.e.Ask(a.ctx, wire.OpMulti, wire.MultiRequest{Ops: []wire.MultiOp{
		{Op: wire.OpCheck, Path: a.node, Version: -1},
		{Op: wire.OpSetData, Path: a.d.root.Path(), Data: []byte(r), Version: a.delay.version},
	}})
	if err != nil {
		return 0, -1, err
	}
	results, failed, err := reply.ResultsOf(got, 2)
	if err != nil {
		return 0, failed, err
	}
	return results[1].Stat.Version, -1, nil
}
