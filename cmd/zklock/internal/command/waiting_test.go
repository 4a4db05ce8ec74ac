package command

import (
	"bytes"
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/zktest"
)

func TestWaiting_OurPosition(t *testing.T) {
	queue := []zklock.Participant{{Node: "/l/lock-0000000001", SessionID: 1, Token: 10, Holds: true}, {Node: "/l/lock-0000000002", SessionID: 2, Token: 20}, {Node: "/l/lock-0000000003", SessionID: 3, Token: 30}}
	for _, tt := range []struct {
		name           string
		queue          []zklock.Participant
		session, token int64
		want           string
		holder         int64 // token
	}{
		{"in the middle", queue, 2, 0, "number 2 of 3", 10},
		{"at the end", queue, 3, 0, "number 3 of 3", 10},
		{"known from our node, not from an older token", queue, 3, 5, "number 3 of 3", 10},
		{"gone, and where we stood is known", queue, 9, 25, "number 3 of 4", 10},
		{"gone, and we were the last", queue, 9, 35, "number 4 of 4", 10},
		{"gone, and where we stood is not known", queue, 9, 0, "3 in the queue", 10},
		{"holding", queue, 1, 0, "number 1 of 3", 20},
		{"alone", queue[:1], 1, 0, "number 1 of 1", 0},
		{"no session now: a persistent node is not ours", []zklock.Participant{{Token: 10, Holds: true}}, 0, 0, "1 in the queue", 10},
		{"nobody", nil, 9, 0, "the queue is empty", 0},
	} {
		l := lookAt(queueOf(tt.queue), tt.session, tt.token)
		require.True(t, strings.HasPrefix(l.String(), tt.want), "%s: %v", tt.name, l)
		require.Equal(t, tt.holder == 0, l.nobody, tt.name)
		require.Equal(t, tt.holder, l.holder.Token, tt.name)
		require.Equal(t, tt.holder != 0, strings.Contains(l.String(), "held by"), tt.name)
	}
	require.EqualValues(t, 7, ourNode{session: 1, token: 7}.tokenIn(1))
	require.Zero(t, ourNode{session: 1, token: 7}.tokenIn(2), "in another session we stand elsewhere")
}

// R93: of a semaphore those who hold are apart, and the place is that among those who wait. One
// call may wait with several leases, whose tokens are larger than those of nodes that came before
// it made them, and are behind. Who waits is never said to hold.
func TestWaiting_Semaphore_OurPosition(t *testing.T) {
	const id = "/sem/leases/_c_00000000-0000-0000-0000-00000000000"
	held := []zklock.Participant{{Node: id + "1-lease-0000000001", SessionID: 1, Token: 30}, {Node: id + "2-lease-0000000002", SessionID: 2, Token: 35}}
	behind := []zklock.Participant{{Node: "/sem/locks/lock-0000000002", SessionID: 3, Token: 20}}
	ours := []zklock.Participant{{Node: id + "9-lease-0000000003", SessionID: 9, Token: 40}, {Node: id + "9-lease-0000000004", SessionID: 9, Token: 41}}
	look := func(holders, waiters []zklock.Participant, session, token int64) queueLook {
		return lookAt(lockQueue{isSemaphore: true, holders: holders, waiters: waiters}, session, token)
	}

	l := look(held, slices.Concat(ours, behind), 9, 0)
	require.True(t, strings.HasPrefix(l.String(), "number 1 of 2 in the queue; held by "), l)
	require.True(t, strings.HasSuffix(l.String(), ", and 1 more"), l)
	require.False(t, l.granted)
	l = look(held, behind, 9, l.ours.tokenIn(9))
	require.True(t, strings.HasPrefix(l.String(), "number 1 of 2 in the queue; "), "gone: %v", l)
	l = look(held, slices.Concat(ours, behind), 3, 0)
	require.True(t, strings.HasPrefix(l.String(), "number 2 of 2 in the queue; held by "), l)
	l = look(held, slices.Concat(ours, behind), 7, 0)
	require.True(t, strings.HasPrefix(l.String(), "2 in the queue; held by "), l)
	l = look(nil, slices.Concat(ours, behind), 3, 0)
	require.Equal(t, "number 2 of 2 in the queue", l.String(), "the limit is 0, or was lowered below what the first wants")
	require.True(t, look(slices.Concat(held, ours), behind, 9, 0).granted)
	require.True(t, look(slices.Concat(ours, held), nil, 9, 0).granted)
}

