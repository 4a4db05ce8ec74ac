package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/zktest"
)

// start runs the service until stop, which returns when it has ended. Its sweeps arrive at the
// channel, and end when the test closes them.
func start(t *testing.T, servers string, sweeps chan *zklock.Hold) (url string, stop func()) {
	web, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- run(ctx, servers, web, func(_ context.Context, h *zklock.Hold) error {
			select {
			case sweeps <- h:
				<-sweeps
			case <-ctx.Done():
			}
			return nil
		})
	}()
	return "http://" + web.Addr().String() + "/metrics", func() { cancel(); <-ended }
}

func scrape(t *testing.T, url string) string {
	answer, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// A sweep that continues after the loss of its lock shows while it runs, and then as an overrun.
func TestMetrics_SweepOutlivesItsLock_Shows(t *testing.T) {
	srv, sweeps := zktest.Start(t), make(chan *zklock.Hold)
	url, stop := start(t, srv.Addr(), sweeps)
	defer stop()
	hold := <-sweeps
	shows := func(series ...string) {
		t.Helper()
		text := scrape(t, url)
		for _, one := range series {
			if !strings.Contains(text, "\n"+one+"\n") {
				t.Errorf("no %s in\n%s", one, text)
			}
		}
	}
	shows(`zklock_holds 1`, `zklock_sessions_attached 1`, `zklock_acquire_duration_seconds_count{kind="mutex",lock="sweep",outcome="acquired"} 1`)
	srv.ExpireSession(srv.Sessions()[0].ID)
	<-hold.Lost()
	shows(`zklock_holds_lost_unreleased 1`)
	sweeps <- nil
	<-sweeps // the next has begun, so the one before was released
	shows(`zklock_holds_lost_unreleased 0`, `zklock_overrun_seconds_count{lock="sweep"} 1`, `zklock_holds_lost_total{lock="sweep",reason="session_ended"} 1`)
	sweeps <- nil
}
