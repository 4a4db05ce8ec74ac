package zklock

import (
	"context"

	"github.com/zklock/zklock/internal/mux"
	"github.com/zklock/zklock/internal/nodes"
	"github.com/zklock/zklock/internal/queue"
	"github.com/zklock/zklock/internal/wire"
)

// If several permits are free, the client that is granted in front of the queue notifies those behind it (besidefront.go).

// maxHints is how many are told at a time that there is room.
const maxHints = 64

// hintWaiters has those who wait look for room, if there is some beside what the next in line takes, which the end of our node wakes. Twice as many
// look as there is room for: by then, more permits may be free. It is a hint: nothing rests on it.
func (a permitAttempt) hintWaiters(room int) {
	if room < 2 {
		return
	}
	e, root, self, now := a.e, a.d.root, nameOf(a.node), a.list
	if now == nil { // an event brought us to the front, or we have waited there
		now = e.lists.List(root.path)
	}
	e.Carrier.Spawn(func() {
		if now.Wait(context.Background(), e.ZKSession) != nil {
			return
		}
		names := queue.NamesBehind(self, now.Names, root.rule.Markers)
		names = names[min(1, len(names)):]
		e.hintAll(root.path, names[:hintsFor(room, len(names))])
	})
}

// hintsFor returns how many of so many waiters are told that there is room: 2 or more, up to the
// largest int, because a fixed limit may be that large.
func hintsFor(room, waiters int) int { return min(2*(min(room, maxHints)-1), maxHints, waiters) }

// hintAll tells waiters to list, in the order in which they stand. One that stands behind a node of our own session hears it here. The others
// watch their own node and the one ahead of it: so every other node is written, as it is.
func (e *zkSession) hintAll(root string, names []string) {
	own := make(map[string]*nodes.Waiter)
	for _, w := range e.nodes.Waiting() {
		own[w.Node] = w
	}
	var written []string
	var asked []<-chan dataRead
	hears := false // what is written to the one ahead
	for _, name := range names {
		node := root + "/" + name
		w := own[node]
		if w != nil {
			w.Notify(queue.HandoffUnknown)
		} else if !hears {
			written, asked = append(written, node), append(asked, e.askData(node))
		}
		hears = w == nil && !hears
	}
	for i, ch := range asked {
		if got := <-ch; got.err == nil {
			write := wire.SetDataRequest{Path: written[i], Data: got.data, Version: got.stat.Version}
			e.Carrier.Send(e.ZKSession, mux.NewRequest(wire.OpSetData, write, func(mux.Reply) {}))
		}
	}
}
