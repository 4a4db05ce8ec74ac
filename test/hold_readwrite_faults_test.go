package zklock_test

// These tests throw random faults at readers, writers, writers that read and mutexes on one path (I1, I4, I5, I6).

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/internal/ledger"
	"github.com/zklock/zklock/zktest"
)

// throng is workers of a few Sessions on one path.
type throng struct {
	*virtual
	*random
	t      *testing.T
	l      *ledger.Ledger
	grants struct{ read, write, mutex, both atomic.Int64 }
	over   context.Context
}

// work takes one of the locks again and again, as one owner, and holds it for a while.
func (c *throng) work(s *zklock.Session) {
	owner := zklock.NewOwner("")
	rw, m := newRWMutex(c.t, s, "/job"), newMutex(c.t, s, "/job")
	for c.over.Err() == nil {
		time.Sleep(c.atPace(500 * time.Millisecond))
		l, counts := rw.ReadLock(), &c.grants.read
		switch c.intN(5) {
		case 0, 1:
			l, counts = rw.WriteLock(), &c.grants.write
		case 2:
			l, counts = m, &c.grants.mutex
		}
		h := c.take(s, l, owner)
		if h == nil {
			continue
		}
		counts.Add(1)
		c.dwell(h)
		var reads *zklock.Hold
		if counts == &c.grants.write && c.intN(2) == 0 {
			if reads = c.take(s, rw.ReadLock(), owner); reads != nil {
				c.grants.both.Add(1)
				c.dwell(reads)
			}
		}
		if reads != nil && c.intN(2) == 0 {
			h, reads = reads, h
		}
		c.give(h)
		if reads != nil {
			c.dwell(reads)
			c.give(reads)
		}
	}
}

// take returns nil if it gets no hold, which has a reason.
func (c *throng) take(s *zklock.Session, l zklock.Lock, owner zklock.Owner) *zklock.Hold {
	d := c.atPace(20 * time.Second)
	ctx, cancel := context.WithTimeout(zklock.WithOwner(context.Background(), owner), d)
	defer cancel()
	enter := l.Acquire
	if c.intN(4) == 0 {
		enter = l.TryAcquire
	}
	start := time.Now()
	h, err := enter(ctx)
	if took := time.Since(start); took > d+510*time.Millisecond {
		c.t.Errorf("I6: %v took %v with a context of %v", l, took, d)
	}
	switch {
	case err == nil:
		c.l.Granted("/job", fmt.Sprint(s.SessionID()), h)
		return h
	case !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, zklock.ErrNotAcquired) && !errors.Is(err, zklock.ErrNotConnected) && !errors.Is(err, zklock.ErrLost):
		c.t.Errorf("%v: %v", l, err)
	}
	return nil
}

func (c *throng) dwell(h *zklock.Hold) {
	select {
	case <-time.After(c.atPace(3 * time.Second)):
	case <-h.Lost():
	}
}

func (c *throng) give(h *zklock.Hold) {
	c.l.Ended("/job", h)
	d := c.upTo(20 * time.Second)
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	start := time.Now()
	err := h.Release(ctx)
	if took := time.Since(start); took > d+510*time.Millisecond {
		c.t.Errorf("I6: Release took %v with a context of %v", took, d)
	}
	if err != nil && !errors.Is(err, zklock.ErrLost) && !errors.Is(err, zklock.ErrNotConfirmed) {
		c.t.Errorf("Release: %v", err)
	}
}

// strike does one random fault.
func (c *throng) strike(ss []*zklock.Session) {
	s := ss[c.intN(len(ss))]
	ops := []zktest.Op{zktest.Create, zktest.Multi, zktest.Multi, zktest.Delete, zktest.GetChildren2, zktest.GetData}
	before, after := zktest.Before(ops[c.intN(len(ops))]), zktest.After(ops[c.intN(len(ops))])
	inject := func(f zktest.Fault) { c.injects(c.srv, f.Session(s.SessionID()).Once().Optional()) }
	switch c.intN(10) {
	case 0, 1:
		inject(before.Close())
	case 2, 3:
		inject(after.DropReply().Close())
	case 4:
		inject(before.Fail(zktest.OperationTimeout))
	case 5:
		inject(after.Fail(zktest.OperationTimeout))
	case 6:
		inject(before.Delay(c.upTo(3 * time.Second)))
	case 7:
		inject(after.Delay(c.upTo(3 * time.Second)))
	case 8:
		if nodes := c.srv.Children("/job"); len(nodes) > 0 && c.intN(3) == 0 {
			node := "/job/" + nodes[c.intN(len(nodes))]
			c.l.Deleting(node)
			c.strikes()
			_ = c.srv.Delete(node)
		}
	case 9:
		if c.intN(5) == 0 {
			id := s.SessionID()
			c.l.Killing(fmt.Sprint(id))
			c.strikes()
			c.srv.ExpireSession(id)
		}
	}
}

// I1, I4, I5, I6: whatever answers are lost, nodes deleted and sessions ended: readers hold together, nobody beside a writer, tokens grow
// as they should, every call ends in time, and in the end nothing is left.
func TestVirtual_ReadWrite_RandomFaults(t *testing.T) {
	randomWorlds(t, rand.Uint64N(1<<63), 3, func(t *testing.T, v *virtual, r *random) {
		v.net.SetLatency(time.Millisecond)
		over, end := context.WithTimeout(context.Background(), 10*time.Minute*r.pace)
		defer end()
		c := &throng{virtual: v, random: r, t: t, l: ledger.New(t.Errorf), over: over}
		var all sync.WaitGroup
		var ss []*zklock.Session
		for range 3 {
			ss = append(ss, v.connect())
			for range 3 {
				s := ss[len(ss)-1]
				all.Go(func() { c.work(s) })
			}
		}
		for over.Err() == nil {
			time.Sleep(c.atPace(2 * time.Second))
			c.strike(ss)
		}
		all.Wait()
		time.Sleep(time.Minute)
		require.Empty(t, v.srv.Children("/job"), "I4")
		require.Zero(t, v.srv.WatchCount(), "I7")
		g := &c.grants
		if *randomHours == 0 {
			t.Logf("seed %d: %d read locks, %d write locks, %d mutexes, %d writers that read, too", r.seed, g.read.Load(), g.write.Load(), g.mutex.Load(), g.both.Load())
		}
		require.Greater(t, min(g.read.Load(), g.write.Load(), g.mutex.Load(), g.both.Load()), int64(10), "seed %d", r.seed)
	})
}
