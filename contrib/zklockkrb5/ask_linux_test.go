package zklockkrb5

// These tests attack the requests to KDCs: KDCs that do not respond, many connections at once,
// other realms.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/internal/proctest"
	"github.com/zklock/zklock/sasl"
)

// authenticates begins an exchange, within a time.
func authenticates(t *testing.T, m sasl.Mechanism, host string, limit time.Duration) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	_, first, err := m.Authenticate(ctx, host)
	require.Equal(t, err == nil, len(first) > 0)
	return err
}

// Connections that are made at once cause one request.
func TestAuthenticate_AtOnce_OneTicket(t *testing.T) {
	k := sharedKDC(t)
	m := k.keytabOf(t, "preauth")
	tgts, others := k.issued(t, "preauth")
	var all sync.WaitGroup
	for range 30 {
		all.Go(func() {
			for range 5 {
				if err := authenticates(t, m, "localhost:2181", patience); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	tgtsNow, othersNow := k.issued(t, "preauth")
	require.Equal(t, [2]int{tgts + 1, others + 1}, [2]int{tgtsNow, othersNow})
}

// blackHole accepts connections, and sends nothing.
func blackHole(t *testing.T) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return l.Addr().String()
}

// withKDCs is krb5.conf with other KDCs.
func (k *kdc) withKDCs(t *testing.T, addrs ...string) Option {
	t.Helper()
	content, err := os.ReadFile(k.conf())
	require.NoError(t, err)
	return WithConfig(write(t, strings.Replace(string(content), "kdc = "+k.addr, "kdc = "+strings.Join(addrs, "\nkdc = "), 1)))
}

// withNaming is krb5.conf with settings of the names of servers.
func (k *kdc) withNaming(t *testing.T, settings string) Option {
	t.Helper()
	content, err := os.ReadFile(k.conf())
	require.NoError(t, err)
	return WithConfig(write(t, strings.Replace(string(content), "[libdefaults]\n", "[libdefaults]\n"+settings, 1)))
}

// The KDC knows zookeeper/localhost, and the connection string has the server's address: krb5.conf
// decides which of the two names is asked for.
func TestAuthenticate_NamesOfTheServer(t *testing.T) {
	k := sharedKDC(t)
	for settings, isKnown := range map[string]bool{
		"":                                       true,
		"rdns = true\n":                          true,
		"rdns = false\n":                         false,
		"dns_canonicalize_hostname = false\n":    false,
		"dns_canonicalize_hostname = fallback\n": true,
		"dns_canonicalize_hostname = fallback\nrdns = false\n": false,
	} {
		err := authenticates(t, k.keytabOf(t, "locker", k.withNaming(t, settings)), "127.0.0.1:2181", patience)
		if isKnown {
			require.NoError(t, err, settings)
			continue
		}
		require.ErrorContains(t, err, "a ticket for zookeeper/127.0.0.1: KRB Error: (7) KDC_ERR_S_PRINCIPAL_UNKNOWN", settings)
		require.NoError(t, authenticates(t, k.keytabOf(t, "locker", k.withNaming(t, settings)), "localhost:2181", patience), settings)
	}
	err := authenticates(t, k.keytabOf(t, "locker", k.withNaming(t, ""), WithHostAsGiven()), "127.0.0.1:2181", patience)
	require.ErrorContains(t, err, "KDC_ERR_S_PRINCIPAL_UNKNOWN", "the option counts more")
}

// A KDC that does not respond does not outlast the connection's time, is no rejection, and leaves
// no goroutine behind.
func TestAuthenticate_KDCDoesNotRespond(t *testing.T) {
	k := sharedKDC(t)
	m := k.keytabOf(t, "locker", k.withKDCs(t, blackHole(t)))
	before := runtime.NumGoroutine()
	began := time.Now()
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			err := authenticates(t, m, "localhost:2181", 300*time.Millisecond)
			if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, zklock.ErrAuthFailed) {
				t.Errorf("%v", err)
			}
		})
	}
	all.Wait()
	require.Less(t, time.Since(began), 5*time.Second)
	proctest.Eventually(t, "no goroutine is left", func() bool { return runtime.NumGoroutine() <= before })

	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, cancel)
	_, _, err := m.Authenticate(ctx, "localhost:2181") // no deadline: the Session is closed
	require.ErrorIs(t, err, context.Canceled)
}

