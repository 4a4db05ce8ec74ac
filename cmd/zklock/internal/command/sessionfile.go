package command

// The session file of a run, for the case that zklock and its guardian are both killed.

import (
	"context"
	"errors"
	"time"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/internal/sessionfile"
)

// connectWithFile connects with the session file of --session-file. If zklock was killed, its
// guardian keeps the file locked until no process of COMMAND is left: otherwise this run would end
// the session, and get the lock, beside them. So this run waits for a file that is in use as it
// waits for the lock.
func (o *runOptions) connectWithFile(ctx context.Context, opts []zklock.Option) (*zklock.Session, error) {
	if o.sessionFile != "" {
		opts = append(opts, zklock.WithSessionFile(o.sessionFile))
	}
	for isNoted := false; ; isNoted = true {
		slow := time.AfterFunc(connectSlow, func() { o.note("waiting: %v", o.unreached(errors.New("no server has replied"))) })
		s, err := o.connect(ctx, opts)
		o.waited = o.waited || !slow.Stop()
		if !isFileInUse(err) || o.noWait || ctx.Err() != nil {
			return s, err
		}
		if !isNoted {
			o.waited = true
			o.note("waiting: %s", o.fileInUse())
		}
	}
}

// isFileInUse reports whether the session file was in use when Connect returned this error.
func isFileInUse(err error) bool {
	var u sessionfile.Undecided
	return errors.Is(err, zklock.ErrSessionFileInUse) || errors.As(err, &u) && errors.Is(u.Last, zklock.ErrSessionFileInUse)
}

func (o *runOptions) fileInUse() string {
	return "the session file " + o.sessionFile + " is in use, by another run or by processes of a run that was killed"
}
