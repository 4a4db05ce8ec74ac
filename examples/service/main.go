// Command service is an HTTP service with several replicas. Each of them serves requests and
// observes the leader. The leader also sweeps.
//
//	ZKLOCK_SERVERS=127.0.0.1:2181 LISTEN=127.0.0.1:8080 go run ./examples/service
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/zklock/zklock"
)

// The steps of a stop, counted from the signal. With Close, which takes 4 s at most, a stop takes
// at most 24 s. Kubernetes kills after 30.
const (
	drain  = 5 * time.Second  // until then requests arrive as before, because a load balancer learns late that the replica is not ready
	finish = 15 * time.Second // then the context of a sweep ends
	giveUp = 20 * time.Second // then the service waits for nothing any more
)

var errNotHandedOver = errors.New("the leader's work or its release has not ended in time")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	connecting, cancel := context.WithTimeout(ctx, time.Minute)
	session, err := zklock.Connect(connecting, os.Getenv("ZKLOCK_SERVERS"))
	if cancel(); err != nil {
		log.Fatal(err)
	}
	listener, err := net.Listen("tcp", cmp.Or(os.Getenv("LISTEN"), "127.0.0.1:8080"))
	if err != nil {
		log.Fatal(err)
	}
	sweep := func(context.Context) error { log.Print("sweeping"); return nil } // your work
	err = run(ctx, session, listener, sweep)
	if log.Print("stopped: ", err); ctx.Err() == nil || errors.Is(err, errNotHandedOver) {
		os.Exit(1)
	}
}

type service struct {
	session  *zklock.Session
	election *zklock.Election
	sweep    func(context.Context) error
	leader   atomic.Value // the address of the replica that leads, "" if none leads or the leader is unknown
	stopping atomic.Bool
}

// run serves until ctx ends, or until the Session or the HTTP server fails. Then it stops
// everything in order. When it has returned, the process must end: after errNotHandedOver, the
// sweep may still be running.
func run(ctx context.Context, session *zklock.Session, listener net.Listener, sweep func(context.Context) error) error {
	e, err := zklock.NewElection(session, "/elections/sweep", zklock.WithData([]byte(listener.Addr().String())))
	if err != nil {
		return err
	}
	v := &service{session: session, election: e, sweep: sweep}
	v.leader.Store("")
	web := &http.Server{Handler: v}
	ctx, stop := context.WithCancelCause(ctx)
	led := make(chan error, 1)
	go func() { stop(web.Serve(listener)) }()
	go v.follow(ctx)
	go func() {
		err := v.election.Run(ctx, v.lead)
		stop(err)
		led <- err
	}()
	<-ctx.Done()
	return v.shutdown(web, led)
}

// lead sweeps while this replica leads: ctx ends when the leadership is lost, and when the service
// stops.
func (v *service) lead(ctx context.Context, hold *zklock.Hold) error {
	for ; ctx.Err() == nil; pause(ctx, time.Second) {
		if err := v.sweepOnce(ctx, hold); err != nil {
			return err
		}
	}
	return context.Cause(ctx)
}

// sweepOnce ends the sweep's context when the leadership is lost. When the service stops, the sweep
// may finish, but only until a deadline.
func (v *service) sweepOnce(ctx context.Context, hold *zklock.Hold) error {
	work, cancel := context.WithCancel(hold.Context())
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(finish, cancel) })()
	return v.sweep(work)
}

// shutdown stops the service in order, and within 24 s.
func (v *service) shutdown(web *http.Server, led <-chan error) error {
	late := time.After(giveUp)
	v.stopping.Store(true) // /readyz fails first
	time.Sleep(drain)
	answering, cancel := context.WithTimeout(context.Background(), finish-drain)
	defer cancel()
	err := web.Shutdown(answering) // no new requests; waits for those that have begun
	select {
	case ledErr := <-led: // the sweep has returned, and the leadership is released
		return errors.Join(err, ledErr, v.session.Close())
	case <-late: // no Close: it would let the next leader in beside a sweep that is still running
		return errors.Join(err, errNotHandedOver)
	}
}

// follow keeps track of the leader, for requests that only the leader may serve.
func (v *service) follow(ctx context.Context) {
	for leader, err := range v.election.Observe(ctx) {
		if err != nil && ctx.Err() == nil {
			log.Print("who leads is not known: ", err)
		}
		v.leader.Store(string(leader.Data))
	}
}

// ServeHTTP serves /leader, /healthz and, for a service whose requests need ZooKeeper, /readyz.
func (v *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	now := v.session.Stats()
	switch {
	case r.URL.Path == "/leader":
		fmt.Fprintf(w, "%s leads; this replica: %t\n", v.leader.Load(), v.election.Hold() != nil)
	case now.State == zklock.StateClosed, r.URL.Path == "/readyz" && now.Server == "":
		http.Error(w, now.State.String(), http.StatusServiceUnavailable)
	case r.URL.Path == "/readyz" && v.stopping.Load():
		http.Error(w, "stopping", http.StatusServiceUnavailable)
	}
}

func pause(ctx context.Context, d time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	<-ctx.Done()
}
