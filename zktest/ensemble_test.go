package zktest_test

import (
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock/internal/rawzk"
	"github.com/zklock/zklock/internal/wire"
	. "github.com/zklock/zklock/zktest"
)

// The defaults, with which a cut is noticed after 9 to 12 s.
const tick, syncLimit = 2 * time.Second, 5

// threeMembers runs a test on an ensemble of three in virtual time; the third member leads.
func threeMembers(t *testing.T, test func(t *testing.T, n *Network, e *Ensemble), opts ...Option) {
	bubble(t, func(t *testing.T, n *Network) {
		e := StartEnsemble(t, 3, append(opts, WithNetwork(n))...)
		require.Equal(t, 3, e.Leader().ID())
		test(t, n, e)
	})
}

func createAt(t *testing.T, c *rawzk.Conn, path string, flags int32) wire.Code {
	t.Helper()
	code, _, _ := call(t, c, wire.OpCreate, wire.CreateRequest{Path: path, ACL: world, Flags: flags})
	return code
}

func existsAt(t *testing.T, c *rawzk.Conn, path string) bool {
	t.Helper()
	code, _, _ := call(t, c, wire.OpExists, wire.PathWatchRequest{Path: path})
	return code == wire.OK
}

// pinging keeps a connection alive until it is cut, and reports when that was.
func pinging(t *testing.T, c *rawzk.Conn) <-chan time.Time {
	cut := make(chan time.Time, 1)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			if _, _, err := c.Call(wire.OpPing, nil); err != nil {
				cut <- time.Now()
				return
			}
			time.Sleep(100 * time.Millisecond)
		}
	}()
	t.Cleanup(func() {
		c.Close()
		<-ended
	})
	return cut
}

func TestEnsemble_ServesEveryMembersClients(t *testing.T) {
	threeMembers(t, func(t *testing.T, n *Network, e *Ensemble) {
		for _, m := range e.Members() {
			conn, _ := connectEvents(t, m.Addr(), 10*time.Second, dialing(n))
			require.NoError(t, create(conn, "/by-"+m.Role()+string(rune('0'+m.ID()))))
		}
		want := []string{"by-follower1", "by-follower2", "by-leader3", "zookeeper"}
		for _, m := range e.Members() {
			require.Equal(t, want, m.Children("/"))
		}
		st, _ := e.Stat("/by-follower1")
		require.Equal(t, int64(1<<32+2), st.Czxid, "the first election begins epoch 1")
		require.Len(t, e.Sessions(), 3)
		require.Equal(t, 3, e.Requests().Total(Create))
	})
}

// A test finds the member that its client is connected to, and stops it.
func TestEnsemble_SessionsAndWatches_NameTheirMember(t *testing.T) {
	threeMembers(t, func(t *testing.T, n *Network, e *Ensemble) {
		c := raw(t, n, e.Member(2), 20*time.Second)
		code, _, _ := call(t, c, wire.OpExists, wire.PathWatchRequest{Path: "/w", Watch: true})
		require.Equal(t, wire.NoNode, code)
		require.Equal(t, []Watch{{Path: "/w", Session: c.Session.SessionID, Member: 2}}, e.Watches())
		e.Member(e.Sessions()[0].Member).Stop()
		_, err := c.Receive()
		require.Error(t, err)
		require.Zero(t, e.Sessions()[0].Member)
	})
}

func TestEnsemble_LaggingMember_ReadsAreStale_OwnWritesAndSyncAreNot(t *testing.T) {
	threeMembers(t, func(t *testing.T, n *Network, e *Ensemble) {
		slow, fast := e.Member(1), e.Member(2)
		reader, writer := raw(t, n, slow, 20*time.Second), raw(t, n, fast, 20*time.Second)
		slow.SetLag(3 * time.Second)
		require.Equal(t, wire.OK, createAt(t, writer, "/a", 0))
		require.False(t, existsAt(t, reader, "/a"))
		require.Less(t, slow.Zxid(), e.Zxid())

		start := time.Now()
		code, _, _ := call(t, reader, wire.OpSync, wire.PathRequest{Path: "/"})
		require.Equal(t, wire.OK, code)
		require.Equal(t, 3*time.Second, time.Since(start))
		require.True(t, existsAt(t, reader, "/a"))

		start = time.Now()
		require.Equal(t, wire.OK, createAt(t, reader, "/b", 0))
		require.Equal(t, 3*time.Second, time.Since(start), "the reply comes when it is visible here")
		require.True(t, existsAt(t, reader, "/b"))

		slow.SetLag(0)
		require.Equal(t, wire.OK, createAt(t, writer, "/c", 0))
		require.True(t, existsAt(t, reader, "/c"))
	})
}

