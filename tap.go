package zklock

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// Opcodes and reserved xids of the ZooKeeper protocol that the tap must tell apart.
const (
	opCreate       = 1
	opDelete       = 2
	opExists       = 3
	opGetData      = 4
	opSetData      = 5
	opGetChildren  = 8
	opGetChildren2 = 12
	opMulti        = 14
	opAuth         = 100
	opWatches      = 101 // setWatches, by which the client restores its watches on a new connection
	opClose        = -11

	xidEvent = -1
	xidPing  = -2
	xidAuth  = -4
	xidClose = 1 // of our own, on a connection that does nothing else

	eventCreated, eventDeleted, eventDataChanged, eventChildrenChanged = 1, 2, 3, 4

	codeNoNode         = -101
	codeSessionExpired = -112
	codeSessionMoved   = -118
)

// tapSink is who a tap reports to. Its methods are called on the ZooKeeper client's goroutines, in the order of the
// frames in each direction: they must not block and must not call the client.
type tapSink interface {
	// connecting says what is to become of the client's connect request for a session.
	connecting(t *tap, session int64) approach
	// found reports that the session that was asked after is there.
	found(t *tap)
	// ended reports what a server said of the end of a session, hungUp that it closed the connection instead.
	ended(t *tap, outcome string)
	hungUp(t *tap)
	// connected reports the connect response. An error refuses the connection.
	connected(t *tap, r connectResponse, exchange frame) error
	// credentials are sent first on every connection, before the client's own requests.
	credentials() []credential
	// authenticated reports that the server answered the last of them, or refused one.
	authenticated(t *tap, err error)
	// watched reports that the client has a watch from now on, unwatched that an event has taken all of those kinds on a
	// path away.
	watched(path string, kind watchKind)
	unwatched(path string, kinds ...watchKind)
	// watchesSent reports that the client is restoring its watches.
	watchesSent(t *tap)
	// creation returns what to note of the create whose path this is, or nil.
	creation(path string) *sighting
	// answered reports an answer that shows that the server serves this session.
	answered(t *tap, f frame)
	// quorum reports that an operation sent at that time succeeded, which takes the leader and a majority.
	quorum(t *tap, sent instant)
	// refused reports an error code that says that the session is over, or in trouble.
	refused(t *tap, err error)
	// disconnected reports, once, that nothing more comes from this connection.
	disconnected(t *tap)
}

// watchKind tells the client's three tables of watches apart.
type watchKind byte

const (
	dataWatch watchKind = iota
	existWatch
	childWatch
)

// approach is what the tap makes of the client's connect request.
type approach int

const (
	attach      approach = iota // pass it on
	askAfter                    // ask whether the session is there, as a client that has seen nothing, and go no further if it is
	endIt                       // end the session, which we have given up, and tell the client that it expired
	sayItsEnded                 // tell the client that it expired, and the server nothing
)

// connectRequest is what the tap must know of the first frame of a connection.
type connectRequest struct {
	timeout   uint32 // ms
	sessionID int64
	password  string
}

// connectResponse is the server's answer to the first frame of a connection; a session id of 0 says "expired".
type connectResponse struct {
	timeout   time.Duration
	sessionID int64
	password  secret
}

// sighting is what the tap sees of one create: that it left, and the zxid of its answer.
type sighting struct {
	meant int64         // the session it is for, and leaves in
	left  chan struct{} // closed when the frame is on its way

	mu struct {
		sync.Mutex
		left bool
		zxid int64 // of the successful answer: the node's czxid
	}
}

func newSighting(session int64) *sighting {
	return &sighting{meant: session, left: make(chan struct{})}
}

// errOtherSession says that the client had kept a create for a session that is over, and was about to send it in this one.
// There it would stand in the queue before the node that its owner makes now (I2): the connection is given up instead.
var errOtherSession = errors.New("zklock: a create of an earlier session")

func (s *sighting) noteLeft() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.mu.left {
		s.mu.left = true
		close(s.left)
	}
}

