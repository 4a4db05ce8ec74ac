package zklockgocron_test

// These tests attack the Elector: two leaders at a time, a leader without a successor, a former
// leader that still runs jobs.

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/contrib/zklockgocron"
)

// host is a replica with a Session, a candidate and a scheduler.
type host struct {
	s         *zklock.Session
	election  *zklock.Election
	elector   *zklockgocron.Elector
	shutdown  func()
	end       context.CancelFunc
	campaigns chan error
}

// elect starts hosts one after the other: the first leads.
func (sc *scene) elect(n int) (hosts []*host) {
	sc.t.Helper()
	for i := range n {
		s := sc.connect()
		e, err := zklock.NewElection(s, "/jobs/leader")
		require.NoError(sc.t, err)
		h := &host{s: s, election: e, elector: zklockgocron.NewElector(e), campaigns: make(chan error, 1)}
		ctx, cancel := context.WithCancel(sc.t.Context())
		h.end = cancel
		go func() { h.campaigns <- h.elector.Run(ctx) }()
		synctest.Wait()
		h.shutdown = sc.schedule(i, gocron.WithDistributedElector(h.elector))
		hosts = append(hosts, h)
	}
	sc.t.Cleanup(func() {
		for _, h := range hosts {
			h.shutdown()
			h.end()
			_ = h.s.Close()
		}
		synctest.Wait()
	})
	return hosts
}

// leaders returns the hosts whose elector returns no error.
func leaders(hosts []*host) (who []int) {
	for i, h := range hosts {
		if h.elector.IsLeader(context.Background()) == nil {
			who = append(who, i)
		}
	}
	return who
}

// The leader runs the jobs, although its clock is not ahead of the other hosts' clocks.
func TestElector_TheLeaderRuns(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, sc *scene) {
		hosts := sc.elect(3)
		require.Equal(t, []int{0}, leaders(hosts))
		require.Equal(t, []int{0, 0, 0}, sc.pass(3))
		require.ErrorContains(t, hosts[1].elector.IsLeader(t.Context()), "this candidate does not lead: Election(/jobs/leader)")
	})
}

// However the leader ends, the next candidate runs the jobs, and never both.
func TestElector_LeaderEnds_TheNextRuns(t *testing.T) {
	for how, end := range map[string]func(sc *scene, h *host){
		"its context ends": func(sc *scene, h *host) {
			h.shutdown()
			h.end()
			require.ErrorIs(sc.t, <-h.campaigns, context.Canceled)
		},
		"its Session is closed": func(sc *scene, h *host) {
			require.NoError(sc.t, h.s.Close())
			require.ErrorIs(sc.t, <-h.campaigns, zklock.ErrClosed)
		},
		"its session is lost": func(sc *scene, h *host) { sc.srv.ExpireSession(h.s.Stats().SessionID) },
		"its node is deleted": func(sc *scene, h *host) { require.NoError(sc.t, sc.srv.Delete(h.election.Hold().Node())) },
	} {
		t.Run(how, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, sc *scene) {
				hosts := sc.elect(3)
				require.Equal(t, []int{0}, sc.pass(1))
				ended := time.Now()
				end(sc, hosts[0])
				for len(leaders(hosts)) == 0 || leaders(hosts)[0] == 0 {
					require.Less(t, time.Since(ended), 5*time.Second)
					time.Sleep(time.Millisecond)
				}
				require.Equal(t, []int{1}, leaders(hosts))
				require.Equal(t, []int{1, 1}, sc.pass(2))
			})
		})
	}
}

// A leader without a response from a server returns an error before another can be elected. When
// servers are back, one leads, and runs the jobs.
func TestElector_NoServer_NobodyRuns(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, sc *scene) {
		hosts := sc.elect(2)
		require.Equal(t, []int{0}, sc.pass(1))
		sc.srv.Stop()
		time.Sleep(timeout)
		require.Empty(t, leaders(hosts))
		require.Empty(t, sc.pass(1))
		require.NoError(t, sc.srv.Start())
		require.Len(t, sc.pass(1), 1)
		require.Len(t, leaders(hosts), 1)
	})
}

// A leader that loses its session campaigns again: it runs the jobs when all other candidates have
// ended.
func TestElector_Lost_CampaignsAgain(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, sc *scene) {
		hosts := sc.elect(2)
		sc.srv.ExpireSession(hosts[0].s.Stats().SessionID)
		require.Equal(t, []int{1}, sc.pass(1))
		sc.srv.ExpireSession(hosts[1].s.Stats().SessionID)
		require.Equal(t, []int{0}, sc.pass(1))
	})
}
