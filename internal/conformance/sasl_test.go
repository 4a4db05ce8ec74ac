package conformance

// These tests make the same SASL requests to a real server and to zktest, step by step, and put
// Curator into one queue with us on a server that requires SASL.

import (
	"context"
	"crypto/md5"
	"fmt"
	"log/slog"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/internal/rawzk"
	isasl "github.com/zklock/zklock/internal/sasl"
	"github.com/zklock/zklock/internal/secret"
	"github.com/zklock/zklock/internal/wire"
	"github.com/zklock/zklock/internal/zkserver"
	"github.com/zklock/zklock/sasl"
	"github.com/zklock/zklock/zktest"
)

var saslUsers = map[string]string{"ann": "secret", `o"d\d`: `p"w\`, "zoë": "größe", "χ": "κωδικός"}

// saslScript is the actions of one connection after its handshake; it ends when the server closes
// the connection.
type saslScript []func(c *rawzk.Conn) (*rawzk.Reply, error)

func asks(op wire.Op, body wire.Record) func(c *rawzk.Conn) (*rawzk.Reply, error) {
	return func(c *rawzk.Conn) (*rawzk.Reply, error) {
		r, _, err := c.Call(op, body)
		return &r, err
	}
}

// proves performs an exchange, and returns the last reply.
func proves(user, password string) func(c *rawzk.Conn) (*rawzk.Reply, error) {
	return func(c *rawzk.Conn) (last *rawzk.Reply, err error) {
		x, err := isasl.DigestMD5(secret.Of([]byte(user)), secret.Of([]byte(password))).Start(context.Background(), "")
		if err != nil {
			return nil, err
		}
		err = x(func(token []byte) ([]byte, error) {
			r, _, err := c.Call(wire.OpSASL, wire.SASLToken{Token: token})
			if last = &r; err != nil || r.Header.Err != wire.OK {
				return nil, fmt.Errorf("the exchange ends: %w", err)
			}
			var answer wire.SASLToken
			answer.Decode(wire.NewDecoder(r.Body))
			return answer.Token, nil
		})
		if last != nil {
			return last, nil
		}
		return nil, err
	}
}

// proof completes a client's token of the test's own: in the text, N becomes the nonce, and R the
// response-value of RFC 2831 for ann, with the given end of A1.
func proof(text, authzid string) func(c *rawzk.Conn) (*rawzk.Reply, error) {
	return func(c *rawzk.Conn) (*rawzk.Reply, error) {
		challenge, _, err := c.Call(wire.OpSASL, wire.SASLToken{Token: []byte{}})
		if err != nil {
			return nil, err
		}
		nonce := regexp.MustCompile(`nonce="([^"]*)"`).FindSubmatch(challenge.Body)
		if nonce == nil {
			return nil, fmt.Errorf("no nonce in %q", challenge.Body)
		}
		md5Of := func(text string) string { sum := md5.Sum([]byte(text)); return string(sum[:]) }
		a1 := md5Of(md5Of("ann:zk-sasl-md5:"+saslUsers["ann"]) + ":" + string(nonce[1]) + ":c" + authzid)
		a2 := md5Of("AUTHENTICATE:zookeeper/zk-sasl-md5")
		response := fmt.Sprintf("%x", md5Of(fmt.Sprintf("%x:%s:00000001:c:auth:%x", a1, nonce[1], a2)))
		return asks(wire.OpSASL, wire.SASLToken{Token: []byte(strings.NewReplacer("N", string(nonce[1]), "R", response).Replace(text))})(c)
	}
}

