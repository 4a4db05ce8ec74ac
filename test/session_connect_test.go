package zklock_test

// These tests attack Connect and Close.

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/internal/hook"
	"github.com/zklock/zklock/internal/testca"
	jute "github.com/zklock/zklock/internal/wire"
	"github.com/zklock/zklock/internal/zkserver"
	"github.com/zklock/zklock/zktest"
)

// Bad input gets an error with the server and the reason, within ctx.
func TestConnect_ReportsWhatWasTried(t *testing.T) {
	t.Parallel()
	brief := func() context.Context {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second) // one try fits in, on a busy machine too
		t.Cleanup(cancel)
		return ctx
	}
	nobody, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	refusing := nobody.Addr().String()
	require.NoError(t, nobody.Close())

	_, err = zklock.Connect(brief(), refusing, quiet(t))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, refusing)
	require.ErrorContains(t, err, "refused")

	_, err = zklock.Connect(brief(), "no-such-host.invalid:2181", quiet(t))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, "no-such-host.invalid")

	for _, s := range []string{"", ",", "host:notaport", "host:0", "/chroot", "host/a//b", "[::1"} {
		_, err = zklock.Connect(brief(), s, quiet(t))
		require.Error(t, err, s)
		require.NotErrorIs(t, err, context.DeadlineExceeded, s)
	}
}

// A lease mode without a margin in the session timeout: the error contains the remedy. R38: the
// granted timeout counts.
func TestConnect_NoRoom(t *testing.T) {
	t.Parallel()
	srv := target(t)
	_, err := zklock.Connect(within(t, soon), srv, zklock.WithSessionTimeout(7*time.Second), quiet(t))
	require.ErrorIs(t, err, zklock.ErrSessionTimeoutTooShort)
	require.ErrorContains(t, err, "7s")
	require.ErrorContains(t, err, "at least")

	capped := startOwn(t, serverConfig{shortest: time.Second, longest: 5 * time.Second}).Addr()
	_, err = zklock.Connect(within(t, soon), capped, zklock.WithSessionTimeout(time.Minute), quiet(t))
	require.ErrorIs(t, err, zklock.ErrSessionTimeoutTooShort)
	require.ErrorContains(t, err, "the servers, by their minSessionTimeout and maxSessionTimeout, did not grant the requested 1m0s: session timeout too short for the lease: 5s")
	require.ErrorContains(t, err, "SingleServerLease()")
}

// R38, R39: the negotiated timeout counts, and very long ones work.
func TestConnect_TimeoutIsNegotiated(t *testing.T) {
	srv := startOwn(t, serverConfig{}).Addr()
	s := connect(t, srv, zklock.WithSessionTimeout(20*24*time.Hour))
	require.Equal(t, 60*time.Second, s.Stats().SessionTimeout)
	h := acquire(t, newMutex(t, s, lockPath(t, srv)))
	require.Less(t, time.Until(h.Deadline()), 60*time.Second)
	release(t, h)
	_, err := zklock.Connect(within(t, soon), srv, zklock.WithSessionTimeout(30*24*time.Hour))
	require.ErrorContains(t, err, "WithSessionTimeout: 720h0m0s")
}

// F17, R48: a server that accepts the connection and never responds is abandoned after the cap; the
// next one is tried.
func TestConnect_SilentServer_NextIsTried(t *testing.T) {
	t.Parallel()
	srv := target(t)
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var conns sync.WaitGroup
	conns.Go(func() {
		for {
			c, err := silent.Accept()
			if err != nil {
				return
			}
			conns.Go(func() { _, _ = io.Copy(io.Discard, c); _ = c.Close() })
		}
	})
	defer conns.Wait()
	defer silent.Close()

	s := connect(t, silent.Addr().String()+","+srv)
	release(t, acquire(t, newMutex(t, s, lockPath(t, srv))))

	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second) // one try fits in, on a busy machine too
	defer cancel()
	_, err = zklock.Connect(ctx, silent.Addr().String(), zklock.WithSessionTimeout(8*time.Second), quiet(t))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, "did not answer the handshake")
}

