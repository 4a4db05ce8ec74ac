package main

// These tests attack the start and the stop: a stop that does not wait for the work, and work that
// fails, after which the program ends.

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.uber.org/fx"
	"go.uber.org/fx/fxtest"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/zktest"
)

// start starts a program. Its terms arrive at the channel.
func start(t *testing.T, srv *zktest.Server, terms chan<- string, name string, lead func(context.Context) error) *fxtest.App {
	return fxtest.New(t, module, fx.NopLogger, fx.Supply(servers(srv.Addr()), work(func(ctx context.Context, _ *zklock.Hold) error {
		terms <- name
		return lead(ctx)
	}))).RequireStart()
}

func TestFx_Stop_WaitsForTheWorkAndHandsOver(t *testing.T) {
	srv, terms, finish := zktest.Start(t), make(chan string), make(chan bool)
	slow := func(ctx context.Context) error { <-ctx.Done(); <-finish; return context.Cause(ctx) }
	first := start(t, srv, terms, "first", slow)
	<-terms
	second := start(t, srv, terms, "second", slow)
	stopped := make(chan bool)
	go func() { first.RequireStop(); close(stopped) }()
	select {
	case <-stopped:
		t.Error("stopped before its work")
	case name := <-terms:
		t.Error(name, "leads, too")
	case <-time.After(50 * time.Millisecond): // a stop that does not wait shows here
	}
	close(finish)
	if name := <-terms; name != "second" {
		t.Error(name)
	}
	<-stopped
	second.RequireStop()
}

func TestFx_WorkFails_ProgramEnds(t *testing.T) {
	srv, terms := zktest.Start(t), make(chan string, 1)
	p := start(t, srv, terms, "first", func(context.Context) error { return errors.New("the disk is full") })
	if end := <-p.Wait(); end.ExitCode != 1 {
		t.Error(end)
	}
	p.RequireStop()
}
