//go:build linux || darwin

package command

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/zktest"
)

func TestList(t *testing.T) {
	t.Parallel()
	srv, path := server(t), lockPath(t)
	list := func(args ...string) string {
		p := start(t, nil, append([]string{"ls", "--servers", srv.ConnectString(), path}, args...)...)
		require.Equal(t, 0, p.wait())
		return p.stdout.String()
	}
	require.Equal(t, "STATE  NODE  SESSION  WHO  QUEUED\n", list())
	require.Equal(t, "STATE  NODE  MODE  TOKEN  SESSION  WHO  QUEUED SINCE\n", list("--wide"))
	require.Equal(t, "[]\n", list("--json"))
	require.Equal(t, "[]\n", list("--json", "-r"))

	s := session(t, srv)
	hold, _ := occupy(t, s, path)
	p := run(t, srv, path, "--", "true")
	eventually(t, "it queues", func() bool { return len(participants(t, s, path)) == 2 })
	m, err := zklock.NewMutex(s, path, zklock.WithData([]byte("a word")))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	waited := make(chan error, 1)
	go func() { _, err := m.Acquire(ctx); waited <- err }()
	eventually(t, "a third queues", func() bool { return len(participants(t, s, path)) == 3 })
	defer func() { cancel(); require.ErrorIs(t, <-waited, context.Canceled) }()

	host, err := os.Hostname()
	require.NoError(t, err)
	table := func(args ...string) (rows [][]string) {
		for _, row := range strings.Split(strings.TrimSpace(list(args...)), "\n")[1:] {
			rows = append(rows, strings.Fields(row))
		}
		require.Len(t, rows, 3)
		return rows
	}
	wide, narrow := table("--wide"), table()
	first, second, third := wide[0], wide[1], wide[2]
	require.Equal(t, []string{"holds", "lock-0000000000", "exclusive", strconv.FormatInt(hold.Token(), 10), fmt.Sprintf("%#x", s.Stats().SessionID)}, first[:5])
	require.Equal(t, []string{"waits", "exclusive"}, []string{second[0], second[2]})
	require.Equal(t, fmt.Sprintf("%s:%d", host, p.cmd.Process.Pid), second[5])
	require.Equal(t, []string{"a", "word"}, third[5:7])
	require.Equal(t, []string{"holds", first[1], first[4], first[5]}, narrow[0][:4])
	require.Equal(t, []string{"waits", "lock-0000000002", third[4], "a", "word"}, narrow[2][:5])

	var entries []entry
	require.NoError(t, json.Unmarshal([]byte(list("--json")), &entries))
	require.Len(t, entries, 3)
	require.Equal(t, hold.Node(), entries[0].Node)
	require.Equal(t, []string{first[1], second[1], third[1]}, []string{shortName(entries[0].Node), shortName(entries[1].Node), shortName(entries[2].Node)})
	require.Equal(t, hold.Token(), entries[0].Token)
	require.Equal(t, first[4], entries[0].Session)
	require.Equal(t, host, entries[1].Host)
	require.Equal(t, p.cmd.Process.Pid, entries[1].Pid)
	require.Equal(t, "a word", entries[2].Data)
	require.Positive(t, entries[0].AgeSeconds)
	require.Equal(t, []bool{true, false, false}, []bool{entries[0].Holds, entries[1].Holds, entries[2].Holds})
}

// A path that is not there is an empty list, like a lock that nobody uses, and a line on stderr
// that tells the two apart.
func TestList_NotThere_ReportsIt(t *testing.T) {
	t.Parallel()
	srv, path := server(t), lockPath(t)
	exits := func(code int, servers string, args ...string) string {
		p := start(t, nil, append([]string{"ls", "--servers", servers}, args...)...)
		require.Equal(t, code, p.wait())
		return p.stderr.String()
	}
	said := func(servers string, args ...string) string { return exits(0, servers, args...) }
	for _, args := range [][]string{{path}, {"-r", path}, {"--json", path}} {
		require.Contains(t, said(srv.ConnectString(), args...), "zklock: "+path+": there is no node "+path+": ")
	}
	require.Contains(t, exits(exitUsage, srv.ConnectString()+path, "/job"), "the chroot "+path+" of --servers does not exist")

	s := session(t, srv)
	_, release := occupy(t, s, path)
	release()
	for _, args := range [][]string{{path}, {"-r", "--all", path}, {"-r", "--json", path}} {
		require.Empty(t, said(srv.ConnectString(), args...))
	}
	require.Empty(t, said(srv.ConnectString()+path, "-r", "--all", "/"))
	parent := path[:strings.LastIndexByte(path, '/')]
	require.Equal(t, "zklock: "+parent+": the queue is empty; there are nodes below: zklock ls -r "+parent+" lists the locks among them\n", said(srv.ConnectString(), parent))
	require.Contains(t, said(srv.ConnectString()+path, "/job"), "there is no node "+path+"/job: ")
}

