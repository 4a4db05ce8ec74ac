//go:build linux || darwin

package main

import (
	"crypto/tls"
	"net"
	"os"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/internal/sessionkey"
	jute "github.com/zklock/zklock/internal/wire"
	"github.com/zklock/zklock/internal/zkserver"
)

// endingOf is what a zklock would tell its guardian.
func endingOf(srv *zkserver.Server, s *zklock.Session) *ending {
	return &ending{Key: sessionkey.Key{
		ID: s.SessionID(), Password: jute.SessionPassword(s.SessionID()), Timeout: s.Timeout(), Servers: []string{srv.Addr()},
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
	require.NoError(t, e.end(now()))
	requireLost(t, hold)
	require.Empty(t, participants(t, s, path))
	require.NoError(t, e.end(now()), "one that is over is no error")
}

// scripted is a server that takes every session in, and answers each of its requests with a code, or by hanging up.
// It counts how often it was asked to take one in.
func scripted(t *testing.T, answer func(h jute.RequestHeader) (jute.Code, bool)) (addr string, asked *atomic.Int32) {
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
		_, _ = c.Write(jute.Frame(jute.ConnectResponse{Timeout: req.Timeout, SessionID: req.SessionID, Password: req.Password}))
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
		Key:  sessionkey.Key{ID: 0x10, Password: make([]byte, 16), Timeout: 20 * time.Second, Servers: servers},
		Auth: sessionkey.Secret(auth),
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
			require.ErrorIs(t, scriptedEnding("boss:wrong", addr, other).end(now()), errRefused)
			require.EqualValues(t, 1, asked.Load()+askedOther.Load())
		})
	}
}

// R65: nor does who is not answered, more than a few times.
func TestEnding_NotConfirmed_IsTouchedAFewTimes(t *testing.T) {
	addr, asked := scripted(t, func(jute.RequestHeader) (jute.Code, bool) { return 0, false })
	require.Error(t, scriptedEnding("", addr).end(now()))
	require.EqualValues(t, maxTaken, asked.Load())
}

// The credentials go first: what comes before them is refused by a server that wants them.
func TestEnding_SendsCredentialsFirst(t *testing.T) {
	var got []jute.Op
	addr, _ := scripted(t, func(h jute.RequestHeader) (jute.Code, bool) { got = append(got, h.Op); return jute.OK, true })
	require.NoError(t, scriptedEnding("boss:secret", addr).end(now()))
	require.Equal(t, []jute.Op{jute.OpAuth, jute.OpClose}, got)
}

func TestEnding_ServersThatAreGoneOrSilent_NextIsAsked(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer silent.Close()
	addr, _ := scripted(t, func(jute.RequestHeader) (jute.Code, bool) { return jute.OK, true })
	require.NoError(t, scriptedEnding("", "127.0.0.1:1", silent.Addr().String(), "no-such-host.invalid:1", addr).end(now()))
}

// When the session has expired by itself nobody is asked any more.
func TestEnding_GivesUpInTime(t *testing.T) {
	addr, asked := scripted(t, func(jute.RequestHeader) (jute.Code, bool) { return jute.OK, true })
	e := scriptedEnding("", addr)
	require.Error(t, e.end(now().add(-3*e.Timeout/2)))
	require.Zero(t, asked.Load())

	e.Servers = []string{"127.0.0.1:1"}
	began := time.Now()
	require.Error(t, e.end(now().add(-3*e.Timeout/2+time.Second)))
	require.Less(t, time.Since(began), e.Timeout/2)
}

// The server's certificate must be for the name that was asked for; a server that cannot show that learns nothing.
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
	e.TLS = &tlsFiles{CAFile: serverCert, CA: read(serverCert), Cert: read(clientCert), Key: read(clientKey)}
	config, err := e.TLS.config()
	require.NoError(t, err)
	var wrong *tls.CertificateVerificationError
	_, err = e.endAt(e.Servers[0], "127.0.0.1", config, patience)
	require.ErrorAs(t, err, &wrong, "it is for zk.test")
	require.Zero(t, asked.Load())
	e.TLS.ServerName = "zk.test"
	require.NoError(t, e.end(now()))
}

