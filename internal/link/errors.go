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

// What callers branch on, and the root gives to its users.
var (
	// ErrClosed: the Session was closed, or the *zk.Conn under it was.
	ErrClosed = errors.New("session closed")
	// ErrAuthFailed: a server refused the credentials.
	ErrAuthFailed = sasl.ErrFailed
)

// Why a ZooKeeper session, or a hold in it, is over.
var (
	// ErrLeaseEnded: the lease ended over a hold.
	ErrLeaseEnded = errors.New("the lease ended")
	// ErrStoodStill: it ended, and nobody looked.
	ErrStoodStill = fmt.Errorf("%w: this process stood still", ErrLeaseEnded)
	// ErrSilence: it ended without an answer.
	ErrSilence = fmt.Errorf("%w: no server has answered", ErrLeaseEnded)
	// ErrNoQuorum: it ended although a server answered.
	ErrNoQuorum = errors.New("no quorum has confirmed the session")
	// ErrUnheard: no server has answered a request for lease.Unheard. A hold under a QuorumLease would have been lost before, at the
	// end of its lease.
	ErrUnheard = errors.New("no server has answered for longer than the session timeout")
	// ErrExpired: the servers ended it.
	ErrExpired = errors.New("the servers ended the ZooKeeper session")
	// ErrNodeGone: the session goes on, and the node of the hold is gone.
	ErrNodeGone = errors.New("somebody else deleted the lock node")
	// ErrUnreadable: the session goes on, and its heartbeat may not READ the node of the hold.
	ErrUnreadable   = errors.New("the servers refuse to confirm the lock node")
	errMoved        = errors.New("the ZooKeeper session has moved to another connection")
	errPingRefused  = errors.New("a server refused the session's ping")
	errConnClosed   = fmt.Errorf("%w: somebody closed Session.Conn()", ErrClosed)
	errNoneToExpire = errors.New(`connected, but the server answers "session expired" and there was no session: it is overloaded, or no ZooKeeper server`)
)

// IsClosing reports whether an error is a reason for which the link was closed. A rejection is one,
// unless it is only the reason why no server has been reached.
func IsClosing(err error) bool {
	return errors.Is(err, ErrClosed) || errors.Is(err, ErrAuthFailed) && !dial.IsUnreached(err)
}

// whyDetached puts the end of a connection into words. It returns nil if we ended it ourselves.
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

// ErrHungUp: servers have ended three connections in a row at one kind of request, which ZooKeeper has since 3.5.
var ErrHungUp = errors.New("the servers close the connection at each request of one kind")

// ErrOver: the ZooKeeper session is over; the reason is wrapped beside it.
var ErrOver = errors.New("session over")

// ErrCtxEnded says that a context ended, and not why: the cause may be any error, also one that servers answer with, such as
// the first error in an errgroup (R75). Only what is returned to the caller has the cause.
var ErrCtxEnded = errors.New("the context ended")
