package zklock

import (
	"encoding/binary"
	"fmt"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock/internal/wire"
)

// linkTest is a Session without a client or a server: the test makes the connections.
type linkTest struct {
	*testing.T
	s *Session
}

// newLinkTest must run in a synctest bubble.
func newLinkTest(t *testing.T) *linkTest {
	clk := &clock{start: time.Now(), suspended: func() time.Duration { return 0 }}
	s := &Session{clock: clk, hosts: newHosts([]string{"zk1:2181"}, clk), log: newEventLog(nil)}
	t.Cleanup(s.log.close)
	s.opts.mode = SingleServerLease()
	s.link.changed = make(chan struct{})
	return &linkTest{t, s}
}

// dial replaces the connection.
func (t *linkTest) dial() *tap {
	s := t.s
	if s.link.tap != nil {
		s.disconnected(s.link.tap)
	}
	conn := &fakeConn{}
	s.link.conns++
	s.link.tap = newTap(conn, conn, s, s.clock, s.zxid.Connect(), &s.link.xids, s.link.conns, time.Now().Add(3*time.Second))
	return s.link.tap
}

// shake answers the handshake.
func (t *linkTest) shake(c *tap, session int64) error {
	now := t.s.clock.now()
	c.mu.Lock()
	c.mu.shaken, c.mu.patience = true, time.Second
	c.mu.Unlock()
	return t.s.connected(c, connectResponse{timeout: 10 * time.Second, sessionID: session}, frame{now, now})
}

// attach goes through all that opens the gate but what the client must restore.
func (t *linkTest) attach(c *tap, session int64) {
	t.Helper()
	require.NoError(t, t.shake(c, session))
	t.s.authenticated(c, nil)
	t.s.link.hasSession = true
	t.s.attachLocked()
}

// F37: the session id changes and nobody said Expired. The old session, its lease with it, is over.
func TestLink_AnotherSessionID_IsAnExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLinkTest(t)
		l.attach(l.dial(), 1)
		first := l.s.link.era
		time.Sleep(time.Second)
		l.attach(l.dial(), 2)
		require.True(t, first.isOver(), "F37: a new session id was taken for a reconnect")
		require.ErrorIs(t, first.why(), errExpired)
		require.EqualValues(t, 2, l.s.SessionID())
		e, err := l.s.attachedEra(t.Context())
		require.NoError(t, err)
		require.NotSame(t, first, e)
	})
}

// I5: Lost is final for a ZooKeeper session. One that was given up is not taken up again by a connection that was
// under way meanwhile.
func TestLink_GivenUpSession_IsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLinkTest(t)
		l.attach(l.dial(), 1)
		l.s.link.era.lose(errLeaseEnded)
		require.ErrorContains(t, l.shake(l.dial(), 1), "given up")
		require.False(t, l.s.link.attached)
		l.attach(l.dial(), 2)
		require.True(t, l.s.link.attached)
	})
}

// R65: what becomes of the client's connect request for a session that was given up. It is used to end the session, until three
// servers have hung up on that, and then not at all. A session that is only silent is asked after, seldom.
func TestLink_GivenUpSession_IsEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLinkTest(t)
		c := l.dial()
		require.Equal(t, attach, l.s.connecting(c, 0), "there was no session yet")
		l.attach(c, 1)
		require.Equal(t, attach, l.s.connecting(l.dial(), 1))
		l.s.link.era.lose(errLeaseEnded)
		require.Equal(t, attach, l.s.connecting(l.dial(), 0), "a new session")
		time.Sleep(time.Hour)
		require.Equal(t, endIt, l.s.connecting(l.dial(), 1), "no server has said anything yet")
		for range 3 {
			require.Equal(t, endIt, l.s.connecting(l.dial(), 1))
			l.s.hungUp(l.s.link.tap)
		}
		require.Equal(t, sayItsEnded, l.s.connecting(l.dial(), 1), "it would be touched for ever")

		l.attach(l.dial(), 2)
		time.Sleep(20 * time.Second)
		require.Equal(t, attach, l.s.connecting(l.dial(), 2))
		time.Sleep(time.Millisecond)
		require.Equal(t, askAfter, l.s.connecting(l.dial(), 2), "F23")
		l.s.found(l.s.link.tap)
		require.Equal(t, attach, l.s.connecting(l.dial(), 2), "to ask is a sign of life")
		l.s.link.era.lose(errExpired)
		require.Equal(t, endIt, l.s.connecting(l.dial(), 2), "the server that said so may have been wrong")
	})
}

