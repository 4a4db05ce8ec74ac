package link

// These tests attack ending.go: what the link reports of the beginning and the end of each
// ZooKeeper session.

import (
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock/internal/expire"
	"github.com/zklock/zklock/internal/sessionkey"
	"github.com/zklock/zklock/internal/wire"
)

// reports makes the link append its reports to a list.
func (t *linkTest) reports() *[]string {
	var list []string
	t.l.Opened = func(k sessionkey.Key) {
		require.Zero(t, t.wire.in.Len(), "the response has been read")
		require.False(t, t.isAttached(), "a node could exist already")
		list = append(list, fmt.Sprintf("opened %d, %v, %v", k.ID, k.Timeout, k.Servers))
	}
	t.l.Over = func(id int64) { list = append(list, fmt.Sprintf("over %d", id)) }
	return &list
}

// A session is reported once, when it is new, and its end when a server has confirmed it: a
// reconnect and the end of a lease report nothing.
func TestLink_ReportsEachSessionAndItsConfirmedEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLinkTest(t)
		list := l.reports()
		l.attach(l.dial(), 1)
		l.attach(l.dial(), 1)
		require.Equal(t, []string{"opened 1, 10s, [zk1:2181]"}, *list)
		first, over := l.l.mu.session, l.l.Over
		l.l.Over = func(id int64) {
			require.True(t, first.HasEnded(), "I5: its holds are notified before a call that may wait for a guard")
			over(id)
		}
		require.NoError(t, l.shake(l.dial(), 0)) // the server's own "expired"
		l.attach(l.dial(), 2)
		require.Equal(t, []string{"over 1", "opened 2, 10s, [zk1:2181]"}, (*list)[1:])

		l.l.mu.session.Lose(ErrLeaseEnded)
		for _, o := range []expire.Outcome{expire.NoAnswer, expire.OutcomeOf(false, wire.NoAuth), expire.OutcomeOf(false, expire.ErrAnotherSession)} {
			l.dial().AskedToEnd(o)
		}
		require.NoError(t, l.shake(l.dial(), 0)) // the mux's "expired", because the session was given up
		require.Len(t, *list, 3, "no server has confirmed the end")

		l.attach(l.dial(), 3)
		l.l.mu.session.Lose(ErrLeaseEnded)
		l.dial().AskedToEnd(expire.OutcomeOf(true, nil))
		l.dial().AskedToEnd(expire.OutcomeOf(false, nil))
		require.Equal(t, []string{"opened 3, 10s, [zk1:2181]", "over 3", "over 3"}, (*list)[3:])
	})
}

// A server's reply to the client's closeSession is a confirmed end.
func TestLink_Close_ReportsTheConfirmedEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLinkTest(t)
		list := l.reports()
		c := l.dial()
		l.attach(c, 1)
		_, err := c.mux.Write(wire.Frame(wire.RequestHeader{Xid: 7, Op: wire.OpClose}))
		require.NoError(t, err)
		answer := wire.Frame(wire.ReplyHeader{Xid: 7})
		l.wire.in.Write(answer)
		_, err = c.mux.Read(answer)
		require.NoError(t, err)
		require.Equal(t, "over 1", (*list)[1])
	})
}
