package queue

// These tests attack permits.go: the positions of leases, by a table, and in every interleaving of
// a few clients of a semaphore.

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// The specification of OtherThanSemaphore.
func TestOtherThanSemaphore(t *testing.T) {
	const id, hex = "_c_00000000-0000-4000-8000-000000000000-", "0123456789abcdef0123456789abcdef"
	for _, others := range [][]string{
		{id + "lock-0000000001"}, {hex + "__lock__0000000001"}, {hex + "__rlock__0000000001"}, {id + "__READ__0000000001"}, {id + "__WRIT__0000000001"},
		{id + "latch-0000000001"}, {id + "lease-0000000001"}, {"member-0000000001"}, {hex},
	} {
		require.Equal(t, others[0], OtherThanSemaphore(append([]string{"locks", "leases", "limit"}, others...), append(Markers, "member-")))
	}
	for _, ours := range []string{"locks", "leases", "limit", "config", "0000000001", hex[1:], hex + "0", "G" + hex[1:], "lock-1", "__lock__"} {
		require.Empty(t, OtherThanSemaphore([]string{ours}, Markers), ours)
	}
}

// The specification of PositionOfLeases.
func TestPlaceOfLeases(t *testing.T) {
	lease := func(seq int64) string { return fmt.Sprintf("_c_00000000-0000-4000-8000-000000000000-lease-%010d", seq) }
	many := func(seqs ...int64) (names []string) {
		for _, s := range seqs {
			names = append(names, lease(s))
		}
		return names
	}
	for _, tt := range []struct {
		name     string
		mine     []string
		children []string
		limit    int
		want     Position
	}{
		{"alone", many(5), many(5), 1, Position{Kind: Front}},
		{"room beside others", many(7), many(9, 7, 5), 2, Position{Kind: Front, Blockers: 1, Predecessor: lease(5)}},
		{"no room", many(7), many(5, 7, 3), 2, Position{Kind: Behind, Blockers: 2, Predecessor: lease(5)}},
		{"those behind do not count", many(3), many(3, 4, 5, 6), 1, Position{Kind: Front}},
		{"all or none", many(4, 5), many(3, 4, 5), 2, Position{Kind: Behind, Blockers: 1, Predecessor: lease(3)}},
		{"all", many(4, 5), many(3, 4, 5), 3, Position{Kind: Front, Blockers: 1, Predecessor: lease(3)}},
		{"more than the limit", many(4, 5), many(4, 5), 1, Position{Kind: Behind}},
		{"a limit of nothing", many(4), many(4), 0, Position{Kind: Behind}},
		{"one is gone", many(4, 5), many(4), 3, Position{Kind: Missing}},
		{"all are gone", many(4, 5), nil, 3, Position{Kind: Missing}},
		{"what is no lease does not count", many(4), append(many(4), "x", "_c_x-lock-0000000001", "lease-", "lease-1"), 1, Position{Kind: Front}},
		{"any client's lease counts", many(4), append(many(4), "lease-0000000003"), 1, Position{Kind: Behind, Blockers: 1, Predecessor: "lease-0000000003"}},
		{"another has a number of ours", many(4, 5), append(many(4, 5), "lease-0000000005"), 9, Position{Kind: Twin}},
		{"ours is past the end", many(counterEnd), many(counterEnd), 9, Position{Kind: Exhausted}},
		{"another is, and behind", many(4), many(4, counterEnd), 1, Position{Kind: Front}},
		{"one is negative", many(4), append(many(4), "lease--2147483648"), 9, Position{Kind: Exhausted, Predecessor: "lease--2147483648"}},
		{"numbers and not names", many(10), append(many(10), "zzz-lease-0000000009"), 1, Position{Kind: Behind, Blockers: 1, Predecessor: "zzz-lease-0000000009"}},
	} {
		require.Equal(t, tt.want, PositionOfLeases(tt.mine, tt.children, tt.limit), tt.name)
	}
}

