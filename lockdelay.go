package zklock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/zklock/internal/clock"
	"github.com/zklock/zklock/internal/link"
	"github.com/zklock/zklock/internal/nodes"
	"github.com/zklock/zklock/internal/queue"
	"github.com/zklock/zklock/internal/reply"
	"github.com/zklock/zklock/internal/wire"
)

// The lock-delay: between the proof that nobody is ahead and the grant, an attempt reads the lock root's record, waits if it names
// somebody, and records itself (queue.Machine). The release takes that back (nodes.GrantRecord). Exclusion rests on none of this.

// WithLockDelay delays the next grant by d after a holder disappeared without a release: its
// process crashed, its session expired or was closed, its hold was lost, or its node was deleted.
// In that time the holder's last requests can arrive at resources that do not check a token. After
// a release the next client is granted at once. The default is no delay. All clients of the path
// should give the same d, because a client without the option takes the lock at once.
//
// The holder is recorded in the lock root's data, which needs WRITE on the root, and the release
// removes the record. If the root has other data, acquires return an error and do not change it. A
// client that finds the record of a deleted node waits for d from when its Session first found it,
// however long ago the holder disappeared. So if a client dies while it waits, the delay starts
// again. During the delay TryAcquire returns ErrNotAcquired, with DelayUntil in its Error; if each
// try uses a new Session, none ever succeeds.
//
// An acquire sends two more requests; if the lock is free, they take no further round trip. A
// release is still one request.
func WithLockDelay(d time.Duration) interface {
	MutexOption
	ElectionOption
} {
	return lockOption(func(o *lockOptions) {
		if o.delay = d; d <= 0 || d > 365*24*time.Hour {
			o.wrong = fmt.Errorf("WithLockDelay(%v): give how long nobody is granted after a holder disappeared, a year at most, or leave the option out", d)
		}
	})
}

// delayed is a recipe with a lock-delay.
type delayed struct {
	recipe
	d time.Duration
}

// delayNotes are the notes of a recipe with a lock-delay.
type delayNotes struct {
	gone  string        // the node of the last holder, if it disappeared
	since clock.Instant // when this Session first knew that
}

// isLasting has the Session keep the notes: the delay counts from the time in them.
func (*delayNotes) isLasting() {}

// delayState is the state of an attempt with a lock-delay. With the hold it keeps the record.
type delayState struct {
	recipeState // of the recipe that it wraps

	early   <-chan dataRead // the record, if it was requested with the node
	with    *nodes.Listing  // the list that was requested with early
	found   queue.Record    // the record as it was read
	version int32           // of the data that it was read from
	until   clock.Instant   // when the lock may be granted, if the attempt has to wait for that
	granted nodes.GrantRecord
}

func (s *delayState) inner() recipeState { return s.recipeState }

// record returns the record of the grant, from when it may be written.
func (s *delayState) record() *nodes.GrantRecord {
	if s.granted.Root == "" {
		return nil
	}
	return &s.granted
}

// newState returns the state of an attempt, and has its walk read and write the record.
func (l delayed) newState(a *attempt, before recipeState) recipeState {
	if s, ok := before.(*delayState); ok {
		before = s.recipeState
	}
	a.machine = queue.Begin(a.e.ID, a.machine.Early, true)
	return &delayState{recipeState: l.recipe.newState(a, before)}
}

// withDelay wraps a recipe if there is to be a lock-delay.
func (o *lockOptions) withDelay(r recipe) recipe {
	if o.delay > 0 {
		return delayed{r, o.delay}
	}
	return r
}

// listing asks for the record with the first list. Later it may take a sync.
func (l delayed) listing(a *attempt) {
	if s := stateOf[*delayState](a); a.machine.Early {
		s.early, s.with = a.e.startRead(a.d.root.path), a.list
	}
	l.recipe.listing(a)
}

func (l delayed) step(a *attempt) error {
	s := stateOf[*delayState](a)
	switch a.machine.Next {
	case queue.ToReadRecord:
		return l.readRecord(a, s)
	case queue.ToAwaitDelay:
		return s.awaitDelay(a)
	case queue.ToWriteRecord:
		return s.writeRecord(a)
	}
	return l.recipe.step(a)
}

// describe says until when the node in front waits for the lock-delay.
func (l delayed) describe(ctx context.Context, e *zkSession, root *lockRoot, ps []Participant) error {
	if err := l.recipe.describe(ctx, e, root, ps); err != nil || len(ps) == 0 {
		return err
	}
	var got wire.DataResponse
	if _, err := e.Read(ctx, wire.OpGetData, wire.PathWatchRequest{Path: root.path}, &got); err != nil {
		return ignoring(reply.Denied(err, "get", "READ", root.path), zk.ErrNoNode)
	}
	ps[0].delayedUntil(l.until(got.Data, ps[0].Node, ps[0].Created))
	return nil
}

// until returns until when the node in front waits for the lock-delay, by the lock root's data: the zero time if it holds, or nobody
// disappeared. As long as it has not said so itself, that is as if its wait began now; but not if it came so long ago that it does not wait.
func (l delayed) until(data []byte, front string, came time.Time) (until time.Time) {
	record, _ := queue.ParseRecord(data)
	held := record.Word(queue.HeldWord)
	if held == "" || held == nameOf(front) || !time.Now().Before(nodes.WaitsUntil(record, came)) {
		return until
	}
	until, err := time.Parse(time.RFC3339, record.Word(queue.UntilWord))
	if err != nil {
		until = time.Now().Add(l.d)
	}
	return until
}

