package command

// The files that the --tls flags name, which are read again at each dial, here and by the guardian.

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"path/filepath"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/internal/certs"
	"github.com/zklock/zklock/internal/secret"
	"github.com/zklock/zklock/internal/sessionkey"
)

// tlsOptions returns options for Connect, none without TLS. Files that cannot be read now are a
// usage error.
func (c *connection) tlsOptions() ([]zklock.Option, error) {
	if !c.tls && c.tlsCA == "" && c.tlsCert == "" && c.tlsKey == "" && c.tlsServerName == "" {
		return nil, nil
	}
	if (c.tlsCert == "") != (c.tlsKey == "") {
		return nil, errors.New("--tls-cert and --tls-key go together")
	}
	for _, name := range []*string{&c.tlsCA, &c.tlsCert, &c.tlsKey} {
		if *name != "" { // the guardian may have another directory
			abs, err := filepath.Abs(*name)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", *name, err)
			}
			*name = abs
		}
	}
	c.tlsBase = &tls.Config{ServerName: c.tlsServerName, MinVersion: tls.VersionTLS12}
	opts := []zklock.Option{zklock.WithTLS(c.tlsBase)}
	n := c.tlsNames()
	if (n == certs.Names{}) {
		return opts, nil
	}
	var err error
	if c.files, err = certs.Open(n); err != nil {
		return nil, fmt.Errorf("--tls-ca, --tls-cert, --tls-key: %w", err)
	}
	return append(opts, zklock.WithTLSFiles(n.CA, n.Cert, n.Key)), nil
}

func (c *connection) tlsNames() certs.Names {
	return certs.Names{CA: c.tlsCA, Cert: c.tlsCert, Key: c.tlsKey}
}

// configFor returns a configuration for a connection that the command itself opens to a server:
// with the current certificates, and the name that the server's certificate must have. It returns
// nil for plain text, which has no base.
func configFor(base *tls.Config, files *certs.Files, addr string) *tls.Config {
	if base == nil {
		return nil
	}
	config := base.Clone()
	if files != nil {
		config, _ = files.Config(base)
	}
	if config.ServerName == "" {
		config.ServerName, _, _ = net.SplitHostPort(addr)
	}
	return config
}

// tlsFiles is sent to the guardian, which reads the files again, and if it cannot, uses their last
// content.
type tlsFiles struct {
	certs.Names
	CAPEM, CertPEM []byte
	KeyPEM         sessionkey.Secret
	ServerName     string
}

// forGuardian returns nil for plain text. It reads the files, so that the last good bytes are
// current.
func (c *connection) forGuardian() *tlsFiles {
	if c.tlsBase == nil {
		return nil
	}
	f := &tlsFiles{Names: c.tlsNames(), ServerName: c.tlsServerName}
	if c.files != nil {
		_, _ = c.files.Config(nil)
		var key secret.Bytes
		f.CAPEM, f.CertPEM, key = c.files.PEM()
		f.KeyPEM = key.Reveal()
	}
	return f
}

func (f *tlsFiles) open() (base *tls.Config, files *certs.Files, err error) {
	base = &tls.Config{ServerName: f.ServerName, MinVersion: tls.VersionTLS12}
	if (f.Names != certs.Names{}) {
		files, err = certs.Keep(f.Names, f.CAPEM, f.CertPEM, secret.Of(f.KeyPEM))
	}
	return base, files, err
}
