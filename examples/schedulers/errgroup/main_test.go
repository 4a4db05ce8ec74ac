package main

// These tests attack the end of the service: by a signal, by work that fails, by the web server.
// Each time the next replica leads, and not before.

import (
	"context"
	"errors"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/zktest"
)

// replica is a started service. Its terms arrive at the channel, and end with the value that the
// test sends back.
type replica struct {
	web   net.Listener
	terms chan error
	stop  context.CancelFunc
	ended chan error
}

func start(t *testing.T, srv *zktest.Server) *replica {
	s, err := zklock.Connect(t.Context(), srv.Addr())
	if err != nil {
		t.Fatal(err)
	}
	r := &replica{terms: make(chan error), ended: make(chan error, 1)}
	if r.web, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	r.stop = stop
	go func() {
		r.ended <- run(ctx, s, r.web, func(ctx context.Context, _ *zklock.Hold) error {
			r.terms <- nil
			select {
			case err := <-r.terms:
				return err
			case <-ctx.Done():
				<-r.terms // a while after
				return context.Cause(ctx)
			}
		})
	}()
	return r
}

func TestErrgroup_OneEnds_AllEndAndTheNextLeads(t *testing.T) {
	broken := errors.New("the disk is full")
	for how, end := range map[string]func(t *testing.T, r, next *replica) error{
		"a signal":       func(t *testing.T, r, next *replica) error { r.stop(); r.finish(t, next); return context.Canceled },
		"the work fails": func(_ *testing.T, r, _ *replica) error { r.terms <- broken; return broken },
		"the web server": func(t *testing.T, r, next *replica) error { r.web.Close(); r.finish(t, next); return net.ErrClosed },
	} {
		t.Run(how, func(t *testing.T) {
			srv := zktest.Start(t)
			first := start(t, srv)
			<-first.terms
			if answer, err := http.Get("http://" + first.web.Addr().String()); err != nil {
				t.Error(err)
			} else {
				answer.Body.Close()
			}
			second := start(t, srv)
			want := end(t, first, second)
			<-second.terms
			if err := <-first.ended; !errors.Is(err, want) {
				t.Error(err)
			}
			second.stop()
			second.terms <- nil
			<-second.ended
		})
	}
}

// finish ends the term. A service that does not wait for it is detected before.
func (r *replica) finish(t *testing.T, next *replica) {
	select {
	case err := <-r.ended:
		t.Error("it has ended before its work:", err)
	case <-next.terms:
		t.Fatal("two lead at a time")
	case <-time.After(50 * time.Millisecond):
	}
	r.terms <- nil
}
