//go:build linux

package cutup_test

// Connections that fail, and an admin's actions, in the long run: faults of one client while the
// ensemble is partitioned.

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"path"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/internal/cutup"
	"github.com/zklock/zklock/internal/expire"
	"github.com/zklock/zklock/zktest"
)

// client is a Session of the long run, with its connection to the servers.
type client struct {
	name    string
	session *zklock.Session
	proxies map[string]*zktest.Proxy // by the server's address
	frozen  atomic.Bool              // nothing passes the proxies
}

// relay forwards connections to a port of this machine to a server, as from a host. A proxy needs
// it: it dials from the test's own network, which is on none of the hosts.
func relay(t *testing.T, from *cutup.Host, server string) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var all sync.WaitGroup
	all.Go(func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				defer near.Close()
				far, err := from.Dial("tcp", server, 5*time.Second)
				if err != nil {
					return
				}
				defer far.Close()
				var back sync.WaitGroup
				back.Go(func() { io.Copy(near, far); near.Close() })
				io.Copy(far, near)
				far.Close()
				back.Wait()
			})
		}
	})
	t.Cleanup(func() { l.Close(); all.Wait() })
	return l.Addr().String()
}

// behindProxies puts a proxy between the client and each server, and returns the dial function for
// them.
func (s *scene) behindProxies(c *client, from *cutup.Host) func(network, addr string, timeout time.Duration) (net.Conn, error) {
	c.proxies = make(map[string]*zktest.Proxy)
	for _, addr := range s.ens.Addrs() {
		c.proxies[addr] = zktest.StartProxy(s.t, relay(s.t, from, addr))
	}
	return func(network, addr string, timeout time.Duration) (net.Conn, error) {
		return net.DialTimeout(network, c.proxies[addr].Addr(), timeout)
	}
}

// each calls do for all of the client's proxies.
func (c *client) each(do func(*zktest.Proxy)) {
	for _, p := range c.proxies {
		do(p)
	}
}

// strike injects a fault, wherever the client is connected, until it has fired or for a while. One
// in three meets a client that recovers from a cut.
func (c *client) strike(r *rand.Rand, f zktest.Fault) (fired bool) {
	var set []*zktest.Injection
	c.each(func(p *zktest.Proxy) { set = append(set, p.Inject(f.Optional())) })
	if r.IntN(3) == 0 {
		c.each((*zktest.Proxy).CloseConnections)
	}
	for end := time.Now().Add(time.Second); !fired && time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		fired = slices.ContainsFunc(set, func(i *zktest.Injection) bool { return i.Fired() > 0 })
	}
	for _, i := range set {
		i.Remove()
	}
	return fired
}

// freeze stops the client's traffic for a while, both ways.
func (c *client) freeze(d time.Duration) bool {
	c.frozen.Store(true)
	c.each((*zktest.Proxy).Freeze)
	time.Sleep(d)
	c.each((*zktest.Proxy).Thaw)
	c.frozen.Store(false)
	return true
}

// Creates, deletes and lists are the normal requests; the other ones follow an earlier failure.
var ops = []zktest.Op{zktest.Create, zktest.Create, zktest.Delete, zktest.GetChildren, zktest.GetData, zktest.Exists, zktest.Sync,
	zktest.Multi, zktest.SetWatches, zktest.Connect, zktest.Ping, zktest.AnyOp}

func pick[T any](r *rand.Rand, from ...T) T { return from[r.IntN(len(from))] }

func upTo(r *rand.Rand, most time.Duration) time.Duration {
	return time.Duration(r.Int64N(int64(most)))
}

func before(r *rand.Rand) zktest.Fault { return zktest.Before(pick(r, ops...)).Nth(1 + r.IntN(3)) }
func after(r *rand.Rand) zktest.Fault  { return zktest.After(pick(r, ops...)).Nth(1 + r.IntN(3)) }

// clientFault is one fault of a client. Its do injects and removes it, and reports whether it
// struck.
type clientFault struct {
	name   string
	weight int
	do     func(l *crew, c *client, r *rand.Rand) bool
}

