package queue

// These tests attack record.go: the words of a lock root, and when a holder's disappearance delays
// the next.

import (
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// F47: a holder that disappears delays the next one by d, and a holder that releases delays no
// client, in every interleaving.
func TestExploreDelay(t *testing.T) {
	exploreAllOf(t, []scene[delayExplorer]{
		{"two, one fault", false, delayExplorer{sessions: []uint8{0, 1}, acquire: 1, faults: 1, writes: 1}},
		{"two of one session", false, delayExplorer{sessions: []uint8{0, 0}, acquire: 2, faults: 1, writes: 1}},
		{"two of one session, one fault", true, delayExplorer{sessions: []uint8{0, 0, 1}, acquire: 1, faults: 1}},
		{"the root is made anew", false, delayExplorer{sessions: []uint8{0, 1}, acquire: 1, faults: 1, giveUps: 1, anew: 1}},
		{"two, one gives up, one fault", true, delayExplorer{sessions: []uint8{0, 1}, acquire: 1, faults: 1, giveUps: 1, writes: 1}},
		{"two, two faults", true, delayExplorer{sessions: []uint8{0, 1}, acquire: 1, faults: 2, writes: 1}},
		{"three, two faults", true, delayExplorer{sessions: []uint8{0, 1, 2}, acquire: 1, faults: 2}},
		{"two, two turns, two faults", true, delayExplorer{sessions: []uint8{0, 1}, acquire: 2, faults: 2, writes: 1}},
		{"two of one session, two faults, one gives up", true, delayExplorer{sessions: []uint8{0, 0, 1}, acquire: 1, faults: 2, giveUps: 1}},
	}, (*delayExplorer).explore, func(t *testing.T, x *delayExplorer) {
		require.Positive(t, x.granted)
		require.True(t, x.waited, "nobody waited for the delay")
	})
}

// Each rule is left out, and the explorer finds the consequence. The first design had seven of
// these holes.
func TestExploreDelay_WithoutTheRule(t *testing.T) {
	const (
		skipped = "the delay was skipped"
		waits   = "waits for one that released"
		left    = "the record names a node that was released or given up"
	)
	two, mates := []uint8{0, 1}, []uint8{0, 0, 1}
	refuteAllOf(t, []mistake[delayExplorer]{
		{"a root is made anew with its record", delayExplorer{sessions: two, faults: 1, anew: 1, mistakes: dMistakes{anewEmpty: true}}, skipped},
		{"words are merged", delayExplorer{sessions: two, faults: 1, writes: 1, mistakes: dMistakes{replaces: true}}, skipped},
		{"a release that meets a conflict reads again", delayExplorer{sessions: two, writes: 1, mistakes: dMistakes{plainConflict: true}}, left},
		{"who gives up takes back what it may have written", delayExplorer{sessions: two, giveUps: 1, mistakes: dMistakes{plainGiveUp: true}}, left},
		{"a turn is recorded", delayExplorer{sessions: mates, faults: 1, mistakes: dMistakes{turnGrants: true}}, skipped},
		{"a record from another connection is synced", delayExplorer{sessions: two, faults: 1, mistakes: dMistakes{lagging: true}}, waits},
		{"a record from before the proof is read again", delayExplorer{sessions: two, mistakes: dMistakes{earlyCounts: true}}, waits},
		{"and the delay does not count from it", delayExplorer{sessions: two, faults: 1, mistakes: dMistakes{earlyLook: true}}, skipped},
		{"the Session remembers its first look", delayExplorer{sessions: two, faults: 1, acquire: 2, giveUps: 1, mistakes: dMistakes{looksAnew: true}}, "waits again for one for which its Session has waited"},

		{"the grant's write names the version", delayExplorer{sessions: two, faults: 2, mistakes: dMistakes{unversioned: true}}, skipped},
		{"it checks the node", delayExplorer{sessions: two, faults: 1, giveUps: 1, mistakes: dMistakes{unchecked: true}}, left},
		{"it is there", delayExplorer{sessions: two, faults: 1, mistakes: dMistakes{unrecorded: true}}, skipped},
	}, (*delayExplorer).explore)
}

// Words are kept as they are; any other data belongs to another program.
func TestRecord(t *testing.T) {
	for data, want := range map[string]Record{
		"": "", "zklock/1 released=x token=7\n": "", "held=n1": "held=n1", "done=a,b held=n1 until=2026-01-02T03:04:05Z": "done=a,b held=n1 until=2026-01-02T03:04:05Z",
	} {
		r, ok := ParseRecord([]byte(data))
		require.True(t, ok, data)
		require.Equal(t, want, r)
	}
	for _, data := range []string{"x", " ", "a=b ", " a=b", "a=b  c=d", "=b", "a=", "a=b\n", "a=\x7f", "a=\xff", "10.0.0.1", "\x00\x00\x00\x01", `{"a": "b=c"}`, "zklock/1"} {
		_, ok := ParseRecord([]byte(data))
		require.False(t, ok, "%q", data)
	}
	r := Record("done=a until=x more=1")
	require.Equal(t, "a", r.Word("done"))
	require.Empty(t, r.Word("held"))
	r = r.Granted("n1")
	require.Equal(t, Record("done=a more=1 held=n1"), r)
	require.Equal(t, Record("done=a more=1 held=n2"), r.Granted("n2"), "in place of the last one")
	require.Equal(t, Record("done=a more=1 held=n1 until=t"), r.Delayed("t"))
	require.Equal(t, Record("done=a more=1 held=n1 until=u"), r.Delayed("t").Delayed("u"))
	back, isChanged := r.Delayed("t").Released("n1")
	require.True(t, isChanged)
	require.Equal(t, Record("done=a more=1"), back)
	back, isChanged = r.Released("n2")
	require.False(t, isChanged, "it is another's")
	require.Equal(t, r, back)
	back, _ = Record("").Granted("n1").Released("n1")
	require.Empty(t, back)
}

// The table of RecordRead: proof 0 is a handoff's, over an unknown connection.
func TestRecordRead(t *testing.T) {
	const none, own, other = "", "n2", "n1"
	for _, tt := range []struct {
		what  string
		proof uint64
		r     Reading
		next  Stage
		sync  bool
	}{
		{"nobody is named", 3, Reading{Held: none, Conn: 3}, ToWriteRecord, false},
		{"also early, or over another connection: the version says whether that is true", 3, Reading{Held: none, Conn: 4, Early: true}, ToWriteRecord, false},
		{"we are", 3, Reading{Held: own, Conn: 4}, ToWriteRecord, false},
		{"another is, over the proof's connection", 3, Reading{Held: other, Conn: 3}, ToAwaitDelay, false},
		{"and the delay is over", 3, Reading{Held: other, Conn: 3, Over: true}, ToWriteRecord, false},
		{"it was asked for before the proof", 3, Reading{Held: other, Conn: 3, Early: true}, ToReadRecord, false},
		{"then nothing is over", 3, Reading{Held: other, Conn: 3, Early: true, Over: true}, ToReadRecord, false},
		{"over another connection", 3, Reading{Held: other, Conn: 4}, ToReadRecord, true},
		{"after a turn", 0, Reading{Held: other, Conn: 3}, ToReadRecord, true},
		{"after a turn, and nobody knows over which connection it was read", 0, Reading{Held: other}, ToReadRecord, true},
		{"over another connection, synced", 3, Reading{Held: other, Conn: 4, Synced: true}, ToAwaitDelay, false},
		{"synced, and over", 3, Reading{Held: other, Conn: 4, Synced: true, Over: true}, ToWriteRecord, false},
	} {
		tt.r.Own = own
		got := Begin(7, true).first(tt.proof).RecordRead(tt.r)
		require.Equal(t, tt.next, got.Next, tt.what)
		require.Equal(t, tt.sync, got.Sync, tt.what)
	}
	w := Begin(7, true).first(3)
	require.Equal(t, ToReadRecord, w.Next)
	require.Equal(t, ToGrant, Begin(7, false).first(3).Next, "without a lock-delay")
	require.Equal(t, w.first(0), w.HandedOff(HandoffIsOurs))
	require.Equal(t, ToGrant, Begin(7, false).HandedOff(HandoffIsOurs).Next)
	require.Equal(t, w, Begin(7, true).Listed(Position{Kind: Front}, 3))
	require.Equal(t, w, Begin(7, true).ruled(true, 3))
	w = w.RecordRead(Reading{Own: own, Conn: 3})
	require.Equal(t, ToGrant, w.RecordWritten(Exists).Next)
	require.Equal(t, ToQueueAgain, w.RecordWritten(Absent).Next)
	again := w.RecordWritten(Unknown)
	require.Equal(t, ToReadRecord, again.Next)
	require.True(t, again.Sync)
	require.Equal(t, ToWriteRecord, w.DelayOver().Next)
}

// R107: the data of a lock root is not split into a list before it is checked.
func TestParseRecord_DataOfSomebodyElse_CostsNoList(t *testing.T) {
	data := []byte(strings.Repeat(" ", 1<<20))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, isOurs := ParseRecord(data)
	runtime.ReadMemStats(&after)
	require.False(t, isOurs)
	require.LessOrEqual(t, after.TotalAlloc-before.TotalAlloc, uint64(3*len(data)))
}
