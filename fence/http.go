package fence

// HTTP: a transport that sends the sequencer, and middleware that refuses who is late.

import (
	"context"
	"errors"
	"net/http"
)

// Header is the header that carries a sequencer.
const Header = "Lock-Sequencer"

// Transport is a [http.RoundTripper] that sends the sequencer of a request's context in [Header]. It goes to every server that the
// client talks to, redirects included.
type Transport struct {
	// Base sends the request. Nil is http.DefaultTransport.
	Base http.RoundTripper
	// Sequencer finds the sequencer of the hold under which a request is sent. With false the request goes out as it is.
	Sequencer func(context.Context) (string, bool)
}

// RoundTrip sends the request. A sequencer that no header can carry is an [ErrInvalid], and nothing is sent.
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
			r.Body.Close() // as each RoundTripper must
		}
		return nil, err
	}
	r = r.Clone(r.Context()) // the caller's stays as it is
	if r.Header == nil {
		r.Header = http.Header{}
	}
	r.Header.Set(Header, value)
	return base.RoundTrip(r)
}

// Handler returns next behind the gate. The function lock returns the path of the lock under which a request must come, and false for
// one that needs no lock. A request that is refused does not reach next; its status and a line of text say why:
//
//	412 Precondition Failed    it is late: the text has its token and the one seen before, or says why its hold is over
//	428 Precondition Required  it has no sequencer
//	400 Bad Request            its sequencer is rubbish, or another lock's
//	503 Service Unavailable    nobody knows whether it is late: the store or the check failed, or Memory is full
//
// Between the admission and what next does, a later holder may come: see [Guard.Admit]. If next reads a long body and then writes, let it
// ask again in between, by [Gate.Admit] with the values of the request's [Header], and [Refuse].
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

// Refuse answers a request that was not admitted, with the status and the text of [Gate.Handler]. What went wrong in the store or the
// check is not the client's matter.
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
