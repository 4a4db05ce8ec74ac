package mux

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/zklock/zklock/internal/clock"
	"github.com/zklock/zklock/internal/wire"
)

// traffic tracks the requests on a connection, ours and the client's, that have no reply yet, and
// the frames that are not written yet. It does no I/O.
type traffic struct {
	xids    *Xids
	toWrite chan struct{} // makes WriteRequests write; holds one, and is closed when the connection has ended

	mu struct {
		sync.Mutex
		shaken   bool          // the connect response has arrived
		closing  bool          // the client has closed the session: no request is sent after that
		closed   bool          // the connection has ended
		why      error         // why it ended or will end, if known
		watched  watchedPaths  // where the client may have set a watch
		patience time.Duration // how long a write may take, and the client waits for a frame

		pending map[int32]outstanding // unanswered, by xid
		pings   []clock.Instant       // pings share an xid and are answered in order
		known   [128]bool             // by wire.Op: the server has responded to such a request of ours
		waiting []*Request            // of ours, for capacity
		ours    load                  // of ours, unanswered
		unsent  []byte                // whole frames, to be written
		written []byte                // an empty buffer, for the next
		leaving []*Request            // of ours in unsent
		writing bool                  // a goroutine is writing

		heard clock.Instant // when bytes last arrived
		asked clock.Instant // when a request was last sent while no other was unanswered
	}
}

// outstanding is a request without a reply.
type outstanding struct {
	op   wire.Op
	at   clock.Instant
	ours *Request // nil if it is the client's
	size int      // of a request of the client, in bytes, without the length
}

// load is the load of a number of requests on the server and the network.
type load struct{ frames, bytes int }

// Servers throttle a client with many unanswered requests. They determine that from the xids, and
// do not count our requests. So we limit ours here.
const (
	mostFrames = 1000
	mostBytes  = 1 << 20
)

func (l load) hasRoom(bytes int) bool {
	return l.frames == 0 || l.frames < mostFrames && l.bytes+bytes <= mostBytes
}

func (t *traffic) isShaken() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.mu.shaken
}

// shake notes that the connect response has arrived. From then on the mux accepts our requests. The
// link sends none before the replies to the credentials.
func (t *traffic) shake(patience time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mu.shaken, t.mu.patience = true, patience
}

// pass appends a frame of the client to the frames to write, and reports whether the caller must
// write.
func (t *traffic) pass(f []byte, at clock.Instant) (write bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.mu.closed {
		return false
	}
	if body := f[4:]; len(body) >= 8 {
		d := wire.NewDecoder(body)
		var h wire.RequestHeader
		h.Decode(d)
		t.noteLocked(h.Xid, outstanding{op: h.Op, at: at, size: len(body)})
		t.mu.closing = t.mu.closing || h.Op == wire.OpClose
		t.mu.watched.note(h.Op, body, d)
	}
	t.mu.unsent = append(t.mu.unsent, f...)
	return t.beginWriteLocked()
}

// watchedPaths are the paths on which the client may have set a watch over this connection.
type watchedPaths struct {
	paths map[string]bool
	all   bool // any path: too many paths, or a request that is not decoded
}

// mostWatched bounds the memory of watchedPaths.
const mostWatched = 10_000

// note notes the watches that a request of the client may set. The last byte of a read decides. d
// has read the header.
func (w *watchedPaths) note(op wire.Op, body []byte, d *wire.Decoder) {
	var paths []string
	switch op {
	case wire.OpGetData, wire.OpExists, wire.OpGetChildren, wire.OpGetChildren2:
		if body[len(body)-1] != 0 {
			paths = []string{d.Text()}
		}
	case wire.OpSetWatches: // after a reconnect
		d.Int64()
		paths = slices.Concat(d.Strings(), d.Strings(), d.Strings())
	case wire.OpSetWatches2, wire.OpAddWatch:
		w.all = true
	}
	if w.paths == nil && len(paths) > 0 {
		w.paths = map[string]bool{}
	}
	for _, path := range paths {
		w.paths[path] = true
	}
	w.all = w.all || d.Err() != nil || len(w.paths) > mostWatched
}

// has reports whether the client may have a watch on the path.
func (w *watchedPaths) has(path string) bool { return w.all || w.paths[path] }

// isWatched reports whether the client may have a watch on the path.
func (t *traffic) isWatched(path string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.mu.watched.has(path)
}

// enqueue takes a request of ours. It returns false if this connection accepts no more requests.
func (t *traffic) enqueue(r *Request, now clock.Instant) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.mu.shaken || t.mu.closing || t.mu.closed {
		return false
	}
	if !r.Urgent && (len(t.mu.waiting) > 0 || !t.mu.ours.hasRoom(len(r.frame))) {
		t.mu.waiting = append(t.mu.waiting, r)
		return true
	}
	t.putLocked(r, now)
	return true
}

// putLocked appends a request of ours to the frames to write. It drops a request that would also
// remove a watch of the client, because servers keep one watch on a path for both. No caller waits
// for the reply to that.
func (t *traffic) putLocked(r *Request, now clock.Instant) {
	const header = 12 // the length, the xid and the op
	if r.op == wire.OpRemoveWatches && t.mu.watched.has(wire.NewDecoder(r.frame[header:]).Text()) {
		return
	}
	r.xid = t.xids.next()
	putXid(r.frame, r.xid)
	t.mu.ours.frames++
	t.mu.ours.bytes += len(r.frame)
	t.noteLocked(r.xid, outstanding{op: r.op, at: now, ours: r})
	t.mu.unsent = append(t.mu.unsent, r.frame...)
	t.mu.leaving = append(t.mu.leaving, r)
	if t.beginWriteLocked() {
		t.toWrite <- struct{}{} // does not block: only one goroutine at a time writes
	}
}

