package mux

// These tests attack the connection itself: the client's view, and the reports about it.

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock/internal/clock"
	"github.com/zklock/zklock/internal/expire"
	"github.com/zklock/zklock/internal/lastzxid"
	"github.com/zklock/zklock/internal/sasl"
	"github.com/zklock/zklock/internal/wire"
)

// fakeConn is a connection whose other end is a test: it keeps the written bytes, and the bytes to
// read are put in before.
type fakeConn struct {
	net.Conn
	in, out       bytes.Buffer
	readDeadline  time.Time
	writeDeadline time.Time
	writeErr      error
	readErr       error // when all is read; nil is the end
	writes        int
	pieces        int // the most bytes of a read; 0: any
	closes        int
}

func (c *fakeConn) Read(p []byte) (int, error) {
	if c.in.Len() == 0 && c.readErr != nil {
		return 0, c.readErr
	}
	if c.pieces > 0 {
		p = p[:min(len(p), c.pieces)]
	}
	return c.in.Read(p)
}
func (c *fakeConn) Write(p []byte) (int, error) {
	if c.writeErr != nil {
		return 0, c.writeErr
	}
	c.writes++
	return c.out.Write(p)
}
func (c *fakeConn) RemoteAddr() net.Addr               { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 2181} }
func (c *fakeConn) Close() error                       { c.closes++; return nil }
func (c *fakeConn) SetReadDeadline(d time.Time) error  { c.readDeadline = d; return nil }
func (c *fakeConn) SetWriteDeadline(d time.Time) error { c.writeDeadline = d; return nil }
func (c *fakeConn) SetDeadline(d time.Time) error      { c.readDeadline, c.writeDeadline = d, d; return nil }

// fakeSink records the mux's reports, in order. Times are seconds since the clock's start.
type fakeSink struct {
	tap      *Mux
	sasl     sasl.Exchange
	creds    []wire.AuthRequest
	approach Approach
	refuse   error
	log      []string
	hangUp   HangUp
	why      error // of what was hung up on
}

func (s *fakeSink) note(format string, args ...any) {
	s.log = append(s.log, fmt.Sprintf(format, args...))
}
func secs(t clock.Instant) float64 { return time.Duration(t).Seconds() }

func (s *fakeSink) Connecting(int64) Approach         { return s.approach }
func (s *fakeSink) AskedToEnd(outcome expire.Outcome) { s.note("asked to end: %s", outcome) }
func (s *fakeSink) Ended()                            { s.note("ended") }
func (s *fakeSink) Connected(r Response, sent, answered clock.Instant) error {
	s.note("connected session=%d T=%v pw=%s sent=%g answered=%g", r.SessionID, r.Timeout, r.Password, secs(sent), secs(answered))
	return s.refuse
}
func (s *fakeSink) Credentials() expire.Credentials {
	return expire.Credentials{SASL: s.sasl, Auths: s.creds}
}
func (s *fakeSink) Authenticated(err error) {
	var code wire.Code
	switch {
	case errors.As(err, &code):
		s.note("authenticated %d", code)
	case err != nil:
		s.note("not authenticated: %v", err)
	default:
		s.note("authenticated")
	}
}
func (s *fakeSink) Event(ev wire.WatcherEvent) { s.note("event %d %s", ev.Type, ev.Path) }
func (s *fakeSink) Answered(sent, answered clock.Instant) {
	s.note("answered %g-%g", secs(sent), secs(answered))
}
func (s *fakeSink) Quorum(sent clock.Instant) { s.note("quorum %g", secs(sent)) }
func (s *fakeSink) Refused(op wire.Op, code wire.Code) {
	s.note("refused: op %d, code %d", op, code)
}
func (s *fakeSink) Disconnected(h HangUp) error {
	s.note("disconnected")
	s.hangUp = h
	return s.why
}

