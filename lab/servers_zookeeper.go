package main

// ZooKeeper: one server or an ensemble.

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/zklock/internal/zkserver"
)

// zkTick is the servers' tick, unless an experiment has its own. Sessions expire at its multiples,
// the leader pings its followers every half tick, and a server serves its clients for some five
// ticks (syncLimit) after the last message from another server.
const zkTick = 500 * time.Millisecond

var zooKeeper = &ServerKind{Name: "zookeeper", Start: func(_ context.Context, p Plan) (Cluster, error) {
	cfg := zkserver.NewConfig(zkserver.TickTime(p.Tick), zkserver.Line("maxClientCnxns=0"))
	c := &zkCluster{}
	if p.Size == 1 {
		s, err := zkserver.Start(cfg)
		if err != nil {
			return nil, zkMissing(err)
		}
		c.servers, c.end = []*zkserver.Server{s}, s
	} else {
		if p.Split {
			if err := c.between(p.Size, &cfg); err != nil {
				return nil, errors.Join(err, c.Heal(), c.Close())
			}
		}
		all, err := zkserver.StartEnsemble(p.Size, cfg)
		if err != nil {
			return nil, errors.Join(zkMissing(err), c.Close())
		}
		c.servers, c.end = all.Servers(), all
	}
	version, err := c.servers[0].Version()
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	c.version = "ZooKeeper " + version
	return c, nil
}}

func zkMissing(err error) error {
	if errors.Is(err, zkserver.ErrNotInstalled) {
		return &Missing{Program: "ZooKeeper", Package: "libzookeeper-java libslf4j-java default-jre-headless"}
	}
	return err
}

type zkCluster struct {
	servers []*zkserver.Server
	end     io.Closer
	version string
	relays  map[[2]int]*relay // by the connecting and the called server; two for each pair: for following and for elections
	elect   map[[2]int]*relay
}

// between puts relays between the servers: each server has its own addresses for the other servers.
// Every server is on a loopback address of its own, with ZooKeeper's usual ports.
func (c *zkCluster) between(n int, cfg *zkserver.Config) error {
	c.relays, c.elect = map[[2]int]*relay{}, map[[2]int]*relay{}
	a, b := 64+rand.IntN(128), rand.IntN(256)
	ip := func(i int) string { return fmt.Sprintf("127.%d.%d.%d", a, b, i+1) }
	for i := range n {
		host := zkserver.Host{IP: ip(i)}
		for j := range n {
			if i == j {
				continue
			}
			var err error
			pair := [2]int{i, j}
			if c.relays[pair], err = startRelay(ip(j)+":2888", &traffic{}, patiently); err != nil {
				delete(c.relays, pair)
				return err
			}
			if c.elect[pair], err = startRelay(ip(j)+":3888", &traffic{}, anonymously); err != nil {
				delete(c.elect, pair)
				return err
			}
			// A later line overrides the common one.
			_, follow, _ := net.SplitHostPort(c.relays[pair].addr())
			_, elect, _ := net.SplitHostPort(c.elect[pair].addr())
			host.Lines = append(host.Lines, fmt.Sprintf("server.%d=127.0.0.1:%s:%s", j+1, follow, elect))
		}
		cfg.Hosts = append(cfg.Hosts, host)
	}
	return nil
}

// anonymously removes the sender's address from the first message of an election's connection. A
// ZooKeeper server keeps connections only to servers with smaller ids. When a server with a smaller
// id calls, the called server closes the connection, and calls back at the address in the caller's
// message, which bypasses our relays. If the message has no usable address, it calls back at the
// address in its own configuration, through a relay. (QuorumCnxManager's InitialMessage and
// handleConnection, ZooKeeper 3.8.)
func anonymously(r *relay) { r.hello = withoutAddress }

func withoutAddress(r io.Reader) ([]byte, error) {
	head := make([]byte, 8+8+4) // the message's version, the sender's id, the length of its address
	if _, err := io.ReadFull(r, head); err != nil {
		return nil, err
	}
	length := head[8+8:]
	if _, err := io.CopyN(io.Discard, r, int64(binary.BigEndian.Uint32(length))); err != nil {
		return nil, err
	}
	const none = "0.0.0.0:3888"
	binary.BigEndian.PutUint32(length, uint32(len(none)))
	return append(head, none...), nil
}

