// Package integration has an example for the tests of a service that locks with zklock: they start
// ZooKeeper in a container with testcontainers-go. It also tests the repository's
// docker-compose.yml.
//
// It is a separate module, so that an importer of zklock does not download testcontainers-go. The
// image is ZOOKEEPER_IMAGE, or the official zookeeper:3.9; scripts/zookeeper-image builds an image
// where no registry can be reached.
package integration

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/wait"

	"github.com/zklock/zklock"
)

var image = cmp.Or(os.Getenv("ZOOKEEPER_IMAGE"), "zookeeper:3.9")

// needDocker skips the test if Docker does not respond, unless ZKLOCK_REQUIRE is 1.
func needDocker(t *testing.T) {
	t.Helper()
	if os.Getenv("ZKLOCK_REQUIRE") != "1" {
		testcontainers.SkipIfProviderIsNotHealthy(t)
	}
}

// startZooKeeper starts a server in a container that is removed with the test, and returns its
// address. The server listens before it serves, so the test waits until srvr has a mode.
func startZooKeeper(t *testing.T) (addr string) {
	t.Helper()
	needDocker(t)
	serves := wait.ForExec([]string{"sh", "-c", "echo srvr | nc -w 2 127.0.0.1 2181 | grep -q '^Mode: '"})
	c, err := testcontainers.Run(t.Context(), image,
		testcontainers.WithExposedPorts("2181/tcp"),
		testcontainers.WithEnv(map[string]string{"ZOO_MAX_CLIENT_CNXNS": "0"}),
		testcontainers.WithWaitStrategy(serves.WithStartupTimeout(time.Minute)))
	testcontainers.CleanupContainer(t, c)
	require.NoError(t, err)
	addr, err = c.PortEndpoint(t.Context(), "2181/tcp", "")
	require.NoError(t, err)
	return addr
}

// connect returns a Session that is closed with the test.
func connect(t *testing.T, servers string) *zklock.Session {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	s, err := zklock.Connect(ctx, servers)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// I1: goroutines of three Sessions take the lock on one server in a container. Only one holds it at
// a time, and no node remains.
func TestMutex_Container_OneAtATime_NothingLeft(t *testing.T) {
	addr := startZooKeeper(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()

	var inside, jobs, lastToken atomic.Int64
	job := func(_ context.Context, hold *zklock.Hold) error {
		defer inside.Add(-1)
		if n := inside.Add(1); n != 1 {
			return fmt.Errorf("%d hold the lock", n)
		}
		if last := lastToken.Swap(hold.Token()); last >= hold.Token() {
			return fmt.Errorf("token %d after %d", hold.Token(), last)
		}
		time.Sleep(10 * time.Millisecond) // the work; a second holder begins meanwhile
		jobs.Add(1)
		return nil
	}
	var workers sync.WaitGroup
	for range 3 {
		m, err := zklock.NewMutex(connect(t, addr), "/locks/job")
		require.NoError(t, err)
		for range 3 {
			workers.Go(func() {
				for range 5 {
					if err := m.Do(ctx, job); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	workers.Wait()

	require.EqualValues(t, 3*3*5, jobs.Load())
	children, _, err := connect(t, addr).Conn().Children("/locks/job")
	require.NoError(t, err)
	require.Empty(t, children)
}