var clientFaults = []clientFault{
	{"cut before a request", 16, func(_ *crew, c *client, r *rand.Rand) bool { return c.strike(r, before(r).Close()) }},
	{"cut after a request, before its answer", 20, func(_ *crew, c *client, r *rand.Rand) bool { return c.strike(r, after(r).DropReply().Close()) }},
	{"request late", 4, func(_ *crew, c *client, r *rand.Rand) bool { return c.strike(r, before(r).Delay(upTo(r, time.Second))) }},
	{"answer late", 4, func(_ *crew, c *client, r *rand.Rand) bool { return c.strike(r, after(r).Delay(upTo(r, time.Second))) }},
	{"request done, and answered with an error", 4, func(_ *crew, c *client, r *rand.Rand) bool {
		return c.strike(r, zktest.After(pick(r, zktest.Create, zktest.Delete, zktest.Multi)).Once().Fail(zktest.OperationTimeout))
	}},
	{"request refused for now", 4, func(_ *crew, c *client, r *rand.Rand) bool {
		return c.strike(r, zktest.Before(pick(r, ops[:8]...)).Times(1+r.IntN(3)).Fail(pick(r, zktest.OperationTimeout, zktest.Throttled)))
	}},
	{"connections refused", 4, func(_ *crew, c *client, r *rand.Rand) bool {
		c.each((*zktest.Proxy).CloseConnections)
		return c.strike(r, zktest.RefuseConnections())
	}},
	{"handshake stalled", 3, func(_ *crew, c *client, r *rand.Rand) bool {
		c.each((*zktest.Proxy).CloseConnections)
		return c.strike(r, zktest.Before(zktest.Connect).Hold())
	}},
	{"event lost", 2, func(_ *crew, c *client, r *rand.Rand) bool {
		return c.strike(r, zktest.OnEvent(zktest.NodeDeleted).Once().Drop())
	}},
	{"event twice", 3, func(_ *crew, c *client, r *rand.Rand) bool {
		return c.strike(r, zktest.OnEvent(zktest.NodeDeleted).Once().Duplicate())
	}},
	{"frozen for a moment", 6, func(_ *crew, c *client, r *rand.Rand) bool { return c.freeze(upTo(r, time.Second)) }},
	{"frozen past the lease", 2, func(_ *crew, c *client, r *rand.Rand) bool {
		return c.freeze(c.session.Stats().SessionTimeout + upTo(r, time.Second))
	}},
	{"session expired", 4, func(l *crew, c *client, _ *rand.Rand) bool { return l.expire(c) }},
	{"session expired at a request", 4, func(l *crew, c *client, r *rand.Rand) bool {
		f := before(r)
		if r.IntN(2) == 0 {
			f = after(r)
		}
		var expired atomic.Bool
		return c.strike(r, f.Call(func() { expired.Store(l.expire(c)) })) && expired.Load()
	}},
	{"lock node deleted by an admin", 6, func(l *crew, _ *client, r *rand.Rand) bool {
		node := l.anyNode(r)
		l.Deleting(node)
		return node != "" && l.s.admin.Delete(node, -1) == nil
	}},
	{"lock node written by an admin", 3, func(l *crew, _ *client, r *rand.Rand) bool {
		node := l.anyNode(r)
		if node == "" {
			return false
		}
		_, err := l.s.admin.Set(node, []byte("noise"), -1)
		return err == nil
	}},
	{"empty lock root deleted", 3, func(l *crew, _ *client, r *rand.Rand) bool {
		return l.s.admin.Delete(pick(r, l.quick...), -1) == nil
	}},
}

// anyNode is a node of one of the quick locks, or "".
func (l *crew) anyNode(r *rand.Rand) string {
	lock := pick(r, l.quick...)
	names, _, err := l.s.admin.Children(lock)
	if err != nil || len(names) == 0 {
		return ""
	}
	return path.Join(lock, pick(r, names...))
}

// expire ends the client's ZooKeeper session as an admin, and reports whether there was a session
// and a server to do it.
func (l *crew) expire(c *client) bool {
	id := c.session.Stats().SessionID
	if id == 0 {
		return false
	}
	killed := l.Killing(c.name)
	ended := false
	for _, srv := range l.s.ens.Servers() {
		was, err := expire.Session(func(timeout time.Duration) (net.Conn, error) {
			return l.s.clients[0].Dial("tcp", srv.Addr(), timeout)
		}, id, nil)
		if err == nil {
			ended = was
			break
		}
	}
	// A later zxid: a client that took a lock before it may have lost it by this.
	for {
		stat, err := l.s.admin.Set(resources, nil, -1)
		if err == nil {
			killed(stat.Mzxid)
			return ended
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// befall injects faults into the client until ctx ends.
func (l *crew) befall(ctx context.Context, c *client, r *rand.Rand) {
	total := 0
	for _, f := range clientFaults {
		total += f.weight
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(upTo(r, time.Second)):
		}
		n := r.IntN(total)
		drawn := slices.IndexFunc(clientFaults, func(f clientFault) bool { n -= f.weight; return n < 0 })
		if f := clientFaults[drawn]; f.do(l, c, r) {
			l.count(f.name)
		}
	}
}

// resources has a node for each of the quick locks, which a holder writes only while its lock node
// exists (Hold.Checks).
const resources = "/resources"

func resource(lock string) string { return resources + "/" + path.Base(lock) }

// fenced has the confirmed writes: the tokens, by lock and by the version that the write created.
type fenced struct {
	sync.Mutex
	landed  map[string]map[int32]int64
	refused int
}

// write writes the holder's token. The result of a write without a response is unknown.
func (f *fenced) write(h *zklock.Hold, lock string, conn *zk.Conn) {
	answers, err := conn.Multi(h.Checks()[0], &zk.SetDataRequest{Path: resource(lock), Data: fmt.Append(nil, h.Token()), Version: -1})
	f.Lock()
	defer f.Unlock()
	switch {
	case errors.Is(err, zk.ErrNoNode):
		f.refused++
	case err == nil && len(answers) == 2 && answers[1].Stat != nil:
		if f.landed[lock] == nil {
			f.landed[lock] = make(map[int32]int64)
		}
		f.landed[lock][answers[1].Stat.Version] = h.Token()
	}
}

// stale returns the first write that was applied after one with a larger token, "" if there is
// none, and the number of confirmed writes.
func (f *fenced) stale() (first string, known int) {
	for lock, tokens := range f.landed {
		known += len(tokens)
		var largest int64
		for _, version := range slices.SortedFunc(maps.Keys(tokens), cmp.Compare) {
			if tokens[version] < largest && first == "" {
				first = fmt.Sprintf("%s: version %d was written with token %d, after %d", lock, version, tokens[version], largest)
			}
			largest = max(largest, tokens[version])
		}
	}
	return first, known
}

// The check of the fenced writes detects a stale write.
func TestFenced_CatchesAStaleWrite(t *testing.T) {
	f := fenced{landed: map[string]map[int32]int64{"/job": {1: 100, 2: 100, 5: 300, 6: 400}}}
	first, known := f.stale()
	require.Empty(t, first)
	require.Equal(t, 4, known)
	f.landed["/job"][8] = 300
	first, _ = f.stale()
	require.Equal(t, "/job: version 8 was written with token 300, after 400", first)
}