// A lock node that no session owns blocks the lock until it is deleted: ls, a run that waits and
// the library's log line and errors name it with the remedy, which works as it is printed.
func TestNotEphemeral_IsNamedWithTheRemedy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := zktest.NewNetwork()
		srv := zktest.Start(t, zktest.WithNetwork(network))
		var log bytes.Buffer
		s, err := zklock.Connect(t.Context(), srv.Addr(), zklock.WithDialer(network.Dial), zklock.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
		require.NoError(t, err)
		_, err = srv.Create("/locks", nil, 0)
		require.NoError(t, err)
		_, err = srv.Create("/locks/x", nil, 0)
		require.NoError(t, err)
		node, err := srv.Create("/locks/x/lock-", []byte("legacy"), zk.FlagSequence)
		require.NoError(t, err)
		o := &runOptions{path: "/locks/x", wait: 2 * time.Minute}
		var said bytes.Buffer
		o.servers, o.stderr = srv.Addr(), &said
		r, err := o.recipe(s, nil)
		require.NoError(t, err)
		ctx, cancel := o.waiting(t.Context())
		defer cancel()
		_, err = o.acquire(ctx, s, r)
		const remedy = `"legacy", not ephemeral: it stays until it is deleted (zklock delete), token `
		require.Contains(t, said.String(), "waiting: number 2 of 2 in the queue; held by "+remedy)
		require.ErrorContains(t, o.explainAcquire(t.Context(), s, r, err), "held by "+remedy)
		require.ErrorContains(t, err, "held by legacy, not ephemeral: it stays until it is deleted (zklock delete), queued since ")

		said.Reset()
		d := deleting{path: "/locks/x", node: "lock-0000000000", yes: true, out: &said}
		l := &d.lister
		l.s, l.stderr, l.servers, l.connectTimeout = s, &said, srv.Addr(), time.Minute
		_, err = l.queue(t.Context(), "/locks/x")
		require.NoError(t, err)
		const line = "zklock: /locks/x: lock-0000000000 is not ephemeral: it stays until it is deleted. If no client uses it, give zklock delete --yes /locks/x lock-0000000000\n"
		require.Equal(t, line, said.String())
		said.Reset()
		_, err = l.locks(t.Context(), "/locks")
		require.NoError(t, err)
		require.Equal(t, line, said.String())
		require.NoError(t, d.delete(t.Context()))
		_, isThere := srv.Stat(node)
		require.False(t, isThere)
		require.NoError(t, s.Close())
		require.Contains(t, log.String(), `msg="zklock: still waiting for the lock" path=/locks/x`)
		require.Contains(t, log.String(), `holder="legacy, not ephemeral: it stays until it is deleted (zklock delete), queued since`)
	})
}

