package zklock_test

// These tests attack holds with another client's attempt to end their ZooKeeper session, which the
// servers reject.

import (
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	zkexpire "github.com/zklock/zklock/internal/expire"
	"github.com/zklock/zklock/internal/sasl"
	"github.com/zklock/zklock/internal/secret"
	"github.com/zklock/zklock/internal/zkserver"
)

// requireNotifiedFirst cuts a holder off, has another client try to end its session, which the
// servers reject, and requires that the holder is notified before the next grant (I1, I5).
// Attaching to a session renegotiates its timeout.
func requireNotifiedFirst(t *testing.T, line *line, s, next *zklock.Session, rejected func() (bool, error)) {
	t.Helper()
	h := acquire(t, newMutex(t, s, "/job"))
	line.silent.Store(true)
	_, err := rejected()
	require.True(t, zkexpire.Refused(err), "%v", err)
	require.NoError(t, h.Err())
	cut := time.Now()
	granted, err := newMutex(t, next, "/job").Acquire(within(t, 2*time.Minute))
	require.NoError(t, err)
	t.Logf("the next holder was granted %v after the rejection", time.Since(cut).Round(time.Millisecond))
	require.True(t, isLost(h), "both hold")
	release(t, granted)
}

// R124: the session of a disconnected holder lives as long as the holder relies on it.
func TestVirtual_ExpireRejected_NotifiedBeforeTheNextGrant(t *testing.T) {
	for name, mechanism := range map[string]sasl.Begin{
		"no credentials":    nil,
		"wrong credentials": sasl.DigestMD5(secret.Of([]byte(saslUser)), secret.Of([]byte("wrong"))),
	} {
		t.Run(name, func(t *testing.T) {
			inSASLTime(t, func(t *testing.T, v *virtual) {
				line := &line{dial: v.net.Dial}
				single := zklock.WithLease(zklock.SingleServerLease())
				s := v.connect(withSASL(), single, zklock.WithDialer(line.Dial), zklock.WithSessionTimeout(30*time.Second))
				requireNotifiedFirst(t, line, s, v.connect(withSASL(), single), func() (bool, error) {
					dial := func(timeout time.Duration) (net.Conn, error) { return v.net.Dial("tcp", v.srv.Addr(), timeout) }
					return zkexpire.Session(dial, s.Stats().SessionID, func(time.Time) (creds zkexpire.Credentials, err error) {
						creds.SASL, err = mechanism.Start(t.Context(), v.srv.Addr())
						return creds, err
					})
				})
			})
		})
	}
}

// R124: a connected holder takes its session back at once, with its own timeout.
func TestVirtual_ExpireRejected_ConnectedHolderKeepsItsTimeout(t *testing.T) {
	inSASLTime(t, func(t *testing.T, v *virtual) {
		s := v.connect(withSASL(), zklock.WithSessionTimeout(20*time.Second))
		h := acquire(t, newMutex(t, s, "/job"))
		dial := func(timeout time.Duration) (net.Conn, error) { return v.net.Dial("tcp", v.srv.Addr(), timeout) }
		_, err := zkexpire.Session(dial, s.Stats().SessionID, nil)
		require.True(t, zkexpire.Refused(err), "%v", err)
		require.Equal(t, 40*time.Second, v.srv.Sessions()[0].Timeout)
		time.Sleep(5 * time.Second)
		require.Equal(t, 20*time.Second, v.srv.Sessions()[0].Timeout)
		require.Equal(t, 20*time.Second, s.Stats().SessionTimeout)
		release(t, h)
	})
}

// R124: the same on a real server that requires credentials.
func TestReal_ExpireRejected_NotifiedBeforeTheNextGrant(t *testing.T) {
	const timeout = 16 * time.Second
	srv := requiringCredentials(t, zkserver.SessionTimeouts(time.Second, timeout))
	line := &line{dial: net.DialTimeout}
	creds, single := zklock.WithDigest("ann", "secret"), zklock.WithLease(zklock.SingleServerLease())
	s := connect(t, srv, creds, single, zklock.WithDialer(line.Dial), zklock.WithSessionTimeout(timeout))
	requireNotifiedFirst(t, line, s, connect(t, srv, creds, single), func() (bool, error) {
		dial := func(timeout time.Duration) (net.Conn, error) { return net.DialTimeout("tcp", srv, timeout) }
		return zkexpire.Session(dial, s.Stats().SessionID, nil)
	})
}