// proofs are the tokens of clients that differ from ours, each with the end of its A1.
func proofs() (all [][2]string) {
	const base = `username="ann",realm="zk-sasl-md5",nonce="N",cnonce="c",digest-uri="zookeeper/zk-sasl-md5",response=R`
	all = append(all, [2]string{"charset=utf-8," + base + `,nc=00000001,maxbuf=65536,qop=auth,authzid="ann"`, ":ann"}) // the JDK's
	for _, more := range []string{
		"", ",nc=00000001", ",nc=00000002", ",nc=x", ",qop=auth", ",qop=AUTH", ",qop=auth-int", ",charset=utf-8", ",charset=UTF-8", ",charset=latin1",
		",maxbuf=0", ",cipher=rc4", ",authzid=ann",
		// twice:
		",nc=00000001,nc=00000001", ",x=1,x=1", ",maxbuf=1,maxbuf=1", ",cipher=a,cipher=a", ",auth-param=a,auth-param=a", ",qop=auth,qop=auth",
		",charset=utf-8,charset=utf-8", `,username="ann"`, `,realm="zk-sasl-md5"`, `,nonce="N"`, `,cnonce="c"`, `,digest-uri="zookeeper/zk-sasl-md5"`, ",response=R",
		`,Username="ann"`,
	} {
		all = append(all, [2]string{base + more, ""})
	}
	for _, other := range [][2]string{
		{`authzid="ann"`, ":ann"}, {`authzid="bob"`, ":bob"}, {`authzid=""`, ":"}, {`authzid=""`, ""}, {`x=1`, ":ann"}, {`authzid="ann",authzid="ann"`, ":ann"},
	} {
		all = append(all, [2]string{base + "," + other[0], other[1]})
	}
	for _, part := range []string{`username="ann",`, `realm="zk-sasl-md5",`, `nonce="N",`, `cnonce="c",`, `digest-uri="zookeeper/zk-sasl-md5",`, ",response=R"} {
		all = append(all, [2]string{strings.Replace(base, part, "", 1), ""})
	}
	return append(all, [2]string{strings.Replace(base, "zookeeper/", "ZooKeeper/", 1), ""}, [2]string{strings.Replace(base, `"ann"`, "\"zo\xeb\"", 1), ""})
}

func saslScripts() []saslScript {
	world := []wire.ACL{{Perms: wire.PermAll, ID: wire.ID{Scheme: "world", ID: "anyone"}}}
	create := func(path, scheme, id string) wire.CreateRequest {
		return wire.CreateRequest{Path: path, ACL: []wire.ACL{{Perms: wire.PermAll, ID: wire.ID{Scheme: scheme, ID: id}}}}
	}
	root := asks(wire.OpExists, wire.PathWatchRequest{Path: "/"})
	scripts := []saslScript{
		{root},
		{asks(wire.OpPing, nil)},
		{asks(wire.OpCreate, wire.CreateRequest{Path: "/none", ACL: world}), root},
		{asks(wire.OpAuth, wire.AuthRequest{Scheme: "digest", Auth: []byte("a:b")}), root},
		{proves("ann", "wrong"), root},
		{proves("nobody", "other"), root}, // with the password of the last user, 3.8.0 takes anybody
		{asks(wire.OpSASL, wire.SASLToken{Token: []byte("hello")}), root},
		{asks(wire.OpSASL, wire.SASLToken{Token: []byte{}}), asks(wire.OpSASL, wire.SASLToken{Token: []byte(`username="`)}), root},
		{proves("ann", "secret"), root, asks(wire.OpSASL, wire.SASLToken{Token: []byte{}}), root},
		{proves("ann", "secret"), asks(wire.OpCreate, create("/auth", "auth", "")), asks(wire.OpGetACL, wire.PathRequest{Path: "/auth"}),
			asks(wire.OpCreate, create("/other", "sasl", "bob")), asks(wire.OpGetData, wire.PathWatchRequest{Path: "/other"}),
			asks(wire.OpCreate, create("/host", "sasl", "zk/host@REALM")), asks(wire.OpCreate, create("/bad", "sasl", "a@b@c")),
			asks(wire.OpCreate, create("/mine", "sasl", "ann")), asks(wire.OpGetData, wire.PathWatchRequest{Path: "/mine"})},
	}
	for _, p := range proofs() {
		scripts = append(scripts, saslScript{proof(p[0], p[1]), asks(wire.OpGetData, wire.PathWatchRequest{Path: "/mine"})})
	}
	for _, user := range slices.Sorted(maps.Keys(saslUsers)) {
		password := saslUsers[user]
		scripts = append(scripts, saslScript{proves(user, password), root})
	}
	return scripts
}

