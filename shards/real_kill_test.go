package shards

// These tests attack a group of processes on a real server: they are killed with SIGKILL, and
// restarted one after the other. Each process prints when its functions start and end; the test
// looks for overlaps, for tokens that do not grow, and for times without an owner.

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
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

const envMember = "ZKLOCK_SHARDS_MEMBER" // "address name shards": the test's binary is a member

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
	g, err := New(s, groupPath, n, WithMember(fields[1], nil), WithQuiet(2*time.Second), WithLogger(quiet))
	if err == nil {
		var mu sync.Mutex
		say := func(what string, shard int, token int64) {
			mu.Lock()
			defer mu.Unlock()
			fmt.Println(what, shard, token, time.Now().UnixNano())
		}
		err = g.Run(ctx, func(ctx context.Context, shard int, hold *zklock.Hold) error {
			say("start", shard, hold.Token())
			<-ctx.Done()
			say("end", shard, hold.Token())
			return nil
		})
	}
	fmt.Fprintln(os.Stderr, err)
}

// span is the time in which a process worked on a shard.
type span struct {
	name       string
	token      int64
	start, end int64 // nanoseconds; end is 0 as long as it works
}

// processes are the members, and what they have printed.
type processes struct {
	t     *testing.T
	addr  string
	n     int
	all   map[string]*exec.Cmd
	read  sync.WaitGroup
	mu    sync.Mutex
	spans [][]span
}

func (ps *processes) start(name string) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), envMember+"="+ps.addr+" "+name+" "+strconv.Itoa(ps.n))
	out, err := cmd.StdoutPipe()
	require.NoError(ps.t, err)
	require.NoError(ps.t, cmd.Start())
	ps.all[name] = cmd
	ps.read.Go(func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			var what string
			var shard int
			var token, at int64
			if _, err := fmt.Sscan(lines.Text(), &what, &shard, &token, &at); err == nil {
				ps.note(name, what, shard, token, at)
			}
		}
	})
}

func (ps *processes) note(name, what string, shard int, token, at int64) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if what == "start" {
		ps.spans[shard] = append(ps.spans[shard], span{name: name, token: token, start: at})
		return
	}
	for i := range ps.spans[shard] {
		if sp := &ps.spans[shard][i]; sp.name == name && sp.end == 0 && (token == 0 || sp.token == token) {
			sp.end = at
		}
	}
}

// end ends a process by a signal and waits for it. What it worked on it has worked on until now.
func (ps *processes) end(name string, sig os.Signal) {
	cmd := ps.all[name]
	delete(ps.all, name)
	require.NoError(ps.t, cmd.Process.Signal(sig))
	at := time.Now().UnixNano()
	_ = cmd.Wait()
	if sig == syscall.SIGKILL {
		for shard := range ps.n {
			ps.note(name, "end", shard, 0, at)
		}
	}
}

// even waits until each shard is worked on, evenly. It returns how many shards have moved.
func (ps *processes) even(most time.Duration, what string) (moves int) {
	ps.t.Helper()
	began := time.Now()
	require.Eventually(ps.t, func() bool {
		ps.mu.Lock()
		defer ps.mu.Unlock()
		loads := map[string]int{}
		for _, spans := range ps.spans {
			if len(spans) == 0 || spans[len(spans)-1].end != 0 {
				return false
			}
			loads[spans[len(spans)-1].name]++
		}
		least, most := ps.n, 0
		for _, n := range loads {
			least, most = min(least, n), max(most, n)
		}
		return len(loads) == len(ps.all) && most-least <= 1
	}, most, 10*time.Millisecond, what)
	took := time.Since(began)
	ps.mu.Lock()
	defer ps.mu.Unlock()
	var gaps []time.Duration
	for shard, spans := range ps.spans {
		slices.SortFunc(spans, func(a, b span) int { return cmp.Compare(a.start, b.start) })
		for i := 1; i < len(spans); i++ {
			before, after := spans[i-1], spans[i]
			require.Greater(ps.t, after.token, before.token, "%s: shard %d: %+v", what, shard, spans)
			require.GreaterOrEqual(ps.t, after.start, before.end, "%s: shard %d: %+v", what, shard, spans)
			gaps = append(gaps, time.Duration(after.start-before.end))
			if before.name != after.name {
				moves++
			}
		}
		ps.spans[shard] = spans[len(spans)-1:]
	}
	slices.Sort(gaps)
	ps.t.Logf("%s: even after %v; %d moves; without an owner %v, %v at most", what, took.Round(time.Millisecond), moves, median(gaps), longest(gaps))
	if len(gaps) > 0 {
		require.LessOrEqual(ps.t, longest(gaps), afterCrash+time.Second, what)
	}
	return moves
}

