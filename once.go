package zklock

// Work that is done once: the mark of it, in a node beside the lock root. What a holder does when is queue.Once's to say.

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/zklock/internal/lease"
	"github.com/zklock/zklock/internal/link"
	"github.com/zklock/zklock/internal/queue"
	"github.com/zklock/zklock/internal/reply"
	"github.com/zklock/zklock/internal/wire"
)

// ErrNotMarked: the function that Once called has succeeded, and it is not known to be marked: the next call may run it again. The error has
// the reason with it, ErrLost for one.
var ErrNotMarked = errors.New("the run succeeded, and is not marked as done")

const (
	defaultKeptRuns = 100
	mostKeptRuns    = 1000 // they fit into the default jute.maxbuffer, however long the keys are
)

// WithKeptRuns sets how many runs Once keeps as marked under this lock: 1 to 1,000; the default is
// 100. When more are marked, the oldest are dropped, which is logged at INFO, and a call with one
// of their keys runs again. So give more than the keys that may come again, and all clients of the
// lock the same number. Each call of Once reads them all, some 100 bytes a run.
func WithKeptRuns(n int) interface {
	MutexOption
	RWMutexOption
} {
	return lockOption(func(o *lockOptions) {
		if o.keptRuns = n; n < 1 || n > mostKeptRuns {
			o.wrong = fmt.Errorf("WithKeptRuns(%d): give 1 to %d, or leave the option out", n, mostKeptRuns)
		}
	})
}

// OnceRun is a run that Once has marked as done.
type OnceRun struct {
	Key   string    `json:"key"`
	By    string    `json:"by"` // who ran it: the data of the lock node, host:pid unless WithData gave another; 64 bytes of it at most
	At    time.Time `json:"at"` // when it had succeeded, by the clock there
	Token int64     `json:"token"`
}

// Once runs f under the lock, as Do does, if no run with that key has succeeded under it: on
// whatever host, however long ago, and whether the clocks agree or not. A key is a day, a version,
// the number of an order: 1 to 256 bytes of printable text. If the work is done, Once returns false
// and nil, and Runs says by whom and when; mostly that takes one read, and not the lock. ran says
// whether f was called. The options are those of Do: with WaitAtMost(0), ErrNotAcquired says that
// somebody holds the lock, and perhaps runs f now.
//
// Before Once calls f, it writes the mark as it is. If the servers reject that, because of an ACL,
// a quota or jute.maxbuffer, Once returns the error and does not call f.
//
// When f returns nil, and the lock was held until then, its key is marked as done. If it cannot be
// marked all the same, the error is ErrNotMarked. If f returns an error, nothing is marked, and the
// next call runs it again. So it does after a crash between the success of f and the mark: f runs
// at least once. Where it must not run twice, it writes the key in the transaction in which it does
// its work, as docs/fencing.md shows.
//
// The mark is the node PATH-done beside the lock root, with the ACL of WithACL. It has the last 100
// runs, or as many as WithKeptRuns says: what is older may run again, and so may all when somebody
// deletes the node or restores a backup. It stays, with the nodes above it, also if the lock root
// is a container. If the node has other data, Once returns an error, and does not touch it. An
// administrator may create the node empty, where the clients may not CREATE it.
//
// A call under a hold of this lock re-enters it, as with Do: one hold is enough for many keys.
// Goroutines that share it do not exclude each other here either, and may run one key twice. On a
// read lock, Once returns an error and does not call f, because readers hold the lock together: call
// it on [RWMutex.WriteLock].
func (m *Mutex) Once(ctx context.Context, key string, f func(ctx context.Context, hold *Hold) error, opts ...DoOption) (ran bool, err error) {
	switch {
	case !m.isMade():
		return false, &Error{Op: "once", Err: errNoMutex}
	case ctx == nil:
		err = errNilContext
	case f == nil:
		err = badArgument{errors.New("nil function: give Once the work")}
	case m.root.rule.IsShared():
		err = badArgument{errors.New("readers hold the lock together, and Once needs a lock that one caller holds alone: call it on WriteLock(), or on a Mutex")}
	case !queue.IsKey(key):
		err = badArgument{fmt.Errorf("key %q: give 1 to %d bytes of printable text, such as a day", key[:min(len(key), maxShown)], queue.MaxKey)}
	default:
		if isDone, err := m.isDone(ctx, key); isDone || err != nil {
			return false, err
		}
		err = m.Do(ctx, func(ctx context.Context, h *Hold) (err error) {
			o := &marking{h: h, mark: m.markPath(), key: key, kept: cmp.Or(m.opts.keptRuns, defaultKeptRuns), acl: m.opts.acl, by: m.opts.data}
			ran, err = o.markRun(ctx, f)
			return err
		}, opts...)
		return ran, err
	}
	return false, &Error{Op: "once", Path: m.root.given, Err: err}
}

