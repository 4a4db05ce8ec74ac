package link

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/zklock/internal/clock"
	"github.com/zklock/zklock/internal/eventlog"
	"github.com/zklock/zklock/internal/invariants"
	"github.com/zklock/zklock/internal/lease"
	"github.com/zklock/zklock/internal/mux"
	"github.com/zklock/zklock/internal/reply"
	"github.com/zklock/zklock/internal/secret"
	"github.com/zklock/zklock/internal/wire"
)

// ZKSession is one ZooKeeper session, from its connect response until its end: its requests, its
// lease, and its holds. A Session has one after the other. Leases, grants and watches belong to one
// session id and are never used under the next (I3).
//
// Requests wait until the session is attached, and end with it or with their caller. They are never
// sent in another one (I3).
type ZKSession struct {
	ID       int64 // the servers' id of the session
	Log      *eventlog.Log
	Clock    *clock.Clock
	Carrier  Carrier
	Inside   Inside // set once, before the session is attached
	Password secret.Bytes
	Longest  int           // bytes in the longest request that its servers accept; set with Inside unless it is the default
	endedCh  chan struct{} // closed when the session ends

	mu struct {
		invariants.Mutex // never held across a channel, a callback or a ZooKeeper call

		cause      error // why the session ended
		lease      lease.Lease
		heard      clock.Instant     // when its server last responded
		served     clock.Instant     // when it last responded to a request, or a server first re-attached the session after that
		unserved   bool              // no request got a response since a server re-attached the session
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
	Restore(before int64) []*mux.Request
	// Waiting returns how many nodes are queued, and whether any caller may be waiting for a
	// response.
	Waiting() (queued int, busy bool)
	// NodeEnded is called when the hold on a node has ended while the session continues. If the
	// node still exists, it must be deleted.
	NodeEnded(node string, gone bool)
}

// NewZKSession returns the session that a server has granted with a connect response.
func NewZKSession(c Carrier, log *eventlog.Log, clk *clock.Clock, mode lease.Mode, r mux.Response, server string, conn uint64, shook lease.Exchange) *ZKSession {
	z := &ZKSession{ID: r.SessionID, Log: log, Clock: clk, Carrier: c, Password: secret.Of(r.Password), Longest: wire.MaxFrame, endedCh: make(chan struct{})}
	z.mu.lease = lease.New(mode)
	z.mu.lease.Attached(conn, shook, r.Timeout, true)
	z.mu.heard, z.mu.served, z.mu.server = shook.Answered, shook.Answered, server
	z.mu.held, z.mu.kept = make(map[string]Holder), make(map[string]Holder)
	z.mu.OnUnlock(invariantsOf(z))
	return z
}

// Carrier is the connection, as requests see it.
type Carrier interface {
	// Because adds to the reason of a loss that every server tried since has rejected us, if so.
	Because(err error) error
	// Send passes a request to the connection over which z is attached. Without such a connection
	// it drops the request and returns false.
	Send(z *ZKSession, r *mux.Request) bool
	// AttachedConn returns the number of the connection over which z is attached now, 0 if it is
	// not.
	AttachedConn(z *ZKSession) (conn uint64, changed <-chan struct{}, err error)
	// Spawn runs f on a goroutine that Close waits for. When the Session is closed, it returns
	// false and does not run f; ClosedErr returns the reason.
	Spawn(f func()) bool
	ClosedErr() error
	// Lost is called when z has ended, after its holds have been notified.
	Lost(z *ZKSession, cause error)
	// Executed notes that a server has executed a request of that kind, although the response was
	// lost.
	Executed(op wire.Op)
	// Nudge makes the Session's goroutine check the held and queued nodes again.
	Nudge()
}

// Ended returns a channel that is closed when the session ends.
func (z *ZKSession) Ended() <-chan struct{} { return z.endedCh }

// HasEnded reports whether the session has ended.
func (z *ZKSession) HasEnded() bool { return IsClosed(z.endedCh) }

// Cause returns why the session ended, nil if it has not.
func (z *ZKSession) Cause() error {
	z.mu.Lock()
	defer z.mu.Unlock()
	return z.mu.cause
}

// EndErr returns an error that the session has ended, with the reason. If the whole Session is
// closed, it returns that error instead.
func (z *ZKSession) EndErr() error {
	cause := z.Cause()
	if IsClosing(cause) {
		return cause
	}
	return fmt.Errorf("%w: %w", ErrSessionEnded, cause)
}

// Pause waits, and reports whether the session still lives.
func (z *ZKSession) Pause(d time.Duration) bool { return z.PauseUnder(context.Background(), d) == nil }

// PauseUnder waits. If the session or ctx ends first, it returns that error at once.
func (z *ZKSession) PauseUnder(ctx context.Context, d time.Duration) error {
	_, err := Await(ctx, z, time.After(d))
	return err
}

// Await waits until ch delivers a value or is closed. If the session or ctx ends first, it returns
// that error.
func Await[T any](ctx context.Context, z *ZKSession, ch <-chan T) (came T, err error) {
	select {
	case came = <-ch:
		return came, nil
	case <-z.Ended():
		return came, z.EndErr()
	case <-ctx.Done():
		return came, ErrCtxEnded
	}
}

// IsClosed reports whether a channel that carries no values is closed.
func IsClosed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

// AttachedConn returns the Carrier's AttachedConn: the number of the connection over which the
// session is attached now, 0 if it is not; a channel that is closed when that changes; and why the
// Session is closed, if it is.
func (z *ZKSession) AttachedConn() (conn uint64, changed <-chan struct{}, err error) {
	return z.Carrier.AttachedConn(z)
}

// Stat returns zk.ErrNoNode if the node does not exist.
func (z *ZKSession) Stat(node string) (*wire.Stat, error) {
	var stat wire.Stat
	_, err := z.Read(context.Background(), wire.OpExists, wire.PathWatchRequest{Path: node}, &stat)
	return &stat, err
}

// Multi executes all of the operations or none. If an operation failed, i is its index and err its
// error; otherwise i is −1.
func (z *ZKSession) Multi(ctx context.Context, ops wire.MultiRequest, urgent bool) (i int, err error) {
	a, err := z.askAs(ctx, wire.OpMulti, ops, urgent)
	if err != nil {
		return -1, err
	}
	return reply.ErrOfMulti(a, len(ops.Ops))
}

// Check is a quorum operation. It succeeds if all nodes exist and we may READ them. If one node is
// the reason for a rejection, failed is that node.
func (z *ZKSession) Check(ctx context.Context, nodes ...string) (failed string, err error) {
	var ops wire.MultiRequest
	for _, n := range nodes {
		ops.Ops = append(ops.Ops, wire.MultiOp{Op: wire.OpCheck, Path: n, Version: -1})
	}
	i, err := z.Multi(ctx, ops, true)
	if reply.IsRefusal(err) && i >= 0 {
		return nodes[i], err
	}
	return "", err
}

// ErrOf returns the error of a completed request: EndErr if the session has ended, otherwise
// reply.ErrOf.
func (z *ZKSession) ErrOf(a mux.Reply) error {
	if z.HasEnded() {
		return z.EndErr()
	}
	return reply.ErrOf(a)
}

// Ask sends one request in this ZooKeeper session as soon as it is attached, over another
// connection if the first attempt was not sent, and waits for the response under ctx.
//
// The error is the server's, zk.ErrConnectionClosed without a response, or the reason why the
// session or ctx ended first. A caller that stops waiting does not cancel the request.
func (z *ZKSession) Ask(ctx context.Context, op wire.Op, body wire.Record) (mux.Reply, error) {
	return z.askAs(ctx, op, body, false)
}

func (z *ZKSession) askAs(ctx context.Context, op wire.Op, body wire.Record, urgent bool) (mux.Reply, error) {
	for {
		if _, err := z.WaitAttached(ctx); err != nil {
			return mux.Reply{}, err
		}
		ch := make(chan mux.Reply, 1)
		r := mux.NewRequest(op, body, func(a mux.Reply) {
			a.Body = slices.Clone(a.Body)
			ch <- a
		})
		r.Urgent = urgent
		if err := TooLong(r, z.Longest); err != nil {
			return mux.Reply{}, err
		}
		if !z.Carrier.Send(z, r) {
			continue
		}
		a, err := Await(ctx, z, ch)
		if err != nil {
			return a, err
		}
		if err := z.ErrOf(a); a.Fate != mux.NeverSent || z.HasEnded() {
			return a, err
		}
	}
}

// LongRequest is the length in bytes above which we check whether the servers read a request. A
// lower jute.maxbuffer is very rare.
const LongRequest = 4 << 10

// TooLong rejects a request longer than most bytes: servers that read no more would close the
// connection.
func TooLong(r *mux.Request, most int) error {
	if n := r.Length(); n > most {
		return fmt.Errorf("%w: a request of %d bytes is too long: servers read %d at most (jute.maxbuffer)", zk.ErrBadArguments, n, most)
	}
	return nil
}

// Read sends a read, and decodes a successful response.
func (z *ZKSession) Read(ctx context.Context, op wire.Op, body wire.Record, into interface{ Decode(*wire.Decoder) }) (mux.Reply, error) {
	a, err := z.Ask(ctx, op, body)
	if err == nil {
		err = a.Decode(into)
	}
	return a, err
}

// WaitAttached waits until the session is attached, and returns the number of the connection.
func (z *ZKSession) WaitAttached(ctx context.Context) (conn uint64, err error) {
	for {
		if z.HasEnded() {
			return 0, z.EndErr()
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
		case <-z.Ended():
		case <-ctx.Done():
			return 0, ErrCtxEnded
		}
	}
}
