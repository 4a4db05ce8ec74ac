package zklock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/zklock/zklock/internal/wire"
)

// Requests within one ZooKeeper session: they wait until it is attached, and end with it or with their caller.

// multi does all of the operations or none. If one of them failed, it is the i-th, and its error is err; otherwise i is −1.
func (e *era) multi(ctx context.Context, ops wire.MultiRequest, urgent bool) (i int, err error) {
	a, err := e.askAs(ctx, wire.OpMulti, ops, urgent)
	if err != nil {
		return -1, err
	}
	var res wire.MultiResponse
	if err := a.decode(&res); err != nil {
		return -1, err
	}
	for i, r := range res.Results { // those before the one that failed are clean
		if r.Err != wire.OK && i < len(ops.Ops) {
			return i, codeError(r.Err)
		}
	}
	return -1, nil
}

// ask sends one request in this ZooKeeper session, when that is attached, and waits for its answer under ctx. A request that
// was never sent is sent over the next connection. The error is zk.ErrConnectionClosed if there was no answer, the server's
// if it answered with one, and that of the era or of ctx if either ended first. A caller who leaves does not take the request
// back.
func (e *era) ask(ctx context.Context, op wire.Op, body wire.Record) (answer, error) {
	return e.askAs(ctx, op, body, false)
}

func (e *era) askAs(ctx context.Context, op wire.Op, body wire.Record, urgent bool) (answer, error) {
	for {
		if _, err := e.waitAttached(ctx); err != nil {
			return answer{}, err
		}
		ch := make(chan answer, 1)
		r := newRequest(op, body, func(a answer) { ch <- a })
		r.urgent = urgent
		if err := r.tooLong(); err != nil {
			return answer{}, err
		}
		if !e.s.send(e, r) {
			continue
		}
		var a answer
		select {
		case a = <-ch:
		case <-ctx.Done():
			return answer{}, context.Cause(ctx)
		case <-e.over:
			return answer{}, e.overErr()
		}
		switch {
		case e.isOver():
			return answer{}, e.overErr()
		case a.fate == neverSent:
			continue
		}
		return a, a.err()
	}
}

// read asks, and decodes a successful answer.
func (e *era) read(ctx context.Context, op wire.Op, body wire.Record, into interface{ Decode(*wire.Decoder) }) (answer, error) {
	a, err := e.ask(ctx, op, body)
	if err == nil {
		err = a.decode(into)
	}
	return a, err
}

// waitAttached waits until the era is attached, and returns over which connection.
func (e *era) waitAttached(ctx context.Context) (conn uint64, err error) {
	for {
		if e.isOver() {
			return 0, e.overErr()
		}
		conn, changed, err := e.s.attachedConn(e)
		if err != nil {
			return 0, err
		}
		if conn != 0 {
			return conn, nil
		}
		select {
		case <-changed:
		case <-e.over:
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
	}
}

// overErr says that the era is over and why; ErrClosed if it is the Session that is.
func (e *era) overErr() error {
	cause := e.why()
	if errors.Is(cause, ErrClosed) || errors.Is(cause, ErrAuthFailed) {
		return cause
	}
	return fmt.Errorf("%w: %w", errEraOver, cause)
}

// pause waits, and says whether the era still goes on.
func (e *era) pause(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-e.over:
		return false
	}
}
