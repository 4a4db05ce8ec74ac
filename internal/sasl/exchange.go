// Package sasl carries out a SASL exchange with a server, by which each proves its identity to the
// other, and implements the mechanism DIGEST-MD5. It starts no goroutine, and has no clock: the
// connection and the context that it is given limit its duration.
//
// Read exchange.go first, then directives.go and digest.go.
package sasl

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/zklock/zklock/internal/wire"
)

// ErrFailed: a server rejected our credentials, or did not prove its own identity. Another try is
// of no use until the credentials or the server have changed.
var ErrFailed = errors.New("authentication failed")

// ErrUnfit: the server has no SASL, or not the mechanism. It is in the chain of such an error, but
// not in its text.
var ErrUnfit = errors.New("the server does not have the SASL mechanism")

type unfit struct{ error }

func (unfit) Is(target error) bool { return target == ErrUnfit }
func (u unfit) Unwrap() error      { return u.error }

// Begin begins an exchange with the server at addr, as the user has named it. It returns the first
// token, and the mechanism's handler of the responses. An error that is ErrFailed is a rejection;
// any other fails this connection alone.
type Begin func(ctx context.Context, addr string) (next Step, first []byte, err error)

// Step is a mechanism's reply to a token from the server. done reports that nothing follows except
// the response to this reply, if there is one.
type Step func(token []byte) (done bool, answer []byte, err error)

// Exchange is the mechanism's whole exchange on one connection. It is a function so that no printer
// finds a token in it (R71); nil sends nothing. ask sends a token, and returns the server's
// response.
type Exchange func(ask func(token []byte) ([]byte, error)) error

// Start begins an exchange for one connection.
func (b Begin) Start(ctx context.Context, addr string) (Exchange, error) {
	if b == nil {
		return nil, nil
	}
	next, token, err := b(ctx, addr)
	if err != nil {
		return nil, err
	}
	return func(ask func(token []byte) ([]byte, error)) error {
		for first, done := true, false; ; first = false {
			answer, err := ask(token)
			var refusal wire.Code
			if first && len(token) == 0 && errors.As(err, &refusal) { // not wrapped: the server has not seen our identity yet
				return unfit{fmt.Errorf("the server rejected the login before it saw any credentials (code %d): it does not have the mechanism. ZooKeeper 3.9.6 has DIGEST-MD5 only with fips-mode=false", refusal)}
			}
			if err != nil || done {
				return err
			}
			done, token, err = next(answer)
			switch {
			case err != nil:
				return unfit{err}
			case done && token == nil:
				return nil
			}
		}
	}, nil
}

// Notifying returns the exchange of a mechanism's session, which is notified of a rejection if it
// has the method Rejected. If that returns true, the session had shown a kept ticket, and the
// rejection fails this connection alone.
func (e Exchange) Notifying(session any) Exchange {
	s, ok := session.(interface{ Rejected() (wasKept bool) })
	if e == nil || !ok {
		return e
	}
	return func(ask func(token []byte) ([]byte, error)) error {
		err := e(ask)
		var rejection wire.Code
		if errors.As(err, &rejection) && s.Rejected() { // not wrapped: it is about an old ticket
			return fmt.Errorf("the server rejected a kept ticket (code %d); the next connection shows a new one", rejection)
		}
		return err
	}
}

// Start begins the exchange of one connection.
type Start func(ctx context.Context, addr string) (Exchange, error)

// Over returns an ask that sends tokens over a connection whose requests have xids, and takes
// responses from read, which returns the body of the next frame. A rejection is a wire.Code. Any
// other error does not concern our identity.
func Over(conn io.Writer, xid func() int32, read func() ([]byte, error)) func(token []byte) ([]byte, error) {
	return func(token []byte) ([]byte, error) {
		if token == nil {
			token = []byte{} // a server does not check whether there is a token
		}
		asked := xid()
		if _, err := conn.Write(wire.Frame(wire.RequestHeader{Xid: asked, Op: wire.OpSASL}, wire.SASLToken{Token: token})); err != nil {
			return nil, err
		}
		body, err := read()
		if err != nil {
			return nil, err
		}
		d := wire.NewDecoder(body)
		var h wire.ReplyHeader
		switch h.Decode(d); {
		case d.Err() != nil:
			return nil, fmt.Errorf("an answer of %d bytes has no header", len(body))
		case h.Xid != asked:
			return nil, fmt.Errorf("the server answered request %d in place of %d", h.Xid, asked)
		case h.Err == wire.AuthFailed, h.Err == wire.AuthRequired, h.Err == wire.NoAuth:
			return nil, h.Err
		case h.Err == wire.ReplyTooLong:
			return nil, errors.New("the server's token is longer than zklock reads")
		case h.Err != wire.OK:
			// The code is not wrapped, because it does not judge our credentials.
			return nil, unfit{fmt.Errorf("the server answered %s", h.Err.String())}
		}
		var answer wire.SASLToken
		answer.Decode(d)
		return answer.Token, d.Err()
	}
}
