package zklock

// Work that is done once. Its mark is in a node beside the lock root. queue.Once decides the steps
// of a holder.

import (
	"bytes"
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
	"github.com/zklock/zklock/internal/node"
	"github.com/zklock/zklock/internal/queue"
	"github.com/zklock/zklock/internal/reply"
	"github.com/zklock/zklock/internal/wire"
)

// ErrNotMarked: the function that Once called has succeeded, but perhaps was not marked as done, so
// the next call may run it again. The error wraps the reason.
var ErrNotMarked = errors.New("the run succeeded, and is not marked as done")

const mostKeptRuns = 1000 // they fit into the default jute.maxbuffer, whatever the lengths of their keys

// WithKeptRuns sets how many runs of this lock Once keeps as marked: 1 to 1,000; the default is
// 100. Once drops older runs, so they can run again, and logs that at INFO. All clients of the lock
// must give the same number.
func WithKeptRuns(n int) MutexOrRWMutexOption {
	return lockOption(func(o *lockOptions) {
		if o.keptRuns = n; n < 1 || n > mostKeptRuns {
			o.wrong = fmt.Errorf("WithKeptRuns(%d): give 1 to %d, or leave the option out", n, mostKeptRuns)
		}
	})
}

// OnceRun is a run that Once has marked as done.
type OnceRun struct {
	Key   string    `json:"key"`
	By    string    `json:"by"` // the data of the lock node, at most 64 bytes
	At    time.Time `json:"at"` // when it succeeded, by the clock of that host
	Token int64     `json:"token"`
}

// Once runs f under the lock, as Do does, unless a run with that key has succeeded under this lock,
// on any host. A key is 1 to 256 bytes of printable text, such as a day. If such a run has
// succeeded, Once returns false and nil, usually without taking the lock. ran reports whether f was
// called.
//
// When f returns nil while the lock is held, Once marks the key as done; if that fails, the error
// is [ErrNotMarked]. If f returns an error, or the process ends before the mark, the next call runs
// f again: f runs at least once. If it must not run twice, f writes the key in the transaction of
// its work (docs/fencing.md). If the servers do not permit the mark, Once returns the error before
// it calls f.
//
// The mark is the node PATH-done beside the lock root, with the ACL of [WithACL]. Once never
// deletes it. The node has the last 100 runs ([WithKeptRuns]). Older runs can run again, and so can
// all runs if the node is deleted. If the node has other data, Once returns an error.
//
// Goroutines that share an owner may run a key twice. On a read lock Once returns an error: use
// [RWMutex.WriteLock].
func (m *Mutex) Once(ctx context.Context, key string, f func(ctx context.Context, hold *Hold) error, opts ...DoOption) (ran bool, err error) {
	o, _ := newDoOptions(opts, true) // do returns the error
	switch {
	case !m.isMade():
		return false, &Error{Op: "once", Err: errNoMutex}
	case ctx == nil:
		err = errNilContext
	case f == nil:
		err = badArgument{errors.New("nil function: give Once the work")}
	case m.root.Rule().IsShared():
		err = badArgument{errors.New("readers hold the lock together, and Once needs a lock that one caller holds alone: call it on WriteLock(), or on a Mutex")}
	case !queue.IsKey(key):
		err = badArgument{fmt.Errorf("key %q: give 1 to %d bytes of printable text, such as a day", key[:min(len(key), node.MaxShown)], queue.MaxKey)}
	case o.async:
		err = badArgument{errors.New("AsyncRelease: the caller of Once has to learn of a loss, so Once waits for its release: leave the option out")}
	default:
		if isDone, err := m.isDone(ctx, key); isDone || err != nil {
			return false, err
		}
		p := &graceTime{ctx: ctx}
		err = m.do(p, func(ctx context.Context, h *Hold) (err error) {
			o := &marking{m: m, h: h, remaining: p.remaining, key: key}
			ran, err = o.markRun(ctx, f)
			return err
		}, opts)
		return ran, err
	}
	return false, &Error{Op: "once", Path: m.root.Given(), Err: err}
}

