package command

// What keeps a job from running again: the lock is held for some time after it.

import (
	"context"
	"fmt"
	"time"

	"github.com/zklock/zklock"
)

// checkAtLeast returns an error of usage.
func (o *runOptions) checkAtLeast(given func(string) bool) error {
	switch {
	case !given("hold-at-least"):
	case o.atLeast <= 0:
		return exitf(exitUsage, "--hold-at-least %v: give how long the lock is held at least, or leave it out", o.atLeast)
	case o.shared || o.semaphore > 0 || o.elect:
		return exitf(exitUsage, "--hold-at-least is for a mutex: leave it out with --shared, --semaphore and --elect")
	}
	return nil
}

// stay holds the lock, which is released but for its node, until --hold-at-least is over, a signal comes or the session is lost. zklock's
// end ends the session, and the node with it.
func (t *taking) stay(token int64, granted time.Time) {
	until := granted.Add(t.atLeast)
	if t.atLeast == 0 || !time.Now().Before(until) {
		return
	}
	early := func(why error) {
		fmt.Fprintf(t.stderr, "zklock: %s (token %d): %v: the lock is free %v before the end of --hold-at-least\n",
			t.path, token, why, time.Until(until).Round(time.Millisecond))
	}
	t.wait() // signals
	ctx, cancel := context.WithDeadline(t.ctx, until)
	defer cancel()
	if t.ctx.Err() == nil && (t.verbose || t.waited) {
		t.note("the command has ended; the lock is held until %s (token %d)", until.Format(time.RFC3339), token)
	}
	for c := range t.s.Changes(ctx) {
		if c.State == zklock.Lost {
			early(c.Err)
			return
		}
	}
	if t.ctx.Err() != nil {
		early(context.Cause(t.ctx))
	}
}
