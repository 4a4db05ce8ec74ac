package main

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/zktest"
)

func connect(t *testing.T, srv *zktest.Server) *zklock.Session {
	s, err := zklock.Connect(t.Context(), srv.Addr())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// start runs a replica until stop. Its sweeps arrive at the channel, and end when the test says so.
func start(t *testing.T, s *zklock.Session, sweeps chan context.Context) (stop func(), ended chan error) {
	ctx, cancel := context.WithCancel(t.Context())
	ended = make(chan error, 1)
	go func() {
		ended <- run(ctx, s, &http.Server{Addr: "127.0.0.1:0", Handler: health(s)}, func(ctx context.Context) error {
			sweeps <- ctx
			<-sweeps
			return ctx.Err()
		})
	}()
	return cancel, ended
}

// A service that is stopped in the middle of a sweep finishes it, and releases: the next leader follows.
func TestService_Stopped_FinishesReleasesAndHandsOver(t *testing.T) {
	srv := zktest.Start(t)
	first, second := make(chan context.Context), make(chan context.Context)
	stopFirst, firstEnded := start(t, connect(t, srv), first)
	sweep := <-first
	stopSecond, secondEnded := start(t, connect(t, srv), second)
	stopFirst()
	select {
	case <-sweep.Done():
		t.Error("the sweep was cut short")
	case <-second:
		t.Error("two sweep at a time")
	case <-time.After(100 * time.Millisecond): // a stop that does not wait shows here
	}
	close(first)
	<-second
	stopSecond()
	close(second)
	if err := errors.Join(<-firstEnded, <-secondEnded); errors.Is(err, zklock.ErrNotConfirmed) {
		t.Error(err)
	}
}

// While no server can be reached the service is alive and not ready; closed, it is neither.
func TestService_Health(t *testing.T) {
	srv := zktest.Start(t)
	s := connect(t, srv)
	answers := func(alive, ready int) {
		for path, want := range map[string]int{"/healthz": alive, "/readyz": ready} {
			w := httptest.NewRecorder()
			if health(s)(w, httptest.NewRequest("GET", path, nil)); w.Code != want {
				t.Error(s.State(), path, w.Code)
			}
		}
	}
	answers(200, 200)
	changes := s.Changes(t.Context())
	srv.Stop()
	<-changes // Suspended
	answers(200, 503)
	s.Close()
	answers(503, 503)
}
