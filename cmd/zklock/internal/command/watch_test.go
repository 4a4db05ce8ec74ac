//go:build unix

package command

// These tests attack ls --watch, in virtual time: it prints each queue once for each change, at a
// bounded cost, and continues after an outage.

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/zktest"
)

// watching is a server in a bubble of virtual time, and an ls --watch.
type watching struct {
	t        *testing.T
	net      *zktest.Network
	srv      *zktest.Server
	s        *zklock.Session // of ls
	out, err buffer
	ended    chan error
	stop     context.CancelFunc
}

func inWatch(t *testing.T, f func(t *testing.T, w *watching)) {
	synctest.Test(t, func(t *testing.T) {
		w := &watching{t: t, net: zktest.NewNetwork(), ended: make(chan error, 1)}
		w.srv = zktest.Start(t, zktest.WithNetwork(w.net))
		f(t, w)
	})
}

func (w *watching) connect() *zklock.Session {
	w.t.Helper()
	s, err := zklock.Connect(w.t.Context(), w.srv.Addr(), zklock.WithDialer(w.net.Dial), zklock.WithLogger(slog.New(slog.DiscardHandler)))
	require.NoError(w.t, err)
	w.t.Cleanup(func() { _ = s.Close() })
	return s
}

// watch starts to watch, and returns when the queues were printed.
func (w *watching) watch(change func(*listing), paths ...string) {
	w.t.Helper()
	w.s = w.connect()
	l := &listing{printer: printer{out: printable{&w.out}}, watch: true}
	l.s, l.stderr, l.servers, l.connectTimeout = w.s, &w.err, w.srv.Addr(), 10*time.Second
	if change != nil {
		change(l)
	}
	var ctx context.Context
	ctx, w.stop = context.WithCancel(context.Background())
	go func() { w.ended <- l.watchUntil(ctx, paths) }()
	w.t.Cleanup(func() { w.stop(); <-w.ended })
	synctest.Wait()
}

// take returns what was printed since the last call, after the next read.
func (w *watching) take() (out, err string) {
	time.Sleep(watchInterval)
	synctest.Wait()
	return w.out.take(), w.err.take()
}

// shows compares the tables that were printed since the last call: their paths, states and names.
func (w *watching) shows(want ...string) {
	w.t.Helper()
	var got []string
	out, _ := w.take()
	for _, line := range strings.Split(strings.TrimSuffix(out, "\n"), "\n") {
		switch words := strings.Fields(line); {
		case len(words) == 2:
			got = append(got, words[1])
		case len(words) > 2 && words[0] != "STATE":
			got[len(got)-1] += " " + words[0] + ":" + words[3]
		}
	}
	require.Equal(w.t, want, got)
}

// acquire starts an Acquire under a name. When the call can get no further, it returns functions
// that release the lock, and end the call.
func (w *watching) acquire(l zklock.Lock) (release, stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	var hold *zklock.Hold
	go func() { defer close(done); hold, _ = l.Acquire(ctx) }()
	w.t.Cleanup(func() { cancel(); <-done })
	synctest.Wait()
	return func() {
		<-done
		require.NoError(w.t, hold.Release(context.Background()))
	}, cancel
}

func (w *watching) mutex(name, path string, opts ...zklock.MutexOption) zklock.Lock {
	w.t.Helper()
	m, err := zklock.NewMutex(w.connect(), path, append(opts, zklock.WithData([]byte(name)))...)
	require.NoError(w.t, err)
	return m
}

func TestWatch_PrintsTheQueueAfterAChange(t *testing.T) {
	inWatch(t, func(t *testing.T, w *watching) {
		release, _ := w.acquire(w.mutex("a", "/locks/a"))
		w.watch(nil, "/locks/a", "/locks/b", "/locks/a")
		require.Contains(t, w.err.String(), "zklock: /locks/b: there is no node /locks/b")
		w.shows("/locks/a holds:a", "/locks/b")
		_, stop := w.acquire(w.mutex("b", "/locks/a"))
		w.shows("/locks/a holds:a waits:b")
		stop()
		w.shows("/locks/a holds:a")
		w.acquire(w.mutex("c", "/locks/a"))
		release()
		w.shows("/locks/a holds:c")
		release, _ = w.acquire(w.mutex("d", "/locks/b"))
		w.shows("/locks/b holds:d")
		release()
		w.shows("/locks/b")
		for _, path := range []string{"/locks/b", "/locks"} {
			_ = w.srv.Delete(path)
		}
		sem, err := zklock.NewSemaphore(w.connect(), "/locks/b", 3, zklock.WithData([]byte("e")))
		require.NoError(t, err)
		w.acquire(sem.Permits(2))
		w.shows("/locks/b holds:e holds:e")
		time.Sleep(5 * time.Minute)
		w.shows()
		w.stop()
		require.NoError(t, <-w.ended)
		w.ended <- nil
	})
}

// A terminal shows all queues, in place of the ones before.
func TestWatch_Terminal_AllAreRedrawn(t *testing.T) {
	inWatch(t, func(t *testing.T, w *watching) {
		w.acquire(w.mutex("a", "/a"))
		w.acquire(w.mutex("b", "/b"))
		w.watch(func(l *listing) { l.screen = &w.out }, "/a", "/b")
		out, _ := w.take()
		require.True(t, strings.HasPrefix(out, clearScreen), "%q", out)
		w.acquire(w.mutex("c", "/b"))
		out, _ = w.take()
		require.Regexp(t, `(?s)^\x1b\[H\x1b\[J\S+ /a\n.* a .*\S+ /b\n.* b .* c `, out)
		require.Equal(t, 1, strings.Count(out, clearScreen))
	})
}

