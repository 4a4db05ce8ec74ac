package integration

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/internal/ledger"
	"github.com/zklock/zklock/internal/zkserver"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		// The idle connections of the Docker client.
		goleak.IgnoreAnyFunction("net/http.(*persistConn).readLoop"),
		goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop"))
}

const lockPath = "/locks/job"

// longer than every step here; a test that waits so long has failed
const patience = 90 * time.Second

// lease fits the tick of the servers here: the leader pings within two of them.
func lease() zklock.Option { return zklock.WithLease(zklock.QuorumLease(2 * tick)) }

type quiet struct{}

func (quiet) Printf(string, ...any) {}

// connect returns a plain client with a session.
func connect(t *testing.T, servers string, timeout time.Duration) *zk.Conn {
	t.Helper()
	conn, _, err := zk.Connect(strings.Split(servers, ","), timeout, zk.WithLogger(quiet{}))
	require.NoError(t, err)
	t.Cleanup(conn.Close)
	within(t, 30*time.Second, "a session at "+servers, func() bool { return conn.State() == zk.StateHasSession })
	return conn
}

// within fails the test if the condition is not true in time.
func within(t *testing.T, d time.Duration, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(d); !condition(); time.Sleep(pollEvery) {
		require.True(t, time.Now().Before(deadline), "not within %v: %s", d, what)
	}
}

// session connects, and closes with the test.
func session(t *testing.T, servers string, timeout time.Duration) *zklock.Session {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	s, err := zklock.Connect(ctx, servers, lease(), zklock.WithSessionTimeout(timeout),
		zklock.WithLogger(slog.New(slog.NewTextHandler(testLog{t}, nil))))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	require.Equal(t, timeout, s.Timeout(), "the servers grant what is asked")
	return s
}

// testLog writes what a Session logs to the test's log. Close waits for the Session's last
// goroutine, and runs in a clean-up, so nothing is written after the test.
type testLog struct{ t *testing.T }

func (l testLog) Write(p []byte) (int, error) {
	l.t.Logf("%s", strings.TrimSuffix(string(p), "\n"))
	return len(p), nil
}

var _ io.Writer = testLog{}

func mutex(t *testing.T, s *zklock.Session) *zklock.Mutex {
	t.Helper()
	m, err := zklock.NewMutex(s, lockPath)
	require.NoError(t, err)
	return m
}

func acquire(t *testing.T, s *zklock.Session) *zklock.Hold {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	hold, err := mutex(t, s).Acquire(ctx)
	require.NoError(t, err)
	return hold
}

func release(t *testing.T, hold *zklock.Hold) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	require.NoError(t, hold.Release(ctx))
}

// grant is the result of an Acquire on another goroutine.
type grant struct {
	hold *zklock.Hold
	err  error
	// before is the state of the earlier hold when Acquire had just returned. By promise I5 it was
	// an error by then: its holder is notified before the next grant.
	before error
}

// waiter queues behind the hold and returns when its node is in the queue.
func waiter(t *testing.T, s *zklock.Session, ahead *zklock.Hold) <-chan grant {
	t.Helper()
	m := mutex(t, s)
	granted := make(chan grant, 1)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	go func() {
		defer cancel()
		hold, err := m.Acquire(ctx)
		granted <- grant{hold: hold, err: err, before: ahead.Err()}
	}()
	within(t, 30*time.Second, "two in the queue", func() bool {
		ps, err := m.Participants(ctx)
		require.NoError(t, err)
		return len(ps) == 2
	})
	return granted
}

// next returns the grant, and checks that the hold before it had ended.
func next(t *testing.T, granted <-chan grant) *zklock.Hold {
	t.Helper()
	select {
	case g := <-granted:
		require.NoError(t, g.err)
		require.Error(t, g.before, "two hold at a time: the earlier hold did not know that it had ended")
		return g.hold
	case <-time.After(patience):
		require.FailNow(t, "the next in the queue was not granted the lock")
		return nil
	}
}

// await returns when the session's next change is to the state.
func await(t *testing.T, changes <-chan zklock.Change, state zklock.State) {
	t.Helper()
	select {
	case c := <-changes:
		require.Equal(t, state, c.State)
	case <-time.After(patience):
		require.FailNow(t, "no change of state", "waited for %v", state)
	}
}

// notGranted checks that the waiter still waits.
func notGranted(t *testing.T, granted <-chan grant) {
	t.Helper()
	select {
	case g := <-granted:
		require.FailNow(t, "granted although the lock is held", "%v, %v", g.hold, g.err)
	default:
	}
}

