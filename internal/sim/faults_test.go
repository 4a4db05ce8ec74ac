package sim

// The simulation's faults of servers and clients.

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/zklock/zktest"
)

// simFaults injects realistic faults into a world, into its servers and its clients at the same
// time, and leaves it healthy.
type simFaults struct {
	w         *world
	open      []injected
	meanwhile sync.WaitGroup // what faults have begun
}

type injected struct {
	what string
	*zktest.Injection
}

func (f *simFaults) did(what string) {
	f.w.mu.Lock()
	defer f.w.mu.Unlock()
	f.w.sum.faults[what]++
}

// plan records the next fault: everything that a seed decides.
func (f *simFaults) plan(format string, args ...any) {
	f.w.mu.Lock()
	defer f.w.mu.Unlock()
	f.w.plan = append(f.w.plan, fmt.Sprintf("%v ", time.Since(f.w.start))+fmt.Sprintf(format, args...))
}

func upTo(r *rand.Rand, d time.Duration) time.Duration { return time.Duration(r.Int64N(int64(d))) }

// atServers injects faults of servers and of the network between them.
func (f *simFaults) atServers(ctx context.Context, r *rand.Rand) {
	ens, net := f.w.ens, f.w.net
	for pause(ctx, upTo(r, f.w.kind.calm)) {
		member, d, what := ens.Member(1+r.IntN(3)), upTo(r, 40*time.Second), r.IntN(12)
		f.plan("server %d: %d for %v", member.ID(), what, d)
		switch what {
		case 0, 1:
			what := "follower cut off"
			if ens.Leader() == member {
				what = "leader cut off"
			}
			f.did(what)
			member.Isolate()
			pause(ctx, d)
			ens.Heal()
		case 2: // the deposed leader still believes that it leads
			if leader := ens.Leader(); leader != nil {
				f.did("leader cut off")
				leader.Isolate()
				pause(ctx, d)
				ens.Heal()
			}
		case 3:
			f.did("no majority")
			ens.Partition([]int{1}, []int{2}, []int{3})
			pause(ctx, d)
			ens.Heal()
		case 4:
			f.did("server stopped")
			member.Stop()
			pause(ctx, d)
			if err := member.Start(); err != nil {
				f.w.failf("%v", err)
			}
		case 5:
			f.did("election")
			ens.Elect()
		case 6:
			if ens.Leader() != member { // a leader does not lag
				f.did("lagging reads")
			}
			member.SetLag(d / 20)
		case 7:
			if member.LoseTouches() > 0 {
				f.did("touches forgotten")
			}
		case 8:
			f.did("ensemble frozen")
			ens.Freeze()
			pause(ctx, d/4)
			ens.Thaw()
		case 9:
			f.did("server out of clients' reach")
			net.Partition(member.Addr())
			pause(ctx, d)
			net.Heal(member.Addr())
		case 10:
			f.did("latency spike")
			net.Partition(member.Addr())
			pause(ctx, d/20)
			net.Heal(member.Addr())
		case 11:
			f.did("slower network") // of connections from now on
			net.SetLatency(time.Millisecond + d/800)
		}
	}
	ens.Heal()
	for id := 1; id <= 3; id++ {
		ens.Member(id).SetLag(0)
	}
	net.SetLatency(time.Millisecond)
}

