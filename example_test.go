package zklock_test

// The examples of each call, which the documentation shows, too.

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"database/sql"
	"database/sql/driver"
	"encoding/binary"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/url"
	"os"
	"path"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/zktest"
)

// The examples run against a ZooKeeper server in the test's process. The one without an output
// needs servers with TLS.

// nightly runs the backup on one host at a time.
func nightly(ctx context.Context, servers string) error {
	s, err := zklock.Connect(ctx, servers) // "zk1:2181,zk2:2181,zk3:2181"
	if err != nil {
		return err
	}
	defer s.Close()
	m, err := zklock.NewMutex(s, "/locks/nightly")
	if err != nil {
		return err
	}
	return m.Do(ctx, func(ctx context.Context, hold *zklock.Hold) error { // waits its turn, for as long as ctx lasts
		return backup(ctx, hold.Token()) // this ctx ends when the lock is lost, and when the caller's does
	})
}

// nightlyInSteps is nightly without Do.
func nightlyInSteps(ctx context.Context, m *zklock.Mutex) error {
	hold, err := m.Acquire(ctx) // ctx bounds the wait, and no more
	if err != nil {
		return err
	}
	work, cancel := context.WithCancelCause(hold.Context())               // ends when the lock is lost,
	stop := context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) }) // and when the caller's context does
	err = backup(work, hold.Token())
	stop()
	cancel(nil)
	return errors.Join(err, hold.Release(context.WithoutCancel(ctx)))
}

func backup(ctx context.Context, token int64) error {
	fmt.Println("backing up; first token:", token > 0, "- still held:", ctx.Err() == nil)
	return nil
}

func Example() {
	ctx, servers, stop := exampleServer()
	defer stop()
	if err := nightly(ctx, servers); err != nil {
		log.Fatal(err)
	}
	// Output: backing up; first token: true - still held: true
}

// Without Do, the program itself decides whether the work also ends with the caller's context.
func ExampleHold_Context_endsWithTheCallers() {
	ctx, s, stop := exampleSession()
	defer stop()
	m, _ := zklock.NewMutex(s, "/locks/nightly")
	if err := nightlyInSteps(ctx, m); err != nil {
		log.Fatal(err)
	}
	fmt.Println(m.Held())
	// Output:
	// backing up; first token: true - still held: true
	// false
}

func ExampleConnect() {
	ctx, servers, stop := exampleServer()
	defer stop()

	s, err := zklock.Connect(ctx, servers+"/app", // the paths of the locks are below /app
		zklock.WithCreateChroot(),
		zklock.WithSessionTimeout(20*time.Second),
		zklock.WithLogger(slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))))
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	fmt.Println(s.Stats().State, s.Stats().SessionTimeout)
	// Output: Connected 20s
}

// A Connect that reaches no server returns its attempts in the error, when ctx ends.
func ExampleConnect_noServer() {
	_, _, stop := exampleServer()
	defer stop()
	refused, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	refused.Close()

	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	_, err = zklock.Connect(ctx, refused.Addr().String())
	fmt.Println(errors.Is(err, context.DeadlineExceeded), strings.Contains(err.Error(), "connection refused"))
	// Output: true true
}

// Readers hold together. A writer holds alone, and later callers wait for it.
func ExampleNewRWMutex() {
	ctx, s, stop := exampleSession()
	defer stop()

	prices, err := zklock.NewRWMutex(s, "/locks/prices")
	if err != nil {
		log.Fatal(err)
	}
	err = prices.ReadLock().Do(ctx, func(context.Context, *zklock.Hold) error {
		fmt.Println("a reader")
		if err := prices.ReadLock().TryDo(ctx, func(context.Context, *zklock.Hold) error {
			fmt.Println("another reader")
			return nil
		}); err != nil {
			return err
		}
		_, err := prices.WriteLock().TryAcquire(ctx)
		fmt.Println("a writer must wait:", errors.Is(err, zklock.ErrNotAcquired))
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output:
	// a reader
	// another reader
	// a writer must wait: true
}

// A writer continues as a reader: no other client writes in between, and other readers can enter.
func ExampleRWMutex_WriteLock() {
	ctx, s, stop := exampleSession()
	defer stop()
	prices, _ := zklock.NewRWMutex(s, "/locks/prices")
	writes, err := prices.WriteLock().Acquire(ctx)
	if err != nil {
		log.Fatal(err)
	}
	reads, err := prices.ReadLock().Acquire(writes.Context()) // its context says that the writer asks
	if err != nil {
		log.Fatal(err)
	}
	queue, err := prices.ReadLock().Participants(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("nodes:", len(queue), "- one token:", reads.Token() == writes.Token())
	if err := writes.Release(ctx); err != nil {
		log.Fatal(err)
	}
	_, err = prices.WriteLock().Acquire(reads.Context()) // from here on with the context of the read hold
	fmt.Println("a reader may not write:", errors.Is(err, zklock.ErrUpgrade))
	fmt.Println(reads.Release(ctx))
	// Output:
	// nodes: 2 - one token: true
	// a reader may not write: true
	// <nil>
}

// Once on the write lock: one of all hosts writes the prices of a day.
func ExampleRWMutexOption() {
	ctx, s, stop := exampleSession()
	defer stop()
	opts := []zklock.RWMutexOption{zklock.WithData([]byte("worker-7")), zklock.WithKeptRuns(1000)}
	prices, err := zklock.NewRWMutex(s, "/locks/prices", opts...)
	if err != nil {
		log.Fatal(err)
	}
	write := func(context.Context, *zklock.Hold) error { return nil }
	ran, err := prices.WriteLock().Once(ctx, "2026-07-01", write)
	fmt.Println("written now:", ran, err)
	ran, err = prices.WriteLock().Once(ctx, "2026-07-01", write)
	fmt.Println("written again:", ran, err)
	_, err = prices.ReadLock().Once(ctx, "2026-07-02", write)
	fmt.Println("by a reader:", zklock.IsFinal(err))
	// Output:
	// written now: true <nil>
	// written again: false <nil>
	// by a reader: true
}

func ExampleNewMutex() {
	ctx, s, stop := exampleSession()
	defer stop()

	m, err := zklock.NewMutex(s, "/locks/orders",
		zklock.WithContainer(), // the servers remove the lock root when nobody has used it for a while
		zklock.WithData([]byte("worker 7")))
	if err != nil {
		log.Fatal(err)
	}
	hold, err := m.Acquire(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer hold.Release(ctx)
	fmt.Println(m.Path(), m.Held(), path.Dir(hold.Node()))
	// Output: /locks/orders true /locks/orders
}

// A Session, a Mutex or a Hold prints and logs as one line without secrets.
func ExampleMutex_String() {
	_, s, stop := exampleSession()
	defer stop()
	m, err := zklock.NewMutex(s, "/locks/orders")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(m)
	slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{} // differs each time
			}
			return a
		},
	})).Info("waiting", "lock", m)
	// Output:
	// Mutex(/locks/orders)
	// level=INFO msg=waiting lock=Mutex(/locks/orders)
}

