package zklock

import (
	"context"
	"errors"
	"fmt"

	isasl "github.com/zklock/zklock/internal/sasl"
	"github.com/zklock/zklock/sasl"
)

// WithSASL authenticates each connection by SASL; by default a Session does not. ACLs contain the
// user as sasl:USER, which zk.AuthACL includes.
//
// If the server rejects the credentials on the first connection, Connect returns ErrAuthFailed at
// once. Later a rejection is an ERROR in the log, and the Session tries the other servers, with new
// credentials for each connection. Holds last as long as their lease; if all servers reject the
// credentials, the loss also wraps ErrAuthFailed. If a server does not respond in time, or does not
// support the mechanism, the Session tries the next one, after pauses of up to 30 s. The mechanism
// must not call Session.Close.
func WithSASL(mechanism sasl.Mechanism) Option {
	return func(o *sessionOptions) {
		if mechanism == nil {
			o.wrong = errors.New("WithSASL(nil): give sasl.DigestMD5(user, password), or leave the option out")
			return
		}
		if checked, ok := mechanism.(interface{ Check() error }); ok && checked.Check() != nil {
			o.wrong = checked.Check()
		}
		o.sasl = startWith(mechanism)
	}
}

// startWith adapts the mechanism to internal/sasl. No printer finds the secrets in its closure
// (R71).
func startWith(m sasl.Mechanism) isasl.Start {
	return func(ctx context.Context, addr string) (isasl.Exchange, error) {
		var session sasl.Exchange
		begin := isasl.Begin(func(ctx context.Context, addr string) (next isasl.Step, first []byte, err error) {
			session, first, err = m.Authenticate(ctx, addr)
			switch {
			case err != nil:
				return nil, nil, fmt.Errorf("%s: %w", m.Name(), err)
			case session == nil:
				return nil, nil, fmt.Errorf("%s: Authenticate returned neither a session nor an error", m.Name())
			}
			return func(challenge []byte) (bool, []byte, error) {
				done, next, err := session.Challenge(challenge)
				if err != nil {
					err = fmt.Errorf("%s: %w", m.Name(), err)
				}
				return done, next, err
			}, first, nil
		})
		exchange, err := begin.Start(ctx, addr)
		return exchange.Notifying(session), err
	}
}
