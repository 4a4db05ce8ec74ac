// Package tap is the connection that the ZooKeeper client talks through, and what is sent over it between the client's frames.
package tap

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/zklock/zklock/internal/clock"
	"github.com/zklock/zklock/internal/lastzxid"
	"github.com/zklock/zklock/internal/wire"
)

// Sink is who a tap reports to. Its methods are called on the ZooKeeper client's goroutines, in the order of the
// frames in each direction: they must not block and must not call the client.
type Sink interface {
	// Connecting says what is to become of the client's connect request for a session.
	Connecting(t *Tap, session int64) Approach
	// Found reports that the session that was asked after is there.
	Found(t *Tap)
	// Ended reports what a server said of the end of a session, HungUp that it closed the connection instead.
	Ended(t *Tap, outcome string)
	HungUp(t *Tap)
	// Connected reports the connect response. An error refuses the connection.
	Connected(t *Tap, r Response, sent, answered clock.Instant) error
	// Credentials are sent first on every connection, before the client's own requests.
	Credentials() []wire.AuthRequest
	// Authenticated reports that the server took the last of them (OK), or refused one.
	Authenticated(t *Tap, code wire.Code)
	// Event reports that a watch of ours or of the client's has fired.
	Event(t *Tap, ev wire.WatcherEvent)
	// Answered reports an answer that shows that the server serves this session.
	Answered(t *Tap, sent, at clock.Instant)
	// Quorum reports that an operation sent at that time succeeded, which takes the leader and a majority.
	Quorum(t *Tap, sent clock.Instant)
	// Refused reports an error code that says that the session is over, or in trouble: in the answer to op.
	Refused(t *Tap, op wire.Op, code wire.Code)
	// Flush calls WriteOut, on a goroutine that may wait.
	Flush(t *Tap)
	// Disconnected reports, once, that nothing more comes from this connection.
	Disconnected(t *Tap)
}

// Approach is what the tap makes of the client's connect request.
type Approach int

const (
	Attach      Approach = iota // pass it on
	AskAfter                    // ask whether the session is there, as a client that has seen nothing, and go no further if it is
	EndIt                       // end the session, which we have given up, and tell the client that it expired
	SayItsEnded                 // tell the client that it expired, and the server nothing
)

// Response is the server's answer to the first frame of a connection; a session id of 0 says "expired".
type Response struct {
	Timeout   time.Duration
	SessionID int64
	Password  []byte
}

// Tap is the connection the ZooKeeper client talks through. It passes the client's frames on, and sends requests of ours
// between them, whose replies the client never sees. It notes what was sent when, what was answered, which session and
// timeout; it adds the credentials after the handshake, caps the handshake's time, for which the client itself has no useful
// limit, keeps the last zxid in the client's place, and answers the connect request of a session that was given up.
//
// The client writes a whole frame at a time, on one goroutine, and reads on another. Whoever finds nobody writing writes
// for all: the client for itself, a goroutine of the Session's for us.
type Tap struct {
	net.Conn
	raw      net.Conn // the same without TLS
	sink     Sink
	clock    *clock.Clock
	zxids    *lastzxid.Conn
	xids     *Xids
	Seq      uint64    // which connection of the Session this is
	deadline time.Time // until when the handshake must be done

	// Of the goroutine that reads; before the handshake is done, the client has one for both.
	in       wire.Stream
	now      clock.Instant // when bytes last came: what they answer was answered by then
	toClient []byte        // of the last frame, what the client has not read
	approach Approach

	out wire.Stream // what the client wrote, of the goroutine that writes

	mu struct {
		sync.Mutex
		opened      bool          // the connect request is out
		connectSent clock.Instant // when
		shaken      bool          // the connect response is in
		closing     bool          // the client has asked for the end of the session: nothing goes after that
		closed      bool
		auths       int           // credentials not answered yet
		patience    time.Duration // how long a write may take, and the client waits for a frame

		pending map[int32]outstanding // unanswered, by xid
		pings   []clock.Instant       // pings share an xid and are answered in order
		waiting []*Request            // of ours, for room
		ours    load                  // of ours, unanswered
		unsent  []byte                // whole frames, to be written
		written []byte                // an empty buffer, for the next
		leaving []*Request            // of ours in unsent
		writing bool                  // somebody writes

		heard  clock.Instant // when bytes last came
		prompt time.Duration // the shortest time that an answer took; 0 if there was none
		asked  clock.Instant // when a request was last sent with none before it unanswered
	}
}

