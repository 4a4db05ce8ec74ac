package zklock_test

// The benchmarks time an acquire and a release, and the check of a sequencer beside a write.

import (
	"fmt"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/zktest"
)

// The recipe against the in-process server, over an in-memory network: what these figures hold is the library's own work and the
// test server's. `make bench` measures it beside other locks, on a real server.

func benchSession(b *testing.B, n *zktest.Network, srv *zktest.Server) *zklock.Session {
	s, err := zklock.Connect(b.Context(), srv.Addr(), zklock.WithDialer(n.Dial), zklock.WithLogger(slog.New(slog.DiscardHandler)))
	require.NoError(b, err)
	b.Cleanup(func() { _ = s.Close() })
	return s
}

// BenchmarkAcquire is an acquire with its release, free and among owners of one Session and of several.
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

// BenchmarkCheckSequencer is a check of a sequencer, and beside it a write and a read of one node, over one Session each, one at a
// time and 16. ZKLOCK_TEST_REAL=1 runs it on a real server.
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
			{"check", func() error { return zklock.CheckSequencer(b.Context(), s, p, text) }},
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
