//go:build linux || darwin

package command

// Runs that take another lock than a mutex: who runs beside whom, what is refused, and what ls
// shows of it.

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/internal/zkserver"
)

// untilStop is a COMMAND that says that it runs, and runs until the file $0 is there.
const untilStop = `echo "runs $ZKLOCK_TOKEN $ZKLOCK_NODE"; until [ -e "$0" ]; do sleep 0.02; done; echo ended`

func runUntil(t *testing.T, srv *zkserver.Server, path, stop string, flags ...string) *proc {
	t.Helper()
	return run(t, srv, path, append(flags, "--", "sh", "-c", untilStop, stop)...)
}

func stopFile(t *testing.T) (stop string, end func()) {
	stop = filepath.Join(t.TempDir(), "stop")
	return stop, func() { require.NoError(t, os.WriteFile(stop, nil, 0o600)) }
}

// listed returns what ls says of a path, of each node without what nobody can know before.
func listed(t *testing.T, srv *zkserver.Server, path string, flags ...string) (rows []string) {
	t.Helper()
	p := start(t, nil, append([]string{"ls", "--wide", "--servers", srv.ConnectString(), path}, flags...)...)
	require.Equal(t, 0, p.wait())
	for _, row := range strings.Split(strings.TrimSpace(p.stdout.String()), "\n")[1:] {
		f := strings.Fields(row)
		if f[0] == "holds" || f[0] == "waits" { // the queue of one lock: the state comes first
			f = slices.Concat(f[1:3], f[:1], f[3:])
		}
		rows = append(rows, strings.Join(f[1:len(f)-4], " "))
	}
	return rows
}

// childrenAt returns the names of a node's children, none if it is not there.
func childrenAt(t *testing.T, s *zklock.Session, node string) []string {
	t.Helper()
	names, _, err := s.Conn().Children(node)
	if err != zk.ErrNoNode {
		require.NoError(t, err)
	}
	return names
}

func TestRun_Shared_ReadersRunTogether_AndExcludeOthers(t *testing.T) {
	t.Parallel()
	srv, path := server(t), lockPath(t)
	s := session(t, srv)
	stop, end := stopFile(t)
	first, second := runUntil(t, srv, path, stop, "--shared"), runUntil(t, srv, path, stop, "--shared")
	first.prints("runs ")
	second.prints("runs ")
	writer := runUntil(t, srv, path, stop, "-w", "60s")
	writer.prints("waiting: number 3 of 3 in the queue; held by ")
	writer.prints(", and 1 more\n")
	third := runUntil(t, srv, path, stop, "--shared")
	third.prints("waiting: number 4 of 4 in the queue")
	require.Equal(t, []string{"shared holds", "shared holds", "exclusive waits", "shared waits"}, listed(t, srv, path))
	require.Equal(t, []string{"shared 2 4"}, listed(t, srv, path, "-r"))

	for _, flags := range [][]string{{"--no-wait", "--shared"}, {"--wait=3s", "--shared"}, {"--no-wait"}} {
		p := run(t, srv, path, append(flags, "-E", "7", "--", "echo", "ran")...)
		require.Equal(t, 7, p.wait())
		require.Empty(t, p.stdout.String())
		says := map[string]string{
			"--no-wait --shared": "not acquired: a client that does not share the lock is queued before this run: " + hostOf(t) + ", pid " + strconv.Itoa(writer.cmd.Process.Pid),
			"--wait=3s --shared": "not acquired: gave up after 3s: number 5 of 5 in the queue; held by ",
			"--no-wait":          "not acquired: another client holds it: ",
		}[strings.Join(flags, " ")]
		require.Contains(t, p.stderr.String(), says)
		require.Len(t, childrenAt(t, s, path), 4, "it leaves nothing")
	}
	end()
	for _, p := range []*proc{first, second, writer, third} {
		require.Equal(t, 0, p.wait())
	}
	require.Empty(t, childrenAt(t, s, path))
	token := func(p *proc) int64 {
		n, err := strconv.ParseInt(strings.Fields(p.stdout.String())[1], 10, 64)
		require.NoError(t, err)
		return n
	}
	require.Greater(t, token(writer), max(token(first), token(second)))
	require.Greater(t, token(third), token(writer))
}

func hostOf(t *testing.T) string {
	host, err := os.Hostname()
	require.NoError(t, err)
	return host
}

