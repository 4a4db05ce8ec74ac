package certs

// These tests attack certs.go: files that change while they are read, and the content that stays in
// use.

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock/internal/secret"
)

// made returns the PEM of a certificate of that number, which signs itself, and of its key.
func made(t *testing.T, number int64) (cert, key []byte) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(number), NotAfter: time.Date(2040, 1, 2, 3, 4, 5, 0, time.UTC)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &k.PublicKey, k)
	require.NoError(t, err)
	keyDER, err := x509.MarshalECPrivateKey(k)
	require.NoError(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER})
}

func write(t *testing.T, name string, b []byte) {
	t.Helper()
	require.NoError(t, os.WriteFile(name, b, 0o600))
}

// files returns the files of certificate number 1, which is its own authority.
func files(t *testing.T) (n Names, f *Files) {
	t.Helper()
	dir := t.TempDir()
	n = Names{filepath.Join(dir, "ca.pem"), filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")}
	cert, key := made(t, 1)
	write(t, n.CA, cert)
	write(t, n.Cert, cert)
	write(t, n.Key, key)
	f, err := Open(n)
	require.NoError(t, err)
	return n, f
}

func number(t *testing.T, c *tls.Config) int64 {
	t.Helper()
	require.Len(t, c.Certificates, 1)
	return c.Certificates[0].Leaf.SerialNumber.Int64()
}

// F56: a renewal is used from the next check on, and is reported once. Without one nothing is
// reported.
func TestFiles_Renewed(t *testing.T) {
	n, f := files(t)
	for i := range int64(3) {
		c, news := f.Config(nil)
		require.Equal(t, i+1, number(t, c))
		require.Equal(t, i > 0, news.Renewed)
		require.NoError(t, news.Err)
		require.Equal(t, n.Cert+", valid until 2040-01-02T03:04:05Z", news.Cert)
		again, news := f.Config(nil)
		require.False(t, news.Renewed)
		require.Same(t, c.RootCAs, again.RootCAs, "not read again")
		cert, key := made(t, i+2)
		write(t, n.Cert, cert)
		write(t, n.Key, key)
	}
}

// A file of the same size and time that takes the name of another is another file: a mesh swaps
// symbolic links.
func TestFiles_Swapped(t *testing.T) {
	n, f := files(t)
	before, _ := f.Config(nil)
	info, err := os.Stat(n.CA)
	require.NoError(t, err)
	old, err := os.ReadFile(n.CA)
	require.NoError(t, err)
	other, _ := made(t, 7)
	for len(other) < len(old) {
		other = append(other, '\n')
	}
	write(t, n.CA+".new", other)
	require.NoError(t, os.Chtimes(n.CA+".new", info.ModTime(), info.ModTime()))
	require.NoError(t, os.Rename(n.CA+".new", n.CA))
	after, news := f.Config(nil)
	require.True(t, news.Renewed)
	require.False(t, before.RootCAs.Equal(after.RootCAs))
}

// F56: files that are missing, half written, or of two renewals: the last good ones stay in use.
// Each problem is reported once, and the next good ones are used.
func TestFiles_Spoilt(t *testing.T) {
	for name, spoil := range map[string]func(t *testing.T, n Names){
		"no authorities": func(t *testing.T, n Names) { require.NoError(t, os.Remove(n.CA)) },
		"no key":         func(t *testing.T, n Names) { require.NoError(t, os.Remove(n.Key)) },
		"empty":          func(t *testing.T, n Names) { write(t, n.CA, nil) },
		"half of it": func(t *testing.T, n Names) {
			cert, _ := made(t, 2)
			write(t, n.Cert, cert[:len(cert)/2])
		},
		"half of the second authority": func(t *testing.T, n Names) {
			one, _ := made(t, 2)
			two, _ := made(t, 3)
			write(t, n.CA, append(one, two[:len(two)/2]...))
		},
		"half of a chain": func(t *testing.T, n Names) {
			cert, key := made(t, 2)
			above, _ := made(t, 3)
			write(t, n.Key, key)
			write(t, n.Cert, append(cert, above[:len(above)/2]...))
		},
		"the certificate, and its key not yet": func(t *testing.T, n Names) {
			cert, _ := made(t, 2)
			write(t, n.Cert, cert)
		},
		"a directory": func(t *testing.T, n Names) {
			require.NoError(t, os.Remove(n.Cert))
			require.NoError(t, os.Mkdir(n.Cert, 0o700))
		},
	} {
		t.Run(name, func(t *testing.T) {
			n, f := files(t)
			good, _ := f.Config(nil)
			spoil(t, n)
			for first := true; ; first = false {
				c, news := f.Config(nil)
				require.Error(t, news.Err)
				require.Contains(t, news.Err.Error(), filepath.Dir(n.CA), "it names the file")
				require.Equal(t, first, news.First)
				require.Equal(t, int64(1), number(t, c))
				require.Same(t, good.RootCAs, c.RootCAs)
				_, err := Open(n)
				require.Error(t, err, "at the start there is nothing to go on with")
				if !first {
					break
				}
			}
			ca, _ := made(t, 3)
			cert, key := made(t, 4)
			_ = os.Remove(n.Cert)
			write(t, n.CA, ca)
			write(t, n.Cert, cert)
			write(t, n.Key, key)
			c, news := f.Config(nil)
			require.True(t, news.Renewed)
			require.Equal(t, int64(4), number(t, c))
			require.False(t, good.RootCAs.Equal(c.RootCAs))
		})
	}
}

// A file in another format: the error names it, the format and the command that converts it.
func TestOpen_AnotherFormat_NamesTheConversion(t *testing.T) {
	cert, key := made(t, 1)
	encrypted := pem.EncodeToMemory(&pem.Block{Type: "ENCRYPTED PRIVATE KEY", Bytes: []byte("salted")})
	old := pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Headers: map[string]string{"Proc-Type": "4,ENCRYPTED", "DEK-Info": "AES-128-CBC,00"}, Bytes: []byte("salted")})
	pkcs12 := append([]byte{0x30, 0x82, 0x0a, 0x5b, 2, 1, 3}, make([]byte, 100)...)
	for name, tt := range map[string]struct {
		ca, cert, key []byte
		want          string
	}{
		"encrypted key":                {cert, cert, encrypted, "key.pem is encrypted: convert it with openssl pkey -in "},
		"encrypted key behind a chain": {cert, cert, append(slices.Clone(cert), encrypted...), "key.pem is encrypted: convert it with openssl pkey -in "},
		"encrypted key, as before":     {cert, cert, append(slices.Clone(cert), old...), "key.pem is encrypted: convert it with openssl pkey -in "},
		"PKCS#12":                      {cert, pkcs12, pkcs12, "cert.pem is PKCS#12, and not PEM: convert it with openssl pkcs12 -in "},
		"PKCS#12, authorities":         {pkcs12, cert, key, "ca.pem is PKCS#12, and not PEM: convert it with openssl pkcs12 -in "},
		"Java keystore":                {[]byte("\xfe\xed\xfe\xed\x00\x00\x00\x02"), cert, key, "ca.pem is a Java keystore, and not PEM: convert it with keytool "},
		"a key instead of authorities": {key, cert, key, "ca.pem holds no PEM certificate"},
	} {
		t.Run(name, func(t *testing.T) {
			n, _ := files(t)
			write(t, n.CA, tt.ca)
			write(t, n.Cert, tt.cert)
			write(t, n.Key, tt.key)
			_, err := Open(n)
			require.ErrorContains(t, err, tt.want)
		})
	}
}