// The next KDC is asked within the time, and first from then on.
func TestAuthenticate_NextKDC(t *testing.T) {
	t.Parallel()
	k := sharedKDC(t)
	silent := blackHole(t)
	m := k.keytabOf(t, "locker", k.withKDCs(t, silent, "127.0.0.1:1", k.addr))
	require.NoError(t, authenticates(t, m, "localhost:2181", 6*time.Second))
	began := time.Now()
	require.NoError(t, authenticates(t, m, "LOCALHOST.:2181", 15*time.Second))
	require.Less(t, time.Since(began), 4*time.Second, "the silent one would have a third of the time")
	m = k.keytabOf(t, "locker", k.withKDCs(t, silent, "127.0.0.1:1"))
	err := authenticates(t, m, "localhost:2181", 2*time.Second)
	require.ErrorContains(t, err, "KDC "+silent+": no answer")
	require.ErrorContains(t, err, "KDC 127.0.0.1:1: dial")
}

// A KDC that rejects us may have an older database than another, and a rejection is final for
// Connect: it counts if no other KDC accepts us.
func TestAuthenticate_OneKDCRefuses(t *testing.T) {
	t.Parallel()
	k, stale := sharedKDC(t), ownKDC(t) // with other keys
	for _, principal := range []string{"preauth", "wrongpre"} {
		m := k.keytabOf(t, principal, k.withKDCs(t, stale.addr, "127.0.0.1:1", k.addr))
		err := authenticates(t, m, "localhost:2181", patience)
		if principal == "preauth" {
			require.NoError(t, err)
		} else {
			require.ErrorIs(t, err, zklock.ErrAuthFailed)
		}
	}
}

// mangled is a proxy before the KDC that changes one byte of each reply.
func (k *kdc) mangled(t *testing.T, at *atomic.Int64) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			b := make([]byte, 1<<16)
			n, _ := c.Read(b)
			if far, err := net.Dial("tcp", k.addr); err == nil {
				_, _ = far.Write(b[:n])
				n, _ = io.ReadAtLeast(far, b, 5)
				_ = far.Close()
				if i := int(at.Load()); i < n {
					b[i] ^= 0xff
				}
				_, _ = c.Write(b[:n])
			}
			_ = c.Close()
		}
	}()
	return l.Addr().String()
}

// Any change in transit causes an error or has no effect.
func TestAuthenticate_AnswersAreMangled(t *testing.T) {
	k := sharedKDC(t)
	var at atomic.Int64
	conf := k.withKDCs(t, k.mangled(t, &at))
	cache := filepath.Join(t.TempDir(), "cache")
	k.kinit(t, cache, "person")
	failed := 0
	for i := range int64(100) {
		at.Store(4 + 9*i)
		m := k.keytabOf(t, "locker", conf) // gets a ticket-granting ticket
		if i%2 == 0 {                      // gets a service ticket
			var err error
			m, err = TicketCache(cache, conf)
			require.NoError(t, err)
		}
		if authenticates(t, m, "localhost:2181", time.Second) != nil {
			failed++
		}
	}
	require.Greater(t, failed, 30)
}

// The realm of a server is found by its name, through a realm between, by domain_realm, by the
// KDC's referral, and not at all.
func TestAuthenticate_OtherRealm(t *testing.T) {
	k := sharedKDC(t)
	for _, server := range []string{"zookeeper/zk.elsewhere.test", "zookeeper/zk.elsewhere.test@" + other, "zookeeper/zk.third.test@" + third} {
		require.NoError(t, authenticates(t, k.keytabOf(t, "locker", WithServerPrincipal(server)), "localhost:2181", patience))
	}
	content, err := os.ReadFile(k.conf())
	require.NoError(t, err)
	before, _, _ := strings.Cut(string(content), "[domain_realm]")
	m := k.keytabOf(t, "locker", WithServerPrincipal("zookeeper/zk.elsewhere.test"), WithConfig(write(t, before)))
	require.NoError(t, authenticates(t, m, "localhost:2181", patience))
	for _, server := range []string{"zookeeper/zk2.elsewhere.test", "zookeeper/localhost@" + other, "zookeeper/localhost@NONE.TEST"} {
		err := authenticates(t, k.keytabOf(t, "locker", WithServerPrincipal(server)), "localhost:2181", patience)
		require.ErrorContains(t, err, "KDC_ERR_S_PRINCIPAL_UNKNOWN", server)
		require.NotErrorIs(t, err, zklock.ErrAuthFailed)
	}
}

// A kept ticket-granting ticket that the KDC no longer accepts is replaced.
func TestAuthenticate_KDCIsNew(t *testing.T) {
	t.Parallel()
	k := ownKDC(t)
	m := k.keytabOf(t, "locker")
	require.NoError(t, authenticates(t, m, "localhost:2181", patience))
	require.NoError(t, k.admin(realm, "cpw -randkey krbtgt/"+realm))
	require.NoError(t, k.admin(realm, fmt.Sprintf("purgekeys krbtgt/%s", realm)))
	require.NoError(t, authenticates(t, m, "localhost.:2181", patience))
	tgts, others := k.issued(t, "locker")
	require.Equal(t, [2]int{2, 2}, [2]int{tgts, others})
}
