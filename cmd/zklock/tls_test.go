//go:build linux || darwin

package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// certificate makes a self-signed one for a name, for servers and clients, and returns its PEM files.
func certificate(t *testing.T, name string) (certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{name}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	keyDER, err := x509.MarshalECPrivateKey(key)
	require.NoError(t, err)
	dir := t.TempDir()
	certFile, keyFile = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	require.NoError(t, os.WriteFile(certFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	require.NoError(t, os.WriteFile(keyFile, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER}), 0o600))
	return certFile, keyFile
}

// tlsInFrontOf takes TLS connections of clients that show the certificate, and passes them to a server.
func tlsInFrontOf(t *testing.T, addr, certFile, keyFile, clientCert string) string {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	require.NoError(t, err)
	trusted, err := os.ReadFile(clientCert)
	require.NoError(t, err)
	pool := x509.NewCertPool()
	require.True(t, pool.AppendCertsFromPEM(trusted))
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool})
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	go passOn(l, addr, func() {})
	return l.Addr().String()
}

// passOn passes what comes to a listener on to a server, and calls f for each connection.
func passOn(l net.Listener, addr string, f func()) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		f()
		go func() {
			defer c.Close()
			s, err := net.Dial("tcp", addr)
			if err != nil {
				return
			}
			defer s.Close()
			go func() { _, _ = io.Copy(s, c); _ = s.Close() }()
			_, _ = io.Copy(c, s)
		}()
	}
}

func TestRun_TLS(t *testing.T) {
	t.Parallel()
	srv := server(t)
	serverCert, serverKey := certificate(t, "zk.test")
	clientCert, clientKey := certificate(t, "client.test")
	addr := tlsInFrontOf(t, srv.Addr(), serverCert, serverKey, clientCert)
	// All at a time: those that must fail take their whole --connect-timeout, which leaves a busy machine time to read all
	// its certificates.
	try := func(servers string, flags ...string) *proc {
		return start(t, nil, runArgs(servers, lockPath(t), append(append([]string{"-q", "--connect-timeout", "8s"}, flags...), "--", "true")...)...)
	}
	good := try(addr, "--tls-ca", serverCert, "--tls-server-name", "zk.test", "--tls-cert", clientCert, "--tls-key", clientKey)
	type outcome struct {
		code int
		says string
	}
	bad := map[*proc]outcome{
		try(addr, "--tls-ca", serverCert, "--tls-cert", clientCert, "--tls-key", clientKey): {exitRefused, "x509"},                 // for another name
		try(addr, "--tls", "--tls-server-name", "zk.test"):                                  {exitRefused, "x509"},                 // nobody vouches for it
		try(addr, "--tls-ca", serverCert, "--tls-server-name", "zk.test"):                   {exitRefused, "certificate required"}, // from the client
		try(addr):                {exitNoServer, "or expects TLS"},
		try(srv.Addr(), "--tls"): {exitNoServer, "does it expect connections without TLS"},
	}
	require.Equal(t, 0, good.wait(), &good.stderr)
	for p, want := range bad {
		require.Equal(t, want.code, p.wait(), &p.stderr)
		require.Contains(t, p.stderr.String(), want.says)
		if want.code == exitRefused {
			require.Contains(t, p.stderr.String(), "certificate refused")
			require.Equal(t, 1, strings.Count(p.stderr.String(), "level=ERROR"), "logged once: %s", &p.stderr)
		}
	}
}
