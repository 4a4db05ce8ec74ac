package zklock_test

// These tests attack the key that ends a ZooKeeper session from another process.

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/internal/hook"
	"github.com/zklock/zklock/internal/rawzk"
	"github.com/zklock/zklock/internal/sessionkey"
	jute "github.com/zklock/zklock/internal/wire"
)

// The key belongs to the current session, and changes with it: another client can end the session
// with it.
func TestSessionKey_EndsTheSession(t *testing.T) {
	srv := target(t)
	var key func() sessionkey.Key
	s := hooked(t, hook.Session{Key: &key}, srv+",127.0.0.1:1/chroot", zklock.WithSessionTimeout(20*time.Second), zklock.WithCreateChroot())
	k := key()
	require.Equal(t, s.Stats().SessionID, k.ID)
	require.Equal(t, s.Stats().SessionTimeout, k.Timeout)
	require.Equal(t, []string{srv, "127.0.0.1:1"}, k.Servers)

	changes := s.Changes(within(t, soon))
	other, err := rawzk.Dial(srv)
	require.NoError(t, err)
	defer other.Close()
	require.NoError(t, other.Connect(jute.ConnectRequest{Timeout: 20_000, SessionID: k.ID, Password: k.Password}))
	require.Equal(t, k.ID, other.Session.SessionID)
	reply, _, err := other.Call(jute.OpClose, nil)
	require.NoError(t, err)
	require.Equal(t, jute.OK, reply.Header.Err)

	for c := range changes {
		if c.State == zklock.StateConnected {
			break
		}
	}
	next := key()
	require.NotEqual(t, k.ID, next.ID)
	require.Equal(t, s.Stats().SessionID, next.ID)
	require.NotEqual(t, k.Password, next.Password)
}

// R65: the guardian does not end a session that was given up: the Session ends it itself, or leaves
// it to expire.
func TestVirtual_SessionKey_GivenUp_IsNone(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		line := &line{dial: v.net.Dial}
		var key func() sessionkey.Key
		s := v.hooked(hook.Session{Key: &key}, zklock.WithDialer(line.Dial))
		h := acquire(t, newMutex(t, s, "/job"))
		require.NotZero(t, key().ID)
		line.silent.Store(true)
		<-h.Lost()
		require.Zero(t, key())
	})
}

// R71: a printed key shows no secret; as JSON, on its way to the guardian, it is complete.
func TestSessionKey_PrintsNoSecret(t *testing.T) {
	k := sessionkey.Key{ID: 1, Password: sessionkey.Secret("opensesame")}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		require.Contains(t, fmt.Sprintf(verb, k.Password), "(secret)", verb)
		require.Contains(t, fmt.Sprintf(verb, struct{ K *sessionkey.Key }{&k}.K), "(secret)", verb)
	}
	b, err := json.Marshal(k)
	require.NoError(t, err)
	var back sessionkey.Key
	require.NoError(t, json.Unmarshal(b, &back))
	require.Equal(t, k, back)
}