func TestRun_Semaphore_AtMostNPermitsAreInUse(t *testing.T) {
	t.Parallel()
	srv, path := server(t), lockPath(t)
	s := session(t, srv)
	stop, end := stopFile(t)
	first := runUntil(t, srv, path, stop, "--semaphore", "3", "--permits", "2")
	first.prints("runs ")
	require.Contains(t, first.stdout.String(), " "+path+"/leases/_c_")
	second := runUntil(t, srv, path, stop, "--semaphore", "3", "-n")
	second.prints("runs ")
	third := runUntil(t, srv, path, stop, "--semaphore", "3", "--permits", "2")
	third.prints("waiting: number 1 of 1 in the queue; held by " + hostOf(t) + ", pid " + strconv.Itoa(first.cmd.Process.Pid) + ", ")
	third.prints(", and 2 more\n")
	fourth := runUntil(t, srv, path, stop, "--semaphore", "3", "-w", "60s")
	fourth.prints("waiting: number 2 of 2 in the queue; ") // the third has made two leases
	require.Equal(t, []string{"permit holds", "permit holds", "permit holds", "permit waits", "permit waits", "permit waits"}, listed(t, srv, path))
	require.Equal(t, []string{"permit 3 6"}, listed(t, srv, path, "-r"))
	_, err := s.Conn().Create(path+"/limit", []byte{0, 0, 0, 3}, 0, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)
	require.Equal(t, []string{"permit 3/3 6"}, listed(t, srv, path, "-r"))
	for _, limit := range []byte{1, 0, 3} {
		over := ""
		if limit < 3 {
			over = fmt.Sprintf("3 permits are in use, %d over the limit of %d", 3-limit, limit)
		}
		_, err = s.Conn().Set(path+"/limit", []byte{0, 0, 0, limit}, -1)
		require.NoError(t, err)
		require.Equal(t, []string{fmt.Sprintf("permit 3/%d 6", limit)}, listed(t, srv, path, "-r"), "R93")
		p := start(t, nil, "ls", "--servers", srv.ConnectString(), path)
		require.Equal(t, 0, p.wait())
		require.Contains(t, p.stderr.String(), over)
		require.Equal(t, over != "", strings.Contains(p.stderr.String(), "over the limit"))
		require.Equal(t, 3, strings.Count(p.stdout.String(), "holds"))
	}

	for _, flags := range [][]string{{"-n"}, {"-w", "3s"}} {
		p := run(t, srv, path, append(flags, "--semaphore", "3", "--", "echo", "ran")...)
		require.Equal(t, exitNotAcquired, p.wait())
		require.Empty(t, p.stdout.String())
		require.Contains(t, p.stderr.String(), ": not acquired: ")
		require.Len(t, childrenAt(t, s, path+"/locks"), 2, "it leaves nothing")
	}
	end()
	for _, p := range []*proc{first, second, third, fourth} {
		require.Equal(t, 0, p.wait(), p.stderr.String())
	}
	require.Empty(t, append(childrenAt(t, s, path+"/locks"), childrenAt(t, s, path+"/leases")...))
	require.Empty(t, listed(t, srv, path))
	require.Equal(t, []string{"permit 0/3 0"}, func() []string {
		p := start(t, nil, "ls", "--servers", srv.ConnectString(), "-r", "--all", path)
		require.Equal(t, 0, p.wait())
		f := strings.Fields(strings.Split(p.stdout.String(), "\n")[1])
		return []string{strings.Join(f[1:4], " ")}
	}())
}

