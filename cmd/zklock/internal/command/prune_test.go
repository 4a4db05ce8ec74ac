//go:build linux || darwin

package command

// These tests attack prune: beside a fleet, with nodes that change under it, and with what it must
// not touch.

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/internal/ledger"
	"github.com/zklock/zklock/zktest"
)

// prune runs the command in this process, and returns what it printed.
func prune(servers string, args ...string) (code int, stdout, stderr string) {
	var out, said bytes.Buffer
	code = execute(append([]string{"prune", "--servers", servers}, args...), &out, &said)
	return code, out.String(), said.String()
}

// ls does the same for ls.
func ls(servers string, args ...string) (code int, stdout, stderr string) {
	var out, said bytes.Buffer
	code = execute(append([]string{"ls", "--servers", servers}, args...), &out, &said)
	return code, out.String(), said.String()
}

// pruneJSON is prune with --json, of which the rows are returned.
func pruneJSON(t testing.TB, servers string, args ...string) (code int, rows []pruned) {
	t.Helper()
	code, out, said := prune(servers, append(args, "--json")...)
	require.NoError(t, json.Unmarshal([]byte(out), &rows), "%s%s", out, said)
	return code, rows
}

// eachServer runs a test on zktest and on a real ZooKeeper.
func eachServer(t *testing.T, test func(t *testing.T, servers string, s *zklock.Session)) {
	t.Helper()
	for name, servers := range map[string]func(t *testing.T) string{
		"zktest":    func(t *testing.T) string { return zktest.Start(t).Addr() },
		"ZooKeeper": func(t *testing.T) string { return server(t).ConnectString() },
	} {
		t.Run(name, func(t *testing.T) {
			servers := servers(t)
			test(t, servers, sessionAt(t, servers))
		})
	}
}

