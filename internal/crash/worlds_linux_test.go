package crash

// F58 in random worlds: processes with session files, guards, both or neither take turns under a
// lock, while they are killed, stopped, forked and replaced, and cut off from the server. The test
// observes them from outside: what they hold, by the kernel's clock, and whose sessions are ended.

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/zktest"
)

var (
	worlds = flag.Int("crash.worlds", 4, "how many random worlds")
	seed   = flag.Uint64("crash.seed", 0, "of the random worlds; 0 for a random one")
)

const (
	worldTimeout = time.Second            // of the sessions
	worldTick    = 200 * time.Millisecond // of the server
	worldSteps   = 40

	theGuard = "the guard"
)

// life is a program in a process. Its end is a kill, an exec or an exit.
type life struct{ ends int64 } // by the kernel's clock; 0 while nothing ends it

// worker is a process that is started again after its end.
type worker struct {
	role   role
	proxy  *zktest.Proxy
	frozen bool

	cmd     *exec.Cmd
	stdin   io.WriteCloser
	readers sync.WaitGroup
	stopped bool
	killed  int64
	life    *life // guarded by world.mu, as are killed and heirs
	heirs   []int
}

// hold is what the processes have reported of a hold.
type hold struct{ from, to int64 }

// end is a report that the session of another process was ended.
type end struct {
	session int64
	at      int64
	by      string
}

type world struct {
	t       *testing.T
	srv     *zktest.Server
	command string // zklock
	socket  string
	guard   *exec.Cmd
	logs    sync.WaitGroup // of guards
	workers []*worker
	rivals  []*worker

	mu     sync.Mutex
	owners map[int64]*life // by session
	ends   []end
	holds  map[int64]*hold // by token
	latest *worker         // that had the lock

	byGuard, byFile int // the ends of sessions that were judged
}

func TestF58_RandomWorlds(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds the command; make nightly PART=crash runs it")
	}
	command := filepath.Join(t.TempDir(), "zklock")
	out, err := exec.Command("go", "build", "-C", "../../cmd/zklock", "-o", command).CombinedOutput()
	require.NoError(t, err, "%s", out)
	first := *seed
	if first == 0 {
		first = rand.Uint64()
	}
	t.Logf("-crash.seed=%d", first)
	var mu sync.Mutex
	holds, byGuard, byFile := 0, 0, 0
	t.Run("worlds", func(t *testing.T) {
		for i := range *worlds {
			t.Run(strconv.Itoa(i), func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, command)
				w.run(rand.New(rand.NewPCG(first, uint64(i))))
				mu.Lock()
				defer mu.Unlock()
				holds, byGuard, byFile = holds+len(w.holds), byGuard+w.byGuard, byFile+w.byFile
			})
		}
	})
	t.Logf("%d holds; %d sessions of dead processes were ended by guards, and %d by files", holds, byGuard, byFile)
	require.Greater(t, holds, *worlds)
	require.Positive(t, byGuard)
	require.Positive(t, byFile)
}

// newWorld starts a server, a guard and four workers: one has a file, one the guard, two have both.
func newWorld(t *testing.T, command string) *world {
	t.Helper()
	w := &world{t: t, command: command, owners: map[int64]*life{}, holds: map[int64]*hold{}}
	w.srv = zktest.Start(t, zktest.WithConfig(fmt.Sprintf("tickTime=%d", worldTick.Milliseconds())))
	dir := t.TempDir()
	w.socket = filepath.Join(dir, "guard.sock")
	w.startGuard()
	for i := range 4 {
		x := &worker{proxy: zktest.StartProxy(t, w.srv.Addr())}
		x.role = role{Servers: x.proxy.Addr(), Timeout: worldTimeout, Then: "takes turns"}
		if i != 0 {
			x.role.File = filepath.Join(dir, fmt.Sprintf("%d.session", i))
		}
		if i != 1 {
			x.role.Guard = w.socket
		}
		w.workers = append(w.workers, x)
		w.start(x)
	}
	t.Cleanup(w.close)
	return w
}

// startGuard starts a guard, and waits until it listens.
func (w *world) startGuard() {
	w.guard = exec.Command(w.command, "guard", "--listen", w.socket)
	log, err := w.guard.StderrPipe()
	require.NoError(w.t, err)
	require.NoError(w.t, w.guard.Start())
	w.logs.Go(func() { w.readLog(log, theGuard, regexp.MustCompile(`ended its session (0x\w+)`)) })
	require.Eventually(w.t, func() bool {
		conn, err := net.Dial("unix", w.socket)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	}, patience, time.Millisecond)
}

func (w *world) killGuard() {
	_ = w.guard.Process.Kill()
	w.logs.Wait()
	_ = w.guard.Wait()
}

// readLog collects the ends of sessions that a process reports.
func (w *world) readLog(log io.Reader, by string, ended *regexp.Regexp) {
	for lines := bufio.NewScanner(log); lines.Scan(); {
		if m := ended.FindStringSubmatch(lines.Text()); m != nil {
			id, err := strconv.ParseUint(m[1], 0, 64)
			w.mu.Lock()
			w.ends = append(w.ends, end{int64(id), clock(), by})
			w.mu.Unlock()
			if err != nil {
				panic(err)
			}
		}
	}
}

