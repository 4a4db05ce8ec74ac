package zklock_test

// The benchmarks measure an acquire and a release, with traces and without, the check of a
// sequencer compared to a write, and a Session with its memory.

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/zktest"
)

// The library runs against the in-process server, over an in-memory network, so these figures
// contain the library's own work and the test server's. `make bench` compares it with other locks,
// on a real server.

func benchSession(b *testing.B, n *zktest.Network, srv *zktest.Server, opts ...zklock.Option) *zklock.Session {
	s, err := zklock.Connect(b.Context(), srv.Addr(), append(opts, zklock.WithDialer(n.Dial), zklock.WithLogger(slog.New(slog.DiscardHandler)))...)
	require.NoError(b, err)
	b.Cleanup(func() { _ = s.Close() })
	return s
}

// BenchmarkAcquire measures an acquire with its release, uncontended and among owners of one
// Session and of several.
func BenchmarkAcquire(b *testing.B) {
	for _, sessions := range []int{1, 8} {
		for _, owners := range []int{1, 8} {
			b.Run(fmt.Sprintf("sessions=%d/owners=%d", sessions, owners), func(b *testing.B) {
				n := zktest.NewNetwork()
				srv := zktest.Start(b, zktest.WithNetwork(n))
				turns := make(chan struct{}, b.N)
				for range b.N {
					turns <- struct{}{}
				}
				close(turns)
				done := make(chan error, sessions*owners)
				var ms []*zklock.Mutex
				for range sessions {
					m, err := zklock.NewMutex(benchSession(b, n, srv), "/bench")
					require.NoError(b, err)
					ms = append(ms, m)
				}
				b.ReportAllocs()
				b.ResetTimer()
				for i := range sessions * owners {
					go func() {
						for range turns {
							h, err := ms[i%sessions].Acquire(b.Context())
							if err == nil {
								err = h.Release(b.Context())
							}
							if err != nil {
								done <- err
								return
							}
						}
						done <- nil
					}()
				}
				for range sessions * owners {
					require.NoError(b, <-done)
				}
			})
		}
	}
}

// BenchmarkTrace measures the cost of traces: an uncontended acquire with its release without a
// trace, with one that has no functions, and with one whose functions do nothing.
func BenchmarkTrace(b *testing.B) {
	for name, opts := range map[string][]zklock.Option{
		"none":  nil,
		"empty": {zklock.WithTrace(&zklock.Trace{})},
		"all": {zklock.WithTrace(&zklock.Trace{
			AcquireStart: func(ctx context.Context, _ zklock.AcquireInfo) context.Context { return ctx },
			AcquireEnd:   func(context.Context, zklock.AcquireEndInfo) {},
			HoldLost:     func(context.Context, zklock.HoldInfo) {},
			HoldEnd:      func(context.Context, zklock.HoldInfo) {},
		})},
	} {
		b.Run(name, func(b *testing.B) {
			n := zktest.NewNetwork()
			srv := zktest.Start(b, zktest.WithNetwork(n))
			m, err := zklock.NewMutex(benchSession(b, n, srv, opts...), "/bench")
			require.NoError(b, err)
			b.ReportAllocs()
			for b.Loop() {
				h, err := m.Acquire(b.Context())
				if err == nil {
					err = h.Release(b.Context())
				}
				if err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkCheckSequencer measures a check of a sequencer, and for comparison a write and a read of
// one node, each over its own Session, one at a time and 16 in parallel. ZKLOCK_TEST_REAL=1 runs it
// on a real server.
func BenchmarkCheckSequencer(b *testing.B) {
	srv := target(b)
	p := lockPath(b, srv)
	s := connect(b, srv, zklock.WithLogger(slog.New(slog.DiscardHandler)))
	text := acquire(b, newMutex(b, connect(b, srv), p)).Sequencer().String()
	for _, parallel := range []int{1, 16} {
		for _, what := range []struct {
			name string
			do   func() error
		}{
			{"check", func() error { return s.CheckSequencer(b.Context(), p, text) }},
			{"setData", func() error { _, err := s.Conn().Set(p, nil, -1); return err }},
			{"exists", func() error { _, _, err := s.Conn().Exists(p); return err }},
		} {
			b.Run(fmt.Sprintf("parallel=%d/%s", parallel, what.name), func(b *testing.B) {
				turns, done := make(chan struct{}), make(chan error, parallel)
				for range parallel {
					go func() {
						var err error
						for range turns {
							if err == nil {
								err = what.do()
							}
						}
						done <- err
					}()
				}
				b.ResetTimer()
				for range b.N {
					turns <- struct{}{}
				}
				close(turns)
				for range parallel {
					require.NoError(b, <-done)
				}
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "ops/s")
			})
		}
	}
}

// BenchmarkSession measures Connect, and the heap of a Session: mostly go-zookeeper's two buffers.
// On Linux it also measures the machine's memory, which is less, because the buffers are touched
// only as far as they are used. Both include the test server's side of the connection.
func BenchmarkSession(b *testing.B) {
	n := zktest.NewNetwork()
	srv := zktest.Start(b, zktest.WithNetwork(n))
	benchSession(b, n, srv)
	debug.FreeOSMemory()
	heapBefore, residentBefore := heap(), resident()
	b.ResetTimer()
	for range b.N {
		benchSession(b, n, srv)
	}
	b.StopTimer()
	b.ReportMetric(float64(heap()-heapBefore)/1024/float64(b.N), "heap-KB/session")
	if residentBefore > 0 {
		b.ReportMetric(float64(resident()-residentBefore)/1024/float64(b.N), "resident-KB/session")
	}
}

// resident returns the resident memory of this process in bytes, if the kernel reports it.
func resident() (bytes int64) {
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	var size, pages int64
	_, _ = fmt.Sscan(string(text), &size, &pages)
	return pages * int64(os.Getpagesize())
}
