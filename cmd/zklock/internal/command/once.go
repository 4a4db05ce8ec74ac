package command

// How a job is kept from running again: by a mark that it is done, or by holding the lock for some
// time after it.

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/cmd/zklock/internal/supervise"
	"github.com/zklock/zklock/internal/queue"
)

func (o *runOptions) checkOnce(given func(string) bool) error {
	isMutex := !o.shared && o.semaphore == 0 && !o.elect
	switch {
	case given("once") && !queue.IsKey(o.once):
		return exitf(exitUsage, "--once %q: give 1 to %d bytes of printable text, such as a day, or leave it out", o.once, queue.MaxKey)
	case given("once-keep") && !given("once"):
		return exitf(exitUsage, "--once-keep is for --once")
	case o.onceKeep < 1 || o.onceKeep > 1000:
		return exitf(exitUsage, "--once-keep %d: give 1 to 1000", o.onceKeep)
	case given("once") && !isMutex:
		return exitf(exitUsage, "--once is for a mutex: leave it out with --shared, --semaphore and --elect")
	case !given("hold-at-least"):
	case o.atLeast <= 0:
		return exitf(exitUsage, "--hold-at-least %v: give how long the lock is held at least, or leave it out", o.atLeast)
	case !isMutex:
		return exitf(exitUsage, "--hold-at-least is for a mutex: leave it out with --shared, --semaphore and --elect")
	}
	return nil
}

var errNodeDeleted = errors.New("another client deleted the lock node")

// stay waits, when all but the lock node is released, until --hold-at-least has passed. It stops
// earlier, with a message, if a signal arrives, the session is lost or the node is deleted. The end
// of zklock ends the session, and deletes the node with it.
func (t *taking) stay(hold *zklock.Hold, granted time.Time) {
	until := granted.Add(t.atLeast)
	if t.atLeast == 0 || !time.Now().Before(until) {
		return
	}
	early := func(why error) {
		fmt.Fprintf(t.stderr, "zklock: %s (token %d): %v: the lock is free %v before the end of --hold-at-least\n",
			t.path, hold.Token(), why, time.Until(until).Round(time.Millisecond))
	}
	t.wait() // signals
	ctx, cancel := context.WithDeadline(t.ctx, until)
	defer cancel()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	go func() {
		if t.isDeleted(ctx, hold.Node()) {
			stop(errNodeDeleted)
		}
	}()
	if t.ctx.Err() == nil && (t.verbose || t.waited) {
		t.note("the command has ended; the lock is held until %s (token %d)", until.Format(time.RFC3339), hold.Token())
	}
	for c := range t.s.Changes(ctx) {
		if c.State == zklock.StateLost {
			early(c.Err)
			return
		}
	}
	if why := context.Cause(ctx); t.ctx.Err() != nil || why == errNodeDeleted {
		early(why)
	}
}

// isDeleted watches a node, and reports whether it was deleted before ctx or the session ended.
func (t *taking) isDeleted(ctx context.Context, node string) bool {
	for session := t.s.Stats().SessionID; ctx.Err() == nil; {
		exists, _, changed, err := t.s.Conn().ExistsW(node)
		var again <-chan time.Time
		switch {
		case t.s.Stats().SessionID != session: // its end deleted the node
			return false
		case err == nil && !exists:
			return true
		case err != nil: // the connection was lost, mostly
			again = time.After(time.Second)
		}
		select {
		case <-changed:
		case <-again:
		case <-ctx.Done():
		}
	}
	return false
}

// isDone reports whether a run with the key of --once has succeeded, and then prints that. Runs
// that cannot be read now are read again under the lock.
func (t *taking) isDone(ctx context.Context) (bool, error) {
	if t.once == "" {
		return false, nil
	}
	ctx, cancel := context.WithTimeout(ctx, t.connectTimeout)
	defer cancel()
	runs, err := t.recipe.Lock.(*zklock.Mutex).Runs(ctx)
	if err != nil && ctx.Err() == nil {
		return false, classify(err)
	}
	i := slices.IndexFunc(runs, func(r zklock.OnceRun) bool { return r.Key == t.once })
	if i >= 0 {
		t.note("%s is done: by %s at %s, token %d", t.once, escaped(runs[i].By), runs[i].At.Local().Format(time.RFC3339), runs[i].Token)
	}
	return i >= 0, nil
}

// errFailed keeps Once from marking the run; its outcome has the reason.
var errFailed = errors.New("the command failed")

// runCommand runs the command under the hold. With --once it does so only if the key is not marked,
// and then marks it. err is nil if the command has run, and is marked or has failed; the outcome
// describes its end.
func (t *taking) runCommand(hold *zklock.Hold) (out supervise.Outcome, err error) {
	if t.once == "" {
		return t.runner.Run(t.job(hold)), nil
	}
	ctx, cancel := context.WithCancelCause(zklock.WithOwner(hold.Context(), hold.Owner()))
	defer cancel(nil)
	defer context.AfterFunc(t.ctx, func() { cancel(context.Cause(t.ctx)) })()
	ran, err := t.recipe.Lock.(*zklock.Mutex).Once(ctx, t.once, func(context.Context, *zklock.Hold) error {
		if out = t.runner.Run(t.job(hold)); out.Lost != nil || out.Err != nil || out.Died != nil || out.Exit != 0 {
			return errFailed
		}
		return nil
	})
	var i interrupted
	switch {
	case ran && errors.Is(err, errFailed):
		return out, nil
	case ran && err == nil:
		if t.verbose || t.waited {
			t.note("%s is marked as done (token %d)", t.once, hold.Token())
		}
		return out, nil
	case ran:
		return out, fmt.Errorf("%s: the command succeeded, and is not marked as done: %w; the next run with this key runs it again", t.path, cause(err))
	}
	out.How = supervise.NotStarted
	switch {
	case err == nil:
		_, err = t.isDone(context.WithoutCancel(ctx))
	case t.ctx.Err() != nil && errors.As(context.Cause(t.ctx), &i):
		out.Died, err = i.signal, nil
	case errors.Is(err, zklock.ErrLost):
		out.Lost, err = err, nil
	}
	return out, err
}
