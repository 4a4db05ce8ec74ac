//go:build linux

package cutup_test

// Curator's lock in the same run: a program of ours on Debian's jars.

import (
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock/internal/cutup"
	"github.com/zklock/zklock/internal/zkserver"
)

// compileRace compiles the program and returns its class path.
func compileRace(t *testing.T) string {
	t.Helper()
	if _, err := exec.LookPath("javac"); err != nil {
		lacking(t, "Curator beside it needs a javac (Debian: apt-get install openjdk-17-jdk-headless)")
	}
	dir := t.TempDir()
	jars, err := zkserver.ClassPath("curator-recipes", "curator-framework", "curator-client")
	if err != nil {
		lacking(t, "Curator beside it: "+err.Error())
	}
	classPath := strings.Join(append([]string{dir}, jars...), ":")
	out, err := exec.Command("javac", "-cp", classPath, "-d", dir, "curator/Race.java").CombinedOutput()
	require.NoError(t, err, "%s", out)
	return classPath
}

// race is the running program.
type race struct {
	*process
	events map[int]map[string]time.Time // by session timeout in ms; the first time of each event
}

// startRace has Curator hold a lock and queue for it, once for each session timeout, from a host.
func startRace(t *testing.T, classPath string, from *cutup.Host, own, others string, timeouts ...time.Duration) *race {
	t.Helper()
	args := []string{"-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx128m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=off", "-cp", classPath, "Race", own, others, "/curator"}
	r := &race{events: make(map[int]map[string]time.Time)}
	for _, d := range timeouts {
		args = append(args, strconv.Itoa(int(d.Milliseconds())))
		r.events[int(d.Milliseconds())] = make(map[string]time.Time)
	}
	r.process = start(t, from.Command("java", args...))
	r.all(t, "queued")
	return r
}

// all reads the program's output until the event has arrived for every session timeout.
func (r *race) all(t *testing.T, event string) {
	t.Helper()
	limit := time.After(late)
	for {
		all := true
		for _, seen := range r.events {
			all = all && !seen[event].IsZero()
		}
		if all {
			return
		}
		select {
		case line, ok := <-r.lines:
			if !ok {
				require.FailNow(t, "Curator's program ended", "%s", r.stderr.String())
			}
			var at int64
			var timeout int
			var what string
			_, err := fmt.Sscan(line, &at, &timeout, &what)
			require.NoError(t, err, line)
			require.False(t, strings.HasPrefix(what, "failed"), line)
			if seen := r.events[timeout]; seen[what].IsZero() {
				seen[what] = time.UnixMilli(at)
			}
		case <-limit:
			require.FailNow(t, "Curator's program did not say "+event, "%v", r.events)
		}
	}
}
