package command

// These tests attack ls --watch: each change is one line, at a bounded cost, whatever becomes of the connection.

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/zktest"
)

func TestWatch_Mutex_OneLineAChange(t *testing.T) {
	inWatch(t, func(t *testing.T, w *watching) {
		a := w.acquire(w.mutex("db1:1", "/locks/a"))
		w.acquire(w.mutex("db2:2", "/locks/a"))
		w.watch(nil, "/locks/a", "/locks/b", "/locks/a")
		w.says("/locks/a holds: db1, pid 1", "/locks/a waits, 2: db2, pid 2")
		require.Equal(t, []string{"zklock: /locks/b: there is no node /locks/b: no lock was ever taken there, or an unused one was removed"}, w.err.take())

		c := w.acquire(w.mutex("db3:3", "/locks/a"))
		w.says("/locks/a waits, 3: db3, pid 3")
		time.Sleep(1500 * time.Millisecond)
		c.stop()
		w.says("/locks/a gone, waited 1.5s: db3, pid 3")
		time.Sleep(500 * time.Millisecond)
		a.release()
		w.says("/locks/a gone, held 2s or longer: db1, pid 1", "/locks/a holds: db2, pid 2")
		b := w.acquire(w.mutex("db4:4", "/locks/b"))
		w.says("/locks/b holds: db4, pid 4")
		time.Sleep(2085 * time.Millisecond)
		b.release()
		w.says("/locks/b gone, held 2.085s: db4, pid 4")
		w.stop()
		require.NoError(t, <-w.ended)
		w.ended <- nil
	})
}

// Readers hold together, and a writer that reads on has two nodes.
func TestWatch_ReadWrite(t *testing.T) {
	inWatch(t, func(t *testing.T, w *watching) {
		w.watch(nil, "/rw")
		rw := func(name string) *zklock.RWMutex {
			m, err := zklock.NewRWMutex(w.connect(), "/rw", named(name))
			require.NoError(t, err)
			return m
		}
		r1, r2 := w.acquire(rw("r1").ReadLock()), w.acquire(rw("r2").ReadLock())
		writer := rw("w")
		writes := w.acquire(writer.WriteLock())
		r3 := w.acquire(rw("r3").ReadLock())
		w.says("/rw holds: r1", "/rw holds: r2", "/rw waits, 3: w", "/rw waits, 4: r3")
		r2.release()
		w.says("/rw gone, held 0s: r2")
		r1.release()
		w.says("/rw gone, held 0s: r1", "/rw holds: w")
		reads, err := writer.ReadLock().Acquire(writes.hold.Context())
		require.NoError(t, err)
		w.says("/rw holds: w")
		writes.release()
		w.says("/rw gone, held 0s: w", "/rw holds: r3")
		require.NoError(t, reads.Release(context.Background()))
		r3.release()
		w.says("/rw gone, held 0s: w", "/rw gone, held 0s: r3")
	})
}

// A call for permits is one line, whatever nodes it has: in the queue, and one for each permit.
func TestWatch_Semaphore(t *testing.T) {
	inWatch(t, func(t *testing.T, w *watching) {
		w.watch(nil, "/sem")
		require.Equal(t, []string{"zklock: /sem: there is no node /sem: no lock was ever taken there, or an unused one was removed"}, w.err.take())
		permits := func(name string, k int) zklock.Lock {
			sem, err := zklock.NewSemaphore(w.connect(), "/sem", 3, named(name))
			require.NoError(t, err)
			return sem.Permits(k)
		}
		a := w.acquire(permits("a", 2))
		_ = w.out.take() // its node in the queue may have been seen, or not
		b := w.acquire(permits("b", 2))
		w.says("/sem waits, 1: b")
		c := w.acquire(permits("c", 1))
		w.says("/sem waits, 2: c")
		time.Sleep(time.Second)
		a.release()
		w.says("/sem gone, held 1s, 2 permits: a", "/sem holds, 2 permits: b", "/sem holds: c")
		time.Sleep(time.Second)
		c.release()
		w.says("/sem gone, held 1s: c")
		b.release()
		w.says("/sem gone, held 1s, 2 permits: b")
	})
}

