package pages

// These tests compare the pages' Go with code that compiles and runs, and the table of leases with
// the code.

import (
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/zktest"
)

func readFile(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(name)
	require.NoError(t, err)
	return strings.ReplaceAll(string(b), "\r\n", "\n")
}

// The Go of the pages is from the examples, which compile and run. (The README's program runs
// below; docs/testing.md has examples of its own, in zktest.)
func TestDocs_GoIsInTheExamples(t *testing.T) {
	squeeze := func(s string) string { return strings.Join(strings.Fields(s), " ") }
	sources := readFile(t, "example_test.go") + readFile(t, "example_recipes_test.go") + readFile(t, "fence/example_test.go") + readFile(t, "fence/zkfence/example_test.go") +
		readFile(t, "shards/example_test.go") + readFile(t, "examples/service/main.go")
	for _, pattern := range []string{"contrib/*/example*_test.go", "contrib/*/example*/*.go", "contrib/*/examples/*/*.go"} {
		names, err := filepath.Glob(pattern)
		require.NoError(t, err)
		for _, name := range names {
			sources += readFile(t, name)
		}
	}
	examples := squeeze(sources)
	with := 0
	for _, name := range pages(t) {
		if name == "docs/testing.md" || name == "README.md" {
			continue
		}
		blocks := regexp.MustCompile("(?ms)^```go\n(.*?)^```$").FindAllStringSubmatch(readFile(t, name), -1)
		if len(blocks) > 0 {
			with++
		}
		for _, b := range blocks {
			if !strings.Contains(examples, squeeze(b[1])) {
				t.Errorf("this block of %s is not in example_test.go, an example_test.go of fence or shards, an example of contrib or examples/service/main.go; change them together:\n%s", name, b[1])
			}
		}
	}
	require.GreaterOrEqual(t, with, 5, "recipes and fencing in docs, and the READMEs of modules")
}

// The table of margins matches the code, rounded down to a tenth of a second.
func TestDocs_LeaseTable(t *testing.T) {
	const page = "docs/lease.md"
	for _, row := range []struct {
		title string
		mode  zklock.LeaseMode
	}{
		{"`QuorumLease(0)`: G = 4 s, `tickTime` 2000", zklock.QuorumLease(0)},
		{"`QuorumLease(2 * time.Second)`: `tickTime` 1000", zklock.QuorumLease(2 * time.Second)},
		{"`SingleServerLease()`", zklock.SingleServerLease()},
	} {
		want := "| " + row.title + " |"
		for _, T := range []time.Duration{10 * time.Second, 20 * time.Second, 30 * time.Second} {
			want += fmt.Sprintf(" %.1f s |", math.Floor(row.mode.Margin(T).Seconds()*10)/10)
		}
		least := 100 * time.Millisecond
		for row.mode.Margin(least) <= 0 {
			least += 100 * time.Millisecond
		}
		want += fmt.Sprintf(" %.1f s |", least.Seconds())
		require.Contains(t, readFile(t, page), want+"\n", "%s, the table of rooms: write this row", page)
	}
}

// The README's program compiles, runs against a server, and prints the lines that the README shows:
// only the times, the id, the address and the token differ.
func TestREADME_ProgramRuns(t *testing.T) {
	_, program, found := strings.Cut(readFile(t, "README.md"), "```go\n")
	require.True(t, found)
	program, rest, _ := strings.Cut(program, "```")
	require.Contains(t, program, `"127.0.0.1:2181"`, "the address of zklock serve")
	_, shown, found := strings.Cut(rest, "It prints:\n\n")
	require.True(t, found)
	shown, _, _ = strings.Cut(shown, "\n\n")
	name := filepath.Join(t.TempDir(), "main.go")
	require.NoError(t, os.WriteFile(name, []byte(strings.Replace(program, "127.0.0.1:2181", zktest.Start(t).Addr(), 1)), 0o644))
	out, err := exec.Command("go", "run", name).CombinedOutput()
	require.NoError(t, err, "%s", out)
	differs := regexp.MustCompile(`(?m)^ +|[0-9/]{10} [0-9:]{8}|0x[0-9a-f]+|127\.0\.0\.1:\d+|token \d+`)
	lines := func(s string) []string { // without the order, because the log has a goroutine of its own
		return strings.Split(differs.ReplaceAllString(strings.TrimSpace(s), ""), "\n")
	}
	require.ElementsMatch(t, lines(shown), lines(string(out)))
}
