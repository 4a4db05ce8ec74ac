package command

// With a terminal: a pseudo-terminal whose keyboard and screen are the test's.

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/zklock/zklock/internal/zkserver"
)

// screen is the test's side of a terminal.
type screen struct {
	t      *testing.T
	master *os.File
	tty    *os.File
	shown  buffer
	seen   int // up to where expect has looked
}

// onTerminal starts the command line as the leader of a session with a terminal.
func onTerminal(t *testing.T, name string, args ...string) (*screen, *exec.Cmd) {
	t.Helper()
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	require.NoError(t, err)
	master := os.NewFile(uintptr(fd), "ptmx") // not blocking, so that Close ends a Read
	require.NoError(t, unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	require.NoError(t, err)
	tty, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)

	s := &screen{t: t, master: master, tty: tty}
	cmd := exec.Command(name, args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = tty, tty, tty
	cmd.Env = append(os.Environ(), "ZKLOCK_SERVERS=", "ZKLOCK_AUTH=", "ZKLOCK_SASL=", "PS1=$ ", "TERM=dumb", "BASH_SILENCE_DEPRECATION_WARNING=1", "HISTFILE=")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	require.NoError(t, cmd.Start())
	go func() {
		b := make([]byte, 4096)
		for {
			n, err := master.Read(b)
			if err != nil {
				return
			}
			_, _ = s.shown.Write(b[:n])
		}
	}()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("screen:\n%s", &s.shown)
			stty := exec.Command("stty", "-a")
			stty.Stdin = tty
			modes, _ := stty.Output()
			ps, _ := exec.Command("ps", "-t", strings.TrimPrefix(tty.Name(), "/dev/"), "-o", "pid,ppid,pgid,tpgid,stat,args").Output()
			t.Logf("terminal:\n%s%s", modes, ps)
		}
		_ = cmd.Process.Kill()
		_, _ = cmd.Process.Wait()
		_ = tty.Close()
		_ = master.Close()
	})
	return s, cmd
}

func (s *screen) typ(keys string) {
	s.t.Helper()
	_, err := s.master.WriteString(keys)
	require.NoError(s.t, err)
}

// expect waits until the text is shown, after what was expected before.
func (s *screen) expect(text string) {
	s.t.Helper()
	eventually(s.t, fmt.Sprintf("the screen shows %q", text), func() bool {
		all := s.shown.String()
		i := strings.Index(all[s.seen:], text)
		if i < 0 {
			return false
		}
		s.seen += i + len(text)
		return true
	})
}

// exitOf waits for the process's end and returns its exit code, as a shell gives it.
func exitOf(t *testing.T, cmd *exec.Cmd) int {
	t.Helper()
	done := make(chan struct{})
	go func() { _ = cmd.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(patience):
		require.FailNow(t, "the process does not end")
	}
	if ws := cmd.ProcessState.Sys().(syscall.WaitStatus); ws.Signaled() {
		return exitCodeOf(ws.Signal())
	}
	return cmd.ProcessState.ExitCode()
}

const (
	ctrlC = "\x03"
	ctrlZ = "\x1a"
)

func TestTerminal_CtrlCWhileWaiting(t *testing.T) {
	srv, path := server(t), lockPath(t)
	occupy(t, session(t, srv), path)
	s, cmd := onTerminal(t, "bash", append([]string{"-c", `"$@"; echo next`, "bash", binary(t)}, runArgs(srv.ConnectString(), path, "--", "echo", "ran")...)...)
	s.expect("waiting")
	s.typ(ctrlC)
	require.Equal(t, 130, exitOf(t, cmd))
	require.NotContains(t, s.shown.String(), "next")
	require.NotContains(t, s.shown.String(), "\x1b", "TERM=dumb")
}

