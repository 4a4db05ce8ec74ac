package zklock

import (
	"context"
	"errors"
	"slices"

	"github.com/zklock/zklock/internal/link"
)

// Why a hold was lost and how an acquire ended, in one word each: for metrics.

// What LossReason returns.
const (
	LossNoServer   = "no_server"       // no server answered before the lease ended
	LossNoQuorum   = "no_quorum"       // no quorum confirmed the session, or the heartbeat was rejected
	LossPaused     = "paused"          // this process was paused until the lease had ended
	LossSession    = "session_ended"   // the servers ended the ZooKeeper session
	LossNode       = "node_deleted"    // somebody else deleted the lock node
	LossUnreadable = "node_unreadable" // the servers refuse to confirm the lock node
	LossAuth       = "auth_failed"     // all servers rejected the credentials until the lease ended
	LossClosed     = "closed"          // the Session was closed
	LossOther      = "other"           // a reason that has no word here
)

// word is what metrics call an error.
type word struct {
	err  error
	word string
}

// wordOf returns the first word that fits, or the last argument if none does.
func wordOf(err error, words []word, other string) string {
	for _, w := range words {
		if errors.Is(err, w.err) {
			return w.word
		}
	}
	return other
}

// A rejection of the credentials is the reason why no server answered.
var lossReasons = []word{
	{ErrAuthFailed, LossAuth}, {ErrClosed, LossClosed}, {link.ErrStoodStill, LossPaused}, {link.ErrSilence, LossNoServer}, {link.ErrNoQuorum, LossNoQuorum},
	{link.ErrNodeGone, LossNode}, {link.ErrUnreadable, LossUnreadable}, {link.ErrExpired, LossSession}, {ErrLost, LossOther},
}

// LossReason returns in one word why a hold was lost, for metrics: one of the constants above. err
// is a hold's Err, or another error around ErrLost; if it has several of these, the first counts.
// For all others LossReason returns "".
func LossReason(err error) string {
	loss := lossIn(err)
	if loss == nil {
		return ""
	}
	return wordOf(loss, lossReasons, LossOther)
}

// lossIn returns the error in the tree that wraps ErrLost itself, beside its reason (lostBecause).
func lossIn(err error) error {
	switch e := err.(type) {
	case interface{ Unwrap() error }:
		return lossIn(e.Unwrap())
	case interface{ Unwrap() []error }:
		all := e.Unwrap()
		if slices.Contains(all, ErrLost) {
			return err
		}
		for _, branch := range all {
			if loss := lossIn(branch); loss != nil {
				return loss
			}
		}
	}
	if err == ErrLost {
		return err
	}
	return nil
}

// The end of the caller's context comes first, because its cause can be any error.
var outcomes = []word{
	{context.Canceled, "canceled"}, {context.DeadlineExceeded, "deadline"}, {ErrNotAcquired, "not_acquired"},
	{ErrNotConnected, "not_connected"}, {ErrClosed, "closed"},
}

// Outcome returns in one word how an acquire ended, for metrics. err is the error of Acquire or
// TryAcquire, or of another call that acquires.
//
//   - acquired: err is nil.
//   - not_acquired: a client was ahead, and the call did not wait any longer (ErrNotAcquired).
//   - canceled: the caller's context was canceled, Resign ended a candidature, or another lock of
//     the Multi was lost.
//   - deadline: the deadline of the caller's context passed.
//   - not_connected: a call that did not wait any longer got no response (ErrNotConnected).
//   - closed: the Session was closed (ErrClosed).
//   - error: anything else. An operator has to look at the error.
func Outcome(err error) string {
	if err == nil {
		return "acquired"
	}
	return wordOf(err, outcomes, "error")
}
