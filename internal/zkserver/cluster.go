package zkserver

// Cluster: several servers that form an ensemble.

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// Cluster is a ZooKeeper ensemble, on 127.0.0.1 or on hosts of its own.
type Cluster struct {
	servers []*Server
}

// StartEnsemble runs n servers as an ensemble and returns when all of them serve. The caller must
// close it. Without a ZooKeeper to run, the error is ErrNotInstalled.
func StartEnsemble(n int, cfg Config) (*Cluster, error) {
	if n < 2 {
		return nil, fmt.Errorf("an ensemble of %d: use Start for a single server", n)
	}
	return startMembers(n, cfg)
}

// startMembers starts a single server or an ensemble. If another process has taken a port before
// the server binds it, startMembers tries again with other ports.
func startMembers(n int, cfg Config) (*Cluster, error) {
	in, err := findInstallation()
	if err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	for try := 1; ; try++ {
		c, err := tryMembers(in, n, cfg)
		if err == nil {
			return c, nil
		}
		taken := c.portTaken()
		if cerr := c.Close(); cerr != nil {
			return nil, errors.Join(err, cerr)
		}
		if !taken || try == startTries {
			return nil, err
		}
	}
}

// tryMembers starts the servers once. With an error it returns the servers that it started, for the
// caller to inspect and close.
func tryMembers(in installation, n int, cfg Config) (*Cluster, error) {
	c := &Cluster{}
	var all []member
	for id := 1; id <= n; id++ {
		m, err := newMember(id, cfg.Hosts)
		if err != nil {
			return c, err
		}
		all = append(all, m)
	}
	peers := all
	if n == 1 {
		peers = nil // one server.N line would still make it a quorum of one, which starts later
	}
	for _, m := range all {
		s, err := newServer(in, cfg, m, peers)
		if err != nil {
			return c, err
		}
		c.servers = append(c.servers, s)
	}
	return c, c.startAll()
}

// startAll launches all servers before it waits for the first, because none serves alone.
func (c *Cluster) startAll() error {
	for _, s := range c.servers {
		if err := s.Launch(); err != nil {
			return err
		}
	}
	for _, s := range c.servers {
		if err := s.Ready(); err != nil {
			return err
		}
		if err := s.checkVersion(); err != nil {
			return err
		}
	}
	return nil
}

func (c *Cluster) portTaken() bool {
	for _, s := range c.servers {
		if strings.Contains(s.Log(), "java.net.BindException") {
			return true
		}
	}
	return false
}

// Servers returns all members, in the order of their numbers.
func (c *Cluster) Servers() []*Server { return append([]*Server(nil), c.servers...) }

// Addrs returns the members' addresses, in the order of their numbers.
func (c *Cluster) Addrs() []string {
	var addrs []string
	for _, s := range c.servers {
		addrs = append(addrs, s.Addr())
	}
	return addrs
}

// ConnectString returns the comma-separated addresses, as clients accept them.
func (c *Cluster) ConnectString() string { return strings.Join(c.Addrs(), ",") }

// Ready returns when every member that runs and is not paused serves.
func (c *Cluster) Ready() error {
	for _, s := range c.servers {
		if !s.answering() {
			continue
		}
		if err := s.Ready(); err != nil {
			return err
		}
	}
	return nil
}

// Leader returns the leader, once a majority agrees that exactly one member leads. It waits for an
// election in progress, for at most the start timeout.
func (c *Cluster) Leader() (*Server, error) {
	leader, _, err := c.roles()
	return leader, err
}

// Followers returns the members that follow the leader and serve, under the same conditions as
// Leader.
func (c *Cluster) Followers() ([]*Server, error) {
	_, followers, err := c.roles()
	return followers, err
}

// roles polls the members until there is one leader with a majority. A deposed leader that was
// paused reports "leader" until it notices, so if two members do, roles polls again.
func (c *Cluster) roles() (*Server, []*Server, error) {
	limit := c.servers[0].cfg.StartTimeout
	deadline := time.Now().Add(limit)
	for {
		var leaders, followers []*Server
		for _, s := range c.servers {
			if !s.answering() {
				continue
			}
			switch mode, _ := s.Mode(); mode {
			case "leader":
				leaders = append(leaders, s)
			case "follower":
				followers = append(followers, s)
			}
		}
		if len(leaders) == 1 && len(followers)+1 > len(c.servers)/2 {
			return leaders[0], followers, nil
		}
		if time.Now().After(deadline) {
			return nil, nil, fmt.Errorf("no leader after %v: %d servers say they lead, %d that they follow", limit, len(leaders), len(followers))
		}
		time.Sleep(pollEvery)
	}
}

// WatchCount returns the number of watches, over all members that respond.
func (c *Cluster) WatchCount() (int, error) {
	total := 0
	for _, s := range c.servers {
		if !s.answering() {
			continue
		}
		n, err := s.WatchCount()
		if err != nil {
			return 0, err
		}
		total += n
	}
	return total, nil
}

// Close ends all members.
func (c *Cluster) Close() error {
	var errs []error
	for _, s := range c.servers {
		errs = append(errs, s.Close())
	}
	return errors.Join(errs...)
}
