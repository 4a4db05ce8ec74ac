package supervise

// Attacks on the promise that nothing that came from the command runs when the next holder begins.
// The next holder is a client of the test's own, which looks at all processes of the host in its
// first instant: what came from the command has the lock's path in its environment.

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/zklock/zklock/internal/proctest"
)

// broods are what a command starts, by how it does, and how many processes that are with the
// command. The command ends when somebody writes to the pipe $STOP.
var broods = []struct {
	name, script string
	members      int
}{
	{"fork", `sleep 1000 & sh -c 'sleep 1000; true' &`, 4},
	{"double fork", `(sleep 1000 & (sleep 1000 &)); (sh -c 'sleep 1000; true' &)`, 5},
	{"setsid", `setsid sleep 1000 & setsid sh -c 'sleep 1000 & sleep 1000; true' &`, 5},
	{"setpgid", `bash -c 'set -m; sleep 1000 & sleep 1000 | sleep 1000 & wait' &`, 5},
	{"timeout", `timeout 1000 sleep 1000 & timeout 1000 sh -c 'sleep 1000; true' &`, 6},
	{"nohup", `nohup sleep 1000 >/dev/null 2>&1 & (setsid nohup sh -c 'sleep 1000; true' >/dev/null 2>&1 &)`, 4},
	{"daemon", `(setsid sh -c 'cd /; (setsid sleep 1000 </dev/null >/dev/null 2>&1 &); exec sleep 1000' &)`, 3},
	{"deaf", `trap "" TERM HUP INT; setsid sh -c 'while :; do sleep 0.05; done' & (setsid sh -c 'sleep 1000; true' &)`, 4},
	{"stopped", `setsid sh -c 'kill -STOP $$; true' & (setsid sh -c 'sleep 1000 & kill -STOP $$; true' &)`, 4},
	// It forks as fast as it may, and its user has no place for another process. (Without the
	// millisecond, which leaves a processor to the others, it is the lease that ends.)
	{"storm", `exec nice -n 19 perl -e '$SIG{TERM} = "IGNORE"; if (!fork) { fork // select undef, undef, undef, 0.001 while 1 } open F, $ENV{STOP}; <F>'`, 50},
}

// faults are how the hold ends.
var faults = []struct {
	name   string
	strike func(t *testing.T, p *proctest.Proc, guardian int, l *locker, stop string)
	slow   bool // the session has to expire
	exit   int
}{
	{"the command ends", func(t *testing.T, p *proctest.Proc, guardian int, l *locker, stop string) {
		require.NoError(t, os.WriteFile(stop, []byte("\n"), 0))
	}, false, 0},
	{"zklock is killed", func(t *testing.T, p *proctest.Proc, guardian int, l *locker, stop string) {
		p.Signal(syscall.SIGKILL)
	}, false, exitSignal + 9},
	{"the guardian is killed", func(t *testing.T, p *proctest.Proc, guardian int, l *locker, stop string) {
		require.NoError(t, syscall.Kill(guardian, syscall.SIGKILL))
	}, false, ExitFailed},
	{"the lease runs out", func(t *testing.T, p *proctest.Proc, guardian int, l *locker, stop string) {
		l.silence()
	}, true, exitLost},
	{"both are stopped", func(t *testing.T, p *proctest.Proc, guardian int, l *locker, stop string) {
		require.NoError(t, syscall.Kill(guardian, syscall.SIGSTOP))
		p.Signal(syscall.SIGSTOP)
		require.NoError(t, syscall.Kill(guardian, syscall.SIGSTOP), "zklock may have continued it")
	}, true, exitSignal + 9},
}

// census returns the processes that have the lock's path in their environment. One that has ended
// has no environment, and neither has one that is past its last instruction.
func census(path string) (found []string) {
	mark := []byte("\x00ZKLOCK_PATH=" + path + "\x00")
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		env, _ := os.ReadFile(dir + "/environ")
		if bytes.Contains(append([]byte{0}, env...), mark) {
			stat, _ := os.ReadFile(dir + "/stat")
			found = append(found, string(stat[:min(len(stat), 60)]))
		}
	}
	return found
}

