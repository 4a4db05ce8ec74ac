package conformance

// The requests of Curator's mutex, next to TestRequestBudget of the library.

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock/zktest"
)

// TestCuratorBudget counts the requests of Curator 5.4.0 for each row of the request budget, of
// TestRequestBudget and TestVirtual_RequestBudget_Recipes: Curator's column in docs/performance.md.
// If threads wake each other, the number of their checks depends on timing, and this is the
// smallest.
func TestCuratorBudget(t *testing.T) {
	suites(t)
	classPath := compileCurator(t)
	srv := zktest.Start(t, zktest.WithConfig("maxClientCnxns=0")) // each of 100 readers has its own connection
	counted := newByteCounter(t, srv.Addr())
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Minute)
	defer cancel()
	java := exec.CommandContext(ctx, "java", curatorArgs(classPath, "Budget", counted.addr())...)
	var log bytes.Buffer
	java.Stderr = &log
	in, err := java.StdinPipe()
	require.NoError(t, err)
	out, err := java.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, java.Start())

	until := func(what string, condition func() bool) {
		t.Helper()
		for deadline := time.Now().Add(20 * time.Second); !condition(); time.Sleep(time.Millisecond) {
			require.True(t, time.Now().Before(deadline), "waited in vain until %s: %v", what, srv.Requests())
		}
	}
	watches := func(lock string) (n int) {
		for _, name := range srv.Children(lock) {
			n += len(srv.Watches(lock + "/" + name))
		}
		return n
	}
	sent := func(n int) func() bool {
		return func() bool { return srv.Requests().Total() >= n }
	}
	// When the program prints "end", threads that it does not wait for may still send requests.
	settled := map[string]func() bool{
		"queue one waiter":                func() bool { return watches("/locks/queue") == 1 },
		"queue another":                   func() bool { return watches("/locks/queue") == 2 },
		"hand-over among eight threads":   sent(3 * 8),
		"lost connection with 20 waiters": sent(1 + 2*20),
		"permit":                          sent(6),
		"queue for a permit":              sent(4),
		"hand-over of a permit":           sent(4),
	}
	watched := map[string]struct {
		lock string
		n    int
	}{
		"eight threads watch":   {"/locks/crowd", 8},
		"twenty threads watch":  {"/locks/lost", 20},
		"the candidate watches": {"/locks/election", 1},
		"1 readers watch":       {"/locks/readers1", 1},
		"10 readers watch":      {"/locks/readers10", 10},
		"100 readers watch":     {"/locks/readers100", 100},
	}
	want := map[string]struct{ requests, events int }{
		"acquire":                                {requests: 2},
		"re-entrant pair":                        {},
		"release":                                {requests: 1},
		"try that fails":                         {requests: 4},
		"wait that times out":                    {requests: 6},
		"queue one waiter":                       {requests: 3},
		"queue another":                          {requests: 3},
		"hand-over to the second in line":        {requests: 2, events: 1},
		"hand-over to one that was further back": {requests: 2, events: 1},
		"hand-over among eight threads":          {requests: 3 * 8, events: 1},
		"first acquire, 0 parents missing":       {requests: 2},
		"first acquire, 1 parents missing":       {requests: 2*1 + 5},
		"first acquire, 2 parents missing":       {requests: 2*2 + 5},
		"first acquire, 3 parents missing":       {requests: 2*3 + 5},
		"lost connection with 20 waiters":        {requests: 1 + 2*20},

		"read lock":                                {requests: 2},
		"read lock: release":                       {requests: 1},
		"write lock":                               {requests: 2},
		"downgrade":                                {requests: 2},
		"write lock: release":                      {requests: 1},
		"permit":                                   {requests: 6},
		"queue for a permit":                       {requests: 4, events: 1},
		"hand-over of a permit":                    {requests: 4, events: 1},
		"permit: release":                          {requests: 1, events: 1},
		"three locks together":                     {requests: 6},
		"three locks together: release":            {requests: 3},
		"election hand-over":                       {requests: 2, events: 1},
		"1 readers behind a writer: its release":   {requests: 2, events: 1},
		"10 readers behind a writer: its release":  {requests: 11, events: 10},
		"100 readers behind a writer: its release": {requests: 101, events: 100},
	}
	// For a permit, the last request removes a watch from the client, and leaves it on the server:
	// its event arrives later.
	atLeast := []string{"wait that times out", "hand-over among eight threads", "lost connection with 20 waiters"}
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		what, name, _ := strings.Cut(lines.Text(), " ")
		switch what {
		case "begin":
			srv.ResetRequests()
			counted.back.Store(0)
			if name == "lost connection with 20 waiters" {
				require.True(t, srv.DropConnection(waiters(srv)))
			}
		case "until":
			on, known := watched[name]
			require.True(t, known, name)
			until(name, func() bool { return watches(on.lock) == on.n })
		case "end":
			row, known := want[name]
			require.True(t, known, name)
			delete(want, name)
			if wait := settled[name]; wait != nil {
				until("what follows "+name+" is sent", wait)
			}
			got := srv.Requests()
			t.Logf("%-40s %2d requests, %d events, %d bytes back: %v", name, got.Total(), got.Events, counted.back.Load(), got)
			if slices.Contains(atLeast, name) {
				require.GreaterOrEqual(t, got.Total(), row.requests, name)
				break
			}
			require.Equal(t, row.requests, got.Total(), name)
			require.Equal(t, row.events, got.Events, name)
			if name == "try that fails" || name == "wait that times out" {
				require.Equal(t, 1, watches("/locks/held"), "%s: its watch is left behind", name)
			}
		default:
			t.Fatalf("the program says %q", lines.Text())
		}
		_, err := in.Write([]byte("\n"))
		require.NoError(t, err)
	}
	require.NoError(t, java.Wait(), "%s", log.String())
	require.Empty(t, want, "rows that were not counted")
}

// byteCounter forwards connections to a server, and counts the bytes that the server sends.
type byteCounter struct {
	ln   net.Listener
	back atomic.Int64
}

func newByteCounter(t *testing.T, addr string) *byteCounter {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	b := &byteCounter{ln: ln}
	var all sync.WaitGroup
	t.Cleanup(func() { ln.Close(); all.Wait() })
	all.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			all.Go(func() { b.pass(c, addr) })
		}
	})
	return b
}

func (b *byteCounter) addr() string { return b.ln.Addr().String() }

// pass ends with the first of the two connections.
func (b *byteCounter) pass(c net.Conn, addr string) {
	defer c.Close()
	s, err := net.Dial("tcp", addr)
	if err != nil {
		return
	}
	defer s.Close()
	go func() {
		defer s.Close()
		_, _ = io.Copy(s, c)
	}()
	_, _ = io.Copy(countingWriter{c, &b.back}, s)
}

type countingWriter struct {
	io.Writer
	n *atomic.Int64
}

func (w countingWriter) Write(p []byte) (int, error) {
	w.n.Add(int64(len(p)))
	return w.Writer.Write(p)
}

// waiters is the session whose twenty threads wait.
func waiters(srv *zktest.Server) int64 {
	for _, name := range srv.Children("/locks/lost") {
		for _, w := range srv.Watches("/locks/lost/" + name) {
			return w.Session
		}
	}
	return 0
}
