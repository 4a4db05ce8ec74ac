package main

// etcd servers: one, or a cluster of several on one machine.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

var etcdServers = &ServerKind{Name: "etcd", Start: func(_ context.Context, p Plan) (Cluster, error) { return startEtcd(p) }}

// etcdCluster is a Splitter if its Plan requests it.
type etcdCluster struct {
	processes
	version string
	gates   *gates
}

func startEtcd(p Plan) (*etcdCluster, error) {
	bin, err := program("etcd", "etcd-server")
	if err != nil {
		return nil, err
	}
	c := &etcdCluster{}
	c.ready, c.gates = c.healthy, newGates(c.Pids)
	c.last = syscall.SIGKILL // a leader that gets a graceful signal first waits for seconds to hand over to members that also end
	// The shortest lease that a server grants is one and a half election timeouts, rounded up to
	// seconds.
	heartbeat, election := "100", "1000" // the defaults
	if p.TTL > 0 && p.TTL < 2*time.Second {
		heartbeat, election = "50", "500"
	}
	var names, members, peers, gates []string
	for i := range p.Size {
		client, err := serverPorts.addr()
		if err != nil {
			return nil, errors.Join(err, c.Close())
		}
		peer, err := serverPorts.addr()
		if err != nil {
			return nil, errors.Join(err, c.Close())
		}
		gate := peer
		if p.Split {
			if gate, err = c.gates.add(peer); err != nil {
				return nil, errors.Join(err, c.Close())
			}
		}
		names, peers, gates = append(names, fmt.Sprintf("etcd%d", i)), append(peers, "http://"+peer), append(gates, "http://"+gate)
		c.addrs, members = append(c.addrs, client), append(members, names[i]+"="+gates[i])
	}
	for i := range p.Size {
		dir := filepath.Join(p.Dir, names[i])
		if err := os.Mkdir(dir, 0o700); err != nil {
			return nil, errors.Join(err, c.Close())
		}
		proc := &process{Path: bin, Dir: dir, Log: filepath.Join(dir, "log"), Args: []string{
			"--name", names[i], "--data-dir", filepath.Join(dir, "data"),
			"--listen-client-urls", "http://" + c.addrs[i], "--advertise-client-urls", "http://" + c.addrs[i],
			"--listen-peer-urls", peers[i], "--initial-advertise-peer-urls", gates[i],
			"--initial-cluster", strings.Join(members, ","), "--initial-cluster-state", "new",
			"--heartbeat-interval", heartbeat, "--election-timeout", election,
			"--logger", "zap", "--log-level", "warn",
		}}
		if p.Env != nil {
			proc.Env = p.Env(i)
		}
		c.procs = append(c.procs, proc)
	}
	c.gates.open()
	if err := c.startAll(); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

func (c *etcdCluster) Leads(i int) (bool, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	l, err := openEtcd(ctx, c.addrs[i:i+1], "", Options{})
	if err != nil {
		return false, err
	}
	client := l.(*etcdLock).client
	defer client.Close()
	status, err := client.Status(ctx, c.addrs[i])
	if err != nil {
		return false, err
	}
	return status.Leader == status.Header.MemberId, nil
}

// Isolate closes the connections between server i and the other servers. From then on it cannot
// apply any change.
func (c *etcdCluster) Isolate(i int) error {
	if len(c.gates.lns) == 0 {
		return errors.New("there is nothing between these servers: Plan.Split")
	}
	c.gates.isolate(i)
	return nil
}

func (c *etcdCluster) Heal() error {
	c.gates.heal()
	return nil
}

func (c *etcdCluster) Close() error {
	err := c.processes.Close()
	c.gates.close()
	return err
}

func (c *etcdCluster) Version() string { return c.version }

// healthy returns nil if server i serves: it has a leader, and a request succeeded through it.
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
	req.Close = true // a kept connection would go to a restarted server
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	return json.NewDecoder(resp.Body).Decode(into)
}
