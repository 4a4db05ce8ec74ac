package zklockkrb5

// These tests use Kerberos with real servers: the ids that they give us, and the effect of expired
// tickets and missing KDCs on a lock that is held.

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/internal/oneway"
	"github.com/zklock/zklock/internal/proctest"
	"github.com/zklock/zklock/internal/zkserver"
	"github.com/zklock/zklock/sasl"
)

// idOf takes a lock whose nodes are the creator's, and returns the creator's id on the server.
func idOf(t *testing.T, s *zklock.Session) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	m, err := zklock.NewMutex(s, fmt.Sprintf("/of-%#x", s.Stats().SessionID), zklock.WithACL(zk.AuthACL(zk.PermAll)))
	require.NoError(t, err)
	hold, err := m.Acquire(ctx)
	require.NoError(t, err)
	acl, _, err := s.Conn().GetACL(hold.Node())
	require.NoError(t, err)
	require.NoError(t, hold.Release(ctx))
	return acl[0].Scheme + ":" + acl[0].ID
}

// README.md: the id is the whole principal, unless the servers take host or realm off.
func TestReal_WhoWeAre(t *testing.T) {
	t.Parallel()
	k, srv := sharedKDC(t), sharedServer(t)
	short := zkserver.Single(t, append(k.forServer(), zkserver.Property("zookeeper.kerberos.removeHostFromPrincipal", "true"),
		zkserver.Property("zookeeper.kerberos.removeRealmFromPrincipal", "true"))...)
	for _, tc := range []struct{ principal, addr, id string }{
		{"locker", srv.Addr(), "sasl:locker@" + realm},
		{"preauth@" + realm, srv.Addr(), "sasl:preauth@" + realm},
		{"zklock/host.test", srv.Addr(), "sasl:zklock/host.test@" + realm},
		{"locker", short.Addr(), "sasl:locker"},
		{"zklock/host.test", short.Addr(), "sasl:zklock"},
	} {
		principal, _, _ := strings.Cut(tc.principal, "@")
		m, err := Keytab(tc.principal, k.path(strings.Split(principal, "/")[0]), WithConfig(k.conf()))
		require.NoError(t, err)
		s, err := connect(t, patience, tc.addr, m)
		require.NoError(t, err)
		require.Equal(t, tc.id, idOf(t, s))
	}
}

// A KDC or a server that rejects our identity ends Connect at once.
func TestReal_Refused(t *testing.T) {
	t.Parallel()
	k, srv := sharedKDC(t), sharedServer(t)
	for principal, says := range map[string]string{
		"wrong":    "the keytab has another key of wrong@" + realm + " than the KDC",
		"wrongpre": "KDC_ERR_PREAUTH_FAILED",
		"gone":     "KDC_ERR_C_PRINCIPAL_UNKNOWN",
		"expired":  "KDC_ERR_KEY_EXPIRED",
	} {
		began := time.Now()
		_, err := connect(t, patience, srv.Addr(), k.keytabOf(t, principal))
		require.ErrorIs(t, err, zklock.ErrAuthFailed, principal)
		require.ErrorContains(t, err, says)
		require.ErrorContains(t, err, principal+"@"+realm)
		require.Less(t, time.Since(began), patience/3)
	}
	// The server has no key for this ticket.
	_, err := connect(t, patience, srv.Addr(), k.keytabOf(t, "locker", WithServerPrincipal("zookeeper/rekeyed")))
	require.ErrorIs(t, err, zklock.ErrAuthFailed)
	require.ErrorContains(t, err, "-124")
}

