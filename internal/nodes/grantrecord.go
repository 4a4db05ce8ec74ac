package nodes

import (
	"context"
	"errors"
	"path"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/zklock/internal/answer"
	"github.com/zklock/zklock/internal/link"
	"github.com/zklock/zklock/internal/queue"
	"github.com/zklock/zklock/internal/wire"
)

// GrantRecord is the record of a grant in the lock root's data (queue.Record), as its writer knows it. One transaction deletes the node and
// takes the record back: it stays if the node goes in any other way. Of a node that stays after its release, TakeBack does.
type GrantRecord struct {
	Root    string
	IsKnown bool // otherwise the fields below are to be read
	Record  queue.Record
	Version int32 // of the root's data
}

// toldWithin is how long the front may take to write until when it waits, and how far clocks may be apart.
const toldWithin = 5 * time.Second

// WaitsUntil says until when the front may be waiting for the lock-delay of a holder that the record names and that is gone. came is when
// it came to the front, or its node was made. A front that waits writes until when, at once. One without a lock-delay leaves the record as
// it is for as long as it holds: so it holds if it has written nothing, or if that time is past and the record still names the other.
func WaitsUntil(r queue.Record, came time.Time) time.Time {
	last := came
	if until, err := time.Parse(time.RFC3339, r.Word(queue.UntilWord)); err == nil && until.After(last) {
		last = until
	}
	return last.Add(toldWithin)
}

// readRecord reads the root's data, if it is not known. It returns false if it could not.
//
// The record may not be there: then the grant's write had no answer, or somebody else has written. The write may still come, as long as
// the node is there. So the node is deleted only if the data has not changed since.
func (x *Deletion) readRecord() bool {
	z, m := x.r.z, x.record
	if m == nil || m.IsKnown {
		return true
	}
	ctx := context.Background()
	if _, err := z.Ask(ctx, wire.OpSync, wire.PathRequest{Path: m.Root}); err != nil { // or a server that lags shows an old version again and again
		return z.IsOver() // the request says so
	}
	var root wire.DataResponse
	_, err := z.Read(ctx, wire.OpGetData, wire.PathWatchRequest{Path: m.Root}, &root)
	record, isOurs := queue.ParseRecord(root.Data)
	switch {
	case answer.IsRefusal(err), err == nil && !isOurs: // nothing of ours is there, or we may not look
		x.record = nil
	case err != nil:
		return z.IsOver()
	default:
		m.Record, m.Version, m.IsKnown = record, root.Stat.Version, true
	}
	return true
}

// markedRequest is request, and takes the record back.
func (x *Deletion) markedRequest(w *Waiter) (ops wire.MultiRequest) {
	if w != nil {
		ops.Ops = append(ops.Ops, wire.MultiOp{Op: wire.OpCheck, Path: w.Node, Version: -1})
	}
	ops.Ops = append(ops.Ops, wire.MultiOp{Op: wire.OpDelete, Path: x.node, Version: -1}, x.takesBack())
	return ops
}

// takesBack is the operation on the root's data.
func (x *Deletion) takesBack() wire.MultiOp {
	op := wire.MultiOp{Op: wire.OpCheck, Path: x.record.Root, Version: x.record.Version}
	if without, isChanged := x.record.Record.Released(path.Base(x.node)); isChanged {
		op.Op, op.Data = wire.OpSetData, []byte(without)
	}
	return op
}

// TakeBack is for a node that is released and stays. It asks for the node until the servers answer or the session is over, and takes the
// record back in the same transaction: from then on, the node may go in whatever way. The error is that of a check of the node.
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
			record.IsKnown = false // a write of it that had no answer may still come: the deletion looks
		}
		if err == nil || answer.IsRefusal(err) || r.z.IsOver() || !r.z.Pause(backoff.Next()) {
			return err
		}
	}
}

// recordFailed takes the error of the last operation, on the root's data. It returns whether to try again at once.
func (x *Deletion) recordFailed(err error) bool {
	switch {
	case errors.Is(err, zk.ErrBadVersion): // somebody has written another word
		x.record.IsKnown = false
		return true
	case answer.IsRefusal(err): // the lock must not stay for the record's sake
		x.r.z.Log.Error("zklock: the servers refuse to take the record of a grant back; the next holder waits for the lock-delay", "path", x.record.Root, "err", answer.Denied(err, "set", "WRITE", x.record.Root))
		x.record = nil
		return true
	}
	return false
}
