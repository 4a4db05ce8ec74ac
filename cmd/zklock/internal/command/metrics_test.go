//go:build linux || darwin

package command

// Attacks on --metrics-file: what the collector must be able to read at any moment, after each way
// to end, and what may be in the way.

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock/zktest"
)

func metricsIn(t *testing.T, file string) gauges {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	g, err := readGauges(string(text))
	require.NoError(t, err)
	return g
}

// requireOnly wants the directory to have the file and its lock and no other, readable for the
// collector, which runs as another user.
func requireOnly(t *testing.T, file string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Dir(file))
	require.NoError(t, err)
	require.Len(t, entries, 2)
	require.Equal(t, "."+filepath.Base(file)+".lock", entries[0].Name())
	require.Equal(t, filepath.Base(file), entries[1].Name())
	info, err := entries[1].Info()
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o644), info.Mode())
}

// metricsRun is a run with a file in a directory of its own.
func metricsRun(t *testing.T, srv *zktest.Server, path string, rest ...string) (p *proc, file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "job.prom")
	return start(t, nil, runArgs(srv.Addr(), path, append([]string{"--metrics-file", file}, rest...)...)...), file
}

// For each way to end: the exit code of the run, and what the file says.
func TestRun_MetricsFile_EachWayToEnd(t *testing.T) {
	t.Parallel()
	srv := zktest.Start(t, zktest.WithConfig("minSessionTimeout=1000", "maxSessionTimeout=60000"))
	srv.Inject(zktest.Before(zktest.Create).Path("/refused").Fail(zktest.NoAuth))
	holder(t, srv, "/held")
	for _, tt := range []struct {
		name           string
		path           string
		args           []string
		signal         string // is sent when COMMAND says ready
		code           int
		acquired, lost float64
	}{
		{name: "ran", args: []string{"--", "true"}, acquired: 1},
		{name: "command failed", args: []string{"--", "sh", "-c", "exit 3"}, code: 3, acquired: 1},
		{name: "command ended by a signal", args: []string{"--", "sh", "-c", "kill -TERM $$"}, code: 143, acquired: 1},
		{name: "command exits as if the lock were lost", args: []string{"--", "sh", "-c", "exit 120"}, code: exitLost, acquired: 1},
		{name: "ended by a signal", args: []string{"--", "sh", "-c", "echo ready; exec sleep 1000"}, signal: "TERM", code: 143, acquired: 1},
		{name: "lost", args: []string{"--", "sh", "-c", "echo ready; exec sleep 1000"}, signal: "delete", code: exitLost, acquired: 1, lost: 1},
		{name: "not acquired at once", path: "/held", args: []string{"-n", "--", "true"}, code: exitNotAcquired},
		{name: "not acquired, which is no failure", path: "/held", args: []string{"-n", "-E", "0", "--", "true"}},
		{name: "not acquired, quiet", path: "/held", args: []string{"-n", "-q", "--", "true"}, code: exitNotAcquired},
		{name: "not acquired in time", path: "/held", args: []string{"--wait", "2s", "--", "true"}, code: exitNotAcquired},
		{name: "signal while waiting", path: "/held", args: []string{"--", "true"}, signal: "TERM while waiting", code: 143},
		{name: "refused", path: "/refused", args: []string{"--", "true"}, code: exitRefused},
		{name: "no server", args: []string{"-s", "127.0.0.1:1", "--connect-timeout", "100ms", "--", "true"}, code: exitNoServer},
		{name: "no such command", args: []string{"--", "/no/such/command"}, code: exitNotFound},
		{name: "wrong usage", path: "no/slash", args: []string{"--", "true"}, code: exitUsage},
		{name: "flags that contradict each other", args: []string{"-n", "-w", "1s", "--", "true"}, code: exitUsage},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if tt.path == "" {
				tt.path = "/" + strings.ReplaceAll(tt.name, " ", "-")
			}
			began := time.Now()
			p, file := metricsRun(t, srv, tt.path, tt.args...)
			switch tt.signal {
			case "TERM":
				p.prints("ready")
				p.signal(syscall.SIGTERM)
			case "TERM while waiting":
				p.prints("waiting: number ")
				p.signal(syscall.SIGTERM)
			case "delete":
				p.prints("ready")
				require.NoError(t, srv.Delete(tt.path+"/"+srv.Children(tt.path)[0]))
			}
			require.Equal(t, tt.code, p.wait(), p.stderr.String())
			requireOnly(t, file)
			g := metricsIn(t, file)
			require.Equal(t, tt.path, g.path)
			require.Equal(t, "job.prom", g.file)
			v := g.values
			require.Len(t, v, 9)
			require.Equal(t, []float64{float64(tt.code), tt.acquired, tt.lost, 0}, []float64{v["exit_code"], v["acquired"], v["lost"], v["holds"]})
			require.GreaterOrEqual(t, v["start_timestamp_seconds"], math.Floor(unixTime(began)))
			require.LessOrEqual(t, v["start_timestamp_seconds"]+v["wait_seconds"]+v["hold_seconds"], unixTime(time.Now())+0.01)
			require.Equal(t, tt.code == 0 && tt.acquired == 1, v["success_timestamp_seconds"] >= v["start_timestamp_seconds"])
			require.Equal(t, tt.acquired == 1, v["hold_seconds"] > 0)
		})
	}
}

