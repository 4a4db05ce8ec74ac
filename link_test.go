package zklock

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"
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
	s.link.clientWatches = make(map[clientWatch]struct{})
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
	s.link.tap = newTap(conn, conn, s, s.clock, s.link.conns, time.Now().Add(3*time.Second))
	return s.link.tap
}

// shake answers the handshake.
func (t *linkTest) shake(c *tap, session int64) error {
	now := t.s.clock.now()
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

// I1: requests wait until the client has asked for its watches again, or they would overtake that. A client that
// restores none is waited for a second.
func TestLink_RestoredWatchesGoFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLinkTest(t)
		l.attach(l.dial(), 1)
		require.True(t, l.s.link.attached, "there is nothing to restore")
		l.s.watched("/locks/a/n", dataWatch)

		c := l.dial()
		l.attach(c, 1)
		require.False(t, l.s.link.attached, "requests could overtake setWatches")
		l.s.watchesSent(c)
		require.True(t, l.s.link.attached)

		l.attach(l.dial(), 1)
		require.False(t, l.s.link.attached)
		time.Sleep(1001 * time.Millisecond)
		l.s.attachLocked()
		require.True(t, l.s.link.attached)

		l.s.unwatched("/locks/a/n", dataWatch)
		l.attach(l.dial(), 1)
		require.True(t, l.s.link.attached, "the watch has fired")
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
		strange := []zk.Event{
			{}, {Type: zk.EventNodeDeleted}, {Type: zk.EventNodeDeleted, Path: "/locks/a/gone"}, {Type: zk.EventNotWatching, Path: "/locks/a/n"},
			{Type: zk.EventSession, State: zk.StateDisconnected}, {Type: zk.EventSession, State: 99}, {Type: 99, Path: "/"},
		}
		for range 2 {
			for _, ev := range strange {
				l.s.clientEvent(ev)
			}
			c := l.dial()
			require.NoError(t, l.shake(c, 0)) // expired
		}
		l.attach(l.dial(), 1)
		e := l.s.link.era
		for _, ev := range strange {
			l.s.clientEvent(ev)
		}
		w := &watch{path: "/locks/a/n", armed: make(chan struct{}), fired: make(chan struct{})}
		e.mu.watches[w.path] = w
		l.s.clientEvent(zk.Event{Type: zk.EventNodeDeleted, Path: w.path})
		require.True(t, w.hasFired())
		require.Equal(t, zk.EventNodeDeleted, w.event)
		l.s.clientEvent(zk.Event{Type: zk.EventNodeDeleted, Path: w.path}) // once more: it came twice
	})
}