// Runs have the number in a node: the first makes it, and when it is changed there, who waits runs.
// Ls shows it, also 0, and wherever it is.
func TestRun_Semaphore_LimitInANode(t *testing.T) {
	t.Parallel()
	srv, path := server(t), lockPath(t)
	s, node := session(t, srv), path+"-numbers/limit"
	stop, end := stopFile(t)
	first := runUntil(t, srv, path, stop, "--semaphore", "1", "--semaphore-limit", node)
	first.prints("runs ")
	data, _, err := s.Conn().Get(node)
	require.NoError(t, err)
	require.Equal(t, []byte{0, 0, 0, 1}, data)
	second := runUntil(t, srv, path, stop, "--semaphore", "7", "--semaphore-limit", node)
	second.prints("waiting: number 1 of 1 in the queue")
	sem, err := zklock.NewSemaphore(s, path, 1, zklock.WithSharedLimit(node))
	require.NoError(t, err)
	require.NoError(t, sem.SetLimit(t.Context(), 2))
	second.prints("runs ")
	limit := func(flags ...string) (code int, says string) {
		p := start(t, nil, append([]string{"ls", "--servers", srv.ConnectString(), path}, flags...)...)
		return p.wait(), p.stderr.String()
	}
	code, says := limit()
	require.Zero(t, code)
	require.Empty(t, says, "nothing is known of it")
	code, says = limit("--semaphore-limit", node)
	require.Zero(t, code)
	require.Equal(t, "zklock: "+path+": the limit is 2\n", says)
	code, says = limit("--semaphore-limit", path+"-numbers")
	require.Equal(t, exitUsage, code)
	require.Contains(t, says, "which is not a limit: give the node that zklock run --semaphore-limit names")
	code, says = limit("--semaphore-limit", node+"s")
	require.NotZero(t, code)
	require.Contains(t, says, "--semaphore-limit "+node+"s: ")
	end()
	for _, p := range []*proc{first, second} {
		require.Equal(t, 0, p.wait(), p.stderr.String())
	}
	p := run(t, srv, path, "--semaphore", "20000", "--permits", "20000", "--", "echo")
	require.Equal(t, exitUsage, p.wait())
	require.Contains(t, p.stderr.String(), "servers read 1048575 (jute.maxbuffer): ask for ")
	_, err = s.Conn().Create(path+"/limit", []byte{0, 0, 0, 0}, 0, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)
	code, says = limit()
	require.Zero(t, code)
	require.Equal(t, "zklock: "+path+": the limit is 0\n", says)
	_, err = s.Conn().Set(path+"/limit", []byte("0003"), -1)
	require.NoError(t, err)
	code, says = limit()
	require.Zero(t, code)
	require.Equal(t, "zklock: "+path+": "+path+"/limit has \"0003\", which is not a limit\n", says)
	_, err = s.Conn().Set(path+"/limit", []byte{0, 0, 0, 0}, -1)
	require.NoError(t, err)
	p = start(t, nil, "ls", "--servers", srv.ConnectString(), "-r", "--all", path)
	require.Equal(t, 0, p.wait())
	require.Contains(t, p.stdout.String(), " 0/0 ")
	p = start(t, nil, "ls", "--servers", srv.ConnectString(), "-r", "--json", path)
	require.Equal(t, 0, p.wait())
	require.Contains(t, p.stdout.String(), `"limit": 0`)
}

// One permit is lost: nothing of COMMAND runs beside those who get it.
func TestRun_Semaphore_OnePermitLost_EndsTheCommand(t *testing.T) {
	srv, path := server(t), lockPath(t)
	s := session(t, srv)
	stop, _ := stopFile(t)
	p := runUntil(t, srv, path, stop, "--semaphore", "3", "--permits", "2")
	p.prints("runs ")
	leases := childrenAt(t, s, path+"/leases")
	require.Len(t, leases, 2)
	for _, lease := range leases {
		if !strings.Contains(p.stdout.String(), lease) { // not the one in ZKLOCK_NODE
			deleteNode(t, s, path+"/leases/"+lease)
		}
	}
	require.Equal(t, exitLost, p.wait())
	require.Contains(t, p.stderr.String(), "lost the lock")
	require.Empty(t, childrenAt(t, s, path+"/leases"))
}

// A path of another recipe is refused before anything is made there: locks that do not see each
// other exclude nobody.
func TestRun_PathOfAnotherRecipe_IsRefused(t *testing.T) {
	t.Parallel()
	srv, root := server(t), lockPath(t)
	s := session(t, srv)
	make := func(path string) {
		for i := 1; i <= len(path); i++ {
			if i == len(path) || path[i] == '/' {
				if _, err := s.Conn().Create(path[:i], nil, 0, zk.WorldACL(zk.PermAll)); err != zk.ErrNodeExists {
					require.NoError(t, err)
				}
			}
		}
	}
	const id = "_c_00000000-0000-0000-0000-000000000000-"
	for name, tc := range map[string]struct {
		nodes []string
		flags []string
		say   string
	}{
		"a mutex on a semaphore":     {[]string{"locks", "leases/" + id + "lease-0000000001"}, nil, "this is the path of a semaphore: give --semaphore, or another PATH; or delete PATH/locks and PATH/leases"},
		"a reader on a semaphore":    {[]string{"locks", "leases"}, []string{"--shared"}, "this is the path of a semaphore"},
		"an election on a semaphore": {[]string{"locks", "leases"}, []string{"--elect"}, "this is the path of a semaphore"},
		"a semaphore on a mutex":     {[]string{id + "lock-0000000001"}, []string{"--semaphore=2"}, id + "lock-0000000001 belongs to another kind of lock: give the semaphore another PATH"},
		"an election on readers":     {[]string{id + "__READ__0000000001"}, []string{"--elect"}, id + "__READ__0000000001 belongs to another kind of lock: give the election another PATH"},
		"a mutex on latches":         {[]string{id + "latch-0000000001"}, nil, id + "latch-0000000001 belongs to Curator's LeaderLatch: give another PATH"},
	} {
		t.Run(name, func(t *testing.T) {
			path := root + "/" + strings.ReplaceAll(name, " ", "-")
			for _, node := range tc.nodes {
				make(path + "/" + node)
			}
			before := childrenAt(t, s, path)
			p := run(t, srv, path, append(tc.flags, "--", "echo", "ran")...)
			require.Equal(t, exitUsage, p.wait())
			require.Equal(t, "zklock: "+path+": "+tc.say, strings.TrimSpace(p.stderr.String())[:len("zklock: "+path+": "+tc.say)])
			require.NotRegexp(t, `With[A-Z]`, p.stderr.String())
			require.Empty(t, p.stdout.String())
			require.Equal(t, before, childrenAt(t, s, path), "nothing is made")
		})
	}
	t.Run("folders that are called so", func(t *testing.T) {
		make(root + "/folders/locks/a")
		make(root + "/folders/leases/b")
		p := run(t, srv, root+"/folders", "--", "echo", "ran")
		require.Equal(t, 0, p.wait())
		require.Equal(t, "ran\n", p.stdout.String())
	})
}

