package zklock

import (
	"context"

	"github.com/zklock/zklock/internal/nodes"
	"github.com/zklock/zklock/internal/queue"
	"github.com/zklock/zklock/internal/tap"
	"github.com/zklock/zklock/internal/wire"
)

// If several permits are free, the client that is granted in front of the queue notifies those behind it (besidefront.go).

// mostWoken is how many are told at a time that there is room.
const mostWoken = 64

// wake has those who wait look for room, if there is some beside what the next in line takes, which the end of our node wakes. Twice as many
// look as there is room for: by then, more permits may be free, and a look in vain costs two lists. It is a hint: nothing rests on it.
func (a *attempt) wake(room int) {
	if room < 2 {
		return
	}
	e, root, self := a.e, a.d.root, nameOf(a.node)
	e.Carrier.Spawn(func() {
		now := e.lists.List(root.path)
		if now.Wait(context.Background(), e.Era) != nil {
			return
		}
		names := queue.NamesBehind(self, now.Names, root.rule.Markers)
		names = names[min(1, len(names)):]
		e.wakeAll(root.path, names[:min(2*(room-1), mostWoken, len(names))])
	})
}

// wakeAll tells waiters to list, in the order in which they stand. One that stands behind a node of our own session hears it here. The others
// watch their nodes, which are written as they are; but not if they stand behind a node of their own session: then they watch nothing.
func (e *era) wakeAll(root string, names []string) {
	own := make(map[string]*nodes.Waiter)
	for _, w := range e.nodes.Waiting() {
		own[w.Node] = w
	}
	asked := make([]<-chan dataRead, len(names))
	for i, name := range names {
		if w := own[root+"/"+name]; w != nil {
			w.Tell(queue.TurnUnknown)
			continue
		}
		asked[i] = e.askData(root + "/" + name)
	}
	ahead := int64(0) // whose node is ahead of it
	for i, ch := range asked {
		if ch == nil {
			ahead = e.ID
			continue
		}
		got := <-ch
		if got.err == nil && got.stat.EphemeralOwner != ahead {
			write := wire.SetDataRequest{Path: root + "/" + names[i], Data: got.data, Version: got.stat.Version}
			e.Carrier.Send(e.Era, tap.NewRequest(wire.OpSetData, write, func(tap.Answer) {}))
		}
		ahead = got.stat.EphemeralOwner
	}
}
