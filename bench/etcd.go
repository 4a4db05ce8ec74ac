package main

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"strconv"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	recipe "go.etcd.io/etcd/client/v3/experimental/recipes"
	"go.uber.org/zap"
)

// startEtcd starts one server below dir. The server syncs each write to disk, so dir is in memory
// unless ZooKeeper syncs, too.
func startEtcd(dir string) (addr string, pid int, stop func() error, err error) {
	bin, err := exec.LookPath("etcd")
	if err != nil {
		return "", 0, nil, err
	}
	if dir == "" {
		if _, err := os.Stat("/dev/shm"); err == nil {
			dir = "/dev/shm"
		}
	}
	if dir, err = os.MkdirTemp(dir, "bench-etcd"); err != nil {
		return "", 0, nil, err
	}
	var at [2]string
	for i := range at {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return "", 0, nil, err
		}
		at[i] = ln.Addr().String()
		if err := ln.Close(); err != nil {
			return "", 0, nil, err
		}
	}
	client, peer := "http://"+at[0], "http://"+at[1]
	// When its input ends, at the latest with this process, the shell stops the server and removes
	// its data.
	c, err := startChild("sh", "-c", `"$@" & echo $!; cat >/dev/null; kill $!; wait; rm -rf "$0"`, dir, bin, "--data-dir", dir, "--name", "bench",
		"--listen-client-urls", client, "--advertise-client-urls", client, "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
		"--initial-cluster", "bench="+peer, "--logger", "zap", "--log-level", "fatal")
	stop = func() error { c.close(); return nil }
	if err != nil {
		return "", 0, nil, errors.Join(err, os.RemoveAll(dir))
	}
	s, err := openEtcd(at[0]) // waits until it serves
	if err != nil {
		return "", 0, nil, errors.Join(err, stop())
	}
	s.close()
	c.out.Scan()
	pid, err = strconv.Atoi(c.out.Text())
	return at[0], pid, stop, err
}

// etcd is a client, with a lease for one owner of mutexes.
type etcd struct {
	c *clientv3.Client
	s *concurrency.Session
}

func openEtcd(addr string) (session, error) {
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{addr}, DialTimeout: timeout, Logger: zap.NewNop()})
	if err != nil {
		return nil, err
	}
	return withLease(c)
}

func withLease(c *clientv3.Client) (session, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	lease, err := c.Grant(ctx, int64(timeout/time.Second))
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	s, err := concurrency.NewSession(c, concurrency.WithLease(lease.ID))
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return etcd{c, s}, nil
}

// queued returns the number of keys in a queue.
func (s etcd) queued(path string) int {
	got, err := s.c.Get(context.Background(), path+"/", clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil {
		return 0
	}
	return int(got.Count)
}

func (s etcd) close() {
	_ = s.s.Close()
	_ = s.c.Close()
}

// owner returns a session of the same client: etcd's mutex does not exclude users of one lease.
func (s etcd) owner() (session, error) { return withLease(s.c) }

func (s etcd) lock(path string) lock {
	m := concurrency.NewMutex(s.s, path)
	return calls{func() error { return m.Lock(context.Background()) }, func() error { return m.Unlock(context.Background()) }}
}

func (s etcd) recipe(w workload, path string) (l, reader lock) {
	if w.Election {
		e := concurrency.NewElection(s.s, path)
		return calls{func() error { return e.Campaign(context.Background(), "bench") }, func() error { return e.Resign(context.Background()) }}, nil
	}
	rw := recipe.NewRWMutex(s.s, path)
	return calls{rw.Lock, rw.Unlock}, calls{rw.RLock, rw.RUnlock}
}

// calls is a lock that consists of two functions.
type calls struct{ take, leave func() error }

func (l calls) acquire() error { return l.take() }
func (l calls) release() error { return l.leave() }