// sent returns the requests that went out over a connection.
func (t *linkTest) sent(c *tap) (ops []wire.Op) {
	synctest.Wait()
	var s wire.Stream
	s.Add(c.Conn.(*fakeConn).out.Bytes())
	for f, _ := s.Next(); f != nil; f, _ = s.Next() {
		ops = append(ops, wire.Op(binary.BigEndian.Uint32(f[8:])))
	}
	return ops
}

// F30: watches that stood on the connection before are set on the next ahead of everything else, in batches, once each.
func TestLink_RestoredWatchesGoFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLinkTest(t)
		c := l.dial()
		l.attach(c, 1)
		require.Empty(t, l.sent(c), "there is nothing to restore")
		e := l.s.link.era
		for i := range 3000 {
			w := &watch{path: fmt.Sprintf("/locks/%080d", i), armed: make(chan struct{}), fired: make(chan struct{})}
			e.watcher.mu.watches[w.path] = w
			if i > 0 { // the first was asked for, and not answered
				close(w.armed)
			}
		}
		c = l.dial()
		l.attach(c, 1)
		require.True(t, l.s.link.attached)
		require.True(t, l.s.send(e.zkSession, newRequest(wire.OpExists, wire.PathWatchRequest{Path: "/"}, func(answer) {})))
		require.Equal(t, []wire.Op{wire.OpSetWatches, wire.OpSetWatches, wire.OpSetWatches, wire.OpExists}, l.sent(c))
		seen := map[string]bool{}
		var s wire.Stream
		s.Add(c.Conn.(*fakeConn).out.Bytes())
		for range 3 {
			f, err := s.Next()
			require.NoError(t, err)
			require.Less(t, len(f), 130<<10)
			var ask wire.SetWatchesRequest
			ask.Decode(wire.NewDecoder(f[12:]))
			for _, path := range ask.Data {
				require.False(t, seen[path])
				seen[path] = true
			}
		}
		require.Len(t, seen, 2999)
	})
}

// I2, F5: a request for a session that is over is not sent in the next one, although there is a connection.
func TestLink_RequestOfAnotherSession_IsNotSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLinkTest(t)
		l.attach(l.dial(), 1)
		first := l.s.link.era
		c := l.dial()
		l.attach(c, 2)
		r := newRequest(wire.OpCreate, wire.CreateRequest{Path: "/a"}, func(answer) { t.Error("it was refused") })
		require.False(t, l.s.send(first.zkSession, r))
		require.Empty(t, l.sent(c))
		require.True(t, l.s.send(l.s.link.era.zkSession, newRequest(wire.OpCreate, wire.CreateRequest{Path: "/a"}, func(answer) {})))
		require.Equal(t, []wire.Op{wire.OpCreate}, l.sent(c))
		c.cut()
		require.False(t, l.s.send(l.s.link.era.zkSession, r), "there is no connection")
	})
}

// I3, I8: who ends a connection is held up before it says so, and the client dials again. The end is known before the next
// begins: nothing is sent over it as if the ZooKeeper session were attached, and its watches are restored.
func TestLink_NextDial_KnowsOfTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLinkTest(t)
		s := l.s
		s.ctx, s.started, s.wake = t.Context(), make(chan struct{}), make(chan struct{}, 1)
		s.link.tried = map[string]error{}
		s.opts.handshakeCap = time.Second
		s.opts.dialer = func(string, string, time.Duration) (net.Conn, error) { return &fakeConn{}, nil }
		old := l.dial()
		l.attach(old, 1)
		e := s.link.era
		old.mu.closed = true // it is not told yet
		conn, err := s.dial("tcp", "zk1:2181", time.Second)
		require.NoError(t, err)
		require.NotSame(t, old, conn)
		require.False(t, s.link.attached)
		s.disconnected(old) // and now it is
		l.attach(s.link.tap, 1)
		require.True(t, s.link.attached)
		require.Same(t, e, s.link.era)
		var told []stateEventKind
		for _, ev := range s.mail.events {
			told = append(told, ev.kind)
		}
		require.Equal(t, []stateEventKind{attached, detached, attached}, told)
	})
}