func (s *sighting) noteAnswer(zxid int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.zxid = zxid
}

func (s *sighting) seen() (left bool, zxid int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.left, s.mu.zxid
}

// tap is the connection the ZooKeeper client talks through. It passes bytes on unchanged, but for a create that comes in
// another session than it is meant for, and for the connect request of a session that was given up; and it reads the frames'
// heads: what was sent when, what was answered, which zxid, which session and timeout. It adds the credentials after the
// handshake, and caps the handshake's time, for which the client itself has no useful limit.
type tap struct {
	net.Conn
	raw      net.Conn // the same without TLS
	sink     tapSink
	clock    *clock
	seq      uint64    // which connection of the Session this is
	deadline time.Time // until when the handshake must be done

	out, in splitter // each used by one goroutine at a time

	// Of the handshake, which one goroutine of the client's does, before it starts the two that write and read.
	opening  []byte // the connect request as far as it is written
	approach approach
	instead  []byte // what the client reads in place of the server's answer

	mu struct {
		sync.Mutex
		session     int64   // 0 until connected
		opened      bool    // the connect request is out
		connectSent instant // when
		shaken      bool    // the connect response is in
		pending     map[int32]sentRequest
		pings       []instant // pings share an xid and are answered in order
		auths       int       // credentials not answered yet
		closed      bool
		heard       instant       // when bytes last came
		prompt      time.Duration // the shortest time that an answer took; 0 if there was none
		asked       instant       // when a request was last sent with none before it unanswered
	}
}

type sentRequest struct {
	op     int32
	at     instant
	create *sighting
	watch  string // the path, if the request sets a watch
}

func newTap(c, raw net.Conn, sink tapSink, clk *clock, seq uint64, handshakeDeadline time.Time) *tap {
	t := &tap{Conn: c, raw: raw, sink: sink, clock: clk, seq: seq, deadline: handshakeDeadline}
	t.mu.pending = make(map[int32]sentRequest)
	if l, ok := raw.(interface{ SetLinger(sec int) error }); ok {
		// What is still in the socket when it is closed must not arrive later: it would touch a session that we have given
		// up, or make a node in it.
		_ = l.SetLinger(0)
	}
	_ = c.SetDeadline(handshakeDeadline)
	return t
}

func (t *tap) shaken() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.mu.shaken
}

// cap keeps the client from waiting for the handshake longer than we allow.
func (t *tap) cap(d time.Time) time.Time {
	if !t.shaken() && (d.IsZero() || d.After(t.deadline)) {
		return t.deadline
	}
	return d
}

func (t *tap) SetReadDeadline(d time.Time) error  { return t.Conn.SetReadDeadline(t.cap(d)) }
func (t *tap) SetWriteDeadline(d time.Time) error { return t.Conn.SetWriteDeadline(t.cap(d)) }

// Write notes the time before the bytes go out: a lease is anchored at send times, and too early is the safe side.
//
// It hides a failure from the client, which hears of the end when it reads. Told here, the client answers the request
// once for the failed write and once more when it clears away what the connection left unanswered; a request that was
// made while the client was closed has then been answered three times, into a channel with room for two and with nobody
// at its other end. The client stands still for ever, and Close with it (I6).
func (t *tap) Write(p []byte) (int, error) {
	at, n := t.clock.now(), len(p)
	var err error
	if !t.opened() {
		p, err = t.open(p, at)
	}
	if err == nil && len(p) > 0 {
		err = t.out.feed(p, 0, func(f []byte, _ int) error { return t.sent(f, at) })
		if err == nil {
			_, err = t.Conn.Write(p)
		}
	}
	if err != nil {
		t.cut()
	}
	return n, nil
}

