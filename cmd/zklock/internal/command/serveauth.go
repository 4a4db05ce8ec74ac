package command

// TLS and SASL of serve: the files that the flags name, read once at the start.

import (
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"unicode/utf8"

	"github.com/zklock/zklock/internal/certs"
	"github.com/zklock/zklock/zktest"
)

type serveAuth struct {
	tlsCert, tlsKey, tlsClientCA string
	saslUsers                    string
	saslRequired                 bool
}

func (s serveAuth) options() (opts []zktest.Option, err error) {
	switch {
	case (s.tlsCert == "") != (s.tlsKey == ""):
		return nil, errors.New("--tls-cert and --tls-key go together: give both")
	case s.tlsClientCA != "" && s.tlsCert == "":
		return nil, errors.New("--tls-client-ca needs the server's own certificate: give --tls-cert and --tls-key, too")
	case s.saslRequired && s.saslUsers == "":
		return nil, errors.New("--sasl-required lets no client in without users: give --sasl-users, too")
	}
	if s.tlsCert != "" {
		config, err := s.tlsConfig()
		if err != nil {
			return nil, err
		}
		opts = append(opts, zktest.WithTLS(config))
	}
	if s.saslUsers != "" {
		passwords, err := readSASLUsers(s.saslUsers)
		if err != nil {
			return nil, fmt.Errorf("--sasl-users %w", err)
		}
		opts = append(opts, zktest.WithSASLUsers(passwords))
	}
	if s.saslRequired {
		opts = append(opts, zktest.WithConfig("sessionRequireClientSASLAuth=true"))
	}
	return opts, nil
}

func (s serveAuth) tlsConfig() (*tls.Config, error) {
	files, err := certs.Open(certs.Names{CA: s.tlsClientCA, Cert: s.tlsCert, Key: s.tlsKey})
	if err != nil {
		return nil, fmt.Errorf("--tls-cert, --tls-key, --tls-client-ca: %w", err)
	}
	config, _ := files.Config(&tls.Config{MinVersion: tls.VersionTLS12})
	if s.tlsClientCA != "" {
		config.ClientCAs, config.ClientAuth = config.RootCAs, tls.RequireAndVerifyClientCert
	}
	return config, nil
}

// readSASLUsers reads lines of user:password. Errors do not quote the content.
func readSASLUsers(file string) (map[string]string, error) {
	info, err := os.Stat(file)
	if err != nil {
		return nil, err
	}
	if mode := info.Mode(); runtime.GOOS != "windows" && mode.Perm()&0o007 != 0 {
		return nil, fmt.Errorf("%s is accessible to every user of this host (mode %#o): run chmod 600 on it, and change the passwords", file, mode.Perm())
	}
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	passwords := map[string]string{}
	for i, line := range strings.Split(strings.TrimRight(string(b), "\r\n"), "\n") {
		user, password, _ := strings.Cut(strings.TrimRight(line, "\r"), ":")
		if _, twice := passwords[user]; twice || user == "" || password == "" || !utf8.ValidString(line) {
			return nil, fmt.Errorf("%s, line %d: give one line user:password for each user, in UTF-8; neither may be empty", file, i+1)
		}
		passwords[user] = password
	}
	return passwords, nil
}
