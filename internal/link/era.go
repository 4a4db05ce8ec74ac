package link

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/zklock/internal/answer"
	"github.com/zklock/zklock/internal/clock"
	"github.com/zklock/zklock/internal/eventlog"
	"github.com/zklock/zklock/internal/lease"
	"github.com/zklock/zklock/internal/secret"
	"github.com/zklock/zklock/internal/tap"
	"github.com/zklock/zklock/internal/wire"
)

// Era is one ZooKeeper session, from its connect response until it is over: its requests, its lease, and the holds under it. A
// Session goes through one after the other. Nothing of one is used in the next: leases, grants and watches belong to one id (I3).
//
// Requests wait until it is attached, and end with it or with their caller. None is sent in any other session (I3).
type Era struct {
	ID       int64 // as the servers count sessions
	Log      *eventlog.Log
	Clock    *clock.Clock
	Carrier  Carrier
	Inside   Inside // set once, before the session is attached
	Password secret.Bytes
	Longest  int           // in bytes, of a request that its servers read. Set with Inside, if it is not their default
	ended    chan struct{} // closed when it is over

	mu struct {
		sync.Mutex       // never held across a channel, a callback or a ZooKeeper call
		cause      error // why it is over
		lease      lease.Lease
		heard      clock.Instant     // when its server last answered
		served     clock.Instant     // when a request was last answered, or a server first attached it again after that
		unserved   bool              // no request has been answered since a server attached it again
		server     string            // which that is
		unanswered int               // once it is over: how often a server was asked to end it, and did not answer
		overAt     clock.Instant     // once it is over: since when
		inTheWay   bool              // once it is over: it may have lock nodes
		held       map[string]Holder // by node: what the heartbeat checks and the lease protects
		kept       map[string]Holder // by node: what the heartbeat checks, and no caller relies on
		beating    uint64            // the connection over which a beat is under way
		soon       bool              // a beat is wanted at once
		failing    failing           // the heartbeats since the last success
	}
}

// Inside is what locks have in a ZooKeeper session, as far as the session and its connection know it. Waiting and Restore are
// called with a lock of the caller's held: they must neither block nor call back.
type Inside interface {
	// Event hears that a watch has fired, in the order in which the server sent the events.
	Event(ev wire.WatcherEvent)
	// Restore returns the requests that go first on a new connection: they set the watches again. before is the last zxid seen on
	// the connection before it.
	Restore(before int64) []*tap.Request
	// Waiting returns how many stand in a queue, and whether anybody may wait for an answer.
	Waiting() (queued int, busy bool)
	// Ended hears that the hold on a node has ended while the session goes on, and whether the node is gone. Otherwise it must be
	// deleted.
	Ended(node string, gone bool)
}

// NewEra returns the session that a server has granted with a connect response.
func NewEra(c Carrier, log *eventlog.Log, clk *clock.Clock, mode lease.Mode, r tap.Response, server string, conn uint64, shook lease.Exchange) *Era {
	z := &Era{ID: r.SessionID, Log: log, Clock: clk, Carrier: c, Password: secret.Of(r.Password), Longest: wire.MaxFrame, ended: make(chan struct{})}
	z.mu.lease = lease.New(mode)
	z.mu.lease.Attached(conn, shook, r.Timeout, true)
	z.mu.heard, z.mu.served, z.mu.server = shook.Answered, shook.Answered, server
	z.mu.held, z.mu.kept = make(map[string]Holder), make(map[string]Holder)
	return z
}

// Carrier is the connection, as far as requests know it.
type Carrier interface {
	// Because adds to the reason of a loss that each server that was tried since has rejected us, if
	// that is so.
	Because(err error) error
	// Send hands a request to the connection over which z is attached. It returns false, and forgets the request, if there is
	// none.
	Send(z *Era, r *tap.Request) bool
	// AttachedConn is the number of the connection over which z is attached now, 0 if it is not.
	AttachedConn(z *Era) (conn uint64, changed <-chan struct{}, err error)
	// Spawn runs f on a goroutine that Close waits for. It returns false, and does not run f, when the Session is closed:
	// ClosedErr says why.
	Spawn(f func()) bool
	ClosedErr() error
	// Lost hears that z is over, after its holds have heard of it.
	Lost(z *Era, cause error)
	// Executed hears that a server has executed a request of that kind, although the response was lost.
	Executed(op wire.Op)
	// Nudge has the Session's goroutine look again at what is held and queued.
	Nudge()
}

