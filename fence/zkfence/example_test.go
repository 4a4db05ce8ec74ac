package zkfence_test

// A service that accepts requests only from holders.

import (
	"context"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/fence"
	"github.com/zklock/zklock/fence/zkfence"
	"github.com/zklock/zklock/zktest"
)

// guarded rejects the report of a client that is late, or holds nothing.
func guarded(s *zklock.Session, reports http.Handler) http.Handler {
	gate := &fence.Gate{
		Guard: fence.NewGuard(fence.NewMemory(1000)),
		Parse: zkfence.ParseExclusive,
		Check: zkfence.Check(s, time.Second),
	}
	return gate.Handler(reports, func(r *http.Request) (lock string, guarded bool) {
		return "/locks/report", r.Method != http.MethodGet
	})
}

// send posts under a hold, and returns the status.
func send(url string, hold *zklock.Hold) int {
	client := http.Client{Transport: &fence.Transport{Sequencer: func(context.Context) (string, bool) {
		return hold.Sequencer().String(), true
	}}}
	resp, err := client.Post(url, "text/plain", nil)
	if err != nil {
		log.Fatal(err)
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode
}

// A is late after a request of B. A service that was restarted has seen neither, and asks the
// ensemble.
func ExampleCheck() {
	ctx, s, stop := exampleSession()
	defer stop()
	m, _ := zklock.NewMutex(s, "/locks/report")
	save := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "saved") })

	srv := httptest.NewServer(guarded(s, save))
	a, err := m.Acquire(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("A:", send(srv.URL, a))
	_ = a.Release(ctx)
	b, err := m.Acquire(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer b.Release(ctx)
	fmt.Println("B:", send(srv.URL, b))
	fmt.Println("A:", send(srv.URL, a))
	srv.Close()

	srv = httptest.NewServer(guarded(s, save))
	defer srv.Close()
	fmt.Println("restarted, A:", send(srv.URL, a), "B:", send(srv.URL, b))
	// Output:
	// A: 200
	// B: 200
	// A: 412
	// restarted, A: 412 B: 200
}

// Several clients hold permits at a time.
func ExampleParse() {
	ctx, s, stop := exampleSession()
	defer stop()
	sem, _ := zklock.NewSemaphore(s, "/imports", 3)
	hold, err := sem.Acquire(ctx, 2)
	if err != nil {
		log.Fatal(err)
	}
	defer hold.Release(ctx)
	text := hold.Sequencer().String()
	c, err := zkfence.Parse(text)
	fmt.Println(c.Resource, c.Shared, err)
	_, err = zkfence.ParseExclusive(text)
	fmt.Println(err)
	// Output:
	// /imports true <nil>
	// others may hold beside it, and this needs the lock alone
}

// exampleSession is a Session with a server inside this process, in the role of the ensemble.
func exampleSession() (ctx context.Context, s *zklock.Session, stop func()) {
	srv, err := zktest.NewServer()
	if err != nil {
		log.Fatal(err)
	}
	ctx = context.Background()
	s, err = zklock.Connect(ctx, srv.Addr(), zklock.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		log.Fatal(err)
	}
	return ctx, s, func() {
		_ = s.Close()
		srv.Close()
	}
}
