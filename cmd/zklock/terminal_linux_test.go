package main

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
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	require.NoError(t, err)
	require.NoError(t, unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	require.NoError(t, err)
	tty, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)

	s := &screen{t: t, master: master, tty: tty}
	cmd := exec.Command(name, args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = tty, tty, tty
	cmd.Env = append(os.Environ(), "ZKLOCK_SERVERS=", "ZKLOCK_AUTH=", "PS1=$ ", "TERM=dumb", "BASH_SILENCE_DEPRECATION_WARNING=1", "HISTFILE=")
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

// exit waits for the process's end and returns its exit code.
func exitOf(t *testing.T, cmd *exec.Cmd) int {
	t.Helper()
	done := make(chan struct{})
	go func() { _ = cmd.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(patience):
		require.FailNow(t, "the process does not end")
	}
	return cmd.ProcessState.ExitCode()
}

const (
	ctrlC = "\x03"
	ctrlZ = "\x1a"
)

func TestTerminal_CommandReadsAndGetsCtrlC(t *testing.T) {
	s, cmd := onTerminal(t, binary(t), runArgs(server(t).ConnectString(), lockPath(t), "--", "bash", "-c",
		`trap "echo caught; exit 7" INT
		 read x; echo "read <$x>"
		 ps -o stat= -p $$
		 while :; do sleep 0.05; done`)...)
	s.expect("acquired")
	s.typ("hello\n")
	s.expect("read <hello>")
	s.expect("+") // ps: in the foreground group
	s.typ(ctrlC)
	s.expect("caught")
	require.Equal(t, 7, exitOf(t, cmd))
}

func TestTerminal_CtrlCWhileWaiting(t *testing.T) {
	srv, path := server(t), lockPath(t)
	occupy(t, session(t, srv), path)
	s, cmd := onTerminal(t, binary(t), runArgs(srv.ConnectString(), path, "--", "echo", "ran")...)
	s.expect("waiting")
	s.typ(ctrlC)
	require.Equal(t, 130, exitOf(t, cmd))
}

// A terminal that was opened for zklock alone has no shell that could resume it.
func TestTerminal_CtrlZWithoutAShell_DoesNotHang(t *testing.T) {
	s, cmd := onTerminal(t, binary(t), runArgs(server(t).ConnectString(), lockPath(t), "--", "bash", "-c",
		`echo ready; read x; echo "read <$x>"`)...)
	s.expect("ready")
	s.typ(ctrlZ)
	s.typ("hello\n")
	s.expect("read <hello>")
	require.Equal(t, 0, exitOf(t, cmd))
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

func TestTerminal_JobControl(t *testing.T) {
	srv, path := server(t), lockPath(t)
	s, cmd := shell(t, srv)
	s.typ("$ZK " + path + ` -- bash -c 'echo ready; read x; echo "one <$x>"; read y; echo "two <$y>"; exit 9'` + "\n")
	s.expect("ready")
	s.typ("a\n")
	s.expect("one <a>")
	s.typ(ctrlZ)
	s.expect("suspended: the lock is lost unless it is resumed within")
	s.expect("Stopped")
	s.typ("echo shell is $((40+2))\n")
	s.expect("shell is 42")
	s.typ("fg\n")
	s.typ("b\n")
	s.expect("two <b>")
	s.typ("echo code $?\n")
	s.expect("code 9")

	// As an interactive shell's suspend does.
	s.typ("$ZK -q " + path + ` -- bash -c 'kill -STOP $$; read x; echo "again <$x>"'` + "\n")
	s.expect("Stopped")
	s.typ("fg\n")
	s.typ("d\n")
	s.expect("again <d>")

	// In the background the terminal stays the shell's; a command that reads waits for fg.
	s.typ("$ZK -q " + path + ` -- bash -c 'echo working; sleep 0.3; read x; echo "bg <$x>"' &` + "\n")
	s.expect("working")
	s.typ("echo shell is $((41+2))\n")
	s.expect("shell is 43")
	eventually(t, "the shell sees the job stopped", func() bool {
		s.typ("jobs\n")
		time.Sleep(20 * time.Millisecond)
		return strings.Contains(s.shown.String()[s.seen:], "Stopped")
	})
	s.typ("fg\n")
	s.typ("c\n")
	s.expect("bg <c>")
	s.typ("exit 0\n")
	require.Equal(t, 0, exitOf(t, cmd))
}

func TestTerminal_ShellHasItBackAfterAKilledCommand(t *testing.T) {
	srv, path := server(t), lockPath(t)
	s, _ := shell(t, srv)
	s.typ("$ZK " + path + ` -- bash -c 'stty raw -echo; echo ready; sleep 60'` + "\n")
	s.expect("ready")
	c := session(t, srv)
	deleteNode(t, c, participants(t, c, path)[0].Node)
	s.expect("lost the lock")
	s.typ("echo code $?\n")
	s.expect(fmt.Sprint("code ", exitLost))
	s.typ("cat\n")
	s.typ("go\n")
	s.expect("go")
	s.typ(ctrlC) // a signal only in cooked mode, and to the shell's foreground
	s.expect("$ ")
	s.typ("echo code $?\n")
	s.expect("code 130")
}

// The other end of a pipeline reads the keyboard: the terminal is its own until the command asks for it.
func TestTerminal_Pipeline(t *testing.T) {
	srv, path := server(t), lockPath(t)
	s, _ := shell(t, srv)
	s.typ("$ZK -q " + path + ` -- bash -c 'echo from below' | bash -c 'read l; read k </dev/tty; echo "pager <$l> <$k>"'` + "\n")
	s.typ("key\n")
	s.expect("pager <from below> <key>")

	s.typ("$ZK -q " + path + ` -- bash -c 'read k; echo "command <$k>"; read k' | cat` + "\n")
	s.typ("key\n")
	s.expect("command <key>")
	s.typ(ctrlC) // empties the keyboard's buffer, too
	s.expect("$ ")
	s.typ("echo code ${PIPESTATUS[0]}\n")
	s.expect("code 130")

	s.typ("$ZK -q " + path + ` -- bash -c 'trap "exit 130" INT; echo up; while :; do sleep 0.05; done' | cat` + "\n")
	s.expect("up")
	s.typ(ctrlC)
	s.expect("$ ")
	s.typ("echo code ${PIPESTATUS[0]}\n")
	s.expect("code 130")
}