// The specification of Without and HaveCapacity: a client in the queue that has its leases counts by
// these, and our own node and those behind it do not count.
func TestWithout(t *testing.T) {
	node := func(client, seq int) string {
		return fmt.Sprintf("_c_00000000-0000-4000-8000-%012d-lock-%010d", client, seq)
	}
	lease := func(client int) string {
		return fmt.Sprintf("_c_00000000-0000-4000-8000-%012d-lease-%010d", client, 9)
	}
	queued := []string{node(3, 30), node(1, 10), node(2, 20), "x"}
	for _, tt := range []struct {
		name, self string
		leases     []string
		want       int
	}{
		{"first", node(1, 10), nil, 0},
		{"one is before us", node(2, 20), nil, 1},
		{"two are", node(3, 30), nil, 2},
		{"it has its leases", node(2, 20), []string{lease(1), lease(1)}, 0},
		{"another client has leases", node(2, 20), []string{lease(7), "lease-0000000009"}, 1},
		{"we do not queue", "", []string{lease(2)}, 2},
	} {
		require.Equal(t, tt.want, Without(tt.self, queued, tt.leases, Markers), tt.name)
	}
	require.True(t, HaveCapacity(2, 1, 2, 5))
	require.False(t, HaveCapacity(2, 1, 2, 4))
}

// The specification of OrphansIn: the root and the id identify an orphan.
func TestOrphansIn(t *testing.T) {
	const id, other = "_c_00000000-0000-4000-8000-000000000000", "_c_00000000-0000-4000-8000-000000000001"
	orphans := map[Orphan]bool{{Root: "/sem/leases", ID: id[len("_c_"):]}: true}
	shown := []string{other + "-lease-0000000001", id + "-lease-0000000002", id + "-lease-0000000003", "lease-0000000004"}
	require.Equal(t, shown[1:3], OrphansIn(orphans, "/sem/leases", shown))
	require.Empty(t, OrphansIn(orphans, "/sem/locks", []string{id + "-lock-0000000001"}), "the node in the queue has the leases' id")
	require.Empty(t, OrphansIn(nil, "/sem/leases", shown))
}

// I1, I4, I6 of permits: no more are held than there are, no client waits indefinitely, and no node
// is left.
func TestExplorePermits(t *testing.T) {
	explorePermits(t, []int{0}, []permitExplorer{
		{wants: []uint8{1, 1, 1}, limit: 1, acquire: 1, faults: 1, giveUps: 1},
		{wants: []uint8{2, 2}, limit: 2, acquire: 2, faults: 1, giveUps: 1},
		{wants: []uint8{2, 1, 2}, limit: 3, acquire: 1, faults: 1},
		{wants: []uint8{2, 1, 1}, limit: 2, limits: []uint8{1, 3}, acquire: 1, faults: 1},
		{wants: []uint8{1, 1}, limit: 1, limits: []uint8{2, 0, 1}, acquire: 2, faults: 1},
		{wants: []uint8{2, 1, 1}, limit: 3, limits: []uint8{1}, acquire: 1, faults: 1, giveUps: 1}, // the end may be a pause
	}, []permitExplorer{
		{wants: []uint8{1, 1, 1}, limit: 1, acquire: 1, faults: 2, giveUps: 1},
		{wants: []uint8{1, 1, 1}, limit: 2, acquire: 2, faults: 1},
		{wants: []uint8{2, 2}, limit: 2, acquire: 2, faults: 2, giveUps: 1},
		{wants: []uint8{2, 1, 2}, limit: 3, acquire: 1, faults: 2, giveUps: 1},
		{wants: []uint8{2, 1, 1}, limit: 2, limits: []uint8{1, 0, 3}, acquire: 1, faults: 1, giveUps: 2}, // giving up is what a try does, too
	})
}

