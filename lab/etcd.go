package main

// etcd's own lock: concurrency.Mutex. Each client has a key under a lease. The oldest key holds,
// and each client waits for all older keys.

import (
	"context"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"
)

type etcdLock struct {
	client  *clientv3.Client
	session *concurrency.Session // of the last Acquire
	name    string
	ttl     int // seconds
}

func openEtcd(_ context.Context, addrs []string, lock string, o Options) (Lock, error) {
	client, err := clientv3.New(clientv3.Config{Endpoints: addrs, DialTimeout: 5 * time.Second, Logger: zap.NewNop()})
	if err != nil {
		return nil, err
	}
	return &etcdLock{client: client, name: lock, ttl: max(1, int(o.TTL.Seconds()))}, nil
}

// Acquire opens a session the first time, and again when the last one has ended.
func (l *etcdLock) Acquire(ctx context.Context) (Hold, error) {
	if err := l.open(ctx); err != nil {
		return nil, err
	}
	m := concurrency.NewMutex(l.session, l.name)
	if err := m.Lock(ctx); err != nil {
		if ctx.Err() != nil && m.Key() == "\x00" { // it waited for another client, and has deleted its own key
			return nil, errBusy
		}
		return nil, err
	}
	return &etcdHold{m, l.session}, nil
}

// open asks for the lease under ctx. The session is kept alive beyond it.
func (l *etcdLock) open(ctx context.Context) error {
	if l.session != nil {
		select {
		case <-l.session.Done():
		default:
			return nil
		}
	}
	lease, err := l.client.Grant(ctx, int64(l.ttl))
	if err != nil {
		return err
	}
	l.session, err = concurrency.NewSession(l.client, concurrency.WithLease(lease.ID), concurrency.WithTTL(l.ttl))
	return err
}

// Close does not revoke the lease. The server frees the lock when the lease expires.
func (l *etcdLock) Close() error { return l.client.Close() }

type etcdHold struct {
	*concurrency.Mutex
	session *concurrency.Session
}

// Token is the revision that created the key. The oldest key holds, so it grows with each
// grant.
func (h *etcdHold) Token() (int64, bool) {
	cmp := pb.Compare(h.IsOwner())
	return cmp.GetCreateRevision(), true
}

func (h *etcdHold) Lost() <-chan struct{} { return h.session.Done() }

// Release deletes the key. It does not report whether the key existed.
func (h *etcdHold) Release(ctx context.Context) error { return h.Unlock(ctx) }

func init() {
	register(System{
		Name: "etcd", Title: "etcd, concurrency.Mutex", Client: "etcd client " + libraryVersion("go.etcd.io/etcd/client/v3"),
		Promises: "One holder among the live leases, in the order in which they asked, with a token. Told when the lease is over.",
		Server:   etcdServers, Sizes: []int{1, 3}, Expires: true, Renews: true, Open: openEtcd,
		Left: func(ctx context.Context, addrs []string, lock string) (int, error) {
			client, err := clientv3.New(clientv3.Config{Endpoints: addrs, Logger: zap.NewNop()})
			if err != nil {
				return 0, err
			}
			defer client.Close()
			keys, err := client.Get(ctx, lock+"/", clientv3.WithPrefix(), clientv3.WithCountOnly())
			if err != nil {
				return 0, err
			}
			return int(keys.Count), nil
		},
	})
}
