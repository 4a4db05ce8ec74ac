package zklock_test

// These tests attack certificates that change: a renewal under a hold costs nothing, and a
// rejection is reported as such.

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/internal/certs"
	"github.com/zklock/zklock/internal/testca"
)

// overBoth runs a test with a server of TLS 1.2 and one of 1.3: with 1.3 a client's handshake ends
// before the server has seen its certificate.
func overBoth(t *testing.T, f func(t *testing.T, v *virtual, front *tlsFront, a *testca.Authority, n certs.Names)) {
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		t.Run(tls.VersionName(version), func(t *testing.T) {
			n := fileNames(t)
			inVirtualTime(t, func(t *testing.T, v *virtual) {
				v.net.SetLatency(time.Millisecond)
				f(t, v, v.overTLS("zk.test:2281", version), testca.New(t, "authority"), n)
			})
		})
	}
}

func (v *virtual) connectTLS(front *tlsFront, n certs.Names, opts ...zklock.Option) *zklock.Session {
	return connect(v.t, front.addr, append([]zklock.Option{zklock.WithDialer(v.net.Dial), zklock.WithTLSFiles(n.CA, n.Cert, n.Key)}, opts...)...)
}

// F56: certificates of an hour, renewed each 40 minutes, in the end by another authority, on both
// sides. The connection is cut now and then. The hold remains valid for ten hours.
func TestVirtual_TLSFiles_Renewed_HoldRemains(t *testing.T) {
	overBoth(t, func(t *testing.T, v *virtual, front *tlsFront, a *testca.Authority, n certs.Names) {
		front.shows(a, "zk.test", time.Hour, a)
		writeTo(t, n, a, a, time.Hour)
		var log warnings
		s := v.connectTLS(front, n, lines(&log, slog.LevelInfo))
		h := acquire(t, newMutex(t, s, "/job"))
		id := s.Stats().SessionID
		for i := range 15 {
			time.Sleep(40 * time.Minute)
			if i == 10 {
				a = testca.New(t, "authority")
			}
			front.shows(a, "zk.test", time.Hour, a)
			writeTo(t, n, a, a, time.Hour)
			front.cut()
			time.Sleep(time.Minute)
			require.NoError(t, h.Err())
			require.Equal(t, zklock.StateReconnected, s.Stats().State)
		}
		require.Equal(t, id, s.Stats().SessionID)
		require.Len(t, log.of("zklock: read the certificates anew"), 15)
		release(t, h)
	})
}

// F56: our certificate expires, and then the server's. The Session logs each once, with the server
// and the cause, reports no outage, and reconnects after the renewal by itself.
func TestVirtual_TLSFiles_Expired_IsRefusedAndNoOutage(t *testing.T) {
	overBoth(t, func(t *testing.T, v *virtual, front *tlsFront, a *testca.Authority, n certs.Names) {
		front.shows(a, "zk.test", 150*time.Minute, a)
		writeTo(t, n, a, a, time.Hour)
		var log warnings
		s := v.connectTLS(front, n, lines(&log, slog.LevelInfo))
		changes := s.Changes(t.Context())
		const refused = "zklock: no connection: a certificate is rejected; the Session keeps trying"
		for i, tt := range []struct {
			renew func()
			says  []string
		}{
			{func() { writeTo(t, n, a, a, 100*time.Hour) }, []string{"the server rejects this client's", "valid until 2000-01-01T01:00:00Z", "expired certificate"}},
			{func() { front.shows(a, "zk.test", 100*time.Hour, a) }, []string{"this client rejects the server's", "has expired"}},
		} {
			time.Sleep(time.Until(time.Date(2000, 1, 1, 1+2*i, 10, 0, 0, time.UTC)))
			front.cut()
			time.Sleep(time.Hour)
			require.Empty(t, s.Stats().Server)
			said := log.of(refused)
			require.Len(t, said, i+1, "once")
			for _, says := range append(tt.says, "server="+front.addr) {
				require.Contains(t, said[i], says)
			}
			_, err := newMutex(t, s, "/job").TryAcquire(t.Context())
			require.ErrorIs(t, err, zklock.ErrNotConnected)
			require.ErrorIs(t, err, zklock.ErrCertificate)
			require.ErrorContains(t, err, tt.says[0])
			require.False(t, zklock.IsFinal(err))
			tt.renew()
			time.Sleep(time.Minute)
			require.NotEmpty(t, s.Stats().Server)
			release(t, acquire(t, newMutex(t, s, "/job")))
		}
		require.Empty(t, log.of("zklock: no server has accepted the session"))
		c := <-changes
		require.Equal(t, zklock.StateSuspended, c.State)
		require.Equal(t, front.addr, c.Server)
		require.ErrorContains(t, c.Err, "the server closed the connection")
	})
}

