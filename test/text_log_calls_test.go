package zklock_test

// These are the scenes of TestVirtual_LogOnce about calls and holds. Each attacks how often the log
// has one message.

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/zktest"
)

const (
	stillWaiting      = "zklock: still waiting for the lock"
	morePermits       = "zklock: more permits are in use than this semaphore has"
	holderDisappeared = "zklock: the holder disappeared; no client is granted before the end of the lock-delay"
)

// callsInLog are the scenes about calls and holds.
var callsInLog = []logScene{
	{"each hold that many release, although no server confirms it", "zklock: released", releasedByMany},
	{"each release that no call awaits and no server confirms", "zklock: release not confirmed", func(x *logged) []string {
		holds := x.tenHolds(x.session())
		stuck := x.srv.Inject(zktest.Before(zktest.Delete).Fail(zktest.OperationTimeout))
		for _, h := range holds {
			require.NoError(x.t, h.ReleaseAsync())
			require.NoError(x.t, h.ReleaseAsync())
		}
		time.Sleep(time.Minute)
		stuck.Remove()
		time.Sleep(10 * time.Second)
		return saidNodes(holds)
	}},
	{"each hold that no caller gets, because a trace ended the goroutine", "zklock: released", func(x *logged) []string {
		ends := &zklock.Trace{AcquireEnd: func(context.Context, zklock.AcquireEndInfo) { runtime.Goexit() }}
		s, err := zklock.Connect(within(x.t, soon), x.srv.Addr(), zklock.WithDialer(x.net.Dial), zklock.WithTrace(ends), lines(&x.log, slog.LevelDebug))
		require.NoError(x.t, err)
		defer s.Close()
		paths, said := tenPaths()
		var calls sync.WaitGroup
		for _, path := range paths {
			calls.Go(func() { _, _ = newMutex(x.t, s, path).Acquire(x.t.Context()) })
		}
		calls.Wait()
		x.log.once(x.t, "zklock: granted", said...)
		return said
	}},
	{"each long wait after one, two and four minutes, whatever part of its connection and session ends", stillWaiting, longWaits},
	{"each disappeared holder", holderDisappeared, func(x *logged) []string {
		return append(x.holderDisappears("/job/tried", true), x.holderDisappears("/job", false)...)
	}},
	{"each leadership that a candidate lost", "zklock: campaigning again", func(x *logged) []string {
		s := x.session()
		paths, said := tenPaths()
		var cs []*candidate
		for _, path := range paths {
			cs = append(cs, x.stand(newElection(x.t, s, path, "a"), untilItEnds))
		}
		for round := range 3 {
			var holds []*zklock.Hold
			for _, c := range cs {
				holds = append(holds, c.hold.Load())
			}
			stop := lookAt(s, holds...)
			x.srv.ExpireSession(s.Stats().SessionID)
			time.Sleep(time.Minute)
			stop()
			x.log.once(x.t, "zklock: campaigning again", slices.Repeat(said, round+1)...)
		}
		return slices.Repeat(said, 3)
	}},
	{"each path where other clients use too many permits, once in each Session", morePermits, func(x *logged) (want []string) {
		var other warnings
		s, s2, holder := x.session(), x.connect(lines(&other, slog.LevelWarn)), x.connect()
		for i := range 3 {
			path := fmt.Sprintf("/job/%d", i)
			want = append(want, "path="+path)
			take(x.t, newSemaphore(x.t, holder, path, 4).Permits(4))
			for range 5 {
				x.lineUp(newSemaphore(x.t, s, path, 2).Permits(1)).stop()
				w := x.lineUp(newSemaphore(x.t, s, path, 2).Permits(1))
				time.Sleep(time.Second)
				w.stop()
				<-w.done
				x.lineUp(newSemaphore(x.t, s2, path, 2).Permits(1))
				x.restarts(1, 2*time.Second)
			}
		}
		time.Sleep(time.Minute)
		other.once(x.t, morePermits, want...)
		return want
	}},
	{"each panic of a trace", "zklock: a function of a Trace panicked", func(x *logged) (want []string) {
		s := x.session(zklock.WithTrace(&zklock.Trace{
			AcquireStart: func(_ context.Context, a zklock.AcquireInfo) context.Context { panic("start " + a.Path) },
			HoldLost:     func(_ context.Context, h zklock.HoldInfo) { panic("lost " + h.Path) },
			HoldEnd:      func(_ context.Context, h zklock.HoldInfo) { panic("end " + h.Path) },
		}))
		holds := x.tenHolds(s)
		defer lookAt(s, holds...)()
		x.srv.ExpireSession(s.Stats().SessionID)
		for _, h := range holds {
			<-h.Lost()
			want = append(want, `panic="start `+h.Path()+`"`, `panic="lost `+h.Path()+`"`, `panic="end `+h.Path()+`"`)
		}
		releaseAtOnce(x.t, soon, holds...)
		return want
	}},
}