// holder holds a lock until the test ends.
func holder(t *testing.T, srv *zktest.Server, path string) {
	t.Helper()
	start(t, nil, runArgs(srv.Addr(), path, "--", "sh", "-c", "echo ready; exec sleep 1000")...).prints("ready")
}

// A run under way can be seen: it holds, and has no exit code. If zklock is killed, its guardian
// reports the end.
func TestRun_MetricsFile_UnderWay(t *testing.T) {
	t.Parallel()
	srv := zktest.Start(t, zktest.WithConfig("minSessionTimeout=1000", "maxSessionTimeout=60000"))
	p, file := metricsRun(t, srv, "/job", "--", "sh", "-c", "echo ready; exec sleep 1000")
	p.prints("ready")
	eventually(t, "it holds", func() bool { return metricsIn(t, file).values["holds"] == 1 })
	check := func() {
		g := metricsIn(t, file)
		require.Equal(t, []float64{1, 1, 0}, []float64{g.values["holds"], g.values["acquired"], g.values["lost"]})
		require.NotContains(t, g.values, "exit_code")
		require.NotContains(t, g.values, "hold_seconds")
	}
	check()
	began := metricsIn(t, file).values["start_timestamp_seconds"]
	p.signal(syscall.SIGKILL)
	p.wait()
	eventually(t, "the guardian reports the end", func() bool { return metricsIn(t, file).values["exit_code"] == 137 })
	v := metricsIn(t, file).values
	require.Equal(t, []float64{began, 1, 0, 1}, []float64{v["start_timestamp_seconds"], v["acquired"], v["holds"], v["lost"]})
	require.Positive(t, v["hold_seconds"])
	require.Empty(t, srv.Children("/job"))
	requireOnly(t, file)
}

// The guardian of a killed zklock leaves the file to a later run, which may be under way or over,
// and to a run that has released.
func TestMetricsFile_GuardianOfAKilledRun_LeavesItToLaterRuns(t *testing.T) {
	t.Parallel()
	for name, then := range map[string]func(killed, next *metricsFile){
		"a later run holds":    func(_, next *metricsFile) { next.grant() },
		"a later run waits":    func(_, next *metricsFile) { next.noHoldYet() },
		"a later run is over":  func(_, next *metricsFile) { next.grant(); next.end(0) },
		"the run has released": func(killed, _ *metricsFile) { killed.release(false, true) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "job.prom")
			killed, err := newMetricsFile(file, "/job", false, os.Stderr)
			require.NoError(t, err)
			killed.mu.report.began = time.Now().Add(-time.Hour)
			killed.grant()
			killed.writes.Wait()
			left := *killed.ifKilled()
			next, err := newMetricsFile(file, "/job", false, os.Stderr)
			require.NoError(t, err)
			if name != "the run has released" {
				require.NoError(t, killed.side.Close()) // as the kernel does
			}
			then(killed, next)
			killed.writes.Wait()
			next.writes.Wait()
			want, err := os.ReadFile(file)
			require.NoError(t, err)
			left.end(os.Stderr)
			got, err := os.ReadFile(file)
			require.NoError(t, err)
			require.Equal(t, string(want), string(got))
		})
	}
}

