package zklock

import (
	"context"
	"errors"

	"github.com/go-zookeeper/zk"
)

// First returns the first participant in the queue, which holds the lock or is about to, as a server knows it: by one list and one read, however long
// the queue is. (Participants reads each node.) If nobody is in the queue, the Participant is the zero one, whose Node is empty. With
// WithLockDelay, its DelayUntil is set while it waits for that, which takes one read more. While no server can be reached, Front waits
// for one until ctx ends.
func (m *Mutex) First(ctx context.Context) (first Participant, err error) {
	if !m.isMade() {
		return Participant{}, &Error{Op: "front", Err: errNoMutex}
	}
	err = m.reading(ctx, "front", func(e *zkSession) error {
		first, err = m.frontOf(ctx, e, func() (string, error) { return frontIn(ctx, e, &m.root) })
		return err
	})
	return first, err
}

// frontOf reads the node that find finds in front, and finds again if that has gone in between.
func (m *Mutex) frontOf(ctx context.Context, e *zkSession, find func() (node string, err error)) (Participant, error) {
	for {
		node, err := find()
		if err != nil || node == "" {
			return Participant{}, err
		}
		first := make([]Participant, 1)
		if first[0], err = readParticipant(ctx, e, node); err == nil {
			first[0].Holds = m.root.holdsInFront(node)
			err = m.recipe.describe(ctx, e, &m.root, first)
			return first[0], err
		}
		if !errors.Is(err, zk.ErrNoNode) {
			return Participant{}, err
		}
	}
}