// nothingLeft checks on every server that the sessions' nodes and watches are deleted.
func nothingLeft(t *testing.T, servers []*Server, sessions ...*zklock.Session) {
	t.Helper()
	for _, s := range sessions {
		require.NoError(t, s.Close())
	}
	for _, s := range servers {
		within(t, 30*time.Second, s.Addr()+" has no lock node, no ephemeral and no watch left", func() bool {
			values, err := zkserver.Mntr(s.Addr())
			return err == nil && values["zk_watch_count"] == "0" && values["zk_ephemerals_count"] == "0"
		})
		children, _, err := connect(t, s.Addr(), 20*time.Second).Children(lockPath)
		require.NoError(t, err)
		require.Empty(t, children)
	}
}

// home returns the member that the session is attached to.
func (e *Ensemble) home(t *testing.T, s *zklock.Session) *Server {
	t.Helper()
	id := fmt.Sprintf("sid=0x%x,", s.SessionID())
	for _, member := range e.servers {
		if member.isSilent() {
			continue
		}
		connections, err := zkserver.FourLetter(member.Addr(), "cons")
		require.NoError(t, err)
		if strings.Contains(connections, id) {
			return member
		}
	}
	require.FailNow(t, "no member knows a connection of the session", id)
	return nil
}

// contend has every session take the lock, several goroutines at once: no two hold at a time, and
// tokens increase.
func contend(t *testing.T, sessions []*zklock.Session) {
	t.Helper()
	const goroutines, rounds = 3, 5
	l := ledger.New(t.Errorf)
	var all sync.WaitGroup
	failed := make(chan error, len(sessions)*goroutines)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for _, s := range sessions {
		m := mutex(t, s)
		for range goroutines {
			all.Go(func() {
				for range rounds {
					hold, err := m.Acquire(ctx)
					if err != nil {
						failed <- err
						return
					}
					if !l.Granted(lockPath, "", hold) {
						failed <- hold.Err()
						return
					}
					l.Ended(lockPath, hold)
					if err := hold.Release(ctx); err != nil {
						failed <- err
						return
					}
				}
			})
		}
	}
	all.Wait()
	close(failed)
	for err := range failed {
		require.NoError(t, err)
	}
	require.Equal(t, len(sessions)*goroutines*rounds, l.Grants())
}

func TestMutex_SingleServer_OneAtATime_NothingLeft(t *testing.T) {
	t.Parallel()
	server := StartSingle(t)
	var sessions []*zklock.Session
	for range 3 {
		sessions = append(sessions, session(t, server.Addr(), 15*time.Second))
	}

	contend(t, sessions)

	nothingLeft(t, []*Server{server}, sessions...)
}

func TestMutex_SingleServer_StoppedAndStarted_HoldSurvives(t *testing.T) {
	t.Parallel()
	server := StartSingle(t)
	holder, other := session(t, server.Addr(), 20*time.Second), session(t, server.Addr(), 20*time.Second)
	hold := acquire(t, holder)
	granted := waiter(t, other, hold)

	down := time.Now()
	server.Stop(t)
	server.Start(t)
	outage := time.Since(down)
	room := zklock.LeaseMargin(zklock.QuorumLease(2*tick), 20*time.Second)
	require.Less(t, outage, room, "this machine restarts a container too slowly for this test")
	within(t, 30*time.Second, "the holder is back", func() bool { return holder.State() == zklock.Connected || holder.State() == zklock.Reconnected })

	require.NoError(t, hold.Err(), "an outage of %v fits into the room of %v", outage, room)
	notGranted(t, granted)
	release(t, hold)
	second := next(t, granted)
	require.Greater(t, second.Token(), hold.Token())
	release(t, second)
	nothingLeft(t, []*Server{server}, holder, other)
}

func TestMutex_Ensemble_OneAtATime_NothingLeft(t *testing.T) {
	t.Parallel()
	e := StartEnsemble(t)
	var sessions []*zklock.Session
	for _, member := range e.Servers() { // one client at each member
		sessions = append(sessions, session(t, member.Addr(), 15*time.Second))
	}

	contend(t, sessions)

	nothingLeft(t, e.Servers(), sessions...)
}

// The holder can reach one member only, and that member freezes: the holder receives no
// notification. It has to detect the end by its own clock, before the ensemble ends its session and
// the next in the queue is granted the lock.
func TestMutex_Ensemble_HoldersOnlyMemberPaused_ToldBeforeTheNextHolds(t *testing.T) {
	for _, role := range []string{"follower", "leader"} {
		t.Run(role, func(t *testing.T) {
			t.Parallel()
			e := StartEnsemble(t)
			leader, followers := e.Roles(t)
			paused, rest := followers[0], followers[1].Addr()+","+leader.Addr()
			if role == "leader" {
				paused, rest = leader, followers[0].Addr()+","+followers[1].Addr()
			}
			holder, other := session(t, paused.Addr(), 8*time.Second), session(t, rest, 8*time.Second)
			hold := acquire(t, holder)
			granted := waiter(t, other, hold)
			lost := make(chan time.Time, 1)
			go func() {
				<-hold.Lost()
				lost <- time.Now()
			}()

			start := time.Now()
			paused.Pause(t)
			second := next(t, granted)
			took := time.Since(start)
			require.ErrorIs(t, hold.Err(), zklock.ErrLost)
			told := (<-lost).Sub(start)
			t.Logf("paused; told after %v, the next granted after %v", told.Round(time.Millisecond), took.Round(time.Millisecond))
			// next has checked the state of the hold at that moment. The channel may be closed a
			// moment later, on a machine so busy that neither goroutine could run in time.
			require.Less(t, told, took+time.Second)
			require.Greater(t, second.Token(), hold.Token())

			paused.Unpause(t)
			paused.Ready(t)
			require.ErrorIs(t, hold.Err(), zklock.ErrLost, "what was lost stays lost")
			require.NoError(t, second.Err())
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			require.ErrorIs(t, hold.Release(ctx), zklock.ErrLost)
			release(t, second)
			nothingLeft(t, e.Servers(), holder, other)
		})
	}
}

