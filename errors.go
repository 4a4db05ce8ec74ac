package zklock

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/zklock/zklock/internal/dial"
	"github.com/zklock/zklock/internal/lease"
	"github.com/zklock/zklock/internal/link"
	"github.com/zklock/zklock/internal/node"
	"github.com/zklock/zklock/internal/reply"
	"github.com/zklock/zklock/internal/sessionfile"
	"github.com/zklock/zklock/internal/wire"
)

// Test for these errors with errors.Is.
var (
	// ErrNotAcquired: another client is ahead, and the call does not wait any longer. The call's
	// node is deleted, perhaps in the background.
	ErrNotAcquired = errors.New("lock not acquired: another client is ahead")
	// ErrNotConnected: no server replied in time, so the call cannot determine whether the lock is
	// free, or whether a hold exists. The call's node is deleted in the background.
	ErrNotConnected = errors.New("no connection to the servers")
	// ErrUpgrade: the owner of the read lock requests the write lock, and would wait for itself.
	ErrUpgrade = errors.New("no upgrade from the read lock to the write lock: release the read lock first")
	// ErrNotHeld: the handle was released or, if CheckSequencer returns it, the hold has ended.
	ErrNotHeld = errors.New("lock not held")
	// ErrLost: the hold ended without a release. Its work may have overlapped with the next
	// holder's, unless the resource checks the fencing token.
	ErrLost = errors.New("lock lost")
	// ErrResigned: Resign ended a candidature or a leadership. It is also the cause of the leader's
	// context.
	ErrResigned = errors.New("resigned")
	// ErrNotConfirmed: no server confirmed a release in time. The lock was held until Release
	// began, and is free when the deletion succeeds in the background or the ZooKeeper session
	// ends.
	ErrNotConfirmed = errors.New("release not confirmed")
	// ErrClosed: the Session was closed, or the *zk.Conn under it was.
	ErrClosed = errClosed
	// ErrSequenceExhausted: the lock root's sequence numbers are used up. Another try succeeds when
	// the queue has drained and zklock has removed the root: retry with growing pauses. If a node
	// prevents the removal, the error names it, and an operator may have to delete it.
	ErrSequenceExhausted = errors.New("sequence numbers of the lock root are used up")
	// ErrSessionTimeoutTooShort: the session timeout leaves the lease no margin.
	ErrSessionTimeoutTooShort = errSessionTimeoutTooShort
	// ErrNoChroot: the chroot does not exist: create it, or give WithCreateChroot to Connect. After
	// Connect the error means that the servers have lost it, and perhaps other data.
	ErrNoChroot = errChroot
	// ErrTooManyLockNodes: the Session has as many lock nodes as WithMaxLockNodes allows.
	ErrTooManyLockNodes = errTooMany
	// ErrAuthFailed: a server rejected the credentials of WithDigest or WithSASL, requires
	// credentials, or did not prove its identity. Before a server has served the Session, the error
	// is final, and the Session is closed. Later the Session tries again, and the error is not
	// final, but joined with ErrNotConnected, the end of a call's context, or ErrLost.
	ErrAuthFailed = errAuthFailed
	// ErrCertificate: each server that was tried rejected our TLS certificate, or we rejected the
	// server's. It is never final, because the next dial uses a renewed certificate (WithTLSFiles).
	// It is joined as ErrAuthFailed is.
	ErrCertificate = errCertificate
	// ErrSessionFileInUse: another Session, or a process that lives, has the file of
	// WithSessionFile.
	ErrSessionFileInUse = errSessionFileInUse
)

// The packages below return these errors. The public names stand for them, so that the
// documentation shows no internal package.
var (
	errClosed, errAuthFailed                         = link.ErrClosed, link.ErrAuthFailed
	errSessionTimeoutTooShort, errTooMany, errChroot = lease.ErrSessionTimeoutTooShort, node.ErrTooMany, node.ErrNoChroot
	errCertificate, errSessionFileInUse              = dial.ErrCertificate, sessionfile.ErrInUse
)

