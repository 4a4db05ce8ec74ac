package lossy

// What goes wrong: on a client's connection, by an admin's hand, with the server.

import (
	"context"
	"math/rand/v2"
	"path"
	"time"

	"github.com/zklock/zklock/internal/zkserver"
	"github.com/zklock/zklock/zktest"
)

// fault is one thing that befalls a client. Its do strikes, takes it back, and reports whether it happened.
type fault struct {
	name   string
	weight int
	do     func(c *client, r *rand.Rand) bool
}

func some(r *rand.Rand, most time.Duration) time.Duration {
	return time.Duration(r.Int64N(int64(most)))
}

// Creates, deletes and lists are what locking consists of; the others come with what went wrong before.
var ops = []zktest.Op{zktest.Create, zktest.Create, zktest.Delete, zktest.GetChildren, zktest.GetData, zktest.Exists, zktest.Sync,
	zktest.Multi, zktest.SetWatches, zktest.Connect, zktest.Ping, zktest.AnyOp}

func before(r *rand.Rand) zktest.Fault {
	return zktest.Before(ops[r.IntN(len(ops))]).Nth(1 + r.IntN(3))
}
func after(r *rand.Rand) zktest.Fault { return zktest.After(ops[r.IntN(len(ops))]).Nth(1 + r.IntN(3)) }