func TestList_Recursive(t *testing.T) {
	srv, path := server(t), lockPath(t)
	s := session(t, srv, zklock.WithDigest("boss", "secret"))
	nightly, _ := occupy(t, s, path+"/b/nightly")
	_, release := occupy(t, s, path+"/a/idle")
	release()
	outer, _ := occupy(t, s, path+"/b") // a lock with another below it
	waiter := run(t, srv, path+"/b/nightly", "--", "true")
	eventually(t, "it queues", func() bool { return len(participants(t, s, path+"/b/nightly")) == 2 })
	_, err := s.Conn().Create(path+"/config", []byte("never had a child"), 0, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)
	_, err = s.Conn().Create(path+"/here", nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)

	list := func(servers string, code int, args ...string) (out, said string) {
		p := start(t, nil, append([]string{"ls", "--servers", servers}, args...)...)
		require.Equal(t, code, p.wait())
		return p.stdout.String(), p.stderr.String()
	}
	host, err := os.Hostname()
	require.NoError(t, err)
	me := fmt.Sprintf("%#x %s:%d", s.Stats().SessionID, host, os.Getpid())
	since := regexp.MustCompile(`\d{4}-\d\d-\d\dT\S+$`)
	table := func(out string) (rows []string) {
		for _, row := range strings.Split(strings.TrimSpace(out), "\n") {
			row = since.ReplaceAllString(strings.Join(strings.Fields(row), " "), "SINCE")
			rows = append(rows, row)
		}
		return rows
	}
	want := []string{
		"LOCK MODE HOLD QUEUE TOKEN SESSION WHO QUEUED SINCE",
		"%s/a/idle - 0 0 - - - -",
		fmt.Sprintf("%%s/b exclusive 1 1 %d %s SINCE", outer.Token(), me),
		fmt.Sprintf("%%s/b/nightly exclusive 1 2 %d %s SINCE", nightly.Token(), me),
	}
	below := func(prefix string) (rows []string) {
		for _, w := range want {
			rows = append(rows, strings.Replace(w, "%s", prefix, 1))
		}
		return rows
	}
	out, said := list(srv.ConnectString(), 0, "-r", "--wide", "--all", path)
	require.Equal(t, below(path), table(out))
	require.Empty(t, said)
	out, said = list(srv.ConnectString(), 0, "-r", path)
	require.Equal(t, "LOCK MODE HOLD QUEUE WHO QUEUED", table(out)[0])
	require.Len(t, table(out), 3)
	require.NotContains(t, out, "idle")
	require.Equal(t, "zklock: "+path+": unused locks are left out: 1; --all lists them\n", said)
	for _, top := range []string{"/", "/a", "/b"} {
		out, _ = list(srv.ConnectString()+path, 0, "--recursive", "--wide", "--all", top)
		require.Subset(t, below(""), table(out), "paths are below the chroot")
	}
	require.Len(t, table(out), 3, "a lock that has locks below it is one, too")
	all, _ := list(srv.ConnectString(), 0, "-r", "--wide", "-a", "/")
	require.Subset(t, table(all), below(path)[1:])
	require.NotContains(t, all, "/zookeeper")

	var locks []lockEntry
	out, _ = list(srv.ConnectString(), 0, "-r", "--json", path)
	require.NoError(t, json.Unmarshal([]byte(out), &locks))
	require.Len(t, locks, 3)
	require.NotNil(t, locks[0].Queue)
	require.Equal(t, path+"/b/nightly", locks[2].Path)
	require.Equal(t, nightly.Node(), locks[2].Queue[0].Node)
	require.Equal(t, waiter.cmd.Process.Pid, locks[2].Queue[1].Pid)

	// What may not be read is said, and the rest is printed.
	_, err = s.Conn().SetACL(path+"/a", zk.DigestACL(zk.PermAll, "boss", "secret"), -1)
	require.NoError(t, err)
	out, said = list(srv.ConnectString(), exitRefused, "-r", path)
	require.Len(t, table(out), 3)
	require.Contains(t, said, path+"/a: left out: no READ permission")
	require.Equal(t, 1, strings.Count(said, "\n"), said)
}

// A signal ends ls --watch with exit code 0, and the data of other clients cannot move the cursor.
func TestList_Watch_SignalEndsIt(t *testing.T) {
	srv, path := server(t), lockPath(t)
	s := session(t, srv)
	hold, release := occupy(t, s, path)
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		p := start(t, nil, "ls", "--watch", "--wide", "--servers", srv.ConnectString(), path)
		eventually(t, "it prints the holder", func() bool { return strings.Contains(p.stdout.String(), shortName(hold.Node())) })
		p.signal(sig)
		require.Equal(t, 0, p.wait())
		require.Empty(t, p.stderr.String())
	}
	p := start(t, nil, "ls", "--watch", "--servers", srv.ConnectString(), path, path+"/none")
	eventually(t, "it watches both", func() bool {
		return strings.Contains(p.stdout.String(), "\nholds ") && strings.Contains(p.stderr.String(), "/none: there is no node ")
	})
	_, err := s.Conn().Create(path+"/x-lock-", []byte("\u202e\x1b[2J"), zk.FlagEphemeralSequential, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)
	release()
	eventually(t, "the next holds", func() bool {
		return regexp.MustCompile(`(?m)^holds .* "\\u202e\\x1b\[2J" `).MatchString(p.stdout.String())
	})
	p.signal(syscall.SIGTERM)
	require.Equal(t, 0, p.wait())

	q := start(t, nil, "ls", "--watch", "--servers", "127.0.0.1:1", "--connect-timeout", "500ms", path)
	require.Equal(t, exitNoServer, q.wait())
}
