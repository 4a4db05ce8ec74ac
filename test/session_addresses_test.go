//go:build linux || darwin

package zklock_test

// These tests attack the end of a ZooKeeper session where one name has several addresses, and the
// first one leads to a server that accepts connections and does not serve.

import (
	"context"
	"io"
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/internal/hook"
)

// notServing are servers that accept connections: one of them hangs, another one is starting.
var notServing = map[string]func(c net.Conn){
	"hangs":  func(c net.Conn) { _, _ = io.Copy(io.Discard, c) },
	"starts": func(c net.Conn) { _, _ = c.Read(make([]byte, 4096)); _ = c.Close() },
}

// inTwoAddresses runs f, some times with each of these servers. The name zk has two addresses: of
// the server that does not serve, and of v's server.
func inTwoAddresses(t *testing.T, f func(t *testing.T, v *virtual, way *line, zk hook.Session)) {
	for name, serve := range notServing {
		t.Run(name, func(t *testing.T) {
			for range 10 { // the order is random
				inVirtualTime(t, func(t *testing.T, v *virtual) {
					other, err := v.net.Listen("")
					require.NoError(t, err)
					defer other.Close()
					go func() {
						for c, err := other.Accept(); err == nil; c, err = other.Accept() {
							go serve(c)
						}
					}()
					way := &line{dial: v.net.Dial}
					at := map[string]string{"10.0.0.1:2181": other.Addr().String(), "10.0.0.2:2181": v.srv.Addr()}
					f(t, v, way, hook.Session{
						Lookup: func(context.Context, string) ([]string, error) { return []string{"10.0.0.1", "10.0.0.2"}, nil },
						Connect: untilDeadline(func(network, addr string, limit time.Duration) (net.Conn, error) {
							return way.Dial(network, at[addr], limit)
						}),
					})
				})
			}
		})
	}
}

// R140: Close of a Session that is not attached ends its ZooKeeper session.
func TestVirtual_SeveralAddresses_CloseWhileDetached_EndsTheSession(t *testing.T) {
	inTwoAddresses(t, func(t *testing.T, v *virtual, _ *line, zk hook.Session) {
		s := hooked(t, zk, "zk", zklock.WithSessionTimeout(20*time.Second))
		acquire(t, newMutex(t, s, "/job"))
		id := s.Stats().SessionID
		require.True(t, v.srv.DropConnection(id))
		for s.Stats().Server != "" {
			time.Sleep(time.Millisecond)
		}
		require.NoError(t, s.Close())
		require.False(t, v.lives(id))
	})
}

// R140: the session in a session file is ended at the start, and the first failure is logged.
func TestVirtual_SeveralAddresses_SessionInTheFile_EndsAtOnce(t *testing.T) {
	failures := 0
	inTwoAddresses(t, func(t *testing.T, v *virtual, way *line, zk hook.Session) {
		path := sessionFile(t)
		s := hooked(t, zk, "zk", zklock.WithSessionFile(path), zklock.WithSessionTimeout(20*time.Second))
		acquire(t, newMutex(t, s, "/job"))
		id := s.Stats().SessionID
		way.silent.Store(true)
		require.NoError(t, s.Close())
		require.True(t, v.lives(id))
		way.silent.Store(false)

		var log warnings
		began := time.Now()
		connected := make(chan *zklock.Session, 1)
		go func() {
			s, err := zklock.Connect(hook.With(context.Background(), zk), "zk", zklock.WithSessionFile(path), lines(&log, slog.LevelInfo))
			assert.NoError(t, err)
			connected <- s
		}()
		for v.lives(id) {
			time.Sleep(10 * time.Millisecond)
		}
		require.LessOrEqual(t, time.Since(began), 300*time.Millisecond)
		require.NoError(t, (<-connected).Close())
		log.once(t, endedLeft, sessionIs(id))
		said := log.of("zklock: a server did not end the session of a crashed process; zklock asks the others")
		require.LessOrEqual(t, len(said), 1)
		failures += len(said)
	})
	require.Positive(t, failures, "or each run began with the server that serves")
}