// take returns the reports since the last take.
func (s *fakeSink) take() []string {
	log := s.log
	s.log = nil
	return log
}

// tapTest is a mux whose client and server are both the test.
type tapTest struct {
	*testing.T
	conn *fakeConn
	sink *fakeSink
	tap  *Mux
	seen *lastzxid.Seen
}

// newTapTest creates a mux on a virtual clock. It must run in a synctest bubble.
func newTapTest(t *testing.T) *tapTest {
	conn, sink := &fakeConn{}, &fakeSink{}
	clk := clock.New(func() time.Duration { return 0 })
	seen := new(lastzxid.Seen)
	sink.tap = New(conn, conn, sink, clk, seen.Connect(), new(Xids), 1, time.Now().Add(3*time.Second))
	go sink.tap.WriteRequests()
	t.Cleanup(sink.tap.Cut)
	return &tapTest{t, conn, sink, sink.tap, seen}
}

func (t *tapTest) after(d time.Duration) { time.Sleep(d) }

// send makes the client write a frame with this body.
func (t *tapTest) send(body []byte) {
	t.Helper()
	n, err := t.tap.Write(framed(body))
	require.NoError(t, err)
	require.Equal(t, 4+len(body), n)
}

// serve makes the server write a frame with this body, and the client read it.
func (t *tapTest) serve(body []byte) error {
	t.conn.in.Write(framed(body))
	p := make([]byte, 4+len(body))
	_, err := io.ReadFull(t.tap, p)
	return err
}

func (t *tapTest) mustServe(body []byte) {
	t.Helper()
	require.NoError(t, t.serve(body))
}

// consume makes the server write a frame that the client must not see, and then the reply to a
// ping.
func (t *tapTest) consume(body []byte) {
	t.Helper()
	t.conn.in.Write(framed(body))
	t.mustServe(reply(wire.XidPing, 0, 0))
}

// shake performs the handshake of a session with timeout 10 s, without credentials, at time 0.
func (t *tapTest) shake() {
	t.Helper()
	t.send(connectBody())
	t.mustServe(connectAnswer(10_000, 0x77))
	t.sink.take()
}

func framed(body []byte) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...)
}

func connectAnswer(timeoutMillis int32, session int64) []byte {
	return wire.Frame(wire.ConnectResponse{Timeout: timeoutMillis, SessionID: session, Password: []byte("sixteen bytes ..")})[4:]
}

func clientFrame(xid int32, op wire.Op, body ...byte) []byte {
	return wire.Frame(wire.RequestHeader{Xid: xid, Op: op}, wire.Raw(body))[4:]
}

func reply(xid int32, zxid int64, code int32, body ...byte) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(xid))
	b = binary.BigEndian.AppendUint64(b, uint64(zxid))
	b = binary.BigEndian.AppendUint32(b, uint32(code))
	return append(b, body...)
}

// multiResult returns the body of a multi's response with one result.
func multiResult(op wire.Op, code wire.Code) []byte {
	return wire.Frame(wire.MultiResponse{Results: []wire.MultiResult{{Op: op, Err: code}}})[4:]
}

// failedMulti returns the body of a failed multi's response.
func failedMulti(codes ...wire.Code) []byte {
	var m wire.MultiResponse
	for _, code := range codes {
		m.Results = append(m.Results, wire.MultiResult{Op: wire.OpError, Err: code})
	}
	return wire.Frame(m)[4:]
}

func TestMux_Handshake_ReportsTheExchange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tt := newTapTest(t)
		tt.after(time.Second)
		tt.send(connectBody())
		tt.after(time.Second)
		tt.mustServe(connectAnswer(10_000, 0x77))
		require.Equal(t, []string{"connected session=119 T=10s pw=sixteen bytes .. sent=1 answered=2", "authenticated"}, tt.sink.take())
		require.Equal(t, framed(connectBody()), tt.conn.out.Bytes(), "the bytes pass unchanged")
	})
}

