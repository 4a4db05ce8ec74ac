package node

import (
	"context"
	"errors"
	"path"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/zklock/internal/link"
	"github.com/zklock/zklock/internal/queue"
	"github.com/zklock/zklock/internal/reply"
	"github.com/zklock/zklock/internal/wire"
)

// GrantRecord is the record of a grant in the lock root's data (queue.Record), as last read or
// written by this session. One transaction deletes the node and removes the record, so the record
// remains if the node is deleted in any other way. For a node that stays after its release,
// TakeBack removes the record.
type GrantRecord struct {
	Root    string
	IsKnown bool // otherwise the fields below must be read
	Record  queue.Record
	Version int32 // of the root's data
}

// toldWithin is the time that the first in the queue may need to write until when it waits, plus
// the difference between two clocks.
const toldWithin = 5 * time.Second

// WaitsUntil returns until when the first node in the queue may be waiting for the lock-delay of a
// holder that the record names and that no longer exists. came is when the node became the first,
// or was created. A client that waits for the delay writes at once until when it waits. A client
// without a lock-delay does not change the record while it holds. So the first node holds if it has
// written nothing, or if that time has passed and the record still names the earlier holder.
func WaitsUntil(r queue.Record, came time.Time) time.Time {
	last := came
	if until, err := time.Parse(time.RFC3339, r.Word(queue.UntilWord)); err == nil && until.After(last) {
		last = until
	}
	return last.Add(toldWithin)
}

// readRecord reads the root's data, unless it is known. It returns false if that failed.
//
// The record may be missing: either the grant's write got no response, or another client has
// written since. The write can still arrive as long as the node exists. So the node is deleted only
// if the data has not changed since this read.
func (x *Deletion) readRecord() bool {
	z, m := x.r.z, x.record
	if m == nil || m.IsKnown {
		return true
	}
	ctx := context.Background()
	// Without a sync, a server that lags could show an old version again and again.
	if _, err := z.Ask(ctx, wire.OpSync, wire.PathRequest{Path: m.Root}); err != nil {
		return z.HasEnded() // the request returns the error
	}
	var root wire.DataResponse
	_, err := z.Read(ctx, wire.OpGetData, wire.PathWatchRequest{Path: m.Root}, &root)
	record, isOurs := queue.ParseRecord(root.Data)
	switch {
	case reply.IsRefusal(err), err == nil && !isOurs: // the record is not there, or we may not read it
		x.record = nil
	case err != nil:
		return z.HasEnded()
	default:
		m.Record, m.Version, m.IsKnown = record, root.Stat.Version, true
	}
	return true
}

// takesBack returns the operation on the root's data.
func (x *Deletion) takesBack() wire.MultiOp {
	op := wire.MultiOp{Op: wire.OpCheck, Path: x.record.Root, Version: x.record.Version}
	if without, isChanged := x.record.Record.Released(path.Base(x.node)); isChanged {
		op.Op, op.Data = wire.OpSetData, []byte(without)
	}
	return op
}

// TakeBack is for a node that is released and stays. It checks the node until the servers respond
// or the session ends, and removes the record in the same transaction: from then on the node may be
// deleted in any way. The error is the result of the check.
func (r *Reaper) TakeBack(node string, record *GrantRecord) error {
	x := &Deletion{r: r, node: node, record: record}
	for backoff := (link.Backoff{}); ; {
		err := zk.ErrConnectionClosed
		if x.readRecord() {
			ops := wire.MultiRequest{Ops: []wire.MultiOp{{Op: wire.OpCheck, Path: node, Version: -1}}}
			if x.record != nil {
				ops.Ops = append(ops.Ops, x.takesBack())
			}
			var failed int
			failed, err = r.z.Multi(context.Background(), ops, true)
			if failed == 1 && x.recordFailed(err) {
				continue
			}
		}
		if err == nil && record != nil {
			record.IsKnown = false // an unanswered write of the record may still arrive: the deletion reads it again
		}
		if err == nil || reply.IsRefusal(err) || r.z.HasEnded() || !r.z.Pause(backoff.Next()) {
			return err
		}
	}
}

// recordFailed handles the error of the last operation, on the root's data. It returns whether to
// try again at once.
func (x *Deletion) recordFailed(err error) bool {
	switch {
	case errors.Is(err, zk.ErrBadVersion): // another client has written another word
		x.record.IsKnown = false
		return true
	case reply.IsRefusal(err): // the record must not keep the lock from being released
		x.r.z.Log.Error("zklock: the servers reject the removal of a grant's record; the next holder waits for the lock-delay", "path", x.record.Root, "err", reply.Denied(err, "set", "WRITE", x.record.Root))
		x.record = nil
		return true
	}
	return false
}