// outstanding is a request that is not answered yet.
type outstanding struct {
	op   wire.Op
	at   clock.Instant
	ours *Request // nil if it is the client's
}

// load is what a number of requests put on the server and the network.
type load struct{ frames, bytes int }

// Servers hold clients up that have many requests unanswered, by their xids, and do not see ours. So we bound them ourselves.
const (
	mostFrames = 1000
	mostBytes  = 1 << 20
)

func (l load) hasRoom(bytes int) bool {
	return l.frames == 0 || l.frames < mostFrames && l.bytes+bytes <= mostBytes
}

// MaxReply is the longest frame that a server's answer may be, as for the client.
const MaxReply = 64 << 20

// New returns the tap of a connection that has just been made; raw is the same without TLS. The sink hears of all that happens.
// seq is the number of the connection in its Session. The handshake must be done by handshakeDeadline.
func New(c, raw net.Conn, sink Sink, clk *clock.Clock, zxids *lastzxid.Conn, xids *Xids, seq uint64, handshakeDeadline time.Time) *Tap {
	t := &Tap{Conn: c, raw: raw, sink: sink, clock: clk, zxids: zxids, xids: xids, Seq: seq, deadline: handshakeDeadline}
	t.in.Limit = MaxReply
	t.mu.patience = time.Until(handshakeDeadline)
	t.mu.pending = make(map[int32]outstanding)
	if l, ok := raw.(interface{ SetLinger(sec int) error }); ok {
		// What is still in the socket when it is closed must not arrive later: it would touch a session that we have given
		// up, or make a node in it.
		_ = l.SetLinger(0)
	}
	_ = c.SetDeadline(handshakeDeadline)
	return t
}

// Before returns the last zxid that was seen when the connection was opened.
func (t *Tap) Before() int64 { return t.zxids.Before() }

func (t *Tap) isShaken() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.mu.shaken
}

// SetReadDeadline keeps the client from waiting for the handshake longer than we allow.
func (t *Tap) SetReadDeadline(d time.Time) error {
	if !t.isShaken() && (d.IsZero() || d.After(t.deadline)) {
		d = t.deadline
	}
	return t.Conn.SetReadDeadline(d)
}

// SetWriteDeadline does nothing: the tap has limits of its own, and the client would take them away after each frame.
func (t *Tap) SetWriteDeadline(time.Time) error { return nil }

// Write takes frames of the client's. Their time is noted before they go out: a lease is anchored at send times, and too
// early is the safe side.
//
// It hides a failure from the client, which hears of the end when it reads. Told here, the client answers the request
// once for the failed write and once more when it clears away what the connection left unanswered; a request that was
// made while the client was closed has then been answered three times, into a channel with room for two and with nobody
// at its other end. The client stands still for ever, and Close with it (I6).
func (t *Tap) Write(p []byte) (int, error) {
	at := t.clock.Now()
	t.out.Add(p)
	for {
		f, err := t.out.Next()
		switch {
		case err != nil:
		case f == nil:
			return len(p), nil
		case !t.opened():
			err = t.open(f, at)
		default:
			if t.pass(f, at) {
				t.WriteOut()
			}
		}
		if err != nil {
			t.Cut()
			return len(p), nil
		}
	}
}

func (t *Tap) opened() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.mu.opened
}

// pass puts a frame of the client's among what is to be written, and says whether the caller is to write.
func (t *Tap) pass(f []byte, at clock.Instant) (write bool) {
	body := f[4:]
	t.zxids.Request(body)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.mu.closed {
		return false
	}
	if len(body) >= 8 {
		d := wire.NewDecoder(body)
		var h wire.RequestHeader
		h.Decode(d)
		t.noteLocked(h.Xid, outstanding{op: h.Op, at: at})
		t.mu.closing = t.mu.closing || h.Op == wire.OpClose
	}
	t.mu.unsent = append(t.mu.unsent, f...)
	return t.beginWriteLocked()
}

