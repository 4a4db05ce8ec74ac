package frames

// The scenarios of the frames: the clients' actions while frames meet faults.

import (
	"context"
	"errors"
	"path"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/zklock"
)

// frameScenario is a part of a recipe's use. The frames between begin and finish are recorded and
// meet faults.
type frameScenario struct {
	name string
	run  func(r *frameRun)
	real bool // acquire, queue, hand-over, release: also on a real server
	sasl bool // the server requires SASL
}

// ready connects the clients; the one under test has used the lock before.
func (r *frameRun) ready(clients ...*frameClient) {
	for _, c := range append([]*frameClient{r.u}, clients...) {
		ctx, cancel := c.context(r.patience())
		c.connect(ctx)
		cancel()
	}
	r.u.acquire(r.patience()).release()
}

// containers connects the clients, which have not used the lock. Its root is a container, and
// missing.
func (r *frameRun) containers(clients ...*frameClient) {
	r.root = path.Join(r.root, "new")
	r.lockOf = func(s *zklock.Session, path string) (zklock.Lock, error) {
		return zklock.NewMutex(s, path, zklock.WithContainer())
	}
	for _, c := range clients {
		ctx, cancel := c.context(r.patience())
		c.connect(ctx)
		cancel()
	}
}

// expire ends the session of the client under test from outside. The connection is closed first:
// otherwise it depends on the scheduler whether the events of the session's own end still arrive
// over it.
func (r *frameRun) expire() {
	r.proxy.CloseConnections()
	r.killNow()
}