// Over returns a channel that is closed when the session is over.
func (z *Era) Over() <-chan struct{} { return z.ended }

// IsOver says whether the session is over.
func (z *Era) IsOver() bool {
	select {
	case <-z.Over():
		return true
	default:
		return false
	}
}

// Why returns why the session is over, nil if it is not.
func (z *Era) Why() error {
	z.mu.Lock()
	defer z.mu.Unlock()
	return z.mu.cause
}

// OverErr says that the session is over, and why. If the whole Session is closed, it returns the error that says that.
func (z *Era) OverErr() error {
	cause := z.Why()
	if IsClosing(cause) {
		return cause
	}
	return fmt.Errorf("%w: %w", ErrOver, cause)
}

// Pause waits, and says whether the session still goes on.
func (z *Era) Pause(d time.Duration) bool { return z.PauseUnder(context.Background(), d) == nil }

// PauseUnder waits. If the session or ctx ends first, it returns at once, and says which did.
func (z *Era) PauseUnder(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	_, err := Await(ctx, z, t.C)
	return err
}

// Await waits for what comes over ch, or until that is closed. If the session or ctx ends first, it says which did.
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

// AttachedConn returns the number of the connection over which the session is attached now, 0 if it is not; a channel that is closed
// when that changes; and why the Session is closed, if it is.
func (z *Era) AttachedConn() (conn uint64, changed <-chan struct{}, err error) {
	return z.Carrier.AttachedConn(z)
}

// Stat returns zk.ErrNoNode if there is no node.
func (z *Era) Stat(node string) (*wire.Stat, error) {
	var stat wire.Stat
	_, err := z.Read(context.Background(), wire.OpExists, wire.PathWatchRequest{Path: node}, &stat)
	return &stat, err
}

// Multi does all of the operations or none. If an operation failed, i is its index and err its error; otherwise i is −1.
func (z *Era) Multi(ctx context.Context, ops wire.MultiRequest, urgent bool) (i int, err error) {
	a, err := z.askAs(ctx, wire.OpMulti, ops, urgent)
	if err != nil {
		return -1, err
	}
	return answer.ErrOfMulti(a, len(ops.Ops))
}

// Check is a quorum operation. It succeeds if all the nodes are there and we may READ them. If one node is the reason for a
// refusal, failed is that node.
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

// ErrOf returns the error of a request whose fate is known: OverErr if the session is over, else answer.ErrOf.
func (z *Era) ErrOf(a tap.Answer) error {
	if z.IsOver() {
		return z.OverErr()
	}
	return answer.ErrOf(a)
}

// Ask sends one request in this ZooKeeper session as soon as that is attached, and waits for the answer under ctx. If the
// request could not be sent, Ask sends it over the next connection.
//
// The error is zk.ErrConnectionClosed if there was no answer, or the server's if it answered with one. If the session or ctx
// ended first, it says why. A caller that leaves does not take the request back.
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

// LongRequest is the length in bytes above which we ask whether a request is too long for the servers. Hardly anybody sets jute.maxbuffer
// lower.
const LongRequest = 4 << 10

// TooLong refuses a request that servers would not read, because they read that many bytes at most: they would close the connection.
func TooLong(r *tap.Request, most int) error {
	if n := r.Length(); n > most {
		return fmt.Errorf("%w: a request of %d bytes is too long: servers read %d at most (jute.maxbuffer)", zk.ErrBadArguments, n, most)
	}
	return nil
}

// Read asks, and decodes a successful answer.
func (z *Era) Read(ctx context.Context, op wire.Op, body wire.Record, into interface{ Decode(*wire.Decoder) }) (tap.Answer, error) {
	a, err := z.Ask(ctx, op, body)
	if err == nil {
		err = a.Decode(into)
	}
	return a, err
}

// WaitAttached waits until the session is attached, and returns over which connection.
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
