package main

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/zklock"
)

// timeout is the session timeout.
const timeout = 30 * time.Second

// The locks that are written in Go, and raw: a node that is created and deleted, over the client
// that two of the locks use.

func openClient(addr string) (*zk.Conn, error) {
	c, events, err := zk.Connect(strings.Split(addr, ","), timeout, zk.WithLogger(quiet{}))
	if err != nil {
		return nil, err
	}
	for ev := range events {
		if ev.State == zk.StateHasSession {
			break
		}
	}
	go func() {
		for range events {
		}
	}()
	return c, nil
}

type quiet struct{}

func (quiet) Printf(string, ...any) {}

// raw excludes no other client.
type raw struct{ c *zk.Conn }

func openRaw(addr string) (session, error) {
	c, err := openClient(addr)
	return raw{c}, err
}

func (s raw) close() { s.c.Close() }
func (s raw) lock(path string) lock {
	_, _ = s.c.Create(path, nil, 0, zk.WorldACL(zk.PermAll))
	return &bareNode{c: s.c, path: path}
}

type bareNode struct {
	c          *zk.Conn
	path, node string
}

func (l *bareNode) acquire() (err error) {
	l.node, err = l.c.Create(l.path+"/lock-", []byte("bench"), zk.FlagEphemeral|zk.FlagSequence, zk.WorldACL(zk.PermAll))
	return err
}
func (l *bareNode) release() error { return l.c.Delete(l.node, -1) }

type goZookeeper struct{ c *zk.Conn }

func openGoZookeeper(addr string) (session, error) {
	c, err := openClient(addr)
	return goZookeeper{c}, err
}

func (s goZookeeper) close() { s.c.Close() }
func (s goZookeeper) lock(path string) lock {
	return zkLock{zk.NewLock(s.c, path, zk.WorldACL(zk.PermAll))}
}

type zkLock struct{ *zk.Lock }

func (l zkLock) acquire() error { return l.Lock.Lock() }
func (l zkLock) release() error { return l.Lock.Unlock() }

type ours struct {
	s     *zklock.Session
	async bool // releases without waiting
}

func openOurs(addr string, async bool) (session, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	s, err := zklock.Connect(ctx, addr, zklock.WithSessionTimeout(timeout), zklock.WithMaxLockNodes(100_000),
		zklock.WithLogger(slog.New(slog.DiscardHandler)))
	return ours{s, async}, err
}

// releaser is a Hold, unless it is one of an older revision.
type releaser interface{ ReleaseAsync() error }

var _, hasAsync = any((*zklock.Hold)(nil)).(releaser)

func (s ours) close()                { _ = s.s.Close() }
func (s ours) lock(path string) lock { return s.mutex(path) }

func (s ours) mutex(path string) lock {
	m, err := zklock.NewMutex(s.s, path)
	if err != nil {
		panic(err)
	}
	return &mutex{m: m, async: s.async}
}

// multi returns n locks that are held together.
func (s ours) multi(n int, path string) lock {
	var all []zklock.Lock
	for i := range n {
		all = append(all, s.mutex(fmt.Sprintf("%s-%d", path, i)).(*mutex).m)
	}
	m, err := zklock.NewMulti(all...)
	if err != nil {
		panic(err)
	}
	var h *zklock.MultiHold
	return calls{func() (err error) {
		h, err = m.Acquire(context.Background())
		return err
	}, func() error { return h.Release(context.Background()) }}
}

func (s ours) recipe(w workload, path string) (l, reader lock) {
	switch {
	case w.Election:
		e, err := zklock.NewElection(s.s, path)
		if err != nil {
			panic(err)
		}
		return &election{e: e}, nil
	case w.Permits > 0:
		sem, err := zklock.NewSemaphore(s.s, path, w.Permits)
		if err != nil {
			panic(err)
		}
		return &mutex{m: sem.Permits(1)}, nil
	}
	rw, err := zklock.NewRWMutex(s.s, path)
	if err != nil {
		panic(err)
	}
	return &mutex{m: rw.WriteLock()}, &mutex{m: rw.ReadLock()}
}

// mutex is a mutex, a side of a read/write lock, or a permit.
type mutex struct {
	m     zklock.Lock
	h     *zklock.Hold
	async bool
}

func (l *mutex) acquire() (err error) {
	l.h, err = l.m.Acquire(context.Background())
	return err
}

func (l *mutex) release() error {
	if l.async {
		return any(l.h).(releaser).ReleaseAsync()
	}
	return l.h.Release(context.Background())
}

// election is a candidate: acquire campaigns until it leads, and release ends its leadership.
type election struct {
	e          *zklock.Election
	over, gone chan struct{}
	err        error // of the campaign, once it has ended
}

func (l *election) acquire() error {
	leads := make(chan struct{})
	l.over, l.gone = make(chan struct{}), make(chan struct{})
	go func() {
		l.err = l.e.Campaign(context.Background(), func(context.Context, *zklock.Hold) error {
			close(leads)
			<-l.over
			return nil
		})
		close(l.gone)
	}()
	select {
	case <-leads:
		return nil
	case <-l.gone:
		return l.err
	}
}

func (l *election) release() error {
	close(l.over)
	<-l.gone
	return l.err
}