// Paths that ZooKeeper would reject are rejected before anything is sent.
func ExampleNewMutex_badPath() {
	_, s, stop := exampleSession()
	defer stop()

	for _, p := range []string{"", "locks/orders", "/locks/orders/", "/locks//orders"} {
		_, err := zklock.NewMutex(s, p)
		fmt.Println(err)
	}
	// Output:
	// zklock: new mutex: path "" is empty: give an absolute path such as /locks/orders
	// zklock: new mutex locks/orders: path "locks/orders" is relative: it must begin with a slash
	// zklock: new mutex /locks/orders/: path "/locks/orders/" ends in a slash
	// zklock: new mutex /locks//orders: path "/locks//orders" has an empty part (two slashes)
}

func ExampleMutex_Acquire() {
	ctx, s, stop := exampleSession()
	defer stop()
	m, _ := zklock.NewMutex(s, "/locks/orders")
	first, _ := m.Acquire(ctx)

	// ctx bounds the wait, not the hold.
	wait, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	_, err := m.Acquire(wait)
	fmt.Println(errors.Is(err, context.DeadlineExceeded))

	_ = first.Release(ctx)
	second, err := m.Acquire(ctx)
	fmt.Println(err, second.Token() > first.Token())
	_ = second.Release(ctx)
	// Output:
	// true
	// <nil> true
}

func ExampleMutex_TryAcquire() {
	ctx, s, stop := exampleSession()
	defer stop()
	m, _ := zklock.NewMutex(s, "/locks/orders")
	other, _ := m.Acquire(ctx)
	defer other.Release(ctx)

	hold, err := m.TryAcquire(ctx)
	switch {
	case errors.Is(err, zklock.ErrNotAcquired):
		fmt.Println("another process does it")
	case errors.Is(err, zklock.ErrNotConnected):
		fmt.Println("nobody knows: try again later")
	case err != nil:
		log.Fatal(err)
	default:
		defer hold.Release(ctx)
	}
	// Output: another process does it
}

// lead works while this process is the leader, and queues again when it no longer is, after a pause
// that grows with each failure.
func lead(ctx context.Context, m *zklock.Mutex, work func(context.Context, *zklock.Hold) error) error {
	const shortest, longest = 100 * time.Millisecond, time.Minute
	for pause := shortest; ; pause = min(2*pause, longest) {
		began := time.Now()
		err := m.Do(ctx, work)
		if ctx.Err() != nil || zklock.IsFinal(err) {
			return err
		}
		if time.Since(began) > longest {
			pause = shortest // it has led
		}
		slog.Warn("not the leader any more", "lock", m, "err", err, "pause", pause)
		select {
		case <-time.After(pause/2 + rand.N(pause)):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// A leader returns after a failure, and ends when no further try can help.
func ExampleIsFinal() {
	ctx, s, stop := exampleSession()
	defer stop()
	m, _ := zklock.NewMutex(s, "/locks/leader")

	terms := 0
	err := lead(ctx, m, func(ctx context.Context, hold *zklock.Hold) error {
		if terms++; terms < 3 {
			return errors.New("the database is away")
		}
		return s.Close() // in the field: the program ends
	})
	fmt.Println(terms, errors.Is(err, zklock.ErrClosed), zklock.IsFinal(err))
	// Output: 3 true true
}

// That loop ends when the Session is closed, and continues after all transient errors.
func TestVirtual_IsFinal_LeaderLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := zktest.NewNetwork()
		srv := zktest.Start(t, zktest.WithNetwork(network))
		s, err := zklock.Connect(t.Context(), srv.Addr(), zklock.WithDialer(network.Dial), zklock.WithLogger(slog.New(slog.DiscardHandler)))
		require.NoError(t, err)
		m, err := zklock.NewMutex(s, "/job")
		require.NoError(t, err)
		terms := 0
		err = lead(t.Context(), m, func(ctx context.Context, hold *zklock.Hold) error {
			switch terms++; terms {
			case 1:
				require.NoError(t, srv.Delete(hold.Node()))
			case 2:
				require.True(t, srv.ExpireSession(s.Stats().SessionID))
			case 3:
				srv.Inject(zktest.Before(zktest.Create).Path("/job/*").Fail(-125).Once()) // quota exceeded
				return nil
			case 4:
				go s.Close()
			}
			<-ctx.Done()
			return ctx.Err()
		})
		require.ErrorIs(t, err, zklock.ErrClosed)
		require.Equal(t, 4, terms)
		require.NoError(t, s.Close())
	})
}