// The first node in the queue comes to hold when the lock-delay of a dead holder is over, without a
// change on the servers.
func TestWatch_LockDelay_TheNextHolds(t *testing.T) {
	inWatch(t, func(t *testing.T, w *watching) {
		const d = time.Minute
		w.acquire(w.mutex("a", "/job", zklock.WithLockDelay(d)))
		w.watch(nil, "/job")
		w.shows("/job holds:a")
		require.NoError(t, w.srv.Delete("/job/"+w.srv.Children("/job")[0]))
		w.shows("/job")
		w.acquire(w.mutex("b", "/job")) // without a lock-delay: it holds, and leaves the record
		w.acquire(w.mutex("c", "/job", zklock.WithLockDelay(d)))
		w.shows("/job waits:b waits:c")
		time.Sleep(6 * time.Second)
		w.shows("/job holds:b waits:c")
	})
}

// With 1,000 waiters, a read without a change costs four small requests: the figure of
// docs/command.md.
func TestWatch_ThousandWaiters_WhatASecondCosts(t *testing.T) {
	inWatch(t, func(t *testing.T, w *watching) {
		_, err := w.srv.Create("/job", nil, 0)
		require.NoError(t, err)
		create := func() {
			_, err := w.srv.Create("/job/lock-", []byte("db1:4711"), 2)
			require.NoError(t, err)
		}
		for range 1001 {
			create()
		}
		w.watch(nil, "/job")
		_, _ = w.take()
		w.srv.ResetRequests()
		time.Sleep(100 * watchInterval)
		synctest.Wait()
		counts := w.srv.Requests()
		require.LessOrEqual(t, counts.Of(w.s.Stats().SessionID, zktest.Exists), 4*100+20, "and the Session's heartbeat")
		require.Zero(t, counts.Of(w.s.Stats().SessionID, zktest.GetChildren, zktest.GetData))
		w.srv.ResetRequests()
		create()
		_, _ = w.take()
		require.GreaterOrEqual(t, w.srv.Requests().Of(w.s.Stats().SessionID, zktest.GetData), 1002, "each node is read")
	})
}

// Whether the session lasted or not, a queue is printed when a server can be reached again.
func TestWatch_ConnectionLost_GoesOn(t *testing.T) {
	for _, outage := range []time.Duration{15 * time.Second, 3 * time.Minute} {
		inWatch(t, func(t *testing.T, w *watching) {
			_, err := w.srv.Create("/job", nil, 0)
			require.NoError(t, err)
			_, err = w.srv.Create("/job/lock-", []byte("a"), 2)
			require.NoError(t, err)
			w.watch(nil, "/job")
			w.shows("/job holds:a")
			was := w.s.Stats().SessionID
			refused := w.srv.Inject(zktest.RefuseConnections())
			require.True(t, w.srv.DropConnection(was))
			time.Sleep(outage)
			_, notes := w.take()
			require.Contains(t, notes, "zklock: /job: no server after 10s")
			require.Contains(t, notes, "; the queue may have changed\n")
			_, err = w.srv.Create("/job/lock-", []byte("b"), 2)
			require.NoError(t, err)
			refused.Remove()
			time.Sleep(time.Minute)
			w.shows("/job holds:a waits:b")
			require.Equal(t, outage > time.Minute, was != w.s.Stats().SessionID)
		})
	}
}

// A reader that does not read prevents no signal from ending the command.
func TestWatch_ReaderIsSlow_Ends(t *testing.T) {
	inWatch(t, func(t *testing.T, w *watching) {
		read, out := io.Pipe()
		defer read.Close()
		w.watch(func(l *listing) { l.out = out }, "/a")
		w.stop()
		select {
		case err := <-w.ended:
			require.NoError(t, err)
			w.ended <- nil
		case <-time.After(2 * watchEndsWithin):
			t.Error("it waits for the reader")
		}
	})
}

// A queue that may not be read ends the command, and so does a limit that ls rejects.
func TestWatch_Refused_Ends(t *testing.T) {
	inWatch(t, func(t *testing.T, w *watching) {
		w.srv.Inject(zktest.Before(zktest.GetChildren).Path("/b").Fail(zktest.NoAuth))
		w.watch(nil, "/a", "/b")
		err := <-w.ended
		require.ErrorContains(t, err, "no READ permission")
		require.Equal(t, exitRefused, codeOf(err))
		w.ended <- nil
	})
	inWatch(t, func(t *testing.T, w *watching) {
		sem, err := zklock.NewSemaphore(w.connect(), "/sem", 3)
		require.NoError(t, err)
		w.acquire(sem.Permits(1))
		w.watch(func(l *listing) { l.limit = "/nope" }, "/sem")
		err = <-w.ended
		require.ErrorContains(t, err, "--semaphore-limit /nope")
		require.Equal(t, exitUsage, codeOf(err))
		w.ended <- nil
	})
}

func TestWatch_JSON_AnObjectALine(t *testing.T) {
	inWatch(t, func(t *testing.T, w *watching) {
		release, _ := w.acquire(w.mutex("db1:1\u009b2J", "/a"))
		w.watch(func(l *listing) { l.asJSON = true }, "/a", "/b")
		first, _ := w.take()
		release()
		second, _ := w.take()
		var got []string
		for line := range strings.Lines(first + second) {
			require.NotContains(t, line, "\u009b")
			var read struct {
				Time  time.Time
				Path  string
				Queue []entry
			}
			require.NoError(t, json.Unmarshal([]byte(line), &read))
			require.NotZero(t, read.Time)
			got = append(got, fmt.Sprint(read.Path, len(read.Queue)))
		}
		require.Equal(t, []string{"/a1", "/b0", "/a0"}, got)
	})
}
