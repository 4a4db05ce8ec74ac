package shards

// These tests attack a group of processes on a real server: they are killed with SIGKILL, with and
// without a guard, and restarted one after the other. Each process reports to the test when its
// functions start, work and end; the test looks for overlaps, for tokens that do not grow, and for
// times without an owner.

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/rpc"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/internal/zkserver"
)

const realTick = 500 * time.Millisecond // of the ensemble

const envMember = "ZKLOCK_SHARDS_MEMBER" // "address name shards observer": the test's binary is a member

// memberMain is the member's process. It leaves at SIGTERM.
func memberMain() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	fields := strings.Fields(os.Getenv(envMember))
	n, _ := strconv.Atoi(fields[2])
	quiet := slog.New(slog.NewTextHandler(io.Discard, nil))
	lease := zklock.SingleServerLease()
	if strings.Contains(fields[0], ",") {
		lease = zklock.QuorumLease(2 * realTick)
	}
	s, err := zklock.Connect(ctx, fields[0], zklock.WithSessionTimeout(sessionTimeout), zklock.WithLease(lease), zklock.WithLogger(quiet))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	defer s.Close()
	observer, err := rpc.Dial("tcp", fields[3])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	defer observer.Close()
	g, err := New(s, groupPath, n, WithMember(fields[1], nil), WithLogger(quiet))
	if err == nil {
		err = g.Run(ctx, func(ctx context.Context, shard int, hold *zklock.Hold) error {
			what := "start"
			for ctx.Err() == nil {
				_ = observer.Call("observer.Note", Report{fields[1], what, shard, hold.Token(), time.Now()}, new(bool))
				what = "work"
				select {
				case <-ctx.Done():
				case <-time.After(time.Second):
				}
			}
			return observer.Call("observer.Note", Report{fields[1], "end", shard, hold.Token(), time.Now()}, new(bool))
		})
	}
	if ctx.Err() == nil {
		fmt.Fprintln(os.Stderr, err)
	}
}

// Report is a report of a member's function.
type Report struct {
	Name  string
	What  string // "start", "work" or "end"
	Shard int
	Token int64
	At    time.Time
}

// span is the time in which a process worked on a shard.
type span struct {
	name       string
	token      int64
	start, end time.Time // end is zero as long as it works
}

// processes are the members, and what they have reported.
type processes struct {
	t        *testing.T
	addrs    []string // of the servers that run
	addr     string   // of all
	observer string
	n, m     int
	guard    string // the socket of the guard of members that are started from now on
	all      map[string]*exec.Cmd
	received int // requests, until now

	mu     sync.Mutex
	spans  [][]span
	fences []int64 // of each shard, the largest token of a report
	writes int     // reports that the fences admitted
	late   []Report
}

func (ps *processes) start(name string) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %s %d %s", envMember, ps.addr, name, ps.n, ps.observer), "ZKLOCK_GUARD="+ps.guard)
	cmd.Stderr = os.Stderr
	require.NoError(ps.t, cmd.Start())
	ps.all[name] = cmd
}

// Note records a report, if no later holder of the shard has reported.
func (ps *processes) Note(r Report, _ *bool) error {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if r.Token < ps.fences[r.Shard] {
		ps.late = append(ps.late, r)
		return nil
	}
	ps.fences[r.Shard] = r.Token
	ps.writes++
	switch r.What {
	case "start":
		ps.spans[r.Shard] = append(ps.spans[r.Shard], span{name: r.Name, token: r.Token, start: r.At})
	case "end":
		ps.endLocked(r.Shard, r.Name, r.At)
	}
	return nil
}

func (ps *processes) endLocked(shard int, name string, at time.Time) {
	for i := range ps.spans[shard] {
		if sp := &ps.spans[shard][i]; sp.name == name && sp.end.IsZero() {
			sp.end = at
		}
	}
}

// end ends a process by a signal and waits for it. A killed process has worked until now.
func (ps *processes) end(name string, sig os.Signal) {
	cmd := ps.all[name]
	delete(ps.all, name)
	at := time.Now()
	require.NoError(ps.t, cmd.Process.Signal(sig))
	_ = cmd.Wait()
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for shard := range ps.spans {
		if sig == syscall.SIGKILL {
			ps.endLocked(shard, name, at)
		}
	}
}

