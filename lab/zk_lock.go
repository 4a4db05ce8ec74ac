package main

// go-zookeeper's own lock.

import (
	"context"

	"github.com/go-zookeeper/zk"
)

func init() {
	register(System{
		Name: "zk-lock", Title: "go-zookeeper `zk.Lock`", Client: "go-zookeeper " + library("github.com/go-zookeeper/zk"),
		Promises: "The session's end frees the lock, and grants follow the queue. It has no call that gives up waiting, tells of no loss, and has no token.",
		Server:   zooKeeper, Sizes: []int{1, 3}, Expires: true, Renews: true,
		Left: zkLeft, Break: zkBreak,
		Open: func(ctx context.Context, addrs []string, lock string, o Options) (Lock, error) {
			conn, err := zkConnect(ctx, addrs, o.TTL)
			if err != nil {
				return nil, err
			}
			return &zkLock{conn: conn, path: "/" + lock}, nil
		},
	})
}

type zkLock struct {
	conn *zkSession
	path string
}

func (l *zkLock) Acquire(ctx context.Context) (Hold, error) {
	expired := l.conn.expired()
	inner := zk.NewLock(l.conn.Conn, l.path, zk.WorldACL(zk.PermAll))
	got := make(chan error, 1)
	go func() { got <- inner.Lock() }()
	select {
	case err := <-got:
		return zkLockHold{l, inner, expired}, err
	case <-ctx.Done():
		return nil, errBusy // inner still waits: it cannot be canceled
	}
}

func (l *zkLock) Close() error { l.conn.Close(); return nil }

type zkLockHold struct {
	*zkLock
	inner   *zk.Lock
	expired <-chan struct{}
}

func (zkLockHold) Token() (int64, bool) { return 0, false }

// Lost is the connection's event, which a careful user observes: the lock itself does not report a
// loss.
func (h zkLockHold) Lost() <-chan struct{}         { return h.expired }
func (h zkLockHold) Release(context.Context) error { return h.inner.Unlock() }