// Enqueue takes a request of ours, and returns false if nothing more goes over this connection. If write is set, the caller
// is to call WriteOut, on a goroutine that may wait.
func (t *Tap) Enqueue(r *Request) (ok, write bool) {
	now := t.clock.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.mu.shaken || t.mu.closing || t.mu.closed {
		return false, false
	}
	if !r.Urgent && (len(t.mu.waiting) > 0 || !t.mu.ours.hasRoom(len(r.frame))) {
		t.mu.waiting = append(t.mu.waiting, r)
		return true, false
	}
	t.putLocked(r, now)
	return true, t.beginWriteLocked()
}

func (t *Tap) putLocked(r *Request, now clock.Instant) {
	r.xid = t.xids.next()
	putXid(r.frame, r.xid)
	t.mu.ours.frames++
	t.mu.ours.bytes += len(r.frame)
	t.noteLocked(r.xid, outstanding{r.op, now, r})
	t.mu.unsent = append(t.mu.unsent, r.frame...)
	t.mu.leaving = append(t.mu.leaving, r)
}

// noteLocked notes that a request is on its way.
func (t *Tap) noteLocked(xid int32, x outstanding) {
	if len(t.mu.pending)+len(t.mu.pings) == 0 {
		t.mu.asked = x.at
	}
	if xid == wire.XidPing {
		t.mu.pings = append(t.mu.pings, x.at)
	} else {
		t.mu.pending[xid] = x
	}
}

// answeredLocked takes a request of ours from what is outstanding, and those that waited for its room along.
func (t *Tap) answeredLocked(r *Request, now clock.Instant) (write bool) {
	t.mu.ours.frames--
	t.mu.ours.bytes -= len(r.frame)
	for len(t.mu.waiting) > 0 && t.mu.ours.hasRoom(len(t.mu.waiting[0].frame)) && !t.mu.closing {
		t.putLocked(t.mu.waiting[0], now)
		t.mu.waiting[0] = nil
		t.mu.waiting = t.mu.waiting[1:]
		write = true
	}
	return write && t.beginWriteLocked()
}

func (t *Tap) beginWriteLocked() bool {
	if t.mu.writing || t.mu.closed {
		return false
	}
	t.mu.writing = true
	return true
}

// writePiece is what a slow network must take within the time that a write may take.
const writePiece = 64 << 10

// WriteOut writes until there is nothing more to be written.
func (t *Tap) WriteOut() {
	for {
		t.mu.Lock()
		p, patience := t.mu.unsent, t.mu.patience
		if len(p) == 0 || t.mu.closed {
			t.mu.writing = false
			t.mu.Unlock()
			return
		}
		for i, r := range t.mu.leaving {
			r.written = true
			t.mu.leaving[i] = nil
		}
		t.mu.unsent, t.mu.written, t.mu.leaving = t.mu.written[:0], nil, t.mu.leaving[:0]
		t.mu.Unlock()
		for left := p; len(left) > 0; {
			n := min(len(left), writePiece)
			_ = t.Conn.SetWriteDeadline(time.Now().Add(patience))
			if _, err := t.Conn.Write(left[:n]); err != nil {
				t.Cut() // a part of a frame may be out
				return
			}
			left = left[n:]
		}
		t.mu.Lock()
		if t.mu.written = p[:0]; cap(p) > 64<<10 {
			t.mu.written = nil
		}
		t.mu.Unlock()
	}
}

