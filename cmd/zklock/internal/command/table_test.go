package command

// These tests attack what ls prints for people: that it fits in a terminal, and says who.

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
)

// The longest that each column has for a mutex, and nodes of others.
func longEntries() (entries []entry) {
	const session, id = "0xffffffffffffffff", "_c_8b4041d7-3154-4c53-836b-8fa6799538da-"
	for i, name := range []string{id + "lock-", id + "__WRIT__", id + "__READ__", id + "latch-", id + "lease-", "8b4041d731544c53836b8fa6799538da__lock__"} {
		for _, data := range []string{"ip-10-0-12-34.eu-central-1.compute.internal:4194304", strings.Repeat("name ", 50) + "end", "", "größe", "tab\there", " edge"} {
			entries = append(entries, entry{
				Node: fmt.Sprintf("/locks/nightly/%s%010d", name, i), Mode: modeExclusive, Holds: i == 0, Token: 1 << 40, Session: session, Data: data,
				Created: time.Now(), AgeSeconds: (95*time.Hour + 59*time.Minute + 59*time.Second).Seconds(),
			})
		}
	}
	return entries
}

func TestTable_FitsIn80Columns(t *testing.T) {
	var b bytes.Buffer
	require.NoError(t, printer{out: printable{&b}}.queue(longEntries()))
	lines := strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
	require.Len(t, lines, 37)
	for _, line := range lines {
		require.LessOrEqual(t, utf8.RuneCountInString(line), lineWidth, line)
	}
	require.Regexp(t, `^holds  lock-0000000000 +0xffffffffffffffff  ip-10-0-12-.*…194304  95h59m59s$`, lines[1])
	require.Contains(t, lines[5], `"tab\there"`, "what a table cannot hold is quoted")

	b.Reset()
	var locks []lockEntry
	for i, e := range longEntries() {
		locks = append(locks, lockEntry{Path: fmt.Sprintf("/locks/backups/%09d", i), Queue: []entry{e}})
	}
	unused, err := printer{out: printable{&b}}.locks(append(locks, lockEntry{Path: "/locks/idle"}))
	require.NoError(t, err)
	require.Equal(t, 1, unused)
	lines = strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
	require.Len(t, lines, 37)
	for _, line := range lines {
		require.LessOrEqual(t, utf8.RuneCountInString(line), lineWidth, line)
	}
}

// What a terminal shows is laid out: names that are escaped, and characters that take two columns.
func TestTable_EscapesAndWideCharacters_StandInColumns(t *testing.T) {
	var b bytes.Buffer
	var entries []entry
	for i, name := range []string{"lock-0000000001", "\u202emember-1", "名前-1"} {
		for _, data := range []string{"db1:4711", strings.Repeat("名", 60), "größe", "🔒 1"} {
			entries = append(entries, entry{Node: fmt.Sprintf("/locks/%s", name), Holds: i == 0, Session: "0x1", Data: data, AgeSeconds: 5})
		}
	}
	require.NoError(t, printer{out: printable{&b}}.queue(entries))
	starts := map[int]bool{} // of the last column
	for line := range strings.Lines(b.String()) {
		line = strings.TrimSuffix(line, "\n")
		require.LessOrEqual(t, columnsOf(line), lineWidth, line)
		starts[columnsOf(line[:strings.LastIndex(line, " ")])] = true
	}
	require.Len(t, starts, 1, b.String())
	require.Contains(t, b.String(), `waits  \u202emember-1   0x1      db1:4711  `)
	require.Contains(t, b.String(), `waits  名前-1           0x1      größe`)
}

// A path is never cut: it is what the next command needs.
func TestTable_LongPath_IsWhole(t *testing.T) {
	var b bytes.Buffer
	path := "/" + strings.Repeat("x", 100)
	_, err := printer{out: &b}.locks([]lockEntry{{Path: path, Queue: []entry{{Data: "db1:4711"}}}})
	require.NoError(t, err)
	require.Contains(t, b.String(), path+"  ")
	require.Contains(t, b.String(), "  db1:4711  ")
}

func TestTable_Wide_FitsIn120Columns(t *testing.T) {
	var b bytes.Buffer
	require.NoError(t, printer{out: printable{&b}, wide: true}.queue(longEntries()))
	lines := strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
	require.Len(t, lines, 37)
	for _, line := range lines {
		require.LessOrEqual(t, utf8.RuneCountInString(line), wideWidth, line)
	}
	require.Regexp(t, `^holds  lock-0000000000 +exclusive  1099511627776  0xffffffffffffffff  ip-10-0-.*…194304  \d{4}-\S+$`, lines[1])
}

func TestShortName(t *testing.T) {
	for name, want := range map[string]string{
		"_c_8b4041d7-3154-4c53-836b-8fa6799538da-lock-0000000001":     "lock-0000000001",
		"_c_8b4041d7-3154-4c53-836b-8fa6799538da-__READ__0000000001":  "__READ__0000000001",
		"_c_8b4041d731544c53836b8fa6799538da-lock-0000000001":         "lock-0000000001",
		"8b4041d731544c53836b8fa6799538da__lock__0000000001":          "__lock__0000000001",
		"_c_8b4041d7-3154-4c53-836b-8fa6799538da-latch-0000000001":    "latch-0000000001",
		"_c_8b4041d7-3154-4c53-836b-8fa6799538da-lease-0000000001":    "lease-0000000001",
		"_c_8b4041d7-3154-4c53-836b-8fa6799538da-lock--2147483648":    "lock--2147483648",
		"_c_8b4041d7-3154-4c53-836b-8fa6799538da-lock-lock-000000001": "_c_8b4041d7-3154-4c53-836b-8fa6799538da-lock-lock-000000001",
		"member-0000000001": "member-0000000001",
	} {
		require.Equal(t, want, shortName("/a/"+name))
	}
}

func TestCutTo(t *testing.T) {
	require.Equal(t, "0123456789abcdef", cutTo(16, "0123456789abcdef"))
	require.Equal(t, "012345678…bcdefg", cutTo(16, "0123456789abcdefg"))
	require.Equal(t, "ööööööööö…öööööö", cutTo(16, strings.Repeat("ö", 17)))
}

// The name of a run follows host and pid in its node, and is shown with them. What another client
// wrote is no name.
func TestEntry_NameOfARun(t *testing.T) {
	host, err := os.Hostname()
	require.NoError(t, err)
	e := entryOf(zklock.Participant{Node: "/l/lock-0000000001", SessionID: 7, Data: nodeData("pod-3 nightly import")})
	require.Equal(t, []any{host, os.Getpid(), "pod-3 nightly import"}, []any{e.Host, e.Pid, e.Name})
	process := fmt.Sprintf("pod-3 nightly import (%s, pid %d)", host, os.Getpid())
	require.Equal(t, process, nameIn(e))
	require.Equal(t, process+", session 0x7", whoIs(zklock.Participant{SessionID: 7, Data: nodeData("pod-3 nightly import")}))
	require.Equal(t, fmt.Sprintf("%s:%d pod-3 nightly import", host, os.Getpid()), e.who())
	for data, want := range map[string]string{"a word": "", "db1:x nightly": "", "db1:12": "", "db1:12 ": ""} {
		require.Equal(t, want, entryOf(zklock.Participant{Data: []byte(data)}).Name, data)
	}
}
