package zklock

// SASL: how a Session and the servers prove to each other who they are.

import (
	"context"
	"errors"
	"fmt"

	isasl "github.com/zklock/zklock/internal/sasl"
	"github.com/zklock/zklock/sasl"
)

// WithSASL has the Session prove its identity by SASL, on every connection, before anything else is
// asked on it; by default it does not.
//
// If the server rejects the credentials on the first connection, Connect returns ErrAuthFailed at
// once, whatever other servers may say. After that a rejection is an ERROR in the log: the Session
// tries the other servers, and asks the mechanism for credentials again at each connection. Holds
// last as long as their lease, and are then lost with ErrAuthFailed among the reasons if all
// servers reject. A server that does not answer in time, or has no SASL or not this mechanism, is
// left for the next one, with growing pauses, up to 30 s, if none is better. Given twice, the last
// mechanism counts.
//
// ZooKeeper's ACLs then know the Session as sasl:USER, and zk.AuthACL takes that along (WithACL). SASL adds its round trips to each connection,
// two of sasl.DigestMD5, and so to the time from a lost connection to the first answer on the next. A Session that was given up, and hears
// no answer, cannot end its ZooKeeper session at a server that wants SASL: that expires.
// The mechanism must not call Session.Close (see sasl.Mechanism).
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

// startWith is the mechanism as the packages below take it. It is in a closure, where no printer
// finds its secrets (R71).
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
