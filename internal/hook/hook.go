// Package hook gives the command and our tests access to a Session beyond its public API. The hooks
// are passed in the context of Connect.
package hook

import (
	"context"
	"net"
	"os"
	"time"

	"github.com/zklock/zklock/internal/sessionkey"
)

// Session has the hooks of a Session. The zero value does nothing.
type Session struct {
	// Key is set to a function that returns the key of the current ZooKeeper session. The key is
	// zero without a session, or if the session was given up.
	Key *func() sessionkey.Key
	// File is set to a function that returns a descriptor of the session file for a child, which
	// then keeps it locked. It is not set if the Session has no file.
	File *func() (*os.File, error)
	// Unreached is called with a function that adds the result of the last try at each server to an
	// error, as long as no server accepts the session.
	Unreached func(func(error) error)
	// SuspendedTime returns the time in which the machine was suspended, for the Session's clock;
	// nil uses the system's.
	SuspendedTime func() time.Duration
	// Lookup returns the addresses of a name, for the Session; nil uses the system's.
	Lookup func(ctx context.Context, host string) ([]string, error)
	// Connect connects the Session to an address of a name; nil uses net.Dialer.
	Connect func(ctx context.Context, network, addr string) (net.Conn, error)
}

type contextKey struct{}

// With returns a context with hooks for Connect.
func With(ctx context.Context, h Session) context.Context {
	return context.WithValue(ctx, contextKey{}, h)
}

// From returns the hooks in the context.
func From(ctx context.Context) Session {
	h, _ := ctx.Value(contextKey{}).(Session)
	return h
}