// explorePermits explores worlds in each way to take permits: with 1, callers further back look for
// capacity; with 2, all try straight away first.
func explorePermits(t *testing.T, ways []int, small, big []permitExplorer) {
	var scenes []scene[permitExplorer]
	for i, x := range slices.Concat(small, big) {
		for _, way := range ways {
			x.further, x.straight = way&1 != 0, way&2 != 0
			scenes = append(scenes, scene[permitExplorer]{fmt.Sprintf("%+v", x), i >= len(small), x})
		}
	}
	exploreAllOf(t, scenes, (*permitExplorer).explore, func(*testing.T, *permitExplorer) {})
}

// The same with clients that take several permits, beside Curator's client in each position. No
// client is overtaken.
func TestExplorePermits_Several(t *testing.T) {
	explorePermits(t, []int{1, 2, 3}, []permitExplorer{
		{wants: []uint8{1, 1, 1}, limit: 1, acquire: 1, giveUps: 1},
		{wants: []uint8{1, 1, 1}, limit: 2, acquire: 1},
		{wants: []uint8{2, 1}, limit: 2, acquire: 1, faults: 1},
		{wants: []uint8{1, 1}, limit: 1, limits: []uint8{2, 0, 1}, acquire: 1, faults: 1},
		{wants: []uint8{1, 1, 1}, limit: 1, acquire: 1, giveUps: 1, curator: 1},
		{wants: []uint8{2, 1, 1}, limit: 2, acquire: 1, curator: 3},
	}, []permitExplorer{
		{wants: []uint8{1, 1, 1}, limit: 1, acquire: 1, faults: 2, giveUps: 1},
		{wants: []uint8{1, 1, 1}, limit: 2, acquire: 1, faults: 2, giveUps: 1},
		{wants: []uint8{2, 1, 1}, limit: 2, acquire: 1, faults: 1},
		{wants: []uint8{1, 1, 1}, limit: 2, acquire: 2, giveUps: 1},
		{wants: []uint8{2, 1, 2}, limit: 3, acquire: 1, faults: 1, giveUps: 1},
		{wants: []uint8{2, 1, 1}, limit: 2, limits: []uint8{1, 3}, acquire: 1, faults: 1},
		{wants: []uint8{1, 1}, limit: 1, limits: []uint8{2, 0, 1}, acquire: 2, faults: 1},
		{wants: []uint8{1, 1, 1}, limit: 1, acquire: 1, faults: 1, giveUps: 1, curator: 1},
		{wants: []uint8{1, 1, 1}, limit: 2, acquire: 1, faults: 1, giveUps: 1, curator: 2},
		{wants: []uint8{2, 1, 1}, limit: 2, acquire: 1, faults: 1, giveUps: 1, curator: 3},
		{wants: []uint8{1, 2, 1}, limit: 3, acquire: 2, curator: 3},
	})
}

// I4, F60, R105: the servers deny lists and deletions for a while, and responses are lost around
// that. When they allow them again, nothing is left, and all are granted.
func TestExplorePermits_Denied(t *testing.T) {
	explorePermits(t, []int{0, 1, 2, 3}, []permitExplorer{
		{wants: []uint8{1}, limit: 1, acquire: 2, faults: 1, denials: 2},
		{wants: []uint8{2}, limit: 2, acquire: 1, faults: 2, denials: 2},
		{wants: []uint8{2, 1}, limit: 2, acquire: 1, faults: 1, denials: 1},
	}, []permitExplorer{
		{wants: []uint8{1}, limit: 1, acquire: 3, faults: 2, denials: 3},
		{wants: []uint8{1, 1}, limit: 1, acquire: 2, faults: 1, denials: 2},
		{wants: []uint8{2, 1}, limit: 2, acquire: 1, faults: 1, denials: 2, giveUps: 1},
		{wants: []uint8{1, 1, 1}, limit: 1, acquire: 1, faults: 1, denials: 1},
	})
}

