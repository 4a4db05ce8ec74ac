package demo

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// TestMain makes the test binary a worker, too.
func TestMain(m *testing.M) {
	if os.Getenv(EnvWorker) == "" {
		_ = os.Setenv("GORACE", "atexit_sleep_ms=0") // of the workers
		goleak.VerifyTestMain(m)                     // I7; it exits
	}
	if os.Getenv("ZKLOCK_DEMO_FAILS") != "" {
		fmt.Fprintln(os.Stderr, "planted")
		os.Exit(1)
	}
	if err := RunWorker(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// The workers are processes of this test binary.
func TestRun_EverythingIsVerified(t *testing.T) {
	var out strings.Builder
	err := run(t.Context(), &out, 100*time.Millisecond, 4*time.Second)
	t.Log("\n" + out.String())
	require.NoError(t, err)
	for line := range strings.Lines(out.String()) {
		require.LessOrEqual(t, len(line), 80, line)
	}
}

// A worker that fails ends the demo at once.
func TestRun_WorkerFails(t *testing.T) {
	t.Setenv("ZKLOCK_DEMO_FAILS", "1")
	require.ErrorContains(t, run(t.Context(), io.Discard, 100*time.Millisecond, 4*time.Second), "worker A: exit status 1: planted")
}

var epoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// good is a demo in which all went well: A is killed, B is cut off, C is stopped. Each event is at
// so many tenths of a second.
const good = `0 A starts 0, 0 B starts 0, 0 C starts 0, 1 A HOLDS 5, 2 A writes 5, 5 A KILLED 5,
 45 B HOLDS 9, 46 B writes 9, 50 A starts 0, 51 B CUT_OFF 9, 80 B NOTIFIED:_lost 9,
 91 C HOLDS 12, 92 C writes 12, 93 C STOPPED 12, 133 A HOLDS 20, 134 A writes 20,
 135 C CONTINUES 12, 135 C writes_too_late 12, 136 C NOTIFIED:_lost 12,
 140 A releases 20, 141 A ends 0, 142 B ends 0, 143 C ends 0`

// with is the good demo with one event in place of another, in the order of the times.
func with(t *testing.T, old, instead string) facts {
	t.Helper()
	require.Contains(t, good, old)
	f := facts{began: epoch, sessionEnd: 5 * time.Second}
	for _, line := range strings.Split(strings.Replace(good, old, instead, 1), ",") {
		if strings.TrimSpace(line) == "" {
			continue
		}
		var tenths int
		var e event
		_, err := fmt.Sscan(line, &tenths, &e.Who, &e.Kind, &e.Token)
		require.NoError(t, err, line)
		e.Kind, e.At = strings.ReplaceAll(e.Kind, "_", " "), epoch.Add(time.Duration(tenths)*100*time.Millisecond)
		f.events = append(f.events, e)
	}
	slices.SortStableFunc(f.events, func(a, b event) int { return a.At.Compare(b.At) })
	return f
}

func TestChecks_AGoodDemo_PassesAll(t *testing.T) {
	var out strings.Builder
	require.NoError(t, verify(&out, with(t, "", "")), &out)
	for line := range strings.Lines(out.String()) {
		require.LessOrEqual(t, len(line), 80, line)
	}
}

// Each check finds what is planted for it.
func TestChecks_FindPlantedViolations(t *testing.T) {
	for _, c := range []struct {
		check        func(facts) (string, error)
		old, instead string
		says         string
	}{
		{facts.overlap, "50 A starts 0", "50 A writes 5", "OVERLAP: write 3: A with token 5, after B with token 9"},
		{facts.overlap, "50 A starts 0", "50 A writes_too_late 5", "OVERLAP: write 3"}, // refused, and yet it was at work
		{facts.overlap, "50 A starts 0", "50 A writes 9", "OVERLAP: write 3"},
		{facts.overlap, "writes_too_late", "writes", "OVERLAP: write 5: C with token 12, after A with token 20"},
		{facts.overlap, good, "1 A writes 5", "only 1 holds"},
		{facts.beliefs, "45 B HOLDS", "4 B HOLDS", "B was granted at 0.40s, when A still believed to hold, since 0.10s"},
		{facts.beliefs, "80 B NOTIFIED", "100 B NOTIFIED", "C was granted at 9.10s, when B still believed"},
		{facts.beliefs, "80 B NOTIFIED:_lost 9,", "", "when B still believed to hold, since 4.50s"},
		{facts.beliefs, "B HOLDS 9", "B HOLDS 5", "B has token 5 after A had 5"},
		{facts.beliefs, "C HOLDS 12", "C HOLDS 8", "C has token 8 after B had 9"},
		{facts.beliefs, good, "1 A HOLDS 5", "no handoff"},
		{facts.takeover, "5 A KILLED 5,", "", `"KILLED"`},
		{facts.takeover, "45 B HOLDS", "65 B HOLDS", "B was granted 6.00s after A was killed; 5.00s is the most"},
		{facts.takeover, good, "1 A HOLDS 5, 2 A KILLED 5", `"HOLDS"`},
		{facts.takeover, good, "1 B HOLDS 5, 2 A KILLED 5, 3 A HOLDS 6", `"HOLDS"`},
		{facts.notified, "51 B CUT_OFF 9,", "", `"CUT OFF"`},
		{facts.notified, "80 B NOTIFIED", "92 B NOTIFIED", "B notified at 9.20s, C granted at 9.10s"},
		{facts.notified, "80 B NOTIFIED", "91 B NOTIFIED", "B notified at 9.10s"}, // the same time is too late
		{facts.notified, "80 B NOTIFIED:_lost 9,", "", `"NOTIFIED: lost"`},
		{facts.stale, "93 C STOPPED 12", "93 C starts 0", `"STOPPED"`},
		{facts.stale, "135 C CONTINUES 12,", "", `event 1 is not "CONTINUES"`},
		{facts.stale, "writes_too_late", "writes", "after C was stopped, event 2 is not"},
		{facts.stale, "135 C writes_too_late 12,", "", "event 2 is not"},
		{facts.stale, "136 C NOTIFIED:_lost 12", "136 C writes 12", "event 3 is not"},
		{facts.clean, "141 A ends 0,", "", "1 workers did not end"},
	} {
		_, err := c.check(with(t, c.old, c.instead))
		require.ErrorContains(t, err, c.says, c.old+" -> "+c.instead)
	}
	f := with(t, "", "")
	f.left = 2
	require.ErrorContains(t, verify(new(strings.Builder), f), "1 of ")
}