// F32, R45, R46: Close ends waits and holds with ErrClosed, leaves no goroutine, and deletes its
// nodes.
func TestClose_EndsEverything(t *testing.T) {
	srv := target(t)
	a, p := admin(t, srv), lockPath(t, srv)
	require.Empty(t, children(t, a, p)) // the other client's goroutines exist from here on
	before := goleak.IgnoreCurrent()
	s := connect(t, srv)
	m := newMutex(t, s, p)
	h := acquire(t, m)
	w := queueUp(t, a, m, p)
	done := acquire(t, newMutex(t, s, p+"/other"))
	release(t, done)
	changes := s.Changes(context.Background())
	require.NoError(t, s.Close())
	require.NoError(t, s.Close())
	require.ErrorIs(t, done.Err(), zklock.ErrNotHeld, "what was released before is not lost")
	select {
	case <-done.Lost():
		t.Fatal("what was released before is not lost")
	default:
	}
	_, err := w.get(t)
	require.ErrorIs(t, err, zklock.ErrClosed)
	require.ErrorIs(t, h.Context().Err(), context.Canceled)
	require.ErrorIs(t, context.Cause(h.Context()), zklock.ErrClosed)
	require.ErrorIs(t, h.Err(), zklock.ErrClosed)
	require.ErrorIs(t, h.Release(within(t, soon)), zklock.ErrClosed)
	_, err = m.Acquire(within(t, soon))
	require.ErrorIs(t, err, zklock.ErrClosed)
	_, err = m.TryAcquire(within(t, soon))
	require.ErrorIs(t, err, zklock.ErrClosed)
	_, err = m.Participants(within(t, soon))
	require.ErrorIs(t, err, zklock.ErrClosed)
	require.Equal(t, zklock.StateClosed, s.Stats().State)
	var last zklock.Change
	for c := range changes {
		last = c
	}
	require.Equal(t, zklock.StateClosed, last.State)
	require.Equal(t, []string{"other"}, children(t, a, p))
	goleak.VerifyNone(t, before)
}

// serve hands each connection to f, and closes it afterwards, until the test is over.
func serve(t *testing.T, l net.Listener, f func(c net.Conn)) {
	var work sync.WaitGroup
	work.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			work.Go(func() {
				defer c.Close()
				f(c)
			})
		}
	})
	t.Cleanup(func() { _ = l.Close(); work.Wait() })
}

// TLS: the certificate is verified against the host name of the connection string.
func TestConnect_TLS(t *testing.T) {
	t.Parallel()
	srv := target(t)
	ca := testca.New(t, "localhost")
	cert, pool := ca.Own().Pair, ca.Pool()
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{cert}})
	require.NoError(t, err)
	serve(t, l, func(c net.Conn) {
		up, err := net.Dial("tcp", srv)
		if err != nil {
			return
		}
		defer up.Close()
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _ = io.Copy(up, c)
			_ = up.Close()
		}()
		_, _ = io.Copy(c, up)
		_ = c.Close()
		<-done
	})
	_, port, err := net.SplitHostPort(l.Addr().String())
	require.NoError(t, err)

	s := connect(t, "localhost:"+port, zklock.WithTLS(&tls.Config{RootCAs: pool}))
	release(t, acquire(t, newMutex(t, s, lockPath(t, srv))))
	require.NoError(t, s.Close())

	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second) // one try fits in, on a busy machine too
	defer cancel()
	_, err = zklock.Connect(ctx, "127.0.0.1:"+port, zklock.WithTLS(&tls.Config{RootCAs: pool}), quiet(t))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, "127.0.0.1")
	require.ErrorContains(t, err, "TLS")
}

