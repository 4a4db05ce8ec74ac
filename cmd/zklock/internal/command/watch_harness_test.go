package command

// What the tests of ls --watch share: a server and its clients in virtual time, and what was printed.

import (
	"bytes"
	"context"
	"log/slog"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/zktest"
)

// lockedBuffer takes what several goroutines write.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

// take returns the lines since the last call.
func (b *lockedBuffer) take() (lines []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	defer b.b.Reset()
	if text := strings.TrimSuffix(b.b.String(), "\n"); text != "" {
		lines = strings.Split(text, "\n")
	}
	return lines
}

// watching is a server in a bubble of virtual time, and an ls --watch.
type watching struct {
	t        *testing.T
	net      *zktest.Network
	srv      *zktest.Server
	s        *zklock.Session // of ls
	out, err lockedBuffer
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

// watch starts to watch, and returns when the queues were printed as they stand.
func (w *watching) watch(change func(*listing), paths ...string) {
	w.t.Helper()
	w.s = w.connect()
	l := &listing{lister: lister{s: w.s, stderr: &w.err}, printer: printer{out: printable{&w.out}}, watch: true}
	l.servers, l.connectTimeout = w.srv.Addr(), time.Minute
	if change != nil {
		change(l)
	}
	var ctx context.Context
	ctx, w.stop = context.WithCancel(context.Background())
	go func() { w.ended <- l.watchAll(ctx, paths) }()
	w.t.Cleanup(func() { w.stop(); <-w.ended })
	synctest.Wait()
}

var (
	clockTime = regexp.MustCompile(`^\d\d:\d\d:\d\d `)
	nodeNames = regexp.MustCompile(` \([^()]*\)$`)
)

// says compares what was printed since the last call, without the time and the node.
func (w *watching) says(lines ...string) {
	w.t.Helper()
	synctest.Wait()
	var got []string
	for _, line := range w.out.take() {
		require.Regexp(w.t, clockTime, line)
		require.Regexp(w.t, nodeNames, line)
		got = append(got, nodeNames.ReplaceAllString(clockTime.ReplaceAllString(line, ""), ""))
	}
	require.Equal(w.t, lines, got)
}

// taker takes a lock under a name.
type taker struct {
	t    *testing.T
	hold *zklock.Hold
	err  error
	stop context.CancelFunc
	done chan struct{}
}

// acquire starts an Acquire and returns when it has come as far as it can.
func (w *watching) acquire(l zklock.Lock) *taker {
	ctx, cancel := context.WithCancel(context.Background())
	c := &taker{t: w.t, stop: cancel, done: make(chan struct{})}
	go func() { defer close(c.done); c.hold, c.err = l.Acquire(ctx) }()
	w.t.Cleanup(func() { cancel(); <-c.done })
	synctest.Wait()
	return c
}

func (c *taker) release() {
	c.t.Helper()
	<-c.done
	require.NoError(c.t, c.err)
	require.NoError(c.t, c.hold.Release(context.Background()))
}

func named(name string) zklock.LockOption { return zklock.WithData([]byte(name)) }

func (w *watching) mutex(name, path string, opts ...zklock.MutexOption) zklock.Lock {
	w.t.Helper()
	m, err := zklock.NewMutex(w.connect(), path, append(opts, named(name))...)
	require.NoError(w.t, err)
	return m
}
