package guard

// These tests attack the socket: it belongs to another user, its queue is full, or its file system
// does not respond.

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// listenRaw binds a socket, and listens as another user if uid is not 0, with room for one
// connection that is not accepted.
func listenRaw(t *testing.T, path string, uid int) *net.UnixListener {
	t.Helper()
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	require.NoError(t, err)
	require.NoError(t, unix.Bind(fd, &unix.SockaddrUnix{Name: path}))
	listened := make(chan error)
	go func() {
		runtime.LockOSThread() // and the thread ends with the goroutine, so nothing else has its user
		if _, _, errno := syscall.RawSyscall(syscall.SYS_SETRESUID, uintptr(uid), uintptr(uid), uintptr(uid)); uid != 0 && errno != 0 {
			listened <- errno
			return
		}
		listened <- unix.Listen(fd, 0)
	}()
	require.NoError(t, <-listened)
	f := os.NewFile(uintptr(fd), path)
	l, err := net.FileListener(f)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	t.Cleanup(func() { _ = l.Close() })
	return l.(*net.UnixListener)
}

// Another user who listens at the path gets no session.
func TestClient_AnotherUserListens_IsRejected(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can listen as another user")
	}
	path := filepath.Join(t.TempDir(), "sock")
	l := listenRaw(t, path, 65534)
	c, reports := open(t, path)
	c.Opened(key(1))
	require.ErrorContains(t, <-reports, "user 65534 listens there, and this process is user 0")
	conn := accept(t, l)
	defer c.Close()
	sent, err := io.ReadAll(conn)
	require.NoError(t, err)
	require.Empty(t, sent)
}

// The queue of the socket is full, as that of a guard that is stopped while many processes start.
// The kernel rejects the connection, and the client tries again.
func TestClient_SocketIsFull_ConnectsLater(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sock")
	l := listenRaw(t, path, 0)
	first, err := net.Dial("unix", path)
	require.NoError(t, err)
	defer first.Close()
	began := time.Now()
	c, reports := open(t, path)
	defer c.Close()
	require.ErrorIs(t, <-reports, syscall.EAGAIN)
	c.Opened(key(1))
	require.Less(t, time.Since(began), retry)
	accept(t, l)
	conn := accept(t, l)
	_, err = io.WriteString(conn, Welcome)
	require.NoError(t, err)
	require.NoError(t, <-reports)
}

// The file system of the path does not respond, so the kernel keeps the thread that connects: one,
// for all Sessions of the process. Close does not wait for it.
func TestClient_FileSystemHangs_DelaysNobody(t *testing.T) {
	dir, release := hangingFileSystem(t)
	before := runtime.NumGoroutine()
	for range 10 {
		began := time.Now()
		c, reports := open(t, filepath.Join(dir, "sock"))
		c.Opened(key(1))
		c.Over(1)
		require.Less(t, time.Since(began), retry)
		began = time.Now()
		c.Close()
		require.Less(t, time.Since(began), retry)
		require.Empty(t, reports)
	}
	for until := time.Now().Add(patience); runtime.NumGoroutine() > before+1; time.Sleep(time.Millisecond) {
		require.True(t, time.Now().Before(until), "more than one call hangs")
	}
	release()
}

// That is reported as any other reason why no guard is connected.
func TestClient_FileSystemHangs_IsReported(t *testing.T) {
	dir, release := hangingFileSystem(t)
	c, reports := open(t, filepath.Join(dir, "sock"))
	select {
	case err := <-reports:
		require.ErrorContains(t, err, "the file system does not respond")
	case <-time.After(patience):
		t.Error("it is not reported")
	}
	c.Close()
	release()
}

// hangingFileSystem mounts a file system whose program responds to nothing until release is called.
func hangingFileSystem(t *testing.T) (dir string, release func()) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can mount a file system")
	}
	fuse, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Skip("FUSE is missing:", err)
	}
	dir = t.TempDir()
	err = unix.Mount("fuse", dir, "fuse", 0, fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", fuse))
	if err != nil {
		_ = unix.Close(fuse)
		t.Skip("nothing can be mounted:", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	return dir, func() { require.NoError(t, unix.Close(fuse)) }
}
