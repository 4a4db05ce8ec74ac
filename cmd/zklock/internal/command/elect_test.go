//go:build linux || darwin

package command

// Attacks on `run --elect`: terms end and begin, and nothing of one runs beside the next, on
// whatever host.

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock/internal/proctest"
	"github.com/zklock/zklock/internal/zkserver"
)

func elect(t *testing.T, srv *zkserver.Server, path, log string, flags ...string) *proc {
	t.Helper()
	return runFamily(t, srv, path, log, append([]string{"--elect"}, flags...)...)
}

// leaderNode returns the node in front.
func leaderNode(t *testing.T, srv *zkserver.Server, path string) string {
	t.Helper()
	return participants(t, session(t, srv), path)[0].Node
}

// A command that ends by itself while it leads ends the run, with its code, and the next candidate
// leads.
func TestElect_CommandEnds_RunEndsWithItsCode(t *testing.T) {
	t.Parallel()
	srv, path := server(t), lockPath(t)
	s := session(t, srv)
	stop, end := stopFile(t)
	first := run(t, srv, path, "--elect", "--", "sh", "-c", untilStop+`; exit 7`, stop)
	first.prints("runs ")
	next := run(t, srv, path, "--elect", "--", "sh", "-c", `echo "led $ZKLOCK_TOKEN"; kill -TERM $$`)
	next.prints("waiting: number 2 of 2")
	skips := run(t, srv, path, "--elect", "--no-wait", "-q", "-E", "9", "--", "echo", "ran")
	require.Equal(t, 9, skips.wait())
	require.Empty(t, skips.stdout.String()+skips.stderr.String())
	gaveUp := run(t, srv, path, "--elect", "--wait", "3s", "--", "echo", "ran")
	require.Equal(t, exitNotAcquired, gaveUp.wait())
	require.Len(t, participants(t, s, path), 2, "they leave nothing")
	end()
	require.Equal(t, 7, first.wait())
	require.Equal(t, 143, next.wait())
	require.Contains(t, next.stdout.String(), "led ")
	require.NotContains(t, first.stderr.String()+next.stderr.String(), "campaigning again")
	require.Empty(t, participants(t, s, path))
}

// After a loss all that came from the command has ended before anybody leads, and the command is
// started again when the run is elected again: in turn, here.
func TestElect_Lost_CommandStartsAgainWhenElectedAgain(t *testing.T) {
	t.Parallel()
	srv, path, log := server(t), lockPath(t), filepath.Join(t.TempDir(), "log")
	s := session(t, srv)
	first := elect(t, srv, path, log)
	token := waitForFamily(t, log, 0)
	second := elect(t, srv, path, log)
	second.prints("waiting: number 2 of 2")
	leader, other := first, second
	for range 3 {
		before := pids(readLines(t, log), token)
		deleteNode(t, s, participants(t, s, path)[0].Node)
		next := waitForFamily(t, log, token)
		requireAllGone(t, before)
		leader.prints(fmt.Sprintf("lost the lock (token %d, node %s/_c_", token, path))
		require.Contains(t, leader.stderr.String(), "; the command was ended with SIGTERM; campaigning again\n")
		eventually(t, "it stands again", func() bool { return len(participants(t, s, path)) == 2 })
		guardianOf(t, other) // and no more children
		token, leader, other = next, other, leader
	}
	other.signal(syscall.SIGTERM) // while it waits
	require.Equal(t, 143, other.wait())
	require.Contains(t, other.stderr.String(), "not acquired: ended by signal")
	leader.signal(syscall.SIGTERM)
	require.Equal(t, 143, leader.wait())
	requireAllGone(t, pids(readLines(t, log), 0))
	require.Empty(t, participants(t, s, path))
}

