package queue

// These tests attack row.go: the rule by which the number of a new node grants.

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// I1, I8: the rule by which a create grants. Each row changes one fact of a session whose evidence
// is otherwise complete. TestExploreRow_WithoutAClause shows what happens without a clause.
func TestRow_Precedes(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(r *Row)
		number int64
		conn   uint64
		want   bool
	}{
		{"all is well", func(*Row) {}, 8, 3, true},
		{"another client has created a child", func(*Row) {}, 9, 3, false},
		{"the number is the hold's own", func(*Row) {}, 7, 3, false},
		{"a new root's first number", func(*Row) {}, 0, 3, false},
		{"another node was in the list", func(r *Row) { r.Alone = false }, 8, 3, false},
		{"the list is too old", func(r *Row) { r.Recent = false }, 8, 3, false},
		{"no watch is set", func(r *Row) { r.WatchConn = 0 }, 8, 3, false},
		{"the watch is of another connection", func(r *Row) { r.WatchConn = 2 }, 8, 3, false},
		{"the watch is of another root", func(r *Row) { r.WatchRoot = 1 }, 8, 3, false},
		{"the hold's node may exist", func(r *Row) { r.Deleted = false }, 8, 3, false},
		{"the create is of another connection", func(*Row) {}, 8, 4, false},
		{"no connection is known", func(r *Row) { r.WatchConn = 0 }, 8, 0, false},
		{"F34: the last number that is granted", func(r *Row) { r.Number = counterEnd - 2 }, counterEnd - 1, 3, true},
		{"F34: past the end of the counter", func(r *Row) { r.Number = counterEnd - 1 }, counterEnd, 3, false},
	} {
		r := Row{Number: 7, Deleted: true, Alone: true, Root: 5, Recent: true, WatchConn: 3, WatchRoot: 5}
		tt.change(&r)
		require.Equal(t, tt.want, r.Precedes(tt.number, tt.conn), tt.name)
	}
}

func TestIsAlone(t *testing.T) {
	require.False(t, IsAlone(nil, Markers))
	require.True(t, IsAlone([]string{ours(1, 7)}, Markers))
	require.True(t, IsAlone([]string{"config", ours(1, 7), "_c_x"}, Markers))
	require.False(t, IsAlone([]string{ours(1, 7), ours(2, 8)}, Markers))
	require.False(t, IsAlone([]string{ours(1, 7), "0e4ef0ac8eb94d628b7fcb2a3ab6ad72__lock__0000000005"}, Markers))
}

// I1, I8, F57: no interleaving breaks a promise.
func TestExploreRow(t *testing.T) {
	two := []string{"m", "m"}
	for _, tt := range []struct {
		name string
		big  bool
		x    rowExplorer
	}{
		{"no fault", false, rowExplorer{kinds: two, acquire: []uint8{3, 1}}},
		{"one act of another", false, rowExplorer{kinds: two, acquire: []uint8{2, 1}, faults: 1, acts: "raoqtsd"}},
		{"the root is deleted, or the connection is lost", false, rowExplorer{kinds: two, acquire: []uint8{2, 1}, faults: 2, acts: "rl"}},
		{"one gives up", false, rowExplorer{kinds: two, acquire: []uint8{2, 1}, faults: 1, acts: "r", giveUps: 1}},
		{"readers", false, rowExplorer{kinds: []string{"r", "m"}, acquire: []uint8{2, 1}, faults: 1, acts: "r"}},
		{"candidates", false, rowExplorer{kinds: []string{"c", "m"}, acquire: []uint8{2, 1}, faults: 1, acts: "k"}},
		{"across the end of the counter", false, rowExplorer{kinds: two, acquire: []uint8{3, 1}, first: counterEnd - 2}},

		{"a session is given up", true, rowExplorer{kinds: two, acquire: []uint8{2, 1}, faults: 2, acts: "rz"}},
		{"three", true, rowExplorer{kinds: []string{"m", "m", "r"}, acquire: []uint8{2, 1, 1}, faults: 1, acts: "r"}},
		{"two acts", true, rowExplorer{kinds: two, acquire: []uint8{2, 1}, faults: 2, acts: "raoqtsdlz"}},
		{"two rows", true, rowExplorer{kinds: two, acquire: []uint8{2, 2}, faults: 1, acts: "raqtsl"}},
	} {
		if tt.big && !*exploreAll { // minutes: make explore
			continue
		}
		t.Run(tt.name, func(t *testing.T) {
			broken, _ := tt.x.explored(t)
			require.Empty(t, broken)
			require.Positive(t, tt.x.rows, "no client was granted in a row")
			require.Positive(t, tt.x.misses, "no client expected a row in vain")
		})
	}
}

