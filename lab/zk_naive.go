package main

// The usual first attempt: one ephemeral node, which all waiters watch.

import (
	"context"
	"errors"

	"github.com/go-zookeeper/zk"
)

func init() {
	register(System{
		Name: "zk-naive", Title: "ZooKeeper, one node that everybody watches", Client: "written here, on go-zookeeper " + library("github.com/go-zookeeper/zk"),
		Promises: "The session's end frees the lock. All who wait are woken by each release, and no order is kept.",
		Server:   zooKeeper, Sizes: []int{1, 3}, Expires: true, Renews: true,
		Left: zkLeft, Break: zkBreak,
		Open: func(ctx context.Context, addrs []string, lock string, o Options) (Lock, error) {
			conn, err := zkConnect(ctx, addrs, o.TTL)
			if err != nil {
				return nil, err
			}
			_, err = conn.Create("/"+lock, nil, 0, zk.WorldACL(zk.PermAll))
			if err != nil && !errors.Is(err, zk.ErrNodeExists) {
				conn.Close()
				return nil, err
			}
			return &zkNaive{conn: conn, node: "/" + lock + "/held"}, nil
		},
	})
}

type zkNaive struct {
	conn *zkSession
	node string
}

func (l *zkNaive) Acquire(ctx context.Context) (Hold, error) {
	for {
		expired := l.conn.expired()
		_, err := l.conn.Create(l.node, nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
		if err == nil {
			return zkNaiveHold{l, expired}, nil
		}
		if !errors.Is(err, zk.ErrNodeExists) {
			return nil, err
		}
		exists, _, gone, err := l.conn.ExistsW(l.node)
		if err != nil {
			return nil, err
		}
		if !exists {
			continue
		}
		select {
		case <-gone:
		case <-ctx.Done():
			return nil, errBusy
		}
	}
}

func (l *zkNaive) Close() error { l.conn.Close(); return nil }

type zkNaiveHold struct {
	*zkNaive
	expired <-chan struct{}
}

func (zkNaiveHold) Token() (int64, bool)            { return 0, false }
func (h zkNaiveHold) Lost() <-chan struct{}         { return h.expired }
func (h zkNaiveHold) Release(context.Context) error { return h.conn.Delete(h.node, -1) }