const stormLimit = 150

var lastUser atomic.Int32

// limited has zklock run as a user of its own who may have so many processes.
func limited(t *testing.T, limit int) func(*exec.Cmd) {
	t.Helper()
	for _, tool := range []string{"setpriv", "prlimit", "perl"} {
		if _, err := exec.LookPath(tool); (err != nil || os.Geteuid() != 0) && !required() {
			t.Skipf("not root, or no %s: nobody but a user of its own can be at a limit without harm", tool)
		}
	}
	user := strconv.Itoa(20000 + (os.Getpid()*8+int(lastUser.Add(1)))%20000)
	t.Cleanup(func() { // in case the test fails
		for range 10 {
			_ = exec.Command("setpriv", "--reuid", user, "--regid", user, "--clear-groups", "sh", "-c", "kill -KILL -1").Run()
		}
	})
	return func(c *exec.Cmd) {
		c.Args = append([]string{"setpriv", "--reuid", user, "--regid", user, "--clear-groups", "prlimit", fmt.Sprintf("--nproc=%d:%d", limit, limit), binary(t)}, c.Args[1:]...)
		c.Path, _ = exec.LookPath("setpriv")
	}
}

func roundsOf(t *testing.T) int {
	t.Helper()
	n, err := strconv.Atoi(os.Getenv("ZKLOCK_ROUNDS"))
	if os.Getenv("ZKLOCK_ROUNDS") == "" {
		n, err = 1, nil
	}
	require.NoError(t, err)
	return n
}

// Nothing that came from the command runs at the next holder's first instant. ZKLOCK_ROUNDS=100
// does it a hundred times.
func TestOutlives_Nothing(t *testing.T) {
	for _, fault := range faults {
		for _, brood := range broods {
			if brood.name == "storm" && os.Getenv("ZKLOCK_ROUNDS") == "" {
				continue // it takes the processors from all tests beside it: make nightly PART=command
			}
			t.Run(fault.name+"/"+brood.name, func(t *testing.T) {
				if fault.slow && brood.name != "storm" {
					t.Parallel() // a storm beside it would take the time that the guardian has
				}
				var longest time.Duration
				timeout := 2 * sessionTimeout // the guardian needs the processor in the last part of it, also on a busy machine
				if !fault.slow {
					timeout *= 2 // no client waits for its end, and the test can tell that it has not ended
				}
				for range roundsOf(t) {
					change := func(*exec.Cmd) {}
					if brood.name == "storm" {
						change = limited(t, stormLimit)
					}
					l, stop := newLocker(t), filepath.Join(openDir(t), "stop")
					require.NoError(t, syscall.Mkfifo(stop, 0o666))
					require.NoError(t, os.Chmod(stop, 0o666))
					p := l.run(t, func(c *exec.Cmd) {
						change(c)
						c.Env = append(c.Env, "STOP="+stop)
					}, "--timeout", timeout.String(), "--", "sh", "-c", brood.script+"\nread line <$STOP")
					t.Cleanup(func() { killCensus(l.path) })
					proctest.Eventually(t, "what the command started runs", func() bool { return len(census(l.path)) >= brood.members })
					guardian := guardianOf(t, p)

					type grant struct {
						at   time.Time
						left []string
					}
					granted := make(chan grant, 1)
					go func() {
						defer close(granted) // occupy ends this goroutine if it fails
						release := l.occupy(t)
						g := grant{time.Now(), census(l.path)}
						release()
						granted <- g
					}()
					proctest.Eventually(t, "the next one waits", func() bool { return l.queued() == 2 })
					struck := time.Now()
					fault.strike(t, p, guardian, l, stop)
					g, ok := <-granted
					require.True(t, ok, "nobody was granted")
					require.Empty(t, g.left, "this ran beside the next holder")
					longest = max(longest, g.at.Sub(struck))
					if fault.exit == exitSignal+9 {
						_ = p.Cmd.Process.Kill() // or it is stopped
					}
					require.Equal(t, fault.exit, p.Wait())
					if !fault.slow {
						require.Less(t, g.at.Sub(struck), timeout-time.Second, "the session need not expire")
					}
				}
				t.Logf("rounds: %d; the next holder waited for %v at most", roundsOf(t), longest.Round(time.Millisecond))
			})
		}
	}
}