// Runs returns the runs that Once has marked as done under this lock and that are kept
// (WithKeptRuns), in the order in which they were marked. While no server can be reached, Runs
// waits for one until ctx ends.
func (m *Mutex) Runs(ctx context.Context) (runs []OnceRun, err error) {
	if !m.isMade() {
		return nil, &Error{Op: "runs", Err: errNoMutex}
	}
	err = m.reading(ctx, "runs", func(e *zkSession) error {
		got, err := link.Await(ctx, e.ZKSession, e.startRead(m.markPath()))
		if err == nil {
			runs, err = runsIn(got, m.markPath())
		}
		return err
	})
	return runs, err
}

func (m *Mutex) markPath() string { return m.root.path + "-done" }

// isDone looks for the key without the lock. A mark that is there stays: so it does not matter how old the server is. If there is none, or
// none is seen within a heartbeat, that says nothing.
func (m *Mutex) isDone(ctx context.Context, key string) (bool, error) {
	z, _, _ := m.s.link.AttachedNow()
	if z == nil {
		return false, nil
	}
	t := time.NewTimer(lease.Heartbeat(z.Timeout()))
	defer t.Stop()
	select {
	case got := <-z.Inside.(*zkSession).startRead(m.markPath()):
		switch runs, err := runsIn(got, m.markPath()); {
		case err == nil:
			return has(runs, key), nil
		case got.err == nil || reply.IsRefusal(got.err):
			return false, &Error{Op: "once", Path: m.root.given, Err: err}
		}
	case <-t.C:
	case <-ctx.Done():
	}
	return false, nil
}

// errNoMark: the data is JSON, but no mark. The caller does not see it.
var errNoMark = errors.New("a run without a key, or more runs than a mark has")

// runsIn takes what was read of a mark: no runs if it is not there. Other data than ours is an
// error that stays. It stops at the first run that Once cannot have written: one of 2 bytes takes
// 72 bytes of memory.
func runsIn(got dataRead, mark string) (runs []OnceRun, err error) {
	if got.err != nil {
		return nil, ignoring(reply.Denied(got.err, "get", "READ", mark), zk.ErrNoNode)
	}
	d := json.NewDecoder(bytes.NewReader(got.data))
	d.DisallowUnknownFields()
	for err == nil {
		var r OnceRun
		switch err = d.Decode(&r); {
		case err == nil && (r.Key == "" || len(runs) == mostKeptRuns):
			err = errNoMark
		case err == nil:
			runs = append(runs, r)
		}
	}
	if err != io.EOF {
		return nil, badArgument{fmt.Errorf("%s has data of somebody else, %q, where Once keeps its runs: give the lock a path of its own, or remove the data",
			mark, got.data[:min(len(got.data), maxShown)])}
	}
	return runs, nil
}

func has(runs []OnceRun, key string) bool {
	return slices.ContainsFunc(runs, func(r OnceRun) bool { return r.Key == key })
}

// marking is a call of Once that has the lock.
type marking struct {
	h       *Hold
	mark    string
	key     string
	kept    int // how many runs the mark has at most
	acl     []zk.ACL
	by      []byte
	data    []byte    // of the mark, as it was read
	runs    []OnceRun // in it
	isThere bool      // the node exists, in this version
	version int32
	retry   link.Backoff
	hungUp  hangUps
}

// markRun does what the walk says, under the work's context.
func (o *marking) markRun(work context.Context, f func(ctx context.Context, hold *Hold) error) (ran bool, err error) {
	ctx, end := work, func() {}
	defer func() {
		if end(); !ran {
			unused(o.h)
		}
	}()
	for w := (queue.Once{}); ; {
		var found queue.Finding
		switch w.Next {
		case queue.OnceRead:
			found, err = o.read(ctx)
			w = w.Read(found)
		case queue.OnceProve:
			found, err = o.prove(ctx)
			w = w.Proved(found)
		case queue.OnceWork:
			if err = ctx.Err(); err == nil {
				ran = true // also if f does not return
				if err := f(work, o.h); err != nil {
					return true, err
				}
				err = o.h.Err()
				ctx, end = o.h.lasting(work)
			}
			w = w.Worked()
		case queue.OnceWrite:
			found, err = o.write(ctx)
			w = w.Wrote(found)
		case queue.OnceLost:
			err = o.lost()
		case queue.OnceDone:
			return false, nil
		case queue.OnceMarked:
			return true, nil
		}
		if err != nil {
			if lost := o.h.Err(); lost != nil {
				err = errors.Unwrap(lost)
			} else if ctx.Err() != nil {
				err = ctxError(work)
			}
			if ran {
				err = fmt.Errorf("%w: %w", ErrNotMarked, err)
			}
			return ran, o.h.d.errorf("once", err)
		}
	}
}

// lasting returns a context for what is left to do when the work is done: it ends with the hold, or a grace after ctx.
func (h *Hold) lasting(ctx context.Context) (context.Context, func()) {
	last, cancel := context.WithCancel(h.ctx)
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(grace, cancel) })
	return last, func() { stop(); cancel() }
}