// An Error contains our position in the queue, without a further request.
func ExampleError() {
	ctx, s, stop := exampleSession()
	defer stop()
	m, _ := zklock.NewMutex(s, "/locks/orders")
	other, err := m.Acquire(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer other.Release(ctx)

	_, err = m.TryAcquire(ctx)
	var e *zklock.Error
	if errors.As(err, &e) {
		fmt.Println(e.Op, e.Path, e.Err)
		fmt.Println("position", e.Position, "behind the holder:", e.Predecessor == other.Node())
	}
	fmt.Println(errors.Is(err, zklock.ErrNotAcquired))
	// Output:
	// try /locks/orders lock not acquired: another client is ahead
	// position 2 behind the holder: true
	// true
}

func ExampleMutex_Do() {
	ctx, s, stop := exampleSession()
	defer stop()
	m, _ := zklock.NewMutex(s, "/locks/orders")

	err := m.Do(ctx, func(ctx context.Context, hold *zklock.Hold) error {
		fmt.Println("holding:", m.OwnedBy(ctx), hold.Token() > 0)
		return nil
	})
	fmt.Println(err, m.Held())
	// Output:
	// holding: true true
	// <nil> false
}

// A transfer between two accounts takes both locks. The order in which it names them does not
// matter.
func ExampleMulti_Do() {
	ctx, s, stop := exampleSession()
	defer stop()
	from, _ := zklock.NewMutex(s, "/locks/accounts/7")
	to, _ := zklock.NewMutex(s, "/locks/accounts/3")
	both, err := zklock.NewMulti(from, to)
	if err != nil {
		log.Fatal(err)
	}
	err = both.Do(ctx, func(ctx context.Context, hold *zklock.MultiHold) error { // ctx ends when the first of them is lost
		for _, h := range hold.Holds() {
			fmt.Println(h.Path(), h.Token() > 0)
		}
		return nil
	})
	fmt.Println(err, from.Held(), to.Held())
	// Output:
	// /locks/accounts/3 true
	// /locks/accounts/7 true
	// <nil> false false
}

// If one of the locks is not free, none is taken. Between steps, the hold reports when the first
// lock is lost.
func ExampleMulti_TryAcquire() {
	ctx, s, stop := exampleSession()
	defer stop()
	a, _ := zklock.NewMutex(s, "/locks/a")
	b, _ := zklock.NewMutex(s, "/locks/b")
	both, err := zklock.NewMulti(a, b)
	if err != nil {
		log.Fatal(err)
	}
	other, err := b.Acquire(ctx)
	if err != nil {
		log.Fatal(err)
	}
	_, err = both.TryAcquire(ctx)
	fmt.Println(errors.Is(err, zklock.ErrNotAcquired), a.Held())
	err = both.TryDo(ctx, func(context.Context, *zklock.MultiHold) error { panic("not held") })
	fmt.Println(errors.Is(err, zklock.ErrNotAcquired))
	other.Release(ctx)

	hold, err := both.Acquire(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(hold.Err(), hold.Context().Err())
	s.Conn().Delete(hold.Holds()[1].Node(), -1) // somebody breaks the rules
	<-hold.Context().Done()
	fmt.Println(errors.Is(hold.Err(), zklock.ErrLost), errors.Is(context.Cause(hold.Context()), zklock.ErrLost))
	fmt.Println(errors.Is(hold.Release(ctx), zklock.ErrLost), a.Held())
	// Output:
	// true false
	// true
	// <nil> <nil>
	// true true
	// true false
}

// A job that runs on one host; all other hosts skip it.
func ExampleMutex_TryDo() {
	ctx, s, stop := exampleSession()
	defer stop()
	m, _ := zklock.NewMutex(s, "/locks/nightly")
	other, err := m.Acquire(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer other.Release(ctx)

	err = m.TryDo(ctx, func(ctx context.Context, hold *zklock.Hold) error { return backup(ctx, hold.Token()) })
	switch {
	case errors.Is(err, zklock.ErrNotAcquired):
		fmt.Println("it runs elsewhere")
	case err != nil: // also ErrNotConnected: nobody knows whether it runs
		log.Fatal(err)
	}
	// Output: it runs elsewhere
}

// The wait is bounded, the work is not.
func ExampleWaitAtMost() {
	ctx, s, stop := exampleSession()
	defer stop()
	m, _ := zklock.NewMutex(s, "/locks/orders")
	other, err := m.Acquire(ctx)
	if err != nil {
		log.Fatal(err)
	}
	work := func(ctx context.Context, hold *zklock.Hold) error {
		_, bounded := ctx.Deadline()
		fmt.Println("working, with the deadline of the caller:", bounded)
		return nil
	}

	err = m.Do(ctx, work, zklock.WaitAtMost(time.Second))
	fmt.Println(errors.Is(err, zklock.ErrNotAcquired))
	_ = other.Release(ctx)
	fmt.Println(m.Do(ctx, work, zklock.WaitAtMost(50*time.Second)))
	// Output:
	// true
	// working, with the deadline of the caller: true
	// <nil>
}

// Path is the path of the lock, Node is this hold's own node in the queue.
func ExampleHold_Node() {
	ctx, servers, stop := exampleServer()
	defer stop()
	s, err := zklock.Connect(ctx, servers+"/app", zklock.WithCreateChroot())
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	m, _ := zklock.NewMutex(s, "/locks/orders")
	hold, err := m.Acquire(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer hold.Release(ctx)
	fmt.Println(hold.Path())
	fmt.Println(path.Dir(hold.Node()), strings.HasSuffix(hold.Node(), "-lock-0000000000"))
	// Output:
	// /locks/orders
	// /app/locks/orders true
}

// The context carries the hold. With the hold's owner, code that is called under it takes the lock
// again without waiting for itself.
func ExampleHold_Context() {
	ctx, s, stop := exampleSession()
	defer stop()
	m, _ := zklock.NewMutex(s, "/locks/orders")

	outer, err := m.Acquire(ctx)
	if err != nil {
		log.Fatal(err)
	}
	inner, err := m.Acquire(zklock.WithOwner(outer.Context(), outer.Owner())) // no request is sent
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("one node:", inner.Node() == outer.Node())
	_ = outer.Release(ctx) // in any order: the node goes with the last
	fmt.Println("still held:", m.Held())
	_ = inner.Release(ctx)
	fmt.Println(errors.Is(context.Cause(inner.Context()), zklock.ErrNotHeld))
	// Output:
	// one node: true
	// still held: true
	// true
}

func ExampleWithOwner() {
	ctx, s, stop := exampleSession()
	defer stop()
	m, _ := zklock.NewMutex(s, "/locks/orders")

	// One owner for two calls that share no context.
	batch := zklock.NewOwner("batch 12")
	a, err := m.Acquire(zklock.WithOwner(ctx, batch))
	if err != nil {
		log.Fatal(err)
	}
	b, err := m.TryAcquire(zklock.WithOwner(ctx, batch))
	fmt.Println(err, b.Owner() == batch)
	_ = a.Release(ctx)
	_ = b.Release(ctx)
	// Output: <nil> true
}

func ExampleNewOwner() {
	a, b := zklock.NewOwner("batch"), zklock.NewOwner("batch")
	fmt.Println(a == b, strings.HasPrefix(a.String(), "batch/"))
	// Output: false true
}

var errStale = errors.New("a later holder has written")

// saveReport writes only if no later holder of the lock has already written.
func saveReport(ctx context.Context, db *sql.DB, hold *zklock.Hold, body string) error {
	res, err := db.ExecContext(ctx, `
		UPDATE reports SET body = $1, token = $2
		WHERE  name = 'nightly' AND token <= $2`, body, hold.Token())
	if err != nil {
		return err
	}
	n, err := res.RowsAffected()
	if err == nil && n == 0 {
		err = errStale
	}
	return err
}

// A database rejects the write of a holder that was paused while a later one took the lock.
func ExampleHold_Token() {
	ctx, s, stop := exampleSession()
	defer stop()
	db, body := openReports()
	defer db.Close()
	m, _ := zklock.NewMutex(s, "/locks/nightly")

	a, err := m.Acquire(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("A:", saveReport(ctx, db, a, "A is at it"))
	_ = a.Release(ctx) // in the field: the lease ends while A is paused

	b, err := m.Acquire(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer b.Release(ctx)
	fmt.Println("B:", saveReport(ctx, db, b, "B has finished"))

	fmt.Println("A:", saveReport(ctx, db, a, "A goes on where it stopped"))
	fmt.Println(body())
	// Output:
	// A: <nil>
	// B: <nil>
	// A: a later holder has written
	// B has finished
}

// saveInZooKeeper writes only if the lock node exists when ZooKeeper executes the write.
func saveInZooKeeper(s *zklock.Session, hold *zklock.Hold, body []byte) error {
	_, err := s.Conn().Multi(hold.Checks()[0], &zk.SetDataRequest{Path: "/reports/nightly", Data: body, Version: -1})
	return err // zk.ErrNoNode if the lock was lost, or if /reports/nightly is not there
}

func ExampleHold_Checks_transaction() {
	ctx, s, stop := exampleSession()
	defer stop()
	for _, p := range []string{"/reports", "/reports/nightly"} {
		if _, err := s.Conn().Create(p, nil, 0, zk.WorldACL(zk.PermAll)); err != nil {
			log.Fatal(err)
		}
	}
	m, _ := zklock.NewMutex(s, "/locks/nightly")
	hold, err := m.Acquire(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(saveInZooKeeper(s, hold, []byte("first")))
	_ = hold.Release(ctx)
	fmt.Println(saveInZooKeeper(s, hold, []byte("too late")))
	data, _, _ := s.Conn().Get("/reports/nightly")
	fmt.Printf("%s\n", data)
	// Output:
	// <nil>
	// zk: node does not exist
	// first
}

// A sequencer travels with a request. The service that receives it asks the ensemble before it
// acts. Package fence/zkfence does this for services of HTTP or gRPC.
func ExampleSession_CheckSequencer() {
	ctx, s, stop := exampleSession()
	defer stop()
	serve := func(header string) { // at the service, with a Session of its own
		ctx, cancel := context.WithTimeout(ctx, time.Second) // an outage may last
		defer cancel()
		q, _ := zklock.ParseSequencer(header)
		err := s.CheckSequencer(ctx, "/locks/nightly", header)
		switch {
		case err == nil && !q.Shared:
			fmt.Println("200")
		case errors.Is(err, zklock.ErrNotHeld):
			fmt.Println("412: the hold is over")
		case err == nil, errors.Is(err, zklock.ErrBadSequencer):
			fmt.Println("400: this needs the lock alone")
		default: // no answer in time, say
			fmt.Println("503: nobody knows")
		}
	}

	m, _ := zklock.NewMutex(s, "/locks/nightly")
	hold, err := m.Acquire(ctx)
	if err != nil {
		log.Fatal(err)
	}
	header := hold.Sequencer().String()
	serve(header)
	_ = hold.Release(ctx)
	serve(header) // a request that comes late
	serve("rubbish")
	// Output:
	// 200
	// 412: the hold is over
	// 400: this needs the lock alone
}

// Work that takes a while to stop winds down before the lease ends.
func ExampleHold_DeadlineContext() {
	ctx, s, stop := exampleSession()
	defer stop()
	m, _ := zklock.NewMutex(s, "/locks/nightly")
	hold, err := m.Acquire(ctx)
	if err != nil {
		log.Fatal(err)
	}
	work, cancel := hold.DeadlineContext(time.Second) // what an upload takes to be broken off
	defer cancel()
	fmt.Println("at work:", work.Err())
	_ = hold.Release(ctx)
	<-work.Done()
	fmt.Println("no server answered:", errors.Is(context.Cause(work), zklock.ErrLeaseEnding), "- released:", errors.Is(context.Cause(work), zklock.ErrNotHeld))
	// Output:
	// at work: <nil>
	// no server answered: false - released: true
}

// Release returns by the time when the lease would have ended, and its error reports whether the
// lock covered the work.
func ExampleHold_Release() {
	ctx, s, stop := exampleSession()
	defer stop()
	m, _ := zklock.NewMutex(s, "/locks/orders")
	hold, err := m.Acquire(ctx)
	if err != nil {
		log.Fatal(err)
	}
	switch err := hold.Release(ctx); {
	case err == nil:
		fmt.Println("held until now, and free")
	case errors.Is(err, zklock.ErrNotConfirmed):
		fmt.Println("held until now; no server said that it is free:", err)
	case errors.Is(err, zklock.ErrLost):
		fmt.Println("the work may have overlapped with the next holder's:", err)
	}
	// Output: held until now, and free
}

// Many short holds far from the servers: no cycle waits for its release, neither one by one nor in
// Do. Close waits for the last one.
func ExampleHold_ReleaseAsync() {
	ctx, s, stop := exampleSession()
	defer stop()
	m, _ := zklock.NewMutex(s, "/locks/orders")
	for range 3 {
		hold, err := m.Acquire(ctx)
		if err != nil {
			log.Fatal(err)
		}
		if err := hold.ReleaseAsync(); err != nil {
			fmt.Println("the work may have overlapped with the next holder's:", err)
		}
	}
	err := m.Do(ctx, func(context.Context, *zklock.Hold) error { return nil }, zklock.AsyncRelease())
	fmt.Println(err, m.Held(), s.Stats().Unconfirmed)
	// Output: <nil> false 0
}

// A lost hold reports the reason by its context, its channel and its error.
func ExampleHold_Lost() {
	ctx, s, stop := exampleSession()
	defer stop()
	m, _ := zklock.NewMutex(s, "/locks/orders")
	hold, err := m.Acquire(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(hold.Err(), time.Until(hold.Deadline()) > 20*time.Second)

	_ = s.Close() // as an expired session would
	<-hold.Lost()
	<-hold.Context().Done()
	fmt.Println(errors.Is(hold.Err(), zklock.ErrLost), errors.Is(context.Cause(hold.Context()), zklock.ErrClosed))
	// Output:
	// <nil> true
	// true true
}

// Call Err before each step: it reads the clock first, so a process that was stopped for a minute
// detects the loss here.
func ExampleHold_Err() {
	ctx, srv, stop := exampleZooKeeper()
	defer stop()
	s, err := zklock.Connect(ctx, srv.Addr())
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	m, _ := zklock.NewMutex(s, "/locks/orders")
	hold, err := m.Acquire(ctx)
	if err != nil {
		log.Fatal(err)
	}
	for _, step := range []string{"read", "compute", "write"} {
		if err := hold.Err(); err != nil {
			fmt.Println("lost before", step+":", errors.Is(err, zklock.ErrLost))
			break
		}
		fmt.Println(step)
		if step == "compute" {
			srv.ExpireSession(s.Stats().SessionID) // the servers end the session, and the lock node goes with it
			<-hold.Lost()
		}
	}
	_ = hold.Release(ctx)
	// Output:
	// read
	// compute
	// lost before write: true
}

// Do not begin a step that takes longer than the hold is guaranteed to last.
func ExampleHold_Deadline() {
	ctx, s, stop := exampleSession()
	defer stop()
	m, _ := zklock.NewMutex(s, "/locks/orders")
	hold, err := m.Acquire(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer hold.Release(ctx)

	const step = 5 * time.Second
	if time.Until(hold.Deadline()) < step {
		fmt.Println("wait for the next heartbeat")
		return
	}
	fmt.Println("there is time for a step")
	// Output: there is time for a step
}

func ExampleSession_Changes() {
	ctx, s, stop := exampleSession()
	defer stop()

	changes := s.Changes(ctx)
	_ = s.Close()
	for c := range changes { // until ctx ends or the Session is closed
		fmt.Println(c.State, c.Err)
	}
	// Output: Closed session closed
}

// A hold lasts as long as its lease, even while the connection is suspended. If that is not strict
// enough, end the work at each suspension, as Curator's documentation advises, and release the
// lock.
func ExampleSession_Changes_endOnSuspend() {
	ctx, srv, stop := exampleZooKeeper()
	defer stop()
	s, err := zklock.Connect(ctx, srv.Addr())
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	m, _ := zklock.NewMutex(s, "/locks/orders")
	err = m.Do(ctx, func(ctx context.Context, _ *zklock.Hold) error {
		work, end := context.WithCancel(ctx)
		defer end()
		changes := s.Changes(work)
		if s.Stats().Server == "" { // suspended before we could hear of it
			end()
		}
		go func() {
			for c := range changes { // until the work ends
				if c.State == zklock.StateSuspended {
					end()
				}
			}
		}()

		srv.DropConnection(s.Stats().SessionID) // a network failure, in the middle of the work
		<-work.Done()
		fmt.Println("the work ends; still held:", ctx.Err() == nil)
		return nil
	})
	fmt.Println(err)
	// Output:
	// the work ends; still held: true
	// <nil>
}

func ExampleMutex_Participants() {
	ctx, s, stop := exampleSession()
	defer stop()
	m, _ := zklock.NewMutex(s, "/locks/orders", zklock.WithData([]byte("host-a:4711")))
	hold, err := m.Acquire(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer hold.Release(ctx)

	queue, err := m.Participants(ctx)
	if err != nil {
		log.Fatal(err)
	}
	for _, p := range queue { // the holder first
		fmt.Println(string(p.Data), p.Token == hold.Token(), p.SessionID == s.Stats().SessionID)
	}
	// Output: host-a:4711 true true
}

// The front of the queue is the holder. An old one may hang.
func ExampleParticipant() {
	ctx, s, stop := exampleSession()
	defer stop()
	m, _ := zklock.NewMutex(s, "/locks/orders")
	hold, err := m.Acquire(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer hold.Release(ctx)

	queue, err := m.Participants(ctx)
	if err != nil || len(queue) == 0 {
		log.Fatal("nobody: ", err)
	}
	front := queue[0]
	fmt.Println("ours:", front.Node == hold.Node(), "- older than an hour:", time.Since(front.Created) > time.Hour)
	// Output: ours: true - older than an hour: false
}

// The holder is asked to give way, and does so.
func ExampleSession_Revoke() {
	ctx, s, stop := exampleSession()
	defer stop()
	asked := make(chan *zklock.Hold, 1)
	m, _ := zklock.NewMutex(s, "/locks/orders",
		zklock.WithRevocation(func(h *zklock.Hold) { asked <- h }))
	hold, err := m.Acquire(ctx)
	if err != nil {
		log.Fatal(err)
	}

	if err := s.Revoke(ctx, hold.Node()); err != nil { // from anywhere; Participants tells the node
		log.Fatal(err)
	}
	h := <-asked
	fmt.Println(h.Release(ctx))
	// Output: <nil>
}

func ExampleWithDigest() {
	ctx, servers, stop := exampleServer()
	defer stop()

	s, err := zklock.Connect(ctx, servers, zklock.WithDigest("nightly", "secret"))
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	m, err := zklock.NewMutex(s, "/locks/nightly", zklock.WithACL(zk.DigestACL(zk.PermAll, "nightly", "secret")))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(m.Do(ctx, func(context.Context, *zklock.Hold) error { return nil }))
	// Output: <nil>
}

// Only sessions with the credentials may use the lock. A call that a server denies fails at once,
// and its error names the missing permission.
func ExampleWithACL() {
	ctx, servers, stop := exampleServer()
	defer stop()
	ours, err := zklock.Connect(ctx, servers, zklock.WithDigest("nightly", "secret"))
	if err != nil {
		log.Fatal(err)
	}
	defer ours.Close()
	acl := zklock.WithACL(zk.DigestACL(zk.PermAll, "nightly", "secret"))
	m, _ := zklock.NewMutex(ours, "/locks/nightly", acl)
	fmt.Println(m.Do(ctx, func(context.Context, *zklock.Hold) error { return nil }))

	stranger, err := zklock.Connect(ctx, servers)
	if err != nil {
		log.Fatal(err)
	}
	defer stranger.Close()
	m, _ = zklock.NewMutex(stranger, "/locks/nightly", acl)
	_, err = m.Acquire(ctx)
	fmt.Println(err)
	fmt.Println(errors.Is(err, zk.ErrNoAuth))
	// Output:
	// <nil>
	// zklock: acquire /locks/nightly: create: no CREATE permission on /locks/nightly: zk: not authenticated
	// true
}

func ExampleWithTLS() {
	pem, err := os.ReadFile("/etc/zookeeper/ca.pem")
	if err != nil {
		log.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	s, err := zklock.Connect(context.Background(), "zk1.example.org:2281",
		zklock.WithTLS(&tls.Config{RootCAs: roots})) // verified against zk1.example.org
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
}

// The files are read again at each dial: a renewal needs no restart.
func ExampleWithTLSFiles() {
	s, err := zklock.Connect(context.Background(), "zk1.example.org:2281",
		zklock.WithTLSFiles("/run/certs/ca.pem", "/run/certs/tls.crt", "/run/certs/tls.key"))
	if errors.Is(err, zklock.ErrCertificate) {
		log.Fatal("not an outage: ", err) // it names each server, and whose certificate was refused
	}
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
}

func ExampleWithLease() {
	ctx, servers, stop := exampleServer()
	defer stop()

	// The servers have tickTime=1000: the leader pings its followers at least every 2 s.
	s, err := zklock.Connect(ctx, servers,
		zklock.WithSessionTimeout(10*time.Second), zklock.WithLease(zklock.QuorumLease(2*time.Second)))
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	fmt.Println(s.Stats().SessionTimeout)
	// Output: 10s
}

// A mode without margin in the session timeout is rejected.
func ExampleWithLease_noRoom() {
	_, err := zklock.Connect(context.Background(), "127.0.0.1", zklock.WithSessionTimeout(5*time.Second))
	fmt.Println(errors.Is(err, zklock.ErrSessionTimeoutTooShort))
	fmt.Println(zklock.QuorumLease(0).Margin(5 * time.Second))
	// Output:
	// true
	// -1.366171617s
}

// If ten thousand Sessions hold, a longer heartbeat interval d saves requests. Each second of d
// costs a second of margin. A d that leaves no margin is rejected.
func ExampleWithHeartbeat() {
	ctx, srv, stop := exampleZooKeeper()
	defer stop()
	_, err := zklock.Connect(ctx, "zk1:2181,zk2:2181,zk3:2181", zklock.WithHeartbeat(9*time.Second))
	fmt.Println(errors.Is(err, zklock.ErrSessionTimeoutTooShort))

	s, err := zklock.Connect(ctx, srv.Addr(), zklock.WithHeartbeat(5*time.Second)) // T is 30 s: 300 requests a second of a thousand, not 433
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	// Output: true
}

func ExampleLeaseMode_Margin() {
	for _, mode := range []zklock.LeaseMode{
		zklock.QuorumLease(0), zklock.SingleServerLease(),
	} {
		fmt.Printf("%s: %v\n", mode, mode.Margin(30*time.Second).Round(100*time.Millisecond))
	}
	// Output:
	// quorum (leader ping 4s): 12.6s
	// single server: 26.6s
}

func ExampleQuorumLease() {
	fmt.Println(zklock.QuorumLease(0) == zklock.QuorumLease(4*time.Second))
	// Output: true
}

func ExampleSingleServerLease() {
	fmt.Println(zklock.SingleServerLease())
	// Output: single server
}

// A resource that cannot check a token gets time: after a holder disappeared, no client is granted
// while requests of that holder may still arrive.
func ExampleWithLockDelay() {
	ctx, s, stop := exampleSession()
	defer stop()
	delay := zklock.WithLockDelay(15 * time.Second)
	m, err := zklock.NewMutex(s, "/locks/printer", delay)
	if err != nil {
		log.Fatal(err)
	}
	hold, err := m.Acquire(ctx)
	if err != nil {
		log.Fatal(err)
	}
	if err := s.Conn().Delete(hold.Node(), -1); err != nil { // as a crash would, when the session expires
		log.Fatal(err)
	}
	<-hold.Lost()
	_ = hold.Release(ctx)

	_, err = m.TryAcquire(ctx)
	var why *zklock.Error
	if errors.Is(err, zklock.ErrNotAcquired) && errors.As(err, &why) {
		fmt.Println("no grant for", time.Until(why.DelayUntil).Round(5*time.Second))
	}
	// Output: no grant for 15s
}

// Each host calls this at its own time, and one of them makes the backup of the day. All others
// wait for it, and then find it made.
func ExampleMutex_Once() {
	ctx, s, stop := exampleSession()
	defer stop()
	m, err := zklock.NewMutex(s, "/locks/nightly")
	if err != nil {
		log.Fatal(err)
	}
	for range 2 {
		ran, err := m.Once(ctx, "2026-07-01", func(ctx context.Context, hold *zklock.Hold) error {
			return nil // make the backup
		})
		if errors.Is(err, zklock.ErrNotMarked) {
			log.Print("the backup is made, and may be made again: ", err)
		} else if err != nil {
			log.Fatal(err)
		}
		fmt.Println("made here:", ran)
	}
	// Output:
	// made here: true
	// made here: false
}

func ExampleOnceRun() {
	ctx, s, stop := exampleSession()
	defer stop()
	m, err := zklock.NewMutex(s, "/locks/deploy", zklock.WithData([]byte("ci-3")))
	if err != nil {
		log.Fatal(err)
	}
	for _, version := range []string{"v1.9", "v1.10", "v1.9"} {
		if _, err := m.Once(ctx, version, func(context.Context, *zklock.Hold) error { return nil }); err != nil {
			log.Fatal(err)
		}
	}
	runs, err := m.Runs(ctx)
	if err != nil {
		log.Fatal(err)
	}
	for _, r := range runs {
		fmt.Println(r.Key, "by", r.By)
	}
	// Output:
	// v1.9 by ci-3
	// v1.10 by ci-3
}

// The keys are the numbers of orders: more than a hundred other keys may precede a repeated one.
func ExampleWithKeptRuns() {
	ctx, s, stop := exampleSession()
	defer stop()
	m, err := zklock.NewMutex(s, "/locks/invoices", zklock.WithKeptRuns(1000))
	if err != nil {
		log.Fatal(err)
	}
	for _, order := range []string{"4711", "4712", "4711"} {
		ran, err := m.Once(ctx, order, func(context.Context, *zklock.Hold) error { return nil })
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(order, ran)
	}
	// Output:
	// 4711 true
	// 4712 true
	// 4711 false
}

func ExampleWithMinHold() {
	ctx, s, stop := exampleSession()
	defer stop()
	// The clocks of the hosts are less than a minute apart, and the job starts each hour.
	m, err := zklock.NewMutex(s, "/locks/hourly", zklock.WithMinHold(time.Minute))
	if err != nil {
		log.Fatal(err)
	}
	for _, host := range []string{"a", "b"} {
		err := m.TryDo(ctx, func(context.Context, *zklock.Hold) error {
			fmt.Println("runs on", host)
			return nil
		})
		if errors.Is(err, zklock.ErrNotAcquired) {
			fmt.Println("has run, or runs, elsewhere than on", host)
		}
	}
	// Output:
	// runs on a
	// has run, or runs, elsewhere than on b
}

func ExampleValidatePath() {
	fmt.Println(zklock.ValidatePath("/locks/orders"))
	fmt.Println(zklock.ValidatePath("locks/orders/"))
	// Output:
	// <nil>
	// path "locks/orders/" is relative: it must begin with a slash
}

// The name of an order comes from outside, and may contain any character.
func ExamplePathOf() {
	for _, name := range []string{"4711", "east/4711", "*.example.com", "..", "Größe 7", ""} {
		fmt.Println(zklock.PathOf("/locks/orders", name))
	}
	name, err := url.PathUnescape(path.Base(zklock.PathOf("/locks/orders", "east/4711")))
	fmt.Println(name, err)
	// Output:
	// /locks/orders/4711
	// /locks/orders/east%2F4711
	// /locks/orders/%2A.example.com
	// /locks/orders/%2E.
	// /locks/orders/Gr%C3%B6%C3%9Fe%207
	// /locks/orders/%
	// east/4711 <nil>
}

// ensembleOf returns the ensemble of a lock. The names must be the same in every client, and must
// not change when addresses change.
func ensembleOf(path string, ensembles []string) (at int) {
	var most uint64
	for i, name := range ensembles {
		sum := sha256.Sum256([]byte(name + "\x00" + path))
		if n := binary.BigEndian.Uint64(sum[:]); i == 0 || n > most {
			at, most = i, n
		}
	}
	return at
}

// Locks are distributed over ensembles by their paths; see docs/performance.md. When an ensemble is
// added, only the locks that it gets move.
func Example_severalEnsembles() {
	three, four := []string{"north", "south", "east"}, []string{"north", "south", "east", "west"}
	got, moved, astray := make([]int, len(four)), 0, 0
	for i := range 12_000 {
		path := fmt.Sprintf("/locks/order-%05d", i)
		before, after := ensembleOf(path, three), ensembleOf(path, four)
		got[after]++
		if before != after {
			moved++
			if four[after] != "west" {
				astray++
			}
		}
	}
	for i, n := range got {
		fmt.Println(four[i], n > 2700 && n < 3300)
	}
	fmt.Println(moved == got[3], astray)
	// Output:
	// north true
	// south true
	// east true
	// west true
	// true 0
}

// The database that the fencing example writes to.

// reportsTable is a database with one table of one row, (name 'nightly', body, token), and one
// statement: saveReport's conditional update, executed as one step as every SQL database does.
type reportsTable struct {
	mu    sync.Mutex
	body  string
	token int64
}

func (r *reportsTable) Connect(context.Context) (driver.Conn, error) { return reportsConn{r}, nil }

func (r *reportsTable) Driver() driver.Driver { return nil }

type reportsConn struct{ *reportsTable }

var errOneStatement = errors.New("this database knows one statement")

func (reportsConn) Prepare(string) (driver.Stmt, error) { return nil, errOneStatement }

func (reportsConn) Begin() (driver.Tx, error) { return nil, errOneStatement }

func (reportsConn) Close() error { return nil }

func (r reportsConn) ExecContext(_ context.Context, _ string, args []driver.NamedValue) (driver.Result, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	body, token := args[0].Value.(string), args[1].Value.(int64)
	if r.token > token { // WHERE token <= $2
		return driver.RowsAffected(0), nil
	}
	r.body, r.token = body, token
	return driver.RowsAffected(1), nil
}

// openReports returns the database, and a function that returns the content of its row.
func openReports() (db *sql.DB, body func() string) {
	r := &reportsTable{}
	return sql.OpenDB(r), func() string {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.body
	}
}