// open handles the client's connect request, and returns what was written after it. What it sends in its place, to ask after a session or to end it, comes from
// a client that has seen nothing, so that no server is too far behind to answer.
func (t *tap) open(p []byte, at instant) (rest []byte, err error) {
	t.opening = append(t.opening, p...)
	frame, whole := wholeFrame(t.opening)
	if !whole {
		return nil, nil
	}
	r, ok := parseConnectRequest(frame)
	if !ok {
		return nil, errors.New("zklock: the client's connect request cannot be read")
	}
	t.approach = t.sink.connecting(t, r.sessionID)
	t.mu.Lock()
	t.mu.opened, t.mu.connectSent = true, at
	t.mu.Unlock()
	out, rest := t.opening[:4+len(frame)], t.opening[4+len(frame):]
	switch t.approach {
	case askAfter, endIt:
		out = connectFrame(r)
	case sayItsEnded:
		out, t.instead = nil, expiredAnswer()
	}
	t.opening = nil
	if len(out) > 0 {
		_, err = t.Conn.Write(out)
	}
	return rest, err
}

func (t *tap) opened() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.mu.opened
}

// endSession ends the session that the server has been asked to attach. Without an answer, the client may try the next server. Once
// a server has said anything of the end, nothing of ours touches the session again: the client is told that it expired.
func (t *tap) endSession() error {
	unconfirmed := func(err error) error { return fmt.Errorf("zklock: ending the given-up session: %w", err) }
	answer, err := readFrame(t.Conn)
	if err == nil && len(answer) < 16 {
		err = fmt.Errorf("a connect response of %d bytes", len(answer))
	}
	if err != nil {
		return unconfirmed(err)
	}
	outcome := "it was gone"
	if binary.BigEndian.Uint64(answer[8:]) != 0 {
		outcome, err = t.askForTheEnd()
		var late net.Error
		if err != nil && !(errors.As(err, &late) && late.Timeout()) {
			t.sink.hungUp(t)
		}
	}
	if err != nil {
		return unconfirmed(err)
	}
	t.instead = expiredAnswer()
	t.sink.ended(t, outcome)
	return nil
}

func (t *tap) askForTheEnd() (outcome string, err error) {
	var out []byte
	for _, c := range t.sink.credentials() {
		out = append(out, authFrame(c)...)
	}
	if _, err := t.Conn.Write(append(out, closeFrame()...)); err != nil {
		return "", err
	}
	for {
		reply, err := readFrame(t.Conn)
		if err != nil {
			return "", err
		}
		if len(reply) < 16 {
			continue
		}
		xid, code := int32(binary.BigEndian.Uint32(reply)), int32(binary.BigEndian.Uint32(reply[12:]))
		switch {
		case code != 0 && (xid == xidClose || xid == xidAuth):
			return fmt.Sprintf("refused with code %d: it expires by itself", code), nil
		case xid == xidClose:
			return "ended", nil
		}
	}
}

// Read reports every whole frame before the client sees its last byte.
func (t *tap) Read(p []byte) (int, error) {
	var n int
	var err error
	if t.approach == endIt && t.instead == nil {
		err = t.endSession()
	}
	switch {
	case err != nil:
	case len(t.instead) > 0:
		n = copy(p, t.instead)
		t.instead = t.instead[n:]
	default:
		n, err = t.Conn.Read(p)
	}
	if n > 0 {
		t.noteHeard()
		if ferr := t.in.feed(p[:n], 4096, t.received); ferr != nil {
			t.end()
			_ = t.Conn.Close()
			return 0, ferr
		}
	}
	if err != nil {
		t.end()
	}
	return n, err
}

// Close closes the connection; the sink hears of it once.
func (t *tap) Close() error {
	err := t.Conn.Close()
	t.end()
	return err
}

func (t *tap) noteHeard() {
	now := t.clock.now()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mu.heard = now
}

// silence tells since when the server has not sent a byte, and since when it owes an answer, if it owes one.
func (t *tap) silence() (heard, asked instant, owes bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.mu.heard, t.mu.asked, t.mu.shaken && !t.mu.closed && t.outstandingLocked() > 0
}

