//go:build linux || darwin

package command

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock/internal/testca"
)

// certificate makes a self-signed one for a name, for servers and clients, and returns its PEM
// files.
func certificate(t *testing.T, name string) (certFile, keyFile string) {
	t.Helper()
	dir := t.TempDir()
	own := testca.New(t, name).Own()
	certFile, keyFile = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	testca.Write(t, certFile, own.PEM)
	testca.Write(t, keyFile, own.KeyPEM)
	return certFile, keyFile
}

// tlsInFrontOf takes TLS connections of clients that show the certificate, and passes them to a
// server.
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
	// All at a time: those that must fail take their whole --connect-timeout, which leaves a busy
	// machine time to read all its certificates.
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
			require.Contains(t, p.stderr.String(), "certificate rejected")
			require.Equal(t, 1, strings.Count(p.stderr.String(), "level=ERROR"), "logged once: %s", &p.stderr)
		}
	}
}
