package command

// Why a run did not get the lock: the exit code, and the message.

import (
	"context"
	"errors"
	"fmt"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/internal/link"
)

// explainConnect gives the error of a Connect that failed within the wait its exit code, which is
// the signal's if a signal ended ctx.
func (o *runOptions) explainConnect(ctx, wait context.Context, err error) error {
	var i interrupted
	var w errWaited
	switch {
	case ctx.Err() != nil && errors.As(context.Cause(ctx), &i):
		return exitf(exitCodeOf(i.signal), "%s: not acquired: %w", o.path, i)
	case isFileInUse(err) && errors.As(context.Cause(wait), &w): // err can be that of --connect-timeout
		return exitf(exitNotAcquired, "%s: not acquired: %w: %s", o.path, w, o.fileInUse())
	case isFileInUse(err):
		return exitf(exitNotAcquired, "%s: not acquired: %s", o.path, o.fileInUse())
	case errors.As(err, &w):
		return &exitError{codeUnreached(err), errors.Unwrap(classify(err))}
	case errors.Is(err, zklock.ErrNoChroot):
		return exitf(exitUsage, "%s: %w, or give --create-chroot", o.path, err)
	}
	return err
}

// explainAcquire does the same for the error of a wait, and reports if no server was connected at
// its end.
func (o *runOptions) explainAcquire(ctx context.Context, s *zklock.Session, r recipe, err error) error {
	var i interrupted
	var w errWaited
	attached := s.Stats().Server != ""
	var delayed *zklock.Error
	switch {
	case ctx.Err() != nil && errors.As(context.Cause(ctx), &i):
		return exitf(exitCodeOf(i.signal), "%s: not acquired: %w", o.path, i)
	case (errors.As(err, &w) && attached || errors.Is(err, zklock.ErrNotAcquired)) && errors.As(err, &delayed) && !delayed.DelayUntil.IsZero():
		return exitf(exitNotAcquired, "%s: not acquired: %s", o.path, delayedUntil(delayed.DelayUntil))
	case errors.As(err, &w) && attached:
		return o.explainWait(ctx, s, r, err, w)
	case errors.As(err, &w):
		return o.noConnection(w)
	case errors.Is(err, zklock.ErrNotAcquired):
		l, lerr := o.look(ctx, s, r, ourNode{})
		switch {
		case lerr == nil && l.nobody && o.semaphore > 0:
			return exitf(exitNotAcquired, "%s: not acquired: no permits are free", o.path)
		case lerr == nil && !l.delayed.IsZero():
			return exitf(exitNotAcquired, "%s: not acquired: %s", o.path, delayedUntil(l.delayed))
		case lerr != nil || l.nobody:
		case o.shared && l.holder.Shared && l.writer.Node != "":
			return exitf(exitNotAcquired, "%s: not acquired: a client that does not share the lock is queued before this run: %s", o.path, describe(l.writer))
		default:
			return exitf(exitNotAcquired, "%s: not acquired: another client holds it: %s", o.path, l.heldBy())
		}
		return exitf(exitNotAcquired, "%s: not acquired: another client holds it", o.path)
	}
	return classify(err)
}

// explainWait explains a wait that --wait ended while a server was connected. If no server has
// reported a predecessor, it is not known whether another client holds the lock.
func (o *runOptions) explainWait(ctx context.Context, s *zklock.Session, r recipe, err error, w errWaited) error {
	var e *zklock.Error
	if !errors.As(err, &e) || e.Position == 0 {
		unknown := fmt.Errorf("%w, and it is not known whether another client holds the lock", w)
		if last := (link.ErrorResponse{}); errors.As(err, &last) {
			unknown = fmt.Errorf("%w; %w", unknown, last)
		}
		return exitf(exitNoServer, "%s: not acquired: %w", o.path, unknown)
	}
	stood := e.Predecessor != ""
	l, lerr := o.look(ctx, s, r, o.ours)
	switch {
	case lerr == nil:
		if stood {
			l.listed = e.Position
		}
		return exitf(exitNotAcquired, "%s: not acquired: %w: %v", o.path, w, l)
	case stood:
		return exitf(exitNotAcquired, "%s: not acquired: %w; position %d in the queue when it was last listed, behind %s", o.path, w, e.Position, e.Predecessor)
	}
	return exitf(exitNotAcquired, "%s: not acquired: %w", o.path, w)
}

// skip takes the error of a run that did not get the lock. If another client holds it, skip sets
// the exit code that the user chose and, with --quiet, removes the message.
func (o *runOptions) skip(err error) error {
	var e *exitError
	if errors.As(err, &e) && e.code == exitNotAcquired {
		e.code = int(o.conflict)
		if o.quiet {
			e.err = nil
		}
	}
	return err
}
