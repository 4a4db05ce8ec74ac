package link

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/zklock/internal/answer"
	"github.com/zklock/zklock/internal/clock"
	"github.com/zklock/zklock/internal/eventlog"
	"github.com/zklock/zklock/internal/invariants"
	"github.com/zklock/zklock/internal/lease"
	"github.com/zklock/zklock/internal/secret"
	"github.com/zklock/zklock/internal/tap"
	"github.com/zklock/zklock/internal/wire"
)

// Era is one ZooKeeper session, from its connect response until its end: its requests, its lease,
// and its holds. A Session has one after the other. Leases, grants and watches belong to one
// session id and are never used under the next (I3).
//
// Requests wait until the session is attached, and end with it or with their caller. They are never
// sent in another one (I3).
type Era struct {
	ID       int64 // the servers' id of the session
	Log      *eventlog.Log
	Clock    *clock.Clock
	Carrier  Carrier
	Inside   Inside // set once, before the session is attached
	Password secret.Bytes
	Longest  int           // bytes in the longest request that its servers accept; set with Inside unless it is the default
	ended    chan struct{} // closed when the session ends

	mu struct {
		invariants.Mutex // never held across a channel, a callback or a ZooKeeper call

		cause      error // why the session ended
		lease      lease.Lease
		heard      clock.Instant     // when its server last responded
		served     clock.Instant     // when it last answered a request, or a server first re-attached the session after that
		unserved   bool              // no request has been answered since a server re-attached the session
		server     string            // that server
		unanswered int               // once it has ended: how many tries to end it on a server got no response
		overAt     clock.Instant     // once it has ended: when
		inTheWay   bool              // once it has ended: it may have lock nodes
		held       map[string]Holder // by node: checked by the heartbeat and protected by the lease
		kept       map[string]Holder // by node: checked by the heartbeat, but no caller relies on it
		beating    uint64            // the connection over which a heartbeat is in flight
		soon       bool              // a heartbeat is due at once
		failing    failing           // the heartbeats since the last success
	}
}

// Inside is the locks' part of a ZooKeeper session. Waiting and Restore are called under a mutex of
// the caller: they must neither block nor call back.
type Inside interface {
	// Event is called when a watch has fired, in the order in which the server sent the events.
	Event(ev wire.WatcherEvent)
	// Restore returns the first requests of a new connection, which set the watches again. before
	// is the last zxid seen on the previous connection.
	Restore(before int64) []*tap.Request
	// Waiting returns how many nodes are queued, and whether any caller may be waiting for a
	// response.
	Waiting() (queued int, busy bool)
	// Ended is called when the hold on a node has ended while the session continues. If the node is
	// not gone, it must be deleted.
	Ended(node string, gone bool)
}

// NewEra returns the session that a server has granted with a connect response.
func NewEra(c Carrier, log *eventlog.Log, clk *clock.Clock, mode lease.Mode, r tap.Response, server string, conn uint64, shook lease.Exchange) *Era {
	z := &Era{ID: r.SessionID, Log: log, Clock: clk, Carrier: c, Password: secret.Of(r.Password), Longest: wire.MaxFrame, ended: make(chan struct{})}
	z.mu.lease = lease.New(mode)
	z.mu.lease.Attached(conn, shook, r.Timeout, true)
	z.mu.heard, z.mu.served, z.mu.server = shook.Answered, shook.Answered, server
	z.mu.held, z.mu.kept = make(map[string]Holder), make(map[string]Holder)
	z.mu.OnUnlock(z.invariants())
	return z
}

// Carrier is the connection, as requests see it.
type Carrier interface {
	// Because adds to the reason of a loss that every server tried since has rejected us, if so.
	Because(err error) error
	// Send passes a request to the connection over which z is attached. Without such a connection
	// it drops the request and returns false.
	Send(z *Era, r *tap.Request) bool
	// AttachedConn returns the number of the connection over which z is attached now, 0 if it is
	// not.
	AttachedConn(z *Era) (conn uint64, changed <-chan struct{}, err error)
	// Spawn runs f on a goroutine that Close waits for. When the Session is closed, it returns
	// false and does not run f; ClosedErr returns the reason.
	Spawn(f func()) bool
	ClosedErr() error
	// Lost is called when z has ended, after its holds have been notified.
	Lost(z *Era, cause error)
	// Executed notes that a server has executed a request of that kind, although the response was
	// lost.
	Executed(op wire.Op)
	// Nudge makes the Session's goroutine check the held and queued nodes again.
	Nudge()
}

// Over returns a channel that is closed when the session ends.
func (z *Era) Over() <-chan struct{} { return z.ended }

// IsOver reports whether the session has ended.
func (z *Era) IsOver() bool {
	select {
	case <-z.Over():
		return true
	default:
		return false
	}
}

// Why returns why the session ended, nil if it has not.
func (z *Era) Why() error {
	z.mu.Lock()
	defer z.mu.Unlock()
	return z.mu.cause
}

// OverErr returns an error that the session has ended, with the reason. If the whole Session is
// closed, it returns that error instead.
func (z *Era) OverErr() error {
	cause := z.Why()
	if IsClosing(cause) {
		return cause
	}
	return fmt.Errorf("%w: %w", ErrOver, cause)
}