// Error reports which operation failed, on which lock, and why. Err is never nil. errors.Is and
// errors.As find the sentinels above, the cause of the caller's context, and errors of package zk.
type Error struct {
	Op   string // the operation, such as connect, acquire, try, release, or hold (its end)
	Path string // the lock's path as given; for connect, the connection string
	// Node is the absolute path of our node, if any. If the call waited for another call of its
	// owner, all fields below describe that call's node.
	Node string
	Err  error

	// Position (1 is the first) and Predecessor, the node just ahead, are from the last list of the
	// queue, if a wait or try ended behind other nodes. Otherwise they are 0 and "". The queue of a
	// semaphore has only waiters: the first waiter's Predecessor is a lease, or "" if there is no
	// lease.
	Position    int
	Predecessor string
	// Holder describes the holder to people: the data of its node (WithData), its session, and when
	// it queued. It is "" unless the call was next. For permits, it describes the first lease's
	// holder, after a wait of half a second, and has the number of further leases.
	Holder     string
	DelayUntil time.Time // end of the lock-delay in which the call ended (WithLockDelay), or zero
}

// Error returns the operation, lock, node, cause and position.
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
		fmt.Fprintf(&b, "; position %d in the queue when it was last listed, behind %s", e.Position, shown(e.Predecessor))
	}
	if e.Holder != "" {
		b.WriteString("; held by " + e.Holder)
	}
	if !e.DelayUntil.IsZero() {
		b.WriteString("; the holder disappeared, and the lock-delay lasts until " + e.DelayUntil.Format(time.RFC3339))
	}
	return b.String()
}

