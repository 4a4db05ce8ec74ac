package link

import (
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"

	"github.com/zklock/zklock/internal/dial"
	"github.com/zklock/zklock/internal/sasl"
)

// Errors that callers test for. The root returns them to its users.
var (
	// ErrClosed: the Session was closed, or the *zk.Conn under it was.
	ErrClosed = errors.New("session closed")
	// ErrAuthFailed: a server rejected the credentials.
	ErrAuthFailed = sasl.ErrFailed
)

// Why a ZooKeeper session, or a hold in it, ended.
var (
	// ErrLeaseEnded: the lease ended under a hold.
	ErrLeaseEnded = errors.New("the lease ended")
	// ErrStoodStill: it ended while this process was paused.
	ErrStoodStill = fmt.Errorf("%w: this process stood still", ErrLeaseEnded)
	// ErrSilence: it ended, and no server had responded.
	ErrSilence = fmt.Errorf("%w: no server has answered", ErrLeaseEnded)
	// ErrNoQuorum: it ended although a server responded.
	ErrNoQuorum = errors.New("no quorum has confirmed the session")
	// ErrUnheard: no server has responded for lease.Unheard. Under a QuorumLease a hold is lost
	// before that, at the end of its lease.
	ErrUnheard = errors.New("no server has answered for longer than the session timeout")
	// ErrExpired: the servers ended the session.
	ErrExpired = errors.New("the servers ended the ZooKeeper session")
	// ErrNodeGone: the session lives, and the node of the hold was deleted.
	ErrNodeGone = errors.New("another client deleted the lock node")
	// ErrUnreadable: the session lives, and its heartbeat may not READ the node of the hold.
	ErrUnreadable   = errors.New("the servers reject the check of the lock node")
	errMoved        = errors.New("the ZooKeeper session has moved to another connection")
	errPingRefused  = errors.New("a server rejected the session's ping")
	errConnClosed   = fmt.Errorf("%w: Session.Conn() was closed", ErrClosed)
	errNoneToExpire = errors.New(`connected, but the server answers "session expired" and there was no session: it is overloaded, or no ZooKeeper server`)
)

// IsClosing reports whether an error is a reason for which the link was closed. A rejection is one,
// unless it is only the reason why no server has been reached.
func IsClosing(err error) bool {
	return errors.Is(err, ErrClosed) || errors.Is(err, ErrAuthFailed) && !dial.IsUnreached(err)
}

// whyDetached describes the end of a connection. It returns nil if we ended the connection
// ourselves.
func whyDetached(err error) error {
	var timeout net.Error
	switch {
	case err == nil, errors.Is(err, net.ErrClosed):
		return nil
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return fmt.Errorf("the server closed the connection: %w", err)
	case errors.As(err, &timeout) && timeout.Timeout():
		return fmt.Errorf("the server did not answer in time: %w", err)
	}
	return err
}

// ErrHungUp: servers have ended three connections in a row at one kind of request, which ZooKeeper
// has since 3.5.
var ErrHungUp = errors.New("the servers close the connection at each request of one kind")

// ErrSessionEnded: the ZooKeeper session has ended; the reason is wrapped as well.
var ErrSessionEnded = errors.New("session over")

// ErrCtxEnded: a context ended. It omits the cause, which may be any error, even one that servers
// return, such as the first error in an errgroup (R75). Only the error returned to the caller
// contains it.
var ErrCtxEnded = errors.New("the context ended")