// releasedByMany has holds released by many goroutines after connections have ended, while no
// server responds.
func releasedByMany(x *logged) []string {
	x.net.SetLatency(time.Millisecond)
	s := x.session()
	holds, more := x.manyHolds(s)
	for range 2 {
		x.srv.Inject(zktest.Before(zktest.Multi).Session(s.Stats().SessionID).Close().Once())
		time.Sleep(10 * time.Second)
	}
	x.srv.Freeze()
	releaseAtOnce(x.t, 100*time.Millisecond, append(more, holds...)...)
	x.log.once(x.t, "zklock: released", saidNodes(holds)...)
	x.srv.Thaw()
	time.Sleep(time.Minute)
	x.log.once(x.t, "zklock: granted", saidNodes(holds)...)
	require.Empty(x.t, x.log.of("zklock: hold lost"))
	return saidNodes(holds)
}

func longWaits(x *logged) []string {
	s := x.session()
	x.tenHolds(x.connect())
	paths, said := tenPaths()
	for _, path := range paths {
		x.queueUp(newMutex(x.t, s, path))
	}
	x.restarts(10, 25*time.Second)
	x.log.once(x.t, "zklock: queued", said...)
	x.srv.ExpireSession(s.Stats().SessionID)
	time.Sleep(20 * time.Second)
	x.log.once(x.t, "zklock: queued", slices.Repeat(said, 2)...)
	for _, waited := range []string{"waited=1m0s", "waited=2m0s", "waited=4m0s"} {
		require.Equal(x.t, len(paths), having(x.log.of(stillWaiting), waited), waited)
	}
	return slices.Repeat(said, 3)
}

// holderDisappears has calls begin and end until the lock-delay has ended, and their connections
// end.
func (x *logged) holderDisappears(path string, tryFirst bool) []string {
	gone, s := x.connect(), x.session()
	m := newMutex(x.t, s, path, zklock.WithLockDelay(lockDelay))
	held := acquire(x.t, newMutex(x.t, gone, path, zklock.WithLockDelay(lockDelay)))
	try := func() {
		_, err := m.TryAcquire(within(x.t, soon))
		require.ErrorIs(x.t, err, zklock.ErrNotAcquired)
	}
	if tryFirst {
		x.srv.ExpireSession(gone.Stats().SessionID)
		try()
	}
	var ws []*waiting
	for range 5 {
		ws = append(ws, x.queueUp(m))
	}
	x.srv.ExpireSession(gone.Stats().SessionID)
	time.Sleep(time.Second)
	for _, w := range ws[:4] {
		x.restarts(1, 2*time.Second)
		try()
		w.stop()
		<-w.done
		time.Sleep(2 * time.Second)
	}
	h := ws[4].granted2(x.t, 2*lockDelay)
	require.Equal(x.t, 1, having(x.log.of(holderDisappeared), "path="+path))
	require.NoError(x.t, x.srv.Delete(h.Node()))
	x.queueUp(m)
	return []string{"holder=" + base(held.Node()), "holder=" + base(h.Node())}
}
