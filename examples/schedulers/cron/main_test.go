package main

// These tests attack the job of three hosts, in virtual time: more or fewer than one run an hour, a
// run that does not end with its lock, or after the end of the program.

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/zktest"
)

// inVirtualTime gives f Sessions of one server, which have few heartbeats in an hour.
func inVirtualTime(t *testing.T, f func(t *testing.T, srv *zktest.Server, connect func() *zklock.Session)) {
	synctest.Test(t, func(t *testing.T) {
		net := zktest.NewNetwork()
		srv := zktest.Start(t, zktest.WithNetwork(net), zktest.WithConfig("tickTime=60000"))
		f(t, srv, func() *zklock.Session {
			s, err := zklock.Connect(t.Context(), srv.Addr(), zklock.WithDialer(net.Dial), zklock.WithSessionTimeout(10*time.Minute))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { s.Close() })
			return s
		})
	})
}

func TestCron_ThreeHosts_OneRunAnHour(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, _ *zktest.Server, connect func() *zklock.Session) {
		ctx, stop := context.WithTimeout(t.Context(), 3*time.Hour+time.Second)
		defer stop()
		var runs atomic.Int32
		ended := make(chan error, 3)
		for range 3 {
			s := connect()
			go func() { ended <- run(ctx, s, func(context.Context) error { runs.Add(1); return nil }) }()
		}
		if err := errors.Join(<-ended, <-ended, <-ended); err != nil {
			t.Error(err)
		}
		if n := runs.Load(); n != 3 {
			t.Errorf("%d runs in three hours", n)
		}
	})
}

// The context of a run ends when its lock is lost. At the end, the program waits for a run that has
// begun.
func TestCron_LockLost_JobEnds(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, srv *zktest.Server, connect func() *zklock.Session) {
		s := connect()
		ctx, stop := context.WithCancel(t.Context())
		var cause error
		runs, whole := 0, 0
		err := run(ctx, s, func(ctx context.Context) error {
			if runs++; runs == 1 {
				srv.ExpireSession(s.Stats().SessionID)
				<-ctx.Done()
				cause = context.Cause(ctx)
				return cause
			}
			stop()
			time.Sleep(time.Minute)
			whole++
			return nil
		})
		if err != nil || !errors.Is(cause, zklock.ErrLost) || runs != 2 || whole != 1 {
			t.Error(err, cause, runs, whole)
		}
	})
}