// Runs returns the runs that Once has marked as done and still keeps, the oldest first. Runs waits
// for a connection until ctx ends.
func (m *Mutex) Runs(ctx context.Context) (runs []OnceRun, err error) {
	if !m.isMade() {
		return nil, &Error{Op: "runs", Err: errNoMutex}
	}
	err = m.reading(ctx, "runs", func(e *node.ZKSession) error {
		got, err := link.Await(ctx, e.ZKSession, e.StartRead(m.markPath()))
		if err == nil {
			runs, err = runsIn(got, m.markPath())
		}
		return err
	})
	return runs, err
}

func (m *Mutex) markPath() string { return m.root.Path() + "-done" }

// isDone looks for the key without the lock. A key in the mark proves that its run is done, however
// far the server lags. A missing key, or no reply within a heartbeat, proves nothing.
func (m *Mutex) isDone(ctx context.Context, key string) (bool, error) {
	z, _, _ := m.s.link.AttachedNow()
	if z == nil {
		return false, nil
	}
	select {
	case got := <-z.Inside.(*node.ZKSession).StartRead(m.markPath()):
		switch runs, err := runsIn(got, m.markPath()); {
		case err == nil:
			return has(runs, key), nil
		case got.Err == nil || reply.IsRefusal(got.Err):
			return false, &Error{Op: "once", Path: m.root.Given(), Err: err}
		}
	case <-time.After(lease.Heartbeat(z.Timeout())):
	case <-ctx.Done():
	}
	return false, nil
}

// errNoMark: the data is JSON, but not a mark. The caller does not see this error.
var errNoMark = errors.New("a run without a key, or more runs than a mark has")

// runsIn decodes the reply to a read of the mark; without a node there are no runs. Other data is a
// final error. It stops at the first run that Once cannot have written, because a run of 2 bytes
// takes 72 bytes of memory.
func runsIn(got node.DataRead, mark string) (runs []OnceRun, err error) {
	if got.Err != nil {
		return nil, reply.Ignoring(reply.Denied(got.Err, "get", "READ", mark), zk.ErrNoNode)
	}
	d := json.NewDecoder(bytes.NewReader(got.Data))
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
		return nil, badArgument{fmt.Errorf("%s has data of another program, %q, where Once keeps its runs: give the lock a path of its own, or remove the data",
			mark, got.Data[:min(len(got.Data), node.MaxShown)])}
	}
	return runs, nil
}

func has(runs []OnceRun, key string) bool {
	return slices.ContainsFunc(runs, func(r OnceRun) bool { return r.Key == key })
}

// marking is a call of Once that has the lock.
type marking struct {
	m         *Mutex
	h         *Hold
	remaining func() time.Duration // how long the mark and the release have together after the end of the context
	key       string
	data      []byte    // of the mark, as it was read
	runs      []OnceRun // in the data
	isThere   bool      // the node exists, in this version
	version   int32
	retry     link.Backoff
	hungUp    link.HangUps
}