// F17: a server that accepts and never responds must not hold the client, which waits 6.7 session
// timeouts.
func TestMux_Handshake_IsCapped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tt := newTapTest(t)
		limit := time.Now().Add(3 * time.Second)
		require.Equal(t, limit, tt.conn.readDeadline)
		require.NoError(t, tt.tap.SetReadDeadline(time.Now().Add(67*time.Second)))
		require.Equal(t, limit, tt.conn.readDeadline, "the client's longer deadline does not count")
		require.NoError(t, tt.tap.SetReadDeadline(time.Time{}))
		require.Equal(t, limit, tt.conn.readDeadline, "nor does none")
		require.NoError(t, tt.tap.SetWriteDeadline(time.Time{}))
		require.Equal(t, limit, tt.conn.writeDeadline)
		require.NoError(t, tt.tap.SetReadDeadline(time.Now().Add(time.Second)))
		require.Equal(t, time.Now().Add(time.Second), tt.conn.readDeadline, "a shorter one does")

		tt.shake()
		require.NoError(t, tt.tap.SetReadDeadline(time.Time{}))
		require.True(t, tt.conn.readDeadline.IsZero(), "the cap ends with the handshake")
		require.NoError(t, tt.tap.SetReadDeadline(time.Now().Add(67*time.Second)))
		require.Equal(t, time.Now().Add(67*time.Second), tt.conn.readDeadline)
	})
}

// F41: neither must a server that attaches the client and does not reply to the credentials: no
// request is sent before that.
func TestMux_Credentials_AreCapped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tt := newTapTest(t)
		tt.sink.creds = []wire.AuthRequest{{Scheme: "digest", Auth: []byte("u:p")}, {Scheme: "digest", Auth: []byte("v:q")}}
		limit := time.Now().Add(3 * time.Second)
		tt.shake()
		for i := range tt.sink.creds {
			require.NoError(t, tt.tap.SetReadDeadline(time.Time{}))
			require.Equal(t, limit, tt.conn.readDeadline)
			require.NoError(t, tt.tap.SetReadDeadline(time.Now().Add(67*time.Second)))
			require.Equal(t, limit, tt.conn.readDeadline)
			tt.conn.in.Write(framed(reply(wire.XidAuth, 0, 0)))
			_, err := tt.tap.Read(make([]byte, 4)) // to the end of what is there
			require.ErrorIs(t, err, io.EOF)
			if i == 0 {
				require.Equal(t, limit, tt.conn.readDeadline, "one of two answers is not enough")
			}
		}
		require.NoError(t, tt.tap.SetReadDeadline(time.Now().Add(67*time.Second)))
		require.Equal(t, time.Now().Add(67*time.Second), tt.conn.readDeadline)
	})
}

// A response with session 0 means that the session has expired: no credentials are sent, and
// nothing is authenticated.
func TestMux_Handshake_Expired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tt := newTapTest(t)
		tt.sink.creds = []wire.AuthRequest{{Scheme: "digest", Auth: []byte("u:p")}}
		tt.send(connectBody())
		sent := tt.conn.out.Len()
		tt.mustServe(connectAnswer(0, 0))
		require.Equal(t, []string{"connected session=0 T=0s pw=sixteen bytes .. sent=0 answered=0"}, tt.sink.take())
		require.Equal(t, sent, tt.conn.out.Len())
	})
}

// A session that was given up must not return (Lost is final): the client gets an error and no
// response.
func TestMux_Handshake_RefusedBySink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tt := newTapTest(t)
		tt.sink.refuse = errors.New("given up")
		tt.send(connectBody())
		require.ErrorContains(t, tt.serve(connectAnswer(10_000, 0x77)), "given up")
		require.Equal(t, "disconnected", tt.sink.log[len(tt.sink.log)-1])
		require.NotZero(t, tt.conn.closes)
		require.NotContains(t, tt.sink.log, "authenticated")
	})
}

