package zklock

// SASL: how a Session and the servers prove to each other who they are.

import (
	"context"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/zklock/zklock/internal/sasl"
	"github.com/zklock/zklock/internal/secret"
)

// SASLMechanism is a way to prove to a server who we are: DigestMD5, Kerberos of contrib/zklockkrb5, or your own. Its methods are called on one goroutine at
// a time for each connection, and of several connections at once. They must not call Session.Close,
// because Close waits for them: call go s.Close().
type SASLMechanism interface {
	// Name returns the mechanism's name, such as "GSSAPI". Errors of a Session begin with it.
	Name() string

	// Authenticate begins an exchange with the server at host, which is as the connection string has it, with its port. It returns the first
	// token, which may be empty. It is called for each connection, after the dial and before anything is sent. It must return when ctx ends:
	// that is after a third of the session timeout, and after 10 s at the latest, or when the Session is closed.
	//
	// An error that wraps ErrAuthFailed is a rejection, as when a KDC does not know the principal.
	// Connect returns it at once. After Connect it is logged, and the Session goes on to the next
	// server. Any other error, as when no KDC answers, fails this connection alone, also for
	// Connect. No error may contain a secret, because it is logged.
	Authenticate(ctx context.Context, host string) (session SASLSession, first []byte, err error)
}

// SASLSession is one exchange of a SASLMechanism with one server.
//
// A mechanism that keeps tickets gives it one more method, Rejected() bool, which is called when
// the server rejects a token. It discards the ticket that the server was shown, and reports whether
// that was a kept one. Then the rejection fails this connection alone, also for Connect, and the
// next connection shows a new ticket.
type SASLSession interface {
	// Challenge takes what the server answered to the last token, and returns the next. done says that the exchange is over when that
	// has been answered, with whatever; without a next token, which is nil then, it is over now. It must not block. Its errors are as those of
	// Authenticate: return one that wraps ErrAuthFailed if the server does not prove who it is. A
	// challenge of more than 64 KiB is not read: the Session tries the next server.
	Challenge(challenge []byte) (done bool, next []byte, err error)
}

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
// two of DigestMD5, and so to the time from a lost connection to the first answer on the next. A Session that was given up, and hears
// no answer, cannot end its ZooKeeper session at a server that wants SASL: that expires.
// The mechanism must not call Session.Close (see SASLMechanism).
func WithSASL(mechanism SASLMechanism) Option {
	return func(o *sessionOptions) {
		if mechanism == nil {
			o.wrong = errors.New("WithSASL(nil): give DigestMD5(user, password), or leave the option out")
			return
		}
		if d, ok := mechanism.(digestMD5); ok && d.wrong != nil {
			o.wrong = d.wrong
		}
		o.sasl = startWith(mechanism)
	}
}

// startWith is the mechanism as the packages below take it. It is in a closure, where no printer
// finds its secrets (R71).
func startWith(m SASLMechanism) sasl.Start {
	return func(ctx context.Context, addr string) (sasl.Exchange, error) {
		var session SASLSession
		begin := sasl.Begin(func(ctx context.Context, addr string) (next sasl.Step, first []byte, err error) {
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

// DigestMD5 returns the mechanism of ZooKeeper's DigestLoginModule: a user and a password (RFC 2831, quality of protection "auth"). They may have
// any characters, in UTF-8. Connect refuses empty ones. The password is not sent, and the server must prove that it knows it,
// too: one that does not is ErrAuthFailed. What is sent later is neither signed nor encrypted, and who listens to an
// exchange can try passwords against it: use TLS, too. No error, no log line and no printed value of this package shows user or password.
func DigestMD5(user, password string) SASLMechanism {
	begin, err := digestBegin(user, password)
	return digestMD5{begin, err}
}

// DigestMD5Func is DigestMD5 with a user and a password that the function returns. It is called for
// each connection, so a Session takes a new password at its next connection. It must return when
// ctx ends, as Authenticate must, and may be called for several connections at once. An error, or an empty user or password, fails this connection alone,
// unless the error wraps ErrAuthFailed: see SASLMechanism. No error may contain a secret, because
// it is logged.
func DigestMD5Func(credentials func(ctx context.Context) (user, password string, err error)) SASLMechanism {
	if credentials == nil {
		return digestMD5{wrong: errors.New("DigestMD5Func(nil): give a function that returns a user and a password, or call DigestMD5")}
	}
	return digestMD5{begin: func(ctx context.Context, host string) (sasl.Step, []byte, error) {
		user, password, err := credentials(ctx)
		if err != nil {
			return nil, nil, err
		}
		begin, err := digestBegin(user, password)
		if err != nil {
			return nil, nil, err
		}
		return begin(ctx, host)
	}}
}

func digestBegin(user, password string) (sasl.Begin, error) {
	if user == "" || password == "" || !utf8.ValidString(user) || !utf8.ValidString(password) {
		return nil, errors.New("DigestMD5: give a user and a password in UTF-8; neither may be empty") // do not quote a password
	}
	return sasl.DigestMD5(secret.Of([]byte(user)), secret.Of([]byte(password))), nil
}

type digestMD5 struct {
	begin sasl.Begin
	wrong error
}

// Name implements SASLMechanism.
func (digestMD5) Name() string { return "DIGEST-MD5" }

// Authenticate implements SASLMechanism.
func (d digestMD5) Authenticate(ctx context.Context, host string) (SASLSession, []byte, error) {
	if d.wrong != nil {
		return nil, nil, d.wrong
	}
	next, first, err := d.begin(ctx, host)
	return saslStep(next), first, err
}

type saslStep sasl.Step

// Challenge implements SASLSession.
func (s saslStep) Challenge(challenge []byte) (bool, []byte, error) { return s(challenge) }
