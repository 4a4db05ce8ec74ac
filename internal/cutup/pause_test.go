//go:build linux

package cutup_test

// Processes that pause: a holder under SIGSTOP, and a resource that checks tokens, or does not.

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/internal/zkserver"
)

// The pauses are short because the servers' tick is: G is 1 s, two ticks of 500 ms.
const (
	pauseTimeout = 8 * time.Second
	pauseTick    = 500 * time.Millisecond
	pauseLock    = "/reports"
)

var pauseLease = zklock.QuorumLease(2 * pauseTick)

// pausedHolder is the child process: it holds the lock, and checks, writes and stops on command.
func pausedHolder(server, database string) error {
	ctx := context.Background()
	s, err := zklock.Connect(ctx, server, zklock.WithSessionTimeout(pauseTimeout), zklock.WithLease(pauseLease))
	if err != nil {
		return err
	}
	defer s.Close()
	m, err := zklock.NewMutex(s, pauseLock)
	if err != nil {
		return err
	}
	hold, err := m.Acquire(ctx)
	if err != nil {
		return err
	}
	last := time.Now() // before the parent can stop us
	fmt.Println("held", hold.Token())

	orders := make(chan string)
	go func() {
		defer close(orders)
		for in := bufio.NewScanner(os.Stdin); in.Scan(); {
			orders <- in.Text()
		}
	}()
	for {
		select {
		case order, ok := <-orders:
			if !ok {
				return nil
			}
			// The pause that no client can prevent: after the check and before the write.
			if err := hold.Err(); err != nil {
				return fmt.Errorf("lost before the write: %w", err)
			}
			fmt.Println("checked")
			syscall.Kill(os.Getpid(), syscall.SIGSTOP)
			rows, err := writeReport(database, "stale", hold.Token(), order == "write with the check")
			if err != nil {
				return err
			}
			fmt.Println("wrote", rows)
			last = time.Now()
		case <-time.After(10 * time.Millisecond):
			// The first check after a pause, and nothing has run before it.
			err := hold.Err()
			if gap := time.Since(last); gap > time.Second/2 {
				what := "held"
				if errors.Is(err, zklock.ErrLost) {
					what = "lost"
				} else if err != nil {
					what = err.Error()
				}
				fmt.Println("looked", what)
			}
			last = time.Now()
		}
	}
}

// writeReport is the conditional update of docs/fencing.md, or the same without the condition. It
// returns how many rows it changed.
func writeReport(database, body string, token int64, check bool) (int, error) {
	condition := ""
	if check {
		condition = fmt.Sprintf(" AND token <= %d", token)
	}
	out, err := sql(database, fmt.Sprintf("UPDATE reports SET body = '%s', token = %d WHERE name = 'nightly'%s; SELECT changes();", body, token, condition))
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(out)
}

// sql has SQLite execute statements, in a process of its own.
func sql(database, statements string) (string, error) {
	out, err := exec.Command("sqlite3", "-batch", "-cmd", ".timeout 5000", database, statements).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("sqlite3: %w: %s", err, out)
	}
	return strings.TrimSpace(string(out)), err
}

// pauses starts the setup of these tests: a server, an empty report, and a next holder that will
// wait for the lock.
func pauses(t *testing.T) (server, database string, next *zklock.Mutex) {
	t.Helper()
	asked(t)
	if _, err := exec.LookPath("sqlite3"); err != nil {
		lacking(t, "a resource that checks tokens needs an SQL engine (Debian: apt-get install sqlite3)")
	}
	srv := zkserver.Single(t, zkserver.TickTime(pauseTick))
	database = filepath.Join(t.TempDir(), "reports")
	_, err := sql(database, "CREATE TABLE reports (name text PRIMARY KEY, body text, token bigint NOT NULL DEFAULT 0); INSERT INTO reports (name) VALUES ('nightly');")
	require.NoError(t, err)
	s, err := zklock.Connect(within(t, soon), srv.Addr(), zklock.WithSessionTimeout(pauseTimeout), zklock.WithLease(pauseLease))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	next, err = zklock.NewMutex(s, pauseLock)
	require.NoError(t, err)
	return srv.Addr(), database, next
}