// R150: when the writes of both become visible at once, the reply to the first is sent before the
// event of the second.
func TestEnsemble_LaggingMember_SendsAReplyBeforeALaterEvent(t *testing.T) {
	threeMembers(t, func(t *testing.T, n *Network, e *Ensemble) {
		ours, other := raw(t, n, e.Member(1), 20*time.Second), raw(t, n, e.Member(3), 20*time.Second)
		code, _, _ := call(t, ours, wire.OpExists, wire.PathWatchRequest{Path: "/second", Watch: true})
		require.Equal(t, wire.NoNode, code)
		const lag = time.Second
		e.Member(1).SetLag(lag)
		_, err := ours.Send(wire.OpCreate, wire.CreateRequest{Path: "/first", ACL: world})
		require.NoError(t, err)
		synctest.Wait()
		require.Equal(t, wire.OK, createAt(t, other, "/second", 0))
		e.OnFrame(func(f Frame) { // the ensemble finds that both are due while it executes a third
			if !f.Reply {
				time.Sleep(lag)
			}
		})
		require.Equal(t, wire.OK, createAt(t, other, "/third", 0))
		reply, err := ours.Receive()
		require.NoError(t, err)
		event, err := ours.Receive()
		require.NoError(t, err)
		require.Equal(t, []int32{2, wire.XidEvent}, []int32{reply.Header.Xid, event.Header.Xid})
		require.Less(t, reply.Header.Zxid, event.Header.Zxid)
	})
}

// A count of creates reaches a lagging member in its turn, from SetCreates and from Restore.
func TestEnsemble_LaggingMember_GetsTheCountsOfCreates(t *testing.T) {
	threeMembers(t, func(t *testing.T, n *Network, e *Ensemble) {
		cversion := func(id int) int32 {
			_, body, _ := call(t, raw(t, n, e.Member(id), 20*time.Second), wire.OpExists, wire.PathWatchRequest{Path: "/q"})
			var stat wire.Stat
			stat.Decode(wire.NewDecoder(body))
			return stat.Cversion
		}
		e.Member(1).SetLag(time.Second)
		_, err := e.Create("/q", nil, Persistent)
		require.NoError(t, err)
		before := e.Zxid()
		require.True(t, e.SetCreates("/q", 41))
		require.Equal(t, before, e.Zxid())
		time.Sleep(time.Second)
		require.Equal(t, []int32{82, 82}, []int32{cversion(1), cversion(3)})

		with := e.Snapshot()
		e.Restore(Snapshot{})
		time.Sleep(time.Second)
		e.Restore(with)
		time.Sleep(time.Second)
		require.Equal(t, []int32{82, 82}, []int32{cversion(1), cversion(3)})
	})
}

func TestEnsemble_LaggingMember_RefusesWhoHasSeenMore(t *testing.T) {
	threeMembers(t, func(t *testing.T, n *Network, e *Ensemble) {
		c := raw(t, n, e.Member(2), 20*time.Second)
		e.Member(1).SetLag(time.Hour)
		require.Equal(t, wire.OK, createAt(t, c, "/a", 0))
		back := wire.ConnectRequest{Timeout: 20_000, SessionID: c.Session.SessionID, Password: c.Session.Password, LastZxidSeen: e.Zxid()}
		require.Error(t, rawUnconnected(t, n, e.Member(1)).Connect(back))
		require.NoError(t, rawUnconnected(t, n, e.Member(3)).Connect(back))
	})
}