// killCensus leaves nothing of a failed test.
func killCensus(path string) {
	for _, line := range census(path) {
		pid, _, _ := strings.Cut(line, " ")
		if n, err := strconv.Atoi(pid); err == nil {
			_ = syscall.Kill(n, syscall.SIGKILL)
		}
	}
}

// names are the programs that a census found.
func names(path string) (found []string) {
	for _, line := range census(path) {
		_, name, _ := strings.Cut(line, " (")
		name, _, _ = strings.Cut(name, ")")
		found = append(found, name)
	}
	return found
}

const leaves = `setsid sleep 1000 & pid=$!; timeout 1000 tail -f /dev/null & until pgrep -s $pid sleep >/dev/null && pgrep -P $! tail >/dev/null; do sleep 0.01; done; exit 3`

func TestLeftovers_End_AllIsEndedAndNamed(t *testing.T) {
	l := newLocker(t)
	p := l.run(t, nil, "--", "sh", "-c", leaves)
	t.Cleanup(func() { killCensus(l.path) })
	require.Equal(t, 3, p.Wait())
	require.Empty(t, census(l.path))
	require.Regexp(t, `: ending processes that the command left running: (\d+ (sleep|timeout|tail)(, )?){3}\n`, p.Stderr.String())
}

// The reader of a command's output has a moment to read it to its end, and is not worth a word. On
// a busy machine the moment may be over before the reader gets to it: then the reader was asked to
// end, and not sooner.
func TestLeftovers_ReaderOfTheOutput_ReadsOn(t *testing.T) {
	l := newLocker(t)
	for range 50 {
		dir := t.TempDir()
		p := l.run(t, nil, "--", "bash", "-c", `cd "$0"
			exec > >(trap 'echo $EPOCHREALTIME >asked; exit' TERM; >ready; until [ -s ended ]; do sleep 0.005; done; sleep 0.02; cat >out)
			until [ -e ready ]; do sleep 0.005; done; echo said; echo $EPOCHREALTIME >ended`, dir)
		require.Equal(t, 0, p.Wait())
		if !strings.Contains(p.Stderr.String(), "left running") {
			b, err := os.ReadFile(filepath.Join(dir, "out"))
			require.NoError(t, err)
			require.Equal(t, "said\n", string(b))
			return
		}
		if asked, ok := seconds(t, filepath.Join(dir, "asked")); ok {
			ended, _ := seconds(t, filepath.Join(dir, "ended"))
			require.GreaterOrEqual(t, asked-ended, 0.1, "it had its moment")
		}
	}
	require.FailNow(t, "no reader came to the end of what it read")
}

// seconds reads a time that a script wrote, if it did.
func seconds(t *testing.T, file string) (at float64, ok bool) {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil || len(b) == 0 {
		return 0, false
	}
	at, err = strconv.ParseFloat(strings.TrimSpace(string(b)), 64)
	require.NoError(t, err)
	return at, true
}

func TestLeftovers_Leave_OnlyWhatHasASessionOfItsOwnRunsOn(t *testing.T) {
	for name, end := range map[string]func(t *testing.T, p *proctest.Proc, l *locker) int{
		"the command ends": func(*testing.T, *proctest.Proc, *locker) int { return 3 },
		"the lock is lost": func(t *testing.T, p *proctest.Proc, l *locker) int {
			l.lose()
			return exitLost
		},
		"the guardian is killed": func(t *testing.T, p *proctest.Proc, l *locker) int {
			require.NoError(t, syscall.Kill(guardianOf(t, p), syscall.SIGKILL))
			return ExitFailed
		},
	} {
		t.Run(name, func(t *testing.T) {
			l, script := newLocker(t), leaves
			if name != "the command ends" {
				script = strings.Replace(script, "exit 3", "sleep 1000; exit 3", 1)
			}
			p := l.run(t, nil, "--leftovers", "leave", "--", "sh", "-c", script)
			t.Cleanup(func() { killCensus(l.path) })
			if name != "the command ends" {
				proctest.Eventually(t, "all runs", func() bool { return strings.Count(strings.Join(names(l.path), " "), "sleep") == 2 })
			}
			require.Equal(t, end(t, p, l), p.Wait())
			require.Equal(t, []string{"sleep"}, names(l.path))
		})
	}
}

