package link

// These tests attack link.go: the current connection and ZooKeeper session, and the gate for
// requests.

import (
	"bytes"
	"encoding/binary"
	"io"
	"log/slog"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock/internal/clock"
	"github.com/zklock/zklock/internal/eventlog"
	"github.com/zklock/zklock/internal/expire"
	"github.com/zklock/zklock/internal/lease"
	"github.com/zklock/zklock/internal/mux"
	"github.com/zklock/zklock/internal/secret"
	"github.com/zklock/zklock/internal/wire"
)

// linkTest is a link without a client or a server: the test makes the connections, and sends their
// messages.
type linkTest struct {
	*testing.T
	l    *Link
	wire *fakeConn // under the last connection

	inside *lodger // of the last ZooKeeper session
	states []State
}

// lodger takes the part of the locks in a ZooKeeper session, and notes each call.
type lodger struct {
	events []wire.WatcherEvent
	again  []*mux.Request // that go first on a new connection
}

func (in *lodger) Event(ev wire.WatcherEvent)   { in.events = append(in.events, ev) }
func (in *lodger) Restore(int64) []*mux.Request { return in.again }
func (in *lodger) Waiting() (int, bool)         { return 0, false }
func (in *lodger) NodeEnded(string, bool)       {}

// newLinkTest must run in a synctest bubble.
func newLinkTest(t *testing.T) *linkTest {
	clk := clock.New(func() time.Duration { return 0 })
	log := eventlog.New(slog.New(slog.DiscardHandler))
	t.Cleanup(log.Close)
	lt := &linkTest{T: t}
	o := Options{Addrs: []string{"zk1:2181"}, Mode: lease.SingleServer(), HandshakeCap: time.Second, Log: log, Clock: clk}
	o.Dial.Dialer = func(string, string, time.Duration) (net.Conn, error) { return lt.fake(), nil }
	o.Open = func(*ZKSession) Inside { lt.inside = &lodger{}; return lt.inside }
	o.Told = func(s Step) { lt.states = append(lt.states, s.State) }
	o.Closed = func() {}
	lt.l = New(o)
	return lt
}

// fakeConn is a connection whose other end is the test.
type fakeConn struct {
	net.Conn
	in, out bytes.Buffer
}

func (c *fakeConn) Read(p []byte) (int, error) { return c.in.Read(p) }

func (c *fakeConn) Write(p []byte) (int, error) { return c.out.Write(p) }

func (c *fakeConn) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 2181} }

func (c *fakeConn) Close() error { return nil }

func (c *fakeConn) SetReadDeadline(time.Time) error { return nil }

func (c *fakeConn) SetWriteDeadline(time.Time) error { return nil }

func (c *fakeConn) SetDeadline(time.Time) error { return nil }

func (t *linkTest) fake() *fakeConn {
	t.wire = &fakeConn{}
	return t.wire
}

// dial replaces the connection.
func (t *linkTest) dial() *connection {
	l := t.l
	if l.mu.conn != nil {
		_ = t.current().Disconnected(mux.HangUp{})
	}
	conn := t.fake()
	r := l.connectLocked(conn, conn, time.Now().Add(3*time.Second))
	t.Cleanup(r.mux.Cut)
	return r
}

// current is the current connection.
func (t *linkTest) current() *connection { return t.l.mu.conn }

// leaseWait is a connection whose end is not reported to the link: the goroutine that ended it is
// delayed before the report.
type heldUp struct{ *connection }

func (heldUp) Disconnected(mux.HangUp) error { return nil }

// dialHeldUp is dial, for a connection that is leaseWait.
func (t *linkTest) dialHeldUp() *connection {
	l, c := t.l, t.dial()
	conn := t.fake()
	c.mux = mux.New(conn, conn, heldUp{c}, l.Clock, l.zxids.Connect(), &l.xids, l.mu.conns, time.Now().Add(3*time.Second))
	return c
}

// shake has the client ask for the session, and the server grant it.
func (t *linkTest) shake(c *connection, session int64) error {
	_, err := c.mux.Write(wire.Frame(wire.ConnectRequest{Timeout: 10_000, Password: make([]byte, 16)}))
	require.NoError(t, err)
	answer := wire.Frame(wire.ConnectResponse{Timeout: 10_000, SessionID: session, Password: make([]byte, 16)})
	t.wire.in.Write(answer)
	_, err = io.ReadFull(c.mux, answer)
	t.wire.out.Reset()
	return err
}

// attach performs all steps that lead to attached.
func (t *linkTest) attach(c *connection, session int64) {
	t.Helper()
	require.NoError(t, t.shake(c, session))
	t.l.clientEvent(hasSession)
}

// hasSession is the client's event when its handshake is done.
var hasSession = zk.Event{Type: zk.EventSession, State: zk.StateHasSession}

func (t *linkTest) isAttached() bool {
	_, _, conn := t.l.now()
	return conn != 0
}

