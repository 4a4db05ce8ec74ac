package zklock_test

// The server and the Session that the examples use.

import (
	"context"
	"log/slog"
	"time"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/zktest"
)

// exampleZooKeeper is a ZooKeeper server for one example, in this process, and a context for what the example asks of
// it. It keeps the log, which goes to slog.Default() unless a Session is told otherwise, out of the examples' way.
func exampleZooKeeper() (ctx context.Context, srv *zktest.Server, stop func()) {
	srv, err := zktest.NewServer(zktest.WithSessionTimeouts(time.Second, time.Minute))
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

// exampleServer is such a server's connection string.
func exampleServer() (ctx context.Context, servers string, stop func()) {
	ctx, srv, stop := exampleZooKeeper()
	return ctx, srv.Addr(), stop
}

// exampleSession is a Session with such a server.
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
