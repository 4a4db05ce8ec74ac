//go:build linux || darwin

package supervise

// Attacks on the two processes and what they say to each other: one is late, hangs, or hears that
// the other is gone.

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/zklock/zklock/internal/proctest"
)

// wires returns both ends of a socket pair.
func wires(t *testing.T) (*wire[report, order], *wire[order, report]) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	require.NoError(t, err)
	a, err := newWire[report, order](fds[0])
	require.NoError(t, err)
	b, err := newWire[order, report](fds[1])
	require.NoError(t, err)
	t.Cleanup(func() {
		a.close()
		b.close()
		for range a.in {
		}
		for range b.in {
		}
	})
	return a, b
}

// The guardian knows the will before the command runs, and each other that follows it, also one
// that there is nothing to do.
func TestSupervise_TellsTheGuardianOfEachWill(t *testing.T) {
	zk, guard := wires(t)
	g := &guardian{wire: guard}
	var data []byte
	s := &supervisor{Job: Job{Will: func() []byte { return data }}, wire: zk}
	told := func() will {
		select {
		case o, ok := <-guard.in:
			g.take(o, ok)
		case <-time.After(patience):
			require.FailNow(t, "zklock did not tell")
		}
		return *g.will
	}
	s.tellWill()
	require.Equal(t, will{Process: os.Getpid()}, told())
	for _, data = range [][]byte{[]byte("one"), nil, []byte("two")} {
		s.tellWill()
		s.tellWill() // nothing new
		require.Equal(t, will{os.Getpid(), data}, told())
	}
	require.Empty(t, guard.in)
}

// The guardian acts on zklock's death alone: here its socket has ended and zklock, which is this
// process, has not.
func TestGuardian_SocketEndsAndZklockLives_WillIsNotCarriedOut(t *testing.T) {
	l := newLocker(t) // would hear of it
	l.occupy(t)
	r := New(plain{os.Stderr})
	defer r.Close()
	s := &supervisor{runner: r, Job: Job{
		Program: "/bin/sh", Argv: []string{"sh", "-c", "sleep 600"}, Env: os.Environ(), Name: "/fake",
		Hold:  &fakeHold{deadline: time.Now().Add(time.Hour), lost: make(chan struct{})},
		Will:  func() []byte { return []byte(l.path + "\n1") },
		Began: func() {},
	}}
	require.NoError(t, s.startGuardian())
	defer s.guardian.Wait()
	defer s.guardian.Kill()
	require.True(t, (<-s.wire.in).Ready)
	s.start()
	leader := (<-s.wire.in).Started
	require.NotZero(t, leader)
	require.NoError(t, s.begin(leader))
	require.True(t, (<-s.wire.in).Running)
	s.wire.close()
	proctest.Eventually(t, "the command was killed and reaped", func() bool { return unix.Kill(leader, 0) == unix.ESRCH })
	require.Never(t, func() bool { return l.queued() == 0 }, 500*time.Millisecond, 5*time.Millisecond)
}

// Nothing that one says gets lost because the other is slow to read it; and nobody waits for the
// other.
func TestWire_SlowReader_GetsEverything(t *testing.T) {
	zk, guard := wires(t)
	many := make([]string, 3000)
	for i := range many {
		many[i] = string(slices.Repeat([]byte{byte(1 + i%255)}, 1000))
	}
	for i := range 4 { // 12 MB, far more than any socket holds
		require.True(t, zk.send(order{Start: &startOrder{Argv: wordsOf(many...), KillAfter: time.Duration(i)}}))
	}
	require.True(t, zk.send(order{Reap: true}))
	for i := range 4 {
		o := <-guard.in
		require.NotNil(t, o.Start)
		require.EqualValues(t, i, o.Start.KillAfter)
		require.True(t, slices.Equal(many, o.Start.Argv.strings()))
	}
	require.True(t, (<-guard.in).Reap)
}

// fakeHold is a hold whose fate the test decides.
type fakeHold struct {
	deadline time.Time
	lost     chan struct{}
	err      error
}

func (h *fakeHold) Deadline() time.Time   { return h.deadline }
func (h *fakeHold) Lost() <-chan struct{} { return h.lost }
func (h *fakeHold) Err() error            { return h.err }

// superviseFake supervises a command under the hold. A busy machine may keep the command from
// running for a while: the plan leaves it half a second after SIGTERM to say so, and as long to be
// gone before the deadline.
func superviseFake(t *testing.T, h Hold, argv ...string) Outcome {
	t.Helper()
	return superviseJob(t, Job{Hold: h}, nil, argv...)
}