// holder starts the child and returns it with the token it holds.
func holder(t *testing.T, server, database string) (p *process, token int64) {
	t.Helper()
	cmd := exec.Command(os.Args[0], server, database)
	cmd.Env = append(os.Environ(), envHelper+"=holder")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	p = start(t, cmd)
	token, err := strconv.ParseInt(p.await(t, "held"), 10, 64)
	require.NoError(t, err)
	return p, token
}

// F18: a paused process gets the correct state of its hold at its first check. If the hold is lost,
// the next holder has written under its larger token, and a write with the old one changes nothing.
// No node is left.
func TestF18_HolderPaused_FirstCheckIsRight(t *testing.T) {
	server, database, next := pauses(t)
	for _, c := range []struct {
		name  string
		pause time.Duration
		want  string
	}{
		{"below the end of the lease", pauseLease.Margin(pauseTimeout) / 2, "held"},
		{"above it, the session lives", 7200 * time.Millisecond, "lost"},
		{"above the session timeout and a tick", pauseTimeout + pauseTick + 2*time.Second, "lost"},
	} {
		p, token := holder(t, server, database)
		rows, err := writeReport(database, "first", token, true)
		require.NoError(t, err)
		require.Equal(t, 1, rows, "the holder writes while it holds")
		time.Sleep(3 * time.Second) // from now on it is not the connecting that proves the most
		require.NoError(t, p.Signal(syscall.SIGSTOP))
		time.Sleep(c.pause)
		others := func() { // another client takes the lock, and releases it
			h, err := next.Acquire(within(t, late))
			require.NoError(t, err)
			require.Greater(t, h.Token(), token)
			rows, err := writeReport(database, "fresh", h.Token(), true)
			require.NoError(t, err)
			require.Equal(t, 1, rows)
			require.NoError(t, h.Release(within(t, soon)))
		}
		over := c.pause > pauseTimeout+pauseTick
		if over {
			others()
		}
		require.NoError(t, p.Signal(syscall.SIGCONT))
		require.Equal(t, c.want, p.await(t, "looked"), c.name)
		body := "first"
		if c.want == "lost" {
			if !over {
				others()
			}
			rows, err := writeReport(database, "stale", token, true)
			require.NoError(t, err)
			require.Zero(t, rows, "%s: a write with the token of a hold that was lost", c.name)
			body = "fresh"
		}
		got, err := sql(database, "SELECT body FROM reports;")
		require.NoError(t, err)
		require.Equal(t, body, got, c.name)
		t.Logf("paused for %v, %s: %s at the first look", c.pause, c.name, c.want)
		require.NoError(t, p.Kill())
		for range p.lines {
		}
	}
	require.Eventually(t, func() bool {
		left, err := next.Participants(within(t, soon))
		return err == nil && len(left) == 0
	}, pauseTimeout+pauseTick+time.Second, 50*time.Millisecond, "I4: nodes are left")
}

// F19: a pause between the check and the write. With the token in the condition no stale write is
// applied. Without it the same run shows one that is, so the first result is no coincidence.
func TestF19_PausedBetweenCheckAndWrite_OnlyTheTokenProtects(t *testing.T) {
	for _, c := range []struct {
		order string
		rows  string
		body  string
	}{
		{"write with the check", "0", "fresh"},
		{"write without it", "1", "stale"},
	} {
		t.Run(c.order, func(t *testing.T) {
			server, database, next := pauses(t)
			p, token := holder(t, server, database)
			rows, err := writeReport(database, "first", token, true)
			require.NoError(t, err)
			require.Equal(t, 1, rows, "the holder writes while it holds")

			_, err = fmt.Fprintln(p.stdin, c.order)
			require.NoError(t, err)
			p.await(t, "checked") // and now it has stopped itself
			h, err := next.Acquire(within(t, late))
			require.NoError(t, err)
			require.Greater(t, h.Token(), token)
			rows, err = writeReport(database, "fresh", h.Token(), true)
			require.NoError(t, err)
			require.Equal(t, 1, rows)

			require.NoError(t, p.Signal(syscall.SIGCONT))
			require.Equal(t, c.rows, p.await(t, "wrote"))
			body, err := sql(database, "SELECT body FROM reports;")
			require.NoError(t, err)
			require.Equal(t, c.body, body)
			require.NoError(t, h.Release(within(t, soon)))
			t.Logf("%s: the paused holder of token %d changed %s rows after token %d had written; the report is %q", c.order, token, c.rows, h.Token(), body)
		})
	}
}
