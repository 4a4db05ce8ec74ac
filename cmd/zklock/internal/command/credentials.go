package command

// The credentials that the flags name, and how they are presented to a server.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/internal/expire"
	isasl "github.com/zklock/zklock/internal/sasl"
	"github.com/zklock/zklock/internal/sessionkey"
	jute "github.com/zklock/zklock/internal/wire"
	"github.com/zklock/zklock/sasl"
)

// The values of --sasl.
const (
	saslDigest   = "digest"
	saslKerberos = "kerberos"
)

// credentials are presented to the servers. The exported fields are sent to the guardian.
type credentials struct {
	Auth  sessionkey.Secret // "user:password", empty if there are none
	File  string            // its source, "" for the environment
	SASL  string            // the mechanism: saslDigest, saslKerberos, or empty for ZooKeeper's own digest scheme
	Login kerberosLogin     // of saslKerberos

	mechanism sasl.Mechanism // of SASL, after open
}

// credentials returns the credentials of the flags, or else of the environment.
func (c *connection) credentials() (credentials, error) {
	login := c.login
	switch {
	case c.sasl != "" && c.sasl != saslDigest && c.sasl != saslKerberos:
		return credentials{}, fmt.Errorf("--sasl %q: give %s or %s, or leave it out", c.sasl, saslDigest, saslKerberos)
	case c.sasl != saslKerberos && login != kerberosLogin{}:
		return credentials{}, errors.New("--keytab, --principal, --krb5-conf, --krb5-host-as-given and --server-principal are for --sasl kerberos: give that, or leave them out")
	case c.sasl == saslKerberos && c.authFile != "":
		return credentials{}, errors.New("--sasl kerberos takes no user and password: leave out --auth-file")
	case (login.Keytab == "") != (login.Principal == ""):
		return credentials{}, errors.New("--keytab and --principal go together: give both, or neither for the ticket cache of kinit")
	case c.sasl == saslKerberos:
		return credentials{SASL: c.sasl, Login: login}.open()
	}
	auth, err := c.userAndPassword()
	if err != nil {
		return credentials{}, err
	}
	if c.sasl != "" && auth == "" {
		return credentials{}, fmt.Errorf("--sasl %s needs a user and a password: give --auth-file or set %s", c.sasl, envAuth)
	}
	return credentials{Auth: []byte(auth), File: c.authFile, SASL: c.sasl}.open()
}

// open creates the mechanism, once, because it keeps tickets.
func (c credentials) open() (_ credentials, err error) {
	switch c.SASL {
	case saslDigest:
		user, password, _ := strings.Cut(string(c.Auth), ":") // the user ends at the first colon
		switch {
		case c.File == "":
			c.mechanism = sasl.DigestMD5(user, password)
		case user == "" || password == "" || !utf8.Valid(c.Auth):
			return c, fmt.Errorf("--auth-file %s: give a user and a password in UTF-8; neither may be empty", c.File)
		default:
			c.mechanism = sasl.DigestMD5Func(c.fromFile)
		}
	case saslKerberos:
		if c.mechanism, err = c.Login.mechanism(); err != nil {
			err = fmt.Errorf("--sasl kerberos: %w", err)
		}
	}
	return c, err
}

// fromFile reads the file again, because it may have a new password. If it cannot be used, for
// example while it is being replaced, the credentials are those with which the process started.
func (c credentials) fromFile(context.Context) (user, password string, err error) {
	auth, err := readAuthFile(c.File)
	if err != nil {
		auth = string(c.Auth)
	}
	user, password, _ = strings.Cut(auth, ":")
	return user, password, nil
}

func (c credentials) areNone() bool { return len(c.Auth) == 0 && c.mechanism == nil }

func (c credentials) options() []zklock.Option {
	user, password, ok := strings.Cut(string(c.Auth), ":")
	switch {
	case c.mechanism != nil:
		return []zklock.Option{zklock.WithSASL(c.mechanism)}
	case ok:
		return []zklock.Option{zklock.WithDigest(user, password)}
	}
	return nil
}

// forOne returns the credentials for one connection to one server, over which a session is ended.
// server is its name, as in the flags.
func (c credentials) forOne(deadline time.Time, server string) (shown expire.Credentials, err error) {
	switch {
	case c.mechanism != nil:
		ctx, cancel := context.WithDeadline(context.Background(), deadline)
		defer cancel()
		var session sasl.Exchange
		shown.SASL, err = isasl.Begin(func(ctx context.Context, server string) (next isasl.Step, first []byte, err error) {
			if session, first, err = c.mechanism.Authenticate(ctx, server); err != nil {
				return nil, nil, err
			}
			return session.Challenge, first, nil
		}).Start(ctx, server)
		shown.SASL = shown.SASL.Notifying(session)
	case len(c.Auth) > 0:
		shown.Auths = []jute.AuthRequest{{Scheme: "digest", Auth: c.Auth}}
	}
	return shown, err
}

// userAndPassword reads "user:password" from the auth file, or else from the environment. There is
// no flag for a password, because every user of the host can read arguments. Errors do not quote
// the content.
func (c *connection) userAndPassword() (string, error) {
	if c.authFile == "" {
		auth := strings.TrimRight(os.Getenv(envAuth), "\r\n") // a password may end in a space
		if auth != "" && !strings.Contains(auth, ":") {
			return "", fmt.Errorf("%s does not have the form user:password", envAuth)
		}
		return auth, nil
	}
	return readAuthFile(c.authFile)
}

func readAuthFile(file string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", fmt.Errorf("--auth-file: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", fmt.Errorf("--auth-file: %w", err)
	}
	if mode := info.Mode(); runtime.GOOS != "windows" && mode.Perm()&0o007 != 0 {
		return "", fmt.Errorf("--auth-file %s is accessible to every user of this host (mode %#o): run chmod 600 on it, and change the password", file, mode.Perm())
	}
	b, err := io.ReadAll(io.LimitReader(f, 64<<10))
	if err != nil {
		return "", fmt.Errorf("--auth-file: %w", err)
	}
	auth := strings.TrimRight(string(b), "\r\n")
	if strings.ContainsAny(auth, "\r\n") || !strings.Contains(auth, ":") {
		return "", fmt.Errorf("--auth-file %s must hold one line, user:password", file)
	}
	return auth, nil
}