// The kernel gives 0 for a session whose leader is not of the PID namespace, as unshare and nsenter
// make them.
func TestLeftovers_Leave_OurSessionHasNoNumber(t *testing.T) {
	l := newLocker(t)
	args := []string{"--leftovers", "leave", "--", "sh", "-c", leaves}
	p := l.run(t, func(c *exec.Cmd) {
		namespaced(t, "--pid", "--fork", "--mount-proc", "sh", "-c", `"$@"; echo $? $(pgrep -l 'sleep|tail' | sed 's/.* //')`, "sh")(c)
	}, args...)
	require.Equal(t, 0, p.Wait())
	require.Equal(t, "3 sleep\n", p.Stdout.String())
}

func TestLeftovers_Wait_LockIsHeldAsLong(t *testing.T) {
	for name, row := range map[string]struct {
		end  func(t *testing.T, p *proctest.Proc, l *locker, stop string)
		exit int
	}{
		"they end": {func(t *testing.T, p *proctest.Proc, l *locker, stop string) {
			require.NoError(t, os.WriteFile(stop, nil, 0o600))
		}, 3},
		"zklock is told to end": {func(t *testing.T, p *proctest.Proc, l *locker, stop string) { p.Signal(syscall.SIGTERM) }, 3},
		"the lock is lost": {func(t *testing.T, p *proctest.Proc, l *locker, stop string) {
			l.lose()
		}, exitLost},
	} {
		t.Run(name, func(t *testing.T) {
			l, stop := newLocker(t), filepath.Join(t.TempDir(), "stop")
			p := l.run(t, nil, "--leftovers", "wait", "--", "sh", "-c", `setsid sh -c 'until [ -e "$0" ]; do sleep 0.02; done' "$0" & exit 3`, stop)
			t.Cleanup(func() { killCensus(l.path) })
			p.Prints("waiting for processes that the command left running: ")
			require.Never(t, func() bool { return len(census(l.path)) == 0 }, 300*time.Millisecond, 50*time.Millisecond)
			require.Equal(t, 1, l.queued())
			row.end(t, p, l, stop)
			require.Equal(t, row.exit, p.Wait())
			require.Empty(t, census(l.path))
			require.Zero(t, l.queued())
		})
	}
}

// A shell's children become zklock's by the shell's exec. They never came from the command.
func TestOutlives_GuardianKilled_WhatWasThereBefore_LivesOn(t *testing.T) {
	l := newLocker(t)
	p := l.run(t, func(c *exec.Cmd) {
		c.Args = append([]string{"sh", "-c", `sleep 74 & echo before $!; exec "$@"`, "sh", binary(t)}, c.Args[1:]...)
		c.Path, _ = exec.LookPath("sh")
	}, "--", "sh", "-c", "echo ready; sleep 1000; true")
	p.Prints("ready")
	var before int
	_, err := fmt.Sscanf(p.Stdout.String(), "before %d", &before)
	require.NoError(t, err)
	out, err := exec.Command("pgrep", "-P", strconv.Itoa(p.Cmd.Process.Pid), "-f", guardianArg).Output()
	require.NoError(t, err)
	guardian, err := strconv.Atoi(strings.TrimSpace(string(out)))
	require.NoError(t, err)
	require.NoError(t, syscall.Kill(guardian, syscall.SIGKILL))
	require.Equal(t, ExitFailed, p.Wait())
	require.Empty(t, census(l.path))
	require.False(t, proctest.Gone(before))
	require.NoError(t, syscall.Kill(before, syscall.SIGKILL))
}

