package node

// These tests attack watches.go: the restoration of watches on a new connection, and events without
// a waiter.

import (
	"fmt"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock/internal/link"
	"github.com/zklock/zklock/internal/mux"
	"github.com/zklock/zklock/internal/wire"
)

// standing sets a watch on a path that was requested and, if it is armed, answered.
func standing(e *ZKSession, path string, armed bool) *Watch {
	key := WatchKey{Path: path, Op: wire.OpGetData}
	w := &Watch{WatchKey: key, armed: make(chan struct{}), Fired: make(chan struct{}), users: 1}
	e.Watches.mu.watches[key], e.Watches.mu.checking = w, true
	if armed {
		close(w.armed)
	}
	return w
}

// F30: watches of the previous connection are set on the next one in batches, once each.
func TestWatcher_Restore_InBatches(t *testing.T) {
	e, bytes := aZKSession(), 0
	for i := range 3000 {
		w := standing(e, fmt.Sprintf("/locks/%080d", i), i > 0) // the first was not answered
		if i > 0 {
			bytes += 4 + len(w.Path)
		}
	}
	rs := e.Restore(7)
	require.Len(t, rs, 3)
	for _, r := range rs {
		n := r.Length()
		require.Less(t, n, 130<<10)
		bytes -= n - 28 // xid, opcode, zxid, three counts
	}
	require.Zero(t, bytes, "each path is there once")
}

// No batch is longer than the servers read (WithJuteMaxBuffer): they would close each connection at
// it.
func TestWatcher_Restore_ShortBatches(t *testing.T) {
	for length := range 120 {
		e := aZKSession()
		e.Longest = 4 << 10
		for i := range 100 {
			standing(e, fmt.Sprintf("/locks/%0*d", 10+length, i), true)
		}
		rs := e.Restore(7)
		require.Greater(t, len(rs), 0)
		for _, r := range rs {
			require.LessOrEqual(t, r.Length(), e.Longest)
		}
	}
}

// F31: watches are restored as of the last connection that had all of them, because events after
// that may not have arrived.
func TestWatcher_RestoredAsOfTheLastWhole(t *testing.T) {
	e := aZKSession()
	standing(e, "/locks/a/n", true)
	asOf := func(before int64) (zxid int64, answer func(mux.Reply)) {
		rs := e.Restore(before)
		require.Len(t, rs, 1)
		return e.Watches.mu.since, rs[0].Done
	}
	zxid, done := asOf(7)
	require.EqualValues(t, 7, zxid)
	done(mux.Reply{Fate: mux.NoAnswer})
	zxid, done = asOf(9)
	require.EqualValues(t, 7, zxid, "nobody has heard what happened since")
	done(mux.Reply{Fate: mux.WasAnswered})
	zxid, _ = asOf(11)
	require.EqualValues(t, 11, zxid)
}

// R47: events arrive for nodes without a waiter, of unknown types, or twice. None prevents the next
// from reaching its waiter.
func TestWatcher_EventsForNobody(t *testing.T) {
	e := aZKSession()
	for range 2 {
		for _, ev := range []wire.WatcherEvent{{}, {Type: wire.EventDeleted}, {Type: wire.EventDeleted, Path: "/locks/a/gone"}, {Type: -2, Path: "/locks/a/m"}, {Type: 99, Path: "/"}} {
			e.Event(ev)
		}
		w := standing(e, "/locks/a/n", false)
		require.False(t, w.HasFired())
		e.Event(wire.WatcherEvent{Type: wire.EventDeleted, Path: w.Path})
		require.True(t, w.HasFired())
		require.Equal(t, zk.EventNodeDeleted, w.Event)
		e.Event(wire.WatcherEvent{Type: wire.EventDeleted, Path: w.Path}) // once more: it came twice
	}
}

// I7, I8, R8: a read that fails sets no watch. It leaves no state, and the next caller requests
// again.
func TestWatch_NotSet_IsAskedForAgain(t *testing.T) {
	for name, a := range map[string]mux.Reply{
		"refused":    {Fate: mux.WasAnswered, Code: wire.NoAuth},
		"gone":       {Fate: mux.WasAnswered, Code: wire.NoNode},
		"no answer":  {Fate: mux.NoAnswer},
		"never sent": {Fate: mux.NeverSent},
		"unreadable": {Fate: mux.WasAnswered, Body: []byte{1}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWatchTest(t)
			there := mux.Reply{Fate: mux.WasAnswered, Conn: conn, Body: wire.Frame(wire.DataResponse{})[4:]}
			w.c.sends = answering(a, there)
			before := len(w.e.Watches.mu.watches)
			first := w.e.Watches.StartWatch("/locks/a/p")
			require.True(t, first.IsArmed(), "who waits for it is told")
			require.Error(t, first.Err)
			require.Len(t, w.e.Watches.mu.watches, before)
			second := w.e.Watches.StartWatch("/locks/a/p")
			require.NotSame(t, first, second)
			require.NoError(t, second.Err)
			require.Same(t, second, w.e.Watches.StartWatch("/locks/a/p"), "one that stands is shared")
		})
	}
}

