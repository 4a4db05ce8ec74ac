// Package certs reads the certificates of TLS from files that are renewed while the process runs.
// It promises that a new file is used from the next call on, that the last good ones stay in use
// while a file is missing or half written, and that no log shows a key.
//
// It has no access to connections, starts no goroutine, and does not log: each call returns its
// News.
package certs

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/zklock/zklock/internal/secret"
)

// Names are the files, in PEM: the authorities to trust, and our own certificate with its key. CA,
// or Cert with Key, may be "".
type Names struct{ CA, Cert, Key string }

// Check returns an error if no file is named, or only one of a certificate and its key. The error
// states which files to give.
func (n Names) Check() error {
	switch {
	case n == Names{}:
		return errors.New("no file is named: give the authorities, or a certificate and its key, or both")
	case (n.Cert == "") != (n.Key == ""):
		return errors.New("a certificate and its key go together: give both files or neither")
	}
	return nil
}

func (n Names) all() [3]string { return [3]string{n.CA, n.Cert, n.Key} }

// Files has the files and their last good content. All methods may be called from any goroutine.
type Files struct {
	names Names
	mu    struct {
		sync.Mutex                // held while the files are read
		from       [3]os.FileInfo // the files that the last good content is from, nil for one without a name
		bad        string         // the last problem since the good content was read
	}
	good struct {
		sync.Mutex
		is func() material // a closure, as a secret is
	}
}

type material struct {
	pem   [3]secret.Bytes // in the order of the names
	roots *x509.CertPool  // nil for the system's
	pair  *tls.Certificate
}

// Open reads the files. It returns an error if one cannot be read, or lacks the expected content.
func Open(names Names) (*Files, error) {
	f := &Files{names: names}
	if err := names.Check(); err != nil {
		return nil, err
	}
	_, err := f.look()
	return f, err
}

// Keep returns files with these bytes as their last good content. It does not read the files: the
// next Config does.
func Keep(names Names, ca, cert []byte, key secret.Bytes) (*Files, error) {
	f := &Files{names: names}
	m, err := parse(names, [3]secret.Bytes{secret.Of(ca), secret.Of(cert), key})
	f.setGood(m)
	return f, err
}

// News is the result of a check of the files.
type News struct {
	Renewed bool   // they had changed, and were read
	Err     error  // they cannot be used now, and the last good ones stay in use
	First   bool   // the previous check found no problem, or another one
	Cert    string // our certificate, for people; "" for none
}

// Config returns a configuration like base, nil for the default, with the present content of the
// files. If that cannot be used, it has their last good content.
func (f *Files) Config(base *tls.Config) (*tls.Config, News) {
	news, err := f.look()
	f.mu.Lock()
	if news.Err = err; err == nil {
		f.mu.bad = ""
	} else {
		news.First = f.mu.bad != err.Error()
		f.mu.bad = err.Error()
	}
	f.mu.Unlock()

	c := &tls.Config{}
	if base != nil {
		c = base.Clone()
	}
	m := f.last()
	if m.roots != nil {
		c.RootCAs = m.roots
	}
	if m.pair != nil {
		c.Certificates, c.GetClientCertificate = []tls.Certificate{*m.pair}, nil
		news.Cert = fmt.Sprintf("%s, valid until %s", f.names.Cert, m.pair.Leaf.NotAfter.UTC().Format("2006-01-02T15:04:05Z"))
	}
	return c, news
}

// PEM returns the last good content of the files.
func (f *Files) PEM() (ca, cert []byte, key secret.Bytes) {
	m := f.last()
	return m.pem[0].Reveal(), m.pem[1].Reveal(), m.pem[2]
}

func (f *Files) last() material {
	f.good.Lock()
	defer f.good.Unlock()
	return f.good.is()
}

func (f *Files) setGood(m material) {
	f.good.Lock()
	defer f.good.Unlock()
	f.good.is = func() material { return m }
}