func TestMux_Handshake_Malformed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tt := newTapTest(t)
		tt.send(connectBody())
		require.ErrorContains(t, tt.serve(make([]byte, 19)), "the connect response: wire: malformed record")
		require.Equal(t, []string{"disconnected"}, tt.sink.take())
	})
}

// I6: a session timeout of zero or less, which would make the client panic, is rejected.
func TestMux_Handshake_NoTimeout(t *testing.T) {
	for _, millis := range []int32{0, -1} {
		synctest.Test(t, func(t *testing.T) {
			tt := newTapTest(t)
			tt.send(connectBody())
			require.ErrorContains(t, tt.serve(connectAnswer(millis, 0x77)), "session timeout")
			require.Equal(t, []string{"disconnected"}, tt.sink.take())
		})
	}
}

// Credentials are the first frames after the handshake, and requests wait for their replies.
func TestMux_Credentials(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tt := newTapTest(t)
		tt.sink.creds = []wire.AuthRequest{{Scheme: "digest", Auth: []byte("u:p")}, {Scheme: "digest", Auth: []byte("v:q")}}
		tt.send(connectBody())
		tt.conn.out.Reset()
		tt.mustServe(connectAnswer(10_000, 0x77))
		want := append(authFrame(wire.AuthRequest{Scheme: "digest", Auth: []byte("u:p")}), authFrame(wire.AuthRequest{Scheme: "digest", Auth: []byte("v:q")})...)
		require.Equal(t, want, tt.conn.out.Bytes())
		tt.sink.take()

		tt.consume(reply(wire.XidAuth, 0, 0))
		require.Empty(t, tt.sink.take(), "one of two; and an answer to auth, which comes out of order, is no sign of life")
		tt.consume(reply(wire.XidAuth, 0, 0))
		require.Equal(t, []string{"authenticated"}, tt.sink.take())
	})
}

func TestMux_Credentials_Refused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tt := newTapTest(t)
		tt.sink.creds = []wire.AuthRequest{{Scheme: "digest", Auth: []byte("u:p")}}
		tt.send(connectBody())
		tt.mustServe(connectAnswer(10_000, 0x77))
		tt.sink.take()
		require.ErrorContains(t, tt.serve(reply(wire.XidAuth, 0, -115)), "-115")
		require.Equal(t, []string{"authenticated -115", "disconnected"}, tt.sink.take())
	})
}

func TestAuthFrame(t *testing.T) {
	f := authFrame(wire.AuthRequest{Scheme: "digest", Auth: []byte("u:p")})
	require.EqualValues(t, len(f)-4, binary.BigEndian.Uint32(f))
	require.EqualValues(t, wire.XidAuth, int32(binary.BigEndian.Uint32(f[4:])))
	require.Equal(t, wire.OpAuth, wire.Op(binary.BigEndian.Uint32(f[8:])))
	var auth wire.AuthRequest
	auth.Decode(wire.NewDecoder(f[12:]))
	require.Equal(t, wire.AuthRequest{Scheme: "digest", Auth: []byte("u:p")}, auth)
}

// connectBody returns the client's connect request for session 0x77.
func connectBody() []byte {
	return wire.Frame(wire.ConnectRequest{Timeout: 10_000, SessionID: 0x77, Password: []byte("sixteen bytes ..")})[4:]
}

