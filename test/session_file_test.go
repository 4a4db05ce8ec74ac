//go:build linux || darwin

package zklock_test

// These tests attack WithSessionFile: how the sessions in a file end, when servers respond, reject
// or are silent. internal/crash has the tests with processes that are killed.

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/zklock/zklock"
	jute "github.com/zklock/zklock/internal/wire"
	"github.com/zklock/zklock/zktest"
)

const (
	endedLeft    = "zklock: ended the session of a crashed process"
	notEndedLeft = "zklock: the session of a crashed process was not ended; it expires"
)

// leaves takes a lock in a Session that is then closed while it is cut off, so its ZooKeeper
// session remains on the servers and in the file. It returns the session's id.
func (v *virtual) leaves(path string, timeout time.Duration, opts ...zklock.Option) (id int64) {
	line := &line{dial: v.net.Dial}
	s := v.connect(append(opts, zklock.WithSessionFile(path), zklock.WithSessionTimeout(timeout), zklock.WithDialer(line.Dial))...)
	acquire(v.t, newMutex(v.t, s, "/job"))
	id = s.Stats().SessionID
	line.silent.Store(true)
	require.NoError(v.t, s.Close())
	require.True(v.t, v.lives(id))
	return id
}

func (v *virtual) lives(session int64) bool {
	for _, s := range v.srv.Sessions() {
		if s.ID == session {
			return true
		}
	}
	return false
}

// attachLoss is a dialer whose connections lose the first requests to attach to a session, and then
// all that follows.
type attachLoss struct {
	dial     zk.Dialer
	session  int64
	requests atomic.Int64 // how many are still lost
}

func (l *attachLoss) Dial(network, addr string, limit time.Duration) (net.Conn, error) {
	c, err := l.dial(network, addr, limit)
	return &attachLossConn{Conn: c, l: l}, err
}

type attachLossConn struct {
	net.Conn
	l      *attachLoss
	isDead bool
}

func (c *attachLossConn) Write(p []byte) (int, error) {
	attaches := bytes.Contains(p, binary.BigEndian.AppendUint64(nil, uint64(c.l.session)))
	if c.isDead = c.isDead || attaches && c.l.requests.Add(-1) >= 0; c.isDead {
		return len(p), nil
	}
	return c.Conn.Write(p)
}

func sessionFile(t testing.TB) string { return filepath.Join(t.TempDir(), "zk.session") }

// F58: a session in the file ends before Connect returns, so a try finds the lock free. A Session
// that was closed, and confirmed by a server, leaves none.
func TestVirtual_F58_SessionInTheFile_EndsBeforeConnectReturns(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		path := sessionFile(t)
		old := v.leaves(path, 20*time.Second)
		var log warnings
		began := time.Now()
		s := v.connect(zklock.WithSessionFile(path), lines(&log, slog.LevelInfo))
		require.False(t, v.lives(old))
		_, err := newMutex(t, s, "/job").TryAcquire(context.Background())
		require.NoError(t, err)
		require.Less(t, time.Since(began), 100*time.Millisecond)
		require.Equal(t, 1, s.Stats().SessionsEnded)
		log.once(t, endedLeft, sessionIs(old))
		require.NoError(t, s.Close())

		var quiet warnings
		s = v.connect(zklock.WithSessionFile(path), lines(&quiet, slog.LevelInfo))
		require.Zero(t, s.Stats().SessionsEnded)
		require.Empty(t, quiet.of(endedLeft))
	})
}

// F58: sessions that expired, or that were given up and live on at the servers, are in the file
// until a server has confirmed their end.
func TestVirtual_F58_GivenUpSessions_AreAllInTheFile(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		path := sessionFile(t)
		hangUp := v.srv.Inject(zktest.Before(zktest.CloseSession).Close()) // no end is confirmed
		line := &line{dial: v.net.Dial}
		s := v.connect(zklock.WithSessionFile(path), zklock.WithSessionTimeout(8*time.Second), zklock.WithDialer(line.Dial))
		var old []int64
		for range 2 {
			acquire(t, newMutex(t, s, "/job"))
			old = append(old, s.Stats().SessionID)
			line.silent.Store(true)
			for s.Stats().State != zklock.StateLost {
				time.Sleep(time.Second)
			}
			line.silent.Store(false)
			for s.Stats().Server == "" {
				time.Sleep(100 * time.Millisecond)
			}
		}
		old = append(old, s.Stats().SessionID)
		line.silent.Store(true)
		require.NoError(t, s.Close())
		require.True(t, v.lives(old[1]))
		hangUp.Remove()
		s = v.connect(zklock.WithSessionFile(path))
		for _, id := range old {
			require.False(t, v.lives(id))
		}
		require.Positive(t, s.Stats().SessionsEnded)
	})
}

