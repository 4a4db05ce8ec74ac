package zklock_test

// A service that takes requests of holders only, with package fence.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/fence"
)

// reportsGate admits who holds a lock alone, and asks the ensemble where it has no token to compare with.
func reportsGate(s *zklock.Session) *fence.Gate {
	return &fence.Gate{
		Guard: fence.NewGuard(fence.NewMemory(1000)),
		Parse: func(text string) (fence.Claim, error) {
			q, err := zklock.ParseSequencer(text)
			if err == nil && q.Mode != "exclusive" {
				err = errors.New("who writes must hold the lock alone")
			}
			return fence.Claim{Resource: q.Path, Token: q.Token}, err
		},
		Check: func(ctx context.Context, lock, text string, known bool) error {
			if known {
				return nil
			}
			err := zklock.CheckSequencer(ctx, s, lock, text)
			if errors.Is(err, zklock.ErrNotHeld) || errors.Is(err, zklock.ErrOtherRoot) {
				err = fmt.Errorf("%w: %w", fence.ErrStale, err)
			}
			return err
		},
	}
}

// The service compares tokens. Restarted, it remembers none, and asks the ensemble.
func ExampleCheckSequencer_fence() {
	ctx, s, stop := exampleSession()
	defer stop()
	m, _ := zklock.NewMutex(s, "/locks/nightly")
	save := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "saved") })
	start := func() *httptest.Server {
		return httptest.NewServer(reportsGate(s).Handler(save, func(*http.Request) (string, bool) { return "/locks/nightly", true }))
	}
	post := func(srv *httptest.Server, hold *zklock.Hold) int {
		client := http.Client{Transport: &fence.Transport{Sequencer: func(context.Context) (string, bool) {
			return hold.Sequencer().String(), true
		}}}
		resp, err := client.Post(srv.URL, "text/plain", nil)
		if err != nil {
			log.Fatal(err)
		}
		defer resp.Body.Close()
		_, _ = io.Copy(io.Discard, resp.Body)
		return resp.StatusCode
	}

	srv := start()
	a, err := m.Acquire(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("A:", post(srv, a))
	_ = a.Release(ctx)
	b, err := m.Acquire(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer b.Release(ctx)
	fmt.Println("B:", post(srv, b))
	fmt.Println("A:", post(srv, a))
	srv.Close()

	srv = start()
	defer srv.Close()
	fmt.Println("restarted, A:", post(srv, a), "B:", post(srv, b))
	// Output:
	// A: 200
	// B: 200
	// A: 412
	// restarted, A: 412 B: 200
}
