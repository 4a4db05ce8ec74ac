package sasl

// These tests attack DIGEST-MD5: what the RFC computes, odd characters, servers that lie.

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock/internal/secret"
	"github.com/zklock/zklock/internal/wire"
)

// RFC 2831, section 4.
const (
	rfcChallenge = `realm="elwood.innosoft.com",nonce="OA6MG9tEQGm2hh",qop="auth",algorithm=md5-sess,charset=utf-8`
	rfcResponse  = "d388dad90d4bbd760a152321f2143af7"
	rfcAuth      = "rspauth=ea40f60335c427b5527b84dbabcdfffd"
)

func rfcProof() *proof {
	return &proof{user: "chris", password: "secret", cnonce: "OA6MHXh6VqTrRk", uri: "imap/elwood.innosoft.com"}
}

func TestDigest_RFCExample(t *testing.T) {
	p := rfcProof()
	token, err := p.respond([]byte(rfcChallenge))
	require.NoError(t, err)
	require.Equal(t, `charset=utf-8,username="chris",realm="elwood.innosoft.com",nonce="OA6MG9tEQGm2hh",nc=00000001,cnonce="OA6MHXh6VqTrRk",`+
		`digest-uri="imap/elwood.innosoft.com",maxbuf=65536,response=`+rfcResponse+`,qop=auth`, string(token))
	require.NoError(t, p.verify([]byte(rfcAuth)))
}

// A server proves itself with the whole of its word, and nothing else will do.
func TestDigest_WrongProofOfTheServer_IsFinal(t *testing.T) {
	for _, answer := range []string{
		"", "rspauth=", "rspauth=" + rfcResponse, rfcAuth[:len(rfcAuth)-1], rfcAuth + "d", rfcChallenge, "rspauth", strings.ToUpper(rfcAuth),
	} {
		p := rfcProof()
		_, err := p.respond([]byte(rfcChallenge))
		require.NoError(t, err)
		err = p.verify([]byte(answer))
		require.ErrorIs(t, err, ErrFailed, answer)
		require.NotContains(t, err.Error(), "chris")
	}
}

// What a server cannot be answered with is no refusal: another server may do better.
func TestDigest_UnusableChallenge(t *testing.T) {
	for challenge, says := range map[string]string{
		"":                              "no challenge",
		rfcAuth:                         "nonce is there 0 times",
		`nonce="a",nonce="b"`:           "nonce is there 2 times",
		`nonce="a"`:                     "algorithm is there 0 times",
		`nonce="a",algorithm=md5`:       `"md5", and not md5-sess`,
		`nonce="a`:                      "malformed at byte",
		`nonce="a"x,algorithm=md5-sess`: "malformed at byte",
		`nonce`:                         "malformed at byte 0",
		`="a"`:                          "malformed at byte 0",
		`nonce=,algorithm=md5-sess`:     "malformed at byte",
		`nonce="a\`:                     "malformed at byte",
		`nonce="a",algorithm=md5-sess,qop="auth-int,auth-conf"`: "and not auth",
	} {
		_, err := rfcProof().respond([]byte(challenge))
		require.ErrorContains(t, err, says, challenge)
		require.NotErrorIs(t, err, ErrFailed, challenge)
	}
	old := `nonce="a",algorithm=md5-sess`
	for _, p := range []*proof{{user: "χ", password: "a"}, {user: "a", password: "χ"}} {
		_, err := p.respond([]byte(old))
		require.ErrorContains(t, err, "does not take UTF-8")
	}
	token, err := (&proof{user: "jürgen", password: "größe"}).respond([]byte(old))
	require.NoError(t, err)
	require.Contains(t, string(token), "username=\"j\xfcrgen\"")
	require.NotContains(t, string(token), "charset")
	require.NotContains(t, string(token), "realm")
}

func TestParse(t *testing.T) {
	for token, want := range map[string]directives{
		"":                       {},
		" , ,":                   {},
		`A=b`:                    {"a": {"b"}},
		`a="b"`:                  {"a": {"b"}},
		` a = "b" , c = d ,`:     {"a": {"b"}, "c": {"d"}},
		`a=""`:                   {"a": {""}},
		`a="x\"y\\z,w=v"`:        {"a": {`x"y\z,w=v`}},
		`a="\b"`:                 {"a": {"b"}},
		"a=1,a=\"2\"\r\n\t,b=x":  {"a": {"1", "2"}, "b": {"x"}},
		`realm="e.x",qop="auth"`: {"realm": {"e.x"}, "qop": {"auth"}},
	} {
		got, err := parse([]byte(token))
		require.NoError(t, err, token)
		require.Equal(t, want, got, token)
	}
}

