package command

// The credentials that the flags name, and what a server is shown of them.

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

// What --sasl names.
const (
	saslDigest   = "digest"
	saslKerberos = "kerberos"
)

// KerberosLogin is what the flags say of Kerberos: files and names, and no secret.
type KerberosLogin struct {
	Keytab          string // the file; "" for a ticket cache
	Principal       string // whose key is in it
	Config          string // krb5.conf; "" for the default
	ServerPrincipal string // "" for the default
	HostAsGiven     bool   // the principal has the host of --servers
}

// Kerberos makes the mechanism of --sasl kerberos. It takes packages that an importer of the library must not download, so it is nil in the
// zklock of this module; that of contrib/zklockkrb5 sets it before Main.
var Kerberos func(KerberosLogin) (sasl.Mechanism, error)

// credentials are what servers are shown. The fields with names in capitals are what the guardian is told.
type credentials struct {
	Auth  sessionkey.Secret // "user:password", empty if there are none
	File  string            // where it is from, "" for the environment
	SASL  string            // what proves who we are: saslDigest, saslKerberos, or empty for ZooKeeper's own digest scheme
	Login KerberosLogin     // of saslKerberos

	mechanism sasl.Mechanism // of SASL, when they are open
}

// credentials returns what the flags say, or else the environment.
func (c *connection) credentials() (credentials, error) {
	login := c.login
	switch {
	case c.sasl != "" && c.sasl != saslDigest && c.sasl != saslKerberos:
		return credentials{}, fmt.Errorf("--sasl %q: give %s or %s, or leave it out", c.sasl, saslDigest, saslKerberos)
	case c.sasl != saslKerberos && login != KerberosLogin{}:
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

// open makes the mechanism. It keeps tickets, so it is made once.
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
		if Kerberos == nil {
			return c, errors.New("--sasl kerberos: this zklock has no Kerberos; build the one that has, contrib/zklockkrb5/cmd/zklock")
		}
		if c.mechanism, err = Kerberos(c.Login); err != nil {
			err = fmt.Errorf("--sasl kerberos: %w", err)
		}
	}
	return c, err
}

// fromFile reads the file again, which may have a new password by now. If it cannot be used,
// because it is being replaced perhaps, the credentials are those that the process began with.
func (c credentials) fromFile(context.Context) (user, password string, err error) {
	auth, err := readAuthFile(c.File)
	if err != nil {
		auth = string(c.Auth)
	}
	user, password, _ = strings.Cut(auth, ":")
	return user, password, nil
}

// areNone says that there are none.
func (c credentials) areNone() bool { return len(c.Auth) == 0 && c.mechanism == nil }

// options are those for Connect.
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

// forOne is what one server is shown over one connection, before it ends a session. server is its name, as the flags have it.
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

// userAndPassword reads "user:password" from the auth file or, without one, from the environment. There is no flag for a
// password: everybody on the host can read other people's arguments. Errors do not quote what they found.
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
		return "", fmt.Errorf("--auth-file %s is open to everybody on this host (mode %#o): run chmod 600 on it, and change the password", file, mode.Perm())
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