// answersWithin says whether the server has answered a request on this connection in less than d.
func (t *tap) answersWithin(d time.Duration) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.mu.prompt > 0 && t.mu.prompt < d
}

func (t *tap) outstandingLocked() int { return len(t.mu.pending) + len(t.mu.pings) }

// cut closes the connection without a word, and without the wait that a TLS goodbye can take.
func (t *tap) cut() {
	_ = t.raw.Close()
	t.end()
}

func (t *tap) end() {
	t.mu.Lock()
	first := !t.mu.closed
	t.mu.closed = true
	t.mu.Unlock()
	if first {
		t.sink.disconnected(t)
	}
}

// sent notes a frame on its way out. An error keeps it from being sent.
func (t *tap) sent(f []byte, at instant) error {
	t.mu.Lock()
	session := t.mu.session
	t.mu.Unlock()
	if len(f) < 8 {
		return nil
	}
	xid, op := int32(binary.BigEndian.Uint32(f)), int32(binary.BigEndian.Uint32(f[4:]))
	r := sentRequest{op: op, at: at}
	if op == opCreate {
		if path, ok := leadingString(f[8:]); ok {
			if r.create = t.sink.creation(path); r.create != nil {
				if r.create.meant != session {
					return errOtherSession
				}
				r.create.noteLeft()
			}
		}
	}
	if op == opExists || op == opGetData || op == opGetChildren || op == opGetChildren2 {
		if path, ok := leadingString(f[8:]); ok && f[len(f)-1] != 0 {
			r.watch = path
		}
	}
	t.mu.Lock()
	if t.outstandingLocked() == 0 {
		t.mu.asked = at
	}
	if xid == xidPing {
		t.mu.pings = append(t.mu.pings, at)
	} else {
		t.mu.pending[xid] = r
	}
	t.mu.Unlock()
	if op == opWatches {
		t.sink.watchesSent(t)
	}
	return nil
}

// received handles a whole frame coming in, of which head is the beginning.
func (t *tap) received(head []byte, size int) error {
	if !t.shaken() {
		return t.handshake(head)
	}
	if len(head) < 16 {
		return fmt.Errorf("zklock: a reply of %d bytes has no header", size)
	}
	xid := int32(binary.BigEndian.Uint32(head))
	zxid := int64(binary.BigEndian.Uint64(head[4:]))
	code := int32(binary.BigEndian.Uint32(head[12:]))
	now := t.clock.now()

	switch xid {
	case xidEvent:
		t.event(head[16:])
		return nil // sent by the server on its own account: no sign that it heard us
	case xidAuth:
		t.authReply(code)
		return nil
	case xidPing:
		t.mu.Lock()
		var at instant
		ok := len(t.mu.pings) > 0
		if ok {
			at, t.mu.pings = t.mu.pings[0], t.mu.pings[1:]
		}
		t.mu.Unlock()
		switch {
		case code != 0:
			t.sink.refused(t, fmt.Errorf("%w: code %d", errPingRefused, code))
		case ok:
			t.sink.answered(t, frame{at, now})
		}
		return nil
	}

	t.mu.Lock()
	r, ok := t.mu.pending[xid]
	delete(t.mu.pending, xid)
	if took := max(now.sub(r.at), 1); ok && (t.mu.prompt == 0 || took < t.mu.prompt) {
		t.mu.prompt = took
	}
	t.mu.Unlock()
	if !ok || r.op == opAuth {
		return nil
	}
	switch code {
	case codeSessionExpired:
		t.sink.refused(t, errExpired)
		return nil
	case codeSessionMoved:
		return nil // another connection has the session; this server says nothing about its life
	}
	t.sink.answered(t, frame{r.at, now})
	if r.watch != "" {
		switch {
		case code == 0 && (r.op == opExists || r.op == opGetData):
			t.sink.watched(r.watch, dataWatch)
		case code == 0:
			t.sink.watched(r.watch, childWatch)
		case code == codeNoNode && r.op == opExists:
			t.sink.watched(r.watch, existWatch)
		}
	}
	if code != 0 {
		return nil
	}
	switch r.op {
	case opCreate:
		if r.create != nil {
			r.create.noteAnswer(zxid)
		}
		t.sink.quorum(t, r.at)
	case opDelete, opSetData:
		t.sink.quorum(t, r.at)
	case opMulti:
		// A failed multi has a clean header and begins with an error result, an empty one with the end mark:
		// both have type −1, and neither proves anything.
		if len(head) >= 20 && int32(binary.BigEndian.Uint32(head[16:])) != -1 {
			t.sink.quorum(t, r.at)
		}
	}
	return nil
}