// The scene that makes pings worthless: the holder's member is cut off, the ensemble gives its lock
// to another client, and the holder still gets replies to its pings.
func TestEnsemble_FollowerCutOff_SessionExpiresWhileItsPingsAreAnswered(t *testing.T) {
	threeMembers(t, func(t *testing.T, n *Network, e *Ensemble) {
		holder, other := raw(t, n, e.Member(1), 6*time.Second), raw(t, n, e.Member(2), 20*time.Second)
		stillThere := pinging(t, other)
		require.Equal(t, wire.OK, createAt(t, holder, "/lock", wire.FlagEphemeral))
		cut := pinging(t, holder)
		time.Sleep(time.Minute)
		require.NotNil(t, e.Children("/lock"), "touches reach the leader")

		start := time.Now()
		e.Member(1).Isolate()
		for e.Children("/lock") != nil {
			time.Sleep(10 * time.Millisecond)
		}
		expired := time.Since(start)
		require.Greater(t, expired, 6*time.Second-tick/2-100*time.Millisecond)
		require.LessOrEqual(t, expired, 6*time.Second+tick+10*time.Millisecond) // the loop's
		require.NotNil(t, e.Member(1).Children("/lock"), "the cut off member does not know")
		require.Empty(t, cut)

		told := (<-cut).Sub(start)
		require.Greater(t, told, expired)
		require.GreaterOrEqual(t, told, (syncLimit-1)*tick)
		require.LessOrEqual(t, told, syncLimit*tick+100*time.Millisecond)
		require.Equal(t, "looking", e.Member(1).Role())

		e.Heal()
		time.Sleep(time.Second)
		require.Equal(t, "follower", e.Member(1).Role())
		require.Nil(t, e.Member(1).Children("/lock"))
		require.Empty(t, stillThere)
	})
}

func TestEnsemble_FollowerCutOff_WriteStopsTheFalseReassurance(t *testing.T) {
	threeMembers(t, func(t *testing.T, n *Network, e *Ensemble) {
		c := raw(t, n, e.Member(1), 20*time.Second)
		e.Member(1).Isolate()
		require.True(t, existsAt(t, c, "/"), "reads are answered")
		_, err := c.Send(wire.OpCreate, wire.CreateRequest{Path: "/a", ACL: world})
		require.NoError(t, err)
		_, err = c.Send(wire.OpPing, nil)
		require.NoError(t, err)
		start := time.Now()
		time.Sleep(time.Second) // Receive waits for at most ten seconds, and the member may give up only then
		_, err = c.Receive()
		require.Error(t, err, "neither is answered, the write nor the ping behind it")
		require.NotErrorIs(t, err, os.ErrDeadlineExceeded)
		require.GreaterOrEqual(t, time.Since(start), (syncLimit-1)*tick)
		e.Heal()
		time.Sleep(time.Minute)
		require.Nil(t, e.Children("/a"), "it was never done")
	})
}

func TestEnsemble_ShortCut_WaitingWriteIsDone_AndEventsCome(t *testing.T) {
	threeMembers(t, func(t *testing.T, n *Network, e *Ensemble) {
		c, other := raw(t, n, e.Member(1), 20*time.Second), raw(t, n, e.Member(2), 20*time.Second)
		call(t, c, wire.OpExists, wire.PathWatchRequest{Path: "/theirs", Watch: true})
		e.Member(1).Isolate()
		require.Equal(t, wire.OK, createAt(t, other, "/theirs", 0))
		_, err := c.Send(wire.OpCreate, wire.CreateRequest{Path: "/ours", ACL: world})
		require.NoError(t, err)
		time.Sleep(3 * time.Second)
		require.Nil(t, e.Children("/ours"))
		e.Heal()
		ev, err := c.Receive()
		require.NoError(t, err)
		require.Equal(t, wire.XidEvent, ev.Header.Xid)
		r, err := c.Receive()
		require.NoError(t, err)
		require.Equal(t, wire.OK, r.Header.Err)
		require.NotNil(t, e.Member(1).Children("/ours"))
		require.Equal(t, "follower", e.Member(1).Role())
	})
}

// The leader's pings wait in the connection during a cut. Their replies follow when it is healed,
// before any write is executed.
func TestEnsemble_ShortCut_TouchesComeBeforeTheWaitingWrite(t *testing.T) {
	threeMembers(t, func(t *testing.T, n *Network, e *Ensemble) {
		c := raw(t, n, e.Member(1), 8*time.Second)
		cut := pinging(t, c)
		time.Sleep(2100 * time.Millisecond)
		e.Member(1).Isolate()
		ends := e.Sessions()[0].Expires
		time.Sleep(time.Until(ends) - 100*time.Millisecond)
		e.Heal()
		require.True(t, e.Sessions()[0].Expires.After(ends))
		time.Sleep(5 * time.Second)
		require.Len(t, e.Sessions(), 1)
		require.Empty(t, cut)
	})
}

// A leader that is cut off still counts the time: a session that has timed out meanwhile has ended,
// whatever its server has received.
func TestEnsemble_LeaderCutOffAndBack_SessionsHaveRunOut(t *testing.T) {
	threeMembers(t, func(t *testing.T, n *Network, e *Ensemble) {
		c := raw(t, n, e.Member(1), 4*time.Second)
		cut := pinging(t, c)
		e.Member(3).Isolate()
		time.Sleep(7 * time.Second)
		require.Len(t, e.Sessions(), 1)
		e.Heal()
		require.Empty(t, e.Sessions())
		<-cut
	})
}

