package zklock

import (
	"context"

	"github.com/zklock/zklock/internal/guard"
)

// WithGuard connects the Session to a guard (zklock guard), which ends the ZooKeeper session when
// this process has died, so others need not wait for the session timeout. socket is the path of the
// guard's Unix socket; the default is $ZKLOCK_GUARD, and "" is none. The guard must run on the same
// Linux host, under the same user.
//
// The Session waits at most 100 ms for the guard, and tries to connect every second (Stats.Guarded).
// Children of this process that continue its work lose the lock with it: run them under zklock run.
func WithGuard(socket string) Option { return func(o *sessionOptions) { o.guard = socket } }

// startGuard connects to the guard. It is called before the Session connects to the servers, so
// that the guard has each ZooKeeper session before that has a node.
func (s *Session) startGuard(ctx context.Context) {
	s.guard = guard.Open(ctx, s.opts.guard, func(err error) {
		s.feed.setGuarded(err == nil)
		if err == nil {
			s.log.Info("zklock: a guard is connected", "socket", s.opts.guard)
		} else {
			s.log.Warn("zklock: no guard is connected; if this process crashes, its locks stay held for the session timeout",
				"socket", s.opts.guard, "err", err)
		}
	})
}

// closeRest closes the parts that outlive the link.
func (s *Session) closeRest() {
	s.file.close()
	s.guard.Close()
	s.log.Close()
}