// A run that is killed together with its guardian leaves zklock_run_holds 1 in its file. The next
// one on the host takes that back when it begins, and not only when it has waited: the probe of a
// standby asks whether it leads. A run that holds keeps the file.
func TestRun_MetricsFile_AfterAKill_NextRunHoldsNothingYet(t *testing.T) {
	t.Parallel()
	srv := zktest.Start(t, zktest.WithConfig("minSessionTimeout=1000", "maxSessionTimeout=60000"))
	p, file := metricsRun(t, srv, "/job", "--elect", "--", "sh", "-c", "echo ready; exec sleep 1000")
	p.prints("ready")
	eventually(t, "it holds", func() bool { return metricsIn(t, file).values["holds"] == 1 })
	standby := start(t, nil, runArgs(srv.Addr(), "/job", "--elect", "--metrics-file", file, "--", "sleep", "1000")...)
	standby.prints("waiting")
	require.Equal(t, 1.0, metricsIn(t, file).values["holds"], "another run has the file")
	standby.signal(syscall.SIGTERM)
	require.Equal(t, 143, standby.wait())
	require.Equal(t, 1.0, metricsIn(t, file).values["holds"], "at its end, too")
	guardian := guardianOf(t, p)
	p.signal(syscall.SIGSTOP) // it would report that its guardian was killed
	require.NoError(t, syscall.Kill(guardian, syscall.SIGKILL))
	p.signal(syscall.SIGKILL)
	p.wait()
	require.Equal(t, 1.0, metricsIn(t, file).values["holds"])
	occupy(t, sessionAt(t, srv.Addr()), "/job")
	next := start(t, nil, runArgs(srv.Addr(), "/job", "--elect", "--metrics-file", file, "--", "sleep", "1000")...)
	next.prints("waiting: number 2 of 2")
	v := metricsIn(t, file).values
	require.Equal(t, []float64{0, 0, 0}, []float64{v["holds"], v["acquired"], v["lost"]})
	require.NotContains(t, v, "exit_code")
}

// What stands in the place of the side file may be a pipe, which would block who opens it.
func TestMetricsFile_PipeInsteadOfTheLockFile_IsWrongUsage(t *testing.T) {
	file := filepath.Join(t.TempDir(), "job.prom")
	require.NoError(t, syscall.Mkfifo(besideName(file, "lock"), 0o600))
	_, err := newMetricsFile(file, "/job", false, os.Stderr)
	require.Equal(t, exitUsage, codeOf(err))
	require.ErrorContains(t, err, ".job.prom.lock is not a regular file: remove it")
}

// The loss of a candidate is seen while it stands again, and not any more when it leads again.
func TestRun_MetricsFile_Elect_LossIsSeenUntilItLeadsAgain(t *testing.T) {
	t.Parallel()
	srv := zktest.Start(t, zktest.WithConfig("minSessionTimeout=1000", "maxSessionTimeout=60000"))
	p, file := metricsRun(t, srv, "/lead", "--elect", "--", "sh", "-c", "echo ready; exec sleep 1000")
	p.prints("ready")
	leads := srv.Children("/lead")[0]
	other := start(t, nil, runArgs(srv.Addr(), "/lead", "--elect", "--", "sh", "-c", "echo ready; exec sleep 1000")...)
	other.prints("waiting: number 2 of 2")
	require.NoError(t, srv.Delete("/lead/"+leads))
	other.prints("ready")
	seen := func(what string, want ...float64) {
		t.Helper()
		eventually(t, what, func() bool {
			v := metricsIn(t, file).values
			return slices.Equal(want, []float64{v["acquired"], v["holds"], v["lost"]})
		})
	}
	seen("it stands again", 0, 0, 1)
	require.NotContains(t, metricsIn(t, file).values, "exit_code")
	require.Equal(t, 1.0, metricsIn(t, file).values["elect"])
	p.prints("waiting: number 2 of 2")
	other.signal(syscall.SIGTERM)
	require.Equal(t, 143, other.wait())
	seen("it leads again", 1, 1, 0)
	p.signal(syscall.SIGTERM) // if it were killed, its guardian would write while the directory is removed
	require.Equal(t, 143, p.wait())
}

// When a job last succeeded stays in its file through runs that fail or do not get the lock.
func TestRun_MetricsFile_LastSuccessStays(t *testing.T) {
	t.Parallel()
	srv := zktest.Start(t, zktest.WithConfig("minSessionTimeout=1000", "maxSessionTimeout=60000"))
	file := filepath.Join(t.TempDir(), "job.prom")
	next := func(code int, rest ...string) map[string]float64 {
		t.Helper()
		require.Equal(t, code, start(t, nil, runArgs(srv.Addr(), "/job", append([]string{"--metrics-file", file}, rest...)...)...).wait())
		return metricsIn(t, file).values
	}
	require.Zero(t, next(1, "--", "false")["success_timestamp_seconds"])
	succeeded := next(0, "--", "true")["success_timestamp_seconds"]
	require.Positive(t, succeeded)
	require.Equal(t, succeeded, next(1, "--", "false")["success_timestamp_seconds"])
	holder(t, srv, "/job")
	require.Equal(t, succeeded, next(0, "-n", "-E", "0", "--", "true")["success_timestamp_seconds"])
}