// A server that uses another protocol: the error of Connect names it, and no memory is allocated
// for a frame whose length is the beginning of the other protocol.
func TestConnect_OtherProtocol_ReportsIt(t *testing.T) {
	ca := testca.New(t, "localhost")
	cert, pool := ca.Own().Pair, ca.Pool()
	talker := func(l net.Listener, err error, says string) string {
		require.NoError(t, err)
		serve(t, l, func(c net.Conn) {
			if _, err := c.Read(make([]byte, 512)); err != nil || says == "" {
				return
			}
			_, _ = io.WriteString(c, says)
			_, _ = io.Copy(io.Discard, c)
		})
		_, port, err := net.SplitHostPort(l.Addr().String())
		require.NoError(t, err)
		return "localhost:" + port
	}
	plain := func(says string) string {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		return talker(l, err, says)
	}
	withTLS := func(says string, c *tls.Config) string {
		c.Certificates = []tls.Certificate{cert}
		l, err := tls.Listen("tcp", "127.0.0.1:0", c)
		return talker(l, err, says)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	type outcome struct {
		name, says string
		err        error
	}
	outcomes := make(chan outcome)
	cases := map[string]struct {
		servers string
		tls     bool
		says    string
	}{
		"an alert for an answer":    {plain("\x15\x03\x03\x00\x02\x02\x46"), false, "the server speaks TLS, and this client was not told to"},
		"TLS that just closes":      {withTLS("", &tls.Config{}), false, "or expects TLS"},
		"HTTP":                      {plain("HTTP/1.1 400 Bad Request\r\n\r\n"), false, `not a ZooKeeper server: its answer begins with "HTTP"`},
		"HTTP over TLS":             {withTLS("HTTP/1.1 400 Bad Request\r\n\r\n", &tls.Config{}), true, `not a ZooKeeper server: its answer begins with "HTTP"`},
		"TLS to a ZooKeeper":        {target(t), true, "does it expect connections without TLS"},
		"TLS to something else":     {plain("SSH-2.0-OpenSSH_9.2\r\n"), true, `TLS: the server does not speak it: its answer begins with "SSH-2"`},
		"TLS without a certificate": {withTLS("", &tls.Config{ClientAuth: tls.RequireAnyClientCert}), true, "certificate required"},
		"a URL":                     {"http://localhost:2181", false, `"http://localhost:2181" is a URL: give host:port,host:port/chroot without http://`},
	}
	for name, tt := range cases {
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
			defer cancel()
			opts := []zklock.Option{quiet(t)}
			if tt.tls {
				opts = append(opts, zklock.WithTLS(&tls.Config{RootCAs: pool}))
			}
			_, err := zklock.Connect(ctx, tt.servers, opts...)
			outcomes <- outcome{name, tt.says, err}
		}()
	}
	for range cases {
		o := <-outcomes
		assert.ErrorContains(t, o.err, o.says, o.name)
	}
	runtime.ReadMemStats(&after)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(100<<20), "the lengths that other protocols seem to say are 350 MB and more")
}

// I6: Connect returns when its context ends and at most half a second later, whatever the servers
// do meanwhile.
func TestVirtual_Connect_ReturnsWithItsContext(t *testing.T) {
	for name, dial := range map[string]zk.Dialer{
		"dark": func(_, _ string, d time.Duration) (net.Conn, error) {
			time.Sleep(min(d, 300*time.Millisecond))
			return nil, os.ErrDeadlineExceeded
		},
		"refusing": func(string, string, time.Duration) (net.Conn, error) { return nil, syscall.ECONNREFUSED },
		"silent": func() zk.Dialer {
			n := zktest.NewNetwork()
			return func(network, addr string, d time.Duration) (net.Conn, error) {
				l, err := n.Listen(addr)
				if err == nil {
					defer l.Close()
				}
				return n.Dial(network, addr, d)
			}
		}(),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				for i := range 20 {
					ctx, cancel := context.WithTimeout(context.Background(), time.Second+time.Duration(i)*97*time.Millisecond)
					_, err := zklock.Connect(ctx, "10.0.0.1,10.0.0.2", zklock.WithDialer(dial), quiet(t))
					end, _ := ctx.Deadline()
					require.ErrorIs(t, err, context.DeadlineExceeded)
					require.LessOrEqual(t, time.Since(end), 500*time.Millisecond, "I6")
					cancel()
				}
				time.Sleep(10 * time.Second) // the rest ends by itself, or the bubble fails
			})
		})
	}
}

