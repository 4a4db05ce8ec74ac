// Package reply interprets the end of a request: its response, a server's code, or its fate if
// there was no response. It promises to conclude nothing without evidence: if a request was not
// certainly executed and not certainly rejected, the outcome is unknown.
//
// It is pure: errors and codes in, meaning out. It must not send requests, wait, log or read a
// clock.
//
// Read fate.go first: the fate of a create. Then OutcomeOf.
package reply

import (
	"errors"
	"fmt"
	"slices"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/zklock/internal/mux"
	"github.com/zklock/zklock/internal/wire"
)

// Outcome is the effect of a request that changes something on the servers, as far as its error
// shows.
type Outcome int

const (
	Applied    Outcome = iota // executed successfully
	TurnedDown                // rejected with an error that will not change
	NotNow                    // certainly not executed, but a retry may succeed
	Unknown                   // perhaps sent, and no response: only a later list can show the effect
)

// OutcomeOf classifies the error of a request. If it is not certainly one of the first three
// outcomes, it is unknown: an orphan costs more than a second list.
func OutcomeOf(err error) Outcome {
	if err == nil {
		return Applied
	}
	if IsAny(err, zk.ErrNoNode, zk.ErrNoAuth, zk.ErrBadVersion, zk.ErrNoChildrenForEphemerals, zk.ErrNodeExists, zk.ErrNotEmpty,
		zk.ErrInvalidACL, zk.ErrBadArguments, zk.ErrAuthFailed) {
		return TurnedDown
	}
	switch ServerCode(err) {
	case wire.Unimplemented, wire.QuotaExceeded, wire.RuntimeInconsistency, wire.LocalSession, wire.AuthRequired, wire.ReplyTooLong:
		return TurnedDown
	case wire.Throttled:
		return NotNow
	}
	return Unknown
}

// ServerCode returns the code of an error that the client has no error for, or 0.
func ServerCode(err error) wire.Code {
	var code wire.Code
	errors.As(err, &code)
	return code
}

// IsRefusal reports whether the servers will not execute the request, neither now nor later. Busy
// or unreachable servers do not count as a rejection.
func IsRefusal(err error) bool { return OutcomeOf(err) == TurnedDown }

// Denied adds which request lacked which permission on which node: the client's own error is only
// "not authenticated". CREATE and DELETE are permissions on the parent.
func Denied(err error, request, permission, path string) error {
	if !errors.Is(err, zk.ErrNoAuth) {
		return err
	}
	return fmt.Errorf("%s: no %s permission on %s: %w", request, permission, path, err)
}

// IsAny reports whether the error is, or wraps, one of the given errors.
func IsAny(err error, of ...error) bool {
	return slices.ContainsFunc(of, func(target error) bool { return errors.Is(err, target) })
}

// Ignoring returns err, or nil if errors.Is matches it with one of these errors.
func Ignoring(err error, these ...error) error {
	if IsAny(err, these...) {
		return nil
	}
	return err
}

// ErrOfMulti returns which of n operations failed, and its error.
func ErrOfMulti(a mux.Reply, n int) (i int, err error) {
	_, i, err = ResultsOf(a, n)
	return i, err
}

// ResultsOf returns the results of n operations. If an operation failed, i is its index and err its
// error; otherwise i is −1.
func ResultsOf(a mux.Reply, n int) (results []wire.MultiResult, i int, err error) {
	d := wire.NewDecoder(a.Body)
	results = d.MultiResults(n)
	if err := d.Err(); err != nil {
		return nil, -1, err
	}
	if len(results) != n {
		return nil, -1, fmt.Errorf("%w: %d results of %d operations", wire.ErrMalformed, len(results), n)
	}
	for i, r := range results { // the results before the failed one have no error
		if r.Err != wire.OK {
			return nil, i, codeErr(r.Err)
		}
	}
	return results, -1, nil
}

// ErrOf returns the result of the request as an error, from the zk package if it has one for the
// code. Without a response, the error is, or wraps, zk.ErrConnectionClosed.
func ErrOf(a mux.Reply) error {
	switch {
	case a.Why != nil:
		return a.Why
	case a.Fate != mux.WasAnswered:
		return zk.ErrConnectionClosed
	}
	return codeErr(a.Code)
}

// codeErr converts a server's code to the client's error for it; nil for success.
func codeErr(code wire.Code) error {
	if code == wire.OK {
		return nil
	}
	if err := zkErrors[code]; err != nil {
		return err
	}
	return code
}

// WithCode adds the code to an error of the zk package that represents a server's response. Any
// other error contains the code already.
func WithCode(err error) error {
	for code, known := range zkErrors {
		if errors.Is(err, known) {
			return fmt.Errorf("%w (%d)", err, int32(code))
		}
	}
	return err
}

var zkErrors = map[wire.Code]error{
	wire.APIError: zk.ErrAPIError, wire.NoNode: zk.ErrNoNode, wire.NoAuth: zk.ErrNoAuth, wire.BadVersion: zk.ErrBadVersion,
	wire.NoChildrenForEphemerals: zk.ErrNoChildrenForEphemerals, wire.NodeExists: zk.ErrNodeExists, wire.NotEmpty: zk.ErrNotEmpty,
	wire.SessionExpired: zk.ErrSessionExpired, wire.InvalidACL: zk.ErrInvalidACL, wire.AuthFailed: zk.ErrAuthFailed,
	wire.SessionMoved: zk.ErrSessionMoved, wire.BadArguments: zk.ErrBadArguments, wire.ReconfigDisabled: zk.ErrReconfigDisabled,
}
