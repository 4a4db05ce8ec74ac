package zklock

// These tests distinguish the leases that are in use from the leases that wait for capacity.

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A lease that was granted holds, whatever the limit is now (R93). Only the leases that the first
// in the queue created last can be waiting.
func TestSplitLeases(t *testing.T) {
	const a, b = "_c_00000000-0000-0000-0000-00000000000a-lease-", "_c_00000000-0000-0000-0000-00000000000b-lease-"
	parts := func(nodes string) (ps []Participant) { // "NAME/SESSION/TOKEN ..."
		for _, node := range strings.Fields(nodes) {
			var p Participant
			f := strings.Split(node, "/")
			p.Node, p.Holds = "/sem/"+f[0], strings.HasPrefix(f[0], "lock-") // as if each list were a mutex's: the split decides
			_, err := fmt.Sscan(f[1]+" "+f[2], &p.SessionID, &p.Token)
			require.NoError(t, err)
			ps = append(ps, p)
		}
		return ps
	}
	for _, tt := range []struct {
		name             string
		leases, queued   string
		limit            int
		holders, waiters int
	}{
		{"nobody", "", "", 1, 0, 0},
		{"nobody waits", a + "1/1/2 " + a + "2/1/2", "", 2, 2, 0},
		{"the limit was lowered", a + "1/1/2 " + b + "2/2/4", "", 1, 2, 0},
		{"to 0", a + "1/1/2 " + b + "2/2/4", "", 0, 2, 0},
		{"the front has made none yet", a + "1/1/2", "lock-2/2/3", 0, 1, 1},
		{"the front waits with two", a + "1/1/2 " + b + "2/2/4 " + b + "3/2/4", "lock-2/2/3 lock-3/2/5", 2, 1, 3},
		{"and the limit was lowered", a + "1/1/2 " + a + "2/1/2 " + b + "3/2/4", "lock-2/2/3", 1, 2, 1},
		{"there is room for the front, which is about to leave the queue", a + "1/1/2 " + b + "2/2/4", "lock-2/2/3 lock-3/2/5", 2, 2, 2},
		{"the front's Session has permits already", a + "1/1/2", "lock-2/1/3", 0, 1, 1},
		{"two calls of one Session, and one of them waits", a + "1/1/4 " + b + "2/1/5", "lock-2/1/3", 1, 1, 1},
		{"Curator's names", "lease-1/1/2 lease-2/1/4", "lock-2/1/3", 1, 1, 1},
		{"who is behind has no leases", a + "1/1/2 " + b + "2/3/5", "lock-2/2/3 lock-3/3/4", 1, 2, 2},
	} {
		leases := parts(tt.leases)
		holders, waiters := splitLeases(leases, parts(tt.queued), tt.limit)
		require.Len(t, holders, tt.holders, tt.name)
		require.Len(t, waiters, tt.waiters, tt.name)
		require.Equal(t, leases[:tt.holders:tt.holders], holders[:len(holders):len(holders)], tt.name)
		for i, p := range slices.Concat(holders, waiters) {
			require.Equal(t, i < tt.holders, p.Holds, tt.name)
		}
	}
}

// A call of Acquire allocates the Mutex for its number of permits, and does not encode a request to
// find out that the servers would read it.
func TestMutexFor_Allocations(t *testing.T) {
	sem := &Semaphore{&Mutex{s: &Session{opts: newSessionOptions(nil)}, recipe: &permits{n: 4}}}
	require.NoError(t, sem.mutexFor(4).wrong)
	require.LessOrEqual(t, testing.AllocsPerRun(100, func() { sem.mutexFor(4) }), 2.0)
}
