package zklock_test

// These tests use SASL with real servers: the credentials that they accept and reject, and the
// results.

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/internal/zkserver"
	"github.com/zklock/zklock/sasl"
)

const (
	saslUser     = "locker"
	saslPassword = "s3cr3t-Wachtwoord"
)

// oddUsers have characters that are quoted, that are Latin-1, and that are neither.
var oddUsers = map[string]string{
	saslUser: saslPassword, "bob": "other", `an"n\`: `p\a"ss, word=`, "jürgen": "größe", "χρήστης": "κωδικός", "naïve": "пароль", "spa ce": " ",
}

func withSASL() zklock.Option { return zklock.WithSASL(sasl.DigestMD5(saslUser, saslPassword)) }

// requiringSASL is a real server that responds to nothing without SASL.
func requiringSASL(t testing.TB) string {
	t.Helper()
	return zkserver.Single(t, zkserver.SASLUsers(oddUsers), zkserver.SASLRequired()).Addr()
}

// Every user is accepted with its password, however it is spelt, and locks.
func TestReal_SASL_Locks(t *testing.T) {
	t.Parallel()
	srv := requiringSASL(t)
	for user, password := range oddUsers {
		s := connect(t, srv, zklock.WithSASL(sasl.DigestMD5(user, password)))
		release(t, acquire(t, newMutex(t, s, "/job")))
		acl := zk.AuthACL(zk.PermAll)
		_, err := s.Conn().Create("/of", nil, 0, acl)
		require.NoError(t, err)
		acl, _, err = s.Conn().GetACL("/of")
		require.NoError(t, err)
		require.Equal(t, []zk.ACL{{Perms: zk.PermAll, Scheme: "sasl", ID: user}}, acl)
		require.NoError(t, s.Conn().Delete("/of", -1))
	}
}

// A wrong password is reported as such, at once. If SASL is not required, the code is different.
func TestReal_SASL_Refused(t *testing.T) {
	t.Parallel()
	required, open := requiringSASL(t), zkserver.Single(t, zkserver.SASLUsers(oddUsers)).Addr()
	wrong := zklock.WithSASL(sasl.DigestMD5(saslUser, "wrong"))
	for _, tc := range []struct {
		srv  string
		opts []zklock.Option
		says string
	}{
		{required, []zklock.Option{wrong}, "-124"},
		{open, []zklock.Option{wrong}, "-115"},
		{required, []zklock.Option{zklock.WithSASL(sasl.DigestMD5("nobody", "x"))}, "-124"},
	} {
		_, err := zklock.Connect(within(t, time.Minute), tc.srv, append(tc.opts, quiet(t))...)
		require.ErrorIs(t, err, zklock.ErrAuthFailed)
		require.ErrorContains(t, err, tc.says)
		require.NotContains(t, err.Error(), "wrong")
	}
	_, err := newMutex(t, connect(t, required), "/job").Acquire(within(t, soon))
	require.ErrorIs(t, err, zklock.ErrAuthFailed, "and none where one is required")
	require.ErrorContains(t, err, "-124")
}

// A server without SASL is reported as such, and keeps no session that it created for us.
func TestReal_SASL_ServerHasNone(t *testing.T) {
	t.Parallel()
	srv := zkserver.Single(t)
	_, err := zklock.Connect(within(t, 3*time.Second), srv.Addr(), zklock.WithSessionTimeout(30*time.Second), quiet(t), withSASL())
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, "the server has no challenge: is SASL configured there?")
	state, err := srv.Mntr()
	require.NoError(t, err)
	require.Equal(t, "0", state["zk_global_sessions"])
}

// Each connection of a holder is accepted again, also after the server was away. Other errors of
// the server are not attributed to SASL.
func TestReal_SASL_Reconnects(t *testing.T) {
	t.Parallel()
	srv := zkserver.Single(t, zkserver.SASLUsers(oddUsers), zkserver.SASLRequired())
	var w wire
	s := connect(t, srv.Addr(), withSASL(), w.dialer(), zklock.WithSessionTimeout(40*time.Second))
	h := acquire(t, newMutex(t, s, "/job"))
	again := func() {
		changes := s.Changes(within(t, time.Minute))
		w.cut()
		for c := range changes {
			if c.State == zklock.StateReconnected {
				return
			}
		}
		t.Fatal("not connected again")
	}
	for range 3 {
		again()
		_, _, err := s.Conn().Get(h.Node())
		require.NoError(t, err)
	}
	require.NoError(t, srv.Kill())
	require.NoError(t, srv.Start())
	again()
	require.NoError(t, h.Err())
	release(t, h)
}

// F42: a Session that is closed while it is not connected ends its ZooKeeper session over a
// connection of its own, with SASL.
func TestReal_SASL_ClosedWhileAway_SessionEnds(t *testing.T) {
	t.Parallel()
	srv := requiringSASL(t)
	line := &line{dial: net.DialTimeout}
	w := wire{dial: line.Dial}
	s, err := zklock.Connect(within(t, soon), srv, withSASL(), quiet(t), w.dialer(), zklock.WithSessionTimeout(time.Minute))
	require.NoError(t, err)
	acquire(t, newMutex(t, s, "/job"))
	line.silent.Store(true)
	w.cut()
	eventually(t, "it is away", func() bool { return s.Stats().Server == "" })
	line.silent.Store(false)
	require.NoError(t, s.Close())
	release(t, acquire(t, newMutex(t, connect(t, srv, withSASL()), "/job"))) // in less than the session timeout
}
