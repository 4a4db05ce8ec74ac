package command

// The session file of a run, for the case that zklock and its guardian are both killed.

import (
	"context"
	"errors"
	"time"

	"github.com/zklock/zklock"
)

// connectWithFile connects with the session file of --session-file. If zklock was killed, its
// guardian keeps the file locked until no process of COMMAND is left: otherwise this run would end
// the session, and get the lock, beside them. So a file that is in use is tried again until
// --connect-timeout has passed, except with --no-wait.
func (o *runOptions) connectWithFile(ctx context.Context, opts []zklock.Option) (*zklock.Session, error) {
	if o.sessionFile != "" {
		opts = append(opts, zklock.WithSessionFile(o.sessionFile))
	}
	for until := time.Now().Add(o.connectTimeout); ; {
		s, err := o.connect(ctx, opts)
		if !errors.Is(err, zklock.ErrSessionFileInUse) || o.noWait || ctx.Err() != nil || time.Now().After(until) {
			return s, err
		}
	}
}