// event notes which of the client's watches an event takes away.
func (t *tap) event(body []byte) {
	if len(body) < 8 {
		return
	}
	path, ok := leadingString(body[8:])
	if !ok {
		return
	}
	switch int32(binary.BigEndian.Uint32(body)) {
	case eventCreated:
		t.sink.unwatched(path, existWatch)
	case eventDeleted:
		t.sink.unwatched(path, existWatch, dataWatch, childWatch)
	case eventDataChanged:
		t.sink.unwatched(path, existWatch, dataWatch)
	case eventChildrenChanged:
		t.sink.unwatched(path, childWatch)
	}
}

// handshake reads the connect response and puts the credentials on the wire, before the client can send anything.
// Its own way of doing that (AddAuth) can block it for ever when a write fails while it authenticates again.
func (t *tap) handshake(head []byte) error {
	if len(head) < 20 {
		return errors.New("zklock: the connect response is too short")
	}
	r := connectResponse{
		timeout:   time.Duration(int32(binary.BigEndian.Uint32(head[4:]))) * time.Millisecond,
		sessionID: int64(binary.BigEndian.Uint64(head[8:])),
	}
	if pw, ok := leadingString(head[16:]); ok {
		r.password = newSecret([]byte(pw))
	}
	creds := t.sink.credentials()
	if t.approach == askAfter && r.sessionID != 0 {
		t.sink.found(t)
		return errors.New("zklock: the session was asked after, and is there")
	}
	t.mu.Lock()
	t.mu.shaken = true
	t.mu.session = r.sessionID
	t.mu.auths = len(creds)
	exchange := frame{t.mu.connectSent, t.clock.now()}
	t.mu.Unlock()
	if err := t.sink.connected(t, r, exchange); err != nil {
		return err
	}
	if r.sessionID == 0 {
		return nil
	}
	for _, c := range creds {
		if _, err := t.Conn.Write(authFrame(c)); err != nil {
			return fmt.Errorf("zklock: sending credentials: %w", err)
		}
	}
	_ = t.Conn.SetDeadline(time.Time{})
	if len(creds) == 0 {
		t.sink.authenticated(t, nil)
	}
	return nil
}

func (t *tap) authReply(code int32) {
	if code != 0 {
		t.sink.authenticated(t, fmt.Errorf("%w: code %d", ErrAuthFailed, code))
		return
	}
	t.mu.Lock()
	t.mu.auths--
	last := t.mu.auths == 0
	t.mu.Unlock()
	if last {
		t.sink.authenticated(t, nil)
	}
}

// authFrame is an auth request with the xid that the protocol reserves for it.
func authFrame(c credential) []byte {
	b := make([]byte, 4, 64)
	b = binary.BigEndian.AppendUint32(b, uint32(0xffffffff+xidAuth+1))
	b = binary.BigEndian.AppendUint32(b, opAuth)
	b = binary.BigEndian.AppendUint32(b, 0) // type: not used
	b = appendString(b, c.scheme)
	b = appendString(b, string(c.auth.reveal()))
	binary.BigEndian.PutUint32(b, uint32(len(b)-4))
	return b
}