// The holder may use every member, and the one it is attached to freezes: the Session moves to
// another after two heartbeats without a byte, and the margin of the lease is large enough.
func TestMutex_Ensemble_MemberPaused_HolderMoves_HoldSurvives(t *testing.T) {
	t.Parallel()
	e := StartEnsemble(t)
	holder, other := session(t, e.ConnectString(), 20*time.Second), session(t, e.ConnectString(), 20*time.Second)
	hold := acquire(t, holder)
	granted := waiter(t, other, hold)

	paused := e.home(t, holder)
	changes := holder.Changes(t.Context())
	paused.Pause(t)
	await(t, changes, zklock.Suspended)
	await(t, changes, zklock.Reconnected)
	require.NotEqual(t, paused.Addr(), e.home(t, holder).Addr())
	require.NoError(t, hold.Err())
	notGranted(t, granted)
	paused.Unpause(t)
	paused.Ready(t)

	require.NoError(t, hold.Err())
	release(t, hold)
	second := next(t, granted)
	require.Greater(t, second.Token(), hold.Token())
	release(t, second)
	nothingLeft(t, e.Servers(), holder, other)
}

func TestMutex_Ensemble_LeaderStoppedAndStarted_HoldSurvives_TokensIncrease(t *testing.T) {
	t.Parallel()
	e := StartEnsemble(t)
	leader, followers := e.Roles(t)
	// One holder is on the leader, whose connection is cut; one is on a follower, whose connection
	// is cut too, when it looks for a leader.
	holder := session(t, leader.Addr()+","+followers[0].Addr(), 20*time.Second)
	other := session(t, followers[1].Addr()+","+followers[0].Addr(), 20*time.Second)
	hold := acquire(t, holder)
	granted := waiter(t, other, hold)

	leader.Stop(t)
	successor, _ := e.Roles(t)
	require.NotEqual(t, leader.Addr(), successor.Addr())
	within(t, 30*time.Second, "both are attached again", func() bool {
		attached := func(s *zklock.Session) bool {
			return s.State() == zklock.Connected || s.State() == zklock.Reconnected
		}
		return attached(holder) && attached(other)
	})
	require.NoError(t, hold.Err(), "an election is shorter than the lease's room")
	notGranted(t, granted)

	leader.Start(t)
	release(t, hold)
	second := next(t, granted)
	release(t, second)
	third := acquire(t, holder)
	require.Greater(t, second.Token(), hold.Token())
	require.Greater(t, third.Token(), second.Token())
	require.Greater(t, third.Token()>>32, hold.Token()>>32, "it was created under another leader")
	release(t, third)
	nothingLeft(t, e.Servers(), holder, other)
}

// The holder reaches only the stopped leader, and is notified; the next one is granted the lock.
func TestMutex_Ensemble_HoldersOnlyMemberStopped_ToldBeforeTheNextHolds(t *testing.T) {
	t.Parallel()
	e := StartEnsemble(t)
	leader, followers := e.Roles(t)
	holder := session(t, leader.Addr(), 8*time.Second)
	other := session(t, followers[0].Addr()+","+followers[1].Addr(), 8*time.Second)
	hold := acquire(t, holder)
	granted := waiter(t, other, hold)

	leader.Stop(t)
	second := next(t, granted)
	require.ErrorIs(t, hold.Err(), zklock.ErrLost)
	require.Greater(t, second.Token(), hold.Token())

	leader.Start(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	require.ErrorIs(t, hold.Release(ctx), zklock.ErrLost)
	m := mutex(t, holder)
	third := make(chan grant, 1)
	go func() {
		h, err := m.Acquire(ctx) // the same Session, in a new ZooKeeper session
		third <- grant{hold: h, err: err, before: second.Err()}
	}()
	release(t, second)
	last := next(t, third)
	require.Greater(t, last.Token(), second.Token())
	release(t, last)
	nothingLeft(t, e.Servers(), holder, other)
}
