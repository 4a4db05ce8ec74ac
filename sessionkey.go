package zklock

import (
	"slices"

	"github.com/zklock/zklock/internal/sessionkey"
)

// The key to a ZooKeeper session is for the command alone, whose guardian ends the session of a zklock that was killed.
func init() {
	sessionkey.Of = func(session any) sessionkey.Key {
		s := session.(*Session)
		e := s.link.era()
		if e == nil || e.isOver() { // a session that was given up we end ourselves, or leave to expire
			return sessionkey.Key{}
		}
		servers, _, _ := parseServers(s.servers) // Connect has taken them
		return sessionkey.Key{ID: e.id, Password: slices.Clone(e.password.reveal()), Timeout: e.sessionTimeout(), Servers: servers}
	}
}