// The connection ends while it is attached: that is told in this order.
func TestLink_EndsWhileAttaching(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLinkTest(t)
		l.attach(l.dial(), 1)
		w := &watch{path: "/locks/a/n", armed: make(chan struct{}), fired: make(chan struct{})}
		close(w.armed)
		l.s.link.era.watcher.mu.watches[w.path] = w
		c := l.dial()
		require.NoError(t, l.shake(c, 1))
		c.mu.closed = true // and is not told yet
		l.s.authenticated(c, nil)
		l.s.clientEvent(zk.Event{Type: zk.EventSession, State: zk.StateHasSession})
		require.False(t, l.s.link.attached)
		var told []stateEventKind
		for _, ev := range l.s.mail.events {
			told = append(told, ev.kind)
		}
		require.Equal(t, []stateEventKind{attached, detached, attached, detached}, told)
	})
}

// F31: watches are restored as of the last connection on which all of them were: what happened since may not have been heard.
func TestLink_RestoredAsOfTheLastWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLinkTest(t)
		l.attach(l.dial(), 1)
		e := l.s.link.era
		w := &watch{path: "/locks/a/n", armed: make(chan struct{}), fired: make(chan struct{})}
		close(w.armed)
		e.watcher.mu.watches[w.path] = w
		asOf := func(before int64) (zxid int64, answer func(answer)) {
			rs := e.restore(before)
			require.Len(t, rs, 1)
			var ask wire.SetWatchesRequest
			ask.Decode(wire.NewDecoder(rs[0].frame[12:]))
			return ask.RelativeZxid, rs[0].done
		}
		zxid, done := asOf(7)
		require.EqualValues(t, 7, zxid)
		done(answer{fate: noAnswer})
		zxid, done = asOf(9)
		require.EqualValues(t, 7, zxid, "nobody has heard what happened since")
		done(answer{fate: wasAnswered})
		zxid, _ = asOf(11)
		require.EqualValues(t, 11, zxid)
	})
}

// No request goes out before the server took the credentials.
func TestLink_CredentialsGoFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLinkTest(t)
		c := l.dial()
		require.NoError(t, l.shake(c, 1))
		l.s.link.hasSession = true
		l.s.attachLocked()
		require.False(t, l.s.link.attached)
		l.s.authenticated(c, nil)
		require.True(t, l.s.link.attached)
	})
}

// R47: events come when nothing is there to take them: before the first session, after its end, for nodes that nobody
// waits for, of a state nobody knows. None stops the next from reaching its waiter.
func TestLink_EventsForNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLinkTest(t)
		strange := []wire.WatcherEvent{
			{}, {Type: wire.EventDeleted}, {Type: wire.EventDeleted, Path: "/locks/a/gone"}, {Type: -2, Path: "/locks/a/n"}, {Type: 99, Path: "/"},
		}
		states := []zk.Event{{Type: zk.EventSession, State: zk.StateDisconnected}, {Type: zk.EventSession, State: 99}}
		all := func(c *tap) {
			for _, ev := range strange {
				l.s.event(c, ev)
			}
			for _, ev := range states {
				l.s.clientEvent(ev)
			}
		}
		all(nil)
		for range 2 {
			c := l.dial()
			all(c)
			require.NoError(t, l.shake(c, 0)) // expired
		}
		old := l.s.link.tap
		c := l.dial()
		l.attach(c, 1)
		all(c)
		e := l.s.link.era
		w := &watch{path: "/locks/a/n", armed: make(chan struct{}), fired: make(chan struct{})}
		e.watcher.mu.watches[w.path] = w
		deleted := wire.WatcherEvent{Type: wire.EventDeleted, Path: w.path}
		l.s.event(old, deleted)
		require.False(t, w.hasFired(), "told by an earlier connection")
		l.s.event(c, deleted)
		require.True(t, w.hasFired())
		require.Equal(t, zk.EventNodeDeleted, w.event)
		l.s.event(c, deleted) // once more: it came twice
	})
}