// The candidate's name is shown, also of LeaderLatch's nodes, which wait for each other alone.
func TestWatch_Elections(t *testing.T) {
	inWatch(t, func(t *testing.T, w *watching) {
		w.watch(nil, "/e")
		stand := func(name string, opts ...zklock.ElectionOption) (resign func()) {
			e, err := zklock.NewElection(w.connect(), "/e", append(opts, named(name))...)
			require.NoError(t, err)
			ended := make(chan error, 1)
			go func() {
				ended <- e.Campaign(context.Background(), func(ctx context.Context, _ *zklock.Hold) error { <-ctx.Done(); return nil })
			}()
			synctest.Wait()
			return func() {
				require.NoError(t, e.Resign(t.Context()))
				require.NoError(t, <-ended)
			}
		}
		a := stand("the first one", zklock.WithLatchNodes())
		b := stand("\u202eother", zklock.WithLatchNodes())
		w.says("/e holds: the first one", `/e waits, 2: "\u202eother"`)
		m := w.acquire(w.mutex("m", "/e"))
		w.says("/e holds: m")
		a()
		w.says("/e gone, held 0s: the first one", `/e holds: "\u202eother"`)
		m.release()
		b()
		w.says("/e gone, held 0s: m", `/e gone, held 0s: "\u202eother"`)
	})
}

// With a lock-delay, the lock root has a record of who holds: so a death is told from a release.
func TestWatch_LockDelay_TellsADeathFromARelease(t *testing.T) {
	inWatch(t, func(t *testing.T, w *watching) {
		w.watch(nil, "/job")
		_ = w.err.take()
		const d = 10 * time.Second
		a := w.acquire(w.mutex("a", "/job", zklock.WithLockDelay(d)))
		b := w.acquire(w.mutex("b", "/job", zklock.WithLockDelay(d)))
		w.says("/job holds: a", "/job waits, 2: b")
		a.release()
		w.says("/job gone, held 0s: a", "/job holds: b")
		w.acquire(w.mutex("c", "/job", zklock.WithLockDelay(d)))
		w.says("/job waits, 2: c")
		require.NoError(t, w.srv.Delete(b.hold.Node()))
		w.says("/job disappeared, held 0s: b")
		time.Sleep(d + time.Second)
		w.says("/job holds: c")
	})
}

// A client without a lock-delay leaves the record of a holder that died as it is. It does not wait, so ls must not say that for ever; one
// that has queued for long and waits for the delay does.
func TestLockDelay_HolderWithoutOne_AfterADeath_Holds(t *testing.T) {
	inWatch(t, func(t *testing.T, w *watching) {
		const d = time.Minute
		w.watch(nil, "/job")
		_ = w.err.take()
		lists := func() string {
			l := &lister{s: w.s, stderr: &w.err, connection: connection{servers: w.srv.Addr(), connectTimeout: time.Minute}}
			q, err := l.queue(t.Context(), "/job")
			require.NoError(t, err)
			require.Equal(t, len(q.holders) == 0, len(w.err.take()) > 0, "a line says until when nobody is granted")
			return entriesOf(q)[0].state()
		}
		a := w.acquire(w.mutex("a", "/job", zklock.WithLockDelay(d)))
		require.NoError(t, w.srv.Delete(a.hold.Node()))
		w.says("/job holds: a", "/job disappeared, held 0s: a")
		time.Sleep(time.Second)
		b := w.acquire(w.mutex("b", "/job"))
		c := w.acquire(w.mutex("c", "/job", zklock.WithLockDelay(d)))
		w.says("/job waits, 1: b", "/job waits, 2: c")
		time.Sleep(6 * time.Second)
		require.Equal(t, "holds", lists())
		w.says("/job holds: b")

		time.Sleep(time.Hour)
		b.release()
		w.says("/job gone, held 1h0m1s: b")
		require.Equal(t, "waits", lists())
		time.Sleep(d - time.Second)
		w.says()
		require.Equal(t, "waits", lists())
		c.stop() // it goes while it waits, and leaves its time in the record
		w.says("/job gone, waited 1h1m5s: c")
		w.acquire(w.mutex("e", "/job"))
		w.says("/job waits, 1: e")
		time.Sleep(7 * time.Second)
		require.Equal(t, "holds", lists())
		w.says("/job holds: e")
	})
}

