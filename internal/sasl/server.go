package sasl

import (
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"slices"
	"unicode/utf8"
)

// DigestServer is the server's side of DIGEST-MD5, for one connection of a test's server.
type DigestServer struct {
	Users map[string]string // passwords
	nonce string
	User  string // the user that has proved its identity; "" before, and whatever its authzid is
}

// Realm is the realm of a ZooKeeper server.
const Realm = "zk-sasl-md5"

var errServer = errors.New("rejected")

// Answer takes a token from the client and returns the server's, or an error if it rejects the
// token.
func (s *DigestServer) Answer(token []byte) ([]byte, error) {
	switch {
	case s.User != "":
		return nil, errServer
	case s.nonce == "": // whatever the first token is
		s.nonce = rand.Text()
		return []byte(`realm="` + Realm + `",nonce="` + s.nonce + `",charset=utf-8,algorithm=md5-sess`), nil
	}
	d, err := parse(token)
	if err != nil {
		return nil, err
	}
	password, known := s.Users[d.first("username")]
	p := proof{user: d.first("username"), password: password, realm: d.first("realm"), nonce: s.nonce, cnonce: d.first("cnonce"), authzid: d["authzid"], uri: d.first("digest-uri")}
	given := subtle.ConstantTimeCompare([]byte(d.first("response")), []byte(p.hash("AUTHENTICATE"))) == 1
	if !known || !given || p.uri != uri || p.realm != Realm || p.cnonce == "" || !utf8.ValidString(p.user) ||
		d.first("nonce") != s.nonce || !d.defaults("qop", qop) || !d.defaults("charset", "utf-8") ||
		slices.ContainsFunc(onceOnly, func(name string) bool { return len(d[name]) > 1 }) {
		return nil, errServer
	}
	s.User = p.user
	return []byte("rspauth=" + p.hash("")), nil
}

// onceOnly are the directives that the JDK's server, which is ZooKeeper's, rejects if a token
// repeats them. It ignores all others, such as nc, and reads every token as UTF-8.
var onceOnly = []string{"username", "realm", "nonce", "cnonce", "qop", "digest-uri", "response", "maxbuf", "charset", "cipher", "authzid", "auth-param"}

// defaults reports whether the directive is missing, or has the value.
func (d directives) defaults(name, value string) bool {
	return len(d[name]) == 0 || d.first(name) == value
}