// On a terminal that is narrower than what there is to say, the line of the wait takes one row, and
// is gone when COMMAND writes.
func TestTerminal_Waiting_LineIsGoneWhenTheCommandWrites(t *testing.T) {
	srv, path := server(t), lockPath(t)
	_, release := occupy(t, session(t, srv), path)
	s, cmd := onTerminal(t, "sh", append([]string{"-c", `stty cols 120; TERM=xterm exec "$@"`, "sh", binary(t)}, runArgs(srv.ConnectString(), path, "--", "echo", "ran")...)...)
	s.expect("waiting: number 2 of 2; held by")
	s.expect("…")
	require.Len(t, shownBy(t, s.shown.String(), 120), 1)
	release()
	require.Equal(t, 0, exitOf(t, cmd))
	s.expect("ran\r\n")
	shown := shownBy(t, s.shown.String(), 120)
	require.True(t, strings.HasPrefix(shown[0], "zklock: "+path+": acquired, token "), shown)
	require.Equal(t, []string{"ran", ""}, shown[len(shown)-2:])
	require.NotContains(t, strings.Join(shown, ""), "waiting")
}

// A wait in the background says whole lines: what it wrote over would be the shell's.
func TestTerminal_WaitingInTheBackground_WritesNothingOver(t *testing.T) {
	srv, path := server(t), lockPath(t)
	_, release := occupy(t, session(t, srv), path)
	s, _ := shell(t, srv)
	s.typ("TERM=xterm $ZK " + path + " -- echo ran &\n")
	s.expect("waiting: number 2 of 2")
	s.expect("\r\n")
	release()
	s.expect("ran")
	require.NotContains(t, s.shown.String(), "\x1b")
}

// shell starts an interactive shell, in which $ZK is the start of a `zklock run`.
func shell(t *testing.T, srv *zkserver.Server) (*screen, *exec.Cmd) {
	t.Helper()
	bash, err := exec.LookPath("bash")
	if err != nil && !zkserver.Required() {
		t.Skip("no bash here")
	}
	require.NoError(t, err)
	s, cmd := onTerminal(t, bash, "--norc", "--noprofile", "--noediting", "-i")
	s.expect("$ ")
	s.typ(fmt.Sprintf("ZK='%s run -s %s --session-timeout %s --lease single --kill-after 500ms'; stty -echo; echo s''et\n", binary(t), srv.ConnectString(), sessionTimeout))
	s.expect("set\r\n")
	return s, cmd
}

func TestTerminal_CommandStopped_ReportsHowLongTheLockLives(t *testing.T) {
	srv, path := server(t), lockPath(t)
	s, _ := shell(t, srv)
	s.typ("$ZK " + path + " -- sh -c 'echo ready; read x'\n")
	s.expect("ready")
	s.typ(ctrlZ)
	s.expect("suspended: the lock is lost unless it is resumed within")
	s.expect("Stopped")
}

// The command ends by itself when the lock is lost, and leaves the terminal as it is. The next step
// of the script, and no shell, needs it as it was.
func TestTerminal_LostLock_IsAsItWas(t *testing.T) {
	srv, path := server(t), lockPath(t)
	s, _ := shell(t, srv)
	s.typ(`bash -c "$ZK ` + path + ` -- bash -c 'trap \"exit 0\" TERM; stty raw; echo ready; while :; do sleep 0.05; done'; echo code \$?; cat"` + "\n")
	s.expect("ready")
	c := session(t, srv)
	deleteNode(t, c, participants(t, c, path)[0].Node)
	s.expect("lost the lock")
	s.expect(fmt.Sprint("code ", exitLost))
	s.typ("go\n")
	s.expect("go")
	s.typ(ctrlC) // a signal only in cooked mode, and to the foreground
	s.expect("$ ")
	s.typ("echo code $?\n")
	s.expect("code 130")
}

// Each term of a leader has the terminal, as its command would without zklock. (The command ends
// with an exec: dash 0.5.12 loses a SIGINT that comes between the vfork and the exec of a command
// that it waits for.)
func TestTerminal_Elect_NextTermHasItAgain(t *testing.T) {
	srv, path := server(t), lockPath(t)
	s, _ := shell(t, srv)
	c := session(t, srv)
	s.typ("$ZK --elect " + path + " -- sh -c 'echo ready; read x; echo got-$x; exec sleep 1000'\n")
	s.expect("ready")
	s.typ("one\n")
	s.expect("got-one")
	deleteNode(t, c, participants(t, c, path)[0].Node)
	s.expect("campaigning again")
	s.expect("ready")
	s.typ("two\n")
	s.expect("got-two")
	s.typ(ctrlC) // to the command's group, which is in the foreground
	s.expect("$ ")
	s.typ("echo code $?\n")
	s.expect("code 130")
}
