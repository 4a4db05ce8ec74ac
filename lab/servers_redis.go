package main

// Redis servers: one alone, several independent ones, one with a replica, and one that syncs to
// disk before it replies.

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

var (
	// redisServers lose all data when they are killed.
	redisServers = &ServerKind{Name: "redis", Start: func(_ context.Context, p Plan) (Cluster, error) {
		return startRedis(p, "--appendonly", "no")
	}}
	// redisOnDisk replies to a write when it is on disk, and reads it back when it starts again.
	redisOnDisk = &ServerKind{Name: "redis-fsync", Start: func(_ context.Context, p Plan) (Cluster, error) {
		return startRedis(p, "--appendonly", "yes", "--appendfsync", "always")
	}}
	// redisWithReplica has two servers: server 1 copies server 0, and can be promoted. It is a
	// Replica.
	redisWithReplica = &ServerKind{Name: "redis-replica", Start: func(_ context.Context, p Plan) (Cluster, error) {
		if p.Size != 2 {
			return nil, fmt.Errorf("a server and its replica are 2, not %d", p.Size)
		}
		c, err := startRedis(p, "--appendonly", "no", "--repl-diskless-sync-delay", "0")
		if err != nil {
			return nil, err
		}
		if err := c.replicate(); err != nil {
			return nil, errors.Join(err, c.Close())
		}
		return c, nil
	}}
)

type redisCluster struct {
	processes
	version string
}

func startRedis(p Plan, args ...string) (*redisCluster, error) {
	bin, err := program("redis-server", "redis-server")
	if err != nil {
		return nil, err
	}
	c := &redisCluster{}
	c.ready = c.ping
	for i := range p.Size {
		addr, err := serverPorts.addr()
		if err != nil {
			return nil, err
		}
		_, port, _ := net.SplitHostPort(addr)
		dir := filepath.Join(p.Dir, "redis"+strconv.Itoa(i))
		if err := os.Mkdir(dir, 0o755); err != nil {
			return nil, err
		}
		proc := &process{Path: bin, Dir: dir, Log: filepath.Join(dir, "log")}
		proc.Args = append([]string{"--bind", "127.0.0.1", "--port", port, "--dir", dir, "--save", ""}, args...)
		if p.Env != nil {
			proc.Env = p.Env(i)
		}
		c.procs, c.addrs = append(c.procs, proc), append(c.addrs, addr)
	}
	return c, c.startAll()
}

func (c *redisCluster) Version() string { return c.version }

// ping returns nil if server i serves, and reads its version.
func (c *redisCluster) ping(ctx context.Context, i int) error {
	info, err := c.ask(ctx, i, "INFO", "server")
	if err != nil {
		return err
	}
	c.version = "Redis " + infoField(info, "redis_version")
	_, err = c.ask(ctx, i, "EXISTS", "ready") // a server that still reads its file returns an error
	return err
}

// ask sends one command to server i over a separate connection.
func (c *redisCluster) ask(ctx context.Context, i int, command ...any) (any, error) {
	client := redisClient(c.addrs[i])
	defer client.Close()
	return client.Do(ctx, command...).Result()
}

func infoField(info any, name string) string {
	for line := range strings.Lines(fmt.Sprint(info)) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// replicate makes server 1 the replica of server 0, and waits until it has server 0's data.
func (c *redisCluster) replicate() error {
	host, port, _ := net.SplitHostPort(c.addrs[0])
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if _, err := c.ask(ctx, 1, "REPLICAOF", host, port); err != nil {
		return err
	}
	for {
		info, err := c.ask(ctx, 1, "INFO", "replication")
		if err != nil {
			return err
		}
		if infoField(info, "master_link_status") == "up" {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the replica has no link: %v", info)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// CutReplication points the replica at a server that does not exist. The replica keeps its data.
func (c *redisCluster) CutReplication() error {
	nobody, err := serverPorts.addr()
	if err != nil {
		return err
	}
	host, port, _ := net.SplitHostPort(nobody)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_, err = c.ask(ctx, 1, "REPLICAOF", host, port)
	return err
}

func (c *redisCluster) Promote() error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_, err := c.ask(ctx, 1, "REPLICAOF", "NO", "ONE")
	return err
}

// redisClient returns a client with one setting that is not the default: calls end with their
// context.
func redisClient(addr string) *redis.Client {
	return redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true})
}

// leftInRedis counts the keys of a lock on all servers: its name with each suffix.
func leftInRedis(suffixes ...string) func(context.Context, []string, string) (int, error) {
	return func(ctx context.Context, addrs []string, lock string) (int, error) {
		var keys []string
		for _, s := range suffixes {
			keys = append(keys, lock+s)
		}
		var left int
		for _, addr := range addrs {
			client := redisClient(addr)
			n, err := client.Exists(ctx, keys...).Result()
			if err = errors.Join(err, client.Close()); err != nil {
				return 0, err
			}
			left += int(n)
		}
		return left, nil
	}
}