// Who waits for a lock-delay does not hold.
func TestWaiting_LockDelay_NobodyHolds(t *testing.T) {
	q := queueOf([]zklock.Participant{{Node: "/l/lock-0000000002", SessionID: 2, DelayUntil: time.Now()}, {Node: "/l/lock-0000000003", SessionID: 3}})
	require.Equal(t, "number 2 of 2 in the queue", lookAt(q, 3, 0).String())
}

func TestFrontOf(t *testing.T) {
	names := []string{"_c_x-lock-0000000012", "config", "_c_y-lock-0000000007", "_c_z-lock--2147483648", "_c_z-lock-2147483647", "x__lock__0000000009"}
	require.Equal(t, names[2], frontOf(names))
	require.Equal(t, names[4], frontOf(names[3:5]), "past the end of the counter")
	require.Equal(t, "config", frontOf(names[1:2]))
}

// Hundreds that wait do not read what all of them have written.
func TestRun_Waiting_LongQueue_IsNotReadToItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := zktest.NewNetwork()
		srv := zktest.Start(t, zktest.WithNetwork(network))
		open := func() (*zklock.Session, *zklock.Mutex) {
			s, err := zklock.Connect(t.Context(), srv.Addr(), zklock.WithDialer(network.Dial), zklock.WithLogger(slog.New(slog.DiscardHandler)))
			require.NoError(t, err)
			t.Cleanup(func() { _ = s.Close() })
			m, err := zklock.NewMutex(s, "/locks/x", zklock.WithData([]byte("db1:4711")))
			require.NoError(t, err)
			return s, m
		}
		_, m := open()
		_, err := m.Acquire(t.Context())
		require.NoError(t, err)
		for range longQueue {
			go func() { _, _ = m.Acquire(t.Context()) }()
		}
		time.Sleep(time.Minute)

		o := &runOptions{path: "/locks/x"}
		o.servers = srv.Addr()
		s, _ := open()
		r, err := o.recipe(s, nil)
		require.NoError(t, err)
		l, err := o.look(t.Context(), s, r, ourNode{})
		require.NoError(t, err)
		require.Equal(t, 2, srv.Requests().Of(s.Stats().SessionID, zktest.GetData, zktest.GetChildren), "a list, and the holder")
		require.True(t, strings.HasPrefix(l.String(), "101 in the queue; held by db1, pid 4711, session 0x"), l)

		o.wait, o.quiet = time.Second, true
		ctx, cancel := context.WithTimeoutCause(t.Context(), o.wait, errWaited{o.wait})
		defer cancel()
		_, err = o.acquire(ctx, s, r)
		require.ErrorContains(t, o.explainAcquire(t.Context(), s, r, err), "gave up after 1s: 101 in the queue, we were number 102 when it was last listed; held by db1, pid 4711, ")
		srv.Inject(zktest.Before(zktest.GetChildren).Fail(zktest.NoAuth))
		require.ErrorContains(t, o.explainAcquire(t.Context(), s, r, err), "gave up after 1s; position 102 in the queue when it was last listed, behind /locks/x/_c_", "what is known without a look")
	})
}

