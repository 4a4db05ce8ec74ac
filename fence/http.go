package fence

// HTTP: a transport that sends the sequencer, and middleware that rejects late requests.

import (
	"context"
	"errors"
	"net/http"
)

// Header is the header that carries a sequencer.
const Header = "Lock-Sequencer"

// Transport is a [http.RoundTripper] that sends the sequencer of a request's context in [Header].
// It sends it to every server that the client contacts, including the targets of redirects.
type Transport struct {
	// Base sends the request. Nil means http.DefaultTransport.
	Base http.RoundTripper
	// Sequencer returns the sequencer of the hold under which a request is sent. If it returns
	// false, the request is sent unchanged.
	Sequencer func(context.Context) (string, bool)
}

// RoundTrip sends the request. If a header cannot carry the sequencer, RoundTrip returns an
// [ErrInvalid] and sends nothing.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	base := t.Base
	if base == nil {
		base = http.DefaultTransport
	}
	text, found := t.Sequencer(r.Context())
	if !found {
		return base.RoundTrip(r)
	}
	value, err := HeaderValue(text)
	if err != nil {
		if r.Body != nil {
			r.Body.Close() // as every RoundTripper must
		}
		return nil, err
	}
	r = r.Clone(r.Context()) // the caller's request stays unchanged
	if r.Header == nil {
		r.Header = http.Header{}
	}
	r.Header.Set(Header, value)
	return base.RoundTrip(r)
}

// Handler returns next behind the gate. The function lock returns the path of the lock that a
// request needs, and false for a request that needs none. A rejected request does not reach next.
// Its status and a line of text give the reason:
//
//	412 Precondition Failed    the request is late: the text has its token and the larger one
//	                           seen before, or the reason why its hold has ended
//	428 Precondition Required  it has no sequencer
//	400 Bad Request            its sequencer does not parse, or belongs to another lock
//	503 Service Unavailable    unknown: the store or the check failed, or Memory is full
//
// Between the admission and the work of next, a later holder may be granted the lock: see
// [Guard.Admit]. If next reads a long body before it writes, have it ask again in between, with
// [Gate.Admit] and the values of the request's [Header], and [Refuse].
func (g *Gate) Handler(next http.Handler, lock func(*http.Request) (path string, guarded bool)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if path, guarded := lock(r); guarded {
			if err := g.Admit(r.Context(), path, r.Header.Values(Header)); err != nil {
				Refuse(w, err)
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}

// Refuse replies to a request that was not admitted, with the status and the text of
// [Gate.Handler]. It hides the details of an error in the store or the check from the client.
func Refuse(w http.ResponseWriter, err error) {
	status, why := http.StatusServiceUnavailable, "fence: cannot tell whether this request is late"
	switch {
	case errors.Is(err, ErrStale):
		status, why = http.StatusPreconditionFailed, err.Error()
	case errors.Is(err, ErrMissing):
		status, why = http.StatusPreconditionRequired, err.Error()
	case errors.Is(err, ErrInvalid):
		status, why = http.StatusBadRequest, err.Error()
	case errors.Is(err, ErrFull):
		why = ErrFull.Error()
	}
	http.Error(w, why, status)
}