func TestEnsemble_LeaderCutOff_GoesOnForItsClients_WhileAnotherIsElected(t *testing.T) {
	threeMembers(t, func(t *testing.T, n *Network, e *Ensemble) {
		holder := raw(t, n, e.Member(3), 6*time.Second)
		require.Equal(t, wire.OK, createAt(t, holder, "/lock", wire.FlagEphemeral))
		cut := pinging(t, holder)
		start := time.Now()
		e.Member(3).Isolate()
		require.Nil(t, e.Leader())

		for e.Leader() == nil {
			time.Sleep(10 * time.Millisecond)
		}
		elected := time.Since(start)
		require.Equal(t, 2, e.Leader().ID())
		require.GreaterOrEqual(t, elected, (syncLimit-1)*tick)
		require.LessOrEqual(t, elected, syncLimit*tick+600*time.Millisecond)
		require.EqualValues(t, 2, e.Zxid()>>32)
		require.NotNil(t, e.Children("/lock"), "the new leader gives every session its full time")

		told := (<-cut).Sub(start)
		require.GreaterOrEqual(t, told, (syncLimit)*tick)
		require.LessOrEqual(t, told, (syncLimit+1)*tick+100*time.Millisecond)

		for e.Children("/lock") != nil {
			time.Sleep(10 * time.Millisecond)
		}
		gone := time.Since(start)
		require.Greater(t, gone, elected+6*time.Second)
		require.LessOrEqual(t, gone, elected+6*time.Second+tick)
		e.Heal()
		time.Sleep(time.Second)
		require.Equal(t, "follower", e.Member(3).Role())
	})
}

func TestEnsemble_LeaderStops_ClientsComeBackWithTheirSessions(t *testing.T) {
	threeMembers(t, func(t *testing.T, n *Network, e *Ensemble) {
		conn, events := connectEvents(t, strings.Join(e.Addrs(), ","), 10*time.Second, dialing(n))
		_, err := conn.Create("/e", nil, zk.FlagEphemeral, open)
		require.NoError(t, err)
		before, _ := e.Stat("/e")
		id := conn.SessionID()

		e.Leader().Stop()
		await(t, events, zk.StateDisconnected)
		await(t, events, zk.StateHasSession)
		require.Equal(t, id, conn.SessionID())
		require.NoError(t, create(conn, "/after"))
		after, _ := e.Stat("/after")
		require.Greater(t, after.Czxid, before.Czxid)
		require.EqualValues(t, 2, after.Czxid>>32)
		require.NotNil(t, e.Children("/e"))
		require.Equal(t, "down", e.Member(3).Role())
		require.NoError(t, e.Member(3).Start())
		time.Sleep(time.Second)
		require.Equal(t, "follower", e.Member(3).Role())
		require.NotNil(t, e.Member(3).Children("/after"))
	})
}

func TestEnsemble_BelowMajority_NoWrites_ThenNoConnections(t *testing.T) {
	threeMembers(t, func(t *testing.T, n *Network, e *Ensemble) {
		c := raw(t, n, e.Member(3), 20*time.Second)
		e.Member(1).Stop()
		require.Equal(t, wire.OK, createAt(t, c, "/two-of-three", 0))
		e.Member(2).Stop()
		_, err := c.Send(wire.OpCreate, wire.CreateRequest{Path: "/one-of-three", ACL: world})
		require.NoError(t, err)
		start := time.Now()
		_, err = c.Receive()
		require.Error(t, err)
		require.LessOrEqual(t, time.Since(start), tick)
		require.Equal(t, "looking", e.Member(3).Role())
		require.Error(t, rawUnconnected(t, n, e.Member(3)).Connect(wire.ConnectRequest{Timeout: 20_000}))

		time.Sleep(time.Hour)
		require.Len(t, e.Sessions(), 1, "nobody is there to expire it")
		require.NoError(t, e.Member(1).Start())
		time.Sleep(time.Second)
		require.NotNil(t, e.Leader())
		back := rawUnconnected(t, n, e.Member(1))
		require.NoError(t, back.Connect(wire.ConnectRequest{Timeout: 20_000, SessionID: c.Session.SessionID, Password: c.Session.Password}))
		require.Equal(t, c.Session.SessionID, back.Session.SessionID)
	})
}