// While a run holds, the file is its own: another that waits, or does not get the lock, leaves it
// alone. What a zklock that was killed in the middle of a write has left goes away.
func TestRun_MetricsFile_AnotherRunOfTheJob_LeavesItToTheHolder(t *testing.T) {
	t.Parallel()
	srv := zktest.Start(t, zktest.WithConfig("minSessionTimeout=1000", "maxSessionTimeout=60000"))
	file := filepath.Join(t.TempDir(), "job.prom")
	require.NoError(t, os.WriteFile(besideName(file, "tmp"), []byte("half"), 0o400))
	args := func(rest ...string) []string {
		return runArgs(srv.Addr(), "/job", append([]string{"--metrics-file", file}, rest...)...)
	}
	p := start(t, nil, args("--", "sh", "-c", "echo ready; trap 'exit 0' TERM; while :; do sleep 0.01; done")...)
	p.prints("ready")
	eventually(t, "it holds", func() bool { return metricsIn(t, file).values["holds"] == 1 })
	holds := metricsIn(t, file)
	require.Equal(t, 0, start(t, nil, args("-n", "-E", "0", "--", "true")...).wait())
	require.Equal(t, exitNotAcquired, start(t, nil, args("-w", "3s", "--", "true")...).wait())
	require.Equal(t, holds, metricsIn(t, file))
	p.signal(syscall.SIGTERM)
	p.wait()
	require.Contains(t, metricsIn(t, file).values, "exit_code")
	require.Equal(t, exitNotFound, start(t, nil, args("--", "/no/such/command")...).wait())
	require.Equal(t, float64(exitNotFound), metricsIn(t, file).values["exit_code"])
	requireOnly(t, file)
}

// The next holder begins before the one before has written its end. Both are in the file: the end
// of the last, and the success of the first.
func TestMetricsFile_NextHolderBegins_SuccessStays(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "job.prom")
	made := func() *metricsFile {
		m, err := newMetricsFile(file, "/job", false, os.Stderr)
		require.NoError(t, err)
		return m
	}
	for range share(200) {
		require.NoError(t, os.RemoveAll(file))
		first, next := made(), made()
		first.grant()
		first.writes.Wait()
		first.release(false, true)
		next.grant() // while it is about to write, the first ends
		first.end(0)
		next.end(1)
		v := metricsIn(t, file).values
		require.Equal(t, 1.0, v["exit_code"])
		require.Positive(t, v["success_timestamp_seconds"])
	}
}

// A candidate that stands again leaves the file to the one that leads.
func TestMetricsFile_Candidate_CampaignsAgain_LetsGo(t *testing.T) {
	file := filepath.Join(t.TempDir(), "job.prom")
	a, err := newMetricsFile(file, "/lead", false, os.Stderr)
	require.NoError(t, err)
	b, err := newMetricsFile(file, "/lead", false, os.Stderr)
	require.NoError(t, err)
	a.grant()
	a.release(true, true)
	a.wait()
	a.writes.Wait()
	b.grant()
	b.writes.Wait()
	require.Equal(t, 1.0, metricsIn(t, file).values["holds"])
	a.end(0)
	require.Equal(t, 1.0, metricsIn(t, file).values["holds"])
	b.end(0)
	require.Zero(t, metricsIn(t, file).values["holds"])
}

// A file that cannot be written is noticed before the job starts, and nothing is left.
func TestRun_MetricsFile_CannotBeWritten_IsWrongUsage(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o600))
	require.NoError(t, os.Mkdir(filepath.Join(dir, "dir.prom"), 0o700))
	for name, why := range map[string]string{
		"":              `--metrics-file "" is no file`,
		"none/job.prom": "no file can be created in its directory: no such file or directory",
		"file/job.prom": "no file can be created in its directory: not a directory",
		"dir.prom":      "exists, and is not a file",
		"job.txt":       "the textfile collector reads files that end in .prom",
	} {
		if name != "" {
			name = filepath.Join(dir, name)
		}
		p := start(t, nil, runArgs("127.0.0.1:1", "/job", "--metrics-file", name, "--", "echo", "ran")...)
		require.Equal(t, exitUsage, p.wait())
		require.Contains(t, p.stderr.String(), why)
		require.Equal(t, 1, strings.Count(p.stderr.String(), "\n"))
	}
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 2)
}