// A server that is not in the KDC is no rejection of us: the error names it, and the next server is
// tried.
func TestReal_ServerUnknown(t *testing.T) {
	t.Parallel()
	k, srv := sharedKDC(t), sharedServer(t)
	_, port, err := net.SplitHostPort(srv.Addr())
	require.NoError(t, err)
	byIP, byName := net.JoinHostPort("127.0.0.1", port), net.JoinHostPort("localhost", port)
	const unknown = "a ticket for zookeeper/127.0.0.1: KRB Error: (7) KDC_ERR_S_PRINCIPAL_UNKNOWN"
	m := &watched{Mechanism: k.keytabOf(t, "locker", WithHostAsGiven())}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := zklock.Connect(ctx, byIP, zklock.WithSASL(m), zklock.WithLogger(slog.New(slog.DiscardHandler)))
		ended <- err
	}()
	proctest.Eventually(t, "two tries, so that Connect knows the result of one", func() bool {
		return m.tries() > 1 && strings.Contains(m.failed(), unknown)
	})
	cancel()
	err = <-ended
	require.ErrorIs(t, err, context.Canceled)
	require.NotErrorIs(t, err, zklock.ErrAuthFailed)
	require.ErrorContains(t, err, unknown)

	s, err := connect(t, patience, byIP+","+byName, k.keytabOf(t, "locker", WithHostAsGiven()))
	require.NoError(t, err)
	require.Equal(t, byName, s.Stats().Server)
	_, err = connect(t, time.Second, byName, k.keytabOf(t, "locker", WithServerPrincipal("zookeeper/LOCALHOST@"+realm)))
	require.Error(t, err, "a principal is taken as it is given")
}

// watched is a mechanism with the number of its tries that have ended, and the result of the last.
type watched struct {
	sasl.Mechanism
	mu    sync.Mutex
	ended int
	last  error
}

func (w *watched) Authenticate(ctx context.Context, host string) (sasl.Exchange, []byte, error) {
	x, first, err := w.Mechanism.Authenticate(ctx, host)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended, w.last = w.ended+1, err
	return x, first, err
}

func (w *watched) tries() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ended
}

// failed returns the error of the last try: "<nil>" if it succeeded.
func (w *watched) failed() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return fmt.Sprint(w.last)
}

// held is a Session that holds a lock, over connections that can be cut.
type held struct {
	t    *testing.T
	s    *zklock.Session
	hold *zklock.Hold
	way  *oneway.Way
	m    *watched
}

// holding takes a lock, with a lease that has a margin for a while without a server.
func holding(t *testing.T, srv *zkserver.Server, m sasl.Mechanism) held {
	t.Helper()
	h := held{t: t, way: oneway.New(net.DialTimeout), m: &watched{Mechanism: m}}
	var err error
	h.s, err = connect(t, patience, srv.Addr(), h.m, zklock.WithSessionTimeout(time.Minute), zklock.WithDialer(h.way.Dial))
	require.NoError(t, err)
	mutex, err := zklock.NewMutex(h.s, fmt.Sprintf("/held-%#x", h.s.Stats().SessionID))
	require.NoError(t, err)
	h.hold, err = mutex.Acquire(t.Context())
	require.NoError(t, err)
	return h
}

// reconnects closes the connection, and waits for the next one; the lock is held all the time.
func (h held) reconnects() {
	h.t.Helper()
	before := h.s.Stats().Reconnects
	h.way.Cut()
	h.reconnected(before)
}

func (h held) reconnected(before int) {
	h.t.Helper()
	proctest.Eventually(h.t, "a server takes it in", func() bool { return h.s.Stats().Reconnects > before })
	_, _, err := h.s.Conn().Exists("/")
	require.NoError(h.t, err)
	require.NoError(h.t, h.hold.Err())
}

// triesInVain closes the connection, and waits until a try has failed for this reason, which is no
// rejection.
func (h held) triesInVain(says string) (before int) {
	h.t.Helper()
	before = h.s.Stats().Reconnects
	h.way.Cut()
	proctest.Eventually(h.t, says, func() bool { return strings.Contains(h.m.failed(), says) })
	require.NoError(h.t, h.hold.Err())
	return before
}

// A lock is held over connections that are closed, however often the tickets have expired
// meanwhile.
func TestReal_TicketsEnd_LockIsHeld(t *testing.T) {
	t.Parallel()
	k, srv := sharedKDC(t), sharedServer(t)
	h := holding(t, srv, k.keytabOf(t, "brief"))
	tgts := func() int { n, _ := k.issued(t, "brief"); return n }
	for first := tgts(); tgts() < first+2; time.Sleep(300 * time.Millisecond) {
		h.reconnects()
	}
	proctest.Eventually(t, "a connection takes the ticket of the one before", func() bool {
		_, before := k.issued(t, "brief")
		h.reconnects()
		_, after := k.issued(t, "brief")
		return after == before
	})
}