// noteLocked notes that a request is on its way.
func (t *traffic) noteLocked(xid int32, x outstanding) {
	if len(t.mu.pending)+len(t.mu.pings) == 0 {
		t.mu.asked = x.at
	}
	if xid == wire.XidPing {
		t.mu.pings = append(t.mu.pings, x.at)
	} else {
		t.mu.pending[xid] = x
	}
}

// beginWriteLocked reports whether the caller must write. One goroutine at a time writes for all.
func (t *traffic) beginWriteLocked() bool {
	if t.mu.writing || t.mu.closed {
		return false
	}
	t.mu.writing = true
	return true
}

// nextToWrite returns the next bytes to write, and takes back the buffer that was written before.
// If there are none, the caller stops writing.
func (t *traffic) nextToWrite(before []byte) (p []byte, patience time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if before != nil && cap(before) <= 64<<10 {
		t.mu.written = before[:0]
	}
	if p = t.mu.unsent; len(p) == 0 || t.mu.closed {
		t.mu.writing = false
		return nil, 0
	}
	for i, r := range t.mu.leaving {
		r.written = true
		t.mu.leaving[i] = nil
	}
	t.mu.unsent, t.mu.written, t.mu.leaving = t.mu.written[:0], nil, t.mu.leaving[:0]
	return p, t.mu.patience
}

// noteHeard notes that bytes arrived.
func (t *traffic) noteHeard(now clock.Instant) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mu.heard = now
}

// answered returns the request that the reply belongs to, and whether there is one. It gives the
// request's capacity to waiting requests.
func (t *traffic) answered(xid int32, now clock.Instant) (x outstanding, asked bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if x, asked = t.mu.pending[xid]; !asked {
		return x, false
	}
	delete(t.mu.pending, xid)
	if x.ours == nil {
		return x, true
	}
	t.mu.known[x.op] = true
	t.mu.ours.frames--
	t.mu.ours.bytes -= len(x.ours.frame)
	for len(t.mu.waiting) > 0 && t.mu.ours.hasRoom(len(t.mu.waiting[0].frame)) && !t.mu.closing {
		t.putLocked(t.mu.waiting[0], now)
		t.mu.waiting[0] = nil
		t.mu.waiting = t.mu.waiting[1:]
	}
	return x, true
}

// pinged handles the reply to the oldest ping, and returns when that ping was sent. It returns
// false if there was none.
func (t *traffic) pinged() (at clock.Instant, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.mu.pings) == 0 {
		return 0, false
	}
	at, t.mu.pings = t.mu.pings[0], t.mu.pings[1:]
	return at, true
}

// noteWhy notes why the connection ends. Only the first reason counts, because later ones follow
// from it.
func (t *traffic) noteWhy(why error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.mu.why == nil && !t.mu.closed {
		t.mu.why = why
	}
}

// Why returns why the connection has ended, or nil if the reason is unknown.
func (t *traffic) Why() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.mu.why
}

// Answers reports whether the server has replied to a request of that kind on this connection.
func (t *traffic) Answers(op wire.Op) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.mu.known[op]
}

// oldestLocked returns the kind of the oldest unanswered request. It returns 0 if that request is
// not ours, or if the server has replied to another of its kind. Servers reply in order, so a
// server that closes the connection because it does not know a request has replied to all requests
// before it.
func (t *traffic) oldestLocked() wire.Op {
	var oldest *Request
	for _, x := range t.mu.pending {
		if x.ours != nil && (oldest == nil || x.ours.xid > oldest.xid) {
			oldest = x.ours
		}
	}
	if oldest == nil || t.mu.known[oldest.op] {
		return 0
	}
	sent := t.mu.pending[oldest.xid].at
	for _, x := range t.mu.pending {
		if x.ours == nil && x.at < sent {
			return 0
		}
	}
	if len(t.mu.pings) > 0 && t.mu.pings[0] < sent {
		return 0
	}
	return oldest.op
}

// stop notes, once, that the connection has ended, and returns our requests that have no reply:
// first the requests that were sent, in that order, then the requests that waited for capacity.
func (t *traffic) stop(why error) (left []*Request, oldest wire.Op, first bool) {
	t.noteWhy(why)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.mu.closed {
		return nil, 0, false
	}
	t.mu.closed = true
	close(t.toWrite)
	oldest = t.oldestLocked()
	for _, x := range t.mu.pending {
		if x.ours != nil {
			left = append(left, x.ours)
		}
	}
	slices.SortFunc(left, func(a, b *Request) int { return cmp.Compare(b.xid, a.xid) })
	left = append(left, t.mu.waiting...)
	t.mu.waiting, t.mu.unsent, t.mu.leaving = nil, nil, nil
	clear(t.mu.pending)
	return left, oldest, true
}

// servesClient returns how long the client waits for a frame; ok is false if a ping of the client
// has been unanswered for twice that time.
func (t *traffic) servesClient(now clock.Instant) (patience time.Duration, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	patience = t.mu.patience
	return patience, len(t.mu.pings) == 0 || t.mu.pings[0] > now.Add(-2*patience)
}

// Silence returns since when the server has not sent a byte, since when it owes a reply, and
// whether it owes one.
func (t *traffic) Silence() (heard, asked clock.Instant, owes bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.mu.heard, t.mu.asked, t.mu.shaken && !t.mu.closed && len(t.mu.pending)+len(t.mu.pings) > 0
}
