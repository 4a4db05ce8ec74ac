//go:build linux || darwin

package sessionfile

// These tests attack open_unix.go and sessionfile.go: the lock, and what may be read and written.

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock/internal/fscall"
	"github.com/zklock/zklock/internal/sessionkey"
)

var servers = []string{"zk1:2181", "zk2:2181"}

func mustOpen(t *testing.T, path string, servers ...string) (*File, Found) {
	t.Helper()
	f, found, err := Open(t.Context(), path, servers)
	require.NoError(t, err)
	t.Cleanup(func() { _ = f.Close() })
	return f, found
}

// crash unlocks the file as the end of a process does, without a last write.
func crash(f *File) {
	f.disk.Lock()
	defer f.disk.Unlock()
	f.disk.released = true
	_ = f.close()
}

func at(t *testing.T) string { return filepath.Join(t.TempDir(), "zk.session") }

func TestFile_KeepsSessionsUntilTheyAreRemoved(t *testing.T) {
	path := at(t)
	f, found := mustOpen(t, path, servers...)
	require.Empty(t, found)
	for _, k := range keys(3) {
		require.NoError(t, f.Add(k))
	}
	require.NoError(t, f.Remove(-2))
	require.NoError(t, f.Remove(7), "it is not there")
	crash(f)
	f, found = mustOpen(t, path, servers...)
	require.Equal(t, Found{Sessions: []sessionkey.Key{key(-1), key(-3)}}, found)

	require.NoError(t, f.Add(key(-4)))
	require.NoError(t, f.Close())
	require.NoError(t, f.Close())
	require.NoError(t, f.Add(key(-5)), "ignored")
	f, found = mustOpen(t, path, servers...)
	require.Equal(t, []sessionkey.Key{key(-1), key(-3), key(-4)}, found.Sessions, "Close removes no session")
	for _, k := range keys(maxSessions + 1) {
		require.NoError(t, f.Add(k))
	}
	crash(f)
	_, found = mustOpen(t, path, servers...)
	require.Equal(t, keys(maxSessions + 1)[1:], found.Sessions)
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.EqualValues(t, size, info.Size())
	require.Equal(t, os.FileMode(0o600), info.Mode())
}

// The file is locked by one File at a time, and Open waits for it.
func TestOpen_InUse(t *testing.T) {
	path := at(t)
	f, _ := mustOpen(t, path, servers...)
	require.NoError(t, f.Add(key(-1)))
	began := time.Now()
	_, _, err := Open(t.Context(), path, servers)
	require.ErrorIs(t, err, ErrInUse)
	require.GreaterOrEqual(t, time.Since(began), Patience)

	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, _, err = Open(ctx, path, servers)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NotErrorIs(t, err, ErrInUse, "a longer wait might have found it free")

	freed := make(chan struct{})
	time.AfterFunc(Patience/4, func() { crash(f); close(freed) })
	_, found := mustOpen(t, path, servers...)
	<-freed
	require.Len(t, found.Sessions, 1)
}

// A path that names another file by now is tried again, so that two processes never lock two files
// under one name.
func TestOpen_PathNamesAnotherFile(t *testing.T) {
	path := at(t)
	f, _ := mustOpen(t, path, servers...)
	require.NoError(t, f.Add(key(-1)))
	require.NoError(t, os.Rename(path, path+".old"))
	mustOpen(t, path, servers...)
	_, _, err := Open(t.Context(), path+".old", servers)
	require.ErrorIs(t, err, ErrInUse)
	crash(f)
	_, found := mustOpen(t, path+".old", servers...)
	require.Len(t, found.Sessions, 1, "a file that was moved in its file system is the same file")

	file, err := os.Create(path + ".gone")
	require.NoError(t, err)
	defer file.Close()
	require.NoError(t, isAt(path+".gone", file))
	require.NoError(t, os.Rename(path+".old", path+".gone"))
	require.ErrorIs(t, isAt(path+".gone", file), ErrInUse)
	require.NoError(t, os.Remove(path+".gone"))
	require.ErrorIs(t, isAt(path+".gone", file), ErrInUse)
}

// A copy has another inode, so it never shows the sessions of the process that has the original.
func TestOpen_Copy(t *testing.T) {
	path := at(t)
	f, _ := mustOpen(t, path, servers...)
	require.NoError(t, f.Add(key(-1)))
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path+".copy", b, 0o600))
	require.NoError(t, os.Rename(path+".copy", path))
	_, found := mustOpen(t, path, servers...)
	require.Empty(t, found.Sessions)
	require.Contains(t, found.Ignored, "copy")
}

func TestOpen_OtherServers(t *testing.T) {
	path := at(t)
	f, _ := mustOpen(t, path, servers...)
	require.NoError(t, f.Add(key(-1)))
	crash(f)
	f, found := mustOpen(t, path, "zk0:2181", "zk2:2181")
	require.Len(t, found.Sessions, 1, "one common server is enough")
	crash(f)
	_, found = mustOpen(t, path, "zk9:2181")
	require.Empty(t, found.Sessions)
	require.Contains(t, found.Ignored, "other servers")
}