// namespaced runs zklock in namespaces of its own.
func namespaced(t *testing.T, args ...string) func(*exec.Cmd) {
	t.Helper()
	if os.Geteuid() != 0 && !required() {
		t.Skip("not root, and namespaces of one's own need it")
	}
	return func(c *exec.Cmd) {
		c.Args = append(append(append([]string{"unshare"}, args...), binary(t)), c.Args[1:]...)
		c.Path, _ = exec.LookPath("unshare")
	}
}

// Process 1 of a container cannot tell the command's orphans from those of docker exec. It takes
// all with it, and the session expires.
func TestOutlives_GuardianOfProcess1Killed_AllEndsBeforeTheSession(t *testing.T) {
	l := newLocker(t)
	p := l.run(t, namespaced(t, "--pid", "--fork", "--mount-proc"), "--", "sh", "-c",
		`setsid sleep 1000 & (setsid sleep 1000 &); timeout 1000 sleep 1000; true`)
	t.Cleanup(func() { killCensus(l.path) })
	proctest.Eventually(t, "all runs", func() bool { return strings.Count(strings.Join(names(l.path), " "), "sleep") == 3 })
	struck := time.Now()
	require.NoError(t, syscall.Kill(proctest.ChildOf(t, proctest.ChildOf(t, p.Cmd.Process.Pid)), syscall.SIGKILL))
	release := l.occupy(t)
	require.Empty(t, census(l.path))
	release()
	require.Equal(t, ExitFailed, p.Wait())
	t.Logf("the next holder waited for %v", time.Since(struck).Round(time.Millisecond))
}

// Without a /proc the command's group is all that the guardian knows. zklock says so. Its processes
// count until somebody has waited for them: here that is a shell, as process 1 of their namespace.
// That of a busy machine may take its time.
func TestOutlives_NoProc_GroupIsEnded(t *testing.T) {
	l, dir := newLocker(t), openDir(t)
	stay, end, err := os.Pipe()
	require.NoError(t, err)
	defer stay.Close()
	defer end.Close()
	p := l.run(t, func(c *exec.Cmd) {
		namespaced(t, "--mount", "--pid", "--fork", "sh", "-c", `mount -t tmpfs none /proc && "$@"; echo ended: $?; read line <&3`, "sh")(c)
		c.ExtraFiles = []*os.File{stay}
	}, "--", "sh", "-c", `sleep 1000 & setsid sh -c 'echo >"$0/left"; exec sleep 1000' "$0" & until [ -e "$0/left" ]; do sleep 0.01; done; exit 3`, dir)
	t.Cleanup(func() { killCensus(l.path) })
	p.Prints("ended: 3")
	require.Contains(t, p.Stderr.String(), "processes that leave the command's process group are not ended")
	require.Len(t, census(l.path), 1)
	require.NoError(t, end.Close()) // with the shell all ends
	p.Wait()
}

// A number of a list of children can be another process's by now. That is not touched.
func TestTree_NumberIsAnothersNow_IsNotTouched(t *testing.T) {
	child := exec.Command("sleep", "1000")
	require.NoError(t, child.Start())
	defer func() { _ = child.Process.Kill(); _ = child.Wait() }()
	ended := exec.Command("sleep", "1000")
	require.NoError(t, ended.Start())
	endedFD, err := unix.PidfdOpen(ended.Process.Pid, 0)
	require.NoError(t, err, "pidfds came with Linux 5.3")
	defer unix.Close(endedFD)
	require.NoError(t, ended.Process.Kill())
	_ = ended.Wait()

	self := &process{pid: os.Getpid(), pidfd: -1}
	parent := &process{pid: os.Getppid(), pidfd: -1}
	for name, row := range map[string]struct {
		pid          int
		parent, self *process
		visited      bool
	}{
		"our child":                    {child.Process.Pid, self, self, true},
		"our child, listed elsewhere":  {child.Process.Pid, &process{pid: 1, pidfd: endedFD}, self, true},
		"a child's child":              {os.Getpid(), parent, &process{pid: -1}, true},
		"another's child":              {os.Getpid(), self, self, false},
		"a child of another's number":  {os.Getpid(), &process{pid: os.Getppid(), pidfd: endedFD}, &process{pid: -1}, false},
		"a number that nobody has now": {ended.Process.Pid, &process{pid: 1, pidfd: -1}, self, false},
	} {
		visited := false
		newTree(0).lookAt(row.pid, row.parent, row.self, func(p *process) { visited = visited || p.pid == row.pid })
		require.Equal(t, row.visited, visited, name)
	}
}

