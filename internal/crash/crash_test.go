//go:build linux || darwin

package crash

// F58: a process with a session file is killed and started again.

import (
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/zktest"
)

func isInUse(err error) bool { return errors.Is(err, zklock.ErrSessionFileInUse) }

func newRole(t testing.TB, servers string) role {
	return role{Servers: servers, File: filepath.Join(t.TempDir(), "zk.session"), Timeout: 20 * time.Second}
}

// F58: the process that is started again ends the session of the killed one, and holds the lock long
// before the session timeout.
func TestF58_Kill_TheNextProcessHolds(t *testing.T) {
	srv := zktest.Start(t)
	r := newRole(t, srv.Addr())
	s := r.start(t)
	before := s.await("holds")
	for range 5 {
		s.kill()
		s = r.start(t)
		now := s.await("holds")
		t.Logf("%v from Connect to the grant", now.After)
		require.Less(t, now.After, r.Timeout/4)
		require.Greater(t, now.Token, before.Token)
		require.Equal(t, 1, now.Ended)
		require.Zero(t, now.Errors)
		before = now
	}
	require.Contains(t, s.output(), "zklock: ended the session of a crashed process")
}