// R65: a session that was given up is ended over the client's own connection, with the credentials.
// The client is notified that it expired, whatever the server's response. Only a connection that is
// lost before leaves the outcome open.
func TestMux_GivenUpSession_IsEndedAndTheClientNotified(t *testing.T) {
	granted := connectAnswer(10_000, 0x77)
	expired := expiredReply()[4:]
	for _, c := range []struct {
		name    string
		answers [][]byte
		outcome string
	}{
		{"ended", [][]byte{granted, reply(wire.XidAuth, 0, 0), reply(1, 9, 0)}, "ended"},
		{"ended, the credentials answered late", [][]byte{granted, reply(1, 9, 0), reply(wire.XidAuth, 0, 0)}, "ended"},
		{"refused", [][]byte{granted, reply(1, 9, -124)}, "rejected with code"},
		{"credentials refused, and the connection closed", [][]byte{granted, reply(wire.XidAuth, 0, -115)}, "rejected with code"},
		{"gone already", [][]byte{expired}, "it was gone"},
		{"another session (R126)", [][]byte{connectAnswer(10_000, 0x78), reply(wire.XidAuth, 0, 0), reply(1, 9, 0)}, "the server opened another session"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tt := newTapTest(t)
				tt.sink.approach, tt.sink.creds = EndIt, []wire.AuthRequest{{Scheme: "digest", Auth: []byte("u:p")}}
				for _, a := range c.answers {
					tt.conn.in.Write(framed(a))
				}
				tt.send(connectBody())
				got := make([]byte, 40)
				_, err := io.ReadFull(iotest.OneByteReader(tt.tap), got)
				require.NoError(t, err)
				require.Equal(t, append(binary.BigEndian.AppendUint32(nil, 36), append(make([]byte, 16), 0, 0, 0, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)...), got, "what a server says of a session that is over")
				var sent [][]byte
				s := wire.Stream{}
				s.Add(tt.conn.out.Bytes())
				for f, _ := s.Next(); f != nil; f, _ = s.Next() {
					sent = append(sent, f[4:])
				}
				require.Zero(t, binary.BigEndian.Uint64(sent[0][4:]), "no zxid seen, so that no server is behind")
				require.EqualValues(t, 10_000, binary.BigEndian.Uint32(sent[0][12:]))
				require.EqualValues(t, 0x77, binary.BigEndian.Uint64(sent[0][16:]))
				require.Len(t, sent, 3)
				require.EqualValues(t, wire.OpAuth, binary.BigEndian.Uint32(sent[1][4:]), "R65: a server may take no close without credentials")
				require.Equal(t, wire.OpClose, wire.Op(binary.BigEndian.Uint32(sent[2][4:])))
				log := tt.sink.take()
				require.Contains(t, log[0], c.outcome)
				require.Contains(t, log[1], "connected session=0")
			})
		})
	}
	for _, c := range []struct {
		answers [][]byte
		end     error
	}{
		{nil, nil},
		{nil, os.ErrDeadlineExceeded},
		{[][]byte{granted}, nil},
		{[][]byte{granted}, os.ErrDeadlineExceeded},
		{[][]byte{granted, reply(wire.XidAuth, 0, 0)}, nil},
	} {
		synctest.Test(t, func(t *testing.T) {
			tt := newTapTest(t)
			tt.sink.approach, tt.sink.creds = EndIt, []wire.AuthRequest{{Scheme: "digest", Auth: []byte("u:p")}}
			for _, a := range c.answers {
				tt.conn.in.Write(framed(a))
			}
			tt.conn.readErr = c.end
			tt.send(connectBody())
			require.Equal(t, 1, tt.conn.writes, "F51: the close does not wait for an answer")
			_, err := tt.tap.Read(make([]byte, 4))
			require.Error(t, err, "nothing was said: the next server is asked")
			log := tt.sink.take()
			require.Contains(t, log, "asked to end: no answer")
			require.Contains(t, log, "disconnected")
		})
	}
}

// R65: after the time in which the servers forget a given-up session, the mux does not close it
// again.
func TestMux_GivenUpSession_IsNotTouchedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tt := newTapTest(t)
		tt.sink.approach = SayItsEnded
		body := framed(connectBody())
		for i := range body {
			_, err := tt.tap.Write(body[i : i+1])
			require.NoError(t, err)
		}
		got := make([]byte, 40)
		_, err := io.ReadFull(tt.tap, got)
		require.NoError(t, err)
		require.Equal(t, expiredReply(), got)
		require.Empty(t, tt.conn.out.Bytes())
		require.Contains(t, tt.sink.take()[0], "connected session=0")
	})
}