// With tickets, a connection needs no KDC. Without one it is tried again while the lock is held,
// and works when the KDC is back; after that the Session works as before.
func TestReal_KDCDies_LockIsHeld(t *testing.T) {
	t.Parallel()
	k := ownKDC(t)
	srv := zkserver.Single(t, k.forServer()...)
	long, brief := holding(t, srv, k.keytabOf(t, "locker")), holding(t, srv, k.keytabOf(t, "brief"))
	k.stop()
	long.reconnects()
	time.Sleep(4 * time.Second) // the life of a ticket of brief's
	before := brief.triesInVain("connection refused")
	long.reconnects()
	require.NoError(t, k.start())
	brief.reconnected(before)
	require.NoError(t, brief.hold.Release(t.Context()))
	require.Equal(t, "sasl:brief@"+realm, idOf(t, brief.s))
}

// If the lease ends before the KDC is back, the hold is lost as usual; the Session is not.
func TestReal_KDCDies_LeaseEnds_SessionGoesOn(t *testing.T) {
	t.Parallel()
	k := ownKDC(t)
	srv := zkserver.Single(t, k.forServer()...)
	way := oneway.New(net.DialTimeout)
	s, err := connect(t, patience, srv.Addr(), k.keytabOf(t, "brief"), zklock.WithSessionTimeout(2*time.Second), zklock.WithDialer(way.Dial))
	require.NoError(t, err)
	m, err := zklock.NewMutex(s, "/lost")
	require.NoError(t, err)
	h, err := m.Acquire(t.Context())
	require.NoError(t, err)
	k.stop()
	for h.Err() == nil {
		way.Cut()
		select {
		case <-h.Lost():
		case <-time.After(time.Second):
		}
	}
	require.NoError(t, k.start())
	require.ErrorIs(t, h.Err(), zklock.ErrLost)
	_ = h.Release(t.Context())
	require.Equal(t, "sasl:brief@"+realm, idOf(t, s))
}

// An expired ticket cache, or one that kinit is writing, is no rejection; the next connection reads
// it again.
func TestReal_TicketCache_RenewedByKinit(t *testing.T) {
	t.Parallel()
	k, srv := sharedKDC(t), sharedServer(t)
	file := filepath.Join(t.TempDir(), "cache")
	k.kinit(t, file, "-l", "20s", "person")
	m, err := TicketCache("FILE:"+file, WithConfig(k.conf()))
	require.NoError(t, err)
	h := holding(t, srv, m)
	time.Sleep(20 * time.Second) // the life of its tickets
	before := h.triesInVain("run kinit")
	require.NoError(t, os.Truncate(file, 100))
	h.triesInVain("is not whole")
	k.kinit(t, file, "person")
	h.reconnected(before)
	require.NoError(t, h.hold.Release(t.Context()))
	require.Equal(t, "sasl:person@"+realm, idOf(t, h.s))
}

// R117: the server gets another key, and cannot read the kept tickets. The next connection uses new
// tickets, and the lock is held. A first connection with a kept ticket succeeds in the same way.
func TestReal_ServerHasAnotherKey_NewTicketIsShown(t *testing.T) {
	t.Parallel()
	k := ownKDC(t)
	srv := zkserver.Single(t, k.forServer()...)
	m, shared := k.keytabOf(t, "locker"), k.keytabOf(t, "preauth")
	h := holding(t, srv, m)
	first, err := connect(t, patience, srv.Addr(), shared)
	require.NoError(t, err)
	require.NoError(t, first.Close())
	_, before := k.issued(t, "locker")

	require.NoError(t, os.Remove(k.path("server")))
	// ktadd creates a new key.
	require.NoError(t, k.admin(realm, "ktadd -k "+k.path("server")+" zookeeper/localhost"))
	attached := h.s.Stats().Reconnects
	require.NoError(t, srv.Stop())
	require.NoError(t, srv.Start())
	h.reconnected(attached)
	_, after := k.issued(t, "locker")
	require.Equal(t, before+1, after)
	require.NoError(t, h.hold.Release(t.Context()))

	_, err = connect(t, patience, srv.Addr(), shared)
	require.NoError(t, err)
}
