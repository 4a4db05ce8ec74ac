package zklock

import (
	"errors"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/zklock/internal/queue"
	"github.com/zklock/zklock/internal/wire"
)

// What a ZooKeeper session does about events that get lost.

// lookAfterWatches asks about each watched node once every session timeout while anybody waits or observes, and every tenth of them
// while watches are left: an event can get lost at a server (F30). It reads a few bytes, for a queue of any length and any number of
// waiters. It also asks about the nodes of waiters that watch nothing and wait for their turn.
//
// If the node is there, that says as much as a list would. A waiter's place changes only when its own node or its
// predecessor goes. Nobody can get in between, because numbers grow.
func (w *watcher) lookAfterWatches() {
	const (
		atATime = 16
		seldom  = 10
	)
	few := make(chan struct{}, atATime)
	for unawaited := 1; w.z.Pause(w.z.Timeout()); unawaited++ {
		conn, _, _ := w.z.AttachedConn()
		w.mu.Lock()
		if w.mu.queued == 0 && len(w.mu.watches) == 0 {
			w.mu.looking = false // the next watch or waiter begins again
			w.mu.Unlock()
			return
		}
		if w.mu.queued > 0 || w.mu.users > 0 {
			unawaited = 0
		}
		if conn == 0 || unawaited%seldom != 0 {
			w.mu.Unlock()
			continue
		}
		type look struct {
			node string
			told func(now *wire.Stat, err error)
		}
		var looks []look
		for _, on := range w.mu.watches {
			if on.isArmed() {
				looks = append(looks, look{on.path, func(now *wire.Stat, err error) {
					if on.hasMissed(now, err) { // an event would have come before an answer that shows its change
						w.unheard(on)
					}
				}})
			}
		}
		w.mu.Unlock()
		for _, on := range w.nodes.Waiting() {
			looks = append(looks, look{on.Node, func(_ *wire.Stat, err error) {
				if errors.Is(err, zk.ErrNoNode) {
					on.Tell(queue.NodeIsGone)
				}
			}})
		}
		for _, l := range looks {
			few <- struct{}{}
			if !w.z.Carrier.Spawn(func() {
				defer func() { <-few }()
				l.told(w.z.Stat(l.node))
			}) {
				return
			}
		}
	}
}

// hasMissed says whether the node as it is now, or zk.ErrNoNode, shows that the watch should have fired.
func (w *watch) hasMissed(now *wire.Stat, err error) bool {
	switch {
	case errors.Is(err, zk.ErrNoNode):
		return !w.none
	case err != nil:
		return false
	}
	if w.isOfChildren() {
		return now.Cversion != w.stat.Cversion
	}
	return w.none || now.Mzxid != w.stat.Mzxid
}
