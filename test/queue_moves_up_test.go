package zklock_test

// These tests check the position that a waiter reports when some nodes ahead have been deleted, and
// it has not listed since.

import (
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
)

// R93: a waiter that is notified of several nodes ahead has in its log and its error the present
// blocker and its own position, without a request.
func TestVirtual_Few_SomeAreGone_NamesWhoIsAheadNow(t *testing.T) {
	const line = "zklock: still waiting for the lock"
	named := func(s string) zklock.LockOption { return zklock.WithData([]byte(s)) }
	for name, ahead := range map[string]func(t *testing.T, v *virtual, s *zklock.Session) (waits zklock.Lock, goes func()){
		"a mutex": func(t *testing.T, v *virtual, s *zklock.Session) (zklock.Lock, func()) {
			h := acquire(t, newMutex(t, v.connect(), "/job", named("first")))
			w := v.queueUp(newMutex(t, v.connect(), "/job", named("stuck")))
			return newMutex(t, s, "/job"), func() { release(t, h); w.granted2(t, time.Second) }
		},
		"a mutex, and the one between gives up": func(t *testing.T, v *virtual, s *zklock.Session) (zklock.Lock, func()) {
			acquire(t, newMutex(t, v.connect(), "/job", named("stuck")))
			w := v.queueUp(newMutex(t, v.connect(), "/job", named("second")))
			return newMutex(t, s, "/job"), w.stop
		},
		"a writer": func(t *testing.T, v *virtual, s *zklock.Session) (zklock.Lock, func()) {
			acquire(t, newRWMutex(t, v.connect(), "/job", named("stuck")).ReadLock())
			r := acquire(t, newRWMutex(t, v.connect(), "/job", named("second")).ReadLock())
			return newRWMutex(t, s, "/job").WriteLock(), func() { release(t, r) }
		},
		"a writer, behind a reader of its Session": func(t *testing.T, v *virtual, s *zklock.Session) (zklock.Lock, func()) {
			acquire(t, newRWMutex(t, v.connect(), "/job", named("stuck")).ReadLock())
			r := acquire(t, newRWMutex(t, s, "/job").ReadLock())
			return newRWMutex(t, s, "/job").WriteLock(), func() { release(t, r) }
		},
		"a reader, behind a writer of its Session that gives up": func(t *testing.T, v *virtual, s *zklock.Session) (zklock.Lock, func()) {
			acquire(t, newRWMutex(t, v.connect(), "/job", named("stuck")).WriteLock())
			w := v.queueUp(newRWMutex(t, s, "/job").WriteLock())
			return newRWMutex(t, s, "/job").ReadLock(), w.stop
		},
	} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, v *virtual) {
				var log warnings
				l, goes := ahead(t, v, v.connect(lines(&log, slog.LevelInfo)))
				w := v.queueUp(l)
				time.Sleep(time.Second)
				v.srv.ResetRequests()
				goes()
				time.Sleep(10 * time.Minute)
				w.stop()
				<-w.done
				var failed *zklock.Error
				require.ErrorAs(t, w.err, &failed)
				require.Equal(t, 2, failed.Position)
				require.Contains(t, failed.Holder, "stuck")
				_, there := v.srv.Stat(failed.Predecessor)
				require.True(t, there)
				said := log.of(line)
				require.NotEmpty(t, said)
				for _, l := range said {
					require.Contains(t, l, "position=2 holder=")
					require.Contains(t, l, "stuck")
				}
			})
		})
	}
}