// atClients injects faults of clients and their connections, and of admins that change their nodes.
func (f *simFaults) atClients(ctx context.Context, r *rand.Rand) {
	ens, net := f.w.ens, f.w.net
	ops := []zktest.Op{zktest.Create, zktest.Delete, zktest.GetChildren, zktest.GetData, zktest.Exists, zktest.Sync, zktest.Multi, zktest.SetWatches, zktest.AnyOp}
	for pause(ctx, upTo(r, f.w.kind.calm)) {
		c, d := f.w.client[r.IntN(len(f.w.client))], upTo(r, 40*time.Second)
		roots := f.w.roots()
		lock, op, nth, what, which := roots[r.IntN(len(roots))], ops[r.IntN(len(ops))], 1+r.IntN(3), r.IntN(20+f.w.kind.more()), r.IntN(1<<20)
		f.plan("client %d: %d for %v, %s, %d of %v, %d", c.id, what, d, lock, nth, op, which)
		id, names := c.session().Stats().SessionID, ens.Children(lock)
		inject := func(what string, fault zktest.Fault) {
			if id != 0 {
				f.open = append(f.open, injected{what, ens.Inject(fault.Session(id).Optional())})
			}
		}
		switch what {
		case 0, 1:
			if ens.DropConnection(id) {
				f.did("connection cut")
			}
		case 2:
			f.kill(id)
		case 3:
			f.did("client cut off")
			net.Partition(c.host)
			pause(ctx, d)
			net.Heal(c.host)
		case 4, 5:
			f.did("client paused")
			c.pauseFor(ctx, d)
		case 6:
			if ens.MoveSession(id) {
				f.did("session moved")
			}
		case 7:
			if len(names) > 0 && ens.Delete(path.Join(lock, names[which%len(names)])) == nil {
				f.did("lock node deleted")
			}
		case 8:
			if len(names) > 0 && ens.SetData(path.Join(lock, names[which%len(names)]), []byte("noise")) == nil {
				f.did("lock node written")
			}
		case 9:
			if c.restarting() {
				f.did("client restarted")
				f.meanwhile.Go(c.restart)
			}
		case 10, 11:
			inject("cut before a request", zktest.Before(op).Nth(nth).Close())
		case 12, 13, 14:
			inject("reply lost", zktest.After(op).Nth(nth).DropReply().Close())
		case 15:
			inject("event lost", zktest.OnEvent(zktest.NodeDeleted).Path("/locks/*/*").Drop().Once())
		case 16:
			inject("event twice", zktest.OnEvent(zktest.NodeDeleted).Duplicate().Once())
		case 17:
			inject("reply late", zktest.After(op).Nth(nth).Delay(d/4))
		case 18:
			f.did("answers lost")
			c.way.LoseAnswers()
			pause(ctx, 2*d)
			c.way.Heal()
		case 19:
			f.did("answers late")
			c.way.DelayAnswers(d / 4)
			c.way.Cut()
			pause(ctx, d)
			c.way.Heal()
		default:
			f.atRecipe(ctx, c, id, lock, which, d)
		}
		f.settleInjections(16)
	}
	f.settleInjections(0)
	f.meanwhile.Wait()
	for i := range f.w.locks {
		if f.w.kind.recipe == permits {
			if err := f.w.setLimit(i, usualLimit); err != nil {
				f.w.failf("%v", err)
			}
		}
	}
}

// more is how many faults a recipe adds to those of clients.
func (k worldKind) more() (n int) {
	if k.denies {
		n += 6
	}
	if k.recipe == permits || k.recipe == delayed {
		n += 6
	}
	return n
}

// atRecipe injects a fault that concerns one recipe.
func (f *simFaults) atRecipe(ctx context.Context, c *client, id int64, root string, which int, d time.Duration) {
	w := f.w
	switch {
	case w.kind.denies && which%2 == 0:
		f.did("requests denied")
		perm := []int32{zk.PermRead, zk.PermRead, zk.PermWrite, zk.PermCreate, zk.PermDelete}[which/2%5]
		if names := w.ens.Children(root); len(names) > 0 && which/2%7 == 0 {
			root, perm = path.Join(root, names[which%len(names)]), zk.PermRead
		}
		f.meanwhile.Go(func() { c.denies(ctx, root, perm, d) })
	case w.kind.denies && which%4 == 1 && id != 0:
		queue := root
		if w.kind.recipe == permits {
			queue, root = path.Join(path.Dir(root), "locks"), path.Join(path.Dir(root), "leases")
		}
		other := w.client[(c.id+1)%len(w.client)] // which is still connected
		fault := zktest.After(zktest.Multi).Session(id).Path(root + "/*").Call(func() {
			f.meanwhile.Go(func() { other.denies(ctx, root, zk.PermRead, d) })
			if which%8 == 1 {
				f.meanwhile.Go(func() { other.denies(ctx, queue, zk.PermDelete, d) })
			}
		})
		f.open = append(f.open, injected{"reply lost, then requests denied", w.ens.Inject(fault.DropReply().Close().Once().Optional())})
	case w.kind.recipe == permits:
		lock := which / 4 % len(w.locks)
		if err := w.setLimit(lock, which/8%(mostLimit+1)); err == nil {
			f.did("limit changed")
		}
	case w.kind.recipe == delayed:
		f.did("another word written")
		f.meanwhile.Go(func() {
			conn := c.session().Conn()
			if data, stat, err := conn.Get(root); err == nil {
				_, _ = conn.Set(root, []byte(withWord(string(data), fmt.Sprint("n=", which))), stat.Version)
			}
		})
	}
}

