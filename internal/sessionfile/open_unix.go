//go:build linux || darwin

package sessionfile

// Opening and locking a session file.

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"
)

// opened has the fileID of each File that is open in this process. It shows that a Session lives
// although other code of the process has closed its descriptor, and with it the lock. After an exec
// it is empty.
var opened sync.Map

// open tries once to lock the file, and reads it. The error is ErrInUse if the owner lives, or if
// the path names another file by now.
func open(path string, servers []string) (f *File, found Found, err error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, found, err
	}
	defer func() {
		if err != nil {
			_ = file.Close()
		}
	}()
	id, perm, err := check(file)
	if err != nil {
		return nil, found, err
	}
	if err = flock(file); err != nil {
		return nil, found, err
	}
	if err = isAt(path, file); err != nil {
		return nil, found, err
	}
	if _, isOurs := opened.LoadOrStore(id, true); isOurs {
		return nil, found, fmt.Errorf("%w: another Session of this process has it, although it has lost the lock", ErrInUse)
	}
	defer func() {
		if err != nil {
			opened.Delete(id)
		}
	}()
	f = &File{head: header{boot: bootID(), file: id, servers: servers, owner: thisProcess()}}
	f.write = func(b []byte) error { _, err := file.WriteAt(b, 0); return err }
	f.close = func() error {
		opened.Delete(id)
		return file.Close()
	}
	f.dup = func() (*os.File, error) {
		n, err := syscall.Dup(int(file.Fd()))
		return os.NewFile(uintptr(n), path), err
	}
	b := make([]byte, size)
	n, err := file.ReadAt(b, 0)
	if err != nil && err != io.EOF {
		return nil, found, err
	}
	if found, err = f.read(b[:n]); err != nil {
		return nil, found, err
	}
	found.GroupHasAccess = perm&0o060 != 0
	for _, k := range found.Sessions {
		f.mu.sessions = append(f.mu.sessions, k.Hide())
	}
	return f, found, f.writeState()
}

// read decides which sessions of the file's former owner may be ended. The lock is free, which is
// the first proof that the owner is dead. The second is that its process does not exist. It is
// available if the owner's pid means the same here, and it counts: a program that closes
// descriptors that are not its own loses the lock while it lives.
func (f *File) read(b []byte) (found Found, err error) {
	if len(bytes.Trim(b, "\x00")) == 0 {
		return found, nil // new, or lost by a file system that was not synced
	}
	if !bytes.HasPrefix(b, []byte(magic)) {
		return found, errors.New("it exists and is no session file: give another path, or remove it")
	}
	h, sessions, torn, ok := parse(b)
	switch {
	case !ok:
		found.Ignored = "its header cannot be read"
	case h.mismatch(f.head) != "":
		if len(sessions) > 0 {
			found.Ignored = h.mismatch(f.head)
		}
	case h.owner.pid != f.head.owner.pid && h.owner.space == f.head.owner.space && lives(h.owner):
		return found, fmt.Errorf("%w: process %d lives, although it has lost the lock", ErrInUse, h.owner.pid)
	default:
		found.Sessions = sessions
		if torn > 0 {
			found.Ignored = fmt.Sprintf("%d of its lines are damaged", torn)
		}
	}
	return found, nil
}

// check returns the identity and mode of an open file, or why it is no place for a session file.
func check(file *os.File) (id fileID, perm os.FileMode, err error) {
	info, err := file.Stat()
	if err != nil {
		return id, 0, err
	}
	st := info.Sys().(*syscall.Stat_t)
	perm = info.Mode().Perm()
	switch {
	case !info.Mode().IsRegular():
		return id, 0, errors.New("it is no regular file")
	case int(st.Uid) != os.Geteuid():
		return id, 0, fmt.Errorf("it belongs to user %d, and this process is user %d", st.Uid, os.Geteuid())
	case st.Nlink > 1:
		return id, 0, errors.New("it has several names (hard links)")
	// A process that can read the file can lock it, and end the sessions. The group's access is the
	// owner's choice, or that of Kubernetes, which gives the files of a volume to the Pod's fsGroup,
	// with mode 0660.
	case perm&0o017 != 0:
		return id, 0, fmt.Errorf("its mode is %v; it must be 0600 or 0660, because a user that can read it can lock it", perm)
	}
	if err := checkFileSystem(file); err != nil {
		return id, 0, err
	}
	return fileID{uint64(st.Dev), st.Ino}, perm, nil
}

func flock(file *os.File) error {
	err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err == syscall.EWOULDBLOCK {
		return ErrInUse
	}
	return err
}

// isAt reports whether the path still names the locked file. Otherwise the lock protects nothing.
func isAt(path string, file *os.File) error {
	locked, err := file.Stat()
	if err != nil {
		return err
	}
	named, err := os.Lstat(path)
	if errors.Is(err, os.ErrNotExist) || err == nil && !os.SameFile(locked, named) {
		return fmt.Errorf("%w: another file has taken its place", ErrInUse)
	}
	return err
}