// open handles the client's connect request. What it sends in its place, to ask after a session or to end it, comes from a
// client that has seen nothing, so that no server is too far behind to answer.
func (t *Tap) open(f []byte, at clock.Instant) error {
	var r wire.ConnectRequest
	d := wire.NewDecoder(f[4:])
	if r.Decode(d); d.Err() != nil {
		return fmt.Errorf("zklock: the client's connect request: %w", d.Err())
	}
	t.approach = t.sink.Connecting(t, r.SessionID)
	t.mu.Lock()
	t.mu.opened, t.mu.connectSent = true, at
	t.mu.Unlock()
	switch t.approach {
	case Attach:
		t.zxids.ConnectRequest(f[4:])
	case AskAfter, EndIt:
		r.LastZxidSeen = 0
		f = wire.Frame(r)
	case SayItsEnded:
		t.in.Add(expiredAnswer())
		return nil
	}
	_, err := t.Conn.Write(f)
	return err
}

// endSession ends the session that the server has been asked to attach. Without an answer, the client may try the next server. Once
// a server has said anything of the end, nothing of ours touches the session again: the client is told that it expired.
func (t *Tap) endSession() error {
	unconfirmed := func(err error) error { return fmt.Errorf("zklock: ending the given-up session: %w", err) }
	var r wire.ConnectResponse
	if err := t.readInto(&r); err != nil {
		return unconfirmed(err)
	}
	outcome := "it was gone"
	if r.SessionID != 0 {
		var err error
		if outcome, err = t.askForTheEnd(); err != nil {
			if late := net.Error(nil); !errors.As(err, &late) || !late.Timeout() {
				t.sink.HungUp(t)
			}
			return unconfirmed(err)
		}
	}
	t.approach, t.in = SayItsEnded, wire.Stream{} // what else the server said is nobody's
	t.in.Add(expiredAnswer())
	t.sink.Ended(t, outcome)
	return nil
}

func (t *Tap) askForTheEnd() (outcome string, err error) {
	const xidClose = 1 // the connection does nothing else
	var out []byte
	for _, c := range t.sink.Credentials() {
		out = append(out, authFrame(c)...)
	}
	if _, err := t.Conn.Write(append(out, wire.Frame(wire.RequestHeader{Xid: xidClose, Op: wire.OpClose})...)); err != nil {
		return "", err
	}
	for {
		var h wire.ReplyHeader
		if err := t.readInto(&h); err != nil {
			if errors.Is(err, wire.ErrMalformed) {
				continue
			}
			return "", err
		}
		switch {
		case h.Err != wire.OK && (h.Xid == xidClose || h.Xid == wire.XidAuth):
			return fmt.Sprintf("refused with code %d: it expires by itself", h.Err), nil
		case h.Xid == xidClose:
			return "ended", nil
		}
	}
}

// readInto reads a frame that the client is not to see.
func (t *Tap) readInto(into interface{ Decode(*wire.Decoder) }) error {
	f, err := t.next()
	if err != nil {
		return err
	}
	d := wire.NewDecoder(f[4:])
	into.Decode(d)
	return d.Err()
}

// next reads a frame.
func (t *Tap) next() ([]byte, error) {
	for {
		if f, err := t.in.Next(); f != nil || err != nil {
			return f, err
		}
		n, err := t.in.Fill(t.Conn)
		if n > 0 {
			t.noteHeard()
		} else if err != nil {
			return nil, err
		}
	}
}

// Read gives the client what is for it, and handles each frame before the client sees any of it.
func (t *Tap) Read(p []byte) (int, error) {
	if t.approach == EndIt {
		if err := t.endSession(); err != nil {
			t.end()
			return 0, err
		}
	}
	for len(t.toClient) == 0 {
		f, err := t.next()
		if err == nil {
			t.toClient, err = t.received(f)
		}
		if err == nil && len(t.toClient) == 0 {
			err = t.beenPatient()
		}
		if err != nil {
			t.end()
			_ = t.Conn.Close()
			return 0, err
		}
	}
	n := copy(p, t.toClient)
	t.toClient = t.toClient[n:]
	return n, nil
}

// beenPatient begins the time anew that the client gives the server for a frame: one has come, which the client will not see.
// It does not if a ping of the client's has gone unanswered for twice that time: a server that answers only us is left.
func (t *Tap) beenPatient() error {
	now := t.clock.Now()
	t.mu.Lock()
	patience := t.mu.patience
	served := len(t.mu.pings) == 0 || t.mu.pings[0] > now.Add(-2*patience)
	t.mu.Unlock()
	if !served {
		return nil
	}
	return t.Conn.SetReadDeadline(time.Now().Add(patience))
}

