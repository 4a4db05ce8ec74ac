package zklockprom_test

// The example is the README's.

import (
	"context"
	"log"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/contrib/zklockprom"
)

func ExampleNew() {
	ctx, servers := context.Background(), "zk1:2181,zk2:2181,zk3:2181"
	metrics := zklockprom.New()
	prometheus.MustRegister(metrics)
	s, err := zklock.Connect(ctx, servers, metrics.Option())
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	metrics.Watch(s)
}