func sessionAt(t testing.TB, servers string) *zklock.Session {
	t.Helper()
	s, err := zklock.Connect(t.Context(), servers, zklock.WithSessionTimeout(30*time.Second), zklock.WithLease(zklock.SingleServerLease()),
		zklock.WithLogger(slog.New(slog.DiscardHandler)))
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func used(t testing.TB, l zklock.Lock, err error) {
	t.Helper()
	require.NoError(t, err)
	h, err := l.Acquire(t.Context())
	require.NoError(t, err)
	require.NoError(t, h.Release(t.Context()))
}

// orders makes locks of all kinds that were used: their roots are empty.
func orders(t testing.TB, s *zklock.Session, top string) {
	t.Helper()
	m, err := zklock.NewMutex(s, top+"/1/lock")
	used(t, m, err)
	rw, err := zklock.NewRWMutex(s, top+"/2")
	require.NoError(t, err)
	used(t, rw.ReadLock(), nil)
	sem, err := zklock.NewSemaphore(s, top+"/3", 2, zklock.WithSharedLimit(top+"/3/limit"))
	require.NoError(t, err)
	used(t, sem.Permits(1), nil)
	sem, err = zklock.NewSemaphore(s, top+"/4", 2)
	require.NoError(t, err)
	used(t, sem.Permits(2), nil)
	m, err = zklock.NewMutex(s, top+"/5", zklock.WithLockDelay(time.Minute))
	used(t, m, err)
	awaitReleased(t, s, top+"/4/locks")
	awaitReleased(t, s, top+"/3/locks")
}

// awaitReleased waits until a queue is empty, which it may not be when a permit was released.
func awaitReleased(t testing.TB, s *zklock.Session, queue string) {
	t.Helper()
	eventually(t, "the queue is empty", func() bool {
		names, _, err := s.Conn().Children(queue)
		return err == nil && len(names) == 0
	})
}

func TestPrune_RemovesWhatLocksLeave(t *testing.T) {
	eachServer(t, func(t *testing.T, servers string, s *zklock.Session) {
		top := lockPath(t)
		orders(t, s, top)
		held, err := zklock.NewMutex(s, top+"/6")
		require.NoError(t, err)
		h, err := held.Acquire(t.Context())
		require.NoError(t, err)
		for node, data := range map[string]string{"/config": "a word", "/folder": "", "/7": ""} {
			_, err = s.Conn().Create(top+node, []byte(data), 0, zk.WorldACL(zk.PermAll))
			require.NoError(t, err)
		}
		paths := func(rows []pruned, removed bool) (ps []string) {
			for _, r := range rows {
				require.Equal(t, removed, r.Removed, r)
				ps = append(ps, r.Kind+" "+strings.TrimPrefix(r.Path, top))
			}
			return ps
		}
		want := []string{"parent /1", "lock /1/lock", "lock /2", "semaphore /3", "semaphore /4", "lock /5"}
		code, rows := pruneJSON(t, servers, top)
		require.Equal(t, 0, code)
		require.Equal(t, want, paths(rows, false))
		code, out, said := prune(servers, top)
		require.Equal(t, 0, code)
		require.Contains(t, out, top+"/3       semaphore  would be removed\n")
		require.Equal(t, "zklock: "+top+": this would remove 11 nodes; nothing was done. Give --yes to confirm\n", said)
		code, rows = pruneJSON(t, servers, "--older-than", "1h", "--yes", top)
		require.Equal(t, 0, code)
		require.Empty(t, rows, "all of it is young")

		code, rows = pruneJSON(t, servers, "--yes", top)
		require.Equal(t, 0, code)
		require.Equal(t, want, paths(rows, true))
		left, _, err := s.Conn().Children(top)
		require.NoError(t, err)
		require.ElementsMatch(t, []string{"6", "7", "config", "folder"}, left)
		require.NoError(t, h.Err())
		require.NoError(t, h.Release(t.Context()))
		code, out, said = prune(servers+top, "--yes", "/6")
		require.Equal(t, 0, code, said)
		require.Contains(t, out, "/6    lock  stays: it is PATH itself, which --with-path removes\n")
		code, out, said = prune(servers+top, "--yes", "--with-path", "/6")
		require.Equal(t, 0, code, said)
		require.Contains(t, out, "/6    lock  removed\n")
		orders(t, s, top) // all of them can be had again
	})
}

// Each night all locks below a folder go, and the folder stays, whose ACL is an administrator's, or
// which is a chroot (R114).
func TestPrune_EachNight_PathStays(t *testing.T) {
	srv := zktest.Start(t)
	s := sessionAt(t, srv.Addr())
	_, err := s.Conn().Create("/app", nil, 0, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)
	program, err := zklock.Connect(t.Context(), srv.Addr()+"/app", zklock.WithLogger(slog.New(slog.DiscardHandler)))
	require.NoError(t, err)
	defer program.Close()
	job, err := zklock.NewMutex(program, "/nightly")
	require.NoError(t, err)
	for range 3 {
		used(t, job, nil)
		code, _, said := prune(srv.Addr(), "--yes", "/app")
		require.Equal(t, 0, code, said)
		require.Equal(t, "zklock: /app: removed 1 node; 0 of the list stay\n", said)
		code, _, said = prune(srv.Addr(), "--yes", "/app")
		require.Equal(t, 0, code, said)
		require.Contains(t, srv.Children("/"), "app")
	}
	code, rows := pruneJSON(t, srv.Addr(), "--with-path", "--yes", "/app")
	require.Equal(t, 0, code)
	require.Equal(t, []pruned{{Path: "/app", Kind: pruneLock, Nodes: []string{"/app"}, Removed: true}}, rows)
	require.NotContains(t, srv.Children("/"), "app")
}

// Ages are by the servers' clock, whatever this host's clock is, and nothing is left of asking for
// it.
func TestPrune_OlderThan_IsByTheServersClock(t *testing.T) {
	for name, start := range map[string]func(t *testing.T) string{
		"an hour behind":  func(t *testing.T) string { return zktest.Start(t, zktest.WithClockOffset(-time.Hour)).Addr() },
		"an hour ahead":   func(t *testing.T) string { return zktest.Start(t, zktest.WithClockOffset(time.Hour)).Addr() },
		"a real server's": func(t *testing.T) string { return server(t).ConnectString() },
	} {
		t.Run(name, func(t *testing.T) {
			servers, top := start(t), lockPath(t)
			s := sessionAt(t, servers)
			m, err := zklock.NewMutex(s, top+"/1")
			used(t, m, err)
			code, rows := pruneJSON(t, servers, "--older-than", "30m", "--yes", top)
			require.Equal(t, 0, code)
			require.Empty(t, rows, "it was used just now")
			time.Sleep(20 * time.Millisecond) // it ages
			code, rows = pruneJSON(t, servers, "--older-than", "10ms", "--yes", "--with-path", top)
			require.Equal(t, 0, code)
			require.Equal(t, []pruned{
				{Path: top, Kind: pruneParent, Nodes: []string{top}, Removed: true}, {Path: top + "/1", Kind: pruneLock, Nodes: []string{top + "/1"}, Removed: true},
			}, rows)
		})
	}
}

// If the servers reject the transaction that reports their time, prune counts back from what it has
// seen, and says so.
func TestPrune_OlderThan_TimeIsUnknown_KeepsMore(t *testing.T) {
	srv := zktest.Start(t)
	s := sessionAt(t, srv.Addr())
	m, err := zklock.NewMutex(s, "/o/1")
	used(t, m, err)
	_, err = s.Conn().SetACL("/o", zk.WorldACL(zk.PermRead|zk.PermDelete), -1)
	require.NoError(t, err)
	time.Sleep(20 * time.Millisecond)
	code, out, said := prune(srv.Addr(), "--older-than", "10ms", "--yes", "/o")
	require.Equal(t, 0, code, said)
	require.NotContains(t, out, "/o/1")
	require.Contains(t, said, "zklock: /o: the servers' time is not known (zk: not authenticated): --older-than counts back from the newest change on PATH and below\n")
	require.Len(t, srv.Children("/o"), 1)
}

// The record of a lock-delay says that a holder disappeared: the root stays, and the next holder
// waits.
func TestPrune_LockDelay_RecordStays(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, servers string, s *zklock.Session) {
		path := lockPath(t)
		m, err := zklock.NewMutex(s, path, zklock.WithLockDelay(time.Minute))
		require.NoError(t, err)
		h, err := m.Acquire(t.Context())
		require.NoError(t, err)
		require.NoError(t, s.Conn().Delete(h.Node(), -1))
		<-h.Lost()
		require.Error(t, h.Release(t.Context()))
		code, rows := pruneJSON(t, servers, "--yes", path)
		require.Equal(t, 0, code)
		require.Len(t, rows, 1)
		require.False(t, rows[0].Removed)
		require.Contains(t, rows[0].Left, "the next holder waits for the lock-delay")
		_, err = m.TryAcquire(t.Context())
		require.ErrorIs(t, err, zklock.ErrNotAcquired)
	})
}

