package command

// The flags that say how to reach the servers. run, ls and expire share them.

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/spf13/cobra"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/internal/certs"
	"github.com/zklock/zklock/internal/hook"
	"github.com/zklock/zklock/internal/link"
	"github.com/zklock/zklock/internal/sessionkey"
	jute "github.com/zklock/zklock/internal/wire"
)

const (
	envServers = "ZKLOCK_SERVERS"
	envAuth    = "ZKLOCK_AUTH"
)

// connection is what the connection flags say.
type connection struct {
	servers        string
	sessionTimeout time.Duration
	connectTimeout time.Duration
	authFile       string
	sasl           string
	login          KerberosLogin
	tls            bool
	tlsCA          string
	tlsCert        string
	tlsKey         string
	tlsServerName  string
	logLevel       string
	logFormat      string

	creds   func() credentials    // that options found; fmt would print the bytes of a field
	tlsBase *tls.Config           // what options found for TLS, nil for plain text
	files   *certs.Files          // the certificates, nil if no files are named
	key     func() sessionkey.Key // of the Session that connect returned
	reach   atomic.Pointer[func(error) error]
}

func (c *connection) addFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVarP(&c.servers, "servers", "s", "", "ZooKeeper `servers`, host:port,host:port/chroot (default $"+envServers+")")
	f.DurationVar(&c.sessionTimeout, "session-timeout", 30*time.Second, "session timeout to ask the servers for")
	f.DurationVar(&c.connectTimeout, "connect-timeout", 0, "how long to try to reach a server (default: the session timeout)")
	f.StringVar(&c.authFile, "auth-file", "", "`file` with the credentials, user:password (default $"+envAuth+", the credentials themselves)")
	f.StringVar(&c.sasl, "sasl", "", "prove who we are by this SASL `mechanism`: digest, which is DIGEST-MD5, or kerberos, in the build that has it (default: ZooKeeper's digest scheme, without SASL)")
	f.StringVar(&c.login.Keytab, "keytab", "", "`file` with the key of --principal, for Kerberos (default: the ticket cache of kinit)")
	f.StringVar(&c.login.Principal, "principal", "", "whose key of the keytab it is: `name`@REALM")
	f.StringVar(&c.login.Config, "krb5-conf", "", "`file` of Kerberos's settings (default $KRB5_CONFIG, or /etc/krb5.conf)")
	f.BoolVar(&c.login.HostAsGiven, "krb5-host-as-given", false, "the servers' Kerberos name has the host of --servers, and no name from DNS (default: what krb5.conf says)")
	f.StringVar(&c.login.ServerPrincipal, "server-principal", "", "the servers' Kerberos `name` (default: zookeeper/_HOST, of which _HOST stands for the host's name)")
	f.BoolVar(&c.tls, "tls", false, "connect over TLS; the other --tls flags imply it")
	f.StringVar(&c.tlsCA, "tls-ca", "", "`file` with the PEM certificates to trust in place of the system's")
	f.StringVar(&c.tlsCert, "tls-cert", "", "`file` with the client's PEM certificate")
	f.StringVar(&c.tlsKey, "tls-key", "", "`file` with the client's PEM key")
	f.StringVar(&c.tlsServerName, "tls-server-name", "", "`name` that the servers' certificates must have (default: the host's name in --servers)")
	f.StringVar(&c.logLevel, "log-level", "error", "what the ZooKeeper session logs to stderr: error, warn, info or debug")
	f.StringVar(&c.logFormat, "log-format", logText, "how zklock and the ZooKeeper session write to stderr: text, or json, an object a line")
	_ = cmd.RegisterFlagCompletionFunc("log-format", cobra.FixedCompletions([]string{logText, logJSON}, cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.RegisterFlagCompletionFunc("log-level", cobra.FixedCompletions([]string{"error", "warn", "info", "debug"}, cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.RegisterFlagCompletionFunc("sasl", cobra.FixedCompletions([]string{saslDigest, saslKerberos}, cobra.ShellCompDirectiveNoFileComp))
	for _, name := range []string{"servers", "session-timeout", "connect-timeout", "principal", "server-principal", "tls-server-name"} {
		_ = cmd.RegisterFlagCompletionFunc(name, cobra.NoFileCompletions)
	}
}

// options checks the flags and turns them into options for Connect. Every error is one of usage.
func (c *connection) options(stderr io.Writer) ([]zklock.Option, error) {
	if c.servers == "" {
		c.servers = os.Getenv(envServers)
	}
	if c.servers == "" {
		return nil, exitf(exitUsage, "no servers: give --servers host:port,… or set %s", envServers)
	}
	if c.connectTimeout < 0 {
		return nil, exitf(exitUsage, "--connect-timeout %v is negative: give 0 or more", c.connectTimeout)
	}
	if c.connectTimeout == 0 {
		c.connectTimeout = c.sessionTimeout
	}
	var level slog.Level
	if err := level.UnmarshalText([]byte(c.logLevel)); err != nil {
		return nil, exitf(exitUsage, "--log-level %q: give error, warn, info or debug", c.logLevel)
	}
	var lines slog.Handler = slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: level})
	if c.logFormat == logJSON {
		lines = slog.NewJSONHandler(stderr, &slog.HandlerOptions{Level: level})
	}
	opts := []zklock.Option{zklock.WithSessionTimeout(c.sessionTimeout), zklock.WithLogger(slog.New(lines))}
	creds, err := c.credentials()
	if err != nil {
		return nil, &exitError{exitUsage, err}
	}
	c.creds = func() credentials { return creds }
	opts = append(opts, creds.options()...)
	overTLS, err := c.tlsOptions()
	if err != nil {
		return nil, &exitError{exitUsage, err}
	}
	return append(opts, overTLS...), nil
}

// connect opens the session within the connect timeout.
func (c *connection) connect(ctx context.Context, opts []zklock.Option) (*zklock.Session, error) {
	cctx, cancel := context.WithTimeoutCause(ctx, c.connectTimeout, errNoServer{c.connectTimeout})
	defer cancel()
	hooks := hook.Session{Key: &c.key, Unreached: func(f func(error) error) { c.reach.Store(&f) }}
	s, err := zklock.Connect(hook.With(cctx, hooks), c.servers, opts...)
	if err != nil {
		return nil, classify(err)
	}
	return s, nil
}

// unreached adds to an error what came of the last try at each server, unless one has accepted the session.
func (c *connection) unreached(err error) error {
	if f := c.reach.Load(); f != nil {
		return (*f)(err)
	}
	return err
}

// errNoServer is the cause of a connecting that took too long.
type errNoServer struct{ after time.Duration }

func (e errNoServer) Error() string { return fmt.Sprintf("no server after %v", e.after) }

// classify gives an error of the library its exit code.
func classify(err error) error {
	var own *exitError
	if errors.As(err, &own) {
		return err
	}
	var e *zklock.Error
	if errors.Is(err, zklock.ErrNoChroot) && errors.As(err, &e) && e.Op == "connect" {
		return &exitError{exitUsage, noChroot{chrootOf(e.Path), err}}
	}
	code := exitUsage
	var late errNoServer
	switch {
	case errors.As(err, &late), errors.Is(err, context.DeadlineExceeded), errors.Is(err, zklock.ErrNotConnected):
		code = codeUnreached(err)
	case errors.Is(err, zklock.ErrLost):
		code = exitLost
	case errors.Is(err, link.ErrHungUp): // no server responds to it
		code = exitNoServer
	case refused(err), errors.Is(err, zklock.ErrNoChroot): // after Connect, the servers have lost the chroot
		code = exitRefused
	}
	return &exitError{code, trim(err)}
}

// noChroot is ErrNoChroot in the words of the flags.
type noChroot struct {
	chroot string
	err    error
}

func (n noChroot) Error() string {
	return fmt.Sprintf("the chroot %s of --servers is not there: make it", n.chroot)
}
func (n noChroot) Unwrap() error { return n.err }

// refused says whether the error is a server's refusal: one of the ZooKeeper client's errors, or a code that the client has
// no error for, such as that of a quota.
func refused(err error) bool {
	for _, no := range []error{
		zklock.ErrAuthFailed, zk.ErrNoAuth, zk.ErrInvalidACL, zk.ErrAuthFailed, zk.ErrNoChildrenForEphemerals, zk.ErrBadArguments,
	} {
		if errors.Is(err, no) {
			return true
		}
	}
	var code jute.Code
	return errors.As(err, &code)
}

// flagOf has the command's flags for the library's options, which the library's errors name.
var flagOf = strings.NewReplacer("WithSessionTimeout", "--session-timeout", "QuorumLease", "--leader-ping",
	"SingleServerLease()", "--lease single", "WithDigest", "--auth-file", "DigestMD5Func", "--auth-file", "DigestMD5", "--auth-file", "another Connect with WithCreateChroot", "another run with --create-chroot")

// trim takes the name of one of our packages off the front of a message, because the command's own name is there already.
// The message then speaks of flags.
func trim(err error) error {
	for _, name := range []string{"zklock: ", "zktest: "} {
		if s, ok := strings.CutPrefix(err.Error(), name); ok {
			return trimmed{flagOf.Replace(s), err}
		}
	}
	return err
}

type trimmed struct {
	s   string
	err error
}

func (t trimmed) Error() string { return t.s }
func (t trimmed) Unwrap() error { return t.err }

// none wants no argument.
func none(c *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("%s takes no argument: leave out %q", c.CommandPath(), args[0])
	}
	return nil
}

// one wants one argument, and says what it should be.
func one(what string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) != 1 {
			return fmt.Errorf("%d arguments in place of one: give %s", len(args), what)
		}
		return nil
	}
}
