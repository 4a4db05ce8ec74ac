package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/zktest"
)

// Ten hosts start at once: one of them works.
func TestNightly_TenHosts_OneWorks(t *testing.T) {
	srv, report := zktest.Start(t), filepath.Join(t.TempDir(), "today.txt")
	const hosts = 10
	worked, ended := make(chan bool, hosts), make(chan error, hosts)
	for range hosts {
		go func() {
			ended <- nightly(t.Context(), srv.Addr(), report, func(context.Context) ([]byte, error) {
				worked <- true
				return []byte("done"), nil
			})
		}()
	}
	for range hosts {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	if body, err := os.ReadFile(report); err != nil || string(body) != "done" || len(worked) != 1 {
		t.Errorf("the report says %q, %v; %d hosts worked", body, err, len(worked))
	}
	if left := srv.Children("/locks/nightly"); len(left) > 0 {
		t.Error("left in the queue:", left)
	}
}

// The first host's session ends while it works: its work stops, and the next host does it.
func TestNightly_HolderLost_TheNextWorks(t *testing.T) {
	srv, report := zktest.Start(t), filepath.Join(t.TempDir(), "today.txt")
	working, first, second := make(chan bool), make(chan error, 1), make(chan error, 1)
	go func() {
		first <- nightly(t.Context(), srv.Addr(), report, func(ctx context.Context) ([]byte, error) {
			close(working)
			<-ctx.Done() // no time-out: the test fails by its own if the lock's loss does not end ctx
			return nil, context.Cause(ctx)
		})
	}()
	<-working
	holder := srv.Sessions()[0]
	go func() {
		second <- nightly(t.Context(), srv.Addr(), report, func(context.Context) ([]byte, error) {
			return []byte("by the second"), nil
		})
	}()
	srv.ExpireSession(holder.ID)
	if err := <-first; !errors.Is(err, zklock.ErrLost) {
		t.Error("the first host:", err)
	}
	if err := <-second; err != nil {
		t.Error("the second host:", err)
	}
	if body, err := os.ReadFile(report); err != nil || string(body) != "by the second" {
		t.Errorf("the report says %q, %v", body, err)
	}
}