// What changes between the walk and the removal stays: a root that was used again, was made again
// or got data, and a parent with a new child.
func TestPrune_ChangedMeanwhile_Stays(t *testing.T) {
	srv := zktest.Start(t)
	create := func(path, data string) { _, err := srv.Create(path, []byte(data), 0); require.NoError(t, err) }
	use := func(path string) { create(path+"/x", ""); require.NoError(t, srv.Delete(path+"/x")) }
	for name, change := range map[string]func(){
		"used":        func() { use("/o/1/lock") },
		"data":        func() { require.NoError(t, srv.SetData("/o/1/lock", []byte("held=x"))) },
		"made anew":   func() { require.NoError(t, srv.Delete("/o/1/lock")); create("/o/1/lock", ""); use("/o/1/lock") },
		"a child":     func() { create("/o/1/lock/y", "") },
		"a neighbour": func() { create("/o/1/other", "") },
	} {
		for _, late := range []bool{false, true} { // after the last look
			if late && (name == "used" || name == "made anew") {
				continue // it is as empty as it was
			}
			t.Run(fmt.Sprint(name, late), func(t *testing.T) {
				wipeAll(t, srv, "/o")
				for _, p := range []string{"/o", "/o/1", "/o/1/lock"} {
					create(p, "")
				}
				use("/o/1/lock")
				at := zktest.Before(zktest.Exists).Path("/o/1/lock")
				if late {
					at = zktest.Before(zktest.Multi)
				}
				f := srv.Inject(at.Once().Call(change))
				code, rows := pruneJSON(t, srv.Addr(), "--yes", "/o")
				require.Equal(t, 1, f.Fired())
				require.Equal(t, 0, code)
				require.Len(t, rows, 2)
				require.Equal(t, "it was in use meanwhile", rows[0].Left, "the parent")
				_, there := srv.Stat("/o/1/lock")
				require.Equal(t, name != "a neighbour", there)
				require.Equal(t, there, !rows[1].Removed)
			})
		}
	}
}

