package command

// These tests attack the socket of a guard: the guard that gets it, and the users that can reach it
// or delay a guard.

import (
	"crypto/rand"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// Guards that start at the same time, at the socket of one that was killed: one of them listens.
func TestListenAt_SeveralAtOnce_OneListens(t *testing.T) {
	const guards = 4
	for range 200 {
		path := socketIn(t)
		killed, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
		require.NoError(t, err)
		killed.SetUnlinkOnClose(false)
		require.NoError(t, killed.Close())
		results := make(chan error, guards)
		found := make(chan *net.UnixListener, guards)
		for range guards {
			go func() {
				l, err := listenAt(path)
				if err == nil {
					found <- l
				}
				results <- err
			}()
		}
		for range guards {
			if err := <-results; err != nil {
				require.ErrorContains(t, err, "another guard listens there")
			}
		}
		require.Len(t, found, 1)
		require.NoError(t, (<-found).Close())
	}
}

func TestGuard_SecondGuardAtASocket_IsRejected(t *testing.T) {
	t.Parallel()
	socket := socketIn(t)
	guardAt(t, socket)
	p := start(t, nil, "guard", "--listen", socket)
	require.Equal(t, exitUsage, p.wait())
	require.Contains(t, p.stderr.String(), "another guard listens there")

	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, []byte("mine"), 0o600))
	p = start(t, nil, "guard", "--listen", file)
	require.Equal(t, exitUsage, p.wait())
	require.FileExists(t, file, "a file of somebody is not removed")
}

// A guard whose socket was removed does not remove the socket of its successor.
func TestGuard_Ends_SocketOfItsSuccessorStays(t *testing.T) {
	t.Parallel()
	socket := socketIn(t)
	first := guardAt(t, socket)
	require.NoError(t, os.Remove(socket))
	guardAt(t, socket)
	first.signal(syscall.SIGTERM)
	require.Equal(t, exitSignal+int(syscall.SIGTERM), first.wait())
	conn, err := net.Dial("unix", socket)
	require.NoError(t, err)
	require.NoError(t, conn.Close())
}

// A guard without free descriptors names the limit: each of two connections takes another number of
// them.
func TestGuard_TooManyOpenFiles_NamesTheLimit(t *testing.T) {
	t.Parallel()
	for _, limit := range []string{"20", "21"} {
		socket := socketIn(t)
		guard := start(t, func(c *exec.Cmd) {
			c.Args = append([]string{"sh", "-c", `ulimit -n "$0"; exec "$@"`, limit, binary(t)}, c.Args[1:]...)
			c.Path = "/bin/sh"
		}, "guard", "--listen", socket)
		guard.prints("listening at")
		for range 20 {
			conn, err := net.Dial("unix", socket)
			require.NoError(t, err)
			t.Cleanup(func() { _ = conn.Close() })
		}
		guard.prints("too many open files: each Session needs two: raise the guard's limit")
		require.NotContains(t, guard.stderr.String(), "PID namespace")
	}
}

// The socket is the user's alone.
func TestGuard_SocketIsPrivate(t *testing.T) {
	t.Parallel()
	socket := socketIn(t)
	guardAt(t, socket)
	info, err := os.Stat(socket)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
}

// Another process has locked everything that every user may lock. The guard listens all the same,
// and ends at a signal.
func TestGuard_DirectoryIsLocked_Listens(t *testing.T) {
	t.Parallel()
	socket := socketIn(t)
	flock(t, filepath.Dir(socket))
	guard := guardAt(t, socket)
	guard.signal(syscall.SIGTERM)
	require.Equal(t, exitSignal+int(syscall.SIGTERM), guard.wait())
	guardAt(t, socket) // the lock file of the first does no harm
	info, err := os.Stat(socket + ".lock")
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode())
}

// A guard that cannot lock its file ends at once.
func TestListenAt_LockFileIsNotFree_Error(t *testing.T) {
	for want, prepare := range map[string]func(lock string){
		"another guard listens there, or is about to": func(lock string) {
			require.NoError(t, os.WriteFile(lock, nil, 0o600))
			flock(t, lock)
		},
		syscall.ELOOP.Error(): func(lock string) { require.NoError(t, os.Symlink("elsewhere", lock)) },
	} {
		socket := socketIn(t)
		prepare(socket + ".lock")
		_, err := listenAt(socket)
		require.ErrorContains(t, err, want)
		require.NoFileExists(t, filepath.Join(filepath.Dir(socket), "elsewhere"))
	}
	socket := socketIn(t)
	require.NoError(t, syscall.Mkfifo(socket+".lock", 0o600))
	l, err := listenAt(socket) // and does not wait for a writer
	require.NoError(t, err)
	require.NoError(t, l.Close())
}

// A socket without a file needs no directory.
func TestListenAt_AbstractName(t *testing.T) {
	t.Chdir(t.TempDir())
	flock(t, ".")
	name := "@zklock-" + rand.Text()
	l, err := listenAt(name)
	require.NoError(t, err)
	defer l.Close()
	require.NoFileExists(t, name+".lock")
	_, err = listenAt(name)
	require.ErrorContains(t, err, "another guard listens there")
}

// flock locks a file or directory until the end of the test.
func flock(t *testing.T, path string) {
	t.Helper()
	f, err := os.Open(path)
	require.NoError(t, err)
	t.Cleanup(func() { _ = f.Close() })
	require.NoError(t, unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB))
}