// markRun carries out the steps of queue.Once, under the work's context.
func (o *marking) markRun(work context.Context, f func(ctx context.Context, hold *Hold) error) (ran bool, err error) {
	ctx, end := work, func() {}
	defer func() {
		if end(); !ran {
			cancelMinHold(o.h)
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
			w = w.Wrote(found)
		case queue.OnceWork:
			if err = ctx.Err(); err == nil {
				ran = true // also if f does not return
				if err := f(work, o.h); err != nil {
					return true, err
				}
				err = o.h.Err()
				ctx, end = o.lasting(work)
			}
			w = w.Worked()
		case queue.OnceWrite:
			found, err = o.write(ctx)
			w = w.Wrote(found)
		case queue.OnceLost: // the node does not exist
			o.h.d.e.LoseNode(o.h.d.node, link.ErrNodeGone)
			err = lostBecause(link.ErrNodeGone)
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

// lasting returns a context for the steps after the work: it ends with the hold, or when the time
// after the end of ctx is over.
func (o *marking) lasting(ctx context.Context) (context.Context, func()) {
	last, cancel := context.WithCancel(o.h.ctx)
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(o.remaining(), cancel) })
	return last, func() { stop(); cancel() }
}

// read reads the mark.
func (o *marking) read(ctx context.Context) (queue.Finding, error) {
	e := o.h.d.e
	got, err := link.Await(ctx, e.ZKSession, e.StartRead(o.m.markPath()))
	if err != nil {
		return queue.Unknown, err
	}
	runs, err := runsIn(got, o.m.markPath())
	if got.Err != nil && err != nil {
		return o.finding(ctx, -1, err)
	}
	o.data, o.runs, o.isThere, o.version = got.Data, runs, got.Err == nil, got.Stat.Version
	if err == nil && !has(runs, o.key) {
		return queue.Absent, nil
	}
	return queue.Exists, err
}

// prove writes the mark as it was read, and a mark without runs if there is no node. It adds as
// many spaces as the mark of this run will need, so the servers reject a mark that is too long
// before the run.
func (o *marking) prove(ctx context.Context) (queue.Finding, error) {
	const latest = 999_999_999 // nanoseconds: no time has a longer text
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
			"path", o.h.d.root.ShownPath(), "kept", o.m.opts.keptRuns, "dropped", len(dropped), "last", dropped[len(dropped)-1].Key)
	}
	return found, err
}

// dropped returns the runs that do not fit into the mark with this one.
func (o *marking) dropped() []OnceRun { return o.runs[:max(0, len(o.runs)+1-o.m.opts.keptRuns)] }

// marked returns the data of the mark with this run, which succeeded at that time.
func (o *marking) marked(at time.Time) []byte {
	by := o.m.opts.data
	now := OnceRun{o.key, shown(string(by[:min(len(by), node.MaxShown)])), at.UTC(), o.h.Token()}
	var data bytes.Buffer
	lines := json.NewEncoder(&data)
	lines.SetEscapeHTML(false)
	for _, r := range append(o.runs[len(o.dropped()):], now) {
		_ = lines.Encode(r) // it has no value that JSON cannot represent
	}
	return data.Bytes()
}

// put writes the mark against the version that was read, in a transaction that checks the lock
// node.
func (o *marking) put(ctx context.Context, data []byte) (queue.Finding, error) {
	e, node, mark := o.h.d.e, o.h.d.node, o.m.markPath()
	op, request, permission, on := wire.MultiOp{Op: wire.OpSetData, Path: mark, Data: data, Version: o.version}, "set", "WRITE", mark
	if !o.isThere {
		op = wire.MultiOp{Op: wire.OpCreate, Path: mark, Create: wire.CreateRequest{Path: mark, Data: data, ACL: o.m.opts.acl, Flags: wire.FlagPersistent}}
		request, permission, on = "create", "CREATE", parentOf(mark)
	}
	check, failed := wire.MultiOp{Op: wire.OpCheck, Path: node, Version: -1}, -1
	a, err := e.Ask(ctx, wire.OpMulti, wire.MultiRequest{Ops: []wire.MultiOp{check, op}})
	if err == nil {
		failed, err = reply.ErrOfMulti(a, 2)
	}
	if refused := o.hungUp.Count(a); refused != nil {
		return queue.Unknown, refused
	}
	switch {
	case err == nil && o.isThere:
		o.version++
	case err == nil:
		o.isThere, o.version = true, 0
	case failed == 1 && reply.IsAny(err, zk.ErrBadVersion, zk.ErrNodeExists, zk.ErrNoNode):
		// Another client has changed it, or a request of ours.
		return queue.Unknown, e.PauseUnder(ctx, o.retry.Next())
	case failed == 0:
		request, permission, on = "check", "READ", node
	}
	return o.finding(ctx, failed, reply.Denied(err, request, permission, on))
}

// finding returns the result of a request on the lock node, or on the mark alone. If the result is
// not known, it pauses.
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