// Each rule is needed: without it the explorer finds the stated consequence.
func TestExplorePermits_WithoutTheRule(t *testing.T) {
	refuteAllOf(t, []mistake[permitExplorer]{
		{"by count", permitExplorer{wants: []uint8{1, 1}, limit: 1, faults: 1, mistakes: permitMistakes{byCount: true}}, "a client waits for ever"},
		{"sent again", permitExplorer{wants: []uint8{1}, limit: 2, faults: 1, mistakes: permitMistakes{sendsAgain: true}}, "a lease is left"},
		{"the queue node is deleted last", permitExplorer{wants: []uint8{1}, limit: 1, faults: 1, mistakes: permitMistakes{dropsLast: true}}, "a client waits for ever"}, // for its own lease
		{"leases are made with the queue node", permitExplorer{wants: []uint8{1, 1}, limit: 1, mistakes: permitMistakes{makesEarly: true}}, "a client waits for ever"},
		{"one by one", permitExplorer{wants: []uint8{2, 2}, limit: 2, mistakes: permitMistakes{oneByOne: true}}, "a client waits for ever"},
		{"no check", permitExplorer{wants: []uint8{1}, limit: 1, faults: 1, mistakes: permitMistakes{noCheck: true}}, "a client waits for ever"}, // behind its own lease
		{"who is not in front waits with leases", permitExplorer{wants: []uint8{1, 1, 1}, limit: 1, further: true, curator: 1, mistakes: permitMistakes{waitsFurther: true, noSum: true}}, "a client waits for ever"},
		{"who is not in front does not count those ahead", permitExplorer{wants: []uint8{1, 1, 1}, limit: 1, further: true, mistakes: permitMistakes{noSum: true}}, "overtaken"},
		{"who goes straight away does not count", permitExplorer{wants: []uint8{1, 1, 1}, limit: 1, straight: true, mistakes: permitMistakes{skipsQueue: true}}, "overtaken"},
		{"an orphan is identified by its id alone", permitExplorer{wants: []uint8{1}, limit: 1, faults: 1, denials: 1, mistakes: permitMistakes{orphanByID: true}}, "a lease is left"},
		{"an orphan is not noted", permitExplorer{wants: []uint8{1}, limit: 1, faults: 1, denials: 1, mistakes: permitMistakes{dropsNote: true}}, "a lease is left"},
		{"the limit is not watched", permitExplorer{wants: []uint8{1, 1}, limit: 0, limits: []uint8{1}, mistakes: permitMistakes{limitUnheard: true}}, "a client waits for ever"},
	}, (*permitExplorer).explore)
}

// Observers count the leases of one transaction, whatever number a client claims.
func TestSeenLeases(t *testing.T) {
	lease := func(id byte, seq int64) string {
		return fmt.Sprintf("_c_00000000-0000-4000-8000-00000000000%c-lease-%010d", id, seq)
	}
	all := []string{lease('a', 7), lease('b', 8), lease('a', 9), lease('a', 8), "x", "_c_00000000-0000-4000-8000-00000000000a-lock-0000000010", "z" + lease('a', 10)}
	for _, tt := range []struct {
		first string
		k     int
		want  Kind
	}{
		{lease('a', 7), 1, Front},
		{lease('a', 7), 3, Front},
		{lease('a', 8), 2, Front},
		{lease('b', 8), 1, Front},
		{lease('a', 7), 4, Missing},
		{lease('a', 7), 10000, Missing},
		{lease('b', 8), 2, Missing},
		{lease('a', 6), 1, Missing},
		{lease('a', 6), 4, Missing},
		{lease('c', 7), 1, Missing},
		{"x", 1, Missing},
		{"", 1, Missing},
	} {
		require.Equal(t, tt.want, SeenLeases(tt.first, tt.k, all), "%s and %d", tt.first, tt.k)
	}
	require.Equal(t, Missing, SeenLeases(lease('a', 7), 1, nil))
}
