package command

// The credentials that the flags name, and what a server is shown of them.

import (
	"context"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/internal/expire"
	"github.com/zklock/zklock/internal/sasl"
	"github.com/zklock/zklock/internal/secret"
	"github.com/zklock/zklock/internal/sessionkey"
	jute "github.com/zklock/zklock/internal/wire"
)

// saslDigest is the mechanism that --sasl names.
const saslDigest = "digest"

// credentials are "user:password", empty if there are none, and the mechanism of SASL that proves them: saslDigest, or empty for
// ZooKeeper's own digest scheme.
type credentials struct {
	Auth sessionkey.Secret
	SASL string
}

// credentials returns what the flags say, or else the environment.
func (c *connection) credentials() (credentials, error) {
	auth, err := c.userAndPassword()
	if err != nil {
		return credentials{}, err
	}
	mechanism := c.sasl
	switch {
	case mechanism != "" && mechanism != saslDigest:
		return credentials{}, fmt.Errorf("--sasl %q: give %s, or leave it out", mechanism, saslDigest)
	case mechanism != "" && auth == "":
		return credentials{}, fmt.Errorf("--sasl %s needs a user and a password: give --auth-file or set %s", mechanism, envAuth)
	}
	return credentials{[]byte(auth), mechanism}, nil
}

// split returns user and password. The user ends at the first colon.
func (c credentials) split() (user, password string, ok bool) {
	return strings.Cut(string(c.Auth), ":")
}

// options are those for Connect.
func (c credentials) options() []zklock.Option {
	user, password, ok := c.split()
	switch {
	case !ok:
		return nil
	case c.SASL != "":
		return []zklock.Option{zklock.WithSASL(zklock.DigestMD5(user, password))}
	}
	return []zklock.Option{zklock.WithDigest(user, password)}
}

// forOne is what one server is shown over one connection, before it ends a session.
func (c credentials) forOne(deadline time.Time, server string) (shown expire.Credentials, err error) {
	user, password, ok := c.split()
	switch {
	case !ok:
	case c.SASL != "":
		ctx, cancel := context.WithDeadline(context.Background(), deadline)
		defer cancel()
		shown.SASL, err = sasl.DigestMD5(secret.Of([]byte(user)), secret.Of([]byte(password))).Start(ctx, server)
	default:
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
	f, err := os.Open(c.authFile)
	if err != nil {
		return "", fmt.Errorf("--auth-file: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", fmt.Errorf("--auth-file: %w", err)
	}
	if mode := info.Mode(); runtime.GOOS != "windows" && mode.Perm()&0o007 != 0 {
		return "", fmt.Errorf("--auth-file %s is open to everybody on this host (mode %#o): run chmod 600 on it, and change the password", c.authFile, mode.Perm())
	}
	b, err := io.ReadAll(io.LimitReader(f, 64<<10))
	if err != nil {
		return "", fmt.Errorf("--auth-file: %w", err)
	}
	auth := strings.TrimRight(string(b), "\r\n")
	if strings.ContainsAny(auth, "\r\n") || !strings.Contains(auth, ":") {
		return "", fmt.Errorf("--auth-file %s must hold one line, user:password", c.authFile)
	}
	return auth, nil
}
