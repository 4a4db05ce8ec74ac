//go:build linux || darwin

package main

// These tests renew certificates under a lock that a real ZooKeeper with TLS has granted, and let one expire.

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock/internal/zkserver"
)

// issuer signs certificates, and has the files of a client.
type issuer struct {
	t             *testing.T
	ca            *x509.Certificate
	key           *ecdsa.PrivateKey
	caFile        string
	cert, keyFile string
}

func newIssuer(t *testing.T) *issuer {
	t.Helper()
	dir := t.TempDir()
	i := &issuer{t: t, caFile: filepath.Join(dir, "ca.pem"), cert: filepath.Join(dir, "cert.pem"), keyFile: filepath.Join(dir, "key.pem")}
	var pemOf []byte
	i.ca, i.key, pemOf, _ = i.issue("authority", 24*time.Hour)
	require.NoError(t, os.WriteFile(i.caFile, pemOf, 0o600))
	return i
}

func (i *issuer) issue(name string, valid time.Duration) (cert *x509.Certificate, key *ecdsa.PrivateKey, certPEM, keyPEM []byte) {
	i.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(i.t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name}, IsCA: i.ca == nil, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(valid),
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	parent, signer := i.ca, i.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	require.NoError(i.t, err)
	cert, err = x509.ParseCertificate(der)
	require.NoError(i.t, err)
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(i.t, err)
	return cert, key, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})
}

// renew writes a client's files, and returns until when they are good.
func (i *issuer) renew(valid time.Duration) time.Time {
	i.t.Helper()
	cert, _, certPEM, keyPEM := i.issue("client.test", valid)
	for name, b := range map[string][]byte{i.cert: certPEM, i.keyFile: keyPEM} {
		require.NoError(i.t, os.WriteFile(name+".new", b, 0o600))
		require.NoError(i.t, os.Rename(name+".new", name))
	}
	return cert.NotAfter
}

func (i *issuer) flags() []string {
	return []string{"--tls-ca", i.caFile, "--tls-server-name", "zk.test", "--tls-cert", i.cert, "--tls-key", i.keyFile}
}

// tlsServer runs a ZooKeeper that wants the certificates of clients, and returns where it takes TLS.
func (i *issuer) tlsServer() (addr string) {
	i.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(i.t, err)
	addr = l.Addr().String()
	require.NoError(i.t, l.Close())
	_, port, err := net.SplitHostPort(addr)
	require.NoError(i.t, err)
	_, _, certPEM, keyPEM := i.issue("zk.test", 24*time.Hour)
	store := filepath.Join(i.t.TempDir(), "server.pem")
	require.NoError(i.t, os.WriteFile(store, bytes.Join([][]byte{keyPEM, certPEM}, nil), 0o600))
	zkserver.Single(i.t,
		zkserver.Property("zookeeper.serverCnxnFactory", "org.apache.zookeeper.server.NettyServerCnxnFactory"),
		zkserver.Line("secureClientPort="+port),
		zkserver.Line("secureClientPortAddress=127.0.0.1"),
		zkserver.Line("ssl.keyStore.location="+store),
		zkserver.Line("ssl.trustStore.location="+i.caFile),
		zkserver.Line("ssl.hostnameVerification=false"))
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

// F56: the certificate that the connection was made with expires, and the connection is cut. The server refuses that certificate, which the run
// says. Then the files are renewed, and the lock is held on: the run that waits behind it gets it when COMMAND ends, and not before.
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
	w.cut()
	holder.prints("a certificate is refused; the Session tries on\" server=" + w.addr)
	late := start(t, nil, runArgs(w.addr, path, append(i.flags(), "--connect-timeout", "3s", "--", "true")...)...)
	require.Equal(t, exitRefused, late.wait(), &late.stderr)
	require.Contains(t, late.stderr.String(), "the server refuses this client's ("+i.cert)

	i.renew(time.Hour)
	holder.prints("state=Reconnected")
	next := start(t, nil, runArgs(w.addr, path, append(i.flags(), "--", "echo", "next")...)...)
	next.prints("waiting")
	require.NoError(t, os.WriteFile(done, nil, 0o600))
	require.Zero(t, holder.wait(), &holder.stderr)
	require.Contains(t, holder.stdout.String(), "finished")
	require.NotContains(t, holder.stderr.String(), "no server has accepted the session")
	require.Zero(t, next.wait(), &next.stderr)
}

// The guardian of a run that was killed reads the files again: the ones that the run had read are refused by now.
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