// The record is read with the list: a release is no death because the record's own event is lost.
func TestWatch_LockDelay_EventOfTheRecordLost_IsNoDeath(t *testing.T) {
	inWatch(t, func(t *testing.T, w *watching) {
		w.watch(nil, "/job")
		a := w.acquire(w.mutex("a", "/job", zklock.WithLockDelay(time.Minute)))
		w.acquire(w.mutex("b", "/job", zklock.WithLockDelay(time.Minute)))
		w.says("/job holds: a", "/job waits, 2: b")
		lost := w.srv.Inject(zktest.OnEvent(zktest.NodeDataChanged).Session(w.s.SessionID()).Drop().Once())
		a.release()
		w.says("/job gone, held 0s: a", "/job holds: b")
		require.Equal(t, 1, lost.Fired())
	})
}

// A lock root that goes away and comes back, as a mutex or as another lock, is watched on.
func TestWatch_LockRoot_ComesAndGoes(t *testing.T) {
	inWatch(t, func(t *testing.T, w *watching) {
		w.watch(nil, "/locks/deep/a")
		for range 3 {
			w.acquire(w.mutex("a", "/locks/deep/a")).release()
			w.says("/locks/deep/a holds: a", "/locks/deep/a gone, held 0s: a")
			for _, path := range []string{"/locks/deep/a", "/locks/deep", "/locks"} {
				require.NoError(t, w.srv.Delete(path))
			}
			synctest.Wait()
		}
		sem, err := zklock.NewSemaphore(w.connect(), "/locks/deep/a", 1, named("s"))
		require.NoError(t, err)
		s := w.acquire(sem.Permits(1))
		time.Sleep(time.Second)
		_ = w.out.take()
		s.release()
		w.says("/locks/deep/a gone, held 1s: s")
	})
}

// What changed while no server could be reached is printed when one is, whether the session lasted or not.
func TestWatch_ConnectionLost_GoesOn(t *testing.T) {
	for _, outage := range []time.Duration{3 * time.Second, 3 * time.Minute} {
		inWatch(t, func(t *testing.T, w *watching) {
			create := func(data string) string {
				node, err := w.srv.Create("/job/lock-", []byte(data), 2)
				require.NoError(t, err)
				return node
			}
			_, err := w.srv.Create("/job", nil, 0)
			require.NoError(t, err)
			a := create("a")
			create("b")
			w.watch(nil, "/job", "/none")
			w.says("/job holds: a", "/job waits, 2: b")
			_ = w.err.take()
			was := w.s.SessionID()
			refused := w.srv.Inject(zktest.RefuseConnections())
			require.True(t, w.srv.DropConnection(was))
			time.Sleep(outage / 2)
			require.NoError(t, w.srv.Delete(a))
			create("c")
			time.Sleep(outage / 2)
			w.says()
			refused.Remove()
			time.Sleep(time.Minute)
			lines := w.out.take()
			require.Len(t, lines, 3)
			for i, want := range []string{" /job gone, held .* or longer: a ", " /job holds: b ", " /job waits, 2: c "} {
				require.Regexp(t, want, lines[i])
			}
			require.Equal(t, []string{"zklock: the connection is lost: changes are printed when a server can be reached", "zklock: connected again"}, w.err.take())
			require.Equal(t, outage > time.Minute, was != w.s.SessionID())

			for range 3 {
				require.True(t, w.srv.ExpireSession(w.s.SessionID()))
				time.Sleep(time.Minute)
			}
			create("d")
			time.Sleep(time.Second)
			require.Regexp(t, " /job waits, 3: d ", w.out.take()[0], "the watches stand")
			nodes := w.srv.Children("/job")
			slices.Sort(nodes)
			for _, node := range slices.Backward(nodes) { // or c would come to hold
				require.NoError(t, w.srv.Delete("/job/"+node))
			}
			time.Sleep(time.Second)
			lines = slices.DeleteFunc(w.out.take(), func(line string) bool { return !strings.Contains(line, "gone") })
			require.Len(t, lines, 3)
			for _, line := range lines { // b holds, and c waits, since the outage: nobody saw since when
				require.Equal(t, !strings.Contains(line, ": d "), strings.Contains(line, " or longer: "), line)
			}
			require.NotEqual(t, was, w.s.SessionID())
		})
	}
}

