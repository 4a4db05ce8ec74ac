// Package sasl provides the mechanisms by which a Session and the servers prove their identity to
// each other. Pass one to zklock.WithSASL.
package sasl

import (
	"context"
	"errors"
	"unicode/utf8"

	"github.com/zklock/zklock/internal/sasl"
	"github.com/zklock/zklock/internal/secret"
)

// Mechanism is a way to prove an identity to a server: DigestMD5, Kerberos of contrib/zklockkrb5,
// or your own. Its methods are called on one goroutine at a time for each connection, and for
// several connections at once. They must not call Session.Close, because Close waits for them: call
// go s.Close().
type Mechanism interface {
	// Name returns the mechanism's name, such as "GSSAPI". Errors of a Session begin with it.
	Name() string

	// Authenticate begins an exchange with the server at host, which is as the connection string
	// has it, with its port. It returns the first token, which may be empty. It is called for each
	// connection, after the dial and before anything is sent. It must return when ctx ends: that is
	// after a third of the session timeout, and after 10 s at the latest, or when the Session is
	// closed.
	//
	// An error that wraps zklock.ErrAuthFailed is a rejection, as when a KDC does not know the
	// principal. Connect returns it at once. After Connect it is logged, and the Session tries the
	// next server. Any other error, as when no KDC responds, fails this connection alone, also for
	// Connect. No error may contain a secret, because it is logged.
	Authenticate(ctx context.Context, host string) (x Exchange, first []byte, err error)
}

// Exchange is one exchange of a Mechanism with one server.
//
// A mechanism that keeps tickets gives it one more method, Rejected() bool, which is called when
// the server rejects a token. It discards the ticket that the server was shown, and reports whether
// that was a kept one. Then the rejection fails this connection alone, also for Connect, and the
// next connection shows a new ticket.
type Exchange interface {
	// Challenge takes the server's response to the last token, and returns the next token. done
	// reports that the exchange ends with the response to that token, or ends now if next is nil.
	// Challenge must not block. Its errors are like those of Authenticate: return one that wraps
	// zklock.ErrAuthFailed if the server does not prove its identity. A challenge of more than 64
	// KiB is not read: the Session tries the next server.
	Challenge(challenge []byte) (done bool, next []byte, err error)
}

// DigestMD5 returns the mechanism of ZooKeeper's DigestLoginModule: a user and a password (RFC
// 2831, quality of protection "auth"). They may have any characters, in UTF-8. Connect rejects
// empty ones. The password is not sent, and the server must prove that it has the password, too: if
// it does not, the error is zklock.ErrAuthFailed. The requests that follow are neither signed nor
// encrypted, and an eavesdropper can test passwords against a recorded exchange: use TLS, too. No
// error, no log line and no printed value shows user or password.
func DigestMD5(user, password string) Mechanism {
	begin, err := digestBegin(user, password)
	return digestMD5{begin, err}
}

// DigestMD5Func is DigestMD5 with a user and a password that the function returns. It is called for
// each connection, so a Session takes a new password at its next connection. It must return when
// ctx ends, as Authenticate must, and may be called for several connections at once. An error, or
// an empty user or password, fails this connection alone, unless the error wraps
// zklock.ErrAuthFailed. No error may contain a secret, because it is logged.
func DigestMD5Func(credentials func(ctx context.Context) (user, password string, err error)) Mechanism {
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

// Check returns the error of an argument that can never authenticate. WithSASL calls it.
func (d digestMD5) Check() error { return d.wrong }

// Name implements Mechanism.
func (digestMD5) Name() string { return "DIGEST-MD5" }

// Authenticate implements Mechanism.
func (d digestMD5) Authenticate(ctx context.Context, host string) (Exchange, []byte, error) {
	if d.wrong != nil {
		return nil, nil, d.wrong
	}
	next, first, err := d.begin(ctx, host)
	return step(next), first, err
}

type step sasl.Step

// Challenge implements Exchange.
func (s step) Challenge(challenge []byte) (bool, []byte, error) { return s(challenge) }