// A file that cannot be written later is a line on stderr, also of a quiet run, and the exit code
// stays the job's.
func TestRun_MetricsFile_DirectoryVanishes_ExitCodeIsTheJobs(t *testing.T) {
	srv := zktest.Start(t, zktest.WithConfig("minSessionTimeout=1000", "maxSessionTimeout=60000"))
	file := filepath.Join(t.TempDir(), "metrics", "job.prom")
	require.NoError(t, os.Mkdir(filepath.Dir(file), 0o700))
	p := start(t, nil, runArgs(srv.Addr(), "/job", "-q", "--metrics-file", file, "--", "sh", "-c",
		`until [ -e "$0" ]; do sleep 0.01; done; rm -r "$1"; exit 7`, file, filepath.Dir(file))...)
	require.Equal(t, 7, p.wait())
	require.Equal(t, fmt.Sprintf("zklock: /job: --metrics-file %s cannot be written: no such file or directory\n", file), p.stderr.String())
}

// Two files of one lock in one directory: the collector wants no two series with the same labels.
func TestRun_MetricsFile_TwoJobsOfOneLock_DifferInALabel(t *testing.T) {
	dir := t.TempDir()
	var seen []string
	for _, name := range []string{"a.prom", "b.prom"} {
		m, err := newMetricsFile(filepath.Join(dir, name), "/locks/db", false, os.Stderr)
		require.NoError(t, err)
		m.end(0)
		g := metricsIn(t, filepath.Join(dir, name))
		seen = append(seen, g.path+" "+g.file)
	}
	require.Equal(t, []string{"/locks/db a.prom", "/locks/db b.prom"}, seen)
}

// A collector that reads all the time finds whole files only, of whatever run, while several write
// one file.
func TestMetricsFile_ReadAllTheTime_IsNeverHalf(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "job.prom")
	var writers sync.WaitGroup
	for w := range 4 {
		writers.Go(func() {
			for i := range share(200) {
				m, err := newMetricsFile(file, "/job"+strings.Repeat("x", (w*200+i)%7*1000), false, os.Stderr)
				if err != nil {
					t.Error(err)
					return
				}
				m.grant()
				m.release(i%2 == 0, true)
				m.end(i % 3)
			}
		})
	}
	done := make(chan struct{})
	go func() { writers.Wait(); close(done) }()
	reads := 0
	for over := false; !over; {
		select {
		case <-done:
			over = true
		default:
		}
		text, err := os.ReadFile(file)
		if os.IsNotExist(err) && !over {
			continue // the first is on its way
		}
		require.NoError(t, err)
		g, err := readGauges(string(text))
		require.NoError(t, err)
		require.True(t, strings.HasPrefix(g.path, "/job"))
		reads++
	}
	require.Positive(t, reads)
	requireOnly(t, file)
}

// The run has ended when a second signal says so. What was on its way then changes nothing.
func TestMetricsFile_AfterTheEnd_NothingChanges(t *testing.T) {
	file := filepath.Join(t.TempDir(), "job.prom")
	m, err := newMetricsFile(file, "/job", false, os.Stderr)
	require.NoError(t, err)
	m.grant()
	m.end(130)
	m.release(true, true)
	m.end(0)
	v := metricsIn(t, file).values
	require.Equal(t, []float64{130, 1, 0, 0}, []float64{v["exit_code"], v["acquired"], v["lost"], v["holds"]})
}

// A file system that hangs holds up no grant, and the end not for ever: here it is a pipe that
// nobody writes into.
func TestMetricsFile_FileSystemHangs_RunEnds(t *testing.T) {
	file := filepath.Join(t.TempDir(), "job.prom")
	var said buffer
	m, err := newMetricsFile(file, "/job", false, &said)
	require.NoError(t, err)
	m.within = 10 * time.Millisecond
	require.NoError(t, syscall.Mkfifo(file, 0o600))
	m.grant()
	m.end(0)
	require.Equal(t, fmt.Sprintf("zklock: /job: --metrics-file %s cannot be written: the file system did not respond within 10ms\n", file), said.String())
	w, err := os.OpenFile(file, os.O_WRONLY, 0)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	m.writes.Wait()
}
