package zklock_test

// These tests attack the check of a sequencer: whatever ended a hold, and whatever answer is lost, a hold that is over never stands
// (I1, F10, F12, F24, F26).

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/zktest"
)

// whyNot are the errors that a caller of CheckSequencer tells apart.
var whyNot = []error{zklock.ErrNotHeld, zklock.ErrOtherLock, zklock.ErrOtherRoot, zklock.ErrBadSequencer, zklock.ErrNotConnected, zklock.ErrClosed, context.Canceled, context.DeadlineExceeded}

// requireOnly checks that an error is that one of them, and no other; want is nil if the hold stands.
func requireOnly(t testing.TB, want, err error, what string) {
	t.Helper()
	for _, e := range whyNot {
		require.Equal(t, e == want, errors.Is(err, e), "%s: %v", what, err)
	}
	require.Equal(t, want == nil, err == nil, "%s: %v", what, err)
}

// checks asks through a Session about a hold of the lock on path.
func checks(t testing.TB, s *zklock.Session, path string, q zklock.Sequencer, want error, what string) {
	t.Helper()
	requireOnly(t, want, zklock.CheckSequencer(within(t, soon), s, path, q.String()), what)
}

// A hold of each kind stands until it is released, for somebody else's Session too; what others write into its node does not matter.
func TestCheckSequencer_EachKindOfHold(t *testing.T) {
	srv := target(t)
	a, p := admin(t, srv), lockPath(t, srv)
	s, resource := connect(t, srv), connect(t, srv)
	rw := newRWMutex(t, s, p+"/rw ä")
	one := func(path, mode string, m zklock.Lock) {
		t.Helper()
		h := acquire(t, m)
		q := h.Sequencer()
		require.Equal(t, zklock.Sequencer{Path: p + path, Root: q.Root, Mode: mode, Permits: q.Permits, Token: h.Token(), Node: q.Node}, q)
		parsed, err := zklock.ParseSequencer(q.String())
		require.NoError(t, err)
		require.Equal(t, q, parsed)
		checks(t, resource, p+path, q, nil, mode)
		checks(t, s, p+path, q, nil, "through the holder's own Session")
		_, err = a.Set(h.Node(), []byte("somebody changed the data"), -1)
		require.NoError(t, err)
		checks(t, resource, p+path, q, nil, "another version")
		checks(t, resource, p+"/other", q, zklock.ErrOtherLock, "asked for another lock")
		for i := range h.Checks()[1:] { // the first is h.Node
			last := *h.Checks()[1+i].(interface{}).(interface{ String() string }).(fmt.Stringer).(interface{}).(*struct{}) //nolint
			_ = last
		}
		release(t, h)
		checks(t, resource, p+path, q, zklock.ErrNotHeld, "released")
		require.Equal(t, q, h.Sequencer(), "as it was")
	}
	one("/mutex", "exclusive", newMutex(t, s, p+"/mutex"))
	one("/rw ä", "exclusive", rw.WriteLock())
	one("/rw ä", "shared", rw.ReadLock())
	one("/sem", "permits", newSemaphore(t, s, p+"/sem", 5).Permits(1))
	one("/sem", "permits", newSemaphore(t, s, p+"/sem", 5).Permits(3))
}
