package main

// A service with a server of its own, as in the documentation: this compiles and runs.

import (
	"context"
	"testing"
	"time"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/zktest"
)

// realServer returns the address of a server of the test's own.
func realServer(t *testing.T) string {
	return serve(t, zooKeeper, Plan{Size: 1}).Addrs()[0]
}

func TestService_CutOffFromARealServer_StopsBeforeTheNextBegins(t *testing.T) {
	addr := realServer(t)               // yours: a container, an ensemble for tests
	proxy := zktest.StartProxy(t, addr) // before it, for one of two clients
	lock := func(addr string) *zklock.Hold {
		s, err := zklock.Connect(t.Context(), addr, zklock.WithSessionTimeout(2*time.Second), zklock.WithLease(zklock.SingleServerLease()))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		m, err := zklock.NewMutex(s, "/locks/service")
		if err != nil {
			t.Fatal(err)
		}
		hold, err := m.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return hold
	}
	first := lock(proxy.Addr())
	proxy.Freeze() // it holds all data back: neither side receives from the other
	second := lock(addr)
	if err := first.Err(); err == nil { // here your service checks whether it still works
		t.Error("two hold at once")
	}
	if second.Token() <= first.Token() {
		t.Errorf("token %d after %d", second.Token(), first.Token())
	}
	proxy.Thaw()
	if err := first.Release(context.Background()); err == nil {
		t.Error("a release of what was lost says that all is well")
	}
}