// Exit code 121 reports that a client is ahead, and -E gives it another code. So it takes a server
// that has reported one: a server that does not respond to a create, or closes the connection
// instead, has not (R108).
func TestRun_WaitIsOver_121OnlyIfAServerHasReportedAClientAhead(t *testing.T) {
	for name, tt := range map[string]struct {
		flags  recipeFlags
		faults []zktest.Fault
		held   bool
		code   int
		says   string
	}{
		"it freezes at the create":        {recipeFlags{}, []zktest.Fault{zktest.Before(zktest.Create).FreezeFor(time.Minute).Once()}, false, exitNoServer, "not acquired: gave up after 6s, and it is not known whether another client holds the lock"},
		"it does not respond to creates":  {recipeFlags{}, []zktest.Fault{zktest.Before(zktest.Create).Hold()}, false, exitNoServer, "not acquired: gave up after 6s, and it is not known whether another client holds the lock"},
		"it responds to the create alone": {recipeFlags{}, []zktest.Fault{zktest.Before(zktest.GetChildren).Hold()}, false, exitNoServer, "not acquired: gave up after 6s, and it is not known whether another client holds the lock"},
		"it closes the connection":        {recipeFlags{}, []zktest.Fault{zktest.Before(zktest.Create).Close()}, false, exitNoServer, "at each request of one kind: create2, 3 times in a row"},                                                                                // R112
		"it throttles creates":            {recipeFlags{}, []zktest.Fault{zktest.Before(zktest.Create).Fail(zktest.Throttled)}, false, exitNoServer, "and it is not known whether another client holds the lock; the last response was an error: zookeeper: throttled (-127)"}, // R111
		"a client holds":                  {recipeFlags{}, nil, true, exitNotAcquired, "held by"},
		"a client has the permits":        {recipeFlags{semaphore: 1, permits: 1}, nil, true, exitNotAcquired, "held by"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				network := zktest.NewNetwork()
				srv := zktest.Start(t, zktest.WithNetwork(network))
				o := &runOptions{path: "/locks/x", recipeFlags: tt.flags, wait: 6 * time.Second, quiet: true, conflict: 77}
				o.servers = srv.Addr()
				open := func() (*zklock.Session, recipe) {
					s, err := zklock.Connect(t.Context(), srv.Addr(), zklock.WithDialer(network.Dial), zklock.WithLogger(slog.New(slog.DiscardHandler)))
					require.NoError(t, err)
					t.Cleanup(func() { _ = s.Close() })
					r, err := o.recipe(s, nil)
					require.NoError(t, err)
					return s, r
				}
				_, other := open()
				h, err := other.Acquire(t.Context()) // the lock root is there from now on
				require.NoError(t, err)
				if !tt.held {
					require.NoError(t, h.Release(t.Context()))
				}
				for _, f := range tt.faults {
					srv.Inject(f)
				}
				s, r := open()
				ctx, cancel := o.waiting(t.Context())
				defer cancel()
				_, err = o.acquire(ctx, s, r)
				err = o.explainAcquire(t.Context(), s, r, err)
				require.Equal(t, tt.code, codeOf(err), err)
				require.ErrorContains(t, err, tt.says)
				require.Equal(t, tt.held, codeOf(o.skip(err)) == 77)
			})
		})
	}
}

// The holder of a semaphore does not stand in its queue.
func TestRun_Waiting_LongQueueOfASemaphore_ReportsTheHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := zktest.NewNetwork()
		srv := zktest.Start(t, zktest.WithNetwork(network))
		o := &runOptions{path: "/sem", recipeFlags: recipeFlags{semaphore: 1, permits: 1}}
		o.servers = srv.Addr()
		open := func(data string) (*zklock.Session, recipe) {
			s, err := zklock.Connect(t.Context(), srv.Addr(), zklock.WithDialer(network.Dial), zklock.WithLogger(slog.New(slog.DiscardHandler)))
			require.NoError(t, err)
			t.Cleanup(func() { _ = s.Close() })
			r, err := o.recipe(s, []zklock.LockOption{zklock.WithData([]byte(data))})
			require.NoError(t, err)
			return s, r
		}
		_, holder := open("db1:4711")
		hold, err := holder.Acquire(t.Context())
		require.NoError(t, err)
		_, waiter := open("db2:1")
		for range longQueue + 1 {
			go func() { _, _ = waiter.Acquire(t.Context()) }()
		}
		time.Sleep(time.Minute)
		s, r := open("db3:1")
		l, err := o.look(t.Context(), s, r, ourNode{})
		require.NoError(t, err)
		require.Equal(t, 3, srv.Requests().Of(s.Stats().SessionID, zktest.GetData, zktest.GetChildren), "two lists, and the holder")
		require.True(t, strings.HasPrefix(l.String(), "101 in the queue; held by db1, pid 4711, session 0x"), l)
		require.NoError(t, hold.Release(t.Context()))
	})
}

func TestDescribe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		created, ahead := now.Add(-192*time.Second), now.Add(time.Second)
		since := func(at time.Time, age string) string {
			return ", token 42, queued since " + at.Local().Format(time.RFC3339) + " (" + age + ")"
		}
		const stays = ", not ephemeral: it stays until it is deleted (zklock delete)"
		for want, p := range map[string]zklock.Participant{
			"db1, pid 4711, session 0x10a" + since(created, "3m12s"): {Data: []byte("db1:4711"), SessionID: 0x10a, Token: 42, Created: created},
			`"192.0.2.7", session 0x10a` + since(ahead, "0s"):        {Data: []byte("192.0.2.7"), SessionID: 0x10a, Token: 42, Created: ahead}, // the servers' clock is ahead
			`"\x1b[2J"` + stays + since(now, "0s"):                   {Data: []byte("\x1b[2J"), Token: 42, Created: now},
			"/l/lock-1" + stays + since(now, "0s"):                   {Node: "/l/lock-1", Token: 42, Created: now},
		} {
			require.Equal(t, want, describe(p))
		}
		require.Less(t, len(describe(zklock.Participant{Data: bytes.Repeat([]byte("x"), 1000)})), 200)
	})
}