// Connect waits for servers that are away: it logs that once after some seconds, then rarely, with
// the results of its tries.
func TestVirtual_Connect_NoServer_IsSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log syncBuffer
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
		defer cancel()
		var said []time.Duration
		start := time.Now()
		log.onLine = func(line string) {
			if strings.Contains(line, "no server has accepted the session") {
				require.Contains(t, line, "10.0.0.1:2181")
				require.Contains(t, line, "connection refused")
				said = append(said, time.Since(start).Round(time.Second))
			}
		}
		_, err := zklock.Connect(ctx, "10.0.0.1", zklock.WithLogger(slog.New(slog.NewTextHandler(&log, nil))),
			zklock.WithDialer(func(string, string, time.Duration) (net.Conn, error) { return nil, syscall.ECONNREFUSED }))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		time.Sleep(10 * time.Second) // the Close that the Connect left behind ends
		log.mu.Lock()
		defer log.mu.Unlock()
		require.Equal(t, []time.Duration{3 * time.Second, 33 * time.Second, 132 * time.Second}, said)
	})
}

// A server accepts the session and ends the connection, again and again. While the client pauses,
// no attempt has a result: the line that no server has accepted the session says so.
func TestVirtual_Connect_ServerEndsEachConnection_LineReportsThatNoneWasTried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := zktest.NewNetwork()
		n.SetLatency(time.Millisecond)
		l, err := n.Listen("10.0.0.1:2181")
		require.NoError(t, err)
		go func() {
			for c, err := l.Accept(); err == nil; c, err = l.Accept() {
				_, _ = c.Read(make([]byte, 1024))
				_, _ = c.Write(jute.Frame(jute.ConnectResponse{SessionID: 1, Timeout: 30000, Password: make([]byte, 16)}))
				time.Sleep(5 * time.Millisecond)
				_ = c.Close()
			}
		}()
		var log syncBuffer
		var said []string
		log.onLine = func(line string) {
			if strings.Contains(line, "no server has accepted the session") {
				said = append(said, line)
			}
		}
		s, err := zklock.Connect(t.Context(), l.Addr().String(), zklock.WithDialer(n.Dial), zklock.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
		require.NoError(t, err)
		time.Sleep(2 * time.Minute)
		_ = s.Close()
		require.NoError(t, l.Close())
		time.Sleep(time.Minute)
		log.mu.Lock()
		defer log.mu.Unlock()
		require.NotEmpty(t, said)
		require.Contains(t, said[0], `tried="none since the last connection ended"`)
	})
}

// R50: a server responds "session expired" to a client without a session, as one does that is too
// slow to create a session. It is not asked again and again, and Connect names the cause.
func TestVirtual_Connect_ExpiredWithoutASession_Pauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := zktest.NewNetwork()
		n.SetLatency(time.Millisecond) // or a client that does not pause stops the time
		l, err := n.Listen("")
		require.NoError(t, err)
		var conns atomic.Int32
		go func() {
			for c, err := l.Accept(); err == nil; c, err = l.Accept() {
				conns.Add(1)
				_, _ = c.Read(make([]byte, 1024))
				_, _ = c.Write(jute.Frame(jute.ConnectResponse{Password: make([]byte, 16)}))
			}
		}()
		defer l.Close()
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		_, err = zklock.Connect(ctx, l.Addr().String(), zklock.WithDialer(n.Dial), quiet(t))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, l.Addr().String()+` (connected, but the server answers "session expired"`)
		require.LessOrEqual(t, conns.Load(), int32(4))
		time.Sleep(10 * time.Second) // the Close that the Connect left behind ends
	})
}