// superviseJob gives the job what it does not have. change changes the runner before.
func superviseJob(t *testing.T, j Job, change func(*Runner), argv ...string) Outcome {
	t.Helper()
	r := New(plain{os.Stderr})
	defer r.Close()
	program, err := exec.LookPath(argv[0])
	require.NoError(t, err)
	j.Program, j.Argv, j.Env, j.Name = program, argv, append(os.Environ(), proctest.EnvJob+"=1", "ZKLOCK_TOKEN=1"), "/fake"
	j.Plan.KillAfter, j.Plan.Margin = 500*time.Millisecond, 500*time.Millisecond
	if j.Plan.Poll == 0 {
		j.Plan.Poll = 10 * time.Millisecond
	}
	if j.Will == nil {
		j.Will = func() []byte { return nil }
	}
	j.Note, j.Began = t.Logf, func() {}
	if change != nil {
		change(r)
	}
	defer r.Dismiss()
	return r.Run(j)
}

// came has signals come to a runner before its command starts.
func came(sigs ...os.Signal) func(*Runner) {
	return func(r *Runner) {
		r.KeepSignals(func(os.Signal) {})
		for _, s := range sigs {
			r.desk.ch <- s
		}
		for len(r.kept) < len(sigs) {
			time.Sleep(time.Millisecond)
		}
	}
}

// lookedAtHold is a hold of which something happens when zklock looks at it for the last time
// before the command starts.
type lookedAtHold struct {
	fakeHold
	look   func()
	once   sync.Once
	runner *Runner
}

func (h *lookedAtHold) Err() error {
	h.once.Do(h.look)
	return h.fakeHold.Err()
}

// of is a change of the runner: it keeps signals, and the hold knows it.
func (h *lookedAtHold) of(r *Runner) {
	came()(r)
	h.runner = r
}

func TestSupervise_LostBeforeTheStart_StartsNothing(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ran")
	lost := errors.New("somebody took it away")
	h := &fakeHold{deadline: time.Now().Add(time.Hour), lost: make(chan struct{}), err: lost}
	close(h.lost)
	out := superviseFake(t, h, "touch", file)
	require.ErrorIs(t, out.Lost, lost)
	require.Equal(t, NotStarted, out.How)
	require.NoFileExists(t, file)

	// The hold still stands when zklock looks, but there is no time left.
	h = &fakeHold{deadline: time.Now().Add(20 * time.Millisecond), lost: make(chan struct{})}
	out = superviseFake(t, h, "touch", file)
	require.ErrorIs(t, out.Lost, ErrDeadline)
	require.Equal(t, NotStarted, out.How)
	require.NoFileExists(t, file)
}

// The guardian hears the word to start when the command should have ended already, because it was
// stopped meanwhile.
func TestGuardian_HearsTheWordTooLate_OpensNothing(t *testing.T) {
	for late, want := range map[time.Duration]int{0: 0, -patience: 1} {
		zk, guard := wires(t)
		gate, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
		require.NoError(t, err)
		g := &guardian{wire: guard, gate: os.NewFile(uintptr(gate[0]), "gate")}
		term := Now().Add(-late)
		g.take(order{Go: &limits{Term: term, Kill: term}}, true)
		require.True(t, g.going, "the limits count")
		require.NoError(t, unix.Shutdown(gate[0], unix.SHUT_WR))
		n, err := unix.Read(gate[1], make([]byte, 2))
		require.NoError(t, err)
		require.Equal(t, want, n)
		require.NoError(t, unix.Close(gate[1])) // what the guardian reads of it ends
		if want == 1 {
			require.True(t, (<-zk.in).Running)
		}
		require.NoError(t, g.gate.Close())
	}
}

// A signal that asks nobody to end may come just before the command starts. The command gets it.
func TestSupervise_SignalBeforeTheStart_IsPassedOn(t *testing.T) {
	h := &fakeHold{deadline: time.Now().Add(patience), lost: make(chan struct{})}
	out := superviseJob(t, Job{Hold: h}, came(syscall.SIGUSR1), "sleep", "1000")
	require.NoError(t, out.Lost)
	require.Equal(t, syscall.SIGUSR1, out.Died)
}

// The guardian hangs before the command starts. Nothing of the command runs then: zklock ends when
// it is told to, and releases the lock, or says that the lock was lost.
func TestSupervise_GuardianHangsBeforeTheStart_ZklockLeaves(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ran")
	var runner *Runner
	hung := 0
	hang := func() []byte {
		if runner.child.pid != hung { // each guardian once
			hung = runner.child.pid
			require.NoError(t, syscall.Kill(hung, syscall.SIGSTOP))
		}
		return nil
	}
	h := &fakeHold{deadline: time.Now().Add(patience), lost: make(chan struct{})}
	out := superviseJob(t, Job{Hold: h, Will: hang, Plan: Plan{Poll: patience}}, func(r *Runner) {
		runner = r
		came(syscall.SIGTERM)(r)
	}, "touch", file)
	require.Equal(t, Outcome{Died: syscall.SIGTERM, How: NotStarted}, out)

	h.err = errors.New("somebody took it away")
	close(h.lost)
	out = superviseJob(t, Job{Hold: h, Will: hang, Plan: Plan{Poll: patience}}, func(r *Runner) { runner = r }, "touch", file)
	require.ErrorIs(t, out.Lost, h.err)
	require.Equal(t, NotStarted, out.How)
	require.NoFileExists(t, file)
}