// F58: if the server rejects the end, it is asked once, also by the next processes, and the session
// expires as it would have without the file.
func TestVirtual_F58_EndIsRejected_OneTouch(t *testing.T) {
	for _, timeout := range []time.Duration{8 * time.Second, 20 * time.Second} {
		inVirtualTime(t, func(t *testing.T, v *virtual) {
			path := sessionFile(t)
			old := v.leaves(path, timeout)
			v.srv.Inject(zktest.Before(zktest.CloseSession).Session(old).Fail(authRequired))
			var log warnings
			began := time.Now()
			for range 3 {
				s := v.connect(zklock.WithSessionFile(path), lines(&log, slog.LevelWarn))
				require.Zero(t, s.Stats().SessionsEnded)
				require.NoError(t, s.Close())
				time.Sleep(time.Second)
			}
			s := v.connect(zklock.WithSessionFile(path))
			_, err := newMutex(t, s, "/job").Acquire(within(t, time.Minute))
			require.NoError(t, err)
			require.LessOrEqual(t, time.Since(began), timeout+serverTick)
			log.once(t, notEndedLeft, sessionIs(old))
		})
	}
}

// F58: a server that accepts connections and does not respond does not delay Connect beyond its
// ctx, and the file keeps the session for the next process.
func TestVirtual_F58_ServerIsSilent_ConnectEndsWithItsCtx(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		path := sessionFile(t)
		old := v.leaves(path, 20*time.Second)
		v.srv.Freeze()
		began := time.Now()
		_, err := zklock.Connect(within(t, time.Second), v.srv.Addr(), zklock.WithDialer(v.net.Dial), zklock.WithSessionFile(path))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.LessOrEqual(t, time.Since(began), 1500*time.Millisecond)
		v.srv.Thaw()
		time.Sleep(5 * time.Second)
		v.connect(zklock.WithSessionFile(path))
		require.False(t, v.lives(old))
	})
}

// F58: the first attempt to end a session gets no response, as ZooKeeper sometimes behaves.
func TestVirtual_F58_AttachIsNotAnswered_NextAttemptFollowsSoon(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		path := sessionFile(t)
		old := v.leaves(path, 20*time.Second)
		lossy := &attachLoss{dial: v.net.Dial, session: old}
		lossy.requests.Store(1)
		began := time.Now()
		v.connect(zklock.WithSessionFile(path), zklock.WithDialer(lossy.Dial))
		require.False(t, v.lives(old))
		require.Less(t, time.Since(began), 500*time.Millisecond)
	})
}

// F58: the server cannot be reached when the process is started again. The end follows soon after
// the server has returned, and it need not wait for our own connection.
func TestVirtual_F58_ServerReturns_SessionEndsSoon(t *testing.T) {
	for _, away := range []time.Duration{time.Second, 5 * time.Second} {
		inVirtualTime(t, func(t *testing.T, v *virtual) {
			path := sessionFile(t)
			old := v.leaves(path, 20*time.Second)
			returns := time.Now().Add(away)
			dial := func(network, addr string, limit time.Duration) (net.Conn, error) {
				if time.Now().Before(returns) {
					return nil, errors.New("no route")
				}
				return v.net.Dial(network, addr, limit)
			}
			connected := make(chan *zklock.Session, 1)
			go func() {
				s, err := zklock.Connect(context.Background(), v.srv.Addr(), zklock.WithSessionFile(path), zklock.WithDialer(dial))
				assert.NoError(t, err)
				connected <- s
			}()
			for v.lives(old) {
				time.Sleep(10 * time.Millisecond)
			}
			require.LessOrEqual(t, time.Since(returns), 1200*time.Millisecond)
			require.NoError(t, (<-connected).Close())
		})
	}
}

// F58: Connect waits for the ends for a second. Then they continue in the background, at most until
// the session has expired for certain: the file then forgets it.
func TestVirtual_F58_EndsContinueInTheBackground(t *testing.T) {
	for _, answers := range []bool{true, false} {
		inVirtualTime(t, func(t *testing.T, v *virtual) {
			path := sessionFile(t)
			old := v.leaves(path, 20*time.Second)
			lossy := &attachLoss{dial: v.net.Dial, session: old}
			lossy.requests.Store(1000)
			var log warnings
			began := time.Now()
			s := v.connect(zklock.WithSessionFile(path), zklock.WithDialer(lossy.Dial), lines(&log, slog.LevelWarn))
			require.InDelta(t, time.Second, time.Since(began), float64(50*time.Millisecond))
			require.True(t, v.lives(old))
			time.Sleep(5 * time.Second)
			if answers {
				lossy.requests.Store(0)
				time.Sleep(4 * time.Second)
				require.False(t, v.lives(old))
				require.Equal(t, 1, s.Stats().SessionsEnded)
				return
			}
			time.Sleep(30 * time.Second)
			log.once(t, notEndedLeft, sessionIs(old))
			require.NoError(t, s.Close())
			lossy.requests.Store(1000)
			v.connect(zklock.WithSessionFile(path), zklock.WithDialer(lossy.Dial))
			require.EqualValues(t, 1000, lossy.requests.Load(), "no server is asked")
		})
	}
}