// lost ends the hold, whose node does not exist.
func (o *marking) lost() error {
	d := o.h.d
	d.e.LoseNode(d.node, link.ErrNodeGone)
	return lostBecause(link.ErrNodeGone)
}

// read reads the mark.
func (o *marking) read(ctx context.Context) (queue.Finding, error) {
	e := o.h.d.e
	got, err := link.Await(ctx, e.ZKSession, e.startRead(o.mark))
	if err != nil {
		return queue.Unknown, err
	}
	runs, err := runsIn(got, o.mark)
	if got.err != nil && err != nil {
		return o.finding(ctx, -1, err)
	}
	o.data, o.runs, o.isThere, o.version = got.data, runs, got.err == nil, got.stat.Version
	if err == nil && !has(runs, o.key) {
		return queue.Absent, nil
	}
	return queue.Exists, err
}

// prove writes the mark as it was read, and a mark without runs if there is none. It adds as many
// spaces as the write of this run will need: so the servers reject a mark that is too long before
// the run, too.
func (o *marking) prove(ctx context.Context) (queue.Finding, error) {
	const latest = 999_999_999 // nanoseconds: of all times, these have the longest text
	data := bytes.TrimRight(o.data, " \n")
	if len(data) > 0 {
		data = append(data, '\n')
	}
	spaces := len(o.marked(time.Unix(0, latest))) - len(data) - 1
	data = append(append(data, bytes.Repeat([]byte(" "), max(0, spaces))...), '\n')
	return o.put(ctx, data)
}

// write marks the run as done.
func (o *marking) write(ctx context.Context) (queue.Finding, error) {
	found, err := o.put(ctx, o.marked(time.Now()))
	if dropped := o.dropped(); found == queue.Exists && len(dropped) > 0 {
		o.h.d.e.Log.Info("zklock: dropped the oldest runs that Once has marked; a call with one of their keys runs again",
			"path", o.h.d.root.shownPath(), "kept", o.kept, "dropped", len(dropped), "last", dropped[len(dropped)-1].Key)
	}
	return found, err
}

// dropped returns the runs that the mark has no room for when this one is marked.
func (o *marking) dropped() []OnceRun { return o.runs[:max(0, len(o.runs)+1-o.kept)] }

// marked returns the data of the mark with this run, which succeeded at that time.
func (o *marking) marked(at time.Time) []byte {
	now := OnceRun{o.key, shown(string(o.by[:min(len(o.by), maxShown)])), at.UTC(), o.h.Token()}
	var data bytes.Buffer
	lines := json.NewEncoder(&data)
	lines.SetEscapeHTML(false)
	for _, r := range append(o.runs[len(o.dropped()):], now) {
		_ = lines.Encode(r) // it has nothing that JSON has not
	}
	return data.Bytes()
}

// put writes the mark against what was read, in a transaction that checks the lock node.
func (o *marking) put(ctx context.Context, data []byte) (queue.Finding, error) {
	e, node := o.h.d.e, o.h.d.node
	op, request, permission, on := wire.MultiOp{Op: wire.OpSetData, Path: o.mark, Data: data, Version: o.version}, "set", "WRITE", o.mark
	if !o.isThere {
		op = wire.MultiOp{Op: wire.OpCreate, Path: o.mark, Create: wire.CreateRequest{Path: o.mark, Data: data, ACL: wireACL(o.acl), Flags: wire.FlagPersistent}}
		request, permission, on = "create", "CREATE", parentOf(o.mark)
	}
	check, failed := wire.MultiOp{Op: wire.OpCheck, Path: node, Version: -1}, -1
	a, err := e.Ask(ctx, wire.OpMulti, wire.MultiRequest{Ops: []wire.MultiOp{check, op}})
	if err == nil {
		failed, err = reply.ErrOfMulti(a, 2)
	}
	if refused := o.hungUp.count(a); refused != nil {
		return queue.Unknown, refused
	}
	switch {
	case err == nil && o.isThere:
		o.version++
	case err == nil:
		o.isThere, o.version = true, 0
	case failed == 1 && reply.IsAny(err, zk.ErrBadVersion, zk.ErrNodeExists, zk.ErrNoNode):
		// It has changed, perhaps by a request of ours.
		return queue.Unknown, e.PauseUnder(ctx, o.retry.Next())
	case failed == 0:
		request, permission, on = "check", "READ", node
	}
	return o.finding(ctx, failed, reply.Denied(err, request, permission, on))
}

// finding says what came of a request on the lock node, or on the mark alone. If the request says nothing, it pauses.
func (o *marking) finding(ctx context.Context, failed int, err error) (queue.Finding, error) {
	e := o.h.d.e
	switch {
	case err == nil:
		return queue.Exists, nil
	case failed == 0 && errors.Is(err, zk.ErrNoNode):
		return queue.Absent, nil
	case err == link.ErrCtxEnded, e.HasEnded(), errors.Is(err, ErrClosed), reply.IsRefusal(err):
		return queue.Unknown, err
	}
	return queue.Unknown, e.PauseUnder(ctx, o.retry.Next())
}
