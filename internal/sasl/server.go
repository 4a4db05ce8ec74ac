package sasl

import (
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"unicode/utf8"
)

// DigestServer is the server's side of DIGEST-MD5, for one connection of a test's server.
type DigestServer struct {
	Users map[string]string // passwords
	nonce string
	User  string // the user that has proved its identity; "" before
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
	p := proof{user: d.first("username"), realm: d.first("realm"), nonce: s.nonce, cnonce: d.first("cnonce"), uri: d.first("digest-uri"), isUTF8: true}
	if d.first("charset") != "utf-8" {
		p.user = fromLatin1(p.user)
	}
	var known bool
	p.password, known = s.Users[p.user]
	given := subtle.ConstantTimeCompare([]byte(d.first("response")), []byte(p.hash("AUTHENTICATE"))) == 1
	if !known || !given || p.uri != uri || p.realm != Realm || p.cnonce == "" || !utf8.ValidString(p.user) ||
		d.first("nonce") != s.nonce || d.first("nc") != nonceCount || d.first("qop") != qop {
		return nil, errServer
	}
	s.User = p.user
	return []byte("rspauth=" + p.hash("")), nil
}

func fromLatin1(s string) string {
	runes := make([]rune, 0, len(s))
	for i := range len(s) {
		runes = append(runes, rune(s[i]))
	}
	return string(runes)
}