// What the command started has ended before the next term begins, also out of its group and deaf to
// SIGTERM.
func TestElect_Lost_WhatTheCommandLeftHasEndedBeforeTheNextTerm(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux lets the guardian find what left the command's group")
	}
	t.Parallel()
	srv := server(t)
	s := session(t, srv)
	for _, leftovers := range []string{"end", "wait"} {
		t.Run(leftovers, func(t *testing.T) {
			path, log := lockPath(t), filepath.Join(t.TempDir(), "log")
			p := start(t, jobEnv, runArgs(srv.ConnectString(), path, "--elect", "--leftovers", leftovers, "--", "sh", "-c",
				`setsid "$0" "$1" stubborn & sleep 1000`, os.Args[0], log)...)
			token := int64(0)
			for range 2 {
				eventually(t, "it ticks", func() bool {
					ls := readLines(t, log)
					return len(ls) > 0 && ls[len(ls)-1].Token > token
				})
				ls := readLines(t, log)
				token = ls[len(ls)-1].Token
				deleteNode(t, s, participants(t, s, path)[0].Node)
			}
			eventually(t, "a third term", func() bool { ls := readLines(t, log); return ls[len(ls)-1].Token > token })
			ls := readLines(t, log)
			requireNoOverlap(t, ls)
			require.Len(t, pids(ls, 0), 3)
			asked := slices.DeleteFunc(ls, func(l line) bool { return l.What != "term" })
			require.Len(t, asked, 2, "each term's, once")
			p.signal(syscall.SIGTERM)
			p.wait()
			requireAllGone(t, pids(readLines(t, log), 0))
		})
	}
}

// The servers do not answer until the lease is over. The command has ended before, and starts again
// when they are back.
func TestElect_LeaseNotRenewed_EndsInTime_AndLeadsAgain(t *testing.T) {
	t.Parallel()
	srv := zkserver.Single(t, zkserver.Own())
	path, log := lockPath(t), filepath.Join(t.TempDir(), "log")
	p := start(t, jobEnv, runArgs(srv.ConnectString(), path, "--elect", "--lease", "quorum", "--leader-ping", "1s", "--", os.Args[0], log, "stubborn")...)
	eventually(t, "it runs", func() bool { return len(readLines(t, log)) > 3 })
	silence := time.Now()
	require.NoError(t, srv.Pause())
	p.prints("campaigning again")
	ls := readLines(t, log)
	one := ls[len(ls)-1].Token
	requireInTime(t, ls, one, silence)
	require.NoError(t, srv.Resume())
	eventually(t, "it leads again", func() bool {
		ls := readLines(t, log)
		return ls[len(ls)-1].Token > one
	})
	requireNoOverlap(t, readLines(t, log))
	p.signal(syscall.SIGKILL)
	requireAllGone(t, pids(readLines(t, log), 0))
}

// zklock is killed in a later term: its guardian of that term ends the command, and then the
// session.
func TestElect_ZklockKilledInItsSecondTerm_NextNeedNotWait(t *testing.T) {
	t.Parallel()
	srv, path, log := server(t), lockPath(t), filepath.Join(t.TempDir(), "log")
	p := elect(t, srv, path, log, longSession)
	one := waitForFamily(t, log, 0)
	deleteNode(t, session(t, srv), leaderNode(t, srv, path))
	two := waitForFamily(t, log, one)
	next := elect(t, srv, path, log, longSession)
	next.prints("waiting")
	family, killed := pids(readLines(t, log), two), time.Now()
	p.signal(syscall.SIGKILL)
	waitForFamily(t, log, two)
	require.Less(t, time.Since(killed), patience, "and not when the session has expired")
	requireAllGone(t, family)
	requireNoOverlap(t, readLines(t, log))
}

// Told to end in a term that is lost meanwhile, the run does not stand again.
func TestElect_AskedToEndAndLost_DoesNotCampaignAgain(t *testing.T) {
	t.Parallel()
	srv, path := server(t), lockPath(t)
	s := session(t, srv)
	p := run(t, srv, path, "--elect", "--", "sh", "-c", `trap "echo got it" TERM; echo ready; while :; do sleep 0.02; done`)
	p.prints("ready")
	p.signal(syscall.SIGTERM)
	p.prints("got it")
	deleteNode(t, s, participants(t, s, path)[0].Node)
	require.Equal(t, exitLost, p.wait())
	require.NotContains(t, p.stderr.String(), "campaigning again")
	require.Empty(t, participants(t, s, path))
}

