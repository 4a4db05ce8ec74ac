package zklock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/zklock/internal/tap"
	"github.com/zklock/zklock/internal/wire"
)

// zkSession is one ZooKeeper session as requests see it: whether it is over, and why, and how to ask something in it.
// Requests wait until it is attached, and end with it or with their caller. None is sent in any other session (I3).
type zkSession struct {
	id      int64
	carrier carrier
	log     *eventLog
	timeout func() time.Duration // the session timeout
	over    chan struct{}        // closed when it is over

	mu struct {
		sync.Mutex
		cause error // why it is over
	}
}

// carrier is the connection, as far as requests know it.
type carrier interface {
	// send hands a request to the connection over which z is attached. It returns false, and forgets the request, if there is
	// none.
	send(z *zkSession, r *tap.Request) bool
	// attachedConn is the number of the connection over which z is attached now, 0 if it is not.
	attachedConn(z *zkSession) (conn uint64, changed <-chan struct{}, err error)
	// spawn runs f on a goroutine that Close waits for. It returns false, and does not run f, when the Session is closed:
	// closedErr says why.
	spawn(f func()) bool
	closedErr() error
	// lost hears that z is over, after its holds have heard of it.
	lost(z *zkSession, cause error)
	// nudge has the Session's goroutine look again at what is held and queued.
	nudge()
}

// endRequests makes the session over, once. It is for era.lose, which ends the holds too.
func (z *zkSession) endRequests(cause error) bool {
	z.mu.Lock()
	defer z.mu.Unlock()
	if z.mu.cause != nil {
		return false
	}
	z.mu.cause = cause
	close(z.over)
	return true
}

func (z *zkSession) isOver() bool { return isClosed(z.over) }

func isClosed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

// why returns why the session is over, nil if it is not.
func (z *zkSession) why() error {
	z.mu.Lock()
	defer z.mu.Unlock()
	return z.mu.cause
}

// overErr says that the session is over, and why. If the whole Session is closed, it returns the error that says that.
func (z *zkSession) overErr() error {
	cause := z.why()
	if errors.Is(cause, ErrClosed) || errors.Is(cause, ErrAuthFailed) {
		return cause
	}
	return fmt.Errorf("%w: %w", errEraOver, cause)
}

// pause waits, and says whether the session still goes on.
func (z *zkSession) pause(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-z.over:
		return false
	}
}

func (z *zkSession) attachedConn() (conn uint64, changed <-chan struct{}, err error) {
	return z.carrier.attachedConn(z)
}

// stat returns zk.ErrNoNode if there is no node.
func (z *zkSession) stat(node string) (*wire.Stat, error) {
	var stat wire.Stat
	_, err := z.read(context.Background(), wire.OpExists, wire.PathWatchRequest{Path: node}, &stat)
	return &stat, err
}

// multi does all of the operations or none. If an operation failed, i is its index and err its error; otherwise i is −1.
func (z *zkSession) multi(ctx context.Context, ops wire.MultiRequest, urgent bool) (i int, err error) {
	a, err := z.askAs(ctx, wire.OpMulti, ops, urgent)
	if err != nil {
		return -1, err
	}
	return multiResult(a, len(ops.Ops))
}

// check is a quorum operation. It succeeds if all the nodes are there and we may READ them. If one node is the reason for a
// refusal, failed is that node.
func (z *zkSession) check(ctx context.Context, nodes ...string) (failed string, err error) {
	var ops wire.MultiRequest
	for _, n := range nodes {
		ops.Ops = append(ops.Ops, wire.MultiOp{Op: wire.OpCheck, Path: n, Version: -1})
	}
	i, err := z.multi(ctx, ops, true)
	if isRefusal(err) && i >= 0 {
		return nodes[i], err
	}
	return "", err
}

// multiResult says which of n operations failed, and how.
func multiResult(a tap.Answer, n int) (i int, err error) {
	var res wire.MultiResponse
	if err := a.Decode(&res); err != nil {
		return -1, err
	}
	if len(res.Results) != n {
		return -1, fmt.Errorf("%w: %d results of %d operations", wire.ErrMalformed, len(res.Results), n)
	}
	for i, r := range res.Results { // those before the one that failed are clean
		if r.Err != wire.OK {
			return i, codeError(r.Err)
		}
	}
	return -1, nil
}

// errOf returns the error of a request whose fate is known: overErr if the session is over, else answerErr.
func (z *zkSession) errOf(a tap.Answer) error {
	if z.isOver() {
		return z.overErr()
	}
	return answerErr(a)
}

// ask sends one request in this ZooKeeper session as soon as that is attached, and waits for the answer under ctx. If the
// request could not be sent, ask sends it over the next connection.
//
// The error is zk.ErrConnectionClosed if there was no answer, or the server's if it answered with one. If the session or ctx
// ended first, it says why. A caller that leaves does not take the request back.
func (z *zkSession) ask(ctx context.Context, op wire.Op, body wire.Record) (tap.Answer, error) {
	return z.askAs(ctx, op, body, false)
}

func (z *zkSession) askAs(ctx context.Context, op wire.Op, body wire.Record, urgent bool) (tap.Answer, error) {
	for {
		if _, err := z.waitAttached(ctx); err != nil {
			return tap.Answer{}, err
		}
		ch := make(chan tap.Answer, 1)
		r := tap.NewRequest(op, body, func(a tap.Answer) {
			a.Body = slices.Clone(a.Body)
			ch <- a
		})
		r.Urgent = urgent
		if err := tooLong(r); err != nil {
			return tap.Answer{}, err
		}
		if !z.carrier.send(z, r) {
			continue
		}
		var a tap.Answer
		select {
		case a = <-ch:
		case <-ctx.Done():
			return tap.Answer{}, errCtxEnded
		case <-z.over:
			return tap.Answer{}, z.overErr()
		}
		if err := z.errOf(a); a.Fate != tap.NeverSent || z.isOver() {
			return a, err
		}
	}
}

// tooLong refuses a request that servers would not read: they would close the connection.
func tooLong(r *tap.Request) error {
	if n, tooLong := r.TooLong(); tooLong {
		return fmt.Errorf("%w: a request of %d bytes is too long: servers take %d at most", zk.ErrBadArguments, n, wire.MaxFrame)
	}
	return nil
}

// read asks, and decodes a successful answer.
func (z *zkSession) read(ctx context.Context, op wire.Op, body wire.Record, into interface{ Decode(*wire.Decoder) }) (tap.Answer, error) {
	a, err := z.ask(ctx, op, body)
	if err == nil {
		err = a.Decode(into)
	}
	return a, err
}

// waitAttached waits until the session is attached, and returns over which connection.
func (z *zkSession) waitAttached(ctx context.Context) (conn uint64, err error) {
	for {
		if z.isOver() {
			return 0, z.overErr()
		}
		conn, changed, err := z.attachedConn()
		if err != nil {
			return 0, err
		}
		if conn != 0 {
			return conn, nil
		}
		select {
		case <-changed:
		case <-z.over:
		case <-ctx.Done():
			return 0, errCtxEnded
		}
	}
}