func TestOtherRecipe_WhatIsOne(t *testing.T) {
	const mutex, reader, writer, latch, kazoo = "lock-0000000001", "__READ__0000000001", "__WRIT__0000000001", "latch-0000000001", "x__lock__0000000001"
	for _, tt := range []struct {
		name       string
		flags      recipeFlags
		fit, other []string
	}{
		{"mutex", recipeFlags{}, []string{mutex, reader, writer, kazoo, "config"}, []string{latch}},
		{"shared", recipeFlags{shared: true}, []string{mutex, reader, writer, kazoo, "config"}, []string{latch}},
		{"elect", recipeFlags{elect: true}, []string{mutex, "config"}, []string{reader, writer, latch, kazoo}},
		{"semaphore", recipeFlags{semaphore: 1}, []string{"locks", "leases", "config"}, []string{mutex, reader, writer, latch, kazoo}},
	} {
		require.Empty(t, tt.flags.otherRecipe(tt.fit, false), tt.name)
		for _, name := range tt.other {
			require.Contains(t, tt.flags.otherRecipe([]string{"config", name}, false), name, tt.name)
		}
		require.Equal(t, tt.name != "semaphore", tt.flags.otherRecipe(nil, true) != "", tt.name)
	}
}

// Candidates of the library's Elections, of Curator's latches, and writers that read: ls knows
// their nodes.
func TestList_Elections_AndAWriterThatReads(t *testing.T) {
	t.Parallel()
	srv, path := server(t), lockPath(t)
	s := session(t, srv)
	lead := func(path string, opts ...zklock.ElectionOption) {
		for range 2 {
			e, err := zklock.NewElection(s, path, opts...)
			require.NoError(t, err)
			led := make(chan error, 1)
			go func() {
				led <- e.Campaign(t.Context(), func(ctx context.Context, _ *zklock.Hold) error { <-ctx.Done(); return nil })
			}()
			t.Cleanup(func() { <-led })
		}
		eventually(t, "two stand", func() bool { return len(childrenAt(t, s, path)) == 2 })
	}
	lead(path + "/selector")
	lead(path+"/selector-and-latch", zklock.WithLatchNodes())
	hold, _ := occupy(t, s, path+"/selector-and-latch")
	lead(path+"/latch", zklock.WithLatchNodes())
	rw, err := zklock.NewRWMutex(s, path+"/rw")
	require.NoError(t, err)
	writes, err := rw.WriteLock().Acquire(t.Context())
	require.NoError(t, err)
	_, err = rw.ReadLock().Acquire(writes.Context())
	require.NoError(t, err)

	require.Equal(t, []string{"exclusive holds", "exclusive waits"}, listed(t, srv, path+"/selector"))
	require.Equal(t, []string{"latch holds", "latch waits"}, listed(t, srv, path+"/latch"))
	require.Equal(t, []string{"exclusive holds", "shared holds"}, listed(t, srv, path+"/rw"))
	require.Equal(t, []string{"exclusive holds", "latch holds", "latch waits"}, listed(t, srv, path+"/selector-and-latch"), "they do not see each other")
	require.NoError(t, hold.Err())
	require.Equal(t, []string{"latch 1 2", "exclusive 2 2", "exclusive 1 2", "exclusive 2 3"}, listed(t, srv, path, "-r"))

	var entries []entry
	p := start(t, nil, "ls", "--servers", srv.ConnectString(), "--json", path+"/latch")
	require.Equal(t, 0, p.wait())
	require.NoError(t, json.Unmarshal([]byte(p.stdout.String()), &entries))
	require.Equal(t, []string{"latch", "latch"}, []string{entries[0].Mode, entries[1].Mode})
	require.Equal(t, []bool{true, false}, []bool{entries[0].Holds, entries[1].Holds})
	for _, field := range []string{`"node"`, `"token"`, `"session"`, `"host"`, `"pid"`, `"data"`, `"created"`, `"age_seconds"`} {
		require.Equal(t, 2, strings.Count(p.stdout.String(), field), field)
	}
}