// After a loss somebody else leads: --wait and --no-wait go for the second candidature as for the
// first.
func TestElect_Lost_WaitGoesForTheNextCandidatureToo(t *testing.T) {
	t.Parallel()
	srv := server(t)
	for _, wait := range []string{"--no-wait", "--wait=5s"} {
		path := lockPath(t)
		s := session(t, srv)
		p := run(t, srv, path, "--elect", wait, "-E", "9", "--", "sh", "-c", "echo ready; sleep 1000")
		p.prints("ready")
		next := make(chan struct{})
		go func() { defer close(next); occupy(t, s, path) }()
		eventually(t, "another stands", func() bool { return len(participants(t, s, path)) == 2 })
		time.Sleep(5 * time.Second) // longer than --wait, which was for the first
		require.Equal(t, 2, len(participants(t, s, path)), "a leader leads for longer than it waits")
		deleteNode(t, s, participants(t, s, path)[0].Node)
		<-next
		require.Equal(t, 9, p.wait())
		require.Contains(t, p.stderr.String(), "campaigning again\n")
		require.Contains(t, p.stderr.String(), ": not acquired: ")
		require.Equal(t, 1, strings.Count(p.stdout.String(), "ready"))
	}
}

// Between two terms zklock can be suspended, as it could before the first.
func TestElect_BetweenTerms_CanBeSuspended(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("the state of a process is read from /proc")
	}
	srv, path := server(t), lockPath(t)
	s := session(t, srv)
	p := run(t, srv, path, "--elect", longSession, "--", "sh", "-c", "echo ready; sleep 1000")
	p.prints("ready")
	next := make(chan func())
	go func() { _, release := occupy(t, s, path); next <- release }()
	eventually(t, "another stands", func() bool { return len(participants(t, s, path)) == 2 })
	deleteNode(t, s, participants(t, s, path)[0].Node)
	release := <-next
	p.prints("campaigning again")
	eventually(t, "it queues", func() bool { return len(participants(t, s, path)) == 2 })
	p.signal(syscall.SIGTSTP)
	eventually(t, "it is stopped", func() bool { return proctest.State(p.cmd.Process.Pid) == "T" })
	p.signal(syscall.SIGCONT)
	release()
	eventually(t, "it leads again", func() bool { return strings.Count(p.stdout.String(), "ready") == 2 })
	p.signal(syscall.SIGTERM)
	require.Equal(t, 143, p.wait())
}

// I7: what --leftovers leave leaves becomes zklock's child when the guardian ends, and is reaped
// with the next term at the latest.
func TestElect_WhatIsLeft_IsReaped(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("only Linux has subreapers")
	}
	srv, path := server(t), lockPath(t)
	s := session(t, srv)
	p := run(t, srv, path, "--elect", "--leftovers", "leave", "--", "sh", "-c", `setsid sh -c 'echo "left $$"; exec sleep 600' & sleep 1000`)
	for term := 1; term <= 2; term++ {
		eventually(t, "the term has begun", func() bool { return strings.Count(p.stdout.String(), "left ") == term })
		deleteNode(t, s, participants(t, s, path)[0].Node)
		eventually(t, "it is lost", func() bool { return strings.Count(p.stderr.String(), "campaigning again") == term })
		first, err := strconv.Atoi(strings.TrimPrefix(strings.Split(p.stdout.String(), "\n")[0], "left "))
		require.NoError(t, err)
		if term == 1 {
			eventually(t, "zklock inherits it", func() bool {
				out, _ := exec.Command("pgrep", "-P", strconv.Itoa(p.cmd.Process.Pid), "sleep").Output()
				return strings.TrimSpace(string(out)) == strconv.Itoa(first)
			})
			require.NoError(t, syscall.Kill(first, syscall.SIGKILL))
			continue
		}
		eventually(t, "it is reaped", func() bool { return syscall.Kill(first, 0) == syscall.ESRCH })
	}
	eventually(t, "the last term has begun", func() bool { return strings.Count(p.stdout.String(), "left ") == 3 })
	p.signal(syscall.SIGTERM)
	p.wait()
	for _, line := range strings.Split(strings.TrimSpace(p.stdout.String()), "\n")[1:] {
		pid, err := strconv.Atoi(strings.TrimPrefix(line, "left "))
		require.NoError(t, err)
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}