func (w *world) start(x *worker) {
	x.cmd = exec.Command(os.Args[0])
	x.cmd.Env = append(os.Environ(), x.role.env())
	stdin, err := x.cmd.StdinPipe()
	require.NoError(w.t, err)
	out, err := x.cmd.StdoutPipe()
	require.NoError(w.t, err)
	log, err := x.cmd.StderrPipe()
	require.NoError(w.t, err)
	x.stdin, x.stopped = stdin, false
	x.life, x.killed = &life{}, 0 // there are no readers
	require.NoError(w.t, x.cmd.Start())
	x.readers.Go(func() { w.readReports(x, out) })
	x.readers.Go(func() {
		w.readLog(log, strconv.Itoa(x.cmd.Process.Pid), regexp.MustCompile(`ended the session of a crashed process" session=(0x\w+)`))
	})
}

func (w *world) readReports(x *worker, out io.Reader) {
	born := 0
	for lines := bufio.NewScanner(out); lines.Scan(); {
		var r report
		if json.Unmarshal(lines.Bytes(), &r) != nil {
			continue
		}
		w.mu.Lock()
		switch r.What {
		case "born":
			if born++; born > 1 { // after an exec
				x.life = &life{ends: x.killed}
			}
		case "execs", "failed":
			x.life.ends = r.At
		case "heir":
			x.heirs = append(x.heirs, r.PID)
		case "held":
			h := w.holds[r.Token]
			if h == nil {
				h = &hold{from: r.At}
				w.holds[r.Token] = h
			}
			h.to, w.latest = r.At, x
			w.owners[r.Session] = x.life
		case "connected":
			w.owners[r.Session] = x.life
		}
		w.mu.Unlock()
	}
}

func (w *world) kill(x *worker) {
	w.mu.Lock()
	x.killed = clock()
	x.life.ends = cmp.Or(x.life.ends, x.killed)
	w.mu.Unlock()
	_ = x.cmd.Process.Kill()
	x.readers.Wait()
	_ = x.cmd.Wait()
}

func (w *world) killHeirs(x *worker) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, pid := range x.heirs {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	x.heirs = nil
}

// run takes random steps, ends all, and judges.
func (w *world) run(rnd *rand.Rand) {
	for range worldSteps {
		w.step(rnd, w.workers[rnd.IntN(len(w.workers))])
		time.Sleep(time.Duration(rnd.Int64N(int64(200 * time.Millisecond)))) // any moment is right
	}
	for _, x := range slices.Concat(w.workers, w.rivals) {
		x.proxy.Thaw()
		w.kill(x)
	}
	w.requireFree()
	w.killGuard()
	require.NoError(w.t, w.judge())
}

// latestHolder returns the worker that had the lock, x if there was none or it is stopped.
func (w *world) latestHolder(x *worker) *worker {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.latest == nil || w.latest.stopped {
		return x
	}
	return w.latest
}

// tell writes to a worker, which may have ended.
func (x *worker) tell(what string) { _, _ = io.WriteString(x.stdin, what+"\n") }

func (w *world) step(rnd *rand.Rand, x *worker) {
	switch rnd.IntN(13) {
	case 0, 1, 2: // also if it has ended because its file was in use
		w.kill(x)
		w.start(x)
	case 3, 4:
		if !x.stopped && rnd.IntN(2) == 0 {
			x = w.latestHolder(x)
		}
		x.stopped = !x.stopped
		_ = x.cmd.Process.Signal(map[bool]os.Signal{true: syscall.SIGSTOP, false: syscall.SIGCONT}[x.stopped])
	case 5, 6:
		x.tell("exec")
	case 7:
		if x.role.File != "" {
			x.tell("heir")
		}
	case 8:
		w.killHeirs(x)
	case 9:
		w.killGuard()
		w.startGuard()
	case 10:
		if x.frozen = !x.frozen; x.frozen {
			x.proxy.Freeze()
		} else {
			x.proxy.Thaw()
		}
	case 11:
		x.proxy.CloseConnections()
	case 12: // another process with the same file
		y := &worker{role: x.role, proxy: x.proxy}
		w.rivals = append(w.rivals, y)
		w.start(y)
	}
}

// requireFree requires that the lock is free when the sessions of all processes have expired.
func (w *world) requireFree() {
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	s, err := zklock.Connect(ctx, w.srv.Addr(), zklock.WithLease(zklock.SingleServerLease()), zklock.WithLogger(slog.New(slog.DiscardHandler)))
	require.NoError(w.t, err)
	defer s.Close()
	m, err := zklock.NewMutex(s, lockPath)
	require.NoError(w.t, err)
	h, err := m.Acquire(ctx)
	require.NoError(w.t, err)
	require.NoError(w.t, h.Release(ctx))
}

func (w *world) close() {
	for _, x := range slices.Concat(w.workers, w.rivals) {
		w.kill(x)
		w.killHeirs(x)
	}
	_ = w.guard.Process.Kill()
}
