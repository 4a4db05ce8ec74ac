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
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
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
	}()
	return l.Addr().String()
}

func TestRun_TLS(t *testing.T) {
	srv := server(t)
	serverCert, serverKey := certificate(t, "zk.test")
	clientCert, clientKey := certificate(t, "client.test")
	addr := tlsInFrontOf(t, srv.Addr(), serverCert, serverKey, clientCert)
	try := func(flags ...string) (int, string) {
		p := start(t, nil, runArgs(addr, lockPath(t), append(append([]string{"-q", "--connect-timeout", "2s"}, flags...), "--", "true")...)...)
		return p.wait(), p.stderr.String()
	}
	code, said := try("--tls-ca", serverCert, "--tls-server-name", "zk.test", "--tls-cert", clientCert, "--tls-key", clientKey)
	require.Equal(t, 0, code, said)
	code, said = try("--tls-ca", serverCert, "--tls-cert", clientCert, "--tls-key", clientKey)
	require.Equal(t, exitNoServer, code)
	require.Contains(t, said, "x509", "the certificate is for another name")
	code, said = try("--tls", "--tls-server-name", "zk.test")
	require.Equal(t, exitNoServer, code)
	require.Contains(t, said, "x509", "nobody vouches for it")
	code, _ = try("--tls-ca", serverCert, "--tls-server-name", "zk.test")
	require.Equal(t, exitNoServer, code, "no client certificate")
}