// even waits until each shard is worked on, evenly, and requires that no shard was without an owner
// for longer than most. It returns how many shards have moved.
func (ps *processes) even(most time.Duration, what string) (moves int) {
	ps.t.Helper()
	began := time.Now()
	require.Eventually(ps.t, ps.isEven, maxProbation+2*DefaultQuiet, 10*time.Millisecond, what)
	took := time.Since(began)
	requests := ps.requests()
	ps.mu.Lock()
	defer ps.mu.Unlock()
	require.Empty(ps.t, ps.late, "%s: the fences rejected reports", what)
	var gaps []time.Duration
	for shard, spans := range ps.spans {
		slices.SortFunc(spans, func(a, b span) int { return a.start.Compare(b.start) })
		for i := 1; i < len(spans); i++ {
			before, after := spans[i-1], spans[i]
			require.Greater(ps.t, after.token, before.token, "%s: shard %d: %+v", what, shard, spans)
			gap := after.start.Sub(before.end)
			require.False(ps.t, before.end.IsZero() || gap < 0, "%s: two work on shard %d: %+v", what, shard, spans)
			gaps = append(gaps, gap)
			if before.name != after.name {
				moves++
			}
		}
		ps.spans[shard] = spans[len(spans)-1:]
	}
	slices.Sort(gaps)
	ps.t.Logf("%s: even after %v; %d moves; without an owner %v, p99 %v, %v at most; %d requests; %d writes, none rejected", what,
		took.Round(time.Millisecond), moves, median(gaps), percentile99(gaps), longest(gaps), requests, ps.writes)
	require.LessOrEqual(ps.t, longest(gaps), most, what)
	return moves
}

func percentile99(d []time.Duration) time.Duration {
	if len(d) == 0 {
		return 0
	}
	return d[len(d)*99/100]
}

// isEven reports whether each shard is worked on, and each process works on its part.
func (ps *processes) isEven() bool {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	loads := map[string]int{}
	for _, spans := range ps.spans {
		if len(spans) == 0 || !spans[len(spans)-1].end.IsZero() {
			return false
		}
		loads[spans[len(spans)-1].name]++
	}
	least, most := ps.n, 0
	for _, n := range loads {
		least, most = min(least, n), max(most, n)
	}
	return len(loads) == len(ps.all) && most-least <= 1
}

// requests returns how many requests the servers have received since the last call.
func (ps *processes) requests() (n int) {
	for _, addr := range ps.addrs {
		require.Eventually(ps.t, func() bool {
			values, err := zkserver.Mntr(addr)
			received, _ := strconv.Atoi(values["zk_packets_received"])
			n += received
			return err == nil
		}, 20*time.Second, 10*time.Millisecond, "the server does not respond")
	}
	n, ps.received = n-ps.received, n
	return n
}

// onReal starts m members for n shards on these servers.
func onReal(t *testing.T, n, m int, addrs []string) *processes {
	ps := &processes{t: t, addrs: addrs, addr: strings.Join(addrs, ","), n: n, m: m,
		all: map[string]*exec.Cmd{}, spans: make([][]span, n), fences: make([]int64, n)}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ps.observer = l.Addr().String()
	server := rpc.NewServer()
	require.NoError(t, server.RegisterName("observer", ps))
	go func() {
		for conn, err := l.Accept(); err == nil; conn, err = l.Accept() {
			go server.ServeConn(conn)
		}
	}()
	t.Cleanup(func() {
		for name := range ps.all {
			ps.end(name, syscall.SIGKILL)
		}
		_ = l.Close()
	})
	for i := range m {
		ps.start(fmt.Sprint("m", i))
		if i == 0 {
			ps.joined() // it is the planner
		}
	}
	ps.even(shortMove, "start")
	return ps
}

// joined waits until a member is in the queue.
func (ps *processes) joined() {
	ps.t.Helper()
	conn, _, err := zk.Connect(ps.addrs, sessionTimeout, zk.WithLogInfo(false))
	require.NoError(ps.t, err)
	defer conn.Close()
	require.Eventually(ps.t, func() bool {
		members, _, err := conn.Children(groupPath + "/members")
		return err == nil && len(members) > 0
	}, 20*time.Second, 10*time.Millisecond, "no member has joined")
}