// rowWithout is the rule on a row that was touched up: so a clause is left out.
func rowWithout(touchUp func(r *Row, number int64, conn uint64)) func(Row, int64, uint64) bool {
	return func(r Row, number int64, conn uint64) bool {
		touchUp(&r, number, conn)
		return r.Precedes(number, conn)
	}
}

// I1, I8, F34, F57: each clause is left out, and the explorer finds the consequence, by the fewest
// steps. With -v it prints them.
func TestExploreRow_WithoutAClause(t *testing.T) {
	const before, past = "I8: granted in a row before an earlier node", "F34"
	two, seldom := []string{"m", "m"}, []uint8{2, 1}
	for _, tt := range []struct {
		clause string
		rule   func(Row, int64, uint64) bool
		wrong  rowMistakes
		x      rowExplorer
		want   string
	}{
		{"no other node was in the list", rowWithout(func(r *Row, _ int64, _ uint64) { r.Alone = true }), rowMistakes{},
			rowExplorer{kinds: two, acquire: []uint8{3, 1}, faults: 1, acts: "t"}, before},
		{"the number is the next", rowWithout(func(r *Row, n int64, _ uint64) { r.Number = n - 1 }), rowMistakes{},
			rowExplorer{kinds: two, acquire: seldom}, before},
		{"the number is below the counter's end", func(r Row, n int64, conn uint64) bool {
			if n == counterEnd {
				r.Number, n = r.Number-1, n-1
			}
			return r.Precedes(n, conn)
		}, rowMistakes{},
			rowExplorer{kinds: two, acquire: seldom, first: counterEnd - 1}, past},
		{"there is a watch", rowWithout(func(r *Row, _ int64, conn uint64) { r.WatchConn, r.WatchRoot = conn, r.Root }), rowMistakes{},
			rowExplorer{kinds: two, acquire: []uint8{2, 2}, faults: 1, acts: "r"}, before},
		{"it is of this connection", rowWithout(func(r *Row, _ int64, conn uint64) {
			if r.WatchConn != 0 {
				r.WatchConn = conn
			}
		}), rowMistakes{}, rowExplorer{kinds: two, acquire: seldom, faults: 2, acts: "lr"}, before},
		{"the watch is of the list's root", rowWithout(func(r *Row, _ int64, _ uint64) { r.WatchRoot = r.Root }), rowMistakes{},
			rowExplorer{kinds: two, acquire: seldom, faults: 1, acts: "r"}, before},
		{"the hold's node is deleted", rowWithout(func(r *Row, _ int64, _ uint64) { r.Deleted = true }), rowMistakes{},
			rowExplorer{kinds: two, acquire: seldom}, "I2: granted in a row while its earlier node exists"},
		{"an event ends the watch", nil, rowMistakes{anyEvent: true}, rowExplorer{kinds: two, acquire: seldom, faults: 1, acts: "r"}, before},
		{"the verdict is of the response", nil, rowMistakes{early: true}, rowExplorer{kinds: two, acquire: seldom, faults: 1, acts: "ra"}, before},
		{"an event of the data ends the watch", nil, rowMistakes{dataEvent: true}, rowExplorer{kinds: two, acquire: seldom, faults: 2, acts: "sra"}, before},
		{"the node was granted", nil, rowMistakes{ungranted: true}, rowExplorer{kinds: two, acquire: []uint8{2, 1}, giveUps: 1}, before},
		{"the nodes are of one kind", nil, rowMistakes{anyKind: true}, rowExplorer{kinds: []string{"mc"}, acquire: []uint8{2}, faults: 1, acts: "k"}, before},
	} {
		t.Run(tt.clause, func(t *testing.T) {
			tt.x.rule, tt.x.wrong = tt.rule, tt.wrong
			broken, how := tt.x.explored(t)
			require.Contains(t, broken, tt.want)
			require.Greater(t, len(how), 5)
		})
	}
}
