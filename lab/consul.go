package main

// Consul's own lock, api.Lock: a key that a session holds. A session ends after about twice its TTL
// without a renewal. For the lock-delay after that, no client gets the keys that it held.
//
// api.Lock takes a lock-delay of 0 as the default, 15 s. So this file creates the session itself,
// as api.Lock would: one for each acquire, renewed as long as it is held.

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	consul "github.com/hashicorp/consul/api"
)

type consulLock struct {
	client *consul.Client
	key    string
	ttl    string
	delay  time.Duration
}

// consulClient connects to the first server that accepts a connection.
func consulClient(addrs []string) (*consul.Client, error) {
	config := consul.DefaultConfig()
	config.Address = addrs[0]
	dial := config.Transport.DialContext
	config.Transport.DialContext = func(ctx context.Context, network, _ string) (c net.Conn, err error) {
		for _, addr := range addrs {
			if c, err = dial(ctx, network, addr); err == nil {
				return c, nil
			}
		}
		return nil, err
	}
	return consul.NewClient(config)
}

func (l *consulLock) Acquire(ctx context.Context) (Hold, error) {
	session, err := l.session(ctx)
	if err != nil {
		return nil, err
	}
	end := make(chan struct{}) // of the session
	go func() { _ = l.client.Session().RenewPeriodic(l.ttl, session, nil, end) }()
	lock, err := l.client.LockOpts(&consul.LockOptions{Key: l.key, Session: session, SessionTTL: l.ttl})
	if err != nil {
		close(end)
		return nil, err
	}
	type answer struct {
		lost <-chan struct{}
		err  error
	}
	got := make(chan answer, 1)
	go func() {
		lost, err := lock.Lock(ctx.Done())
		got <- answer{lost, err}
	}()
	var a answer
	select {
	case a = <-got:
	case <-ctx.Done(): // it may look for 15 s more; what it takes then ends with the session
		close(end)
		return nil, errBusy
	}
	h := &consulHold{lock: lock, end: end, lost: a.lost}
	if a.err == nil && a.lost == nil {
		a.err = errBusy // it was asked to stop
	}
	if a.err == nil {
		h.index, a.err = l.index(ctx, session)
	}
	if a.err != nil {
		close(end)
		return nil, a.err
	}
	return h, nil
}

func (l *consulLock) session(ctx context.Context) (string, error) {
	body := map[string]string{"Name": "lab", "TTL": l.ttl, "LockDelay": l.delay.String()}
	var made struct{ ID string }
	_, err := l.client.Raw().Write("/v1/session/create", body, &made, (&consul.WriteOptions{}).WithContext(ctx))
	return made.ID, err
}

// index returns the LockIndex of Consul's sequencer, which counts the holders of the key.
func (l *consulLock) index(ctx context.Context, session string) (int64, error) {
	pair, _, err := l.client.KV().Get(l.key, (&consul.QueryOptions{}).WithContext(ctx))
	switch {
	case err != nil:
		return 0, err
	case pair == nil || pair.Session != session:
		return 0, errors.New("it was lost at once")
	}
	return int64(pair.LockIndex), nil
}

// Close does not destroy the session, which expires.
func (l *consulLock) Close() error { return nil }

type consulHold struct {
	lock  *consul.Lock
	end   chan struct{}
	lost  <-chan struct{}
	index int64
}

func (h *consulHold) Token() (int64, bool)  { return h.index, true }
func (h *consulHold) Lost() <-chan struct{} { return h.lost }

func (h *consulHold) Release(ctx context.Context) error {
	released := make(chan error, 1)
	go func() { released <- h.lock.Unlock() }() // it takes no context
	select {
	case err := <-released:
		close(h.end)
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// withDelay lists the experiments in which a lock-delay makes or might make a difference.
var withDelay = []string{"crash", "cut", "blink", "stop", "delay", "flight", "restart", "server-crash", "server-stop", "late", "late-step", "stranger"}

func init() {
	for _, delay := range []time.Duration{0, 2 * time.Second} {
		s := System{
			Name: "consul", Title: fmt.Sprintf("Consul, api.Lock, lock-delay %d s", int(delay.Seconds())), Client: "Consul api " + libraryVersion("github.com/hashicorp/consul/api"),
			Promises: "The session's end frees the lock after the lock-delay. \"Consul sessions prefer liveness over safety and an application must be able to handle the lock being lost.\" The key's LockIndex is a token.",
			Server:   consulServers, Sizes: []int{1, 3}, Expires: true, Renews: true,
			Open: func(_ context.Context, addrs []string, lock string, o Options) (Lock, error) {
				client, err := consulClient(addrs)
				return &consulLock{client, lock, o.TTL.String(), delay}, err
			},
			Left: func(ctx context.Context, addrs []string, lock string) (int, error) {
				client, err := consulClient(addrs)
				if err != nil {
					return 0, err
				}
				pair, _, err := client.KV().Get(lock, (&consul.QueryOptions{}).WithContext(ctx))
				if err != nil || pair == nil || pair.Session == "" {
					return 0, err
				}
				return 1, nil
			},
			Break: func(ctx context.Context, addrs []string, lock string) (bool, error) {
				client, err := consulClient(addrs)
				if err != nil {
					return false, err
				}
				_, err = client.KV().Delete(lock, (&consul.WriteOptions{}).WithContext(ctx))
				return err == nil, err
			},
		}
		if delay > 0 {
			s.Name += "-delay"
			s.Only = withDelay
			s.Delay = delay + consul.DefaultLockRetryTime // after which api.Lock asks again
		}
		register(s)
	}
}
