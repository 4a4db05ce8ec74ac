//go:build linux || darwin

package command

import (
	"crypto/tls"
	"net"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/cmd/zklock/internal/supervise"
	"github.com/zklock/zklock/internal/certs"
	"github.com/zklock/zklock/internal/expire"
	"github.com/zklock/zklock/internal/sessionkey"
	jute "github.com/zklock/zklock/internal/wire"
	"github.com/zklock/zklock/internal/zkserver"
)

// endingOf is what a zklock would tell its guardian.
func endingOf(srv *zkserver.Server, s *zklock.Session) *ending {
	return &ending{Key: sessionkey.Key{
		ID: s.Stats().SessionID, Password: jute.SessionPassword(s.Stats().SessionID), Timeout: s.Stats().SessionTimeout, Servers: []string{srv.Addr()},
	}}
}

// requireLost waits until a Session has learned that its ZooKeeper session is over.
func requireLost(t *testing.T, hold *zklock.Hold) {
	t.Helper()
	select {
	case <-hold.Lost():
		require.ErrorContains(t, hold.Err(), "the servers ended the ZooKeeper session")
	case <-time.After(patience):
		require.FailNow(t, "the session lives on")
	}
}

func TestEnding_EndsTheSession(t *testing.T) {
	srv, path := server(t), lockPath(t)
	s := session(t, srv)
	hold, _ := occupy(t, s, path)
	e := endingOf(srv, s)
	require.NoError(t, e.end(supervise.Now()))
	requireLost(t, hold)
	require.Empty(t, participants(t, s, path))
	require.NoError(t, e.end(supervise.Now()), "one that is over is no error")
}

// scripted is a server that takes every session in, and answers each of its requests with a code,
// or by hanging up. It counts how often it was asked to take one in.
func scripted(t *testing.T, answer func(h jute.RequestHeader) (jute.Code, bool)) (addr string, asked *atomic.Int32) {
	t.Helper()
	return scriptedAs(t, func(req jute.ConnectRequest) int64 { return req.SessionID }, answer)
}

// scriptedAs is a scripted server that takes clients in as the session that attach returns.
func scriptedAs(
	t *testing.T, attach func(jute.ConnectRequest) int64, answer func(h jute.RequestHeader) (jute.Code, bool),
) (addr string, asked *atomic.Int32) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	asked = new(atomic.Int32)
	serve := func(c net.Conn) {
		defer c.Close()
		body, err := jute.ReadFrame(c, jute.MaxFrame)
		if err != nil {
			return
		}
		var req jute.ConnectRequest
		req.Decode(jute.NewDecoder(body))
		asked.Add(1)
		_, _ = c.Write(jute.Frame(jute.ConnectResponse{Timeout: req.Timeout, SessionID: attach(req), Password: req.Password}))
		for {
			body, err := jute.ReadFrame(c, jute.MaxFrame)
			if err != nil {
				return
			}
			var h jute.RequestHeader
			h.Decode(jute.NewDecoder(body))
			code, ok := answer(h)
			if !ok {
				return
			}
			_, _ = c.Write(jute.Frame(jute.ReplyHeader{Xid: h.Xid, Err: code}))
		}
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go serve(c)
		}
	}()
	return l.Addr().String(), asked
}

func scriptedEnding(auth string, servers ...string) *ending {
	return &ending{
		Key:   sessionkey.Key{ID: 0x10, Password: make([]byte, 16), Timeout: 20 * time.Second, Servers: servers},
		Creds: credentials{Auth: sessionkey.Secret(auth)},
	}
}

// R65: to attach is a sign of life for the session, so who is refused does not come again.
func TestEnding_Refused_IsNotTouchedAgain(t *testing.T) {
	for name, refuse := range map[string]func(h jute.RequestHeader) (jute.Code, bool){
		"credentials wanted":  func(jute.RequestHeader) (jute.Code, bool) { return -124, true },
		"credentials refused": func(h jute.RequestHeader) (jute.Code, bool) { return jute.AuthFailed, h.Op == jute.OpAuth },
	} {
		t.Run(name, func(t *testing.T) {
			addr, asked := scripted(t, refuse)
			other, askedOther := scripted(t, refuse)
			require.ErrorIs(t, scriptedEnding("boss:wrong", addr, other).end(supervise.Now()), expire.ErrRefused)
			require.EqualValues(t, 1, asked.Load()+askedOther.Load())
		})
	}
}

