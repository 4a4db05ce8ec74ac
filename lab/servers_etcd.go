package main

// etcd servers: one, or a cluster of several on one machine.

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"
)

var etcdServers = &ServerKind{Name: "etcd", Start: func(_ context.Context, p Plan) (Cluster, error) { return startEtcd(p) }}

type etcdCluster struct {
	processes
	version string
}

func startEtcd(p Plan) (*etcdCluster, error) {
	bin, err := program("etcd", "etcd-server")
	if err != nil {
		return nil, err
	}
	c := &etcdCluster{}
	c.ready = c.healthy
	// The shortest lease that a server grants is one and a half election time-outs, rounded up to seconds.
	heartbeat, election := "100", "1000" // as they come
	if p.TTL > 0 && p.TTL < 2*time.Second {
		heartbeat, election = "50", "500"
	}
	var names, members, peers []string
	for i := range p.Size {
		client, err := freeAddr()
		if err != nil {
			return nil, err
		}
		peer, err := freeAddr()
		if err != nil {
			return nil, err
		}
		names, peers = append(names, fmt.Sprintf("etcd%d", i)), append(peers, "http://"+peer)
		c.addrs, members = append(c.addrs, client), append(members, names[i]+"="+peers[i])
	}
	for i := range p.Size {
		dir := filepath.Join(p.Dir, names[i])
		if err := os.Mkdir(dir, 0o700); err != nil {
			return nil, err
		}
		proc := &process{Path: bin, Dir: dir, Log: filepath.Join(dir, "log"), Args: []string{
			"--name", names[i], "--data-dir", filepath.Join(dir, "data"),
			"--listen-client-urls", "http://" + c.addrs[i], "--advertise-client-urls", "http://" + c.addrs[i],
			"--listen-peer-urls", peers[i], "--initial-advertise-peer-urls", peers[i],
			"--initial-cluster", strings.Join(members, ","), "--initial-cluster-state", "new",
			"--heartbeat-interval", heartbeat, "--election-timeout", election,
			"--logger", "zap", "--log-level", "warn",
		}}
		if p.Env != nil {
			proc.Env = p.Env(i)
		}
		c.procs = append(c.procs, proc)
	}
	return c, c.startAll()
}

func (c *etcdCluster) Version() string { return c.version }

// healthy asks whether server i serves: it knows a leader, and a request went through.
func (c *etcdCluster) healthy(ctx context.Context, i int) error {
	var health struct{ Health string }
	if err := getJSON(ctx, "http://"+c.addrs[i]+"/health", &health); err != nil {
		return err
	}
	if health.Health != "true" {
		return fmt.Errorf("etcd says of its health %q", health.Health)
	}
	var version struct{ Etcdserver string }
	err := getJSON(ctx, "http://"+c.addrs[i]+"/version", &version)
	c.version = "etcd " + version.Etcdserver
	return err
}

func getJSON(ctx context.Context, url string, into any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	req.Close = true // a connection that is kept would go to a server that is restarted
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	return json.NewDecoder(resp.Body).Decode(into)
}
