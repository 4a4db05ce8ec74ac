package zklock_test

// These tests attack IsFinal: which errors are worth another try.

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/zktest"
)

// sentinels are the errors of the package, and whether they are final.
var sentinels = map[string]struct {
	err   error
	final bool
}{
	"ErrNotAcquired":       {zklock.ErrNotAcquired, false},
	"ErrNotConnected":      {zklock.ErrNotConnected, false},
	"ErrNotHeld":           {zklock.ErrNotHeld, false},
	"ErrLost":              {zklock.ErrLost, false},
	"ErrNotConfirmed":      {zklock.ErrNotConfirmed, false},
	"ErrClosed":            {zklock.ErrClosed, true},
	"ErrSessionExpired":    {zklock.ErrSessionExpired, false},
	"ErrSequenceExhausted": {zklock.ErrSequenceExhausted, false},
	"ErrNoRoom":            {zklock.ErrNoRoom, true},
	"ErrNoChroot":          {zklock.ErrNoChroot, true},
	"ErrTooManyWaiters":    {zklock.ErrTooManyWaiters, false},
	"ErrAuthFailed":        {zklock.ErrAuthFailed, true},
}

// Each error of the package is final or not, and docs/service.md says so.
func TestIsFinal_EachErrorOfThePackage(t *testing.T) {
	exported := regexp.MustCompile(`(?m)^\t(Err\w+) += errors\.New`).FindAllStringSubmatch(readFile(t, "errors.go"), -1)
	page := readFile(t, "docs/service.md")
	for _, found := range exported {
		name := found[1]
		s, ok := sentinels[name]
		require.True(t, ok, "say of %s whether it is final", name)
		require.Equal(t, s.final, zklock.IsFinal(s.err), name)
		require.Equal(t, s.final, zklock.IsFinal(&zklock.Error{Op: "acquire", Path: "/job", Err: fmt.Errorf("%w: and why", s.err)}), name)
		row := regexp.MustCompile("(?m)^\\| `" + name + "` \\|[^|]*\\| (.*) \\|$").FindStringSubmatch(page)
		require.NotNil(t, row, "docs/service.md has no row of %s", name)
		require.Equal(t, s.final, row[1] == "no" || strings.HasPrefix(row[1], "no:"), "docs/service.md, %s: %s", name, row[1])
	}
	require.Len(t, sentinels, len(exported))
}

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
		"revoke":            zklock.Revoke(ctx, s, "job"),
		"no function":       m.Do(ctx, nil),
		"wait":              m.Do(ctx, work, zklock.WaitAtMost(-1)),
	} {
		require.Error(t, err, name)
		require.True(t, zklock.IsFinal(err), "%s: %v", name, err)
	}
}

// A loop that asks IsFinal ends when the Session is closed, and goes on after all that passes.
func TestVirtual_IsFinal_LeaderLoop(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		s := v.connect()
		terms := 0
		err := lead(t.Context(), newMutex(t, s, "/job"), func(ctx context.Context, hold *zklock.Hold) error {
			switch terms++; terms {
			case 1:
				require.NoError(t, v.srv.Delete(hold.Node()))
			case 2:
				require.True(t, v.srv.ExpireSession(s.SessionID()))
			case 3:
				v.srv.Inject(zktest.Before(zktest.Create).Path("/job/*").Fail(zktest.QuotaExceeded).Once())
				return nil
			case 4:
				go s.Close()
			}
			<-ctx.Done()
			return ctx.Err()
		})
		require.ErrorIs(t, err, zklock.ErrClosed)
		require.Equal(t, 4, terms)
	})
}