// Times are send times, taken before the bytes are written. Replies are matched by xid.
func TestMux_AnswersAreAnchoredAtTheirSending(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tt := newTapTest(t)
		tt.shake()
		tt.after(time.Second)
		tt.send(clientFrame(1, wire.OpExists))
		tt.after(time.Second)
		tt.send(clientFrame(2, wire.OpExists))
		tt.after(time.Second)
		tt.mustServe(reply(1, 100, 0))
		tt.mustServe(reply(2, 100, -101)) // an error of the operation is an answer of a server that serves us
		require.Equal(t, []string{"answered 1-3", "answered 2-3"}, tt.sink.take(), "reads take no quorum")

		tt.mustServe(reply(2, 100, 0))
		tt.mustServe(reply(99, 100, 0))
		require.Empty(t, tt.sink.take(), "nobody asked")
	})
}

// Pings share one xid, so only their order counts.
func TestMux_PingsAreAnsweredInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tt := newTapTest(t)
		tt.shake()
		for range 3 {
			tt.after(time.Second)
			tt.send(clientFrame(wire.XidPing, wire.OpPing))
		}
		tt.after(time.Second)
		tt.mustServe(reply(wire.XidPing, 5, 0))
		tt.mustServe(reply(wire.XidPing, 5, 0))
		require.Equal(t, []string{"answered 1-4", "answered 2-4"}, tt.sink.take())
		tt.mustServe(reply(wire.XidPing, 5, 0))
		tt.mustServe(reply(wire.XidPing, 5, 0))
		require.Equal(t, []string{"answered 3-4"}, tt.sink.take(), "a fourth answer is nobody's")
	})
}

// F39: the client ignores an error in the reply to a ping.
func TestMux_PingWithAnErrorCode_IsRefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tt := newTapTest(t)
		tt.shake()
		tt.send(clientFrame(wire.XidPing, wire.OpPing))
		tt.mustServe(reply(wire.XidPing, 0, -112))
		require.Equal(t, []string{"refused: op 11, code -112"}, tt.sink.take())
	})
}

// Servers send events without a request, possibly for a session that they are about to give up.
func TestMux_EventsAreNoSignOfLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tt := newTapTest(t)
		tt.shake()
		tt.send(clientFrame(1, wire.OpExists))
		tt.mustServe(reply(wire.XidEvent, -1, 0, make([]byte, 12)...))
		require.Equal(t, []string{"event 0 "}, tt.sink.take())
		tt.mustServe(reply(wire.XidEvent, -1, 0, make([]byte, 11)...)) // malformed: the client's to judge
		require.Empty(t, tt.sink.take())
	})
}

// The client gets the events of paths that it may have watched, and of no other path.
func TestMux_EventsOfOurWatches_HiddenFromTheClient(t *testing.T) {
	event := func(path string) []byte {
		e := wire.Frame(wire.WatcherEvent{Type: wire.EventDeleted, State: 3, Path: path})[4:]
		return framed(reply(wire.XidEvent, -1, 0, e...))
	}
	for _, tc := range []struct {
		op    wire.Op
		body  wire.Record
		paths []string // the client gets the events of these
	}{
		{wire.OpExists, wire.PathWatchRequest{Path: "/theirs", Watch: true}, []string{"/theirs"}},
		{wire.OpSetWatches, wire.SetWatchesRequest{Data: []string{"/data"}, Exist: []string{"/exist"}, Child: []string{"/child"}}, []string{"/data", "/exist", "/child"}},
		{wire.OpSetWatches2, wire.SetWatches2Request{}, []string{"/theirs"}}, // it is not decoded
	} {
		synctest.Test(t, func(t *testing.T) {
			tt := newTapTest(t)
			tt.shake()
			tt.send(wire.Frame(wire.RequestHeader{Xid: 1, Op: tc.op}, tc.body)[4:])
			var all, want []byte
			for _, path := range append([]string{"/ours"}, tc.paths...) {
				all = append(all, event(path)...)
				if path != "/ours" || tc.op == wire.OpSetWatches2 {
					want = append(want, event(path)...)
				}
			}
			ping := framed(reply(wire.XidPing, 0, 0))
			tt.conn.in.Write(append(all, ping...))
			got := make([]byte, len(want)+len(ping))
			_, err := io.ReadFull(tt.tap, got)
			require.NoError(t, err)
			require.Equal(t, append(want, ping...), got)
		})
	}
}