// wires returns both ends of a socket pair.
func wires(t *testing.T) (*wire[report, order], *wire[order, report]) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	require.NoError(t, err)
	a, err := newWire[report, order](fds[0])
	require.NoError(t, err)
	b, err := newWire[order, report](fds[1])
	require.NoError(t, err)
	t.Cleanup(func() {
		a.close()
		b.close()
		for range a.in {
		}
		for range b.in {
		}
	})
	return a, b
}

// The guardian knows of each session before the command runs, of the next when there is one, and of none when there is
// none.
func TestSupervise_TellsTheGuardianOfEachSession(t *testing.T) {
	zk, guard := wires(t)
	g := &guardian{wire: guard}
	e := ending{Key: sessionkey.Key{ID: 1, Timeout: 10 * time.Second}, Process: os.Getpid()}
	s := &supervisor{job: job{ending: func() *ending { c := e; return &c }}, wire: zk}
	told := func() ending {
		select {
		case o, ok := <-guard.in:
			g.take(o, ok)
		case <-time.After(patience):
			require.FailNow(t, "zklock did not tell")
		}
		return *g.session
	}
	s.tellSession()
	require.Equal(t, e, told())
	s.tellSession() // nothing new
	for _, k := range []sessionkey.Key{{}, {ID: 2, Timeout: 10 * time.Second}, {ID: 2, Timeout: 20 * time.Second}} {
		e.Key = k
		s.tellSession()
		require.Equal(t, e, told())
	}
}

// The guardian acts on zklock's death alone: here its socket has ended and zklock, which is this process, has not.
func TestGuardian_SocketEndsAndZklockLives_SessionIsLeftAlone(t *testing.T) {
	addr, asked := scripted(t, func(jute.RequestHeader) (jute.Code, bool) { return jute.OK, true })
	e := scriptedEnding("", addr)
	e.Process = os.Getpid()
	s := &supervisor{job: job{
		program: "/bin/sh", argv: []string{"sh", "-c", "sleep 600"}, env: os.Environ(), lock: "/fake",
		hold:   &fakeHold{deadline: time.Now().Add(time.Hour), lost: make(chan struct{})},
		ending: func() *ending { return e },
		began:  func() {},
	}}
	require.NoError(t, s.startGuardian())
	defer s.guardian.Wait()
	defer s.guardian.Kill()
	require.True(t, (<-s.wire.in).Ready)
	s.start()
	leader := (<-s.wire.in).Started
	require.NotZero(t, leader)
	require.NoError(t, s.begin(leader))
	require.True(t, (<-s.wire.in).Running)
	s.wire.close()
	eventually(t, "the command was killed and reaped", func() bool { return unix.Kill(leader, 0) == unix.ESRCH })
	require.Never(t, func() bool { return asked.Load() > 0 }, 500*time.Millisecond, 5*time.Millisecond)
}

// Nothing that one says gets lost because the other is slow to read it; and nobody waits for the other.
func TestWire_SlowReader_GetsEverything(t *testing.T) {
	zk, guard := wires(t)
	many := make([]string, 3000)
	for i := range many {
		many[i] = string(slices.Repeat([]byte{byte(1 + i%255)}, 1000))
	}
	for i := range 10 { // 30 MB, far more than any socket holds
		require.True(t, zk.send(order{Start: &startOrder{Argv: wordsOf(many...), KillAfter: time.Duration(i)}}))
	}
	require.True(t, zk.send(order{Reap: true}))
	for i := range 10 {
		o := <-guard.in
		require.NotNil(t, o.Start)
		require.EqualValues(t, i, o.Start.KillAfter)
		require.True(t, slices.Equal(many, o.Start.Argv.strings()))
	}
	require.True(t, (<-guard.in).Reap)
}
