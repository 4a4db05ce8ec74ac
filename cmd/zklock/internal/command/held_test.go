//go:build linux || darwin

package command

// What ls leaves out: those that wait, with --held, and locks that nobody uses, without --all.

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
)

// list returns what ls prints, and what it says on stderr.
func list(t *testing.T, args ...string) (out, said string) {
	t.Helper()
	p := start(t, nil, append([]string{"ls", "--servers", server(t).ConnectString()}, args...)...)
	require.Equal(t, 0, p.wait(), p.stderr.String())
	return p.stdout.String(), p.stderr.String()
}

// columns returns the first columns of a table without its header, those of a row in one string.
func columns(out string, n int) (rows []string) {
	for _, row := range strings.Split(strings.TrimSpace(out), "\n")[1:] {
		rows = append(rows, strings.Join(strings.Fields(row)[:n], " "))
	}
	return rows
}

func TestList_Held_LeavesOutWhoWaits(t *testing.T) {
	t.Parallel()
	srv, path := server(t), lockPath(t)
	s := session(t, srv)
	busy, _ := occupy(t, s, path+"/busy")
	_, release := occupy(t, s, path+"/idle")
	release()
	waiter := run(t, srv, path+"/busy", "--", "true")
	waiter.prints("waiting")

	all, _ := list(t, path+"/busy")
	require.Len(t, columns(all, 1), 2)
	held, _ := list(t, "--held", path+"/busy")
	require.Equal(t, []string{"holds lock-0000000000"}, columns(held, 2))
	held, _ = list(t, "--held", path+"/idle")
	require.Empty(t, columns(held, 2))

	held, said := list(t, "-r", "--held", path)
	require.Equal(t, []string{path + "/busy exclusive 1 2"}, columns(held, 4), "with the length of the whole queue")
	require.Empty(t, said, "what is left out was asked to be")
	held, _ = list(t, "-r", "--held", "--json", path)
	var locks []lockEntry
	require.NoError(t, json.Unmarshal([]byte(held), &locks))
	require.Len(t, locks, 1)
	require.Len(t, locks[0].Queue, 1)
	require.Equal(t, busy.Node(), locks[0].Queue[0].Node)

	// In front, but for the lock-delay: it does not hold.
	m, err := zklock.NewMutex(s, path+"/delayed", zklock.WithLockDelay(1))
	require.NoError(t, err)
	hold, err := m.Acquire(t.Context())
	require.NoError(t, err)
	deleteNode(t, s, hold.Node())
	<-hold.Lost()
	run(t, srv, path+"/delayed", "--lock-delay", "1h", "--", "true").prints("the lock-delay lasts until")
	held, _ = list(t, "--held", path+"/delayed")
	require.Empty(t, columns(held, 2))
	held, _ = list(t, "-r", "--held", path)
	require.Len(t, columns(held, 2), 1)
}

func TestList_Held_Refusals(t *testing.T) {
	for _, args := range [][]string{{"-r", "--all", "--held"}, {"--watch", "--held"}} {
		p := start(t, nil, append(append([]string{"ls", "--servers", "127.0.0.1:1"}, args...), "/x")...)
		require.Equal(t, exitUsage, p.wait(), args)
		require.Contains(t, p.stderr.String(), "--held")
	}
}

// A semaphore is one before its first use, and after its last: by its folders, or by its limit.
func TestList_All_ShowsASemaphoreThatNobodyUses(t *testing.T) {
	t.Parallel()
	srv, path := server(t), lockPath(t)
	s := session(t, srv)
	require.Equal(t, 0, run(t, srv, path+"/used", "--semaphore", "3", "--", "true").wait())
	sem, err := zklock.NewSemaphore(s, path+"/limited", 4, zklock.WithSharedLimit(path+"/limited/limit"))
	require.NoError(t, err)
	require.NoError(t, sem.SetLimit(t.Context(), 4))
	_, err = s.Conn().Create(path+"/folder", nil, 0, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)
	_, err = s.Conn().Create(path+"/folder/limit", []byte("10MB"), 0, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)

	out, _ := list(t, "-r", "--all", path)
	require.Equal(t, []string{path + "/limited permit 0/4 0", path + "/used permit 0 0"}, columns(out, 4))
	out, said := list(t, "-r", path)
	require.Empty(t, columns(out, 1))
	require.Equal(t, "zklock: "+path+": unused locks are left out: 2; --all lists them\n", said)
}