func TestMux_ErrorCodesAboutTheSession(t *testing.T) {
	for _, tc := range []struct {
		code int32
		want []string
	}{
		{int32(wire.SessionExpired), []string{"refused: op 1, code -112"}},
		{int32(wire.SessionMoved), []string{"refused: op 1, code -118"}}, // another connection has it: says nothing about its life
		{-101, []string{"answered 0-0"}},
		{-127, []string{"answered 0-0"}},
	} {
		t.Run(fmt.Sprint(tc.code), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tt := newTapTest(t)
				tt.shake()
				tt.send(clientFrame(1, wire.OpCreate))
				tt.mustServe(reply(1, 0, tc.code))
				require.Equal(t, tc.want, tt.sink.take())
			})
		})
	}
}

// Only a write that succeeded proves that there was a leader with a majority after the write was
// sent.
func TestMux_QuorumOperations(t *testing.T) {
	ok := []string{"answered 1-2", "quorum 1"}
	only := []string{"answered 1-2"}
	for _, tc := range []struct {
		name string
		op   wire.Op
		code int32
		body []byte
		want []string
	}{
		{"create", wire.OpCreate, 0, nil, ok},
		{"create that failed", wire.OpCreate, -110, nil, only},
		{"delete", wire.OpDelete, 0, nil, ok},
		{"delete that failed", wire.OpDelete, -101, nil, only},
		{"set", wire.OpSetData, 0, nil, ok},
		{"set that failed", wire.OpSetData, -103, nil, only},
		{"multi of checks", wire.OpMulti, 0, multiResult(wire.OpCheck, 0), ok},
		{"multi that failed: its header is clean, its results tell", wire.OpMulti, 0, multiResult(-1, -101), only},
		{"multi that failed at a later check", wire.OpMulti, 0, multiResult(-1, 0), only},
		{"empty multi, which checks nothing: the end mark only", wire.OpMulti, 0, append(binary.BigEndian.AppendUint32(nil, 0xffffffff), 1, 0, 0, 0, 0), only},
		{"multi without a body", wire.OpMulti, 0, nil, only},
		{"multi in a session that is over: its results tell", wire.OpMulti, 0, failedMulti(wire.OK, wire.SessionExpired, wire.RuntimeInconsistency), []string{"refused: op 14, code -112"}},
		{"multi in a session that has moved", wire.OpMulti, 0, failedMulti(wire.OK, wire.SessionMoved, wire.RuntimeInconsistency), []string{"refused: op 14, code -118"}},
		{"multi that failed in another way", wire.OpMulti, 0, failedMulti(wire.OK, wire.NoNode, wire.RuntimeInconsistency), only},
		{"multi with an error in its header", wire.OpMulti, -112 + 100, multiResult(wire.OpCheck, 0), only},
		{"exists", wire.OpExists, 0, nil, only},
		{"sync, which no majority sees", 9, 0, nil, only},
		{"list", 8, 0, nil, only},
		{"auth of the client's own", wire.OpAuth, 0, nil, nil}, // answered out of order: no sign of life
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tt := newTapTest(t)
				tt.shake()
				tt.after(time.Second)
				tt.send(clientFrame(7, tc.op, make([]byte, 60)...))
				tt.after(time.Second)
				tt.mustServe(reply(7, 100, tc.code, tc.body...))
				require.Equal(t, tc.want, tt.sink.take())
			})
		})
	}
}

