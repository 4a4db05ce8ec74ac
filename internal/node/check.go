package node

import (
	"errors"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/zklock/internal/queue"
)

// The slow check of the watches of one ZooKeeper session (watches.go): whether events are lost.

// checkWatches reads the Stat of each watched node once every session timeout while a client waits
// or observes, because a server can lose an event (F30). The nodes of our holds, whose deletion the
// heartbeat detects as well, are read once every tenth session timeout, so a lost event of a
// revocation is noticed after ten. It reads a few bytes, for a queue of any length and any number
// of waiters. It also checks the nodes of waiters that watch nothing and wait for a handoff.
//
// If the node exists, that proves as much as a list would. A waiter's position changes only when
// its own node or one of the blockers that it watches is deleted. No node can enter the queue
// between them, because numbers grow.
func (w *Watches) checkWatches() {
	const (
		atATime = 16
		seldom  = 10
	)
	slots := make(chan struct{}, atATime)
	for round := 1; w.z.Pause(w.z.Timeout()); round++ {
		conn, _, _ := w.z.AttachedConn()
		held := map[string]bool{}
		for _, node := range w.z.CheckedNodes() {
			held[node] = true
		}
		w.mu.Lock()
		if w.mu.queued == 0 && len(w.mu.watches) == 0 {
			w.mu.checking = false // the next watch or waiter starts it again
			w.mu.Unlock()
			return
		}
		isAwaited, all := w.mu.queued > 0, round%seldom == 0
		for key := range w.mu.watches {
			isAwaited = isAwaited || key.Observed
		}
		if conn == 0 || !isAwaited && !all {
			w.mu.Unlock()
			continue
		}
		var checks []func()
		for _, on := range w.mu.watches {
			if on.IsArmed() && (all || on.Observed || on.users > 1 || !held[on.Path]) {
				checks = append(checks, func() {
					if on.hasMissed(w.z.Stat(on.Path)) { // an event would have arrived before a response that shows its change
						w.wakeUsers(on)
					}
				})
			}
		}
		w.mu.Unlock()
		for _, on := range w.nodes.Waiting() {
			checks = append(checks, func() {
				if _, err := w.z.Stat(on.Node); errors.Is(err, zk.ErrNoNode) {
					on.Notify(queue.NodeDeleted)
				}
			})
		}
		for _, check := range checks {
			slots <- struct{}{}
			if !w.z.Carrier.Spawn(func() {
				defer func() { <-slots }()
				check()
			}) {
				return
			}
		}
	}
}
