package zklock_test

// These tests read the log lines about locks that are granted, lost, and not granted.

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/zktest"
)

// lines receives the log lines of a Session from a level on, without the ZooKeeper client's lines.
func lines(w *warnings, level slog.Level) zklock.Option {
	return zklock.WithLogger(slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: level})))
}

// of returns the lines with a message, from "path" on.
func (w *warnings) of(message string) (attrs []string) {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, line := range w.lines {
		if _, rest, ok := strings.Cut(line, "msg=\""+message+"\" "); ok {
			attrs = append(attrs, strings.TrimSpace(rest))
		}
	}
	return attrs
}

func TestVirtual_Log_QueuedGrantedReleased(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		h := acquire(t, newMutex(t, v.connect(), "/job"))
		var log warnings
		s := v.connect(lines(&log, slog.LevelDebug))
		w := v.queueUp(newMutex(t, s, "/job"))
		mine := "/job/" + without(v.srv.Children("/job"), base(h.Node()))[0]
		require.Equal(t, []string{"path=/job node=" + mine + " position=2 predecessor=" + h.Node()}, log.of("zklock: queued"))
		time.Sleep(30 * time.Second)
		require.Empty(t, log.of("zklock: granted"))
		release(t, h)
		h = w.granted2(t, time.Second)
		says := fmt.Sprintf("path=/job node=%s token=%d owner=%s session=%#x", mine, h.Token(), h.Owner(), s.Stats().SessionID)
		again, err := newMutex(t, s, "/job").Acquire(reentering(h))
		require.NoError(t, err)
		release(t, again)
		require.Equal(t, []string{says + " waited=30s"}, log.of("zklock: granted"), "once for all handles")
		require.Empty(t, log.of("zklock: released"))
		release(t, h)
		require.Equal(t, []string{says}, log.of("zklock: released"))
		require.Empty(t, log.of(stillWaiting))
	})
}

// A wait of an hour is logged after a minute, with our position and the nearest predecessor, and
// again each time that it has lasted twice as long. That takes no request.
func TestVirtual_LongWait_IsLogged_AndSeldom(t *testing.T) {
	for _, second := range []bool{true, false} {
		inVirtualTime(t, func(t *testing.T, v *virtual) {
			h := acquire(t, newMutex(t, v.connect(), "/job", zklock.WithData([]byte("db1:4711"))))
			who, place, host, by := "holder", 2, "db1:4711", h.Node()
			if !second {
				v.queueUp(newMutex(t, v.connect(), "/job", zklock.WithData([]byte("db2:4712"))))
				who, place, host, by = "behind", 3, "db2:4712", "/job/"+lastOf(v.srv.Children("/job"))
			}
			st, _ := v.srv.Stat(by)
			time.Sleep(time.Second)
			var log warnings
			s := v.connect(lines(&log, slog.LevelInfo))
			w := v.queueUp(newMutex(t, s, "/job"))
			mine := "/job/" + lastOf(v.srv.Children("/job"))
			v.srv.ResetRequests()
			time.Sleep(time.Hour)
			var want []string
			for _, waited := range []string{"1m0s", "2m0s", "4m0s", "8m0s", "16m0s", "32m0s"} {
				want = append(want, fmt.Sprintf(`path=/job node=%s waited=%s position=%d %s="%s, session %#x, queued since %s"`,
					mine, waited, place, who, host, st.EphemeralOwner, time.UnixMilli(st.Ctime).Format(time.RFC3339)))
			}
			require.Equal(t, want, log.of(stillWaiting))
			require.Zero(t, v.srv.Requests().Of(s.Stats().SessionID, zktest.GetChildren, zktest.GetData))
			w.stop()
			<-w.done
			require.Equal(t, second, strings.Contains(w.err.Error(), "; held by db1:4711, session "), w.err)
			release(t, h)
		})
	}
}

// One waiter for a lock logs for all waiters behind it in the Session. A lock that the Session
// holds itself is reported, too.
func TestVirtual_LongWait_OfManyInOneSession_IsLoggedOnce(t *testing.T) {
	for _, itself := range []bool{false, true} {
		inVirtualTime(t, func(t *testing.T, v *virtual) {
			var log warnings
			s := v.connect(lines(&log, slog.LevelInfo))
			by := s
			if !itself {
				by = v.connect()
			}
			h := acquire(t, newMutex(t, by, "/job"))
			var ws []*waiting
			for range 20 {
				ws = append(ws, v.queueUp(newMutex(t, s, "/job")))
			}
			time.Sleep(90 * time.Second)
			said := log.of(stillWaiting)
			require.Len(t, said, 1)
			require.Contains(t, said[0], "position=2 ")
			if itself {
				require.Contains(t, said[0], `holder="another owner in this Session"`)
			} else {
				require.Contains(t, said[0], fmt.Sprintf("session %#x", by.Stats().SessionID))
			}
			for _, w := range ws {
				w.stop()
				<-w.done
			}
			release(t, h)
		})
	}
}

// The error of a wait directly behind the holder names the holder, from the read that set the
// watch: no further request is sent.
func TestVirtual_WaitEnds_NamesTheHolder_WithoutARequest(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		holder := v.connect()
		h := acquire(t, newMutex(t, holder, "/job"))
		host, err := os.Hostname()
		require.NoError(t, err)
		s := v.connect()
		m := newMutex(t, s, "/job")
		_, err = m.TryAcquire(within(t, soon))
		require.NotContains(t, err.Error(), "held by", "a try does not read it")
		v.srv.ResetRequests()
		_, err = m.Acquire(within(t, 10*time.Second))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		var e *zklock.Error
		require.ErrorAs(t, err, &e)
		says := regexp.QuoteMeta(fmt.Sprintf("%s:%d, session %#x, queued since ", host, os.Getpid(), holder.Stats().SessionID))
		require.Regexp(t, "^"+says+`[0-9T:Z+-]+$`, e.Holder)
		require.Contains(t, err.Error(), ", behind "+h.Node()+"; held by "+e.Holder)
		require.Equal(t, 2, v.srv.Requests().Of(s.Stats().SessionID, zktest.GetData), "the two watches")
		_, err = newMutex(t, holder, "/job").Acquire(within(t, 10*time.Second))
		require.ErrorContains(t, err, ", behind "+h.Node()+"; held by another owner in this Session")
		release(t, h)
	})
}