// Whatever bytes arrive, parse ends, and it can read what it quotes.
func FuzzParse(f *testing.F) {
	f.Add([]byte(rfcChallenge))
	f.Add([]byte(`a="\`))
	f.Fuzz(func(t *testing.T, token []byte) {
		if d, err := parse(token); err == nil {
			for name := range d {
				require.NotContains(t, name, "=")
			}
		}
		d, err := parse([]byte("a=" + quoted(string(token))))
		require.NoError(t, err)
		require.Equal(t, directives{"a": {string(token)}}, d)
	})
}

// exchange has a mechanism talk to a server.
func exchange(begin Begin, answer func([]byte) ([]byte, error)) (steps int, err error) {
	x, err := begin.Start(context.Background(), "zk1:2181")
	if err != nil {
		return 0, err
	}
	err = x(func(token []byte) ([]byte, error) {
		steps++
		return answer(token)
	})
	return steps, err
}

func digestOf(user, password string) Begin {
	return DigestMD5(secret.Of([]byte(user)), secret.Of([]byte(password)))
}

// Users and passwords of any characters are proved in two round trips, and no two of them are taken
// for one another.
func TestDigest_AnyCharacters(t *testing.T) {
	names := []string{"a", `"`, `\`, `\"`, "a,b=c", " ", "é", "é€", "日本", "\x00\x7f\n", "a:b", "😀"}
	for _, user := range names {
		for _, password := range names {
			srv := &DigestServer{Users: map[string]string{user: password}}
			steps, err := exchange(digestOf(user, password), srv.Answer)
			require.NoError(t, err, "%q %q", user, password)
			require.Equal(t, 2, steps)
			require.Equal(t, user, srv.User)
			for _, wrong := range []string{password + "x", user + password} {
				srv := &DigestServer{Users: map[string]string{user: wrong}}
				_, err := exchange(digestOf(user, password), srv.Answer)
				require.ErrorIs(t, err, errServer)
				require.Empty(t, srv.User)
			}
		}
	}
	_, err := exchange(digestOf("a", "b"), (&DigestServer{Users: map[string]string{"b": "b"}}).Answer)
	require.ErrorIs(t, err, errServer, "an unknown user")
}

// A server without the password ends the exchange early, or makes a proof up: the client rejects
// it.
func TestDigest_ServerWithoutThePassword(t *testing.T) {
	for _, last := range []string{"", "rspauth=00000000000000000000000000000000"} {
		srv := &DigestServer{}
		steps, err := exchange(digestOf("ann", "secret"), func(token []byte) ([]byte, error) {
			if len(token) == 0 {
				return srv.Answer(token)
			}
			return []byte(last), nil
		})
		require.Equal(t, 2, steps)
		require.ErrorIs(t, err, ErrFailed)
	}
	steps, err := exchange(digestOf("ann", "secret"), func([]byte) ([]byte, error) { return nil, nil })
	require.Equal(t, 1, steps, "a server without SASL")
	require.NotErrorIs(t, err, ErrFailed)
	require.ErrorContains(t, err, "no challenge")
}

// No two exchanges have a cnonce, or a nonce, in common.
func TestDigest_EachExchangeIsNew(t *testing.T) {
	seen := map[string]bool{}
	for range 100 {
		srv := &DigestServer{Users: map[string]string{"a": "b"}}
		_, err := exchange(digestOf("a", "b"), func(token []byte) ([]byte, error) {
			if d, err := parse(token); err == nil && len(token) > 0 {
				for _, value := range []string{d.first("nonce"), d.first("cnonce"), d.first("response")} {
					require.False(t, seen[value])
					seen[value] = true
				}
			}
			return srv.Answer(token)
		})
		require.NoError(t, err)
	}
	require.Len(t, seen, 300)
}

// The server's side rejects a second exchange, and a token that it cannot read.
func TestDigestServer_OutOfTurn(t *testing.T) {
	srv := &DigestServer{Users: map[string]string{"a": "b"}}
	_, err := exchange(digestOf("a", "b"), srv.Answer)
	require.NoError(t, err)
	_, err = srv.Answer(nil)
	require.ErrorIs(t, err, errServer)
	_, err = (&DigestServer{nonce: "n"}).Answer([]byte(`username="`))
	require.Error(t, err)
}

// R149: Java's client names itself as its authzid, too, which its response covers (RFC 2831, A1).
func TestDigestServer_TokenOfTheJDK(t *testing.T) {
	const token = `charset=utf-8,username="ann",realm="zk-sasl-md5",nonce="OA6MG9tEQGm2hh",nc=00000001,cnonce="VZyJ3GoTkmhWh0lgIaJzHyiFQakRTEsycYM80Pcc",` +
		`digest-uri="zookeeper/zk-sasl-md5",maxbuf=65536,response=b64704319070753e45a1efdb1e4335ff,qop=auth,authzid="ann"`
	answer := func(token string) (string, error) {
		srv := &DigestServer{Users: map[string]string{"ann": "secret"}, nonce: "OA6MG9tEQGm2hh"}
		_, err := srv.Answer([]byte(token))
		return srv.User, err
	}
	for _, good := range []string{token, strings.Replace(token, ",qop=auth", "", 1), strings.Replace(token, "nc=00000001,", "nc=1,nc=2,", 1)} {
		user, err := answer(good)
		require.NoError(t, err, good)
		require.Equal(t, "ann", user)
	}
	for _, bad := range []string{
		strings.Replace(token, `,authzid="ann"`, "", 1), strings.Replace(token, `authzid="ann"`, `authzid="bob"`, 1), token + `,authzid="ann"`,
		token + ",qop=auth", token + ",charset=utf-8", token + `,username="ann"`, strings.Replace(token, "qop=auth", "qop=auth-int", 1),
	} {
		user, err := answer(bad)
		require.ErrorIs(t, err, errServer, bad)
		require.Empty(t, user)
	}
}

// done with a last token waits for the response to it, and accepts any; done without one waits for
// nothing.
func TestExchange_LastToken(t *testing.T) {
	for _, last := range [][]byte{nil, {}, []byte("bye")} {
		var sent []string
		begin := Begin(func(context.Context, string) (Step, []byte, error) {
			return func([]byte) (bool, []byte, error) { return true, last, nil }, []byte("hello"), nil
		})
		_, err := exchange(begin, func(token []byte) ([]byte, error) {
			sent = append(sent, string(token))
			return []byte("whatever"), nil
		})
		require.NoError(t, err)
		want := []string{"hello"}
		if last != nil {
			want = append(want, string(last))
		}
		require.Equal(t, want, sent)
	}
	x, err := Begin(nil).Start(context.Background(), "zk1:2181")
	require.NoError(t, err)
	require.Nil(t, x)
	broken := errors.New("no KDC")
	_, err = Begin(func(context.Context, string) (Step, []byte, error) { return nil, nil, broken }).Start(context.Background(), "")
	require.ErrorIs(t, err, broken)
}

// The meaning of a response on the wire: a rejection is a code; any other error does not concern
// our identity.
func TestOver_Answers(t *testing.T) {
	answer := func(xid int32, code wire.Code, rest ...wire.Record) []byte {
		return wire.Frame(append([]wire.Record{wire.ReplyHeader{Xid: xid, Err: code}}, rest...)...)[4:]
	}
	for _, tc := range []struct {
		body    []byte
		refusal wire.Code
		says    string
	}{
		{body: answer(7, wire.OK, wire.SASLToken{Token: []byte("t")})},
		{body: answer(7, wire.AuthRequired), refusal: wire.AuthRequired, says: "-124"},
		{body: answer(7, wire.AuthFailed, wire.SASLToken{}), refusal: wire.AuthFailed, says: "-115"},
		{body: answer(7, wire.NoAuth), refusal: wire.NoAuth, says: "-102"},
		{body: answer(7, wire.Throttled), says: "throttled"},
		{body: answer(8, wire.OK, wire.SASLToken{}), says: "request 8 in place of 7"},
		{body: answer(7, wire.OK), says: "malformed record"},
		{body: []byte{1, 2}, says: "no header"},
	} {
		var sent strings.Builder
		ask := Over(&sent, func() int32 { return 7 }, func() ([]byte, error) { return tc.body, nil })
		token, err := ask(nil)
		require.Equal(t, wire.Frame(wire.RequestHeader{Xid: 7, Op: wire.OpSASL}, wire.SASLToken{Token: []byte{}}), []byte(sent.String()), "an empty token is not null")
		if tc.says == "" {
			require.NoError(t, err)
			require.Equal(t, "t", string(token))
			continue
		}
		require.ErrorContains(t, err, tc.says)
		var code wire.Code
		require.Equal(t, tc.refusal != 0, errors.As(err, &code), tc.says)
		require.Equal(t, tc.refusal, code)
	}
}
