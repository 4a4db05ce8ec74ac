package zklock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/zklock/zklock/internal/answer"
	"github.com/zklock/zklock/internal/clock"
	"github.com/zklock/zklock/internal/link"
	"github.com/zklock/zklock/internal/nodes"
)

// WithMinHold has the lock node stay until d after the grant, although the lock is released before. It is for jobs of milliseconds that several
// hosts start by their own clocks: without it, a host whose clock is behind by more than the job takes finds the lock free again, and runs
// the job once more. With a d that is longer than clocks may differ, and shorter than the time from one run to the next, a TryDo on each
// host makes one run of it. Runs that have a name, such as the day, need no such time: see [Mutex.Once].
//
// Release returns at once all the same, when the servers have confirmed that the node is there. From then on nobody holds here: Held is false,
// and the same owner queues behind the node like everybody, and gets ErrNotAcquired from a TryAcquire. For all others the node still has
// the lock: Participants shows it to hold, and Hold.Check and CheckSequencer find it, because nobody has had the lock since. The node goes
// when d is over, and before that when somebody deletes it or its ZooKeeper session ends: by Session.Close, by the end of the process, or
// because no server is reached for too long. So a process that is to keep others off must not end before. If the function of Do was not
// called, or Once has found it done, or a Multi did not get another of its locks, the node goes at once. The option is for NewMutex alone.
func WithMinHold(d time.Duration) MutexOption {
	return func(o *mutexOptions) {
		if o.minHold = d; d <= 0 || d > 365*24*time.Hour {
			o.wrong = fmt.Errorf("WithMinHold(%v): give how long the node stays after a grant, a year at most, or leave the option out", d)
		}
	}
}

var errMinHoldOfOthers = errors.New("WithMinHold: only a mutex has a minimum hold: give it to NewMutex, or leave the option out")

// stays returns until when the node of a hold that is granted now stays at least; 0 if for no longer than it is held.
func (a *attempt) stays() clock.Instant {
	if a.opts.minHold == 0 {
		return 0
	}
	return a.e.Clock.Now().Add(a.opts.minHold)
}

// letGo begins the deletions of a released hold, or has its node stay as long as its minimum lasts. Then what the release waits for is a check
// that the node is there: a deletion, as it were, that leaves it. The node stays under the lease: so this Session's waiters hear if somebody
// deletes it, and the session is ended at the servers if it is given up.
func (d *lockData) letGo() [2]*nodes.Deletion {
	e, check := d.e, &nodes.Deletion{Done: make(chan struct{})}
	left := func() time.Duration { return d.stays.Sub(e.Clock.Now()) }
	if d.stays != 0 && left() > 0 && e.Carrier.Spawn(func() {
		check.Err = d.isThere()
		check.OK = check.Err == nil
		close(check.Done)
		for check.OK && left() > 0 {
			if !e.Pause(left()) {
				return // it goes with its session
			}
		}
		d.giveBackNow()
	}) {
		return [2]*nodes.Deletion{check}
	}
	return d.giveBackNow()
}

// isThere asks the servers for the node until they answer, or the session is over.
func (d *lockData) isThere() error {
	for backoff := link.NewBackoff(); ; {
		_, err := d.e.Check(context.Background(), d.node)
		if err == nil || answer.IsRefusal(err) || d.e.IsOver() || !d.e.Pause(backoff.Next()) {
			return err
		}
	}
}

// unused has the node go at once when the hold is released: nothing ran under it.
func (h *Hold) unused() {
	h.d.table.mu.Lock()
	defer h.d.table.mu.Unlock()
	h.stays = 0
}