// The content of the files replaces the same fields of the configuration, and its other fields
// stay.
func TestFiles_Base(t *testing.T) {
	n, f := files(t)
	base := &tls.Config{ServerName: "zk.test", MinVersion: tls.VersionTLS13, GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return nil, nil }}
	c, _ := f.Config(base)
	require.Equal(t, "zk.test", c.ServerName)
	require.Equal(t, uint16(tls.VersionTLS13), c.MinVersion)
	require.Nil(t, c.GetClientCertificate, "it would be asked in place of ours")
	require.NotNil(t, base.GetClientCertificate, "the caller's is the caller's")
	f, err := Open(Names{CA: n.CA})
	require.NoError(t, err)
	c, news := f.Config(base)
	require.NotNil(t, c.GetClientCertificate)
	require.Empty(t, news.Cert)
	f, err = Open(Names{Cert: n.Cert, Key: n.Key})
	require.NoError(t, err)
	c, _ = f.Config(nil)
	require.Nil(t, c.RootCAs, "the system's")
}

// The kept content is used until the files can be read, and then replaced by theirs at once.
func TestKeep(t *testing.T) {
	n, f := files(t)
	ca, cert, key := f.PEM()
	for _, name := range n.all() {
		require.NoError(t, os.Remove(name))
	}
	kept, err := Keep(n, ca, cert, key)
	require.NoError(t, err)
	c, news := kept.Config(nil)
	require.ErrorIs(t, news.Err, os.ErrNotExist)
	require.Equal(t, int64(1), number(t, c))
	newCert, newKey := made(t, 2)
	write(t, n.CA, newCert)
	write(t, n.Cert, newCert)
	write(t, n.Key, newKey)
	c, news = kept.Config(nil)
	require.NoError(t, news.Err)
	require.Equal(t, int64(2), number(t, c))
	_, err = Keep(n, ca, cert, secret.Of(newKey))
	require.Error(t, err)
}

func TestNames_Check(t *testing.T) {
	for _, n := range []Names{{CA: "a"}, {Cert: "b", Key: "c"}, {"a", "b", "c"}} {
		require.NoError(t, n.Check())
	}
	for _, n := range []Names{{}, {Cert: "b"}, {Key: "c"}, {CA: "a", Cert: "b"}} {
		require.Error(t, n.Check())
	}
}

// R71: nothing that prints shows a key.
func TestFiles_Printed(t *testing.T) {
	n, f := files(t)
	key, err := os.ReadFile(n.Key)
	require.NoError(t, err)
	printed := fmt.Sprintf("%v %+v %#v", f, f, f)
	require.NotContains(t, printed, string(key[40:80]))
	require.NotContains(t, printed, strings.Trim(fmt.Sprint(key[40:60]), "[]"))
	require.NotContains(t, printed, "PrivateKey")
}