// Text that another client wrote into its node does not get into a log or an error unquoted.
func TestVirtual_WaitEnds_HolderWithControlCharacters_IsQuoted(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		h := acquire(t, newMutex(t, v.connect(), "/job", zklock.WithData([]byte("\x1b[2J\u202e\u0085"+strings.Repeat("x", 1000)))))
		_, err := newMutex(t, v.connect(), "/job").Acquire(within(t, time.Second))
		require.ErrorContains(t, err, `; held by "\x1b[2J\u202e\u0085xxx`)
		require.Less(t, len(err.Error()), 500)
		release(t, h)
	})
}

// A function that continues after the loss of its lock is logged with the hold's token, and rarely.
// A function that returns in time is not, nor one that outlives its Session.
func TestVirtual_WorkGoesOnAfterTheLoss_IsLogged(t *testing.T) {
	const line = "zklock: work still runs after its lock was lost"
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		var log warnings
		s := v.connect(lines(&log, slog.LevelWarn))
		m, e := newMutex(t, s, "/job"), newElection(t, s, "/leader", "ann")
		multi := newMulti(t, newMutex(t, s, "/a"), newMutex(t, s, "/b"))
		var want []string
		worksOn := func(before, d time.Duration) func(context.Context, *zklock.Hold) error {
			return func(ctx context.Context, h *zklock.Hold) error {
				time.Sleep(before) // the loss counts, and not the work before it
				require.NoError(t, v.srv.Delete(h.Node()))
				<-h.Lost()
				want = nil
				for _, n := range []string{"5s", "10s", "20s", "40s"} {
					want = append(want, fmt.Sprintf("path=%s node=%s token=%d owner=%v session=%#x for=%s", h.Path(), h.Node(), h.Token(), h.Owner(), s.Stats().SessionID, n))
				}
				time.Sleep(d)
				return errors.New("ends now")
			}
		}
		said := 0
		ends := func(what string, err error) {
			require.ErrorIs(t, err, zklock.ErrLost, what)
			time.Sleep(5 * time.Minute) // no line is logged when it has returned
			require.Equal(t, want, log.of(line)[said:], what)
			said += len(want)
		}
		ends("Do", m.Do(context.Background(), worksOn(5*time.Minute, time.Minute)))
		ends("TryDo", m.TryDo(context.Background(), worksOn(5*time.Minute, time.Minute)))
		ends("Multi.Do", multi.Do(context.Background(), func(ctx context.Context, h *zklock.MultiHold) error {
			require.NoError(t, v.srv.Delete(h.Holds()[0].Node()))
			<-h.Holds()[0].Lost()
			err := worksOn(time.Hour, 0)(ctx, h.Holds()[1])
			want = log.of(line)[said:] // of the first that was lost, from then on
			require.Len(t, want, 10)
			require.Contains(t, want[9], fmt.Sprintf("path=/a node=%s token=%d", h.Holds()[0].Node(), h.Holds()[0].Token()))
			require.Contains(t, want[9], "for=42m40s")
			return err
		}))
		ctx, stop := context.WithCancel(context.Background())
		ends("Campaign", errors.Join(zklock.ErrLost, e.Campaign(ctx, func(ctx context.Context, h *zklock.Hold) error {
			defer stop()
			return worksOn(5*time.Minute, time.Minute)(ctx, h)
		})))

		require.ErrorIs(t, m.Do(context.Background(), worksOn(5*time.Minute, 4*time.Second)), zklock.ErrLost)
		require.ErrorIs(t, m.Do(context.Background(), func(_ context.Context, h *zklock.Hold) error {
			require.NoError(t, h.Release(context.Background()))
			time.Sleep(5 * time.Minute) // without a lock: it has released it
			return nil
		}), zklock.ErrNotHeld)
		require.Error(t, m.Do(context.Background(), func(context.Context, *zklock.Hold) error {
			require.NoError(t, s.Close())
			time.Sleep(5 * time.Minute)
			return nil
		}))
		require.Len(t, log.of(line), said)
	})
}

// Readers of the same Session that were waiting when the writer behind them listed hold now: they
// no longer log, so the writer does.
func TestVirtual_LongWait_BehindReadersOfTheSession_IsLogged(t *testing.T) {
	for _, n := range []int{1, 15, 20} { // it watches the first writer, too, or not
		inVirtualTime(t, func(t *testing.T, v *virtual) {
			first := acquire(t, newRWMutex(t, v.connect(), "/job").WriteLock())
			var log warnings
			s := v.connect(lines(&log, slog.LevelInfo))
			var readers []*waiting
			for range n {
				readers = append(readers, v.queueUp(newRWMutex(t, s, "/job").ReadLock()))
			}
			w := v.queueUp(newRWMutex(t, s, "/job").WriteLock())
			release(t, first)
			time.Sleep(90 * time.Second)
			said := log.of(stillWaiting)
			require.Len(t, said, 1, "%d readers", n)
			require.Contains(t, said[0], "another owner in this Session")
			for _, r := range readers {
				release(t, r.granted(t))
			}
			release(t, w.granted2(t, time.Minute))
		})
	}
}
