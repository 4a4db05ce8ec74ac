package zklock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/zklock/zklock/internal/dial"
	"github.com/zklock/zklock/internal/lease"
	"github.com/zklock/zklock/internal/link"
	"github.com/zklock/zklock/internal/nodes"
	"github.com/zklock/zklock/internal/reply"
	"github.com/zklock/zklock/internal/wire"
)

// What callers branch on. Test for them with errors.Is: the errors of this package wrap them.
var (
	// ErrNotAcquired: somebody else is ahead in the queue, and the call does not wait. Its node is deleted, or is being
	// deleted in the background.
	ErrNotAcquired = errors.New("lock not acquired: somebody is ahead")
	// ErrNotConnected: a call that does not wait, or no longer, cannot say whether the lock is free, or a hold is still there. The Session is not
	// connected to a server, or none answered in time. Its node is deleted in the background if there is one. It is never ErrNotAcquired too.
	ErrNotConnected = errors.New("no connection to the servers")
	// ErrUpgrade: the owner has the read lock, and not the write lock that it asks for: it would wait for itself. It must release
	// the read lock first.
	ErrUpgrade = errors.New("no upgrade from the read lock to the write lock: release the read lock first")
	// ErrNotHeld: the handle was released; of CheckSequencer, the hold has ended, or its lock root was removed.
	ErrNotHeld = errors.New("lock not held")
	// ErrLost: the lock was held, and ended without a release. What ran under it may have overlapped with the next holder.
	// Only a resource that checks the fencing token is guaranteed to be safe.
	ErrLost = errors.New("lock lost")
	// ErrResigned: Resign ended a candidature, or a leadership. It is also the cause of the context that the leader works under.
	ErrResigned = errors.New("resigned")
	// ErrNotConfirmed: a Release gave the lock up here, and no server confirmed in time that the lock node is gone. The
	// lock was held until the Release began. The deletion goes on in the background. Others get the lock when it succeeds,
	// or when the ZooKeeper session ends.
	ErrNotConfirmed = errors.New("release not confirmed")
	// ErrClosed: the Session was closed, or the *zk.Conn under it was.
	ErrClosed = errClosed
	// ErrSequenceExhausted: the lock root's counter has come to its end. zklock grants no node numbered 2^31 − 2^20 or more, or
	// below zero, and none beside a negative one. When the queue has drained, zklock removes the root, the counter starts again,
	// and another try succeeds. Pause between tries, longer each time: clients that try at once keep the queue from draining. A
	// node that is in the way is named; one of another client may have to be removed.
	ErrSequenceExhausted = errors.New("sequence numbers of the lock root are used up")
	// ErrSessionTimeoutTooShort: the session timeout leaves the lease no time in which a hold could
	// be relied on.
	ErrSessionTimeoutTooShort = errSessionTimeoutTooShort
	// ErrNoChroot: the chroot of the connection string is not there: make it, or give WithCreateChroot to Connect. Mistyped, it
	// would make locks that exclude nobody. After Connect it says that the servers have lost the chroot, and perhaps more.
	ErrNoChroot = errors.New("the chroot is not there")
	// ErrTooManyWaiters: the Session has as many lock nodes as WithMaxLockNodes allows.
	ErrTooManyWaiters = errTooMany
	// ErrAuthFailed: a server rejected the credentials given with WithDigest or WithSASL, or
	// demands some where none were given, or did not prove its identity. It is final if no server
	// has served the Session before: Connect returns it, or the first call does, and the Session is
	// closed. After that the Session tries on. If all servers reject it, ErrAuthFailed is joined
	// with ErrNotConnected, with the end of a call's context, or with ErrLost when a lease has
	// ended, and is not final.
	ErrAuthFailed = errAuthFailed
	// ErrCertificate: over TLS, each server that was tried refused our certificate, or we refused its. The error says which, and why. It
	// is joined with the end of a call's context, with ErrNotConnected, or with ErrLost when a lease has ended, and is not final: the
	// Session tries on, and a certificate that is renewed is taken at the next dial (WithTLSFiles).
	ErrCertificate = errCertificate
)

