package zklock

// A Session's file: it names the ZooKeeper sessions that the next process has to end if this one
// crashes.

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/zklock/zklock/internal/eventlog"
	"github.com/zklock/zklock/internal/expire"
	"github.com/zklock/zklock/internal/sessionfile"
	"github.com/zklock/zklock/internal/sessionkey"
)

// WithSessionFile makes a restart after a crash fast: the process that is started again on the same
// host ends the ZooKeeper session of the crashed one, so its locks are free at once, and not when
// the session expires.
//
// Give each Session its own path on a local file system, such as /run/orders/zk.session. Connect
// creates the file with mode 0600, accepts 0660 (a Pod's fsGroup), and takes at most a second
// longer. It ends the sessions in the file only if the kernel reports that their process is dead.
// If the file is in use for a second, it returns ErrSessionFileInUse. A process that can read the
// file can end the session. It needs Linux or macOS. docs/operating.md describes which crashes it
// covers.
func WithSessionFile(path string) Option {
	return func(o *sessionOptions) {
		if o.sessionFile = path; path == "" {
			o.wrong = errors.New(`WithSessionFile(""): give a path, or leave the option out`)
		}
	}
}

// sessionFile is the file of one Session. Its methods do nothing if it is nil.
type sessionFile struct {
	file  *sessionfile.File
	log   *eventlog.Log
	dead  []sessionkey.Hidden // the sessions of a dead process
	began time.Time           // when Connect opened the file
	taken time.Time           // when the file was locked
	ends  sync.WaitGroup      // of these sessions

	ended, failed atomic.Int64
}

func openSessionFile(ctx context.Context, path string, servers []string, log *eventlog.Log) (*sessionFile, error) {
	if path == "" {
		return nil, nil
	}
	began := time.Now()
	file, found, err := sessionfile.Open(ctx, path, servers)
	if err != nil {
		return nil, err
	}
	if found.GroupHasAccess {
		log.Warn("zklock: each member of the session file's group can end the session", "file", path)
	}
	if found.Ignored != "" {
		log.Warn("zklock: sessions in the session file were ignored; they expire", "file", path, "err", found.Ignored)
	}
	f := &sessionFile{file: file, log: log, began: began, taken: time.Now()}
	for _, k := range found.Sessions {
		f.dead = append(f.dead, k.Hide())
	}
	return f, nil
}

// opened is called before the first node of a ZooKeeper session.
func (f *sessionFile) opened(k sessionkey.Key) {
	if f != nil {
		f.note(f.file.Add(k))
	}
}

// over is called when a server has confirmed that a ZooKeeper session has ended.
func (f *sessionFile) over(session int64) {
	if f != nil {
		f.note(f.file.Remove(session))
	}
}

func (f *sessionFile) close() {
	if f != nil {
		f.note(f.file.Close())
	}
}

func (f *sessionFile) note(err error) {
	if err != nil {
		f.failed.Add(1)
		f.log.Warn("zklock: the session file could not be written; if this process crashes, its locks may be free only after the session timeout", "err", err)
	}
}

func (f *sessionFile) count() (ended, failed int) {
	if f == nil {
		return 0, 0
	}
	return int(f.ended.Load()), int(f.failed.Load())
}

// endSessionsLeft begins to end the sessions of a dead process, while the Session connects.
func (s *Session) endSessionsLeft() {
	if s.file == nil {
		return
	}
	for _, k := range s.file.dead {
		s.file.ends.Add(1)
		if !s.link.Spawn(func() { defer s.file.ends.Done(); s.endSessionLeft(k()) }) {
			s.file.ends.Done()
		}
	}
}

// endSessionLeft tries to end a session until it has expired for certain. If no server can end it,
// its line is removed, so that no later process touches the session and keeps it alive. If our own
// Session is closed before, the line remains for the next process.
func (s *Session) endSessionLeft(k sessionkey.Key) {
	f, id := s.file, fmt.Sprintf("%#x", uint64(k.ID))
	was, err := s.link.EndOfDead(k, f.taken.Add(k.Timeout+k.Timeout/2), func(err error) {
		f.log.Info("zklock: a server did not end the session of a crashed process; zklock asks the others", "session", id, "err", err)
	})
	if err != nil && !errors.Is(err, expire.ErrRefused) {
		if _, _, closed := s.link.AttachedNow(); closed != nil {
			return
		}
	}
	switch {
	case err != nil:
		f.log.Warn("zklock: the session of a crashed process was not ended; it expires", "session", id, "timeout", k.Timeout, "err", err)
	case was:
		f.ended.Add(1)
		f.log.Info("zklock: ended the session of a crashed process", "session", id)
	}
	f.over(k.ID)
}

// awaitSessionsLeft waits until these sessions have ended, so that the nodes of this Session do not
// queue behind theirs. Until a second after Connect has begun, or until ctx ends; then the ends
// continue in the background.
func (s *Session) awaitSessionsLeft(ctx context.Context) {
	if s.file == nil || len(s.file.dead) == 0 {
		return
	}
	ended := make(chan struct{})
	s.link.Spawn(func() { s.file.ends.Wait(); close(ended) })
	select {
	case <-ended:
	case <-time.After(time.Until(s.file.began.Add(sessionfile.Patience))):
	case <-ctx.Done():
	}
}
