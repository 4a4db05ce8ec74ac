package main

// etcd's recipe of a lock for readers and writers: experimental/recipes.RWMutex. Its calls take no
// context, and it has no token.

import (
	"context"

	"go.etcd.io/etcd/client/v3/concurrency"
	recipe "go.etcd.io/etcd/client/v3/experimental/recipes"
)

type etcdReaders struct{ *etcdLock }

func (l etcdReaders) Acquire(ctx context.Context) (Hold, error) {
	return l.take(ctx, (*recipe.RWMutex).Lock, (*recipe.RWMutex).Unlock)
}

func (l etcdReaders) AcquireShared(ctx context.Context) (Hold, error) {
	return l.take(ctx, (*recipe.RWMutex).RLock, (*recipe.RWMutex).RUnlock)
}

func (l etcdReaders) take(ctx context.Context, lock, unlock func(*recipe.RWMutex) error) (Hold, error) {
	if err := l.open(ctx); err != nil {
		return nil, err
	}
	m := recipe.NewRWMutex(l.session, l.name)
	got := make(chan error, 1)
	go func() { got <- lock(m) }()
	select {
	case err := <-got:
		return &etcdReadersHold{func() error { return unlock(m) }, l.session}, err
	case <-ctx.Done():
		return nil, errBusy // it still waits: it cannot be canceled
	}
}

type etcdReadersHold struct {
	unlock  func() error
	session *concurrency.Session
}

func (*etcdReadersHold) Token() (int64, bool)            { return 0, false }
func (h *etcdReadersHold) Lost() <-chan struct{}         { return h.session.Done() }
func (h *etcdReadersHold) Release(context.Context) error { return h.unlock() }

func init() {
	register(System{
		Name: "etcd-readers", Title: "etcd, recipes.RWMutex", Client: "etcd client " + libraryVersion("go.etcd.io/etcd/client/v3") + ", its recipes", Kind: readers,
		Promises: "Readers together, or a writer alone, in the order in which they asked; it is called experimental. No downgrade.",
		Server:   etcdServers, Sizes: []int{1}, Expires: true, Renews: true,
		Open: func(ctx context.Context, addrs []string, lock string, o Options) (Lock, error) {
			l, err := openEtcd(ctx, addrs, lock, o)
			if err != nil {
				return nil, err
			}
			return etcdReaders{l.(*etcdLock)}, nil
		},
	})
}