func wipeAll(t testing.TB, srv *zktest.Server, path string) {
	t.Helper()
	for _, name := range srv.Children(path) {
		wipeAll(t, srv, path+"/"+name)
	}
	if _, there := srv.Stat(path); there {
		require.NoError(t, srv.Delete(path))
	}
}

// I1, I4: a fleet acquires on fifty paths while prune runs in a loop. No acquire fails, nobody
// overlaps, and tokens grow.
func TestPrune_BesideAFleet_NoAcquireFails(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, servers string, s *zklock.Session) {
		top := lockPath(t)
		check := ledger.New(t.Errorf)
		var all sync.WaitGroup
		var running, prunes atomic.Int32
		for g := range 8 {
			s := sessionAt(t, servers)
			running.Add(1)
			all.Go(func() {
				defer running.Add(-1)
				defer s.Close() // and then no node is on its way out
				for i := 0; i < share(50) || prunes.Load() < 5; i++ {
					path := fmt.Sprintf("%s/%d", top, (i*7+g*3)%50)
					assert.NoError(t, useOnce(s, check, path, (i*7+g*3)%50), path)
				}
			})
		}
		removed := 0
		for last := false; !last; prunes.Add(1) {
			last = running.Load() == 0
			code, out, said := prune(servers, "--yes", "--json", top)
			var rows []pruned
			require.Equal(t, 0, code, said)
			require.NoError(t, json.Unmarshal([]byte(out), &rows))
			for _, r := range rows {
				if r.Removed {
					removed++
				}
			}
		}
		all.Wait()
		require.Greater(t, removed, 10, "it was to meet the fleet")
		t.Logf("%d prunes removed %d roots and parents", prunes.Load(), removed)
		code, _, said := prune(servers, "--yes", top)
		require.Equal(t, 0, code, said)
		left, _, err := s.Conn().Children(top)
		if !errors.Is(err, zk.ErrNoNode) { // the folder passes for a lock that nobody uses
			require.NoError(t, err)
		}
		require.Empty(t, left)
	})
}

// useOnce takes the lock number i, whose kind that says, and releases it.
func useOnce(s *zklock.Session, check *ledger.Ledger, path string, i int) error {
	var l zklock.Lock
	var err error
	switch i % 4 {
	case 0:
		l, err = zklock.NewMutex(s, path+"/a/lock")
	case 1:
		var sem *zklock.Semaphore
		if sem, err = zklock.NewSemaphore(s, path, 2, zklock.WithSharedLimit(path+"/limit")); err == nil {
			l = sem.Permits(1)
		}
	case 2:
		var rw *zklock.RWMutex
		if rw, err = zklock.NewRWMutex(s, path); err == nil {
			l = rw.WriteLock()
		}
	case 3:
		l, err = zklock.NewMutex(s, path, zklock.WithLockDelay(time.Hour))
	}
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	h, err := l.Acquire(ctx)
	if err != nil {
		return err
	}
	if i%4 != 1 && check.Granted(path, "", h) {
		check.Ended(path, h)
	}
	return h.Release(ctx)
}

// Ten thousand roots take three requests each, and one for what is above them.
func TestPrune_ManyRoots_FewRequests(t *testing.T) {
	srv, n := zktest.Start(t), 10_000
	if testing.Short() {
		n = 1_000
	}
	create := func(path string) { _, err := srv.Create(path, nil, 0); require.NoError(t, err) }
	create("/o")
	for i := range n {
		root := fmt.Sprint("/o/", i)
		create(root)
		create(root + "/x")
		require.NoError(t, srv.Delete(root+"/x"))
	}
	srv.ResetRequests()
	code, out, said := prune(srv.Addr(), "/o")
	require.Equal(t, 0, code, said)
	require.Equal(t, n+1, strings.Count(out, "\n"))
	require.Less(t, srv.Requests().Total(), n+50)
	require.Len(t, srv.Children("/o"), n, "nothing was done")
	srv.ResetRequests()
	code, _, said = prune(srv.Addr(), "--yes", "/o")
	require.Equal(t, 0, code, said)
	require.Less(t, srv.Requests().Total(), 3*n+50)
	require.Empty(t, srv.Children("/o"))
}