// Close ends the ends, and the file keeps the session.
func TestVirtual_F58_CloseWhileSessionsAreEnded(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		path := sessionFile(t)
		old := v.leaves(path, 20*time.Second)
		lossy := &attachLoss{dial: v.net.Dial, session: old}
		lossy.requests.Store(1000)
		s := v.connect(zklock.WithSessionFile(path), zklock.WithDialer(lossy.Dial))
		began := time.Now()
		require.NoError(t, s.Close())
		require.LessOrEqual(t, time.Since(began), 4*time.Second)
		require.True(t, v.lives(old))
		v.connect(zklock.WithSessionFile(path))
		require.False(t, v.lives(old))
	})
}

// R71, R141: a printer that follows pointers finds neither the password of the session that is in
// the file, nor of one that was.
func TestPrinting_SessionFile_NothingToFind(t *testing.T) {
	inPrintedTime(t, func(t *testing.T, v *virtual) {
		path := sessionFile(t)
		left := v.leaves(path, 20*time.Second)
		nothingToFind(t, v, map[string][]byte{"the password that was in the file": jute.SessionPassword(left)}, zklock.WithSessionFile(path))
	})
}

func TestConnect_SessionFile_BadArgument(t *testing.T) {
	_, err := zklock.Connect(t.Context(), "127.0.0.1:1", zklock.WithSessionFile(""))
	require.ErrorContains(t, err, "WithSessionFile")
	require.True(t, zklock.IsFinal(err))
	_, err = zklock.Connect(t.Context(), "127.0.0.1:1", zklock.WithSessionFile(t.TempDir()))
	require.Error(t, err)
}

// sessionIs returns the attribute of a log line that has a session.
func sessionIs(id int64) string { return fmt.Sprintf("session=%#x", uint64(id)) }

// Kubernetes gives the file to the fsGroup of a Pod. Connect accepts that, and names the risk once.
func TestVirtual_F58_GroupHasTheFile_Warning(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		path := sessionFile(t)
		var log warnings
		require.NoError(t, v.connect(zklock.WithSessionFile(path), lines(&log, slog.LevelWarn)).Close())
		require.Zero(t, log.about("group", ""))
		require.NoError(t, os.Chmod(path, 0o660))
		v.connect(zklock.WithSessionFile(path), lines(&log, slog.LevelWarn))
		log.once(t, "zklock: each member of the session file's group can end the session", "file="+path)
	})
}

// A copy of the file takes its place while the Session lives: its session is not ended.
func TestVirtual_F58_FileIsCopied_LiveSessionRemains(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		path := sessionFile(t)
		s := v.connect(zklock.WithSessionFile(path))
		h := acquire(t, newMutex(t, s, "/job"))
		b, err := os.ReadFile(path)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(path+".copy", b, 0o600))
		require.NoError(t, os.Rename(path+".copy", path))
		var log warnings
		other := v.connect(zklock.WithSessionFile(path), lines(&log, slog.LevelWarn))
		log.once(t, "zklock: sessions in the session file were ignored; they expire", "file="+path)
		_, err = newMutex(t, other, "/job").TryAcquire(context.Background())
		require.ErrorIs(t, err, zklock.ErrNotAcquired)
		require.NoError(t, h.Err())
		require.True(t, v.lives(s.Stats().SessionID))
	})
}

// If the file cannot be written any more, each change is counted and logged, and locks are not
// affected.
func TestVirtual_F58_FileCannotBeWritten_LocksGoOn(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		path := sessionFile(t)
		var log warnings
		s := v.connect(zklock.WithSessionFile(path), lines(&log, slog.LevelWarn))
		readOnly, err := os.Open(path)
		require.NoError(t, err)
		defer readOnly.Close()
		replaceDescriptor(t, path, readOnly)
		for range 2 {
			require.True(t, v.srv.ExpireSession(s.Stats().SessionID))
			for s.Stats().Server == "" {
				time.Sleep(100 * time.Millisecond)
			}
			acquire(t, newMutex(t, s, "/job"))
		}
		const failed = "zklock: the session file could not be written; if this process crashes, its locks may be free only after the session timeout"
		require.Len(t, log.of(failed), 4, "each session's end, and the next one's beginning")
		require.Equal(t, 4, s.Stats().SessionFileErrors)
	})
}

// replaceDescriptor makes the descriptor under which this process writes a file mean another one.
func replaceDescriptor(t *testing.T, path string, by *os.File) {
	t.Helper()
	want, err := os.Stat(path)
	require.NoError(t, err)
	for fd := range 1000 {
		var st syscall.Stat_t
		if syscall.Fstat(fd, &st) == nil && st.Ino == want.Sys().(*syscall.Stat_t).Ino && fd != int(by.Fd()) {
			require.NoError(t, unix.Dup2(int(by.Fd()), fd))
			return
		}
	}
	require.Fail(t, "the file is not open")
}
