package command

// Requests that the command itself sends over the library's connection.

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/zklock"
)

// ask sends a read request, and sends it again when the connection is lost. When ctx ends, ask
// returns its cause; a request without a reply ends with the Session.
func ask[T any](ctx context.Context, s *zklock.Session, read func(c *zk.Conn) (T, error)) (v T, err error) {
	type answer struct {
		v   T
		err error
	}
	for {
		answered := make(chan answer, 1)
		go func() {
			v, err := read(s.Conn())
			answered <- answer{v, err}
		}()
		select {
		case a := <-answered:
			switch {
			case errors.Is(a.err, zk.ErrNoServer), errors.Is(a.err, zk.ErrConnectionClosed), errors.Is(a.err, zk.ErrSessionExpired), errors.Is(a.err, zk.ErrSessionMoved):
			default:
				return a.v, a.err
			}
		case <-ctx.Done():
			return v, context.Cause(ctx)
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return v, context.Cause(ctx)
		}
	}
}

// statOf returns the stat of the node at an absolute path, nil if there is none. A server without
// it may lag behind the one that created it, so statOf asks again after a sync.
func statOf(ctx context.Context, s *zklock.Session, path string) (*zk.Stat, error) {
	return ask(ctx, s, func(c *zk.Conn) (*zk.Stat, error) {
		there, stat, err := c.Exists(path)
		if err == nil && !there {
			if _, err = c.Sync(path); err == nil {
				there, stat, err = c.Exists(path)
			}
		}
		if err != nil || !there {
			return nil, err
		}
		return stat, nil
	})
}

// at returns the absolute path of a node below the chroot of --servers.
func (c *connection) at(path string) string { return chrootOf(c.servers) + path }

// chrootOf returns the chroot of an accepted connection string, without a trailing slash, "" for
// none.
func chrootOf(servers string) string {
	_, chroot, _ := strings.Cut(servers, "/")
	return strings.TrimSuffix("/"+chroot, "/")
}
