package sasl

import (
	"context"
	"crypto/md5"
	"crypto/rand"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/zklock/zklock/internal/secret"
)

// DigestMD5 is the mechanism DIGEST-MD5 (RFC 2831) with the quality of protection "auth", as
// ZooKeeper's servers have it:
//
//	client                                                       server
//	  ├── an empty token ─────────────────────────────────────────▶│
//	  │◀──────────────── challenge: realm, nonce, charset, algorithm ┤
//	  ├── user, cnonce, response: it has the password ────────────▶│
//	  │◀─────────────────────── rspauth: the server has it, too ─────┤
//
// user and password are UTF-8.
func DigestMD5(user, password secret.Bytes) Begin { return digestMD5(user, password, rand.Text) }

func digestMD5(user, password secret.Bytes, cnonce func() string) Begin {
	return func(context.Context, string) (Step, []byte, error) {
		p := proof{user: string(user.Reveal()), password: string(password.Reveal()), cnonce: cnonce(), uri: uri}
		challenged := false
		return func(token []byte) (done bool, answer []byte, err error) {
			if challenged {
				return true, nil, p.verify(token)
			}
			challenged = true
			answer, err = p.respond(token)
			return false, answer, err
		}, []byte{}, nil
	}
}

// uri is the name that every ZooKeeper server uses for itself, whatever its address is.
const uri = "zookeeper/zk-sasl-md5"

// proof is the secret knowledge that the two sides prove to each other.
type proof struct {
	user, password, realm string
	nonce, cnonce, uri    string
	authzid               []string // the identity to act as, if the client names one
	isUTF8                bool     // characters outside Latin-1 are in UTF-8
}

// The longest challenge and the longest proof of a server, in bytes (RFC 2831, section 2.1).
const (
	maxChallenge = 2048
	maxProof     = 4096
)

func (p *proof) respond(challenge []byte) ([]byte, error) {
	switch {
	case len(challenge) == 0:
		return nil, errors.New("the server has no challenge: is SASL configured there?")
	case len(challenge) > maxChallenge:
		return nil, fmt.Errorf("the server's challenge has %d bytes, and DIGEST-MD5 has no more than %d", len(challenge), maxChallenge)
	}
	d, err := parse(challenge)
	if err != nil {
		return nil, err
	}
	if p.nonce, err = d.one("nonce"); err != nil {
		return nil, err
	}
	algorithm, err := d.one("algorithm")
	if err != nil {
		return nil, err
	}
	p.realm, p.isUTF8 = d.first("realm"), strings.EqualFold(d.first("charset"), "utf-8")
	switch {
	case algorithm != "md5-sess":
		return nil, fmt.Errorf("the server's algorithm is %.64q, and not md5-sess", algorithm)
	case len(d["qop"]) > 0 && !slices.ContainsFunc(strings.Split(d.first("qop"), ","), func(q string) bool { return strings.TrimSpace(q) == "auth" }):
		return nil, fmt.Errorf("the server offers the qualities of protection %.64q, and not auth", d.first("qop"))
	case !p.isUTF8 && !(isLatin1(p.user) && isLatin1(p.password)):
		return nil, errors.New("the server does not take UTF-8, and the user or the password is not Latin-1")
	}
	return []byte(p.token()), nil
}

// token returns the client's second token.
func (p *proof) token() string {
	user := p.user
	var b strings.Builder
	if p.isUTF8 {
		b.WriteString("charset=utf-8,")
	} else {
		user = string(latin1(user))
	}
	b.WriteString("username=" + quoted(user))
	if p.realm != "" {
		b.WriteString(",realm=" + quoted(p.realm))
	}
	fmt.Fprintf(&b, ",nonce=%s,nc=%s,cnonce=%s,digest-uri=%s,maxbuf=65536,response=%s,qop=%s",
		quoted(p.nonce), nonceCount, quoted(p.cnonce), quoted(p.uri), p.hash("AUTHENTICATE"), qop)
	return b.String()
}

// verify checks whether the server has proved that it has the password. A server that admits
// clients with a wrong password (zookeeper.allowSaslFailedClients) responds without a proof.
func (p *proof) verify(token []byte) error {
	if len(token) > maxProof {
		return fmt.Errorf("%w: the server's proof has %d bytes, and DIGEST-MD5 has no more than %d", ErrFailed, len(token), maxProof)
	}
	d, err := parse(token)
	if err == nil && subtle.ConstantTimeCompare([]byte(d.first("rspauth")), []byte(p.hash(""))) == 1 {
		return nil
	}
	return fmt.Errorf("%w: the server did not prove that it knows the password of this user", ErrFailed)
}

const (
	nonceCount = "00000001" // each connection has an exchange of its own
	qop        = "auth"
)

// hash is the response-value of RFC 2831, section 2.1.2.1: with "AUTHENTICATE" the client's, with
// "" the server's.
func (p *proof) hash(whose string) string {
	who := md5.Sum(slices.Concat(encoded(p.user), []byte(":"), encoded(p.realm), []byte(":"), encoded(p.password)))
	a1 := md5.Sum(slices.Concat(who[:], []byte(":"+strings.Join(append([]string{p.nonce, p.cnonce}, p.authzid...), ":"))))
	a2 := md5.Sum([]byte(whose + ":" + p.uri))
	all := strings.Join([]string{hex.EncodeToString(a1[:]), p.nonce, nonceCount, p.cnonce, qop, hex.EncodeToString(a2[:])}, ":")
	sum := md5.Sum([]byte(all))
	return hex.EncodeToString(sum[:])
}

// encoded returns the form of a text that is hashed: Latin-1 if that has all its characters,
// whatever charset was agreed on, and otherwise UTF-8.
func encoded(s string) []byte {
	if isLatin1(s) {
		return latin1(s)
	}
	return []byte(s)
}

func isLatin1(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r > 0xff }) && utf8.ValidString(s)
}

// latin1 encodes a text that has only Latin-1 characters.
func latin1(s string) []byte {
	b := make([]byte, 0, len(s))
	for _, r := range s {
		b = append(b, byte(r))
	}
	return b
}
