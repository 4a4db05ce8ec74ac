package zklock_test

// Examples of a Session: how to connect, how to observe it, and what Close ends. The examples of
// the lock are in example_test.go.

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/zktest"
)

// The servers may grant a shorter timeout than the requested one.
func ExampleWithSessionTimeout() {
	ctx, servers, stop := exampleServer() // its longest session timeout is one minute
	defer stop()
	s, err := zklock.Connect(ctx, servers, zklock.WithSessionTimeout(5*time.Minute))
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	fmt.Println(s.Stats().SessionTimeout)
	// Output: 1m0s
}

// Give each Session a file of its own, below /run for example. A second Session with the same file
// would have to end the session of the first, which lives.
func ExampleWithSessionFile() {
	ctx, servers, stop := exampleServer()
	defer stop()
	dir, err := os.MkdirTemp("", "orders")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	file := zklock.WithSessionFile(filepath.Join(dir, "zk.session"))
	s, err := zklock.Connect(ctx, servers, file)
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	fmt.Println(s.Stats().State)

	_, err = zklock.Connect(ctx, servers, file)
	fmt.Println(errors.Is(err, zklock.ErrSessionFileInUse))
	// Output:
	// Connected
	// true
}

// If the chroot does not exist, its name is probably mistyped. Here it is created, for one user
// alone.
func ExampleWithCreateChroot() {
	ctx, servers, stop := exampleServer()
	defer stop()
	_, err := zklock.Connect(ctx, servers+"/ap")
	fmt.Println(errors.Is(err, zklock.ErrNoChroot))

	s, err := zklock.Connect(ctx, servers+"/app", zklock.WithDigest("nightly", "secret"),
		zklock.WithCreateChroot(zk.DigestACL(zk.PermAll, "nightly", "secret")...))
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	fmt.Println(s.Stats().State)
	// Output:
	// true
	// Connected
}

// docs/operating.md explains each line.
func ExampleWithLogger() {
	ctx, servers, stop := exampleServer()
	defer stop()
	logger := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey || a.Key == "session" || a.Key == "server" {
				return slog.Attr{} // differs each time
			}
			return a
		},
	}))
	s, err := zklock.Connect(ctx, servers, zklock.WithLogger(logger))
	if err != nil {
		log.Fatal(err)
	}
	_ = s.Close()
	// Output:
	// level=INFO msg="zklock: connection state" state=Connected timeout=30s margin=12.553s
	// level=INFO msg="zklock: connection state" state=Closed
}