// A file that is not suitable is an error that names the reason, and it is not changed.
func TestOpen_Unsuitable(t *testing.T) {
	for want, prepare := range map[string]func(path string) error{
		"0600 or 0660":    func(p string) error { return os.WriteFile(p, nil, 0o644) },
		"mode is -rw-rwx": func(p string) error { return errors.Join(os.WriteFile(p, nil, 0o600), os.Chmod(p, 0o670)) },
		"no session file": func(p string) error { return os.WriteFile(p, []byte("-----BEGIN PRIVATE KEY-----"), 0o600) },
		"hard links": func(p string) error {
			return errors.Join(os.WriteFile(p, nil, 0o600), os.Link(p, p+"2"))
		},
		"symbolic link": func(p string) error { return errors.Join(os.WriteFile(p+"2", nil, 0o600), os.Symlink(p+"2", p)) },
		"directory":     func(p string) error { return os.Mkdir(p, 0o700) },
		"regular":       func(p string) error { return syscall.Mkfifo(p, 0o600) },
		"no such file":  func(p string) error { return os.Remove(filepath.Dir(p)) },
	} {
		t.Run(want, func(t *testing.T) {
			path := at(t)
			require.NoError(t, prepare(path))
			_, _, err := Open(t.Context(), path, servers)
			text := strings.ReplaceAll(err.Error(), syscall.ELOOP.Error(), "symbolic link")
			require.ErrorContains(t, errors.New(text), want)
			if want == "no session file" {
				b, err := os.ReadFile(path)
				require.NoError(t, err)
				require.Equal(t, "-----BEGIN PRIVATE KEY-----", string(b))
			}
		})
	}
}

// Kubernetes gives the files of a volume to the fsGroup of the Pod whenever it mounts the volume,
// also those that exist.
func TestOpen_ModeOfAnFSGroup(t *testing.T) {
	for _, perm := range []os.FileMode{0o660, 0o640, 0o620} {
		path := at(t)
		f, found := mustOpen(t, path, servers...)
		require.False(t, found.GroupHasAccess)
		require.NoError(t, f.Add(key(-1)))
		require.NoError(t, os.Chmod(path, perm))
		crash(f)
		_, found = mustOpen(t, path, servers...)
		require.Len(t, found.Sessions, 1)
		require.True(t, found.GroupHasAccess)
	}
}

// A file whose blocks the file system has lost begins again.
func TestOpen_Empty(t *testing.T) {
	for _, b := range [][]byte{nil, make([]byte, size), []byte("zklock session file 1\nboot"), []byte("zklock session file 2\n")} {
		path := at(t)
		require.NoError(t, os.WriteFile(path, b, 0o600))
		f, found := mustOpen(t, path, servers...)
		require.Empty(t, found.Sessions)
		require.NoError(t, f.Add(key(-1)))
		crash(f)
		_, found = mustOpen(t, path, servers...)
		require.Len(t, found.Sessions, 1)
	}
}

// A write that fails, or that hangs, is reported. The next one writes everything.
func TestFile_WriteFailsOrHangs(t *testing.T) {
	path := at(t)
	f, _ := mustOpen(t, path, servers...)
	write, goOn := f.write, make(chan struct{})
	f.write = func([]byte) error { return syscall.ENOSPC }
	require.ErrorIs(t, f.Add(key(-1)), syscall.ENOSPC)
	f.disk.Lock()
	f.write = func(b []byte) error { <-goOn; return write(b) }
	f.disk.Unlock()
	began := time.Now()
	require.ErrorIs(t, f.Add(key(-2)), fscall.ErrSlow)
	require.ErrorIs(t, f.Remove(-2), fscall.ErrSlow)
	require.ErrorIs(t, f.Close(), fscall.ErrSlow)
	require.Less(t, time.Since(began), 4*time.Second)
	close(goOn)
	_, found := mustOpen(t, path, servers...)
	require.Equal(t, []sessionkey.Key{key(-1)}, found.Sessions)
}

// A file system that hangs keeps the thread of one call, however often the file is opened. If the
// file was in use before, that is the error.
func TestOpen_FileSystemHangs_OneCall(t *testing.T) {
	var calls atomic.Int32
	responds, path := make(chan struct{}), at(t)
	defer close(responds)
	hangs := func() (attempt, error) {
		calls.Add(1)
		<-responds
		return attempt{}, errors.New("it responds")
	}
	for range 20 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		_, err := openWhenFree(ctx, path, hangs)
		cancel()
		require.ErrorIs(t, err, context.DeadlineExceeded)
	}
	began := time.Now()
	_, err := openWhenFree(t.Context(), path, hangs)
	require.ErrorIs(t, err, fscall.ErrSlow)
	require.GreaterOrEqual(t, time.Since(began), Patience)
	require.EqualValues(t, 1, calls.Load())

	_, err = openWhenFree(t.Context(), path+"2", func() (attempt, error) {
		if calls.Add(1) == 2 {
			return attempt{}, ErrInUse
		}
		return hangs()
	})
	require.ErrorIs(t, err, ErrInUse)
}
