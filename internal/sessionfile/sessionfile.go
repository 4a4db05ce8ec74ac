// Package sessionfile keeps the ZooKeeper sessions of a Session in a file that its process has
// locked. A process that finds the file unlocked may end these sessions, because the process that
// had locked it is dead or has closed its Session. It promises that it returns only such sessions.
//
// It does not depend on ZooKeeper. The file is text of 4,096 bytes. It is written in place, and
// never truncated, renamed or removed: the lock belongs to the inode. It is not synced to the disk,
// because its lines do not count after the machine has stopped.
//
// Read format.go first, then sessionfile.go and open.go.
package sessionfile

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/zklock/zklock/internal/fscall"
	"github.com/zklock/zklock/internal/sessionkey"
)

// ErrInUse: another Session that lives has the file.
var ErrInUse = errors.New("the session file is in use")

// Undecided has the last error of an Open whose context ended before Patience: the wait was too
// short for a verdict. So errors.Is does not find that error.
type Undecided struct{ Last error }

// Error implements error.
func (u Undecided) Error() string { return u.Last.Error() }

const (
	// Patience is how long Open waits for the lock. After a kill, the file of a large process stays
	// locked until its memory is freed, and a child between fork and exec has the file open.
	Patience   = time.Second
	retryPause = 10 * time.Millisecond
	// writeLimit is how long a change waits for the file system. The Session must not depend on it.
	writeLimit = 250 * time.Millisecond
)

// File is a session file that this process has locked. The lock lasts until Close.
type File struct {
	write func(b []byte) error
	close func() error
	dup   func() (*os.File, error)
	head  header

	mu struct {
		sync.Mutex
		sessions []sessionkey.Hidden // the oldest first
		isClosed bool
	}
	disk struct {
		sync.Mutex      // held while the file system works; locked before mu
		released   bool // the file is closed
	}
}

// Found is what a file contained when it was locked.
type Found struct {
	Sessions []sessionkey.Key // of a process that is dead, or has closed its Session
	Ignored  string           // why other lines of the file do not count; "" if all do

	GroupHasAccess bool // to the file, and so to the sessions that this process will write
}

// Open locks the file, which it creates if it does not exist, as soon as it is not in use. It waits
// for Patience at most, and not beyond the end of ctx. servers are the servers of the new Session.
func Open(ctx context.Context, path string, servers []string) (*File, Found, error) {
	o, err := openWhenFree(ctx, path, func() (attempt, error) {
		f, found, err := open(path, servers)
		return attempt{f, found}, err
	})
	if err != nil {
		return nil, Found{}, fmt.Errorf("session file %s: %w", path, err)
	}
	return o.f, o.found, nil
}

type attempt struct {
	f     *File
	found Found
}

func openWhenFree(ctx context.Context, path string, open func() (attempt, error)) (o attempt, err error) {
	patience, cancel := context.WithTimeoutCause(ctx, Patience, fscall.ErrSlow)
	defer cancel()
	// The last call has time for its result: only a file system that hangs takes longer.
	call, hangs := context.WithCancelCause(context.Background())
	defer hangs(nil)
	defer context.AfterFunc(patience, func() {
		time.Sleep(2 * retryPause)
		hangs(fscall.ErrSlow)
	})()
	for {
		last := err
		if o, err = fscall.Do(call, path, open, func(late attempt) { _ = late.f.Close() }); last != nil && errors.Is(err, fscall.ErrSlow) {
			err = last
		}
		if !errors.Is(err, ErrInUse) {
			break
		}
		select {
		case <-time.After(retryPause):
			continue
		case <-patience.Done():
		}
		break
	}
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("%w (%w)", context.Cause(ctx), Undecided{err})
	}
	return o, err
}

// Add adds a session. If there is no more room, the oldest one is dropped: it then expires if this
// process dies.
//
// An error means that the file may not contain the session. The next change writes it again.
func (f *File) Add(k sessionkey.Key) error {
	f.mu.Lock()
	f.mu.sessions = append(f.mu.sessions, k.Hide())
	f.mu.sessions = f.mu.sessions[max(0, len(f.mu.sessions)-maxSessions):]
	f.mu.Unlock()
	return f.flush()
}

// Remove removes a session, because it has ended on the servers.
func (f *File) Remove(id int64) error {
	f.mu.Lock()
	before := len(f.mu.sessions)
	f.mu.sessions = slices.DeleteFunc(f.mu.sessions, func(k sessionkey.Hidden) bool { return k().ID == id })
	isSame := len(f.mu.sessions) == before
	f.mu.Unlock()
	if isSame {
		return nil
	}
	return f.flush()
}

// Close unlocks the file. Sessions that were not removed stay in it, for the next process to end.
func (f *File) Close() error {
	f.mu.Lock()
	f.mu.isClosed = true
	f.mu.Unlock()
	return f.flush()
}

// Dup returns another descriptor of the file, which programs that this process starts inherit. The
// file stays locked until all its descriptors are closed.
func (f *File) Dup() (*os.File, error) { return f.dup() }

// flush writes the present state, and waits for that for a short time. A write that takes longer
// continues without us, so that a file system that hangs does not hang Close.
func (f *File) flush() error {
	done := make(chan error, 1)
	go func() { done <- f.writeState() }()
	select {
	case err := <-done:
		return err
	case <-time.After(writeLimit):
		return fscall.ErrSlow
	}
}

func (f *File) writeState() error {
	f.disk.Lock()
	defer f.disk.Unlock()
	if f.disk.released {
		return nil
	}
	f.mu.Lock()
	head, isClosed := f.head, f.mu.isClosed
	var sessions []sessionkey.Key
	for _, k := range f.mu.sessions {
		sessions = append(sessions, k())
	}
	f.mu.Unlock()
	if isClosed {
		head.owner = process{} // this process may live on without the Session
	}
	err := f.write(image(head, sessions))
	if isClosed {
		f.disk.released = true
		err = errors.Join(err, f.close())
	}
	return err
}