// onReal starts the members on a real server, and skips the test if there is none.
func onReal(t *testing.T, addr func() string) *processes {
	if os.Getenv("ZKLOCK_TEST_REAL") != "1" {
		t.Skip("needs a real ZooKeeper: ZKLOCK_TEST_REAL=1")
	}
	ps := &processes{t: t, addr: addr(), n: 256, all: map[string]*exec.Cmd{}, spans: make([][]span, 256)}
	t.Cleanup(func() {
		for name := range ps.all {
			ps.end(name, syscall.SIGKILL)
		}
		ps.read.Wait()
	})
	for i := range realMembers {
		ps.start(fmt.Sprint("m", i))
		if i == 0 {
			ps.joined() // it is the planner
		}
	}
	ps.even(20*time.Second, "start")
	return ps
}

// joined waits until a member is in the queue.
func (ps *processes) joined() {
	ps.t.Helper()
	conn, _, err := zk.Connect(strings.Split(ps.addr, ","), sessionTimeout, zk.WithLogInfo(false))
	require.NoError(ps.t, err)
	defer conn.Close()
	require.Eventually(ps.t, func() bool {
		members, _, err := conn.Children(groupPath + "/members")
		return err == nil && len(members) > 0
	}, 20*time.Second, 10*time.Millisecond, "no member has joined")
}

const realMembers = 8

// Members and the planner are killed, and all are restarted one after the other.
func TestReal_Killed(t *testing.T) {
	ps := onReal(t, func() string { return zkserver.Single(t).Addr() })
	ps.end("m3", syscall.SIGKILL)
	ps.even(20*time.Second, "a member is killed")
	ps.start("m3")
	ps.even(20*time.Second, "it is back")
	ps.end("m0", syscall.SIGKILL)
	ps.even(20*time.Second, "the planner is killed")
	ps.start("m0")
	ps.even(20*time.Second, "it is back")
	for i := range realMembers {
		name := fmt.Sprint("m", i)
		ps.end(name, syscall.SIGTERM)
		ps.start(name)
		time.Sleep(time.Second) // what is tested: a second between two members
	}
	ps.even(20*time.Second, "a rolling restart, with 1 s between")
}

// One server of three is killed, the leader: nothing moves. Then a member and the planner are
// killed.
func TestReal_Killed_Ensemble(t *testing.T) {
	var ens *zkserver.Cluster
	ps := onReal(t, func() string {
		ens = zkserver.Ensemble(t, 3, zkserver.TickTime(realTick), zkserver.SessionTimeouts(time.Second, time.Minute))
		return ens.ConnectString()
	})
	leader, err := ens.Leader()
	require.NoError(t, err)
	require.NoError(t, leader.Kill())
	time.Sleep(2 * sessionTimeout) // in which every session that nobody took back would have expired
	require.Zero(t, ps.even(time.Second, "the leader is killed"), "moves")
	ps.end("m3", syscall.SIGKILL)
	ps.even(20*time.Second, "a member is killed")
	ps.end("m0", syscall.SIGKILL)
	ps.even(20*time.Second, "the planner is killed")
	ps.start("m3")
	ps.even(20*time.Second, "one is back")
}