// R126: a server that resumes no sessions opens another one, and is not asked again. R124: we
// request the session's own timeout.
func TestEnding_AnotherSession_IsNotAskedAgain(t *testing.T) {
	var requested []int32
	addr, asked := scriptedAs(t, func(req jute.ConnectRequest) int64 {
		requested = append(requested, req.Timeout)
		return req.SessionID + 1
	}, func(jute.RequestHeader) (jute.Code, bool) { return jute.OK, true })
	e := scriptedEnding("", addr)
	require.ErrorIs(t, e.end(supervise.Now()), expire.ErrAnotherSession)
	require.EqualValues(t, 1, asked.Load())
	require.Equal(t, []int32{int32(e.Timeout.Milliseconds())}, requested)
}

// R125: servers that all need 1.5 s to respond: each attempt without a response leaves the next one
// twice the time.
func TestEnding_SlowServers_SessionIsEnded(t *testing.T) {
	t.Parallel()
	var addrs []string
	for range 3 {
		addr, _ := scripted(t, func(jute.RequestHeader) (jute.Code, bool) {
			time.Sleep(1500 * time.Millisecond)
			return jute.OK, true
		})
		addrs = append(addrs, addr)
	}
	require.NoError(t, scriptedEnding("", addrs...).end(supervise.Now()))
}

// R65: nor does who is not answered, more than a few times.
func TestEnding_NotConfirmed_IsTouchedAFewTimes(t *testing.T) {
	addr, asked := scripted(t, func(jute.RequestHeader) (jute.Code, bool) { return 0, false })
	require.Error(t, scriptedEnding("", addr).end(supervise.Now()))
	require.EqualValues(t, 5, asked.Load())
}

// The credentials go first: what comes before them is refused by a server that wants them.
func TestEnding_SendsCredentialsFirst(t *testing.T) {
	var got []jute.Op
	addr, _ := scripted(t, func(h jute.RequestHeader) (jute.Code, bool) { got = append(got, h.Op); return jute.OK, true })
	require.NoError(t, scriptedEnding("boss:secret", addr).end(supervise.Now()))
	require.Equal(t, []jute.Op{jute.OpAuth, jute.OpClose}, got)
}

func TestEnding_ServersThatAreGoneOrSilent_NextIsAsked(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer silent.Close()
	addr, _ := scripted(t, func(jute.RequestHeader) (jute.Code, bool) { return jute.OK, true })
	require.NoError(t, scriptedEnding("", "127.0.0.1:1", silent.Addr().String(), "no-such-host.invalid:1", addr).end(supervise.Now()))
}

// When the session has expired by itself nobody is asked any more.
func TestEnding_GivesUpInTime(t *testing.T) {
	addr, asked := scripted(t, func(jute.RequestHeader) (jute.Code, bool) { return jute.OK, true })
	e := scriptedEnding("", addr)
	require.Error(t, e.end(supervise.Now().Add(-3*e.Timeout/2)))
	require.Zero(t, asked.Load())

	e.Servers = []string{"127.0.0.1:1"}
	began := time.Now()
	require.Error(t, e.end(supervise.Now().Add(-3*e.Timeout/2+time.Second)))
	require.Less(t, time.Since(began), e.Timeout/2)
}

// The server's certificate must be for the name that was asked for; a server that cannot show that
// learns nothing.
func TestEnding_TLS(t *testing.T) {
	serverCert, serverKey := certificate(t, "zk.test")
	clientCert, clientKey := certificate(t, "client.test")
	plain, asked := scripted(t, func(jute.RequestHeader) (jute.Code, bool) { return jute.OK, true })
	e := scriptedEnding("", tlsInFrontOf(t, plain, serverCert, serverKey, clientCert))
	read := func(name string) []byte {
		b, err := os.ReadFile(name)
		require.NoError(t, err)
		return b
	}
	e.TLS = &tlsFiles{Names: certs.Names{CA: serverCert, Cert: clientCert, Key: clientKey}, CAPEM: read(serverCert), CertPEM: read(clientCert), KeyPEM: read(clientKey)}
	var wrong *tls.CertificateVerificationError
	// The fifth try would begin after 1.5 s, so the fourth has 650 ms, which is enough on a busy
	// machine.
	require.ErrorAs(t, e.end(supervise.Now().Add(1400*time.Millisecond-3*e.Timeout/2)), &wrong, "it is for zk.test")
	require.Zero(t, asked.Load())
	e.TLS.ServerName = "zk.test"
	require.NoError(t, e.end(supervise.Now()))
}
