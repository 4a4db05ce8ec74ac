// Package fscall makes calls that a file system can hang. The kernel keeps the thread of such a
// call, so at most one is under way for each path of the process, however often the caller tries.
package fscall

import (
	"context"
	"errors"
	"sync"
)

// ErrSlow is the cause to give a context of Do that ends although the caller does not.
var ErrSlow = errors.New("the file system does not respond")

// running has, by path, a channel that is closed when the call under way there ends.
var running sync.Map

// Do calls f, which uses the path, and returns its result. If ctx ends first, Do returns its cause,
// and the value of a call that succeeds later is passed to late. While another call for the path is
// under way, Do waits for the end of that first.
func Do[T any](ctx context.Context, path string, f func() (T, error), late func(T)) (v T, err error) {
	ended := make(chan struct{})
	for {
		other, isRunning := running.LoadOrStore(path, ended)
		if !isRunning {
			break
		}
		select {
		case <-other.(chan struct{}):
		case <-ctx.Done():
			return v, context.Cause(ctx)
		}
	}
	type result struct {
		v   T
		err error
	}
	results := make(chan result)
	go func() {
		v, err := f()
		running.Delete(path)
		close(ended)
		select {
		case results <- result{v, err}:
		case <-ctx.Done():
			if err == nil {
				late(v)
			}
		}
	}()
	select {
	case r := <-results:
		return r.v, r.err
	case <-ctx.Done():
		return v, context.Cause(ctx)
	}
}
