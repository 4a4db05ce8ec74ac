// Package sasl provides the mechanisms by which a Session and the servers authenticate to each
// other: see zklock.WithSASL.
package sasl

import (
	"context"
	"errors"
	"unicode/utf8"

	"github.com/zklock/zklock/internal/sasl"
	"github.com/zklock/zklock/internal/secret"
)

// Mechanism authenticates to a server: DigestMD5, Kerberos of contrib/zklockkrb5, or your own.
// Several connections use it at once, each on one goroutine at a time. It must not call
// Session.Close, which waits for it: call go s.Close().
type Mechanism interface {
	// Name returns the mechanism's name, such as "GSSAPI".
	Name() string

	// Authenticate begins an exchange on a new connection to host, which is as in the
	// connection string, with its port. It returns the first token, which may be empty. It must
	// return when ctx ends: after a third of the session timeout, at most 10 s, or when the
	// Session is closed.
	//
	// An error that wraps zklock.ErrAuthFailed is a rejection, such as of an unknown principal:
	// Connect returns it; later the Session tries the next server. Any other error, such as of
	// an unresponsive KDC, fails only this connection, also for Connect. Errors are logged:
	// they must not contain a secret.
	Authenticate(ctx context.Context, host string) (x Exchange, first []byte, err error)
}

// Exchange is one exchange of a Mechanism with one server.
//
// A mechanism that keeps tickets adds a method Rejected() bool, called when the server rejects a
// token. It discards the ticket used, and reports whether that was a kept one: then only this
// connection fails, and the next one uses a new ticket.
type Exchange interface {
	// Challenge returns the next token for the server's response to the last one. done reports
	// that the exchange ends with the response to it, or now if next is nil. Challenge must not
	// block. Errors are treated like Authenticate's: wrap zklock.ErrAuthFailed if the server
	// does not prove its identity. A challenge over 64 KiB fails the connection.
	Challenge(challenge []byte) (done bool, next []byte, err error)
}

// DigestMD5 authenticates with a user and a password in UTF-8, for ZooKeeper's DigestLoginModule
// (RFC 2831, quality of protection "auth"). Connect rejects empty ones. The password is not sent,
// and the server must prove that it has it, too (zklock.ErrAuthFailed). Use TLS: requests are not
// protected, and a recorded exchange allows password guessing. User and password are never logged
// or printed.
func DigestMD5(user, password string) Mechanism {
	begin, err := digestBegin(user, password)
	return digestMD5{begin, err}
}

// DigestMD5Func is DigestMD5 with a user and a password that the function returns for each
// connection. It must return when ctx ends, and may be called concurrently. An error, or an empty
// user or password, fails only this connection, unless it wraps zklock.ErrAuthFailed. Errors must
// not contain a secret.
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