func TestEnsemble_ClientMoves_OldConnectionMayNotWrite(t *testing.T) {
	threeMembers(t, func(t *testing.T, n *Network, e *Ensemble) {
		old := raw(t, n, e.Member(1), 20*time.Second)
		moved := rawUnconnected(t, n, e.Member(2))
		require.NoError(t, moved.Connect(wire.ConnectRequest{Timeout: 20_000, SessionID: old.Session.SessionID, Password: old.Session.Password}))
		require.Equal(t, old.Session.SessionID, moved.Session.SessionID)
		require.True(t, existsAt(t, old, "/"), "its member does not know yet")
		_, _, err := old.Call(wire.OpCreate, wire.CreateRequest{Path: "/a", ACL: world})
		require.Error(t, err)
		require.Equal(t, wire.OK, createAt(t, moved, "/a", 0))
	})
}

func TestEnsemble_Elect_EverybodyIsSentAway(t *testing.T) {
	threeMembers(t, func(t *testing.T, n *Network, e *Ensemble) {
		c := raw(t, n, e.Member(1), 20*time.Second)
		e.Elect()
		require.Nil(t, e.Leader())
		_, err := c.Receive()
		require.Error(t, err)
		time.Sleep(time.Second)
		require.NotNil(t, e.Leader())
		require.EqualValues(t, 2, e.Zxid()>>32)
	})
}

func TestEnsemble_WatchOnAFollower_FiresWhenItIsVisibleThere(t *testing.T) {
	threeMembers(t, func(t *testing.T, n *Network, e *Ensemble) {
		watcher, writer := raw(t, n, e.Member(1), 20*time.Second), raw(t, n, e.Member(2), 20*time.Second)
		e.Member(1).SetLag(2 * time.Second)
		call(t, watcher, wire.OpExists, wire.PathWatchRequest{Path: "/a", Watch: true})
		start := time.Now()
		require.Equal(t, wire.OK, createAt(t, writer, "/a", 0))
		ev, err := watcher.Receive()
		require.NoError(t, err)
		require.Equal(t, wire.XidEvent, ev.Header.Xid)
		require.Equal(t, 2*time.Second, time.Since(start))
		require.True(t, existsAt(t, watcher, "/a"))
	})
}

func TestEnsemble_OfOneAndOfFive(t *testing.T) {
	bubble(t, func(t *testing.T, n *Network) {
		one := StartEnsemble(t, 1, WithNetwork(n))
		require.Equal(t, wire.OK, createAt(t, raw(t, n, one.Member(1), 10*time.Second), "/a", 0))
		five := StartEnsemble(t, 5, WithNetwork(n))
		five.Partition([]int{4, 5})
		synctest.Wait()
		time.Sleep(time.Minute)
		require.Equal(t, 3, five.Leader().ID())
		require.Equal(t, "looking", five.Member(5).Role())
		five.Heal()
		time.Sleep(time.Minute)
		require.Equal(t, "follower", five.Member(5).Role())
		_, err := NewEnsemble(0)
		require.Error(t, err)
	})
}

func TestEnsemble_LostTouches_SessionEndsAlthoughItWasAnswered(t *testing.T) {
	threeMembers(t, func(t *testing.T, n *Network, e *Ensemble) {
		c := raw(t, n, e.Member(1), 4*time.Second)
		start := time.Now()
		for len(e.Sessions()) > 0 {
			if _, _, err := c.Call(wire.OpPing, nil); err != nil {
				break
			}
			e.Member(1).LoseTouches()
			time.Sleep(100 * time.Millisecond)
		}
		require.Less(t, time.Since(start), 4*time.Second+tick+100*time.Millisecond)
	})
}

func TestEnsemble_SessionOverButNotYetHere_WritesNothing(t *testing.T) {
	threeMembers(t, func(t *testing.T, n *Network, e *Ensemble) {
		c := raw(t, n, e.Member(1), 20*time.Second)
		e.Member(1).SetLag(5 * time.Second)
		require.True(t, e.ExpireSession(c.Session.SessionID))
		require.True(t, existsAt(t, c, "/"), "the member does not know")
		_, _, err := c.Call(wire.OpCreate, wire.CreateRequest{Path: "/orphan", ACL: world, Flags: wire.FlagEphemeral})
		require.Error(t, err)
		time.Sleep(time.Minute)
		require.Nil(t, e.Children("/orphan"))
		_, _, err = c.Call(wire.OpClose, nil)
		require.Error(t, err)
	})
}