// F37: the session id changes without an Expired event. The old session has ended, and its lease
// with it.
func TestLink_AnotherSessionID_IsAnExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLinkTest(t)
		l.attach(l.dial(), 1)
		first := l.l.mu.session
		time.Sleep(time.Second)
		l.attach(l.dial(), 2)
		require.True(t, first.HasEnded(), "F37: a new session id was taken for a reconnect")
		require.ErrorIs(t, first.Cause(), ErrExpired)
		require.EqualValues(t, 2, l.l.ZKSession().ID)
		e, err := l.l.Attached(t.Context())
		require.NoError(t, err)
		require.NotSame(t, first, e)
	})
}

// I5: Lost is final for a ZooKeeper session. A connection that was being made meanwhile does not
// resume a session that was given up.
func TestLink_GivenUpSession_IsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLinkTest(t)
		l.attach(l.dial(), 1)
		l.l.mu.session.Lose(ErrLeaseEnded)
		require.ErrorContains(t, l.shake(l.dial(), 1), "given up")
		require.False(t, l.isAttached())
		l.attach(l.dial(), 2)
		require.True(t, l.isAttached())
	})
}

// R65, F51: the client's connect request for a session that was given up. It is used to end the
// session, until the servers have not responded to it three times, and then not at all.
func TestLink_GivenUpSession_IsEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLinkTest(t)
		c := l.dial()
		require.Equal(t, mux.Attach, c.Connecting(0), "there was no session yet")
		l.attach(c, 1)
		require.Equal(t, mux.Attach, l.dial().Connecting(1))
		l.l.mu.session.Lose(ErrLeaseEnded)
		require.Equal(t, mux.Attach, l.dial().Connecting(0), "a new session")
		time.Sleep(time.Hour)
		require.Equal(t, mux.EndIt, l.dial().Connecting(1), "no server has said anything yet")
		for range 3 {
			require.Equal(t, mux.EndIt, l.dial().Connecting(1))
			l.current().AskedToEnd(expire.NoAnswer)
		}
		require.Equal(t, mux.SayItsEnded, l.dial().Connecting(1), "it would be touched for ever")

		require.NoError(t, l.shake(l.dial(), 0))
		l.attach(l.dial(), 2)
		require.False(t, l.isAttached(), "I2: the servers are asked again first")
		time.Sleep(apart)
		require.True(t, l.isAttached())
		require.Equal(t, mux.Attach, l.dial().Connecting(2))
		l.l.mu.session.Lose(ErrExpired)
		require.Equal(t, mux.EndIt, l.dial().Connecting(2), "the server that said so may have been wrong")
	})
}

// sent returns the requests that went out over a connection.
func (t *linkTest) sent(c *connection) (ops []wire.Op) {
	synctest.Wait()
	var s wire.Stream
	s.Add(c.mux.Conn.(*fakeConn).out.Bytes())
	for f, _ := s.Next(); f != nil; f, _ = s.Next() {
		ops = append(ops, wire.Op(binary.BigEndian.Uint32(f[8:])))
	}
	return ops
}

// F30: the requests that set the watches of the connection before go ahead of everything else.
func TestLink_RestoredWatchesGoFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLinkTest(t)
		c := l.dial()
		l.attach(c, 1)
		require.Empty(t, l.sent(c), "there is nothing to restore")
		for range 3 {
			l.inside.again = append(l.inside.again, mux.NewRequest(wire.OpSetWatches, wire.SetWatchesRequest{}, func(mux.Reply) {}))
		}
		c = l.dial()
		l.attach(c, 1)
		require.True(t, l.isAttached())
		require.True(t, l.l.Send(l.l.ZKSession(), mux.NewRequest(wire.OpExists, wire.PathWatchRequest{Path: "/"}, func(mux.Reply) {})))
		require.Equal(t, []wire.Op{wire.OpSetWatches, wire.OpSetWatches, wire.OpSetWatches, wire.OpExists}, l.sent(c))
	})
}

// I2, F5: a request for a session that has ended is not sent in the next one, although there is a
// connection.
func TestLink_RequestOfAnotherSession_IsNotSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLinkTest(t)
		l.attach(l.dial(), 1)
		first := l.l.mu.session
		c := l.dial()
		l.attach(c, 2)
		r := mux.NewRequest(wire.OpCreate, wire.CreateRequest{Path: "/a"}, func(mux.Reply) { t.Error("it was refused") })
		require.False(t, l.l.Send(first, r))
		require.Empty(t, l.sent(c))
		require.True(t, l.l.Send(l.l.mu.session, mux.NewRequest(wire.OpCreate, wire.CreateRequest{Path: "/a"}, func(mux.Reply) {})))
		require.Equal(t, []wire.Op{wire.OpCreate}, l.sent(c))
		c.mux.Cut()
		require.False(t, l.l.Send(l.l.mu.session, r), "there is no connection")
	})
}