// The error of Connect names the rejected certificate, the server and the reason. Its context ends
// it, because a renewal may follow.
func TestVirtual_Connect_CertificateRefused(t *testing.T) {
	overBoth(t, func(t *testing.T, v *virtual, front *tlsFront, a *testca.Authority, n certs.Names) {
		other := testca.New(t, "authority")
		for _, tt := range []struct {
			name        string
			shows, ours *testca.Authority
			serverName  string
			says        string
		}{
			{"another name", a, a, "zk9.test", "this client rejects the server's: tls: failed to verify certificate: x509: certificate is valid for zk9.test, not zk.test"},
			{"we do not trust it", other, a, "zk.test", "this client rejects the server's: tls: failed to verify certificate: x509: certificate signed by unknown authority"},
			{"it does not trust us", a, other, "zk.test", "the server rejects this client's (" + n.Cert + ", valid until 2000-01-01T"},
		} {
			front.shows(tt.shows, tt.serverName, time.Hour, a)
			writeTo(t, n, tt.ours, a, time.Hour)
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			_, err := zklock.Connect(ctx, front.addr, zklock.WithDialer(v.net.Dial), zklock.WithTLSFiles(n.CA, n.Cert, n.Key), quiet(t))
			cancel()
			require.ErrorIs(t, err, zklock.ErrCertificate, tt.name)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.ErrorContains(t, err, front.addr)
			require.ErrorContains(t, err, tt.says)
			require.False(t, zklock.IsFinal(err))
		}
		// The certificate was wrong, and is corrected while Connect waits.
		front.shows(other, "zk.test", time.Hour, a)
		writeTo(t, n, a, a, time.Hour)
		time.AfterFunc(5*time.Second, func() { front.shows(a, "zk.test", time.Hour, a) })
		require.NoError(t, v.connectTLS(front, n).Close())
		// With a second server that is away, certificates are not the only cause.
		front.shows(other, "zk.test", time.Hour, a)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		_, err := zklock.Connect(ctx, front.addr+",nobody.test:2281", zklock.WithDialer(v.net.Dial), zklock.WithTLSFiles(n.CA, n.Cert, n.Key), quiet(t))
		require.NotErrorIs(t, err, zklock.ErrCertificate)
		require.ErrorContains(t, err, "this client rejects the server's")
		require.ErrorContains(t, err, "nobody.test:2281")
		time.Sleep(10 * time.Second) // the rest of a Connect in vain ends by itself
	})
}

// F56: a file is deleted, and restored later, renewed. The last valid files remain in use, and this
// is logged once.
func TestVirtual_TLSFiles_Vanish_LastGoodOnesGoOn(t *testing.T) {
	overBoth(t, func(t *testing.T, v *virtual, front *tlsFront, a *testca.Authority, n certs.Names) {
		front.shows(a, "zk.test", time.Hour, a)
		writeTo(t, n, a, a, time.Hour)
		var log warnings
		s := v.connectTLS(front, n, lines(&log, slog.LevelInfo))
		h := acquire(t, newMutex(t, s, "/job"))
		require.NoError(t, os.Remove(n.Key))
		for range 3 {
			front.cut()
			time.Sleep(5 * time.Second)
			require.Equal(t, zklock.StateReconnected, s.Stats().State)
		}
		said := log.of("zklock: the files of the certificates cannot be used; the last good ones go on")
		require.Len(t, said, 1)
		require.Contains(t, said[0], n.Key)
		writeTo(t, n, a, a, 2*time.Hour)
		front.cut()
		time.Sleep(5 * time.Second)
		require.Len(t, log.of("zklock: read the certificates anew"), 1)
		release(t, h)
	})
}

