package zktest

// SASL with DIGEST-MD5, as a server with a DigestLoginModule in its JAAS file has it.

import (
	"errors"
	"maps"
	"regexp"

	"github.com/zklock/zklock/internal/wire"
)

// WithSASLUsers has the server take SASL with DIGEST-MD5 from these users, with their passwords, as one with a JAAS file and the
// SASLAuthenticationProvider does. ACLs may then have the scheme sasl. A client without SASL is served, too, unless
// WithSASLRequired is given. A wrong password is answered with -115, and where SASL is required with -124, and the connection closes.
func WithSASLUsers(passwords map[string]string) Option {
	passwords = maps.Clone(passwords)
	return func(c *config) { c.saslUsers = passwords }
}

// WithSASLRequired has the server answer every request of a connection without SASL with -124, and close it, as
// zookeeper.sessionRequireClientSASLAuth and enforce.auth.schemes=sasl do. It needs WithSASLUsers.
func WithSASLRequired() Option { return func(c *config) { c.saslRequired = true } }

var errNoSASLUsers = errors.New("zktest: WithSASLRequired lets nobody in without WithSASLUsers")

// sasl takes a token of a client's. As that to auth, the answer has zxid 0, and the session is not touched.
func (c *cluster) sasl(req *request) {
	cn := req.conn
	ask, err := decode[wire.SASLToken](req.body)
	if err != nil {
		c.forget(cn)
		return
	}
	if c.cfg.saslUsers == nil { // a real server stumbles over what it does not have, and answers without a token
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

// refuse answers a client that may not go on.
func (c *cluster) refuse(req *request, code wire.Code, rec wire.Record) {
	c.reply(req, wire.ReplyHeader{Xid: req.xid, Err: code}, rec)
	c.finish(req.conn)
}

// lacksSASL says whether a connection may ask nothing yet.
func (c *cluster) lacksSASL(cn *conn) bool { return c.cfg.saslRequired && cn.sasl.User == "" }

// saslPrincipal is what Java's KerberosName takes: a name without an @, or with a realm.
var saslPrincipal = regexp.MustCompile(`^([^@]*|[^/@]*(/[^/@]*)?@[^/@]*)$`)