// denies takes a permission on a node from all clients, and restores it, also if it cannot
// determine whether it took it.
func (c *client) denies(ctx context.Context, node string, perm int32, d time.Duration) {
	for end := time.Now().Add(time.Minute); ; { // until it is denied; the client may be cut off
		_, err := c.session().Conn().SetACL(node, zk.WorldACL(zk.PermAll&^perm), -1)
		if errors.Is(err, zk.ErrNoNode) {
			return
		}
		if err == nil || time.Now().After(end) {
			break
		}
		time.Sleep(time.Second)
	}
	pause(ctx, d)
	for {
		_, err := c.session().Conn().SetACL(node, zk.WorldACL(zk.PermAll), -1)
		if err == nil || errors.Is(err, zk.ErrNoNode) {
			return
		}
		time.Sleep(time.Second)
	}
}

// settleInjections ends all but the last faults at frames, and counts those that fired.
func (f *simFaults) settleInjections(keep int) {
	for len(f.open) > keep {
		i := f.open[0]
		f.open = f.open[1:]
		i.Remove()
		for range i.Fired() {
			f.did(i.what)
		}
	}
}

// kill ends a session although its client is healthy, which no lease can foresee.
func (f *simFaults) kill(id int64) {
	w := f.w
	if w.ens.ExpireSession(id) {
		w.mu.Lock()
		w.rec.killed = append(w.rec.killed, id)
		w.mu.Unlock()
		f.did("session killed")
	}
}

// pauseFor stops the process as SIGSTOP does: its clock stops, incoming data is kept for it, and no
// goroutine acts. Timers of the library still fire, and find that nothing is due.
func (c *client) pauseFor(ctx context.Context, d time.Duration) {
	w := c.w
	p := lapse{client: c.id, from: w.order()}
	c.mu.Lock()
	c.mu.paused, c.mu.resumed = time.Now(), make(chan struct{})
	c.mu.Unlock()
	w.net.Partition(c.host)
	pause(ctx, d)

	c.mu.Lock()
	c.mu.paused = time.Time{}
	var holds []*op
	for g := range c.mu.grants {
		holds = append(holds, g)
	}
	c.mu.Unlock()
	for _, g := range holds { // the first check, before any frame arrives
		if h := c.holdOf(g); h != nil && h.Err() != nil {
			w.told(g)
		}
	}
	p.to = w.order()
	w.mu.Lock()
	w.rec.pauses = append(w.rec.pauses, p)
	w.mu.Unlock()
	w.net.Heal(c.host)
	c.mu.Lock()
	close(c.mu.resumed)
	c.mu.Unlock()
}

// restarting reports whether the process can be restarted, and marks it as restarting.
func (c *client) restarting() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.restarting {
		return false
	}
	c.mu.restarting = true
	return true
}

// restart closes the Session under its workers and connects again.
func (c *client) restart() {
	c.close()
	if err := c.connect(); err != nil {
		c.w.failf("connect: %v", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.restarting = false
}
