package zklockprom_test

// The examples serve a Session's metrics, and keep the number of labels small.

import (
	"context"
	"fmt"
	"strings"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/common/expfmt"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/contrib/zklockprom"
	"github.com/zklock/zklock/zktest"
)

func Example() {
	srv, _ := zktest.NewServer() // in production, your servers
	defer srv.Close()
	metrics := zklockprom.New() // prometheus.MustRegister(metrics)
	s, err := zklock.Connect(context.Background(), srv.Addr(), metrics.Option())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer s.Close()
	metrics.Watch(s)

	m, _ := zklock.NewMutex(s, "/locks/report")
	_ = m.Do(context.Background(), func(context.Context, *zklock.Hold) error {
		fmt.Print(text(metrics, "zklock_holds", "zklock_sessions_attached"))
		return nil
	})
	fmt.Print(text(metrics, "zklock_holds"))
	// Output:
	// zklock_holds 1
	// zklock_sessions_attached 1
	// zklock_holds 0
}

// Orders have ids in their paths, and one name. What comes after the second name is together.
func ExampleWithMaxLocks() {
	srv, _ := zktest.NewServer()
	defer srv.Close()
	metrics := zklockprom.New(zklockprom.WithMaxLocks(2))
	s, err := zklock.Connect(context.Background(), srv.Addr(), metrics.Option())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer s.Close()
	for _, path := range []string{"/orders/4711", "/orders/4712", "/report", "/mail", "/backup"} {
		var opts []zklock.MutexOption
		if strings.HasPrefix(path, "/orders/") {
			opts = append(opts, zklock.WithName("orders"))
		}
		m, _ := zklock.NewMutex(s, path, opts...)
		_ = m.Do(context.Background(), func(context.Context, *zklock.Hold) error { return nil })
	}
	fmt.Print(text(metrics, "zklock_longest_hold_seconds"))
	// Output:
	// zklock_longest_hold_seconds{kind="mutex",lock="/report"} 0
	// zklock_longest_hold_seconds{kind="mutex",lock="_others"} 0
	// zklock_longest_hold_seconds{kind="mutex",lock="orders"} 0
}

// text returns the series of those metrics as Prometheus scrapes them.
func text(m *zklockprom.Metrics, names ...string) (series string) {
	all, _ := testutil.CollectAndFormat(m, expfmt.TypeTextPlain, names...)
	for line := range strings.Lines(string(all)) {
		if !strings.HasPrefix(line, "#") {
			series += line
		}
	}
	return series
}