// answers runs the scripts and records the replies, without the parts that differ between any two
// servers.
func (s saslScript) answers(t *testing.T, addr string) (lines []string) {
	t.Helper()
	c, err := rawzk.Dial(addr)
	require.NoError(t, err)
	defer c.Close()
	require.NoError(t, c.Connect(wire.ConnectRequest{Timeout: 10_000, HasReadOnly: true}))
	for _, step := range s {
		r, err := step(c)
		if err != nil || r == nil {
			return append(lines, "hung up")
		}
		lines = append(lines, fmt.Sprintf("%d %v, zxid %t, %s", r.Header.Xid, r.Header.Err, r.Header.Zxid > 0, shape(r)))
	}
	return lines
}

// shape describes the SASL part of a body, or its length.
func shape(r *rawzk.Reply) string {
	for _, word := range []string{"rspauth=", "nonce=", "sasl"} {
		if strings.Contains(string(r.Body), word) {
			return word
		}
	}
	return fmt.Sprint(len(r.Body))
}

func TestSASL_AnswersAsOnAnyServer(t *testing.T) {
	if testing.Short() {
		t.Skip("starts real servers")
	}
	for _, required := range []bool{true, false} {
		real, own := []zkserver.Option{zkserver.SASLUsers(saslUsers)}, []zktest.Option{zktest.WithSASLUsers(saslUsers)}
		if required {
			real, own = append(real, zkserver.SASLRequired()), append(own, zktest.WithConfig("sessionRequireClientSASLAuth=true"))
		}
		realAddr, ownAddr := zkserver.Single(t, real...).Addr(), zktest.Start(t, own...).Addr()
		for i, script := range saslScripts() {
			want := script.answers(t, realAddr)
			require.Equal(t, want, script.answers(t, ownAddr), "required %t, script %d", required, i)
			t.Logf("required %t, script %d: %v", required, i, strings.Join(want, "; "))
		}
	}
}

// docs/access.md: 3.8.0 keeps the last user's password for the next one, and so accepts an
// unknown user.
func TestSASL_UnknownUser(t *testing.T) {
	addr := zkserver.Single(t, zkserver.SASLUsers(saslUsers), zkserver.SASLRequired()).Addr()
	if version, err := zkserver.Version(addr); err != nil || version != "3.8.0" {
		t.Skipf("not on ZooKeeper %s: it was seen of 3.8.0 (%v)", version, err)
	}
	got := saslScript{proves("ghost", "secret")}.answers(t, addr)
	require.Contains(t, got[0], "authentication required", "nobody came before")
	got = saslScript{proves("ann", "secret")}.answers(t, addr)
	require.Contains(t, got[0], "rspauth=")
	got = saslScript{proves("ghost", "secret"), asks(wire.OpWhoAmI, nil)}.answers(t, addr)
	require.Contains(t, got[0], "rspauth=")
	require.Contains(t, got[1], "sasl", "it is somebody")
}

// F36, I1, I8: Curator and ours in one queue, on a real server that requires SASL: never two in at
// a time, and each in its turn.
func TestInterop_SASL_OneQueue(t *testing.T) {
	suites(t)
	classPath := compileCurator(t)
	addr := zkserver.Single(t, zkserver.SASLUsers(saslUsers), zkserver.SASLRequired()).Addr()
	creds := zklock.WithSASL(sasl.DigestMD5("ann", saslUsers["ann"]))
	s, err := zklock.Connect(t.Context(), addr, creds, zklock.WithLogger(slog.New(slog.DiscardHandler)))
	require.NoError(t, err)
	defer s.Close()
	i := newInteropBy(t, s.Conn(), addr, "sasl")
	i.options, i.java = []zklock.Option{creds}, jaasClient(t, "ann", saslUsers["ann"])
	i.run(map[string]func() error{
		"zklock":  i.zklock,
		"curator": func() error { return i.curator(classPath, interopContenders, interopRounds) },
	})
}