// look reads the files if any has changed: its name refers to another file, or its modification
// time or size is different. It checks this before it reads, so a file that is written while it is
// read looks changed the next time.
func (f *Files) look() (news News, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var now [3]os.FileInfo
	changed := false
	for i, name := range f.names.all() {
		if name == "" {
			continue
		}
		if now[i], err = os.Stat(name); err != nil {
			return News{}, err
		}
		was := f.mu.from[i]
		changed = changed || was == nil || !os.SameFile(was, now[i]) || !was.ModTime().Equal(now[i].ModTime()) || was.Size() != now[i].Size()
	}
	if !changed {
		return News{}, nil
	}
	var pem [3]secret.Bytes
	for i, name := range f.names.all() {
		if name == "" {
			continue
		}
		b, err := os.ReadFile(name)
		if err != nil {
			return News{}, err
		}
		pem[i] = secret.Of(b)
	}
	m, err := parse(f.names, pem)
	if err != nil {
		return News{}, err
	}
	f.mu.from = now
	f.setGood(m)
	return News{Renewed: true}, nil
}

func parse(names Names, pem [3]secret.Bytes) (m material, err error) {
	m.pem = pem
	for i, name := range names.all() {
		if isCut(pem[i].Reveal()) {
			return m, fmt.Errorf("%s ends within a block of PEM", name)
		}
	}
	if names.CA != "" {
		m.roots = x509.NewCertPool()
		if !m.roots.AppendCertsFromPEM(pem[0].Reveal()) {
			return m, because(names.CA, pem[0], fmt.Errorf("%s holds no PEM certificate", names.CA))
		}
	}
	if names.Cert == "" {
		return m, nil
	}
	pair, err := tls.X509KeyPair(pem[1].Reveal(), pem[2].Reveal())
	if err != nil { // the error does not quote the files
		err = fmt.Errorf("%s and %s: %w", names.Cert, names.Key, err)
		return m, because(names.Cert, pem[1], because(names.Key, pem[2], err))
	}
	if pair.Leaf == nil { // GODEBUG=x509keypairleaf=0
		if pair.Leaf, err = x509.ParseCertificate(pair.Certificate[0]); err != nil {
			return m, fmt.Errorf("%s: %w", names.Cert, err)
		}
	}
	m.pair = &pair
	return m, nil
}

// because returns an error with the command that converts a file that is encrypted or not PEM, and
// otherwise err.
func because(name string, content secret.Bytes, err error) error {
	b := content.Reveal()
	for block, rest := pem.Decode(b); block != nil; block, rest = pem.Decode(rest) {
		if block.Type == "ENCRYPTED PRIVATE KEY" || block.Headers["DEK-Info"] != "" {
			return fmt.Errorf("%s is encrypted: convert it with openssl pkey -in %[1]s -out NEW.pem", name)
		}
	}
	switch {
	case bytes.HasPrefix(b, []byte{0x30}) && bytes.Contains(b[:min(len(b), 8)], []byte{2, 1, 3}): // its version
		return fmt.Errorf("%s is PKCS#12, and not PEM: convert it with openssl pkcs12 -in %[1]s -nodes -out NEW.pem", name)
	case bytes.HasPrefix(b, []byte{0xfe, 0xed, 0xfe, 0xed}):
		return fmt.Errorf("%s is a Java keystore, and not PEM: convert it with keytool -importkeystore -srckeystore %[1]s -destkeystore NEW.p12 -deststoretype pkcs12, and then with openssl pkcs12 -in NEW.p12 -nodes -out NEW.pem", name)
	}
	return err
}

// isCut reports whether the end of a file is missing. A file with other certificates before that
// point could be used, and would trust fewer authorities, or present half a chain.
func isCut(b []byte) bool {
	for block := new(pem.Block); block != nil; {
		block, b = pem.Decode(b)
	}
	return bytes.Contains(b, []byte("-----BEGIN "))
}