// patiently is for a follower that connects before its leader listens. If the connection is
// refused, the follower tries again a second later. If a relay accepts and then closes it, the
// follower looks for another leader, and the first one waits in vain for 10 s.
func patiently(r *relay) { r.patient = true }

func (c *zkCluster) Leads(i int) (bool, error) {
	mode, err := c.servers[i].Mode()
	return mode == "leader", err
}

// Isolate cuts the traffic between a server and the other servers, in both directions.
func (c *zkCluster) Isolate(i int) error {
	for _, all := range []map[[2]int]*relay{c.relays, c.elect} {
		for pair, r := range all {
			if pair[0] == i || pair[1] == i {
				r.cut()
			}
		}
	}
	return nil
}

func (c *zkCluster) Heal() error {
	for _, all := range []map[[2]int]*relay{c.relays, c.elect} {
		for _, r := range all {
			r.heal()
		}
	}
	return nil
}

func (c *zkCluster) Addrs() (addrs []string) {
	for _, s := range c.servers {
		addrs = append(addrs, s.Addr())
	}
	return addrs
}

func (c *zkCluster) Pids() (pids []int) {
	for _, s := range c.servers {
		pids = append(pids, s.Pid())
	}
	return pids
}

func (c *zkCluster) Version() string     { return c.version }
func (c *zkCluster) Kill(i int) error    { return c.servers[i].Kill() }
func (c *zkCluster) Stop(i int) error    { return c.servers[i].Pause() }
func (c *zkCluster) Cont(i int) error    { return c.servers[i].Resume() }
func (c *zkCluster) Restart(i int) error { return c.servers[i].Start() }

func (c *zkCluster) Close() (err error) {
	if c.end != nil {
		err = c.end.Close()
	}
	for _, all := range []map[[2]int]*relay{c.relays, c.elect} {
		for _, r := range all {
			r.close()
		}
	}
	return err
}

// The common part of the ZooKeeper systems.

type zkQuiet struct{}

func (zkQuiet) Printf(string, ...any) {}

// zkSession is a connection of go-zookeeper, with the state that its events report.
type zkSession struct {
	*zk.Conn
	mu struct {
		sync.Mutex
		expired chan struct{} // closed when the present session is known to have ended
	}
}

func zkConnect(ctx context.Context, addrs []string, timeout time.Duration) (*zkSession, error) {
	conn, events, err := zk.Connect(addrs, timeout, zk.WithLogger(zkQuiet{}))
	if err != nil {
		return nil, err
	}
	s := &zkSession{Conn: conn}
	s.mu.expired = make(chan struct{})
	ready := make(chan struct{})
	go func() { // until Close
		ready := ready
		for ev := range events {
			switch {
			case ev.State == zk.StateHasSession && ready != nil:
				close(ready)
				ready = nil
			case ev.State == zk.StateExpired:
				s.mu.Lock()
				close(s.mu.expired)
				s.mu.expired = make(chan struct{})
				s.mu.Unlock()
			}
		}
	}()
	select {
	case <-ready:
		return s, nil
	case <-ctx.Done():
		conn.Close()
		return nil, context.Cause(ctx)
	}
}

// expired returns a channel that is closed when the present session is known to have ended.
func (s *zkSession) expired() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.expired
}

// zkLeft counts the nodes below a lock's path.
func zkLeft(ctx context.Context, addrs []string, lock string) (int, error) {
	conn, err := zkConnect(ctx, addrs, 10*time.Second)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	_, stat, err := conn.Exists("/" + lock)
	if err != nil || stat == nil || stat.Ctime == 0 {
		return 0, err
	}
	return int(stat.NumChildren), nil
}

// zkBreak deletes the first node below a lock's path, as any client with the permission to delete
// may.
func zkBreak(ctx context.Context, addrs []string, lock string) (bool, error) {
	conn, err := zkConnect(ctx, addrs, 10*time.Second)
	if err != nil {
		return false, err
	}
	defer conn.Close()
	children, _, err := conn.Children("/" + lock)
	if err != nil {
		return false, err
	}
	first, least := "", int64(0)
	for _, c := range children {
		n, err := strconv.ParseInt(c[max(0, len(c)-10):], 10, 64)
		if err != nil {
			n = 0 // the naive lock has a single node without a number
		}
		if first == "" || n < least {
			first, least = c, n
		}
	}
	if first == "" {
		return false, errors.New("nobody holds")
	}
	return true, conn.Delete("/"+lock+"/"+first, -1)
}

var noLog = slog.New(slog.DiscardHandler)