// Close closes the connection; the sink hears of it once.
func (t *Tap) Close() error {
	err := t.Conn.Close()
	t.end()
	return err
}

func (t *Tap) noteHeard() {
	t.now = t.clock.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mu.heard = t.now
}

// Outstanding returns what the tap remembers: requests that are not answered, those of them that are ours, pings, and requests
// that wait for room.
func (t *Tap) Outstanding() (unanswered, ours, pings, waiting int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.mu.pending), t.mu.ours.frames, len(t.mu.pings), len(t.mu.waiting)
}

// Silence tells since when the server has not sent a byte, and since when it owes an answer, if it owes one.
func (t *Tap) Silence() (heard, asked clock.Instant, owes bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.mu.heard, t.mu.asked, t.mu.shaken && !t.mu.closed && len(t.mu.pending)+len(t.mu.pings) > 0
}

// AnswersWithin says whether the server has answered a request on this connection in less than d.
func (t *Tap) AnswersWithin(d time.Duration) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.mu.prompt > 0 && t.mu.prompt < d
}

// Cut closes the connection without a word, and without the wait that a TLS goodbye can take.
func (t *Tap) Cut() {
	_ = t.raw.Close()
	t.end()
}

// end tells, once, that nothing more comes, and what became of our requests.
func (t *Tap) end() {
	t.mu.Lock()
	if t.mu.closed {
		t.mu.Unlock()
		return
	}
	t.mu.closed = true
	left := t.mu.waiting
	for _, x := range t.mu.pending {
		if x.ours != nil {
			left = append(left, x.ours)
		}
	}
	t.mu.waiting, t.mu.unsent, t.mu.leaving = nil, nil, nil
	clear(t.mu.pending)
	t.mu.Unlock()
	t.sink.Disconnected(t)
	slices.SortFunc(left, func(a, b *Request) int { return cmp.Compare(b.xid, a.xid) })
	for _, r := range left {
		a := Answer{Fate: NeverSent, Conn: t.Seq}
		if r.written {
			a.Fate = NoAnswer
		}
		r.Done(a)
	}
}

// received handles a frame from the server, and returns what the client is to see of it.
func (t *Tap) received(f []byte) ([]byte, error) {
	body := f[4:]
	if !t.isShaken() {
		t.zxids.ConnectResponse(body)
		return f, t.handshake(body)
	}
	d := wire.NewDecoder(body)
	var h wire.ReplyHeader
	if h.Decode(d); d.Err() != nil {
		return nil, fmt.Errorf("zklock: a reply of %d bytes has no header", len(body))
	}
	if isOurs(h.Xid) {
		t.zxids.Hidden(h.Zxid)
	} else {
		t.zxids.Reply(body)
	}
	now := t.now
	switch h.Xid {
	case wire.XidEvent: // sent by the server on its own account: no sign that it heard us
		var ev wire.WatcherEvent
		if ev.Decode(d); d.Err() == nil {
			t.sink.Event(t, ev)
		}
		return f, nil
	case wire.XidAuth:
		t.authReply(h.Err)
		return nil, nil
	case wire.XidPing:
		t.pingReply(h.Err, now)
		return f, nil
	}

	t.mu.Lock()
	x, asked := t.mu.pending[h.Xid]
	delete(t.mu.pending, h.Xid)
	if took := max(now.Sub(x.at), 1); asked && (t.mu.prompt == 0 || took < t.mu.prompt) {
		t.mu.prompt = took
	}
	write := x.ours != nil && t.answeredLocked(x.ours, now)
	t.mu.Unlock()
	switch {
	case !asked && isOurs(h.Xid):
		return nil, fmt.Errorf("zklock: the server answered request %d, which was not made", h.Xid)
	case !asked:
		return f, nil
	}
	t.judge(x, h, d.Rest(), now)
	if x.ours == nil {
		return f, nil
	}
	if write {
		t.sink.Flush(t)
	}
	a := Answer{Fate: WasAnswered, Conn: t.Seq, Zxid: h.Zxid, Code: h.Err}
	if h.Err == wire.OK {
		a.Body = d.Rest()
	}
	x.ours.Done(a)
	return nil, nil
}

