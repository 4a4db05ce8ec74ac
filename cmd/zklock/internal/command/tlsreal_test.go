//go:build linux || darwin

package command

// These tests renew certificates under a lock that a real ZooKeeper with TLS has granted, and let
// one expire.

import (
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock/internal/testca"
	"github.com/zklock/zklock/internal/zkserver"
)

// issuer is an authority with the files of a client.
type issuer struct {
	*testca.Authority
	t             *testing.T
	caFile        string
	cert, keyFile string
}

func newIssuer(t *testing.T) *issuer {
	t.Helper()
	dir := t.TempDir()
	i := &issuer{testca.New(t, "authority"), t, filepath.Join(dir, "ca.pem"), filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")}
	testca.Write(t, i.caFile, i.Own().PEM)
	return i
}

// renew writes a client's files, and returns until when they are good.
func (i *issuer) renew(valid time.Duration) time.Time {
	i.t.Helper()
	c := i.Issue("client.test", valid)
	testca.Write(i.t, i.cert, c.PEM)
	testca.Write(i.t, i.keyFile, c.KeyPEM)
	return c.Expires
}

func (i *issuer) flags() []string {
	return []string{"--tls-ca", i.caFile, "--tls-server-name", "zk.test", "--tls-cert", i.cert, "--tls-key", i.keyFile}
}

// tlsServer runs a ZooKeeper that wants the certificates of clients, and returns where it takes
// TLS.
func (i *issuer) tlsServer() (addr string) {
	i.t.Helper()
	port, err := zkserver.FreePort()
	require.NoError(i.t, err)
	addr = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	own := i.Issue("zk.test", 24*time.Hour)
	store := filepath.Join(i.t.TempDir(), "server.pem")
	require.NoError(i.t, os.WriteFile(store, slices.Concat(own.KeyPEM, own.PEM), 0o600))
	zkserver.Single(i.t, zkserver.TLS(addr, store, i.caFile))
	return addr
}

// wire is a way to a server that can be cut.
type wire struct {
	addr string

	mu    sync.Mutex
	conns []net.Conn
}

func wireTo(t *testing.T, addr string) *wire {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	w := &wire{addr: l.Addr().String()}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s, err := net.Dial("tcp", addr)
			if err != nil {
				_ = c.Close()
				continue
			}
			w.mu.Lock()
			w.conns = append(w.conns, c, s)
			w.mu.Unlock()
			go func() { _, _ = io.Copy(s, c); _ = s.Close() }()
			go func() { _, _ = io.Copy(c, s); _ = c.Close() }()
		}
	}()
	return w
}

func (w *wire) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.conns {
		_ = c.Close()
	}
	w.conns = nil
}

// F56: the certificate that the connection was made with expires, and the connection is cut. The
// server refuses that certificate, which the run says. Then the files are renewed, and the lock is
// held on: the run that waits behind it gets it when COMMAND ends, and not before.
func TestRun_RealTLS_RenewedUnderTheLock(t *testing.T) {
	t.Parallel()
	i := newIssuer(t)
	srv := i.tlsServer()
	w := wireTo(t, srv)
	path, done := lockPath(t), filepath.Join(t.TempDir(), "done")
	expires := i.renew(20 * time.Second)
	holder := start(t, nil, runArgs(w.addr, path, append(i.flags(), longSession, "--log-level", "info", "--lease", "single", "--",
		"sh", "-c", "echo ready; while [ ! -e '"+done+"' ]; do sleep 0.1; done; echo finished")...)...)
	holder.prints("ready")
	require.True(t, time.Now().Before(expires), "a busy machine: it had to connect before")
	time.Sleep(time.Until(expires.Add(time.Second))) // not a hope: then it is expired
	before := len(holder.stderr.String())            // on a busy machine, the first connection may take long, and the run says so
	w.cut()
	holder.prints("a certificate is rejected; the Session keeps trying\" server=" + w.addr)
	late := start(t, nil, runArgs(w.addr, path, append(i.flags(), "--connect-timeout", "3s", "--", "true")...)...)
	require.Equal(t, exitRefused, late.wait(), &late.stderr)
	require.Contains(t, late.stderr.String(), "the server rejects this client's ("+i.cert)

	i.renew(time.Hour)
	holder.prints("state=Reconnected")
	next := start(t, nil, runArgs(w.addr, path, append(i.flags(), "--", "echo", "next")...)...)
	next.prints("waiting")
	require.NoError(t, os.WriteFile(done, nil, 0o600))
	require.Zero(t, holder.wait(), &holder.stderr)
	require.Contains(t, holder.stdout.String(), "finished")
	require.NotContains(t, holder.stderr.String()[before:], "no server has accepted the session")
	require.Zero(t, next.wait(), &next.stderr)
}

// The guardian of a run that was killed reads the files again: the ones that the run had read are
// refused by now.
func TestRun_RealTLS_GuardianReadsTheRenewal(t *testing.T) {
	t.Parallel()
	i := newIssuer(t)
	srv := i.tlsServer()
	path := lockPath(t)
	expires := i.renew(15 * time.Second)
	holder := start(t, nil, runArgs(srv, path, append(i.flags(), longSession, "--", "sh", "-c", "echo ready; sleep 600")...)...)
	holder.prints("ready")
	require.True(t, time.Now().Before(expires), "a busy machine: it had to connect before")
	time.Sleep(time.Until(expires.Add(time.Second)))
	i.renew(time.Hour)
	require.NoError(t, holder.cmd.Process.Kill())
	next := start(t, nil, runArgs(srv, path, append(i.flags(), "--wait", patience.String(), "--", "echo", "next")...)...)
	require.Zero(t, next.wait(), &next.stderr)
}

// The certificate alone suffices for the nodes of creator, and not for the nodes of user, which a
// host with another certificate may use.
func TestRun_RealTLS_ACL_TheUserAlone(t *testing.T) {
	t.Parallel()
	i := newIssuer(t)
	srv := i.tlsServer()
	i.renew(time.Hour)
	other := *i
	other.cert, other.keyFile = filepath.Join(t.TempDir(), "cert.pem"), filepath.Join(t.TempDir(), "key.pem")
	c := i.Issue("other.test", time.Hour)
	testca.Write(t, other.cert, c.PEM)
	testca.Write(t, other.keyFile, c.KeyPEM)
	run := func(of *issuer, path, acl, auth string) int {
		flags := append(of.flags(), "--lease", "single", longSession)
		if acl != "" {
			flags = append(flags, "--acl", acl)
		}
		p := start(t, env("ZKLOCK_AUTH="+auth), runArgs(srv, path, append(flags, "--", "true")...)...)
		code := p.wait()
		require.Contains(t, []int{0, exitRefused}, code, &p.stderr)
		return code
	}
	const user = "locker:secret"
	for acl, want := range map[string]struct{ certificate, user int }{"creator": {0, 0}, "user": {exitRefused, 0}} {
		path := lockPath(t) + "-" + acl
		require.Zero(t, run(i, path, acl, user), acl)
		require.Equal(t, want.certificate, run(i, path, "", ""), acl)
		require.Equal(t, want.user, run(&other, path, acl, user), acl)
		require.Equal(t, exitRefused, run(&other, path, "", ""), acl)
	}
	path := lockPath(t) + "-certificate"
	require.Zero(t, run(i, path, "creator", ""))
	require.Equal(t, exitRefused, run(&other, path, "creator", ""), "a certificate for each host")
}
