package zklock_test

// What tests over TLS use: an authority, its certificates, and a server that takes TLS in front of one that does not.

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
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock/internal/certs"
)

// authority signs certificates.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t}
	a.cert, a.key = a.sign("authority", 365*24*time.Hour)
	return a
}

// sign makes a certificate that is valid from now on for that long. The authority's first one is its own.
func (a *authority) sign(name string, valid time.Duration) (*x509.Certificate, *ecdsa.PrivateKey) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(a.t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), DNSNames: []string{name}, BasicConstraintsValid: true, IsCA: a.cert == nil,
		NotBefore: time.Now().Add(-time.Second), NotAfter: time.Now().Add(valid), KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	parent, signs := a.cert, a.key
	if parent == nil {
		parent, signs = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signs)
	require.NoError(a.t, err)
	cert, err := x509.ParseCertificate(der)
	require.NoError(a.t, err)
	return cert, key
}

func (a *authority) pool() *x509.CertPool {
	p := x509.NewCertPool()
	p.AddCert(a.cert)
	return p
}

// writeTo writes the files of a client: who it trusts, and a new certificate of its own.
func (a *authority) writeTo(n certs.Names, trusts *authority, valid time.Duration) {
	a.t.Helper()
	cert, key := a.sign("client.test", valid)
	keyDER, err := x509.MarshalECPrivateKey(key)
	require.NoError(a.t, err)
	for name, block := range map[string]*pem.Block{
		n.CA:   {Type: "CERTIFICATE", Bytes: trusts.cert.Raw},
		n.Cert: {Type: "CERTIFICATE", Bytes: cert.Raw},
		n.Key:  {Type: "EC PRIVATE KEY", Bytes: keyDER},
	} {
		require.NoError(a.t, os.WriteFile(name+".new", pem.EncodeToMemory(block), 0o600))
		require.NoError(a.t, os.Rename(name+".new", name))
	}
}

func fileNames(t *testing.T) certs.Names {
	dir := t.TempDir()
	return certs.Names{CA: filepath.Join(dir, "ca.pem"), Cert: filepath.Join(dir, "cert.pem"), Key: filepath.Join(dir, "key.pem")}
}

// tlsFront takes clients over TLS, at a name of a network in memory, that show a certificate of an authority, and passes them to a server.
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

// shows has the server show a new certificate, and take those of clients.
func (f *tlsFront) shows(a *authority, name string, valid time.Duration, takes *authority) {
	cert, key := a.sign(name, valid)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.config.Certificates = []tls.Certificate{{Certificate: [][]byte{cert.Raw}, PrivateKey: key}}
	f.config.ClientCAs = takes.pool()
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
