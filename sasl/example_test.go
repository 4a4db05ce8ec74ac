package sasl_test

// Examples: a user and a password, and a mechanism of your own.

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/sasl"
	"github.com/zklock/zklock/zktest"
)

// saslServer starts a server that accepts only clients with SASL, and has one user, like a server
// with a JAAS file.
func saslServer() (servers string, stop func()) {
	srv, err := zktest.NewServer(zktest.WithSASLUsers(map[string]string{"locker": "secret"}), zktest.WithConfig("sessionRequireClientSASLAuth=true"))
	if err != nil {
		log.Fatal(err)
	}
	return srv.Addr(), srv.Close
}

// A rejection is final for Connect.
func ExampleDigestMD5() {
	servers, stop := saslServer()
	defer stop()
	_, err := zklock.Connect(context.Background(), servers, zklock.WithSASL(sasl.DigestMD5("locker", "mistyped")),
		zklock.WithLogger(slog.New(slog.DiscardHandler)))
	fmt.Println(errors.Is(err, zklock.ErrAuthFailed))
	// Output: true
}

// The file is read at each connection, so a new password needs no restart.
func ExampleDigestMD5Func() {
	servers, stop := saslServer()
	defer stop()
	file := filepath.Join(os.TempDir(), fmt.Sprintf("zklock-password-%d", os.Getpid()))
	if err := os.WriteFile(file, []byte("secret\n"), 0o600); err != nil {
		log.Fatal(err)
	}
	defer os.Remove(file)
	fromFile := func(context.Context) (user, password string, err error) {
		b, err := os.ReadFile(file)
		return "locker", strings.TrimSpace(string(b)), err
	}
	s, err := zklock.Connect(context.Background(), servers, zklock.WithSASL(sasl.DigestMD5Func(fromFile)))
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	fmt.Println(s.Stats().State)
	// Output: Connected
}

// ticketed requests a ticket from another server, and shows it to ZooKeeper, as Kerberos does.
type ticketed struct {
	sasl.Mechanism
	ticket func(ctx context.Context, host string) error
}

var errUnknownPrincipal = errors.New("principal unknown")

// Authenticate distinguishes a rejection from an outage.
func (m ticketed) Authenticate(ctx context.Context, host string) (sasl.Exchange, []byte, error) {
	switch err := m.ticket(ctx, host); {
	case errors.Is(err, errUnknownPrincipal):
		return nil, nil, fmt.Errorf("%w: %w", zklock.ErrAuthFailed, err) // final for Connect
	case err != nil:
		return nil, nil, err // the Session tries again
	}
	return m.Mechanism.Authenticate(ctx, host)
}

// A mechanism of another package marks a rejection by its error.
func ExampleMechanism() {
	servers, stop := saslServer()
	defer stop()
	tries := 0
	ticket := func(context.Context, string) error {
		if tries++; tries == 1 {
			return errors.New("no KDC has answered")
		}
		return errUnknownPrincipal
	}
	_, err := zklock.Connect(context.Background(), servers, zklock.WithSASL(ticketed{sasl.DigestMD5("locker", "secret"), ticket}),
		zklock.WithLogger(slog.New(slog.DiscardHandler)))
	fmt.Println(tries, errors.Is(err, zklock.ErrAuthFailed), strings.Contains(err.Error(), "principal unknown"))
	// Output: 2 true true
}

// A mechanism can be tried without a server. This one gets no challenge, as from a server without a
// JAAS file.
func ExampleExchange() {
	var session sasl.Exchange
	session, first, err := sasl.DigestMD5("locker", "secret").Authenticate(context.Background(), "zk1:2181")
	fmt.Println(len(first), err)
	_, _, err = session.Challenge(nil)
	fmt.Println(err)
	fmt.Println(errors.Is(err, zklock.ErrAuthFailed))
	// Output:
	// 0 <nil>
	// the server has no challenge: is SASL configured there?
	// false
}
