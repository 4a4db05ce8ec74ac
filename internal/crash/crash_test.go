//go:build linux || darwin

package crash

// F58: a process with a session file is killed and started again.

import (
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/internal/zkserver"
	"github.com/zklock/zklock/zktest"
)

func isInUse(err error) bool { return errors.Is(err, zklock.ErrSessionFileInUse) }

// server is a server of the test's own.
type server struct {
	addr  string
	lives func(session int64) bool // nil for a real server
}

// newServer starts a server: a real one with ZKLOCK_TEST_REAL=1.
func newServer(t testing.TB) server {
	t.Helper()
	if os.Getenv("ZKLOCK_TEST_REAL") == "1" {
		return server{addr: zkserver.Single(t).Addr()}
	}
	srv := zktest.Start(t)
	return server{srv.Addr(), func(session int64) bool {
		return slices.ContainsFunc(srv.Sessions(), func(s zktest.Session) bool { return s.ID == session })
	}}
}

func (s server) role(t testing.TB) role {
	return role{Servers: s.addr, File: filepath.Join(t.TempDir(), "zk.session"), Timeout: 20 * time.Second}
}

// F58: the process that is started again ends the session of the killed one, and holds the lock
// long before the session timeout.
func TestF58_Kill_TheNextProcessHolds(t *testing.T) {
	r := newServer(t).role(t)
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

// F58: the session of a process that lives is not ended. Another Session with its file waits for a
// second and fails.
func TestF58_ProcessLives_FileIsInUse(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"works", "stopped", "second", "first thread"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := newServer(t)
			r := srv.role(t)
			r.Then = name
			s := r.start(t)
			held := s.await("holds")
			var got report
			switch name {
			case "second":
				got = s.await("failed")
			case "first thread":
				s.awaitState(t, 'Z')
			case "stopped":
				require.NoError(t, s.cmd.Process.Signal(syscall.SIGSTOP))
				s.awaitState(t, 'T')
			}
			if got.What == "" {
				next := r
				next.Then = ""
				got = next.start(t).await("failed")
			}
			require.True(t, got.InUse, got.Err)
			require.True(t, got.Final, got.Err)
			require.GreaterOrEqual(t, got.After, time.Second)
			require.True(t, srv.lives == nil || srv.lives(held.Session))
			if name == "stopped" {
				require.NoError(t, s.cmd.Process.Signal(syscall.SIGCONT))
			}
			require.Empty(t, s.reports, "the holder has lost its lock")
			s.kill()
			r.Then = ""
			require.Equal(t, 1, r.start(t).await("holds").Ended)
		})
	}
}

// F58: a child that has the file open keeps it locked, as a fork without exec does. When it ends,
// the file is free.
func TestF58_ChildHasTheFile_FileIsInUse(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	r := srv.role(t)
	r.Then = "heir"
	s := r.start(t)
	held := s.await("holds")
	heir := s.await("heir").PID
	s.kill()
	r.Then = ""
	require.True(t, r.start(t).await("failed").InUse)
	require.True(t, srv.lives == nil || srv.lives(held.Session))
	require.NoError(t, syscall.Kill(heir, syscall.SIGKILL))
	require.Equal(t, 1, r.start(t).await("holds").Ended)
}

// F58: after a kill, the file stays locked while a child is between fork and exec. The next process
// waits for that.
func TestF58_ChildIsBetweenForkAndExec_TheNextProcessWaits(t *testing.T) {
	forks := newServer(t).role(t)
	forks.Then = "forks"
	next := forks
	next.Then = ""
	for range 3 {
		s := forks.start(t)
		s.await("holds")
		_ = s.cmd.Process.Kill() // the next process starts while this one ends
		n := next.start(t)
		now := n.await("holds")
		require.Equal(t, 1, now.Ended)
		require.Less(t, now.After, next.Timeout/4)
		n.kill()
	}
}

// F58: exec in place ends the old program, and the new one has the same process.
func TestF58_Exec_TheNewProgramHolds(t *testing.T) {
	t.Parallel()
	r := newServer(t).role(t)
	r.Then = "exec"
	s := r.start(t)
	before := s.await("holds")
	now := s.await("holds")
	require.Greater(t, now.Token, before.Token)
	require.Equal(t, 1, now.Ended)
}

// F58: a file that was deleted while it was in use leads to the wait as without a file, and no live
// session ends.
func TestF58_FileIsDeleted_TheNextProcessWaits(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	r := srv.role(t)
	r.Timeout = 4 * time.Second
	s := r.start(t)
	held := s.await("holds")
	require.NoError(t, os.Remove(r.File))
	next := r.start(t)
	time.Sleep(time.Second)
	require.True(t, srv.lives == nil || srv.lives(held.Session))
	require.Empty(t, s.reports, "the holder has lost its lock")
	s.kill()
	now := next.await("holds")
	require.Zero(t, now.Ended)
	require.Less(t, now.After, time.Second+r.Timeout+3*time.Second, "the wait is T and a tick")
}

// rounds is the number of starts of a random test: a few in make test.
func rounds() int {
	if n, err := strconv.Atoi(os.Getenv("ZKLOCK_ROUNDS")); err == nil {
		return n
	}
	return 40
}

// F58: processes that are killed at random moments, most of them while they start. Each one that is
// left alone holds soon, and no session of a live process ends.
func TestF58_RandomKills(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	srv := newServer(t)
	r := srv.role(t)
	var took []time.Duration
	last, killed := int64(0), 0
	for range rounds() {
		s := r.start(t)
		if rnd.IntN(3) > 0 {
			time.Sleep(time.Duration(rnd.Int64N(int64(60 * time.Millisecond)))) // any moment is right
			s.kill()
			killed++
			continue
		}
		now := s.await("holds")
		took = append(took, now.After)
		require.Greater(t, now.Token, last)
		require.Less(t, now.After, r.Timeout/4)
		last = now.Token
		if rnd.IntN(4) == 0 {
			require.True(t, r.start(t).await("failed").InUse)
		}
		require.True(t, srv.lives == nil || srv.lives(now.Session))
		require.Empty(t, s.reports, "the holder has lost its lock")
		s.kill()
	}
	slices.Sort(took)
	require.NotEmpty(t, took)
	t.Logf("%d killed while they started; from Connect to the grant of %d others: p50 %v, max %v", killed, len(took), took[len(took)/2], took[len(took)-1])
}