// A connection that is lost on the way is no failure: what was asked may have been done.
func TestPrune_AnswerLost_GoesOn(t *testing.T) {
	t.Parallel()
	for _, f := range []zktest.Fault{
		zktest.After(zktest.Multi).DropReply().Close(), zktest.Before(zktest.Multi).Close(), zktest.After(zktest.GetChildren).DropReply().Close(),
	} {
		srv := zktest.Start(t)
		for _, p := range []string{"/o", "/o/1", "/o/1/lock", "/o/1/lock/x"} {
			_, err := srv.Create(p, nil, 0)
			require.NoError(t, err)
		}
		require.NoError(t, srv.Delete("/o/1/lock/x"))
		fault := srv.Inject(f.Once())
		code, rows := pruneJSON(t, srv.Addr(), "--yes", "/o")
		require.Equal(t, 0, code)
		require.Equal(t, 1, fault.Fired())
		require.Empty(t, srv.Children("/o"))
		require.Equal(t, []bool{true, true}, []bool{rows[0].Removed, rows[1].Removed}, "%v", rows)
	}
}

func TestPrune_Refusals(t *testing.T) {
	for want, args := range map[string][]string{
		"prune /: the tree":            {"--yes", "/"},
		"/zookeeper":                   {"--yes", "/zookeeper/quota"},
		"is relative":                  {"locks"},
		"--older-than -1s is negative": {"--older-than", "-1s", "/locks"},
		"0 arguments instead of one":   {},
		"give a time with its unit":    {"--older-than", "30", "/locks"},
	} {
		code, out, said := prune("127.0.0.1:1", args...)
		require.Equal(t, exitUsage, code)
		require.Contains(t, said, want)
		require.Empty(t, out)
	}
	code, out, said := prune("127.0.0.1:1", "--connect-timeout", "300ms", "/locks")
	require.Equal(t, exitNoServer, code)
	require.Contains(t, said, "refused")
	require.Empty(t, out)

	srv := zktest.Start(t)
	code, out, said = prune(srv.Addr(), "--json", "/locks")
	require.Equal(t, 0, code)
	require.Equal(t, "[]\n", out)
	require.Contains(t, said, "there is no node /locks")

	// What may not be read is left out, what may not be removed stays, and the rest goes.
	for _, p := range []string{"/o", "/o/1", "/o/1/x", "/o/2", "/o/2/x", "/o/3", "/o/3/4", "/o/3/4/x"} {
		_, err := srv.Create(p, nil, 0)
		require.NoError(t, err)
	}
	for _, p := range []string{"/o/1/x", "/o/2/x", "/o/3/4/x"} {
		require.NoError(t, srv.Delete(p))
	}
	conn, _, err := zk.Connect([]string{srv.Addr()}, sessionTimeout, zk.WithLogInfo(false))
	require.NoError(t, err)
	defer conn.Close()
	_, err = conn.SetACL("/o/1", zk.DigestACL(zk.PermAll, "boss", "secret"), -1)
	require.NoError(t, err)
	_, err = conn.SetACL("/o/3", zk.WorldACL(zk.PermRead), -1)
	require.NoError(t, err)
	code, rows := pruneJSON(t, srv.Addr(), "--yes", "/o")
	require.Equal(t, exitRefused, code)
	require.Equal(t, []pruned{
		{Path: "/o/2", Kind: pruneLock, Nodes: []string{"/o/2"}, Removed: true},
		{Path: "/o/3/4", Kind: pruneLock, Nodes: []string{"/o/3/4"}, Left: "no DELETE permission"},
	}, rows)
}

// The server goes on the way: the error names it, and says why it is not reached.
func TestPrune_ServerGoes_IsNamed(t *testing.T) {
	t.Parallel()
	for name, read := range map[string]func(servers string, args ...string) (int, string, string){"prune": prune, "ls": ls} {
		srv := zktest.Start(t)
		for _, p := range []string{"/o", "/o/1", "/o/2"} {
			_, err := srv.Create(p, nil, 0)
			require.NoError(t, err)
		}
		srv.Inject(zktest.Before(zktest.GetChildren).Once().Call(srv.Stop))
		code, out, said := read(srv.Addr(), "--connect-timeout", "2s", "/o")
		require.Equal(t, exitNoServer, code, name)
		require.Contains(t, said, "no server after 2s; tried "+srv.Addr()+" (", name)
		require.Empty(t, out, name)
	}
}