// A process moves up to the guardian during its first look, when the list of the guardian's
// children has been read. It is visited like all others, once.
func TestTree_ScannedTwice_ParentEndsMeanwhile_ItsChildIsVisited(t *testing.T) {
	runtime.LockOSThread() // the kernel lists the children of a thread in the order of their start
	defer runtime.UnlockOSThread()
	require.True(t, becomeSubreaper())
	defer func() { _ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0) }()
	first := exec.Command("sleep", "1000")
	require.NoError(t, first.Start())
	defer func() { _, _ = first.Process.Kill(), first.Wait() }()
	parent := exec.Command("sh", "-c", "sleep 1000 & echo $!; wait")
	out, err := parent.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, parent.Start())
	var child int
	_, err = fmt.Fscan(out, &child)
	require.NoError(t, err)
	defer func() { _, _ = unix.Kill(child, unix.SIGKILL), parent.Wait() }()

	visits, tree := map[int]int{}, newTree(0)
	tree.lookTwice(func(p *process) {
		if visits[p.pid]++; p.pid != first.Process.Pid {
			return
		}
		require.NoError(t, parent.Process.Kill())
		var moved process
		for moved.parent != os.Getpid() {
			require.True(t, moved.parse(tree.read(fmt.Sprintf("/proc/%d/stat", child))))
		}
	})
	require.Equal(t, 1, visits[first.Process.Pid])
	require.Zero(t, visits[parent.Process.Pid], "it ended before its turn")
	require.Equal(t, 1, visits[child])
	require.NoError(t, unix.Kill(child, unix.SIGKILL))
	_, err = unix.Wait4(child, nil, unix.WALL, nil)
	require.NoError(t, err)
}

// The guardian starts its threads before the command: at the limit of processes it could start
// none. Eight, and three that Go starts beside those. (On a busy machine Go may have started as
// many without, so a mistake shows in most of the rounds only.)
func TestOutlives_GuardianHasItsThreads(t *testing.T) {
	for range 5 {
		p := newLocker(t).run(t, nil, "--", "sh", "-c", "echo ready; sleep 1000; true")
		p.Prints("ready")
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", guardianOf(t, p)))
		require.NoError(t, err)
		require.GreaterOrEqual(t, len(threads), 11)
	}
}

// The last of two hundred processes acts when the first one dies. It does not get to it: all are
// stopped before one is killed. (A busy machine may let it die first in any order, so a mistake
// shows in some of the rounds only.)
func TestOutlives_NobodyActsOnTheDeathOfAnother(t *testing.T) {
	for range 5 {
		l, dir := newLocker(t), openDir(t)
		p := l.run(t, nil, "--", "bash", "-c", `cd "$0"; mkfifo pipe; setsid sleep 1000 >pipe &
			for ((i = 0; i < 200; i++)); do sleep 1000 & done
			setsid sh -c 'exec <pipe; echo >>reads; read line; echo >>acted' & wait`, dir)
		t.Cleanup(func() { killCensus(l.path) })
		proctest.Eventually(t, "it reads", func() bool { _, err := os.Stat(filepath.Join(dir, "reads")); return err == nil })
		p.Signal(syscall.SIGKILL)
		proctest.Eventually(t, "all have ended", func() bool { return len(census(l.path)) == 0 })
		require.NoFileExists(t, filepath.Join(dir, "acted"))
	}
}

