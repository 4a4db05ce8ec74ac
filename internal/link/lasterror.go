package link

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/zklock/internal/answer"
)

// LastError is the last response to requests that are sent again after an error that says nothing of what they ask: the servers
// throttle, for example. A call whose context ends meanwhile has it in its error. The zero value has none, and so has nil.
type LastError struct{ err atomic.Pointer[error] }

// Note takes the error of a request. A success removes the error before it. No response changes nothing, unless servers close the
// connection at each such request, nor does the end of the context, or an error that says something of what was asked.
func (l *LastError) Note(err error) {
	switch {
	case l == nil:
	case err == nil:
		l.err.Store(nil)
	case errors.Is(err, ErrHungUp), !answer.IsRefusal(err) && !answer.IsAny(err, zk.ErrConnectionClosed, ErrCtxEnded):
		l.err.Store(&err)
	}
}

// HungUp returns the last error if it is ErrHungUp, and otherwise nil.
func (l *LastError) HungUp() error {
	if last := l.err.Load(); last != nil && errors.Is(*last, ErrHungUp) {
		return *last
	}
	return nil
}

// AddTo returns err with the last error behind it, if there is one.
func (l *LastError) AddTo(err error) error {
	if l == nil {
		return err
	}
	switch last := l.err.Load(); {
	case last == nil:
		return err
	case errors.Is(*last, ErrHungUp):
		return fmt.Errorf("%w; %w", err, *last)
	default:
		return fmt.Errorf("%w; %w", err, ErrorResponse{answer.WithCode(*last)})
	}
}

// ErrorResponse is such a response in an error.
type ErrorResponse struct{ Err error }

// Error introduces the error, for a text that it ends.
func (e ErrorResponse) Error() string { return "the last response was an error: " + e.Err.Error() }

// Unwrap returns the error.
func (e ErrorResponse) Unwrap() error { return e.Err }
