//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package command

// Which of several runs on a host writes a --metrics-file.

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// locksBeside reports whether runs can lock the file.
const locksBeside = true

// lockBeside locks the side file of a metrics file until the returned file is closed or the process
// ends. It returns nil if another run has it. The side file stays: if it were removed, two runs
// could each lock one of that name. A file system without locks has none.
func lockBeside(name string) (*os.File, error) {
	side := besideName(name, "lock")
	// The file may be another user's. Opening a pipe without a writer would block.
	f, err := os.OpenFile(side, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		if f, err = os.OpenFile(side, os.O_RDONLY|os.O_CREATE, 0o644); err == nil {
			_ = f.Chmod(0o644) // whatever the umask is
		}
	}
	if err != nil {
		return nil, err
	}
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		_ = f.Close()
		return nil, cmp.Or(err, fmt.Errorf("%s is not a regular file: remove it", side))
	}
	for {
		switch err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); {
		case errors.Is(err, syscall.EINTR):
		case errors.Is(err, syscall.EWOULDBLOCK):
			_ = f.Close()
			return nil, nil
		default:
			return f, nil
		}
	}
}

// besides creates a file that is about to replace another, under the lock. It removes the file of a
// zklock that was killed.
func besides(name string) (*os.File, error) {
	next := besideName(name, "tmp")
	if err := os.Remove(next); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return os.OpenFile(next, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
}