// F46: the name server responds after three seconds, one name has no address, and one never gets a
// response. The Session connects through the remaining one.
func TestVirtual_Connect_SlowNameServer(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		host, port, err := net.SplitHostPort(v.srv.Addr())
		require.NoError(t, err)
		silent := make(chan struct{})
		lookup := func(ctx context.Context, name string) ([]string, error) {
			var answer <-chan time.Time // none for silent.test
			switch name {
			case "nowhere.test":
				return nil, errors.New("no such host")
			case "silent.test":
				close(silent) // asked once: a name that waits for its response is not asked again
			case "later.test": // is no use before silent.test has been tried
				select {
				case <-silent:
				case <-ctx.Done():
				}
				fallthrough
			default:
				answer = time.After(3 * time.Second)
			}
			select {
			case <-answer:
				return []string{host}, nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		for timeout, names := range map[time.Duration]string{30 * time.Second: "nowhere.test:%s,slow.test:%[1]s", 12 * time.Second: "silent.test:%s,later.test:%[1]s"} {
			ctx := hook.With(within(t, 2*soon), hook.Session{Lookup: lookup, Connect: untilDeadline(v.net.Dial)})
			s, err := zklock.Connect(ctx, fmt.Sprintf(names, port), zklock.WithSessionTimeout(timeout), quiet(t))
			require.NoError(t, err)
			require.NoError(t, s.Close())
		}
	})
}

// R54: Connect works when the server comes up later.
func TestConnect_ServerComesLater(t *testing.T) {
	server := startOwn(t, serverConfig{})
	require.NoError(t, server.Stop())
	type outcome struct {
		s   *zklock.Session
		err error
	}
	got := make(chan outcome, 1)
	go func() {
		s, err := zklock.Connect(within(t, 2*soon), server.Addr(), zklock.WithSessionTimeout(10*time.Second), quiet(t))
		got <- outcome{s, err}
	}()
	require.NoError(t, server.Start())
	o := <-got
	require.NoError(t, o.err)
	release(t, acquire(t, newMutex(t, o.s, "/job")))
	require.NoError(t, o.s.Close())
}

// R38, F38: a later ZooKeeper session with a granted timeout without a margin holds nothing, and
// reports why.
func TestVirtual_ShorterTimeoutLater_HasNoRoom(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		strict := zktest.Start(t, zktest.WithZxid(1000), zktest.WithNetwork(v.net), zktest.WithConfig("tickTime=200", "minSessionTimeout=400", "maxSessionTimeout=4000"))
		target := v.srv.Addr()
		dial := func(network, _ string, d time.Duration) (net.Conn, error) { return v.net.Dial(network, target, d) }
		s := v.connect(zklock.WithDialer(dial))
		release(t, acquire(t, newMutex(t, s, "/job")))
		target = strict.Addr() // a server without the session
		v.srv.DropConnection(s.Stats().SessionID)
		time.Sleep(5 * time.Second)
		_, err := newMutex(t, s, "/job").Acquire(within(t, time.Minute))
		require.ErrorIs(t, err, zklock.ErrSessionTimeoutTooShort)
		require.Empty(t, strict.Children("/job"))
	})
}

// A server with its maximum of connections from this host closes further ones without a response:
// the error names the limit.
func TestReal_TooManyConnections_ErrorNamesTheLimit(t *testing.T) {
	t.Parallel()
	srv := zkserver.Single(t, zkserver.Line("maxClientCnxns=2")).Addr()
	first := connect(t, srv)
	connect(t, srv)
	_, err := zklock.Connect(within(t, 3*time.Second), srv, quiet(t))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, "has as many connections of this host as it takes (maxClientCnxns)")
	require.NoError(t, first.Close())
	connect(t, srv)
}
