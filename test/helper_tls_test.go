package zklock_test

// The helpers of tests over TLS: the files of a client, and a TLS proxy before a server without
// TLS.

import (
	"crypto/tls"
	"io"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock/internal/certs"
	"github.com/zklock/zklock/internal/testca"
)

// writeTo writes the files of a client: the authority that it trusts, and a new certificate of a.
func writeTo(t *testing.T, n certs.Names, a, trusts *testca.Authority, valid time.Duration) {
	t.Helper()
	c := a.Issue("client.test", valid)
	for name, content := range map[string][]byte{n.CA: trusts.Own().PEM, n.Cert: c.PEM, n.Key: c.KeyPEM} {
		testca.Write(t, name, content)
	}
}

func fileNames(t *testing.T) certs.Names {
	dir := t.TempDir()
	return certs.Names{CA: filepath.Join(dir, "ca.pem"), Cert: filepath.Join(dir, "cert.pem"), Key: filepath.Join(dir, "key.pem")}
}

// tlsFront accepts clients over TLS, at a name of a network in memory, if they show a certificate
// of an authority, and connects them to a server.
type tlsFront struct {
	addr    string
	serving sync.WaitGroup

	mu      sync.Mutex
	config  *tls.Config
	clients []net.Conn
}

func (v *virtual) overTLS(addr string, maxVersion uint16) *tlsFront {
	v.t.Helper()
	f := &tlsFront{addr: addr, config: &tls.Config{ClientAuth: tls.RequireAndVerifyClientCert, MaxVersion: maxVersion}}
	l, err := v.net.Listen(addr)
	require.NoError(v.t, err)
	l = tls.NewListener(l, &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.config.Clone(), nil
	}})
	v.t.Cleanup(func() { _ = l.Close(); f.cut(); f.serving.Wait() })
	f.serving.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			f.serving.Go(func() { f.serve(c, func() (net.Conn, error) { return v.net.Dial("tcp", v.srv.Addr(), time.Second) }) })
		}
	})
	return f
}

func (f *tlsFront) serve(c net.Conn, dial func() (net.Conn, error)) {
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(5 * time.Second))
	if c.(*tls.Conn).Handshake() != nil {
		return
	}
	_ = c.SetDeadline(time.Time{})
	s, err := dial()
	if err != nil {
		return
	}
	defer s.Close()
	f.mu.Lock()
	f.clients = append(f.clients, s)
	f.mu.Unlock()
	f.serving.Go(func() { _, _ = io.Copy(s, c); _ = s.Close() })
	_, _ = io.Copy(c, s)
}

// shows has the server show a new certificate, and accept client certificates of
// the authority takes.
func (f *tlsFront) shows(a *testca.Authority, name string, valid time.Duration, takes *testca.Authority) {
	c := a.Issue(name, valid)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.config.Certificates, f.config.ClientCAs = []tls.Certificate{c.Pair}, takes.Pool()
}

// cut ends all connections.
func (f *tlsFront) cut() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.clients {
		_ = c.Close()
	}
	f.clients = nil
}