// I3, I8: the goroutine that ends a connection is delayed before it reports that, and the client
// dials again. The end is noted before the next connection begins: nothing is sent over it as if
// the ZooKeeper session were attached, and its watches are restored.
func TestLink_NextDial_KnowsOfTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLinkTest(t)
		s := l.l
		old := l.dialHeldUp()
		l.attach(old, 1)
		e := s.mu.session
		old.mux.Cut() // and the end is not reported yet
		conn, err := s.dialServer("tcp", "zk1:2181", time.Second)
		require.NoError(t, err)
		defer conn.Close()
		require.NotSame(t, old.mux, conn)
		require.False(t, l.isAttached())
		_ = old.Disconnected(mux.HangUp{}) // and now it is
		l.attach(l.current(), 1)
		require.True(t, l.isAttached())
		require.Same(t, e, s.mu.session)
		require.Equal(t, []State{Connected, Suspended, Reconnected}, l.states)
	})
}

// The connection ends while it is being attached: the steps are reported in this order.
func TestLink_EndsWhileAttaching(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLinkTest(t)
		l.attach(l.dial(), 1)
		l.inside.again = []*mux.Request{mux.NewRequest(wire.OpSetWatches, wire.SetWatchesRequest{}, func(mux.Reply) {})}
		c := l.dialHeldUp()
		require.NoError(t, l.shake(c, 1))
		c.mux.Cut() // and the end is not reported yet
		l.l.clientEvent(hasSession)
		require.False(t, l.isAttached())
		require.Equal(t, []State{Connected, Suspended, Reconnected, Suspended}, l.states)
	})
}

// R112: the third connection in a row that servers end at one kind of request makes an error.
// Connections that end otherwise change nothing; a response to such a request resets the count.
func TestLink_HangUps_ThreeInARow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLinkTest(t)
		create, container := mux.HangUp{At: wire.OpCreate2, Longest: LongRequest}, mux.HangUp{At: wire.OpCreateContainer, Longest: LongRequest}
		end := func(h mux.HangUp) error {
			c := l.dial()
			l.attach(c, 1)
			return c.Disconnected(h)
		}
		require.NoError(t, end(create))
		require.NoError(t, end(mux.HangUp{}))
		require.NoError(t, end(create))
		require.NoError(t, end(container))
		require.NoError(t, end(mux.HangUp{At: wire.OpCreate2, Longest: LongRequest + 1}), "it may be too long")
		for range 2 {
			why := end(create)
			require.ErrorIs(t, why, ErrHungUp)
			require.ErrorIs(t, why, zk.ErrConnectionClosed)
			require.ErrorContains(t, why, "create2")
		}
		require.NoError(t, end(container))

		c := l.dial()
		l.attach(c, 1)
		require.True(t, l.l.Send(l.l.ZKSession(), mux.NewRequest(wire.OpCreate2, wire.CreateRequest{Path: "/a"}, func(mux.Reply) {})))
		synctest.Wait()
		answered := wire.Frame(wire.ReplyHeader{Xid: -16, Err: wire.NoNode})
		l.wire.in.Write(answered)
		_, err := c.mux.Read(make([]byte, 1))
		require.ErrorIs(t, err, io.EOF, "and the connection ends")
		require.NoError(t, end(create), "a server has responded to one")
		require.NoError(t, end(create))
		l.l.Executed(wire.OpCreate2)
		require.NoError(t, end(create), "a server has executed one")
		for range 3 {
			require.NoError(t, end(mux.HangUp{At: wire.OpMulti, Longest: 100}), "each server knows that one")
		}
		require.ErrorIs(t, end(container), ErrHungUp, "and to none of these")
	})
}

// No request is sent before the server has accepted the credentials.
func TestLink_CredentialsGoFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLinkTest(t)
		l.l.Digests = []secret.Bytes{secret.Of([]byte("u:p"))}
		c := l.dial()
		require.NoError(t, l.shake(c, 1))
		l.l.clientEvent(hasSession)
		require.False(t, l.isAttached())
		c.Authenticated(nil)
		require.True(t, l.isAttached())
	})
}

// R47: events arrive while nothing can receive them: before the first session, after its end, for
// nodes without a waiter, of an unknown state. None stops the next from reaching its waiter.
func TestLink_EventsForNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLinkTest(t)
		strange := []wire.WatcherEvent{
			{}, {Type: wire.EventDeleted}, {Type: wire.EventDeleted, Path: "/locks/a/gone"}, {Type: -2, Path: "/locks/a/n"}, {Type: 99, Path: "/"},
		}
		states := []zk.Event{{Type: zk.EventSession, State: zk.StateDisconnected}, {Type: zk.EventSession, State: 99}}
		all := func(c *connection) {
			for _, ev := range strange {
				c.Event(ev)
			}
			for _, ev := range states {
				l.l.clientEvent(ev)
			}
		}
		all(&connection{link: l.l})
		for range 2 {
			c := l.dial()
			all(c)
			require.ErrorIs(t, l.shake(c, 0), errNoneToExpire)
		}
		old := l.current()
		c := l.dial()
		l.attach(c, 1)
		all(c)
		deleted := wire.WatcherEvent{Type: wire.EventDeleted, Path: "/locks/a/n"}
		before := len(l.inside.events)
		old.Event(deleted)
		require.Len(t, l.inside.events, before, "told by an earlier connection")
		c.Event(deleted)
		c.Event(deleted) // once more: it came twice
		require.Equal(t, []wire.WatcherEvent{deleted, deleted}, l.inside.events[before:])
	})
}
