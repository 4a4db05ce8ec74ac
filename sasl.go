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
	// that is when the handshake's time is over (WithHandshakeTimeout), or the Session is closed.
	//
	// An error that wraps ErrAuthFailed is a refusal: it ends the Session. Return one if who you are is known to be wrong, as when a KDC does not
	// know the principal. Any other error fails this connection alone, as when no KDC answers: the Session notes it, tries the next
	// server, and goes on until the lease ends, and after that too. No error may have a secret in it, because it is logged.
	Authenticate(ctx context.Context, host string) (session SASLSession, first []byte, err error)
}

// SASLSession is one exchange of a SASLMechanism with one server.
type SASLSession interface {
	// Challenge takes what the server answered to the last token, and returns the next. done says that the exchange is over when that
	// has been answered, with whatever; without a next token, which is nil then, it is over now. It must not block. Its errors are as those of
	// Authenticate: return one that wraps ErrAuthFailed if the server does not prove who it is. A
	// challenge of more than 64 KiB is not read: the Session tries the next server.
	Challenge(challenge []byte) (done bool, next []byte, err error)
}

// WithSASL has the Session prove who it is by SASL, on every connection, before anything else is asked on it; by default it does not.
// A server that refuses is ErrAuthFailed: the Session is closed, whatever other servers may say. A server that does not answer in time, or has
// no SASL or not this mechanism, is left for the next one. Given twice, the last mechanism counts.
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
		o.sasl = beginWith(mechanism)
	}
}

// beginWith is the mechanism as the packages below take it. It is in a closure, where no printer finds its secrets (R71).
func beginWith(m SASLMechanism) sasl.Begin {
	return func(ctx context.Context, addr string) (sasl.Step, []byte, error) {
		session, first, err := m.Authenticate(ctx, addr)
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
	}
}

// DigestMD5 returns the mechanism of ZooKeeper's DigestLoginModule: a user and a password (RFC 2831, quality of protection "auth"). They may have
// any characters, in UTF-8. Connect refuses empty ones. The password is not sent, and the server must prove that it knows it,
// too: one that does not is ErrAuthFailed. What is sent later is neither signed nor encrypted, and who listens to an
// exchange can try passwords against it: use TLS, too. No error, no log line and no printed value of this package shows user or password.
func DigestMD5(user, password string) SASLMechanism {
	d := digestMD5{begin: sasl.DigestMD5(secret.Of([]byte(user)), secret.Of([]byte(password)))}
	if user == "" || password == "" || !utf8.ValidString(user) || !utf8.ValidString(password) {
		d.wrong = errors.New("DigestMD5: give a user and a password in UTF-8; neither may be empty") // do not quote a password
	}
	return d
}

type digestMD5 struct {
	begin sasl.Begin
	wrong error
}

// Name implements SASLMechanism.
func (digestMD5) Name() string { return "DIGEST-MD5" }

// Authenticate implements SASLMechanism.
func (d digestMD5) Authenticate(ctx context.Context, host string) (SASLSession, []byte, error) {
	next, first, err := d.begin(ctx, host)
	return saslStep(next), first, err
}

type saslStep sasl.Step

// Challenge implements SASLSession.
func (s saslStep) Challenge(challenge []byte) (bool, []byte, error) { return s(challenge) }
