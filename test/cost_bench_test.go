package zklock_test

// The benchmark times an acquire and a release.

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