// strike sets a fault to work until it has fired, or for a while. One in three finds the client recovering from a cut.
func (c *client) strike(r *rand.Rand, f zktest.Fault) bool {
	i := c.proxy.Inject(f.Optional())
	defer i.Remove()
	if r.IntN(3) == 0 {
		c.proxy.CloseConnections()
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	return i.Wait(ctx) == nil
}

// freeze stops the client's traffic for a while, both ways.
func (c *client) freeze(d time.Duration) bool {
	c.proxy.Freeze()
	c.frozen.Store(true)
	time.Sleep(d)
	c.frozen.Store(false)
	c.proxy.Thaw()
	return true
}

// expire ends the client's ZooKeeper session at the server, and reports whether there was one.
func (c *client) expire() bool {
	id := c.session().SessionID()
	if id == 0 {
		return false
	}
	killed := c.w.ledger.Killing(c.name)
	err := zkserver.ExpireSession(c.w.srv.Addr(), id)
	killed(c.w.zxid())
	return err == nil
}

var faults = []fault{
	{"cut before a request", 16, func(c *client, r *rand.Rand) bool { return c.strike(r, before(r).Close()) }},
	{"cut after a request, before its answer", 20, func(c *client, r *rand.Rand) bool { return c.strike(r, after(r).DropReply().Close()) }},
	{"request late", 4, func(c *client, r *rand.Rand) bool { return c.strike(r, before(r).Delay(some(r, time.Second))) }},
	{"answer late", 4, func(c *client, r *rand.Rand) bool { return c.strike(r, after(r).Delay(some(r, time.Second))) }},
	{"request done, and answered with an error", 4, func(c *client, r *rand.Rand) bool {
		op := []zktest.Op{zktest.Create, zktest.Delete, zktest.Multi}[r.IntN(3)]
		return c.strike(r, zktest.After(op).Once().Fail(zktest.OperationTimeout))
	}},
	{"request refused for now", 4, func(c *client, r *rand.Rand) bool {
		op := []zktest.Op{zktest.Create, zktest.Delete, zktest.Multi, zktest.GetChildren, zktest.GetData, zktest.Sync}[r.IntN(6)]
		code := []zktest.Code{zktest.OperationTimeout, zktest.Throttled}[r.IntN(2)]
		return c.strike(r, zktest.Before(op).Times(1+r.IntN(3)).Fail(code))
	}},
	{"connection cut", 12, func(c *client, _ *rand.Rand) bool { c.proxy.CloseConnections(); return true }},
	{"connections refused", 4, func(c *client, r *rand.Rand) bool {
		refuse := c.proxy.Inject(zktest.RefuseConnections().Optional())
		defer refuse.Remove()
		c.proxy.CloseConnections()
		time.Sleep(some(r, time.Second))
		return refuse.Fired() > 0
	}},
	{"handshake stalled", 3, func(c *client, r *rand.Rand) bool {
		stall := c.proxy.Inject(zktest.StallHandshake().Optional())
		defer stall.Remove()
		c.proxy.CloseConnections()
		time.Sleep(some(r, time.Second))
		return stall.Fired() > 0
	}},
	{"bytes trickling", 4, func(c *client, r *rand.Rand) bool {
		c.slow.Store(true)
		time.Sleep(some(r, 500*time.Millisecond))
		c.slow.Store(false)
		return true
	}},
	{"event lost", 2, func(c *client, r *rand.Rand) bool {
		return c.strike(r, zktest.OnEvent(zktest.NodeDeleted).Once().Drop())
	}},
	{"event twice", 3, func(c *client, r *rand.Rand) bool {
		return c.strike(r, zktest.OnEvent(zktest.NodeDeleted).Once().Duplicate())
	}},
	{"frozen for a moment", 6, func(c *client, r *rand.Rand) bool { return c.freeze(some(r, time.Second)) }},
	{"frozen past the lease", 6, func(c *client, r *rand.Rand) bool { return c.freeze(c.session().Timeout() + some(r, time.Second)) }},
	{"session expired", 4, func(c *client, _ *rand.Rand) bool { return c.expire() }},
	{"session expired at a request", 4, func(c *client, r *rand.Rand) bool {
		f := before(r)
		if r.IntN(2) == 0 {
			f = after(r)
		}
		killed := make(chan bool, 3) // it strikes once; a fault is told of before it is through
		if !c.strike(r, f.Call(func() { killed <- c.expire() })) {
			return false
		}
		select {
		case yes := <-killed:
			return yes
		case <-time.After(soon):
			return false
		}
	}},
	{"session closed and opened anew", 3, func(c *client, _ *rand.Rand) bool { c.close(); c.open(); return true }},
}

// draw picks a fault by weight.
func draw(r *rand.Rand) fault {
	total := 0
	for _, f := range faults {
		total += f.weight
	}
	n := r.IntN(total)
	for _, f := range faults {
		if n -= f.weight; n < 0 {
			return f
		}
	}
	panic("unreachable")
}

// befall makes things go wrong for the client until ctx ends.
func (c *client) befall(ctx context.Context, r *rand.Rand) {
	for pause(ctx, some(r, 1200*time.Millisecond)) {
		if f := draw(r); f.do(c, r) {
			c.w.count(f.name)
		}
	}
}

// meddle is an admin who deletes and writes lock nodes, and empty lock roots, until ctx ends.
func (w *world) meddle(ctx context.Context, r *rand.Rand) {
	for pause(ctx, some(r, time.Second)) {
		lock := w.locks[r.IntN(len(w.locks))]
		names, _, err := w.admin.Children(lock)
		if err != nil {
			continue
		}
		if len(names) == 0 {
			if w.admin.Delete(lock, -1) == nil {
				w.count("empty lock root deleted")
			}
			continue
		}
		node := path.Join(lock, names[r.IntN(len(names))])
		if r.IntN(3) == 0 {
			if _, err := w.admin.Set(node, []byte("noise"), -1); err == nil {
				w.count("lock node written by an admin")
			}
			continue
		}
		w.ledger.Deleting(node)
		if w.admin.Delete(node, -1) == nil {
			w.count("lock node deleted by an admin")
		}
	}
}

// outages are what happens to the server: each once, in a random order, before any happens again.
var outages = []struct {
	name string
	do   func(w *world, r *rand.Rand) error
}{
	{"server stopped for a moment", func(w *world, r *rand.Rand) error { return w.suspend(some(r, time.Second)) }},
	{"server stopped for a moment", func(w *world, r *rand.Rand) error { return w.suspend(some(r, time.Second)) }},
	{"server stopped past some leases", func(w *world, r *rand.Rand) error { return w.suspend(leases[0].timeout + some(r, time.Second)) }},
	{"server killed and started", func(w *world, _ *rand.Rand) error {
		if err := w.srv.Kill(); err != nil {
			return err
		}
		return w.srv.Start()
	}},
}

func (w *world) suspend(d time.Duration) error {
	if err := w.srv.Pause(); err != nil {
		return err
	}
	time.Sleep(d)
	return w.srv.Resume()
}

// disturb causes outages until ctx ends.
func (w *world) disturb(ctx context.Context, r *rand.Rand, every time.Duration) {
	var order []int
	for pause(ctx, some(r, 2*every)) {
		if len(order) == 0 {
			order = r.Perm(len(outages))
		}
		o := outages[order[0]]
		order = order[1:]
		if err := o.do(w, r); err != nil {
			w.t.Errorf("%s: %v", o.name, err)
			return
		}
		w.count(o.name)
	}
}

// zxid returns one that the server gives now, or soon, if it is down.
func (w *world) zxid() (zxid int64) {
	if !eventually(func() bool {
		stat, err := w.admin.Set("/fenced", nil, -1)
		if err == nil {
			zxid = stat.Mzxid
		}
		return err == nil
	}) {
		w.t.Errorf("no answer from the server for %v", soon)
	}
	return zxid
}