// judge reports what an answer says of the session.
func (t *Tap) judge(x outstanding, h wire.ReplyHeader, body []byte, now clock.Instant) {
	switch {
	case x.op == wire.OpAuth:
		return
	case h.Err == wire.SessionExpired:
		t.sink.Refused(t, x.op, h.Err)
		return
	case h.Err == wire.SessionMoved:
		return // another connection has the session; this server says nothing about its life
	}
	t.sink.Answered(t, x.at, now)
	if h.Err != wire.OK {
		return
	}
	switch x.op {
	case wire.OpCreate, wire.OpDelete, wire.OpSetData:
		t.sink.Quorum(t, x.at)
	case wire.OpMulti:
		// A failed multi has a clean header and begins with an error result, an empty one with the end mark:
		// both have type −1, and neither proves anything.
		if first := wire.NewDecoder(body); first.Int32() != int32(wire.OpError) && first.Err() == nil {
			t.sink.Quorum(t, x.at)
		}
	}
}

func (t *Tap) pingReply(code wire.Code, now clock.Instant) {
	t.mu.Lock()
	var at clock.Instant
	ok := len(t.mu.pings) > 0
	if ok {
		at, t.mu.pings = t.mu.pings[0], t.mu.pings[1:]
	}
	t.mu.Unlock()
	switch {
	case code != wire.OK:
		t.sink.Refused(t, wire.OpPing, code)
	case ok:
		t.sink.Answered(t, at, now)
	}
}

// handshake reads the connect response and puts the credentials on the wire, before the client can send anything.
// Its own way of doing that (AddAuth) can block it for ever when a write fails while it authenticates again.
func (t *Tap) handshake(body []byte) error {
	var w wire.ConnectResponse
	d := wire.NewDecoder(body)
	if w.Decode(d); d.Err() != nil {
		return errors.New("zklock: the connect response is too short")
	}
	if w.SessionID != 0 && w.Timeout <= 0 { // of which the client would die
		return fmt.Errorf("zklock: the server granted a session timeout of %d ms", w.Timeout)
	}
	r := Response{time.Duration(w.Timeout) * time.Millisecond, w.SessionID, w.Password}
	creds := t.sink.Credentials()
	if t.approach == AskAfter && r.SessionID != 0 {
		t.sink.Found(t)
		return errors.New("zklock: the session was asked after, and is there")
	}
	t.mu.Lock()
	t.mu.shaken = true
	t.mu.auths = len(creds)
	t.mu.patience = r.Timeout * 2 / 3 // as the client's
	sent, now := t.mu.connectSent, t.clock.Now()
	t.mu.Unlock()
	if err := t.sink.Connected(t, r, sent, now); err != nil {
		return err
	}
	if r.SessionID == 0 {
		return nil
	}
	for _, c := range creds {
		if _, err := t.Conn.Write(authFrame(c)); err != nil {
			return fmt.Errorf("zklock: sending credentials: %w", err)
		}
	}
	_ = t.Conn.SetDeadline(time.Time{})
	if len(creds) == 0 {
		t.sink.Authenticated(t, wire.OK)
	}
	return nil
}

func (t *Tap) authReply(code wire.Code) {
	if code != wire.OK {
		t.sink.Authenticated(t, code)
		return
	}
	t.mu.Lock()
	t.mu.auths--
	last := t.mu.auths == 0
	t.mu.Unlock()
	if last {
		t.sink.Authenticated(t, wire.OK)
	}
}

// authFrame is an auth request with the xid that the protocol reserves for it.
func authFrame(c wire.AuthRequest) []byte {
	return wire.Frame(wire.RequestHeader{Xid: wire.XidAuth, Op: wire.OpAuth}, c)
}

// expiredAnswer is the connect response by which a server says that the session is over.
func expiredAnswer() []byte { return wire.Frame(wire.ConnectResponse{Password: make([]byte, 16)}) }
