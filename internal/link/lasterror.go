package link

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/zklock/internal/reply"
)

// LastError is the last error response to requests that are retried because the error does not
// concern their content: for example, the servers throttle. A call whose context ends meanwhile
// includes it in its error. A zero or nil LastError has none.
type LastError struct{ err atomic.Pointer[error] }

// Note records the error of a request. A success clears the recorded error. Three results change
// nothing: no response (unless servers close the connection at each such request), the end of the
// context, and an error that concerns the content of the request.
func (l *LastError) Note(err error) {
	switch {
	case l == nil:
	case err == nil:
		l.err.Store(nil)
	case errors.Is(err, ErrHungUp), !reply.IsRefusal(err) && !reply.IsAny(err, zk.ErrConnectionClosed, ErrCtxEnded):
		noted := err // keeps err off the heap in the usual case, a success
		l.err.Store(&noted)
	}
}

// HungUp returns the last error if it is ErrHungUp, and otherwise nil.
func (l *LastError) HungUp() error {
	if last := l.err.Load(); last != nil && errors.Is(*last, ErrHungUp) {
		return *last
	}
	return nil
}

// AddTo returns err followed by the last error, if there is one.
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
		return fmt.Errorf("%w; %w", err, ErrorResponse{reply.WithCode(*last)})
	}
}

// ErrorResponse wraps such a response in an error.
type ErrorResponse struct{ Err error }

// Error introduces the error; the text ends with it.
func (e ErrorResponse) Error() string { return "the last response was an error: " + e.Err.Error() }

// Unwrap returns the error.
func (e ErrorResponse) Unwrap() error { return e.Err }
