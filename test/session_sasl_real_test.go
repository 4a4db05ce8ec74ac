package zklock_test

// These tests show SASL to real servers: what they take, refuse and remember of it.

import (
	"context"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/internal/zkserver"
)

const (
	saslUser     = "locker"
	saslPassword = "s3cr3t-Wachtwoord"
)

// oddUsers have what is quoted, what is Latin-1, and what is neither.
var oddUsers = map[string]string{
	saslUser: saslPassword, "bob": "other", `an"n\`: `p\a"ss, word=`, "jürgen": "größe", "χρήστης": "κωδικός", "naïve": "пароль", "spa ce": " ",
}

func withSASL() zklock.Option { return zklock.WithSASL(zklock.DigestMD5(saslUser, saslPassword)) }

// requiringSASL is a real server that answers nothing without SASL.
func requiringSASL(t testing.TB) string {
	t.Helper()
	return zkserver.Single(t, zkserver.SASLUsers(oddUsers), zkserver.SASLRequired()).Addr()
}

// Every user gets in with its password, however it is spelt, and locks.
func TestReal_SASL_Locks(t *testing.T) {
	srv := requiringSASL(t)
	for user, password := range oddUsers {
		s := connect(t, srv, zklock.WithSASL(zklock.DigestMD5(user, password)))
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

// A wrong password, and none where one is required, are told as that, at once. Where SASL is not required, the code is another.
func TestReal_SASL_Refused(t *testing.T) {
	required, open := requiringSASL(t), zkserver.Single(t, zkserver.SASLUsers(oddUsers)).Addr()
	wrong := zklock.WithSASL(zklock.DigestMD5(saslUser, "wrong"))
	for _, tc := range []struct {
		srv  string
		opts []zklock.Option
		says string
	}{
		{required, []zklock.Option{wrong}, "-124"},
		{open, []zklock.Option{wrong}, "-115"},
		{required, []zklock.Option{zklock.WithSASL(zklock.DigestMD5("nobody", "x"))}, "-124"},
	} {
		began := time.Now()
		_, err := zklock.Connect(within(t, time.Minute), tc.srv, append(tc.opts, quiet(t))...)
		require.ErrorIs(t, err, zklock.ErrAuthFailed)
		require.ErrorContains(t, err, tc.says)
		require.NotContains(t, err.Error(), "wrong")
		t.Logf("%v after %v", err, time.Since(began).Round(time.Millisecond))
	}
	s := connect(t, required)
	_, err := newMutex(t, s, "/job").Acquire(within(t, soon))
	t.Log(err)
	require.Error(t, err)
	require.NotErrorIs(t, err, context.DeadlineExceeded)
}
