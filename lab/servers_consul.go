package main

// Consul servers: one, or several on one machine. The program is built from its module:
// consul/go.mod. The servers cannot be cut off from each other: they find each other by gossip over
// UDP, which no relay of the lab carries.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
)

var consulServers = &ServerKind{Name: "consul", Start: func(_ context.Context, p Plan) (Cluster, error) { return startConsul(p) }}

type consulCluster struct {
	processes
	version string
	size    int
}

func startConsul(p Plan) (*consulCluster, error) {
	bin, err := program("consul", "", filepath.Join("..", "bin"))
	if err != nil {
		return nil, err
	}
	if bin, err = filepath.Abs(bin); err != nil {
		return nil, err
	}
	c := &consulCluster{size: p.Size}
	c.ready = c.serves
	c.last = syscall.SIGKILL // they need no graceful leave
	var all []map[string]int // the ports of each
	var gossip []string
	for range p.Size {
		ports := map[string]int{"dns": -1, "grpc": -1, "grpc_tls": -1, "serf_wan": -1}
		for _, of := range []string{"http", "server", "serf_lan"} {
			addr, err := serverPorts.addr()
			if err != nil {
				return nil, err
			}
			_, port, _ := net.SplitHostPort(addr)
			ports[of], _ = strconv.Atoi(port)
			switch of {
			case "http":
				c.addrs = append(c.addrs, addr)
			case "serf_lan":
				gossip = append(gossip, addr)
			}
		}
		all = append(all, ports)
	}
	for i, ports := range all {
		others := slices.Delete(slices.Clone(gossip), i, i+1) // a server that may join itself stops looking for others
		dir := filepath.Join(p.Dir, fmt.Sprintf("consul%d", i))
		config, err := json.Marshal(map[string]any{
			"server": true, "bootstrap_expect": p.Size, "node_name": fmt.Sprintf("consul%d", i), "data_dir": filepath.Join(dir, "data"),
			"bind_addr": "127.0.0.1", "ports": ports, "retry_join": others, "retry_interval": "200ms",
			"session_ttl_min": "1s", // 10 s by default
			"performance":     map[string]int{"raft_multiplier": 1},
			"limits":          map[string]int{"http_max_conns_per_client": 10_000}, // all clients are on one machine
			"connect":         map[string]bool{"enabled": false}, "disable_update_check": true, "log_level": "warn",
		})
		if err := errors.Join(err, os.Mkdir(dir, 0o755), os.WriteFile(filepath.Join(dir, "config.json"), config, 0o644)); err != nil {
			return nil, err
		}
		proc := &process{Path: bin, Dir: dir, Log: filepath.Join(dir, "log"), Args: []string{"agent", "-config-file", filepath.Join(dir, "config.json")}}
		if p.Env != nil {
			proc.Env = p.Env(i)
		}
		c.procs = append(c.procs, proc)
	}
	if err := c.startAll(); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

func (c *consulCluster) Version() string { return c.version }

// serves returns nil if server i serves: it has all other servers as peers, and a leader responds
// through it.
func (c *consulCluster) serves(ctx context.Context, i int) error {
	var self struct{ Config struct{ Version string } }
	if err := getJSON(ctx, "http://"+c.addrs[i]+"/v1/agent/self", &self); err != nil {
		return err
	}
	c.version = "Consul " + self.Config.Version
	var nodes []any // a consistent read
	if err := getJSON(ctx, "http://"+c.addrs[i]+"/v1/catalog/nodes?consistent", &nodes); err != nil {
		return err
	}
	if len(nodes) < c.size {
		return fmt.Errorf("%d of %d servers are in the catalog", len(nodes), c.size)
	}
	return nil
}
