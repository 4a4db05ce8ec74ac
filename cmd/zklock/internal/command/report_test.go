package command

// Attacks on what a --metrics-file says: its words, its labels, and what it takes from the file
// before.

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// gauges are the values of a file by their metric, without zklock_run_. The labels are those of
// all.
type gauges struct {
	values     map[string]float64
	path, file string
}

var (
	helpLine   = regexp.MustCompile(`^# HELP (zklock_run_[a-z]+(?:_[a-z]+)*) \S.*\.$`)
	sampleLine = regexp.MustCompile(`^([a-z_]+)\{path="((?:[^"\\\n]|\\[\\"n])*)",file="((?:[^"\\\n]|\\[\\"n])*)"\} (\d+(?:\.\d+)?)$`)
	unescape   = strings.NewReplacer(`\\`, `\`, `\"`, `"`, `\n`, "\n")
)

// readGauges reads the text format, and no more of it than a report needs: each metric has its
// help, its type and one sample. It refuses what promlint does: names with an abbreviated unit, of
// a counter, of a part of a histogram.
func readGauges(text string) (g gauges, err error) {
	g.values = map[string]float64{}
	lines := strings.Split(text, "\n")
	if len(lines) < 4 || lines[len(lines)-1] != "" || len(lines)%3 != 1 {
		return g, fmt.Errorf("%d lines, or no newline at the end", len(lines))
	}
	for family := range slices.Chunk(lines[:len(lines)-1], 3) {
		help, sample := helpLine.FindStringSubmatch(family[0]), sampleLine.FindStringSubmatch(family[2])
		switch {
		case help == nil || sample == nil || sample[1] != help[1]:
			return g, fmt.Errorf("no help and sample of one metric: %q", family)
		case family[1] != "# TYPE "+help[1]+" gauge":
			return g, fmt.Errorf("type: %q", family[1])
		case regexp.MustCompile(`_(total|count|sum|bucket|info|ms|milliseconds|minutes|hours|gauge)(_|$)`).MatchString(help[1]):
			return g, fmt.Errorf("promlint: %s", help[1])
		case strings.Contains(help[1], "timestamp") && !strings.HasSuffix(help[1], "_timestamp_seconds"):
			return g, fmt.Errorf("promlint: %s", help[1])
		}
		name := strings.TrimPrefix(help[1], "zklock_run_")
		path, file := unescape.Replace(sample[2]), unescape.Replace(sample[3])
		if _, twice := g.values[name]; twice || len(g.values) > 0 && (path != g.path || file != g.file) {
			return g, fmt.Errorf("%s comes twice, or with other labels: %q", name, text)
		}
		g.path, g.file = path, file
		if g.values[name], err = strconv.ParseFloat(sample[4], 64); err != nil {
			return g, err
		}
	}
	return g, nil
}

func TestRunReport_OfARunThatSucceeded_IsThis(t *testing.T) {
	at := func(s int) time.Time { return time.Unix(1_795_700_000+int64(s), 0) }
	r := runReport{path: "/locks/nightly", file: "backup.prom", began: at(0), waits: at(0)}
	r.grant(at(12))
	r.release(at(72).Add(340*time.Millisecond), false, true)
	r.end(at(73), 0)
	require.Equal(t, `# HELP zklock_run_start_timestamp_seconds When the latest run began.
# TYPE zklock_run_start_timestamp_seconds gauge
zklock_run_start_timestamp_seconds{path="/locks/nightly",file="backup.prom"} 1795700000
# HELP zklock_run_success_timestamp_seconds When a run last held the lock to its end, and COMMAND ended with exit code 0; 0 if none has.
# TYPE zklock_run_success_timestamp_seconds gauge
zklock_run_success_timestamp_seconds{path="/locks/nightly",file="backup.prom"} 1795700073
# HELP zklock_run_elect Whether the latest run is a candidate: it holds the lock for as long as it leads.
# TYPE zklock_run_elect gauge
zklock_run_elect{path="/locks/nightly",file="backup.prom"} 0
# HELP zklock_run_acquired Whether the latest run got the lock.
# TYPE zklock_run_acquired gauge
zklock_run_acquired{path="/locks/nightly",file="backup.prom"} 1
# HELP zklock_run_holds Whether the latest run holds the lock now.
# TYPE zklock_run_holds gauge
zklock_run_holds{path="/locks/nightly",file="backup.prom"} 0
# HELP zklock_run_lost Whether the latest run lost the lock before the release.
# TYPE zklock_run_lost gauge
zklock_run_lost{path="/locks/nightly",file="backup.prom"} 0
# HELP zklock_run_wait_seconds How long the latest run waited for the lock, connecting included.
# TYPE zklock_run_wait_seconds gauge
zklock_run_wait_seconds{path="/locks/nightly",file="backup.prom"} 12
# HELP zklock_run_hold_seconds How long the latest run held the lock. Missing while it does.
# TYPE zklock_run_hold_seconds gauge
zklock_run_hold_seconds{path="/locks/nightly",file="backup.prom"} 60.34
# HELP zklock_run_exit_code The exit code of the latest run. Missing while it is under way.
# TYPE zklock_run_exit_code gauge
zklock_run_exit_code{path="/locks/nightly",file="backup.prom"} 0
`, r.String())
}

// A run that got the lock and found nothing to do (--once) is no success of COMMAND.
func TestRunReport_NothingRan_IsNoSuccess(t *testing.T) {
	for _, ran := range []bool{false, true} {
		r := runReport{began: time.Now(), waits: time.Now()}
		r.grant(time.Now())
		r.release(time.Now(), false, ran)
		r.end(time.Now(), 0)
		require.Equal(t, ran, !r.succeeded.IsZero())
	}
}

// docs/command.md explains each metric, and no other.
func TestRunReport_ThePageHasItsMetrics(t *testing.T) {
	var explained, written []string
	for _, m := range regexp.MustCompile("(?m)^\\| `(zklock_run_[a-z_]+)` \\| ").FindAllStringSubmatch(commandPage(t), -1) {
		explained = append(explained, m[1])
	}
	for _, m := range regexp.MustCompile("(?m)^# TYPE ([a-z_]+) ").FindAllStringSubmatch((&runReport{ended: true}).String(), -1) {
		written = append(written, m[1])
	}
	require.Equal(t, written, explained)
}

// Whatever a path has in it, the collector reads it as it was. What is no UTF-8, no label can have.
func TestRunReport_HostileLabels_AreReadAsTheyWere(t *testing.T) {
	for _, path := range []string{`/a"b`, `/a\b`, `/a\nb`, "/a\nb", `/a\"} 1`, "/a\n# HELP b c.", "/é\u202e", "/a\tb", "/a} b=\"{"} {
		r := runReport{path: path, file: path + ".prom"}
		r.end(time.Now(), 1)
		g, err := readGauges(r.String())
		require.NoError(t, err, "%q", path)
		require.Equal(t, path, g.path)
		require.Equal(t, path+".prom", g.file)
	}
	g, err := readGauges((&runReport{path: "/a\xff"}).String())
	require.NoError(t, err)
	require.Equal(t, "/a\ufffd", g.path)
}

// The success of an earlier run is what the file says of the same job, and nothing else that may be
// in it.
func TestSuccessIn_OnlyWhatAReportContains(t *testing.T) {
	r := runReport{path: "/locks/nightly", file: "backup.prom", succeeded: time.UnixMilli(1_795_700_073_123)}
	require.True(t, r.succeeded.Equal(successIn(r.String(), r.labels())))
	for _, other := range []string{
		"", strings.ReplaceAll(r.String(), "nightly", "weekly"), strings.ReplaceAll(r.String(), "1795700073.123", "NaN"),
		strings.ReplaceAll(r.String(), "1795700073.123", "-1"), strings.ReplaceAll(r.String(), "1795700073.123", "1e300"),
		strings.ReplaceAll(r.String(), "1795700073.123", ""), (&runReport{path: "/locks/nightly", file: "backup.prom"}).String(),
	} {
		require.True(t, successIn(other, r.labels()).IsZero(), other)
	}
}
