package conformance

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
)

// I1: callers of Curator's semaphore and of ours share permits, and the limit in a SharedCount.
// Their log on the server shows that there are never more in use, and that both get theirs.
func TestInterop_CuratorSemaphore(t *testing.T) {
	suites(t)
	classPath := compileCurator(t)
	const path, limit, log, n, callers, rounds = "/semaphore", "/limit", "/log", 3, 4, 40
	addr := startReal(t)
	var sessions []*zklock.Session
	for range 2 {
		s, err := zklock.Connect(t.Context(), addr, zklock.WithSessionTimeout(30*time.Second), zklock.WithLogger(slog.New(slog.DiscardHandler)))
		require.NoError(t, err)
		defer s.Close()
		sessions = append(sessions, s)
	}
	conn := sessions[0].Conn()
	_, err := conn.Create(log, nil, 0, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)

	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	java := exec.CommandContext(ctx, "java", curatorArgs(classPath, "Semaphore", addr, path, limit, strconv.Itoa(n), log, strconv.Itoa(callers), strconv.Itoa(rounds))...)
	var said strings.Builder
	java.Stdout, java.Stderr = &said, &said
	require.NoError(t, java.Start())
	for began := false; !began; { // on a busy machine, all of ours would be done before the other one begins
		names, _, changed, err := conn.ChildrenW(log)
		require.NoError(t, err)
		if began = len(names) > 0; !began {
			select {
			case <-changed:
			case <-ctx.Done():
				require.Fail(t, "Curator took no permit", said.String())
			}
		}
	}
	var all sync.WaitGroup
	for i := range callers {
		s := sessions[i%len(sessions)]
		sem, err := zklock.NewSemaphore(s, path, n, zklock.WithSharedLimit(limit))
		require.NoError(t, err)
		note := func(what string, k int) {
			if _, err := s.Conn().Create(fmt.Sprintf("%s/ours-%s-%d-", log, what, k), nil, zk.FlagSequence, zk.WorldACL(zk.PermAll)); err != nil {
				t.Error(err)
			}
		}
		all.Go(func() {
			for range rounds {
				k := 1 + rand.IntN(n)
				err := sem.Do(ctx, k, func(_ context.Context, hold *zklock.Hold) error {
					note("in", k)
					time.Sleep(time.Duration(rand.IntN(3)) * time.Millisecond)
					note("out", k)
					return hold.Err()
				})
				if err != nil {
					t.Error(err)
					return
				}
				time.Sleep(time.Duration(rand.IntN(10)) * time.Millisecond)
			}
		})
	}
	all.Wait()
	require.NoError(t, java.Wait(), said.String())

	names, _, err := conn.Children(log)
	require.NoError(t, err)
	number := func(name string) string { return name[len(name)-10:] }
	slices.SortFunc(names, func(a, b string) int { return cmp.Compare(number(a), number(b)) })
	used, grants, both := 0, map[string]int{}, 0
	inUse := map[string]int{}
	for _, name := range names {
		parts := strings.Split(name, "-")
		k, err := strconv.Atoi(parts[2])
		require.NoError(t, err)
		if parts[1] == "out" {
			k = -k
		} else {
			grants[parts[0]]++
		}
		used += k
		inUse[parts[0]] += k
		require.LessOrEqual(t, used, n, "I1: at %s", name)
		if inUse["ours"] > 0 && inUse["curator"] > 0 {
			both++
		}
	}
	require.Equal(t, map[string]int{"ours": callers * rounds, "curator": callers * rounds}, grants)
	require.Positive(t, both, "they never held together")
	for _, root := range []string{path + "/leases", path + "/locks"} {
		left, _, err := conn.Children(root)
		require.NoError(t, err)
		require.Empty(t, left, "I4")
	}
	t.Logf("%v grants; %d times both held", grants, both)
}