// delayEnd returns until when nobody is granted because the holder with that node disappeared, and whether this Session knew that
// before. With isNoted, it counts from now if not. It says when the node was known to be gone, whatever becomes of the call that looked: so
// calls with short deadlines come to the end of the delay, too.
func (l delayed) delayEnd(r *lockRoot, node string, now clock.Instant, isNoted bool) (end clock.Instant, isKnown bool) {
	before := notesOn[delayNotes](r)
	if isNoted {
		before = note(r, func(n *delayNotes) {
			if n.gone != node {
				n.gone, n.since = node, now
			}
		})
	}
	if before.gone != node {
		return now.Add(l.d), false
	}
	return before.since.Add(l.d), true
}

// readRecord reads the lock root's record, unless it was requested with the node, together with the
// list that shows that no node is ahead.
func (l delayed) readRecord(a *attempt, s *delayState) error {
	e, root, w := a.e, a.d.root, &a.machine
	asked, isEarly, synced := s.early, s.early != nil && s.with == a.list, uint64(0)
	if s.early, s.with = nil, nil; !isEarly {
		if w.Sync {
			got, err := e.Ask(a.ctx, wire.OpSync, wire.PathRequest{Path: root.path})
			if r, err := a.findingOf(err); err != nil || r != queue.Exists {
				return err
			}
			synced = got.Conn
		}
		asked = e.startRead(root.path)
	}
	got, err := link.Await(a.ctx, a.e.ZKSession, asked)
	if err != nil {
		return err
	}
	r, err := a.findingOf(reply.Denied(got.err, "get", "READ", root.path))
	if err != nil || r == queue.Unknown {
		return err
	}
	if r == queue.Absent { // and our node with it
		*w = w.NotListed(r)
		return nil
	}
	record, isOurs := queue.ParseRecord(got.data)
	if !isOurs {
		return badArgument{fmt.Errorf("%s has data of somebody else, %q: a lock with WithLockDelay keeps its record there: give it a path of its own, or remove the data",
			root.path, got.data[:min(len(got.data), maxShown)])}
	}
	s.found, s.version = record, got.stat.Version
	held, own := record.Word(queue.HeldWord), nameOf(a.node)
	end, isKnown := l.delayEnd(root, held, e.Clock.Now(), false)
	*w = w.RecordRead(queue.Reading{Held: held, Own: own, Conn: got.conn, Early: isEarly, Synced: synced != 0 && synced == got.conn, Over: isKnown && e.Clock.Now() >= end})
	if w.Next == queue.ToAwaitDelay {
		return l.beginDelay(a, s, held)
	}
	return nil
}

// beginDelay begins the wait for the delay of a node that is gone, and logs that, unless this Session knew it before. Tries end here. It tells
// others until when the delay lasts, if it can: nothing rests on that.
func (l delayed) beginDelay(a *attempt, s *delayState, held string) error {
	e, root := a.e, a.d.root
	end, isKnown := l.delayEnd(root, held, e.Clock.Now(), true)
	s.until = end
	until := e.Clock.Wall(end)
	if !isKnown {
		e.Log.Info("zklock: the holder disappeared; nobody is granted before the end of the lock-delay", "path", root.path, "node", a.node, "holder", held, "until", until)
	}
	at := position{node: a.node, rank: 1, blockerText: held + ", which disappeared", until: until}
	if !a.d.table.noteBehind(a.acquisition, at) {
		return ErrNotAcquired
	}
	a.waits(at)
	told := s.found.Delayed(until.UTC().Format(time.RFC3339))
	version, failed, err := s.writeData(a, told)
	switch {
	case err == nil:
		s.found, s.version = told, version
	case failed == 1 && errors.Is(err, zk.ErrNoAuth): // nor could we record our grant
		return reply.Denied(err, "set", "WRITE", root.path)
	case failed == 0 && errors.Is(err, zk.ErrNoNode):
		a.machine = a.machine.RecordWritten(queue.Absent)
	}
	return nil
}

// awaitDelay waits until the delay is over.
func (s *delayState) awaitDelay(a *attempt) error {
	for left := s.until.Sub(a.e.Clock.Now()); left > 0; left = s.until.Sub(a.e.Clock.Now()) {
		t := time.NewTimer(left)
		select {
		case <-t.C:
			continue
		case <-a.logNow:
			t.Stop()
			return nil
		case <-a.e.Ended():
			t.Stop()
			return a.e.EndErr()
		case <-a.ctx.Done():
			t.Stop()
			return link.ErrCtxEnded
		}
	}
	a.machine = a.machine.DelayOver()
	return nil
}

// writeRecord records the grant. From here on, to give up takes the record back as a release does.
func (s *delayState) writeRecord(a *attempt) error {
	root, w := a.d.root, &a.machine
	granted := s.found.Granted(nameOf(a.node))
	s.granted = nodes.GrantRecord{Root: root.path}
	version, failed, err := s.writeData(a, granted)
	switch {
	case err == nil:
		s.granted = nodes.GrantRecord{Root: root.path, Record: granted, Version: version, IsKnown: true}
	case errors.Is(err, zk.ErrBadVersion):
		*w = w.RecordWritten(queue.Unknown)
		return nil
	case failed == 0:
		err = reply.Denied(err, "check", "READ", a.node)
	default:
		err = reply.Denied(err, "set", "WRITE", root.path)
	}
	r, err := a.findingOf(err)
	if err == nil {
		*w = w.RecordWritten(r)
	}
	return err
}

// writeData writes the record, if our node is there and nobody has written since it was read. It returns the new version.
func (s *delayState) writeData(a *attempt, r queue.Record) (version int32, failed int, err error) {
	got, err := a.e.Ask(a.ctx, wire.OpMulti, wire.MultiRequest{Ops: []wire.MultiOp{
		{Op: wire.OpCheck, Path: a.node, Version: -1},
		{Op: wire.OpSetData, Path: a.d.root.path, Data: []byte(r), Version: s.version},
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
