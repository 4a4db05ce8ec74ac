package zktest

// One address that clients connect to, and the state of the ZooKeeper process behind it: its copy
// of the nodes, and its watches. A single server has one endpoint; an ensemble has several, which
// share one state.

import (
	"cmp"
	"crypto/tls"
	"fmt"
	"net"
	"sync"
	"time"
)

type endpoint struct {
	c    *cluster
	id   int // 1 and up, as in zoo.cfg
	addr string

	// lifecycle serialises Start and Stop. It is locked only outside the loop, before a call into
	// it.
	lifecycle sync.Mutex
	wg        sync.WaitGroup // accept loop, readers and writers of this run

	stop struct {
		sync.Mutex               // a leaf
		ch         chan struct{} // closed by Stop; a new one for every Start
	}

	// Owned by the loop.
	listener  net.Listener // nil while stopped
	conns     map[*conn]struct{}
	connsFrom map[string]int  // how many, by the client's host
	attached  map[int64]*conn // by session
	tree      *tree           // the cluster's own, on a single server
	zxid      int64           // of the last transaction applied here

	stats     serverStats
	traceMask int64 // returned by gtmk; nothing is traced

	nextSession int64
	data        *watchTable
	child       *watchTable
	replica     *replica // the state of a member of an ensemble; nil on a single server
}

func newEndpoint(c *cluster, id int) *endpoint {
	return &endpoint{
		traceMask:   306,
		nextSession: firstSessionID(int64(id), c.epoch),
		c:           c, id: id, conns: make(map[*conn]struct{}), connsFrom: make(map[string]int), attached: make(map[int64]*conn), tree: c.tree, zxid: c.zxid,
		addr: c.cfg.addrs[id-1],
		data: newWatchTable(c.cfg), child: newWatchTable(c.cfg),
	}
}

func (ep *endpoint) stopping() <-chan struct{} {
	ep.stop.Lock()
	defer ep.stop.Unlock()
	return ep.stop.ch
}

// start listens, on the same address each time.
func (ep *endpoint) start() error {
	ep.lifecycle.Lock()
	defer ep.lifecycle.Unlock()
	if isClosed(ep.c.closing) {
		return fmt.Errorf("zktest: the server is closed")
	}
	running := false
	ep.c.call(func() { running = ep.listener != nil })
	if running {
		return nil
	}
	ln, err := ep.c.cfg.listen(ep.addr)
	if err != nil {
		return fmt.Errorf("zktest: %w", err)
	}
	if ep.c.cfg.tls != nil {
		ln = tls.NewListener(ln, ep.c.cfg.tls)
	}
	// Only the first time: later, other goroutines may be reading it.
	if addr := ln.Addr().String(); ep.addr != addr {
		ep.addr = addr
	}
	ep.stop.Lock()
	ep.stop.ch = make(chan struct{})
	ep.stop.Unlock()
	ep.c.call(func() {
		ep.listener = ln
		ep.stats = newServerStats(time.Now())
		if q := ep.c.quorum; q != nil {
			q.started(ep)
		} else {
			ep.c.touchAll()
		}
	})
	ep.wg.Go(func() { ep.accept(ln) })
	return nil
}

// listen opens an address of the network or of TCP; an empty one is any.
func (c config) listen(addr string) (net.Listener, error) {
	if c.network != nil {
		return c.network.Listen(addr)
	}
	return net.Listen("tcp", cmp.Or(addr, "127.0.0.1:0"))
}

// halt closes the listener and all connections, and returns when their goroutines have ended.
func (ep *endpoint) halt() {
	ep.lifecycle.Lock()
	defer ep.lifecycle.Unlock()
	var ln net.Listener
	ep.c.call(func() {
		if ln = ep.listener; ln == nil {
			return
		}
		ep.listener = nil
		ep.stop.Lock()
		close(ep.stop.ch)
		ep.stop.Unlock()
		if q := ep.c.quorum; q != nil {
			q.stopped(ep)
		}
		for c := range ep.conns {
			ep.c.forget(c)
		}
	})
	if ln == nil {
		return
	}
	ln.Close()
	ep.wg.Wait()
}

// accept passes every connection to the loop, which starts its goroutines.
func (ep *endpoint) accept(ln net.Listener) {
	for {
		nc, err := ln.Accept()
		if err != nil {
			return
		}
		if v := ep.c.faults.match(happening{when: onAccept, member: ep.id}); v.close {
			nc.Close()
			continue
		}
		c := &conn{ep: ep, nc: nc, closed: make(chan struct{}), out: outQueue{ready: make(chan struct{}, 1)}}
		select {
		case ep.c.inbox <- message{kind: msgAccepted, conn: c}:
		case <-ep.stopping():
			nc.Close()
		case <-ep.c.done:
			nc.Close()
		}
	}
}