// What the packages below return of those. The public names stand for these, so that the documentation shows no internal package.
var (
	errClosed, errAuthFailed              = link.ErrClosed, link.ErrAuthFailed
	errSessionTimeoutTooShort, errTooMany = lease.ErrSessionTimeoutTooShort, nodes.ErrTooMany
	errCertificate                        = dial.ErrCertificate
)

// Error says which operation failed, on which lock, and why. Err is never nil. errors.Is and errors.As find in it the
// sentinels above, the cause of the caller's context, and the errors of the zk package.
type Error struct {
	Op   string // connect, new mutex, new rwmutex, new semaphore, new multi, new election, do, acquire, try, release, hold (its end), participants, first, limit, set limit, revoke, campaign, resign, leader, observe, parse sequencer, check sequencer, close
	Path string // lock path as given to NewMutex; the connection string for connect
	Node string // our node, absolute, where there was one; of a call that waited for another of its owner, that one's, as Place and the others
	Err  error

	// For a wait or a try that ended behind others: our place in the queue when it was last listed (1 is the front), and
	// the absolute path of the node just ahead of ours. They cost no request. 0 and "" for all other errors. The front of a mutex's
	// queue holds. Who holds permits has left the queue: its front is the first of those that wait, and just ahead of it is a lease,
	// unless it waits for a limit alone.
	Position    int
	Predecessor string
	// The holder then, for people: the data of its node (host and process, unless WithData set something else), its
	// session, and since when it was queued. Only a call that was next knows it, second in a mutex's queue or first in a line for
	// permits. There it is the holder of the first lease, and how many more leases there are; one request asks for it when the wait has
	// lasted for half a second. A mutex makes none for it. Otherwise it is "".
	Holder string
	// Until when the lock-delay lasts, if the wait or the try ended in it (WithLockDelay). Otherwise zero.
	DelayUntil time.Time
}

// Error spells the operation, the lock, our node, the cause and our place, in this order.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString("zklock: ")
	b.WriteString(e.Op)
	if e.Path != "" {
		b.WriteString(" " + e.Path)
	}
	if e.Node != "" && e.Node != e.Path {
		b.WriteString(" (node " + e.Node + ")")
	}
	fmt.Fprintf(&b, ": %v", e.Err)
	if e.Position > 0 && e.Predecessor != "" {
		fmt.Fprintf(&b, "; place %d in the queue when it was last listed, behind %s", e.Position, shown(e.Predecessor))
	}
	if e.Holder != "" {
		b.WriteString("; held by " + e.Holder)
	}
	if !e.DelayUntil.IsZero() {
		b.WriteString("; the holder disappeared, and the lock-delay lasts until " + e.DelayUntil.Format(time.RFC3339))
	}
	return b.String()
}

