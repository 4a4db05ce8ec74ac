package zktest_test

// One member of an ensemble that is frozen.

import (
	"errors"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock/internal/rawzk"
	"github.com/zklock/zklock/internal/wire"
	. "github.com/zklock/zklock/zktest"
)

// timedOut reports whether nothing has arrived on an open connection for ten seconds.
func timedOut(c *rawzk.Conn) bool {
	_, err := c.Receive()
	var ne net.Error
	return errors.As(err, &ne) && ne.Timeout()
}

// closed asserts that the server has closed a connection and sent nothing before.
func closed(t *testing.T, c *rawzk.Conn) {
	t.Helper()
	_, err := c.Receive()
	require.ErrorIs(t, err, io.EOF)
}

func TestMemberFreeze_Briefly_ItCatchesUp_ThenAnswers(t *testing.T) {
	threeMembers(t, func(t *testing.T, n *Network, e *Ensemble) {
		c, other := raw(t, n, e.Member(1), 20*tick), raw(t, n, e.Member(2), 20*tick)
		call(t, c, wire.OpExists, wire.PathWatchRequest{Path: "/a", Watch: true})
		e.Member(1).Freeze()
		send(t, c, wire.OpGetChildren, wire.PathWatchRequest{Path: "/"})
		require.Equal(t, wire.OK, createAt(t, other, "/a", 0))
		time.Sleep(tick)
		require.Empty(t, e.Member(1).Word("ruok"))
		require.Equal(t, []string{"zookeeper"}, e.Member(1).Children("/"))
		require.Equal(t, "follower", e.Member(1).Role())
		start := time.Now()
		time.AfterFunc(tick, e.Member(1).Thaw)
		event, err := c.Receive()
		require.NoError(t, err)
		require.Equal(t, wire.XidEvent, event.Header.Xid)
		reply, err := c.Receive()
		require.NoError(t, err)
		var names wire.StringsResponse
		names.Decode(wire.NewDecoder(reply.Body))
		require.ElementsMatch(t, []string{"a", "zookeeper"}, names.Strings)
		require.Equal(t, tick, time.Since(start))
		require.Equal(t, wire.OK, createAt(t, c, "/b", 0))
	})
}

func TestMemberFreeze_SessionExpiresMeanwhile_ThawClosesIt(t *testing.T) {
	threeMembers(t, func(t *testing.T, n *Network, e *Ensemble) {
		frozen, other := raw(t, n, e.Member(1), 2*tick), raw(t, n, e.Member(2), 20*tick)
		require.Equal(t, wire.OK, createAt(t, frozen, "/mine", wire.FlagEphemeral))
		time.Sleep(tick)
		e.Member(1).Freeze()
		send(t, frozen, wire.OpPing, nil)
		time.Sleep(3*tick + tick/2)
		require.Len(t, e.Sessions(), 1)
		require.False(t, existsAt(t, other, "/mine"))
		require.Equal(t, []string{"mine", "zookeeper"}, e.Member(1).Children("/"))
		e.Member(1).Thaw()
		closed(t, frozen)
		require.Equal(t, "follower", e.Member(1).Role(), "the leader has not given it up")
	})
}

func TestMemberFreeze_Follower_TheOthersGoOn_AndItJoinsAgain(t *testing.T) {
	threeMembers(t, func(t *testing.T, n *Network, e *Ensemble) {
		c, other := raw(t, n, e.Member(1), time.Hour), raw(t, n, e.Member(2), time.Hour)
		e.Member(1).Freeze()
		late := rawUnconnected(t, n, e.Member(1))
		send(t, c, wire.OpPing, nil)
		require.True(t, timedOut(c))
		time.Sleep(time.Minute)
		require.Equal(t, 3, e.Leader().ID())
		require.Equal(t, wire.OK, createAt(t, other, "/a", 0))
		e.Member(1).Thaw()
		closed(t, c)
		require.Error(t, late.Connect(wire.ConnectRequest{Timeout: 20_000}))
		time.Sleep(tick)
		require.Equal(t, []string{"a", "zookeeper"}, e.Member(1).Children("/"))
	}, WithConfig("maxSessionTimeout=3600000"))
}

func TestMemberFreeze_Leader_AnotherIsElected_AndItJoinsThat(t *testing.T) {
	threeMembers(t, func(t *testing.T, n *Network, e *Ensemble) {
		c := raw(t, n, e.Member(3), 20*tick)
		e.Member(3).Freeze()
		require.Nil(t, e.Leader())
		send(t, c, wire.OpCreate, wire.CreateRequest{Path: "/unread", ACL: world})
		time.Sleep((syncLimit + 1) * tick)
		require.Equal(t, 2, e.Leader().ID())
		require.Equal(t, "leader", e.Member(3).Role(), "it knows nothing")
		moved := moveTo(t, n, e.Member(1), c)
		require.Equal(t, wire.OK, createAt(t, moved, "/a", 0))
		send(t, c, wire.OpGetChildren, wire.PathWatchRequest{Path: "/"})
		e.Member(3).Thaw()
		closed(t, c) // the write waits for a majority, and what is behind it waits, too
		time.Sleep(tick)
		require.Equal(t, "follower", e.Member(3).Role())
		require.Equal(t, []string{"a", "zookeeper"}, e.Member(3).Children("/"))
	})
}

