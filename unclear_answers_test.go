package zklock

// These tests give answers that say nothing: nothing is concluded from them.

import (
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock/internal/tap"
	"github.com/zklock/zklock/internal/wire"
)

// answering answers the first request with what it is given, and every other as if both nodes were there.
type answering struct {
	carrier
	first []tap.Answer
}

func multiBody(results ...wire.MultiResult) []byte {
	return wire.Frame(wire.MultiResponse{Results: results})[4:]
}

func (c *answering) send(_ *zkSession, r *tap.Request) bool {
	a := tap.Answer{Fate: tap.WasAnswered, Conn: waitersConn, Body: multiBody(wire.MultiResult{Op: wire.OpCheck}, wire.MultiResult{Op: wire.OpDelete})}
	if len(c.first) > 0 {
		a, c.first = c.first[0], c.first[1:]
	}
	r.Done(a)
	return true
}

// I1, I4, I5: a server answers a transaction with more or fewer results than it has operations, or does not say which node was
// missing. Nothing is concluded from it, and nothing breaks.
func TestMulti_AnswerSaysNothing(t *testing.T) {
	for name, a := range map[string]tap.Answer{
		"no results":          {Body: multiBody()},
		"one":                 {Body: multiBody(wire.MultiResult{Op: wire.OpCheck})},
		"three, one an error": {Body: multiBody(wire.MultiResult{Op: wire.OpCheck}, wire.MultiResult{Op: wire.OpCheck}, wire.MultiResult{Op: wire.OpError, Err: wire.NoNode})},
		"NoNode of which":     {Code: wire.NoNode},
	} {
		t.Run(name, func(t *testing.T) {
			a.Fate, a.Conn = tap.WasAnswered, waitersConn
			w := newEventTest(t)
			held := w.e.zkSession.carrier
			w.e.zkSession.carrier = &answering{held, []tap.Answer{a}}
			failed, err := w.e.check(t.Context(), "/locks/a/own", "/locks/a/other")
			require.Error(t, err)
			require.Empty(t, failed, "it is nobody's fault")

			w.e.zkSession.carrier = &answering{held, []tap.Answer{a}}
			w.e.nodes.add("/locks/a/p")
			next := w.e.nodes.standBehind("/locks/a/p", "/locks/a/own", nil)
			x := w.e.handOver("/locks/a/p", nil)
			<-x.done
			require.True(t, x.ok, "it goes with the second try")
			want := turnIsYours
			if a.Code == wire.NoNode {
				want = turnUnknown // it was left out
			}
			require.Equal(t, want, <-next.told)
		})
	}
}

// I7, I8, R8: a read that fails sets no watch. Nothing of it is kept, and the next comer asks again.
func TestWatch_NotSet_IsAskedForAgain(t *testing.T) {
	for name, a := range map[string]tap.Answer{
		"refused":    {Fate: tap.WasAnswered, Code: wire.NoAuth},
		"gone":       {Fate: tap.WasAnswered, Code: wire.NoNode},
		"no answer":  {Fate: tap.NoAnswer},
		"never sent": {Fate: tap.NeverSent},
		"unreadable": {Fate: tap.WasAnswered, Body: []byte{1}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newEventTest(t)
			there := tap.Answer{Fate: tap.WasAnswered, Conn: waitersConn, Body: wire.Frame(wire.DataResponse{})[4:]}
			w.e.zkSession.carrier = &answering{w.e.zkSession.carrier, []tap.Answer{a, there}}
			before := len(w.e.watcher.mu.watches)
			first := w.e.startWatch("/locks/a/p")
			require.True(t, first.isArmed(), "who waits for it is told")
			require.Error(t, first.err)
			require.Len(t, w.e.watcher.mu.watches, before)
			second := w.e.startWatch("/locks/a/p")
			require.NotSame(t, first, second)
			require.NoError(t, second.err)
			require.Same(t, second, w.e.startWatch("/locks/a/p"), "one that stands is shared")
		})
	}
}

// eventFirst has the event of a node come before any answer.
type eventFirst struct {
	answering
	e    *era
	path string
}

func (c *eventFirst) send(z *zkSession, r *tap.Request) bool {
	c.e.fire(wire.WatcherEvent{Type: wire.EventDeleted, Path: c.path})
	return c.answering.send(z, r)
}

// I6: a watch of the user's tells that the node is gone, and then the answer does. It is told once.
func TestWatch_EventBeforeTheAnswer_IsToldOnce(t *testing.T) {
	w := newEventTest(t)
	const path = "/locks/a/p"
	gone := tap.Answer{Fate: tap.WasAnswered, Conn: waitersConn, Code: wire.NoNode}
	w.e.zkSession.carrier = &eventFirst{answering{w.e.zkSession.carrier, []tap.Answer{gone}}, w.e, path}
	require.NotPanics(t, func() {
		on := w.e.startWatch(path)
		require.True(t, on.isArmed() && on.hasFired())
		require.Equal(t, zk.EventNodeDeleted, on.event)
		require.ErrorIs(t, on.err, zk.ErrNoNode)
	})
}
