package zklockprom_test

// The benchmark times an acquire and its release, uncontended, with no trace, with an empty one and
// with a Metrics.

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/contrib/zklockprom"
	"github.com/zklock/zklock/zktest"
)

// BenchmarkAcquire alternates: a hundred cycles without a trace, a hundred with an empty one, a
// hundred with a Metrics. So any other load on the machine affects all three. It reports the time
// of each, and the ratios to the first.
func BenchmarkAcquire(b *testing.B) {
	const turn = 100
	n := zktest.NewNetwork()
	srv := zktest.Start(b, zktest.WithNetwork(n))
	metrics := zklockprom.New()
	kinds := []struct {
		name string
		opts []zklock.Option
		m    *zklock.Mutex
		took time.Duration
	}{{name: "none"}, {name: "empty", opts: []zklock.Option{zklock.WithTrace(&zklock.Trace{})}}, {name: "metrics", opts: []zklock.Option{metrics.Option()}}}
	for i := range kinds {
		s := connectTo(b, srv, append(kinds[i].opts, zklock.WithDialer(n.Dial))...)
		b.Cleanup(func() { _ = s.Close() })
		kinds[i].m = newMutex(b, s, "/"+kinds[i].name)
		release(b, acquire(b, kinds[i].m))
	}
	b.ResetTimer()
	for i := range b.N {
		for j := range kinds {
			k := &kinds[(i+j)%len(kinds)] // none is always first
			start := time.Now()
			for range turn {
				h, err := k.m.Acquire(context.Background())
				if err == nil {
					err = h.Release(context.Background())
				}
				require.NoError(b, err)
			}
			k.took += time.Since(start)
		}
	}
	b.ReportMetric(0, "ns/op")
	for _, k := range kinds {
		b.ReportMetric(float64(k.took.Microseconds())/float64(b.N*turn), k.name+"-µs/cycle")
	}
	b.ReportMetric(float64(kinds[1].took)/float64(kinds[0].took), "empty/none")
	b.ReportMetric(float64(kinds[2].took)/float64(kinds[0].took), "metrics/none")
}
