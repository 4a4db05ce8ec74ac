package conformance

// A real ZooKeeper as a child process.

import (
	"testing"
	"time"

	"github.com/zklock/zklock/internal/zkserver"
)

// startReal runs a real server for the length of the test and returns its address. It skips or
// fails the test without one, as zkserver does.
func startReal(t testing.TB, opts ...zkserver.Option) string {
	t.Helper()
	return zkserver.Single(t, append([]zkserver.Option{
		zkserver.TickTime(2 * time.Second),
		zkserver.SessionTimeouts(4*time.Second, 40*time.Second), // as two and twenty ticks, which are ZooKeeper's defaults
		zkserver.Property("zookeeper.extendedTypesEnabled", "true"),
		zkserver.Property("znode.container.checkIntervalMs", "86400000"),
		zkserver.Property("zookeeper.DigestAuthenticationProvider.superDigest", superDigest),
		zkserver.Property("zookeeper.snapCount", "10000000"),
	}, opts...)...).Addr()
}