// The server tells nothing when the watches are set again: what changed meanwhile is found all the same.
func TestWatch_ConnectionLost_EventsLost_GoesOn(t *testing.T) {
	inWatch(t, func(t *testing.T, w *watching) {
		a := w.acquire(w.mutex("a", "/job"))
		w.watch(nil, "/job")
		w.says("/job holds: a")
		id := w.s.SessionID()
		lost := w.srv.Inject(zktest.OnEvent(zktest.NodeChildrenChanged).Session(id).Drop().Once())
		refused := w.srv.Inject(zktest.RefuseConnections())
		require.True(t, w.srv.DropConnection(id))
		time.Sleep(time.Second)
		require.NoError(t, w.srv.Delete(a.hold.Node()))
		time.Sleep(time.Second)
		refused.Remove()
		time.Sleep(time.Minute)
		require.Equal(t, 1, lost.Fired())
		require.Equal(t, id, w.s.SessionID())
		require.Len(t, w.out.take(), 1)
	})
}

// It ends when the servers refuse: with what may not be read, nobody would know what the view leaves out.
func TestWatch_Refused_Ends(t *testing.T) {
	inWatch(t, func(t *testing.T, w *watching) {
		w.srv.Inject(zktest.Before(zktest.GetChildren).Path("/b").Fail(zktest.NoAuth))
		w.watch(nil, "/a", "/b")
		err := <-w.ended
		w.ended <- nil
		require.ErrorContains(t, err, "/b: no READ permission")
		var e *exitError
		require.ErrorAs(t, err, &e)
		require.Equal(t, exitRefused, e.code)
	})
}

// A reader that does not read keeps no signal from ending it.
func TestWatch_ReaderIsSlow_EndsAllTheSame(t *testing.T) {
	inWatch(t, func(t *testing.T, w *watching) {
		w.acquire(w.mutex("a", "/a"))
		read, out := newStopped()
		defer close(read)
		w.watch(func(l *listing) { l.out = out }, "/a")
		began := time.Now()
		w.stop()
		require.NoError(t, <-w.ended)
		w.ended <- nil
		require.LessOrEqual(t, time.Since(began), time.Second)
	})
}

// What ls refuses, --watch refuses, too: without its limit, nobody can say who waits.
func TestWatch_SemaphoreLimit_NotThere_IsWrongUsage(t *testing.T) {
	inWatch(t, func(t *testing.T, w *watching) {
		_, err := w.srv.Create("/word", []byte("three"), 0)
		require.NoError(t, err)
		sem, err := zklock.NewSemaphore(w.connect(), "/sem", 3, named("a"))
		require.NoError(t, err)
		w.acquire(sem.Permits(1))
		for _, node := range []string{"/nope", "/word"} {
			l := &listing{lister: lister{s: w.connect(), stderr: &w.err, limit: node}, printer: printer{out: &w.out}}
			l.servers, l.connectTimeout = w.srv.Addr(), time.Minute
			_, want := l.lister.queue(t.Context(), "/sem")
			require.Error(t, want)
			ctx, stop := context.WithTimeout(t.Context(), time.Minute)
			err := l.watchAll(ctx, []string{"/sem"})
			stop()
			require.ErrorContains(t, err, want.Error())
			require.Equal(t, exitUsage, codeOf(want))
			require.Equal(t, exitUsage, codeOf(err))
		}
	})
}

func TestWatch_JSON_AnObjectALine(t *testing.T) {
	inWatch(t, func(t *testing.T, w *watching) {
		a := w.acquire(w.mutex("db1:1\u009b2J", "/a"))
		b := w.acquire(w.mutex("db2:2", "/a"))
		w.watch(func(l *listing) { l.asJSON = true }, "/a")
		time.Sleep(1250 * time.Millisecond)
		a.release()
		synctest.Wait()
		b.release()
		synctest.Wait()
		var got []string
		for _, line := range w.out.take() {
			require.NotContains(t, line, "\u009b")
			var c change
			require.NoError(t, json.Unmarshal([]byte(line), &c))
			took := "-"
			if c.HeldSeconds != nil {
				took = fmt.Sprint(*c.HeldSeconds)
			}
			got = append(got, fmt.Sprint(c.Path, " ", c.Change, " ", c.Holds, " ", c.Position, " ", c.Data, " ", took, " ", c.OrLonger))
			require.NotZero(t, c.Token)
			require.NotEmpty(t, c.Session)
		}
		require.Equal(t, []string{
			"/a holds true 0 db1:1\u009b2J - false", "/a waits false 2 db2:2 - false",
			"/a gone false 0 db1:1\u009b2J 1.25 true", "/a holds true 0 db2:2 - false", "/a gone false 0 db2:2 0 false",
		}, got)
	})
}