func TestMemberFreeze_LeaderThawed_AnswersStaleReadsUntilItsTick(t *testing.T) {
	threeMembers(t, func(t *testing.T, n *Network, e *Ensemble) {
		c := raw(t, n, e.Member(3), 20*tick)
		e.Member(3).Freeze()
		time.Sleep((syncLimit + 1) * tick)
		_, err := e.Create("/a", nil, Persistent)
		require.NoError(t, err)
		time.Sleep(tick / 4)
		e.Member(3).Thaw()
		require.False(t, existsAt(t, c, "/a"))
		thawed := time.Now()
		closed(t, c)
		require.LessOrEqual(t, time.Since(thawed), tick)
	})
}

func TestMemberFreeze_Stop_EndsIt(t *testing.T) {
	threeMembers(t, func(t *testing.T, n *Network, e *Ensemble) {
		m := e.Member(1)
		c := raw(t, n, m, 20*tick)
		m.Freeze()
		late := rawUnconnected(t, n, m)
		send(t, c, wire.OpCreate, wire.CreateRequest{Path: "/a", ACL: world})
		time.Sleep(time.Millisecond)
		m.Stop()
		for _, c := range []*rawzk.Conn{c, late} {
			closed(t, c)
		}
		m.Freeze()
		require.NoError(t, m.Start())
		time.Sleep(tick)
		require.Equal(t, "follower", m.Role())
		require.Equal(t, wire.OK, createAt(t, raw(t, n, m, 20*tick), "/b", 0))
		require.Nil(t, e.Children("/a"))
	})
}

func TestMemberFreeze_OnlyMember_NothingExpiresMeanwhile(t *testing.T) {
	bubble(t, func(t *testing.T, n *Network) {
		e := StartEnsemble(t, 1, WithNetwork(n))
		c := raw(t, n, e.Member(1), 4*time.Second)
		e.Member(1).Freeze()
		time.Sleep(time.Minute)
		require.Len(t, e.Sessions(), 1)
		e.Member(1).Thaw()
		closed(t, c)
		require.Empty(t, e.Sessions())
	})
}

func TestFault_FreezeForOfAMember_FreezesThatMemberAlone(t *testing.T) {
	const pause = 3 * time.Second
	for name, fault := range map[string]Fault{
		"before": Before(Create).Path("/a"), "after": After(Create).Path("/a"),
	} {
		t.Run(name, func(t *testing.T) {
			threeMembers(t, func(t *testing.T, n *Network, e *Ensemble) {
				c, other := raw(t, n, e.Member(1), 20*tick), raw(t, n, e.Member(2), 20*tick)
				e.Inject(fault.Member(1).Once().FreezeFor(pause))
				start := time.Now()
				send(t, c, wire.OpCreate, wire.CreateRequest{Path: "/a", ACL: world})
				synctest.Wait()
				require.Empty(t, e.Member(1).Word("ruok"))
				require.Equal(t, wire.OK, createAt(t, other, "/b", 0))
				require.Zero(t, time.Since(start), "the other members continue")
				_, created := e.Get("/a")
				require.Equal(t, name == "after", created)
				reply, err := c.Receive()
				require.NoError(t, err)
				require.Equal(t, wire.OK, reply.Header.Err)
				require.Equal(t, pause, time.Since(start))
				synctest.Wait() // the thaw at the same instant
				require.Equal(t, []string{"a", "b", "zookeeper"}, e.Member(1).Children("/"))
				require.Equal(t, "imok", e.Member(1).Word("ruok"))
			})
		})
	}
}

func TestFault_FreezeForOfAMember_AtAnEvent_TheEventIsSentAfterwards(t *testing.T) {
	threeMembers(t, func(t *testing.T, n *Network, e *Ensemble) {
		c, other := raw(t, n, e.Member(1), 20*tick), raw(t, n, e.Member(2), 20*tick)
		call(t, c, wire.OpExists, wire.PathWatchRequest{Path: "/a", Watch: true})
		e.Inject(OnEvent(NodeCreated).Member(1).Once().FreezeFor(3 * time.Second))
		start := time.Now()
		require.Equal(t, wire.OK, createAt(t, other, "/a", 0))
		require.Equal(t, wire.OK, createAt(t, other, "/b", 0))
		require.Zero(t, time.Since(start))
		require.Equal(t, []string{"a", "zookeeper"}, e.Member(1).Children("/"))
		event, err := c.Receive()
		require.NoError(t, err)
		require.Equal(t, wire.XidEvent, event.Header.Xid)
		require.Equal(t, 3*time.Second, time.Since(start))
	})
}

func TestFault_FreezeFor_TheServerSendsNothing(t *testing.T) {
	for name, fault := range map[string]Fault{"before": Before(Create), "after": After(Create)} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, n *Network) {
				srv := Start(t, WithNetwork(n))
				c := raw(t, n, srv, 20*tick)
				srv.Inject(fault.Once().FreezeFor(3 * time.Second))
				start := time.Now()
				require.Equal(t, wire.OK, createAt(t, c, "/a", 0))
				require.Equal(t, 3*time.Second, time.Since(start))
			})
		})
	}
}