func TestMux_DisconnectedIsReportedOnce(t *testing.T) {
	for _, how := range []struct {
		name string
		do   func(*tapTest)
	}{
		{"read fails", func(tt *tapTest) { _, _ = tt.tap.Read(make([]byte, 1)) }},
		{"write fails", func(tt *tapTest) { tt.conn.writeErr = io.ErrClosedPipe; _, _ = tt.tap.Write(framed(clientFrame(1, 3))) }},
		{"closed", func(tt *tapTest) { _ = tt.tap.Close() }},
		{"cut", func(tt *tapTest) { tt.tap.Cut() }},
		{"a reply without a header", func(tt *tapTest) { require.ErrorContains(tt, tt.serve(make([]byte, 15)), "no header") }},
		{"a frame of negative length", func(tt *tapTest) {
			tt.conn.in.Write([]byte{0xff, 0xff, 0xff, 0xff})
			_, err := tt.tap.Read(make([]byte, 8))
			require.ErrorContains(tt, err, "length")
		}},
	} {
		t.Run(how.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tt := newTapTest(t)
				tt.shake()
				how.do(tt)
				require.Equal(t, []string{"disconnected"}, tt.sink.take())
				_ = tt.tap.Close()
				tt.tap.Cut()
				_, _ = tt.tap.Read(make([]byte, 1))
				require.Empty(t, tt.sink.take())
			})
		})
	}
}

// I6: the client is not notified of a failed write, which it cannot always handle; it finds the
// connection closed.
func TestMux_FailedWrite_IsHeardOfByReading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tt := newTapTest(t)
		tt.shake()
		tt.conn.writeErr = io.ErrClosedPipe
		frame := framed(clientFrame(1, 3))
		n, err := tt.tap.Write(frame)
		require.NoError(t, err)
		require.Equal(t, len(frame), n)
		require.Equal(t, 1, tt.conn.closes)
	})
}

// Frames arrive in pieces and in batches. However the stream is split, the reports and the bytes
// are the same.
func TestMux_AnyChunks(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	var out, in []byte
	out = append(out, framed(connectBody())...)
	in = append(in, framed(connectAnswer(10_000, 0x77))...)
	for xid := int32(1); xid < 40; xid++ {
		out = append(out, framed(clientFrame(xid, []wire.Op{wire.OpExists, wire.OpCreate, wire.OpDelete, wire.OpMulti}[xid%4], make([]byte, 10+rnd.IntN(600))...))...)
		in = append(in, framed(reply(xid, 0, 0, append(multiResult(wire.OpCheck, 0), make([]byte, rnd.IntN(600))...)...))...)
	}
	var want []string
	for round := range 50 {
		synctest.Test(t, func(t *testing.T) {
			tt := newTapTest(t)
			most := []int{1, 3, 50, 5000}[round%4]
			for b := out; len(b) > 0; {
				n := min(len(b), 1+rnd.IntN(most))
				_, err := tt.tap.Write(b[:n])
				require.NoError(t, err)
				b = b[n:]
			}
			tt.conn.in.Write(in)
			var got []byte
			for len(got) < len(in) {
				p := make([]byte, 1+rnd.IntN(most))
				n, err := tt.tap.Read(p)
				require.NoError(t, err)
				got = append(got, p[:n]...)
			}
			require.Equal(t, in, got)
			require.Equal(t, out, tt.conn.out.Bytes())
			if want == nil {
				want = tt.sink.take()
				require.Len(t, want, 2+39+30) // handshake; an answer each; 30 quorum operations
				return
			}
			require.Equal(t, want, tt.sink.take())
		})
	}
}