// A command may unmount the /proc that zklock began with. What has left its group cannot be found
// then. The lock is held as long as that runs.
func TestOutlives_ProcUnmountedByTheCommand_LockIsHeldForTheRest(t *testing.T) {
	l := newLocker(t)
	p := l.run(t, namespaced(t, "--mount"), "--", "sh", "-c",
		`setsid sleep 1000 & umount -l /proc && echo unmounted`)
	t.Cleanup(func() { killCensus(l.path) })
	p.Prints("unmounted")
	require.Never(t, func() bool { return l.queued() == 0 }, time.Second, 50*time.Millisecond)
	killCensus(l.path)
	require.Zero(t, p.Wait())
}

// A command may unmount the /proc that zklock began with. Its group is ended all the same.
func TestOutlives_ProcUnmountedByTheCommand_GroupIsEnded(t *testing.T) {
	l := newLocker(t)
	p := l.run(t, namespaced(t, "--mount"), "--", "sh", "-c",
		`sleep 1000 & umount -l /proc && echo unmounted; sleep 1000; true`)
	t.Cleanup(func() { killCensus(l.path) })
	p.Prints("unmounted")
	p.Signal(syscall.SIGKILL)
	release := l.occupy(t)
	require.Empty(t, census(l.path), "this ran beside the next holder")
	release()
}

// Nobody but another user's process itself can end it. When zklock is what is left to look after
// it, it holds the lock as the guardian would.
func TestOutlives_GuardianKilled_LockIsHeldUntilAnotherUsersProcessHasEnded(t *testing.T) {
	l := newLocker(t)
	change := limited(t, 1000)
	setpriv, err := exec.LookPath("setpriv")
	require.NoError(t, err)
	program, err := os.ReadFile(setpriv)
	require.NoError(t, err)
	asRoot := filepath.Join(openDir(t), "as-root")
	require.NoError(t, os.WriteFile(asRoot, program, 0o700))
	require.NoError(t, os.Chmod(asRoot, 0o755|os.ModeSetuid))
	p := l.run(t, change, "--", "sh", "-c",
		asRoot+` --reuid 0 --regid 0 --clear-groups sh -c 'echo ready; sleep 1000' & sleep 1000; true`)
	t.Cleanup(func() { killCensus(l.path) })
	p.Prints("ready")
	require.NoError(t, syscall.Kill(guardianOf(t, p), syscall.SIGKILL))
	proctest.Eventually(t, "only the other user's runs", func() bool { return len(census(l.path)) == 2 })
	require.Never(t, func() bool { return l.queued() == 0 }, 7*time.Second, 100*time.Millisecond)
	killCensus(l.path)
	require.Equal(t, ExitFailed, p.Wait())
}

// To wait for what the command left running may take days, and costs next to nothing.
func TestLeftovers_Wait_GuardianNapsLong(t *testing.T) {
	g := &guardian{exited: true, going: true, lim: limits{Term: Now().Add(time.Hour), Kill: Now().Add(time.Hour)}}
	g.start.Leftovers = WaitFor
	require.Equal(t, 250*time.Millisecond, g.nap())
	g.ending = true
	require.Equal(t, 10*time.Millisecond, g.nap())
}

// A second SIGINT kills also what has left the command's group, and ignores SIGTERM.
func TestRun_SecondSIGINT_KillsWhatLeftTheGroup(t *testing.T) {
	l := newLocker(t)
	p := l.run(t, nil, "--timeout", "30s", "--kill-after", "10s", "--", "bash", "-c",
		`trap "echo one" INT; setsid sh -c 'trap "" TERM INT; echo ready; while :; do sleep 0.05; done' & while :; do sleep 0.02; done`)
	p.Prints("ready")
	p.Signal(syscall.SIGINT)
	p.Prints("one")
	time.Sleep(2 * repeatWithin) // sooner, it would be the same one
	began := time.Now()
	p.Signal(syscall.SIGINT)
	require.Equal(t, 130, p.Wait())
	require.Less(t, time.Since(began), wellBefore)
	require.Zero(t, l.queued(), "released")
}