// connectFrame is a connect request for the same session, of a client that has seen nothing.
func connectFrame(r connectRequest) []byte {
	b := make([]byte, 4, 80)
	b = binary.BigEndian.AppendUint32(b, 0) // protocol version
	b = binary.BigEndian.AppendUint64(b, 0) // last zxid seen
	b = binary.BigEndian.AppendUint32(b, r.timeout)
	b = binary.BigEndian.AppendUint64(b, uint64(r.sessionID))
	b = appendString(b, r.password)
	binary.BigEndian.PutUint32(b, uint32(len(b)-4))
	return b
}

func parseConnectRequest(f []byte) (r connectRequest, ok bool) {
	if len(f) < 28 {
		return r, false
	}
	r.timeout, r.sessionID = binary.BigEndian.Uint32(f[12:]), int64(binary.BigEndian.Uint64(f[16:]))
	r.password, ok = leadingString(f[24:])
	return r, ok
}

// expiredAnswer is the connect response by which a server says that the session is over.
func expiredAnswer() []byte {
	b := make([]byte, 4+20, 4+36)
	b = append(b, make([]byte, 16)...) // the password
	binary.BigEndian.PutUint32(b, uint32(len(b)-4))
	binary.BigEndian.PutUint32(b[4+16:], 16) // its length
	return b
}

// closeFrame is a request to end the session.
func closeFrame() []byte {
	b := binary.BigEndian.AppendUint32(nil, 8)
	b = binary.BigEndian.AppendUint32(b, xidClose)
	op := int32(opClose)
	return binary.BigEndian.AppendUint32(b, uint32(op))
}

// wholeFrame returns the first frame of b, without its length, if it is there to its end.
func wholeFrame(b []byte) ([]byte, bool) {
	if len(b) < 4 || uint64(len(b)-4) < uint64(binary.BigEndian.Uint32(b)) {
		return nil, false
	}
	return b[4 : 4+binary.BigEndian.Uint32(b)], true
}

// readFrame reads one short frame.
func readFrame(r io.Reader) ([]byte, error) {
	var size [4]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(size[:])
	if n > 4096 {
		return nil, fmt.Errorf("a frame claims a length of %d bytes", n)
	}
	body := make([]byte, n)
	_, err := io.ReadFull(r, body)
	return body, err
}

func appendString(b []byte, s string) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(len(s)))
	return append(b, s...)
}

// leadingString reads a length-prefixed string at the beginning of b.
func leadingString(b []byte) (string, bool) {
	if len(b) < 4 {
		return "", false
	}
	n := int32(binary.BigEndian.Uint32(b))
	if n < 0 || int(n) > len(b)-4 {
		return "", false
	}
	return string(b[4 : 4+n]), true
}

// splitter cuts a stream of bytes, arriving in any pieces, into length-prefixed frames.
type splitter struct {
	head []byte // length prefix and the kept part of the frame under way
	size int    // of the frame under way, prefix aside; −1 while the prefix is not whole
	got  int    // bytes of the frame under way so far, prefix aside
}

// feed hands each frame that p completes to f, of a long one only the first keep bytes (all if keep is 0).
func (s *splitter) feed(p []byte, keep int, f func(head []byte, size int) error) error {
	for len(p) > 0 {
		if len(s.head) < 4 {
			n := min(4-len(s.head), len(p))
			s.head, p = append(s.head, p[:n]...), p[n:]
			if len(s.head) < 4 {
				return nil
			}
			s.size, s.got = int(int32(binary.BigEndian.Uint32(s.head))), 0
			if s.size < 0 {
				return fmt.Errorf("zklock: a frame claims a length of %d bytes", s.size)
			}
		}
		n := min(s.size-s.got, len(p))
		wanted := n
		if keep > 0 {
			wanted = max(0, min(n, keep-(len(s.head)-4)))
		}
		s.head = append(s.head, p[:wanted]...)
		s.got, p = s.got+n, p[n:]
		if s.got == s.size {
			err := f(s.head[4:], s.size)
			s.head = s.head[:0]
			if cap(s.head) > 64<<10 {
				s.head = nil
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}