// A run that waits says how things stand once and then every minute, and one whose wait has ended
// says it once more.
func TestRun_Waiting_ReportsTheHolderAndOurPosition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := zktest.NewNetwork()
		srv := zktest.Start(t, zktest.WithNetwork(network))
		open := func() *zklock.Session {
			s, err := zklock.Connect(t.Context(), srv.Addr(), zklock.WithDialer(network.Dial), zklock.WithLogger(slog.New(slog.DiscardHandler)))
			require.NoError(t, err)
			t.Cleanup(func() { _ = s.Close() })
			return s
		}
		mutex := func(s *zklock.Session, data string) *zklock.Mutex {
			m, err := zklock.NewMutex(s, "/locks/x", zklock.WithData([]byte(data)))
			require.NoError(t, err)
			return m
		}
		hold, err := mutex(open(), "db1:4711").Acquire(t.Context())
		require.NoError(t, err)
		left, leave := context.WithCancel(t.Context())
		go func() { _, _ = mutex(open(), "db2:1").Acquire(left) }()
		time.Sleep(time.Minute)

		var stderr bytes.Buffer
		o := &runOptions{path: "/locks/x", stderr: &stderr, wait: 150 * time.Second}
		o.servers = srv.Addr()
		s := open()
		ours := []zklock.LockOption{zklock.WithData([]byte("db3:1"))}
		r, err := o.recipe(s, ours)
		require.NoError(t, err)
		ctx, cancel := context.WithTimeoutCause(t.Context(), o.wait, errWaited{o.wait})
		defer cancel()
		time.AfterFunc(90*time.Second, leave)
		_, err = o.acquire(ctx, s, r)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		err = o.explainAcquire(t.Context(), s, r, err)
		var exit *exitError
		require.ErrorAs(t, err, &exit)
		require.Equal(t, exitNotAcquired, exit.code)

		lines := strings.Split(strings.TrimSpace(stderr.String()), "\n")
		require.Len(t, lines, 3, "after half a second, a minute, and another: %s", &stderr)
		for i, want := range []string{"waiting: number 3 of 3 in the queue; held by db1, pid 4711, ", "waiting: number 3 of 3", "waiting: number 2 of 2"} {
			require.True(t, strings.HasPrefix(lines[i], "zklock: /locks/x: "+want), lines[i])
		}
		require.Regexp(t, `, queued since \S+ \(1m1s\)$`, lines[0])
		require.Regexp(t, `, queued since \S+ \(3m1s\)$`, lines[2])
		require.Regexp(t, `^/locks/x: not acquired: gave up after 2m30s: number 2 of 2 in the queue; held by db1, pid 4711, session 0x[0-9a-f]+, token \d+, queued since \S+ \(3m30s\)$`, err.Error())

		// Nothing is said of a wait that is over, nor of none.
		require.NoError(t, hold.Release(t.Context()))
		stderr.Reset()
		got, err := o.acquire(t.Context(), s, r)
		require.NoError(t, err)
		time.Sleep(2 * time.Minute)
		require.Empty(t, stderr.String())

		// With --quiet nothing is said of the wait. Whether to say why it ended is for skip.
		o = &runOptions{path: "/locks/x", stderr: &stderr, wait: 10 * time.Second, quiet: true}
		s = open()
		o.servers = srv.Addr()
		r, err = o.recipe(s, ours)
		require.NoError(t, err)
		ctx, cancel = context.WithTimeoutCause(t.Context(), o.wait, errWaited{o.wait})
		defer cancel()
		_, err = o.acquire(ctx, s, r)
		require.ErrorContains(t, o.explainAcquire(t.Context(), s, r, err), "number 2 of 2 in the queue; held by db3, pid 1, ")
		require.Empty(t, stderr.String())
		require.NoError(t, got.Release(t.Context()))
	})
}