// The guard is a process of this host: zklock guard --listen /run/orders/guard.sock. While there is
// none, the Session works as usual.
func ExampleWithGuard() {
	ctx, servers, stop := exampleServer()
	defer stop()
	s, err := zklock.Connect(ctx, servers, zklock.WithGuard("/run/orders/guard.sock"), zklock.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	fmt.Println(s.Stats().State, s.Stats().Guarded)
	// Output: Connected false
}

// The dialer may go through a tunnel. It gets the names of the connection string.
func ExampleWithDialer() {
	ctx, servers, stop := exampleServer()
	defer stop()
	tunnel := func(network, addr string, timeout time.Duration) (net.Conn, error) {
		fmt.Println("dialing", addr)
		return net.DialTimeout(network, servers, timeout)
	}
	s, err := zklock.Connect(ctx, "zk1.example.org:2281", zklock.WithDialer(tunnel))
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	fmt.Println(s.Stats().State)
	// Output:
	// dialing zk1.example.org:2281
	// Connected
}

func ExampleWithMaxLockNodes() {
	ctx, servers, stop := exampleServer()
	defer stop()
	s, err := zklock.Connect(ctx, servers, zklock.WithMaxLockNodes(1))
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	orders, _ := zklock.NewMutex(s, "/locks/orders")
	stock, _ := zklock.NewMutex(s, "/locks/stock")
	hold, err := orders.Acquire(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer hold.Release(ctx)

	_, err = stock.Acquire(ctx)
	fmt.Println(errors.Is(err, zklock.ErrTooManyLockNodes))
	// Output: true
}

// Paths that zklock returns are absolute; paths that it takes are below the chroot.
func ExampleSession_Chroot() {
	ctx, servers, stop := exampleServer()
	defer stop()
	s, err := zklock.Connect(ctx, servers+"/reports", zklock.WithCreateChroot())
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	m, _ := zklock.NewMutex(s, "/nightly")
	err = m.Do(ctx, func(_ context.Context, hold *zklock.Hold) error {
		fmt.Println(hold.Sequencer().Path == s.Chroot()+hold.Path(), s.Chroot())
		return nil
	})
	fmt.Println(err)
	// Output:
	// true /reports
	// <nil>
}

// The servers run with -Djute.maxbuffer=65536. A request that they would not read is rejected at
// once.
func ExampleWithJuteMaxBuffer() {
	ctx, servers, stop := exampleServer()
	defer stop()
	s, err := zklock.Connect(ctx, servers, zklock.WithJuteMaxBuffer(65536))
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	sem, _ := zklock.NewSemaphore(s, "/semaphores/imports", 1000, zklock.WithData([]byte("host-a")))
	_, err = sem.Acquire(ctx, 1000)
	fmt.Println(err)
	fmt.Println(zklock.IsFinal(err))
	// Output:
	// zklock: acquire /semaphores/imports: 1000 permits take a request of 127115 bytes, 127 for each, and servers read 65536 (jute.maxbuffer): ask for 515 at most, or give less data
	// true
}

// Close ends every hold, and all later calls return an error.
func ExampleSession_Close() {
	ctx, s, stop := exampleSession()
	defer stop()
	m, _ := zklock.NewMutex(s, "/locks/orders")
	hold, err := m.Acquire(ctx)
	if err != nil {
		log.Fatal(err)
	}

	fmt.Println(s.Close())
	fmt.Println(errors.Is(hold.Err(), zklock.ErrLost), errors.Is(hold.Err(), zklock.ErrClosed))
	_, err = m.Acquire(ctx)
	fmt.Println(errors.Is(err, zklock.ErrClosed), s.Stats().State)
	fmt.Println(s.Close()) // a second time does nothing
	// Output:
	// <nil>
	// true true
	// true Closed
	// <nil>
}

// A program can send all its other ZooKeeper requests over the same connection. Their paths are
// absolute.
func ExampleSession_Conn() {
	ctx, servers, stop := exampleServer()
	defer stop()
	s, err := zklock.Connect(ctx, servers+"/app", zklock.WithCreateChroot())
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	// NewMutex prepends /app to its paths, Conn does not.
	if _, err := s.Conn().Create("/app/config", []byte("version 3"), 0, zk.WorldACL(zk.PermAll)); err != nil {
		log.Fatal(err)
	}
	data, _, err := s.Conn().Get("/app/config")
	fmt.Printf("%s %v\n", data, err)
	// Output: version 3 <nil>
}

// Each heartbeat extends the deadline of a hold. The session id is the one in the servers' logs and
// in the owner of a lock node. It changes when the session is lost.
func ExampleStats() {
	ctx, srv, stop := exampleZooKeeper()
	defer stop()
	s, err := zklock.Connect(ctx, srv.Addr())
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	first, changes := s.Stats().SessionID, s.Changes(ctx)

	srv.ExpireSession(first)
	for c := range changes {
		if c.State == zklock.StateConnected { // in the next session
			break
		}
	}
	fmt.Println(first != 0, s.Stats().SessionID != first)
	// Output: true true
}

func ExampleState() {
	_, s, stop := exampleSession()
	defer stop()
	now := s.Stats() // from memory: good for a health check
	fmt.Println(now.State, now.Server != "")
	_ = s.Close()
	now = s.Stats()
	fmt.Println(now.State, now.Server != "")
	// Output:
	// Connected true
	// Closed false
}

// The server restarts. Nothing is lost.
func ExampleChange() {
	ctx, srv, stop := exampleZooKeeper()
	defer stop()
	s, err := zklock.Connect(ctx, srv.Addr())
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	changes := s.Changes(ctx)

	srv.Stop()
	c := <-changes
	fmt.Println(c.State, !c.Time.After(time.Now()))
	if err := srv.Start(); err != nil {
		log.Fatal(err)
	}
	c = <-changes
	fmt.Println(c.State, c.SessionID == s.Stats().SessionID)
	// Output:
	// Suspended true
	// Reconnected true
}

// The server and the Session that the examples use.

// exampleZooKeeper is a ZooKeeper server for one example, in this process, with a context for the
// example's requests. It keeps the log, which a Session without WithLogger writes to
// slog.Default(), out of the example's output.
func exampleZooKeeper() (ctx context.Context, srv *zktest.Server, stop func()) {
	srv, err := zktest.NewServer(zktest.WithConfig("minSessionTimeout=1000", "maxSessionTimeout=60000"))
	if err != nil {
		panic(err)
	}
	logger := slog.Default()
	slog.SetDefault(slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	return ctx, srv, func() {
		cancel()
		srv.Close()
		slog.SetDefault(logger)
	}
}

// exampleServer returns the connection string of such a server.
func exampleServer() (ctx context.Context, servers string, stop func()) {
	ctx, srv, stop := exampleZooKeeper()
	return ctx, srv.Addr(), stop
}

// exampleSession returns a Session that is connected to such a server.
func exampleSession() (ctx context.Context, s *zklock.Session, stop func()) {
	ctx, servers, stopServer := exampleServer()
	s, err := zklock.Connect(ctx, servers)
	if err != nil {
		panic(err)
	}
	return ctx, s, func() {
		_ = s.Close()
		stopServer()
	}
}