// usersOwn makes a user's own requests over the same connection: a node, a watch, an event. A
// response, if there is one, is correct.
func (r *frameRun) usersOwn() {
	const node = "/user"
	conn := r.u.s.Conn()
	_, _ = conn.Create(node, []byte("the user's"), zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
	data, _, events, err := conn.GetW(node)
	if err == nil && string(data) != "the user's" {
		r.failf("the user reads %q", data)
	}
	gone := conn.Delete(node, -1)
	for end := time.Now().Add(r.patience()); gone != nil && !errors.Is(gone, zk.ErrNoNode) && r.u.s.Stats().State != zklock.StateClosed && time.Now().Before(end); {
		time.Sleep(100 * time.Millisecond) // virtual: a connection was lost
		gone = conn.Delete(node, -1)
	}
	if err != nil {
		return
	}
	select {
	case ev := <-events:
		if ev.Type != zk.EventNodeDeleted && ev.Type != zk.EventNotWatching {
			r.failf("the user hears of %v", ev)
		}
	case <-time.After(r.timeout / 4): // an event may be lost
	}
}

// The actions of several recipes, once the clients are ready.

func (r *frameRun) takesAndGives() {
	r.begin()
	h := r.u.acquire(r.patience())
	r.dwell()
	h.release()
	r.finish()
}

func (r *frameRun) takes() {
	r.begin()
	h := r.u.acquire(r.patience())
	r.dwell()
	r.finish(h)
}

func (r *frameRun) waits() {
	ahead := r.o.acquire(r.patience())
	r.begin()
	w := r.u.start()
	r.dwell()
	ahead.release()
	h := w.wait()
	r.dwell()
	r.finish(h)
}

func (r *frameRun) waitsInVain() {
	ahead := r.o.acquire(r.patience())
	r.begin()
	h := r.u.acquire(9*time.Second, context.DeadlineExceeded)
	if h != nil {
		r.failf("Acquire took the lock that another holds")
	}
	r.dwell()
	r.finish(h, ahead)
}

func (r *frameRun) triesInVain() {
	ahead := r.o.acquire(r.patience())
	r.begin()
	h := r.u.try(zklock.ErrNotAcquired)
	if h != nil {
		r.failf("TryAcquire took the lock that another holds")
	}
	r.finish(h, ahead)
}

// inLine has one client hold the lock and the next one queue for it, with so many nodes in total.
// Then the scene begins.
func (r *frameRun) inLine(holder, next *frameClient, nodes int) (*frameHold, *frameWait) {
	h := holder.acquire(r.patience())
	w := next.start()
	r.queued(nodes)
	r.begin()
	return h, w
}

// isHanded is granted the lock for which it queues.
func (r *frameRun) isHanded() {
	ahead, w := r.inLine(r.o, r.u, 2)
	since := time.Now()
	ahead.release()
	h := w.wait()
	r.undelayed(since)
	r.dwell()
	h.release()
	r.finish()
}

// handsOver releases the lock for which another client queues, with so many nodes in total.
func (r *frameRun) handsOver(nodes int) {
	h, w := r.inLine(r.u, r.o, nodes)
	r.dwell()
	since := time.Now()
	h.release()
	next := w.wait()
	r.undelayed(since)
	r.dwell()
	r.finish(next)
}

// handsToItself has another owner of the same session queue.
func (r *frameRun) handsToItself() {
	h, w := r.inLine(r.u, r.u.another(), 2)
	since := time.Now()
	h.release()
	next := w.wait()
	r.undelayed(since)
	r.dwell()
	next.release()
	r.finish()
}

// connects has the client under test connect, and take the lock once.
func (r *frameRun) connects() {
	r.begin()
	ctx, cancel := r.u.context(r.patience())
	defer cancel()
	r.u.connect(ctx)
	if r.u.s == nil {
		r.finish()
		return
	}
	h := r.u.acquire(r.patience())
	r.dwell()
	h.release()
	r.finish()
}

var frameScenarios = slices.Concat(mutexScenarios, semaphoreScenarios, multiScenarios, electionScenarios, saslScenarios)

var mutexScenarios = []frameScenario{
	{name: "connect, first acquire", real: true, run: (*frameRun).connects},
	{name: "first acquire, lock root and parent missing", real: true, run: func(r *frameRun) {
		r.root = path.Join(r.root, "new", "lock")
		ctx, cancel := r.u.context(r.patience())
		defer cancel()
		r.u.connect(ctx)
		r.begin()
		h := r.u.acquire(r.patience())
		r.finish(h)
	}},
	{name: "first in a new lock root", real: true, run: func(r *frameRun) {
		r.containers(r.u)
		r.takesAndGives()
	}},
	{name: "first in a new lock root, and another queues", run: func(r *frameRun) {
		r.containers(r.u, r.o)
		r.begin()
		h := r.u.acquire(r.patience())
		w := r.o.start()
		r.dwell()
		h.release()
		next := w.wait()
		r.dwell()
		r.finish(next)
	}},
	{name: "free acquire", real: true, run: func(r *frameRun) {
		r.ready()
		r.takes()
	}},
	{name: "queued acquire", real: true, run: func(r *frameRun) {
		r.ready(r.o)
		r.waits()
	}},
	{name: "hand-over, to the client", real: true, run: func(r *frameRun) {
		r.ready(r.o)
		r.isHanded()
	}},
	{name: "hand-over, by the client", real: true, run: func(r *frameRun) {
		r.ready(r.o)
		r.handsOver(2)
	}},
	{name: "the predecessor gives up", real: true, run: func(r *frameRun) {
		r.ready(r.o, r.third)
		ahead := r.o.acquire(r.patience())
		between := r.third.start(context.Canceled)
		r.queued(2)
		w := r.u.start()
		r.queued(3)
		r.begin()
		between.stop()
		between.wait()
		r.dwell()
		ahead.release()
		r.finish(w.wait())
	}},
	{name: "hand-over within the session", real: true, run: func(r *frameRun) {
		r.ready()
		r.handsToItself()
	}},
	{name: "the predecessor gives up, of the same session", run: func(r *frameRun) {
		r.ready(r.o)
		ahead := r.o.acquire(r.patience())
		between := r.u.start(context.Canceled)
		r.queued(2)
		w := r.u.another().start()
		r.queued(3)
		r.begin()
		between.stop()
		between.wait()
		r.dwell()
		ahead.release()
		h := w.wait()
		r.dwell()
		r.finish(h)
	}},
	{name: "a reader behind a writer", real: true, run: func(r *frameRun) {
		r.ready(r.o)
		r.u.readWrite(true)
		r.o.readWrite(false)
		r.waits()
	}},
	{name: "readers behind a writer of their session", run: func(r *frameRun) {
		r.ready()
		r.u.readWrite(false)
		h := r.u.acquire(r.patience())
		var readers []*frameWait
		for range 2 {
			reader := r.u.another()
			reader.m = reader.read
			readers = append(readers, reader.start())
			r.queued(1 + len(readers))
		}
		r.begin()
		h.release()
		one, other := readers[0].wait(), readers[1].wait()
		r.dwell()
		r.finish(one, other)
	}},
	{name: "a writer reads, and goes on as a reader", real: true, run: func(r *frameRun) {
		r.ready(r.o)
		r.u.readWrite(false)
		r.o.readWrite(false)
		h, w := r.inLine(r.u, r.o, 2)
		reads := h.reads()
		r.dwell()
		h.release()
		r.dwell()
		reads.release()
		next := w.wait()
		r.dwell()
		r.finish(next)
	}},
	{name: "a writer has read, and is released", run: func(r *frameRun) {
		r.ready(r.o)
		r.u.readWrite(false)
		r.o.readWrite(true)
		h := r.u.acquire(r.patience())
		h.reads().release()
		w := r.o.start()
		r.queued(3)
		r.begin()
		h.release()
		next := w.wait()
		r.dwell()
		r.finish(next)
	}},
	{name: "acquire and release with a lock-delay", run: func(r *frameRun) {
		r.ready()
		r.lockDelays(r.u)
		r.u.acquire(r.patience()).release()
		r.takesAndGives()
	}},
	{name: "hand-over with a lock-delay, by the client", run: func(r *frameRun) {
		r.ready(r.o)
		r.lockDelays(r.u, r.o)
		r.handsOver(2)
	}},
	{name: "hand-over with a lock-delay, to the client", run: func(r *frameRun) {
		r.ready(r.o)
		r.lockDelays(r.u, r.o)
		r.isHanded()
	}},
	{name: "hand-over with a lock-delay within the session", run: func(r *frameRun) {
		r.ready()
		r.lockDelays(r.u)
		r.handsToItself()
	}},
	{name: "the holder disappears, and the client waits for the lock-delay", run: func(r *frameRun) {
		r.ready(r.o)
		r.lockDelays(r.u, r.o)
		_, w := r.inLine(r.o, r.u, 2)
		session := r.o.s.Stats().SessionID
		r.excuse(session)
		r.kill(session)
		since := time.Now()
		h := w.wait()
		if took := time.Since(since); h != nil && took < frameDelay {
			r.failf("F47: granted %v after the holder disappeared", took)
		}
		r.dwell()
		r.finish(h)
	}},
	{name: "try, free", run: func(r *frameRun) {
		r.ready()
		r.begin()
		h := r.u.try()
		r.finish(h)
	}},
	{name: "try, not acquired", run: func(r *frameRun) {
		r.ready(r.o)
		r.triesInVain()
	}},
	{name: "timed-out wait", run: func(r *frameRun) {
		r.ready(r.o)
		r.waitsInVain()
	}},
	{name: "re-entry", run: func(r *frameRun) {
		r.ready()
		h := r.u.acquire(r.patience())
		r.begin()
		r.dwell()
		again := h.enter()
		r.dwell()
		if again != nil {
			h.give("Release of the re-entry", again)
		}
		r.dwell()
		h.release()
		r.finish()
	}},
	{name: "release", real: true, run: func(r *frameRun) {
		r.ready()
		h := r.u.acquire(r.patience())
		r.begin()
		h.release()
		r.dwell()
		r.finish()
	}},
	{name: "release without waiting, and the next acquire", run: func(r *frameRun) {
		r.ready()
		h := r.u.acquire(r.patience())
		r.begin()
		h.releaseAsync()
		next := r.u.acquire(r.patience())
		r.dwell()
		next.releaseAsync()
		r.finish()
	}},
	{name: "release without waiting in a new lock root, and the next acquire", run: func(r *frameRun) {
		r.containers(r.u)
		h := r.u.acquire(r.patience())
		r.begin()
		h.releaseAsync()
		next := r.u.acquire(r.patience())
		r.dwell()
		next.releaseAsync()
		r.dwell()
		r.finish()
	}},
	{name: "release without waiting, another queues, and so does the client", run: func(r *frameRun) {
		r.ready(r.o)
		h, w := r.inLine(r.u, r.o, 2)
		h.releaseAsync()
		again := r.u.start()
		next := w.wait()
		r.dwell()
		next.release()
		r.finish(again.wait())
	}},
	{name: "release without waiting within the session, and the next acquire", run: func(r *frameRun) {
		r.ready()
		h, w := r.inLine(r.u, r.u.another(), 2)
		h.releaseAsync()
		w.wait().releaseAsync()
		next := r.u.acquire(r.patience())
		r.dwell()
		next.releaseAsync()
		r.finish()
	}},
	{name: "release without waiting with a lock-delay, and the next acquire", run: func(r *frameRun) {
		r.ready()
		r.lockDelays(r.u)
		h := r.u.acquire(r.patience())
		r.begin()
		since := time.Now()
		h.releaseAsync()
		next := r.u.acquire(r.patience())
		r.undelayed(since)
		r.dwell()
		next.releaseAsync()
		r.finish()
	}},
	{name: "queued acquire and release, the user's own requests between", run: func(r *frameRun) {
		r.ready(r.o)
		ahead := r.o.acquire(r.patience())
		r.begin()
		w := r.u.start()
		r.dwell()
		r.usersOwn()
		ahead.release()
		h := w.wait()
		r.usersOwn()
		h.release()
		r.usersOwn()
		r.finish()
	}},
	{name: "Close while holding", run: func(r *frameRun) {
		r.ready(r.o)
		h, w := r.inLine(r.u, r.o, 2)
		r.u.close()
		next := w.wait()
		r.dwell()
		r.finish(h, next)
	}},
	{name: "Close while waiting", run: func(r *frameRun) {
		r.ready(r.o)
		ahead, w := r.inLine(r.o, r.u, 2)
		r.u.close()
		h := w.wait()
		if h != nil {
			r.failf("granted after Close")
		}
		r.dwell()
		r.finish(h, ahead)
	}},
	{name: "expiry while waiting, queued again", run: func(r *frameRun) {
		r.ready(r.o)
		ahead, w := r.inLine(r.o, r.u, 2)
		r.expire()
		r.dwell()
		ahead.release()
		h := w.wait()
		r.dwell()
		r.finish(h)
	}},
	{name: "expiry while holding, acquired again", run: func(r *frameRun) {
		r.ready(r.o)
		h, w := r.inLine(r.u, r.o, 2)
		r.expire()
		next := w.wait()
		r.dwell()
		h.release()
		next.release()
		r.finish(r.u.acquire(r.patience()))
	}},
}
