package command

// The content of a --metrics-file: how the latest run of a job proceeds. It uses no clock and no
// file.

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// runReport describes a run. All of it is about the latest run, and about the latest term of a
// candidate.
type runReport struct {
	path, file string // the labels; two jobs with one lock have two files
	elect      bool   // it campaigns, and holds for as long as it leads
	began      time.Time
	waits      time.Time // when the wait began
	granted    time.Time
	acquired   bool // the wait ended with the lock
	ran        bool
	holds      bool
	lost       bool
	waited     time.Duration
	held       time.Duration
	succeeded  time.Time // when COMMAND last succeeded, perhaps in an earlier run
	ended      bool
	code       int
}

// wait begins a wait. The values of the last hold stay.
func (r *runReport) wait(now time.Time) { r.waits, r.acquired = now, false }

func (r *runReport) grant(now time.Time) {
	r.granted, r.acquired, r.ran, r.holds, r.lost = now, true, false, true, false
	r.waited, r.held = now.Sub(r.waits), 0
}

// release ends the hold. ran reports whether COMMAND was started under it: --once may find nothing
// to do.
func (r *runReport) release(now time.Time, lost, ran bool) {
	r.holds, r.lost, r.ran, r.held = false, lost, ran, now.Sub(r.granted)
}

// end ends the run, at any stage.
func (r *runReport) end(now time.Time, code int) {
	switch {
	case r.holds:
		r.release(now, false, true)
	case !r.acquired:
		r.waited = now.Sub(r.waits)
	}
	r.ended, r.code = true, code
	if code == 0 && r.acquired && r.ran {
		r.succeeded = now
	}
}

// isUnreleasedIn reports whether a text describes this run as it was before its release.
func (r *runReport) isUnreleasedIn(text string) bool {
	has := func(metric string, value float64) bool {
		return strings.Contains(text, "\n"+metric+r.labels()+" "+strconv.FormatFloat(value, 'f', -1, 64)+"\n")
	}
	return has(startMetric, unixTime(r.began)) && (has(holdsMetric, 1) || has(acquiredMetric, 0))
}

const (
	startMetric    = "zklock_run_start_timestamp_seconds"
	successMetric  = "zklock_run_success_timestamp_seconds"
	acquiredMetric = "zklock_run_acquired"
	holdsMetric    = "zklock_run_holds"
)

// String returns the report in Prometheus's text format. Its help is the same for all runs, because
// the collector rejects files that differ in it.
func (r *runReport) String() string {
	var b strings.Builder
	gauge := func(name, help string, value float64) {
		fmt.Fprintf(&b, "# HELP %s %s\n# TYPE %s gauge\n%s%s %s\n", name, help, name, name, r.labels(), strconv.FormatFloat(value, 'f', -1, 64))
	}
	gauge(startMetric, "When the latest run began.", unixTime(r.began))
	gauge(successMetric, "When a run last held the lock to its end, and COMMAND ended with exit code 0; 0 if none has.", unixTime(r.succeeded))
	gauge("zklock_run_elect", "Whether the latest run is a candidate: it holds the lock for as long as it leads.", number(r.elect))
	gauge(acquiredMetric, "Whether the latest run got the lock.", number(r.acquired))
	gauge(holdsMetric, "Whether the latest run holds the lock now.", number(r.holds))
	gauge("zklock_run_lost", "Whether the latest run lost the lock before the release.", number(r.lost))
	gauge("zklock_run_wait_seconds", "How long the latest run waited for the lock, connecting included.", seconds(r.waited))
	if !r.holds {
		gauge("zklock_run_hold_seconds", "How long the latest run held the lock. Missing while it does.", seconds(r.held))
	}
	if r.ended {
		gauge("zklock_run_exit_code", "The exit code of the latest run. Missing while it is under way.", float64(r.code))
	}
	return b.String()
}

func (r *runReport) labels() string {
	return fmt.Sprintf(`{path="%s",file="%s"}`, labelValue(r.path), labelValue(r.file))
}

func labelValue(s string) string {
	return strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(strings.ToValidUTF8(s, "\ufffd"))
}

func number(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

func seconds(d time.Duration) float64 { return d.Round(time.Millisecond).Seconds() }

// unixTime returns 0 for no time, so that an alert on its age fires.
func unixTime(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.UnixMilli()) / 1000
}

// successIn returns when a run last succeeded according to a report with these labels, or the zero
// time.
func successIn(text, labels string) time.Time {
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(line, successMetric+labels+" "); ok {
			s, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			if err != nil || !(s > 0 && s < 1e11) {
				break
			}
			return time.UnixMilli(int64(s*1000 + 0.5))
		}
	}
	return time.Time{}
}
