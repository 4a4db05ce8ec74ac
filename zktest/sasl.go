package zktest

// SASL with DIGEST-MD5, as on a server with a DigestLoginModule in its JAAS file.

import (
	"errors"
	"maps"
	"regexp"

	"github.com/zklock/zklock/internal/wire"
)

// WithSASLUsers lets the server accept SASL with DIGEST-MD5 from these users, with their passwords,
// as a server with a JAAS file and the SASLAuthenticationProvider does. ACLs may then have the
// scheme sasl. A client without SASL is served, too, unless WithConfig has
// sessionRequireClientSASLAuth=true. After a wrong password the server replies with -115, or with
// -124 where SASL is required, and closes the connection.
func WithSASLUsers(passwords map[string]string) Option {
	passwords = maps.Clone(passwords)
	return func(c *config) { c.saslUsers = passwords }
}

var errNoSASLUsers = errors.New("zktest: sessionRequireClientSASLAuth without WithSASLUsers would reject every client")

// sasl handles a client's token. As for auth, the reply has zxid 0, and the session is not touched.
func (c *cluster) sasl(req *request) {
	cn := req.conn
	ask, err := decode[wire.SASLToken](req.body)
	if err != nil {
		c.forget(cn)
		return
	}
	if c.cfg.saslUsers == nil { // a real server fails on its missing configuration, and replies without a token
		c.reply(req, wire.ReplyHeader{Xid: req.xid}, wire.SASLToken{})
		return
	}
	if cn.sasl.Users == nil {
		cn.sasl.Users = c.cfg.saslUsers
	}
	token, err := cn.sasl.Answer(ask.Token)
	switch {
	case err != nil && c.cfg.saslRequired:
		c.refuse(req, wire.AuthRequired, wire.SASLToken{}) // a null token follows the header
		return
	case err != nil:
		c.refuse(req, wire.AuthFailed, wire.SASLToken{})
		return
	case cn.sasl.User != "":
		cn.ids = append(cn.ids[:len(cn.ids):len(cn.ids)], wire.ID{Scheme: "sasl", ID: cn.sasl.User})
	}
	c.reply(req, wire.ReplyHeader{Xid: req.xid}, wire.SASLToken{Token: token})
}

func (c *cluster) refuse(req *request, code wire.Code, rec wire.Record) {
	c.reply(req, wire.ReplyHeader{Xid: req.xid, Err: code}, rec)
	c.finish(req.conn)
}

// saslPrincipal matches the names that Java's KerberosName accepts: without an @, or with a realm.
var saslPrincipal = regexp.MustCompile(`^([^@]*|[^/@]*(/[^/@]*)?@[^/@]*)$`)