// startGuard starts zklock guard, for members that are started from now on.
func (ps *processes) startGuard() {
	dir := ps.t.TempDir()
	command := filepath.Join(dir, "zklock")
	out, err := exec.Command("go", "build", "-C", "../cmd/zklock", "-o", command).CombinedOutput()
	require.NoError(ps.t, err, "%s", out)
	ps.guard = filepath.Join(dir, "guard")
	guard := exec.Command(command, "guard", "--listen", ps.guard)
	require.NoError(ps.t, guard.Start())
	ps.t.Cleanup(func() {
		_ = guard.Process.Signal(syscall.SIGTERM)
		_ = guard.Wait()
	})
	require.Eventually(ps.t, func() bool {
		_, err := os.Stat(ps.guard)
		return err == nil
	}, 20*time.Second, 10*time.Millisecond, "the guard does not listen")
}

// rolling restarts all members one after the other. The next one leaves before the group is quiet,
// so the shards move once, to the member that was restarted before. Those of the first one and the
// last one move twice.
func (ps *processes) rolling(pause time.Duration) {
	for i := range ps.m {
		name := fmt.Sprint("m", i)
		ps.end(name, syscall.SIGTERM)
		ps.start(name)
		time.Sleep(pause) // what is tested
	}
	moves := ps.even(shortMove, fmt.Sprintf("a rolling restart, with %v between", pause))
	require.LessOrEqual(ps.t, moves, ps.n*(ps.m+2)/ps.m+ps.m)
}

// For how long a shard may have no owner. On a machine that is not busy a move takes less than 50
// ms, and the others a second less.
const (
	shortMove = 3 * time.Second
	guardMove = settle + 300*time.Millisecond + time.Second
	crashMove = afterCrash + time.Second
)

// changes has members join, leave and restart, and kills them.
func (ps *processes) changes() {
	ps.start("new")
	require.Equal(ps.t, ps.n/(ps.m+1), ps.even(shortMove, "a member joins"))
	ps.end("new", syscall.SIGTERM)
	require.Equal(ps.t, ps.n/(ps.m+1), ps.even(shortMove, "it leaves"))
	ps.rolling(time.Second)
	ps.startGuard()
	ps.rolling(5 * time.Second)

	// Each of these members crashes soon after it has got shards, so the next one waits longer for its
	// own.
	ps.end("m0", syscall.SIGKILL) // the first that was restarted plans
	ps.even(guardMove, "the planner is killed, with a guard")
	ps.start("m0")
	ps.even(shortMove, "it is back")
	ps.end("m0", syscall.SIGKILL)
	ps.even(guardMove, "it is killed, with a guard")
	ps.guard = ""
	ps.start("m0")
	ps.even(shortMove, "it is back, without a guard")
	ps.end("m0", syscall.SIGKILL)
	ps.even(crashMove, "it is killed, without a guard")
}

// Members join, leave, crash and are restarted, on one server, and on three after the leader was
// killed.
func TestReal(t *testing.T) {
	if os.Getenv("ZKLOCK_TEST_REAL") != "1" {
		t.Skip("needs a real ZooKeeper, Linux for the guard, and 12 minutes: ZKLOCK_TEST_REAL=1")
	}
	for _, c := range []struct{ n, m int }{{256, 8}, {1000, 20}} {
		t.Run(fmt.Sprintf("%d over %d", c.n, c.m), func(t *testing.T) {
			onReal(t, c.n, c.m, []string{zkserver.Single(t).Addr()}).changes()
		})
		t.Run(fmt.Sprintf("%d over %d, three servers", c.n, c.m), func(t *testing.T) {
			ens := zkserver.Ensemble(t, 3, zkserver.TickTime(realTick), zkserver.SessionTimeouts(time.Second, time.Minute))
			ps := onReal(t, c.n, c.m, ens.Addrs())
			leader, err := ens.Leader()
			require.NoError(t, err)
			require.NoError(t, leader.Kill())
			ps.addrs = slices.DeleteFunc(ps.addrs, func(addr string) bool { return addr == leader.Addr() })
			ps.received = 0
			time.Sleep(2 * sessionTimeout)                                       // in which every session that nobody took back would have expired
			require.Zero(t, ps.even(crashMove, "the leader is killed"), "moves") // on a busy machine an election can outlast a lease
			ps.changes()
		})
	}
}
