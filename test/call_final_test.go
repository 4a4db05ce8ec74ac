package zklock_test

// These tests attack IsFinal: the errors that are worth another try, and the errors that are not.

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
)

func TestIsFinal_Table(t *testing.T) {
	ours := func(err error) error { return &zklock.Error{Op: "acquire", Path: "/job", Err: err} }
	for name, c := range map[string]struct {
		err   error
		final bool
	}{
		"nil":                                    {nil, false},
		"an error of the work":                   {errors.New("the database is away"), false},
		"no permission":                          {ours(zk.ErrNoAuth), true},
		"no permission, for the work":            {zk.ErrNoAuth, false},
		"the same, and a release not confirmed":  {errors.Join(zk.ErrNoAuth, ours(zklock.ErrNotConfirmed)), false},
		"an ACL that the servers do not take":    {ours(zk.ErrInvalidACL), true},
		"a request that is too long":             {ours(zk.ErrBadArguments), true},
		"the connection was lost":                {zk.ErrConnectionClosed, false},
		"a context that was cancelled":           {context.Canceled, false},
		"a context whose time is over":           {context.DeadlineExceeded, false},
		"a context with a cause of its own":      {fmt.Errorf("%w: %w", context.Canceled, zk.ErrNoAuth), false},
		"lost, because the Session was closed":   {fmt.Errorf("%w: %w", zklock.ErrLost, zklock.ErrClosed), true},
		"lost, because READ was taken":           {fmt.Errorf("%w: %w", zklock.ErrLost, zk.ErrNoAuth), false},
		"lost, and the work says something else": {errors.Join(errors.New("the work failed"), zklock.ErrLost), false},
	} {
		require.Equal(t, c.final, zklock.IsFinal(c.err), name)
	}
}

// Bad arguments are final wherever they are given.
func TestIsFinal_BadArguments(t *testing.T) {
	srv := target(t)
	s := connect(t, srv)
	m, ctx := newMutex(t, s, "/job"), within(t, soon)
	var none context.Context
	fails := func(_ any, err error) error { return err }
	work := func(context.Context, *zklock.Hold) error { return nil }
	for name, err := range map[string]error{
		"connection string": fails(zklock.Connect(ctx, "zk://"+srv)),
		"session timeout":   fails(zklock.Connect(ctx, srv, zklock.WithSessionTimeout(-1))),
		"no room":           fails(zklock.Connect(ctx, srv, zklock.WithSessionTimeout(time.Second))),
		"no context":        fails(zklock.Connect(none, srv)),
		"path":              fails(zklock.NewMutex(s, "job")),
		"path alone":        zklock.ValidatePath("job"),
		"ACL":               fails(zklock.NewMutex(s, "/job", zklock.WithACL(nil))),
		"acquire":           fails(m.Acquire(none)),
		"try":               fails(m.TryAcquire(none)),
		"participants":      fails(m.Participants(none)),
		"revoke":            s.Revoke(ctx, "job"),
		"no function":       m.Do(ctx, nil),
		"wait":              m.Do(ctx, work, zklock.WaitAtMost(-1)),
	} {
		require.Error(t, err, name)
		require.True(t, zklock.IsFinal(err), "%s: %v", name, err)
	}
}
