package zktest_test

// These tests attack SASL: the tokens that a server with users accepts and rejects, and the
// requests that need SASL.

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock/internal/rawzk"
	"github.com/zklock/zklock/internal/sasl"
	"github.com/zklock/zklock/internal/secret"
	"github.com/zklock/zklock/internal/wire"
	"github.com/zklock/zklock/zktest"
)

var saslUsers = map[string]string{"ann": "secret"}

// attach opens a session.
func attach(t *testing.T, srv *zktest.Server) *rawzk.Conn {
	t.Helper()
	c, err := rawzk.Dial(srv.Addr())
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	require.NoError(t, c.Connect(wire.ConnectRequest{Timeout: 10_000}))
	return c
}

// prove performs an exchange, and returns the code of the last reply.
func prove(t *testing.T, c *rawzk.Conn, user, password string) wire.Code {
	t.Helper()
	x, err := sasl.DigestMD5(secret.Of([]byte(user)), secret.Of([]byte(password))).Start(t.Context(), "")
	require.NoError(t, err)
	err = x(func(token []byte) ([]byte, error) {
		reply, _, err := c.Call(wire.OpSASL, wire.SASLToken{Token: token})
		require.NoError(t, err)
		require.Zero(t, reply.Header.Zxid)
		if reply.Header.Err != wire.OK {
			return nil, reply.Header.Err
		}
		var answer wire.SASLToken
		answer.Decode(wire.NewDecoder(reply.Body))
		return answer.Token, nil
	})
	if code, ok := err.(wire.Code); ok {
		return code
	}
	require.NoError(t, err)
	return wire.OK
}

func hangsUp(t *testing.T, c *rawzk.Conn) {
	t.Helper()
	_, err := c.ReadFrame()
	require.Error(t, err)
}

func codeOf(t *testing.T, c *rawzk.Conn, op wire.Op, body wire.Record) wire.Code {
	t.Helper()
	reply, _, err := c.Call(op, body)
	require.NoError(t, err)
	return reply.Header.Err
}

func TestSASL_Required(t *testing.T) {
	srv := zktest.Start(t, zktest.WithSASLUsers(saslUsers), zktest.WithConfig("sessionRequireClientSASLAuth=true"))
	for _, op := range []struct {
		op   wire.Op
		body wire.Record
	}{
		{wire.OpExists, wire.PathWatchRequest{Path: "/"}}, {wire.OpPing, nil}, {wire.OpClose, nil},
		{wire.OpCreate, wire.CreateRequest{Path: "/a", ACL: []wire.ACL{{Perms: 31, ID: wire.ID{Scheme: "world", ID: "anyone"}}}}},
	} {
		c := attach(t, srv)
		require.Equal(t, wire.OK, codeOf(t, c, wire.OpAuth, wire.AuthRequest{Scheme: "digest", Auth: []byte("a:b")}), "which is not enough")
		require.Equal(t, wire.AuthRequired, codeOf(t, c, op.op, op.body), op.op)
		hangsUp(t, c)
	}
	require.Empty(t, srv.Children("/a"))
	c := attach(t, srv)
	require.Equal(t, wire.OK, prove(t, c, "ann", "secret"))
	require.Equal(t, wire.OK, codeOf(t, c, wire.OpExists, wire.PathWatchRequest{Path: "/"}))
	for _, wrong := range [][2]string{{"ann", "Secret"}, {"bob", "secret"}} {
		c := attach(t, srv)
		require.Equal(t, wire.AuthRequired, prove(t, c, wrong[0], wrong[1]))
		hangsUp(t, c)
	}
}

func TestSASL_NotRequired(t *testing.T) {
	srv := zktest.Start(t, zktest.WithSASLUsers(saslUsers))
	c := attach(t, srv)
	require.Equal(t, wire.OK, codeOf(t, c, wire.OpExists, wire.PathWatchRequest{Path: "/"}))
	require.Equal(t, wire.OK, prove(t, c, "ann", "secret"))
	reply, _, err := c.Call(wire.OpWhoAmI, nil)
	require.NoError(t, err)
	var who wire.WhoAmIResponse
	who.Decode(wire.NewDecoder(reply.Body))
	require.Contains(t, who.IDs, wire.ID{Scheme: "sasl", ID: "ann"})
	require.Equal(t, wire.AuthFailed, codeOf(t, c, wire.OpSASL, wire.SASLToken{Token: []byte{}}), "once a connection")
	hangsUp(t, c)
	c = attach(t, srv)
	require.Equal(t, wire.AuthFailed, prove(t, c, "ann", "wrong"))
	hangsUp(t, c)
}

func TestSASL_ACL(t *testing.T) {
	users, none := zktest.Start(t, zktest.WithSASLUsers(saslUsers)), zktest.Start(t)
	create := func(c *rawzk.Conn, path, scheme, id string) wire.Code {
		return codeOf(t, c, wire.OpCreate, wire.CreateRequest{Path: path, ACL: []wire.ACL{{Perms: 31, ID: wire.ID{Scheme: scheme, ID: id}}}})
	}
	ann, anybody := attach(t, users), attach(t, users)
	require.Equal(t, wire.InvalidACL, create(ann, "/auth", "auth", ""), "nobody yet")
	require.Equal(t, wire.OK, prove(t, ann, "ann", "secret"))
	require.Equal(t, wire.OK, create(ann, "/auth", "auth", ""))
	require.Equal(t, wire.OK, create(anybody, "/ann", "sasl", "ann"))
	require.Equal(t, wire.OK, create(anybody, "/host", "sasl", "zk/host@REALM"))
	require.Equal(t, wire.InvalidACL, create(anybody, "/bad", "sasl", "a@b@c"))
	require.Equal(t, wire.InvalidACL, create(attach(t, none), "/ann", "sasl", "ann"), "a server without the provider")
	for _, path := range []string{"/auth", "/ann"} {
		get := wire.PathWatchRequest{Path: path}
		require.Equal(t, wire.OK, codeOf(t, ann, wire.OpGetData, get))
		require.Equal(t, wire.NoAuth, codeOf(t, anybody, wire.OpGetData, get))
	}
	require.Equal(t, wire.NoAuth, codeOf(t, ann, wire.OpGetData, wire.PathWatchRequest{Path: "/host"}))
}

// A server without users replies without a token, as a real server does.
func TestSASL_NoUsers(t *testing.T) {
	reply, _, err := attach(t, zktest.Start(t)).Call(wire.OpSASL, wire.SASLToken{Token: []byte{}})
	require.NoError(t, err)
	require.Equal(t, wire.OK, reply.Header.Err)
	require.Equal(t, []byte{0xff, 0xff, 0xff, 0xff}, reply.Body)
	_, err = zktest.NewServer(zktest.WithConfig("sessionRequireClientSASLAuth=true"))
	require.ErrorContains(t, err, "WithSASLUsers")
}

// nullScheme is an auth request with a null scheme.
type nullScheme struct{}

func (nullScheme) Encode(e *wire.Encoder) {
	e.Int32(0)
	e.NullString()
	e.Buffer([]byte("a:b"))
}

func TestAuth_NullScheme_FailsLikeAnUnknownOne(t *testing.T) {
	c, err := rawzk.Dial(zktest.Start(t).Addr())
	require.NoError(t, err)
	defer c.Close()
	require.NoError(t, c.Connect(wire.ConnectRequest{Timeout: 10_000}))
	require.Equal(t, wire.AuthFailed, codeOf(t, c, wire.OpAuth, nullScheme{}))
}