// The settings of WithTLS other than the files are kept, in either order.
func TestVirtual_TLSFiles_WithTLS(t *testing.T) {
	overBoth(t, func(t *testing.T, v *virtual, front *tlsFront, a *testca.Authority, n certs.Names) {
		front.shows(a, "zk9.test", time.Hour, a)
		writeTo(t, n, a, a, time.Hour)
		base := zklock.WithTLS(&tls.Config{ServerName: "zk9.test"})
		require.NoError(t, v.connectTLS(front, n, base).Close())
		require.NoError(t, connect(t, front.addr, base, zklock.WithDialer(v.net.Dial), zklock.WithTLSFiles(n.CA, n.Cert, n.Key)).Close())
	})
}

// C2: each way in which a connection ends is reported with its change.
func TestVirtual_Changes_SayServerAndWhy(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		v.net.SetLatency(time.Millisecond)
		var log warnings
		l := &line{dial: v.net.Dial}
		s := v.connect(zklock.WithDialer(l.Dial), lines(&log, slog.LevelInfo))
		id := s.Stats().SessionID
		require.Equal(t, fmt.Sprintf("Session(%s, Connected to %s, %#x)", v.srv.Addr(), v.srv.Addr(), id), s.String())
		changes := s.Changes(t.Context())
		v.srv.DropConnection(id)
		synctest.Wait()
		c := <-changes
		require.Equal(t, zklock.Change{State: zklock.StateSuspended, SessionID: id, Server: v.srv.Addr(), Time: c.Time, Err: c.Err}, c)
		require.ErrorContains(t, c.Err, "the server closed the connection")
		require.Equal(t, fmt.Sprintf("Session(%s, Suspended, %#x)", v.srv.Addr(), id), s.String())
		c = <-changes
		require.Equal(t, zklock.Change{State: zklock.StateReconnected, SessionID: id, Server: v.srv.Addr(), Time: c.Time}, c)
		l.silent.Store(true)
		c = <-changes
		require.Equal(t, zklock.StateSuspended, c.State)
		require.ErrorContains(t, c.Err, "the server did not answer in time")
		require.True(t, errors.Is(c.Err, os.ErrDeadlineExceeded))
		require.Equal(t, fmt.Sprintf(`state=Suspended session=%#x server=%s err="the server closed the connection: EOF"`, id, v.srv.Addr()), log.of("zklock: connection state")[1])
	})
}

// C2: the Session is lost while it tries a server that accepts connections and never responds. It
// was never attached to that one.
func TestVirtual_Changes_LostWhileItTriesAnother_ReportsWhereItWas(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		v.net.SetLatency(time.Millisecond)
		l, err := v.net.Listen("dark.test:2181")
		require.NoError(t, err)
		defer l.Close()
		tried := 0
		s := connect(t, v.srv.Addr()+",dark.test:2181", quiet(t), zklock.WithDialer(func(network, addr string, d time.Duration) (net.Conn, error) {
			if addr == "dark.test:2181" {
				tried++
			}
			return v.net.Dial(network, addr, d)
		}))
		changes := s.Changes(t.Context())
		v.srv.Stop()
		for _, want := range []zklock.State{zklock.StateSuspended, zklock.StateLost} {
			c := <-changes
			require.Equal(t, want, c.State)
			require.Equal(t, v.srv.Addr(), c.Server)
		}
		require.Positive(t, tried)
		require.NoError(t, v.srv.Start())
	})
}