// shown returns text of another client, quoted if it has characters that could move a terminal's
// cursor.
func shown(s string) string {
	if q := strconv.Quote(s); q[1:len(q)-1] != s {
		return q
	}
	return s
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// IsFinal reports whether the same call will fail until an administrator changes the program, its
// configuration or the servers' permissions. It is true for bad arguments, ErrUpgrade, ErrClosed,
// ErrSessionTimeoutTooShort, ErrNoChroot, ErrSessionFileInUse, an ErrAuthFailed that closed the
// Session, rejections such as zk.ErrNoAuth, and errors marked by Final. Retry after all others,
// with growing pauses. IsFinal is false for nil, the end of the caller's context, and other errors
// of the caller's work.
func IsFinal(err error) bool {
	if isMarked(err) {
		return true
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return false // its cause is the caller's, and can be any error
	}
	var bad badArgument
	if errors.As(err, &bad) || link.IsClosing(err) || reply.IsAny(err, ErrUpgrade, ErrSessionTimeoutTooShort, ErrNoChroot, ErrSessionFileInUse) {
		return true
	}
	var ours *Error
	if errors.Is(err, ErrLost) || !errors.As(err, &ours) {
		return false // if a rejection caused the loss, the next acquire returns it
	}
	code := reply.ServerCode(ours)
	return reply.IsAny(ours, zk.ErrNoAuth, zk.ErrAuthFailed, zk.ErrInvalidACL, zk.ErrBadArguments, zk.ErrNoChildrenForEphemerals) ||
		code == wire.Unimplemented || code == wire.LocalSession
}

// Final marks an error as permanent, for IsFinal and Election.Run. The text and the results of
// errors.Is do not change. Final(nil) is nil.
func Final(err error) error {
	if err == nil {
		return nil
	}
	return markedFinal{err}
}

type markedFinal struct{ error }

func (f markedFinal) Unwrap() error { return f.error }

func isMarked(err error) bool { return errors.As(err, new(markedFinal)) }

// badArgument is an error in the arguments of a call.
type badArgument struct{ error }

var (
	errNilContext  = badArgument{errors.New("nil context")}
	errNoSession   = badArgument{errors.New("nil or zero Session: use the one that Connect returns with a nil error")}
	errNoMutex     = badArgument{errors.New("nil or zero Mutex: use the one that NewMutex returns with a nil error")}
	errNoRWMutex   = badArgument{errors.New("nil or zero RWMutex: use the one that NewRWMutex returns with a nil error")}
	errNoSemaphore = badArgument{errors.New("nil or zero Semaphore: use the one that NewSemaphore returns with a nil error")}
	errNoElection  = badArgument{errors.New("nil or zero Election: use the one that NewElection returns with a nil error")}
	errNoHold      = badArgument{errors.New("nil or zero Hold: use the one that Acquire returns with a nil error")}

	errReentry = badArgument{errors.New("the call's context carries a hold of this lock, so the call would wait for itself: " +
		"give zklock.WithOwner(ctx, hold.Owner()) to re-enter the lock, or a context without the hold")}

	errNoMulti     = badArgument{errors.New("nil or zero Multi: use the one that NewMulti returns with a nil error")}
	errNoMultiHold = badArgument{errors.New("nil or zero MultiHold: use the one that Acquire returns with a nil error")}
)

func (b badArgument) Unwrap() error { return b.error }

// usable returns x, and panics with why if x is nil or zero. It is for methods that return no
// error.
func usable[T any](x *T, isMade bool, why error) *T {
	if !isMade {
		panic(fmt.Errorf("zklock: %w", why))
	}
	return x
}

// errRequeue reports that our node is not in the queue, or has no position of its own: the call
// queues again at the tail.
var errRequeue = errors.New("queue again")

// errGranted reports that a recipe has granted the lock at the node's position, with other nodes
// ahead.
var errGranted = errors.New("granted")

// errBusy reports that another acquisition of the owner is in progress, for this share or the other
// one. A second acquisition could wait for the first.
var errBusy = errors.New("the owner is being served in another call")

// lostBecause returns ErrLost with its reason. errors.Is finds both.
func lostBecause(reason error) error {
	if errors.Is(reason, ErrLost) {
		return reason
	}
	return fmt.Errorf("%w: %w", ErrLost, reason)
}

// Why a hold ended with its release, or why the release is not confirmed. The reasons of a loss are
// in internal/link.
var (
	errNoAnswer = errors.New("no server answered before the lease ended")
	errTooLate  = errors.New("no server answered in time")
	errReleased = fmt.Errorf("%w: this Hold was released", ErrNotHeld)
)

// forCaller returns the error for the caller: ctxError instead of link.ErrCtxEnded.
func forCaller(ctx context.Context, err error) error {
	if err == link.ErrCtxEnded {
		return ctxError(ctx)
	}
	return err
}

// ctxError returns the Err and the cause of a context whose Done is closed. errors.Is finds both.
// Some contexts that users write set their Err a moment later: for them it returns
// context.Canceled.
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

// Loss is the reason of a loss, in one word for metrics (HoldInfo.Reason).
type Loss string

const (
	LossNoServer   Loss = "no_server"       // no server answered before the lease ended
	LossNoQuorum   Loss = "no_quorum"       // no quorum confirmed the session, or heartbeats failed
	LossPaused     Loss = "paused"          // this process was paused until the lease had ended
	LossSession    Loss = "session_ended"   // the servers ended the ZooKeeper session
	LossNode       Loss = "node_deleted"    // another client deleted the lock node
	LossUnreadable Loss = "node_unreadable" // the servers do not let us read the lock node
	LossAuth       Loss = "auth_failed"     // all servers rejected the credentials until the lease ended
	LossClosed     Loss = "closed"          // the Session was closed
	LossOther      Loss = "other"           // another reason
)

// word is the name of an error in metrics.
type word[T ~string] struct {
	err  error
	word T
}

// wordOf returns the first word that matches, or the last argument if none does.
func wordOf[T ~string](err error, words []word[T], other T) T {
	for _, w := range words {
		if errors.Is(err, w.err) {
			return w.word
		}
	}
	return other
}

// ErrAuthFailed is first, because rejected credentials are the reason why no server replied.
var lossReasons = []word[Loss]{
	{ErrAuthFailed, LossAuth}, {ErrClosed, LossClosed}, {link.ErrStoodStill, LossPaused}, {link.ErrSilence, LossNoServer}, {link.ErrNoQuorum, LossNoQuorum},
	{link.ErrNodeGone, LossNode}, {link.ErrUnreadable, LossUnreadable}, {link.ErrExpired, LossSession},
}

// lossReason returns the reason of a loss: the first constant of Loss that fits.
func lossReason(loss error) Loss { return wordOf(loss, lossReasons, LossOther) }

// The end of the caller's context is first, because its cause can be any error.
var outcomes = []word[string]{
	{context.Canceled, "canceled"}, {context.DeadlineExceeded, "deadline"}, {ErrNotAcquired, "not_acquired"},
	{ErrNotConnected, "not_connected"}, {ErrClosed, "closed"},
}

// outcomeWord returns AcquireEndInfo.Outcome.
func outcomeWord(err error) string {
	if err == nil {
		return "acquired"
	}
	return wordOf(err, outcomes, "error")
}
