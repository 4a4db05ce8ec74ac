package conformance

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os/exec"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/internal/zkserver"
)

// F36, as docs/curator.md warns: Curator's read/write locks wait only for each other. They are
// granted while we hold, and we wait for both of them.
func TestInterop_CuratorReadWrite_PassesUsBy(t *testing.T) {
	suites(t)
	classPath := compileCurator(t)
	addr, lock := startReal(t), "/readwrite"
	s, err := zklock.Connect(t.Context(), addr, zklock.WithSessionTimeout(30*time.Second), zklock.WithLogger(slog.New(slog.DiscardHandler)))
	require.NoError(t, err)
	defer s.Close()
	m, err := zklock.NewMutex(s, lock)
	require.NoError(t, err)
	hold, err := m.Acquire(t.Context())
	require.NoError(t, err)

	cmd := exec.CommandContext(t.Context(), "java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx128m", "-cp", classPath, "ReadWrite", addr, lock)
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	says := bufio.NewScanner(stdout)
	require.True(t, says.Scan())
	require.Equal(t, "write true", says.Text(), "Curator's write lock waits for us now; docs/curator.md says that it does not")
	require.NoError(t, hold.Err())
	require.NoError(t, hold.Release(t.Context()))

	_, err = m.TryAcquire(t.Context())
	require.ErrorIs(t, err, zklock.ErrNotAcquired, "a writer is ahead")
	_, err = io.WriteString(stdin, "\n")
	require.NoError(t, err)
	require.True(t, says.Scan())
	require.Equal(t, "read true", says.Text())
	_, err = m.TryAcquire(t.Context())
	require.ErrorIs(t, err, zklock.ErrNotAcquired, "a reader is ahead")
	_, err = io.WriteString(stdin, "\n")
	require.NoError(t, err)
	require.NoError(t, cmd.Wait())
	hold, err = m.TryAcquire(t.Context())
	require.NoError(t, err)
	require.NoError(t, hold.Release(t.Context()))
}

// F36, R73, I1: Curator's readers and writers and ours on one path of a real server, and some
// writers continue as readers: never is a reader in together with a writer, by the marks of the
// clients that are in. An older Curator's downgrade lets a reader in together with a writer; with
// it, no client downgrades.
func TestInterop_CuratorReadWrite_OneQueue(t *testing.T) {
	suites(t)
	classPath := compileCurator(t)
	i := newInterop(t, startReal(t), "readers-writers")
	_, err := i.admin.Create(i.busy, nil, 0, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)
	version := curatorVersion(t)
	downgrades := !zkserver.Older(version, "5.5")
	results := make(chan error)
	go func() {
		results <- i.program("java", curatorArgs(classPath, "ReadersWriters", i.addr, i.lock, i.busy,
			strconv.Itoa(interopContenders), strconv.Itoa(interopRounds), strconv.FormatBool(downgrades))...)
	}()
	go func() { results <- i.each(func() error { return i.readAndWrite(downgrades) }) }()
	for range 2 {
		require.NoError(t, <-results)
	}
	left, _, err := i.admin.Children(i.lock)
	require.NoError(t, err)
	require.Empty(t, left)
	t.Logf("interop: Curator %s and zklock, %d rounds of %d each, writers that went on as readers: %t", version, interopRounds, interopContenders, downgrades)
}

// readAndWrite does the same as ReadersWriters.java.
func (i *interop) readAndWrite(downgrades bool) error {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	s, err := zklock.Connect(ctx, i.addr, zklock.WithSessionTimeout(30*time.Second), zklock.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		return err
	}
	defer s.Close()
	m, err := zklock.NewRWMutex(s, i.lock)
	if err != nil {
		return err
	}
	c := s.Conn()
	read := func(ctx context.Context, _ *zklock.Hold) error {
		node, err := i.enter(c, "r-", zk.FlagEphemeralSequential)
		if err != nil {
			return err
		}
		rest()
		return c.Delete(node, -1)
	}
	for round := range interopRounds {
		rest()
		if round%3 != 0 {
			if err := m.ReadLock().Do(ctx, read); err != nil {
				return err
			}
			continue
		}
		writes, err := m.WriteLock().Acquire(ctx)
		if err != nil {
			return err
		}
		node, err := i.enter(c, "w", zk.FlagEphemeral)
		if err != nil {
			return err
		}
		var reads *zklock.Hold
		if downgrades && round%2 == 0 {
			if reads, err = m.ReadLock().Acquire(writes.Context()); err != nil {
				return err
			}
		}
		if err := c.Delete(node, -1); err != nil {
			return err
		}
		if err := writes.Release(ctx); err != nil {
			return err
		}
		if reads != nil {
			if err := read(reads.Context(), reads); err != nil {
				return err
			}
			if err := reads.Release(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// enter creates the mark of a client that is in, and lists the other marks.
func (i *interop) enter(c *zk.Conn, name string, flags int32) (node string, err error) {
	if node, err = c.Create(i.busy+"/"+name, nil, flags, zk.WorldACL(zk.PermAll)); err != nil {
		return "", err
	}
	there, _, err := c.Children(i.busy)
	if err == nil && (name == "w" && len(there) > 1 || name != "w" && slices.Contains(there, "w")) {
		err = fmt.Errorf("I1: %s is in beside %v", name, there)
	}
	return node, err
}