// I6: a watch of a user reports that the node was deleted, and then the response does. The watch
// fires once.
func TestWatch_EventBeforeTheAnswer_IsReportedOnce(t *testing.T) {
	w := newWatchTest(t)
	const path = "/locks/a/p"
	gone := mux.Reply{Fate: mux.WasAnswered, Conn: conn, Code: wire.NoNode}
	answer := answering(gone)
	w.c.sends = func(r *mux.Request) bool {
		w.e.Event(wire.WatcherEvent{Type: wire.EventDeleted, Path: path})
		return answer(r)
	}
	require.NotPanics(t, func() {
		on := w.e.Watches.StartWatch(path)
		require.True(t, on.IsArmed() && on.HasFired())
		require.Equal(t, zk.EventNodeDeleted, on.Event)
		require.ErrorIs(t, on.Err, zk.ErrNoNode)
	})
}

// I8: a caller requests a watch between the last observer's leaving and the removal's request. The
// server has no watch then, so the caller reads again. The removal of a watch that another kind of
// user needs is not sent.
func TestWatch_TakenBack_WakesWhoCameMeanwhile(t *testing.T) {
	w := newWatchTest(t)
	there := mux.Reply{Fate: mux.WasAnswered, Conn: conn, Body: wire.Frame(wire.DataResponse{})[4:]}
	w.c.sends = answering(there)
	watches, key := w.e.Watches, WatchKey{"/locks/a/p", wire.OpGetData, true}
	first := watches.start(key)
	require.Same(t, first, watches.start(key), "all observers share one")
	w.c.sends = func(*mux.Request) bool { t.Error("another still observes"); return false }
	watches.Leave(first)
	var later *Watch
	w.c.sends = func(removal *mux.Request) bool {
		w.c.sends = answering(there)
		later = watches.start(key)
		require.NotSame(t, first, later)
		removal.Done(mux.Reply{Fate: mux.WasAnswered})
		return true
	}
	watches.Leave(first)
	require.True(t, later.HasFired())
	require.Equal(t, zk.EventNotWatching, later.Event)
	watches.Leave(later)

	w.c.sends = answering(there, there)
	waiters, observed := watches.StartWatch(key.Path), watches.start(key)
	w.c.sends = func(*mux.Request) bool { t.Error("a waiter needs the event"); return false }
	watches.Leave(observed)
	require.False(t, waiters.HasFired())
}

// I7, R144: a caller requests a watch after the removal's request. The removal does not end it:
// otherwise it would remain on the server, and no caller would remove it.
func TestWatch_StartedAfterTheRemoval_Lasts(t *testing.T) {
	for _, observed := range []bool{false, true} {
		w := newWatchTest(t)
		there := mux.Reply{Fate: mux.WasAnswered, Conn: conn, Body: wire.Frame(wire.DataResponse{})[4:]}
		watches, key := w.e.Watches, WatchKey{"/locks/a/p", wire.OpGetData, observed}
		w.c.sends = answering(there)
		first := watches.start(key)
		var requests []*mux.Request
		w.c.sends = func(r *mux.Request) bool { requests = append(requests, r); return true }
		watches.Leave(first)
		later := watches.start(key)
		requests[0].Done(mux.Reply{Fate: mux.WasAnswered})
		requests[1].Done(there)
		require.False(t, later.HasFired())
		require.Same(t, later, watches.start(key), "it is still shared")
		watches.Leave(later)
		watches.Leave(later)
		require.Len(t, requests, 3, "its last user removes it")
	}
}

// answering responds to the first requests with the given responses.
func answering(first ...mux.Reply) func(*mux.Request) bool {
	return func(r *mux.Request) bool {
		a := first[0]
		first = first[1:]
		r.Done(a)
		return true
	}
}

// watchTest is a ZooKeeper session whose requests the test answers.
type watchTest struct {
	c *server
	e *ZKSession
}

func newWatchTest(t *testing.T) watchTest {
	c := &server{sends: func(*mux.Request) bool { return false }}
	e := NewZKSession(sessionOver(c), 10)
	e.Inside = e
	t.Cleanup(func() {
		e.Lose(link.ErrClosed)
		c.work.Wait()
	})
	return watchTest{c, e}
}

// aZKSession returns a ZKSession without any events.
func aZKSession() *ZKSession {
	return NewZKSession(sessionOver(&server{sends: func(*mux.Request) bool { return false }}), 10)
}
