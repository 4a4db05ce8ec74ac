// Package testca is an authority for tests of TLS: it signs certificates for servers and clients,
// and writes them into files as a renewal does. It must not depend on connections.
package testca

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Authority signs certificates. Its own certificate, for a name, is also valid for servers and
// clients.
type Authority struct {
	t    testing.TB
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	own  Issued
}

// Issued is a certificate with its key.
type Issued struct {
	Pair    tls.Certificate
	PEM     []byte
	KeyPEM  []byte
	Expires time.Time
}

// New returns an authority whose own certificate, for a name, is valid for a year.
func New(t testing.TB, name string) *Authority {
	t.Helper()
	a := &Authority{t: t}
	a.own = a.Issue(name, 365*24*time.Hour)
	return a
}

// Own returns the authority's own certificate.
func (a *Authority) Own() Issued { return a.own }

// Pool returns a pool that trusts the authority.
func (a *Authority) Pool() *x509.CertPool {
	p := x509.NewCertPool()
	p.AddCert(a.cert)
	return p
}

// Issue signs a certificate for a name. It is valid from a second ago until the given time from
// now.
func (a *Authority) Issue(name string, valid time.Duration) Issued {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(a.t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name}, IsCA: a.cert == nil, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Second), NotAfter: time.Now().Add(valid),
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	require.NoError(a.t, err)
	leaf, err := x509.ParseCertificate(der)
	require.NoError(a.t, err)
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(a.t, err)
	if a.cert == nil {
		a.cert, a.key = leaf, key
	}
	return Issued{
		Pair: tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, Expires: leaf.NotAfter,
		PEM:    pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		KeyPEM: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}),
	}
}

// Write replaces the content of a file in one step.
func Write(t testing.TB, name string, content []byte) {
	t.Helper()
	require.NoError(t, os.WriteFile(name+".new", content, 0o600))
	require.NoError(t, os.Rename(name+".new", name))
}
