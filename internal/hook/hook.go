// Package hook is what the command and our tests have of a Session beyond what its users have. It goes into the context that
// Connect is given.
package hook

import (
	"context"
	"net"
	"time"

	"github.com/zklock/zklock/internal/sessionkey"
)

// Session is a Session's hooks. The zero value does nothing.
type Session struct {
	// Key is set to a function that returns the key of the current ZooKeeper session. The key is zero if there is none now, or
	// if it was given up.
	Key *func() sessionkey.Key
	// Unreached is called with a function that adds to an error what came of the last try at each server, as long as no server
	// accepts the session.
	Unreached func(func(error) error)
	// SuspendedTime is what the Session's clock takes as the time in which the machine was suspended; nil asks the system.
	SuspendedTime func() time.Duration
	// Lookup is what the Session asks for the addresses of a name; nil asks the system.
	Lookup func(ctx context.Context, host string) ([]string, error)
	// Connect connects the Session to an address that a name has; nil has net.Dialer do that.
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