// shown returns what another client wrote as it is, or quoted if that could move a terminal's cursor.
func shown(s string) string {
	if q := strconv.Quote(s); q[1:len(q)-1] != s {
		return q
	}
	return s
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// IsFinal reports whether an error is permanent: the same call will not succeed until an
// administrator changes the program, its configuration, or the permissions on the servers. Such
// errors are bad arguments, ErrUpgrade, ErrClosed, ErrSessionTimeoutTooShort, ErrNoChroot,
// ErrAuthFailed if it closed the Session, rejections by the servers such as zk.ErrNoAuth, and each
// error that Final has marked. After all other errors another try may succeed: pause before it,
// longer each time, as the example does. IsFinal is false for nil, for the end of the caller's
// context, and for an unmarked error of the caller's own work: its zk.ErrNoAuth has no *Error
// around it.
func IsFinal(err error) bool {
	if isMarked(err) {
		return true
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return false // the cause beside it is the caller's, and can be any error
	}
	var bad badArgument
	if errors.As(err, &bad) || link.IsClosing(err) || reply.IsAny(err, ErrUpgrade, ErrSessionTimeoutTooShort, ErrNoChroot) {
		return true
	}
	var ours *Error
	if errors.Is(err, ErrLost) || !errors.As(err, &ours) {
		return false // if the reason of a loss is a refusal, the next acquire says so
	}
	code := reply.ServerCode(ours)
	return reply.IsAny(ours, zk.ErrNoAuth, zk.ErrAuthFailed, zk.ErrInvalidACL, zk.ErrBadArguments, zk.ErrNoChildrenForEphemerals) ||
		code == wire.Unimplemented || code == wire.LocalSession
}

// Final marks an error as permanent: IsFinal reports true for the result and for errors that wrap
// it. It ends Election.Run if lead returns it. errors.Is and errors.As find err in it, and its text
// is the same. Final(nil) is nil.
func Final(err error) error {
	if err == nil {
		return nil
	}
	return markedFinal{err}
}

type markedFinal struct{ error }

func (f markedFinal) Unwrap() error { return f.error }

func isMarked(err error) bool { return errors.As(err, new(markedFinal)) }

// badArgument is an error of the caller's.
type badArgument struct{ error }

var (
	errNilContext  = badArgument{errors.New("nil context")}
	errNoSession   = badArgument{errors.New("nil or zero Session: use the one that Connect returns with a nil error")}
	errNoMutex     = badArgument{errors.New("nil or zero Mutex: use the one that NewMutex returns with a nil error")}
	errNoRWMutex   = badArgument{errors.New("nil or zero RWMutex: use the one that NewRWMutex returns with a nil error")}
	errNoSemaphore = badArgument{errors.New("nil or zero Semaphore: use the one that NewSemaphore returns with a nil error")}
	errNoElection  = badArgument{errors.New("nil or zero Election: use the one that NewElection returns with a nil error")}
	errNoHold      = badArgument{errors.New("nil or zero Hold: use the one that Acquire returns with a nil error")}

	errReentry = badArgument{errors.New("WithoutReentry: the caller holds this lock already, so the call would wait for itself: " +
		"release that hold first, or give a context that carries neither the hold nor its owner")}

	errNoMulti     = badArgument{errors.New("nil or zero Multi: use the one that NewMulti returns with a nil error")}
	errNoMultiHold = badArgument{errors.New("nil or zero MultiHold: use the one that Acquire returns with a nil error")}
)

func (b badArgument) Unwrap() error { return b.error }

// errRequeue says that our node does not stand in the queue, or not in a place of its own: begin again at the tail.
var errRequeue = errors.New("queue again")

// errGranted says that a recipe has granted where the node stands, with others ahead of it.
var errGranted = errors.New("granted")

// errBusy says that the owner has an acquisition under way, for the share or for the other one beside it. A second one could wait for the first.
var errBusy = errors.New("the owner is being served in another call")

func errNoChroot(chroot string) error {
	return fmt.Errorf("%w: make %s, or give WithCreateChroot to Connect", ErrNoChroot, chroot)
}

// errChrootLost is for a chroot that Connect has found or made.
func errChrootLost(chroot string) error {
	return fmt.Errorf("%w any more: the servers have lost %s since this Session connected: make it again, or have another Connect with "+
		"WithCreateChroot make it", ErrNoChroot, chroot)
}

// lostBecause returns ErrLost with its reason. Both are visible to errors.Is.
func lostBecause(reason error) error {
	if errors.Is(reason, ErrLost) {
		return reason
	}
	return fmt.Errorf("%w: %w", ErrLost, reason)
}

// Why a hold or its release ended as it did.
var (
	errNoAnswer = errors.New("no server answered before the lease ended")
	errTooLate  = errors.New("no server answered in time")
	errReleased = fmt.Errorf("%w: this Hold was released", ErrNotHeld)
)

// forCaller returns an error as the caller is to see it: ctxError in place of link.ErrCtxEnded.
func forCaller(ctx context.Context, err error) error {
	if err == link.ErrCtxEnded {
		return ctxError(ctx)
	}
	return err
}

// ctxError returns the Err and the cause of a context whose Done is closed. Both are visible to errors.Is. Some contexts that
// users write have their Err a moment later: for those it returns context.Canceled.
func ctxError(ctx context.Context) error {
	cause, err := context.Cause(ctx), ctx.Err()
	switch {
	case cause == nil:
		return context.Canceled
	case err == nil || errors.Is(cause, err):
		return cause
	}
	return fmt.Errorf("%w: %w", err, cause)
}

// ignoring returns err, or nil if it is one of those.
func ignoring(err error, those ...error) error {
	if slices.ContainsFunc(those, func(e error) bool { return errors.Is(err, e) }) {
		return nil
	}
	return err
}

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
