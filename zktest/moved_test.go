package zktest_test

// An ensemble's treatment of a connection whose session has moved to another member, and of auth
// after waiting requests.

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock/internal/rawzk"
	"github.com/zklock/zklock/internal/wire"
	. "github.com/zklock/zklock/zktest"
)

// moveTo moves a connection's session to another member.
func moveTo(t *testing.T, n *Network, m *Member, from *rawzk.Conn) *rawzk.Conn {
	t.Helper()
	to := rawUnconnected(t, n, m)
	require.NoError(t, to.Connect(wire.ConnectRequest{Timeout: 20_000, SessionID: from.Session.SessionID, Password: from.Session.Password}))
	require.Equal(t, from.Session.SessionID, to.Session.SessionID)
	return to
}

func TestEnsemble_SessionMovedFromTheLeader_EveryRequestClosesTheOldConnection(t *testing.T) {
	for _, ask := range []struct {
		op   wire.Op
		body wire.Record
	}{
		{op: wire.OpPing},
		{wire.OpExists, wire.PathWatchRequest{Path: "/"}},
		{wire.OpSync, wire.PathRequest{Path: "/"}},
		{wire.OpCreate, wire.CreateRequest{Path: "/a", ACL: world}},
	} {
		t.Run(fmt.Sprint(ask.op), func(t *testing.T) {
			threeMembers(t, func(t *testing.T, n *Network, e *Ensemble) {
				old := raw(t, n, e.Member(3), 20*tick)
				moved := moveTo(t, n, e.Member(1), old)
				_, _, err := old.Call(ask.op, ask.body)
				require.Error(t, err)
				require.True(t, existsAt(t, moved, "/"))
				require.Nil(t, e.Children("/a"))
			})
		})
	}
}

func TestEnsemble_SessionMovedFromAFollower_WritesCloseTheOldConnection(t *testing.T) {
	threeMembers(t, func(t *testing.T, n *Network, e *Ensemble) {
		old := raw(t, n, e.Member(1), 20*tick)
		moved := moveTo(t, n, e.Member(3), old)
		call(t, old, wire.OpPing, nil)
		require.True(t, existsAt(t, old, "/"))
		code, _, _ := call(t, old, wire.OpSync, wire.PathRequest{Path: "/"})
		require.Equal(t, wire.OK, code)
		before := e.Zxid()
		_, _, err := old.Call(wire.OpCreate, wire.CreateRequest{Path: "/a", ACL: world})
		require.Error(t, err)
		require.Equal(t, before+1, e.Zxid())
		require.Equal(t, wire.OK, createAt(t, moved, "/a", 0))
	})
}

func TestEnsemble_SessionMoved_CloseOnTheOldConnectionEndsTheSession(t *testing.T) {
	for _, from := range []int{1, 3} {
		threeMembers(t, func(t *testing.T, n *Network, e *Ensemble) {
			old := raw(t, n, e.Member(from), 20*tick)
			moved := moveTo(t, n, e.Member(2), old)
			code, _, _ := call(t, old, wire.OpClose, nil)
			require.Equal(t, wire.OK, code)
			require.Empty(t, e.Sessions())
			_, err := moved.Receive()
			require.Error(t, err)
		})
	}
}

func TestEnsemble_LeaderCutOffBriefly_AcceptsASession_ThatWritesAfterwards(t *testing.T) {
	threeMembers(t, func(t *testing.T, n *Network, e *Ensemble) {
		old := raw(t, n, e.Member(1), 20*tick)
		e.Member(3).Isolate()
		moved := moveTo(t, n, e.Member(3), old)
		e.Heal()
		require.Equal(t, wire.OK, createAt(t, moved, "/a", 0))
	})
}

func TestAuth_IsAnsweredBeforeRequestsThatWait_WhichDoNotHaveItsRights(t *testing.T) {
	threeMembers(t, func(t *testing.T, n *Network, e *Ensemble) {
		c := raw(t, n, e.Member(1), 20*tick)
		call(t, c, wire.OpCreate, wire.CreateRequest{Path: "/p", ACL: []wire.ACL{{Perms: wire.PermAll, ID: wire.ID{Scheme: "digest", ID: Digest("u:p")}}}})
		e.Member(1).Isolate()
		var xids []int32
		send := func(op wire.Op, body wire.Record) {
			xid, err := c.Send(op, body)
			require.NoError(t, err)
			xids = append(xids, xid)
		}
		send(wire.OpSync, wire.PathRequest{Path: "/"})
		send(wire.OpCreate, wire.CreateRequest{Path: "/p/early", ACL: world})
		send(wire.OpAuth, wire.AuthRequest{Scheme: "digest", Auth: []byte("u:p")})
		send(wire.OpCreate, wire.CreateRequest{Path: "/p/late", ACL: world})
		receive := func() wire.ReplyHeader {
			r, err := c.Receive()
			require.NoError(t, err)
			return r.Header
		}
		require.Equal(t, xids[2], receive().Xid)
		e.Heal()
		require.Equal(t, xids[0], receive().Xid)
		require.Equal(t, wire.NoAuth, receive().Err)
		require.Equal(t, wire.OK, receive().Err)
	})
}

func TestAuth_BehindAFault_LaterRequestsKeepTheirOrder(t *testing.T) {
	threeMembers(t, func(t *testing.T, n *Network, e *Ensemble) {
		c := raw(t, n, e.Member(1), 20*tick)
		auth := e.Inject(Before(Op(wire.OpAuth)).Hold())
		e.Member(1).Isolate()
		for _, ask := range []struct {
			op   wire.Op
			body wire.Record
		}{
			{wire.OpCreate, wire.CreateRequest{Path: "/a", ACL: world}},
			{wire.OpAuth, wire.AuthRequest{Scheme: "digest", Auth: []byte("u:p")}},
			{wire.OpCreate, wire.CreateRequest{Path: "/a/b", ACL: world}},
		} {
			_, err := c.Send(ask.op, ask.body)
			require.NoError(t, err)
		}
		require.NoError(t, auth.Wait(t.Context()))
		auth.Release()
		for i := range 3 {
			if i == 1 {
				e.Heal()
			}
			r, err := c.Receive()
			require.NoError(t, err)
			require.Equal(t, wire.OK, r.Header.Err)
		}
	})
}

func TestEnsemble_ConfigNode_HasTheMembers(t *testing.T) {
	threeMembers(t, func(t *testing.T, n *Network, e *Ensemble) {
		want := ""
		for i, addr := range e.Addrs() {
			host := addr[:len(addr)-len(":2181")]
			want += fmt.Sprintf("server.%d=%s:2888:3888:participant;%s\n", i+1, host, addr)
		}
		want += "version=0"
		for _, m := range e.Members() {
			code, body, _ := call(t, raw(t, n, m, 20*tick), wire.OpGetData, wire.PathWatchRequest{Path: "/zookeeper/config"})
			require.Equal(t, wire.OK, code)
			var r wire.DataResponse
			r.Decode(wire.NewDecoder(body))
			require.Equal(t, want, string(r.Data))
			require.EqualValues(t, -1, r.Stat.Version)
			require.EqualValues(t, 0, r.Stat.Mzxid)
			require.NotZero(t, r.Stat.Mtime)
		}
		e.Reset()
		data, _ := e.Get("/zookeeper/config")
		require.Equal(t, want, string(data))
		st, _ := e.Stat("/zookeeper/config")
		require.EqualValues(t, -1, st.Version)
	})
}