// Pause waits, and reports whether the session still lives.
func (z *Era) Pause(d time.Duration) bool { return z.PauseUnder(context.Background(), d) == nil }

// PauseUnder waits. If the session or ctx ends first, it returns that error at once.
func (z *Era) PauseUnder(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	_, err := Await(ctx, z, t.C)
	return err
}

// Await waits until ch delivers a value or is closed. If the session or ctx ends first, it returns
// that error.
func Await[T any](ctx context.Context, z *Era, ch <-chan T) (came T, err error) {
	select {
	case came = <-ch:
		return came, nil
	case <-z.Over():
		return came, z.OverErr()
	case <-ctx.Done():
		return came, ErrCtxEnded
	}
}

// AttachedConn returns the Carrier's AttachedConn: the number of the connection over which the
// session is attached now, 0 if it is not; a channel that is closed when that changes; and why the
// Session is closed, if it is.
func (z *Era) AttachedConn() (conn uint64, changed <-chan struct{}, err error) {
	return z.Carrier.AttachedConn(z)
}

// Stat returns zk.ErrNoNode if the node does not exist.
func (z *Era) Stat(node string) (*wire.Stat, error) {
	var stat wire.Stat
	_, err := z.Read(context.Background(), wire.OpExists, wire.PathWatchRequest{Path: node}, &stat)
	return &stat, err
}

// Multi executes all of the operations or none. If an operation failed, i is its index and err its
// error; otherwise i is −1.
func (z *Era) Multi(ctx context.Context, ops wire.MultiRequest, urgent bool) (i int, err error) {
	a, err := z.askAs(ctx, wire.OpMulti, ops, urgent)
	if err != nil {
		return -1, err
	}
	return answer.ErrOfMulti(a, len(ops.Ops))
}

// Check is a quorum operation. It succeeds if all nodes exist and we may READ them. If one node is
// the reason for a rejection, failed is that node.
func (z *Era) Check(ctx context.Context, nodes ...string) (failed string, err error) {
	var ops wire.MultiRequest
	for _, n := range nodes {
		ops.Ops = append(ops.Ops, wire.MultiOp{Op: wire.OpCheck, Path: n, Version: -1})
	}
	i, err := z.Multi(ctx, ops, true)
	if answer.IsRefusal(err) && i >= 0 {
		return nodes[i], err
	}
	return "", err
}

// ErrOf returns the error of a completed request: OverErr if the session has ended, otherwise
// answer.ErrOf.
func (z *Era) ErrOf(a tap.Answer) error {
	if z.IsOver() {
		return z.OverErr()
	}
	return answer.ErrOf(a)
}

// Ask sends one request in this ZooKeeper session as soon as it is attached, over another
// connection if the first attempt was not sent, and waits for the response under ctx.
//
// The error is the server's, zk.ErrConnectionClosed without a response, or the reason why the
// session or ctx ended first. A caller that stops waiting does not cancel the request.
func (z *Era) Ask(ctx context.Context, op wire.Op, body wire.Record) (tap.Answer, error) {
	return z.askAs(ctx, op, body, false)
}

func (z *Era) askAs(ctx context.Context, op wire.Op, body wire.Record, urgent bool) (tap.Answer, error) {
	for {
		if _, err := z.WaitAttached(ctx); err != nil {
			return tap.Answer{}, err
		}
		ch := make(chan tap.Answer, 1)
		r := tap.NewRequest(op, body, func(a tap.Answer) {
			a.Body = slices.Clone(a.Body)
			ch <- a
		})
		r.Urgent = urgent
		if err := TooLong(r, z.Longest); err != nil {
			return tap.Answer{}, err
		}
		if !z.Carrier.Send(z, r) {
			continue
		}
		a, err := Await(ctx, z, ch)
		if err != nil {
			return a, err
		}
		if err := z.ErrOf(a); a.Fate != tap.NeverSent || z.IsOver() {
			return a, err
		}
	}
}

// LongRequest is the length in bytes above which we check whether the servers read a request. A
// lower jute.maxbuffer is very rare.
const LongRequest = 4 << 10

// TooLong rejects a request longer than most bytes: servers that read no more would close the
// connection.
func TooLong(r *tap.Request, most int) error {
	if n := r.Length(); n > most {
		return fmt.Errorf("%w: a request of %d bytes is too long: servers read %d at most (jute.maxbuffer)", zk.ErrBadArguments, n, most)
	}
	return nil
}

// Read sends a read, and decodes a successful response.
func (z *Era) Read(ctx context.Context, op wire.Op, body wire.Record, into interface{ Decode(*wire.Decoder) }) (tap.Answer, error) {
	a, err := z.Ask(ctx, op, body)
	if err == nil {
		err = a.Decode(into)
	}
	return a, err
}

// WaitAttached waits until the session is attached, and returns the number of the connection.
func (z *Era) WaitAttached(ctx context.Context) (conn uint64, err error) {
	for {
		if z.IsOver() {
			return 0, z.OverErr()
		}
		conn, changed, err := z.AttachedConn()
		if err != nil {
			return 0, err
		}
		if conn != 0 {
			return conn, nil
		}
		select {
		case <-changed:
		case <-z.Over():
		case <-ctx.Done():
			return 0, ErrCtxEnded
		}
	}
}
