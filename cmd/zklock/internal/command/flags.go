package command

// The flags for reaching the servers, which run, ls and expire share.

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

type connection struct {
	servers        string
	sessionTimeout time.Duration
	connectTimeout time.Duration
	authFile       string
	sasl           string
	login          kerberosLogin
	tls            bool
	tlsCA          string
	tlsCert        string
	tlsKey         string
	tlsServerName  string
	logLevel       string
	logFormat      string

	creds   func() credentials       // set by options; a func, because fmt would print the bytes of a field
	tlsBase *tls.Config              // set by options; nil for plain text
	files   *certs.Files             // the certificates, nil if no files are named
	key     func() sessionkey.Key    // of the Session that connect returned
	keep    func() (*os.File, error) // its session file, for the guardian; nil without one
	reach   atomic.Pointer[func(error) error]
}

func (c *connection) addFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVarP(&c.servers, "servers", "s", "", "ZooKeeper `servers`, host:port,host:port/chroot (default $"+envServers+")")
	f.DurationVar(&c.sessionTimeout, "session-timeout", 30*time.Second, "session timeout to request from the servers")
	f.DurationVar(&c.connectTimeout, "connect-timeout", 0, "how long to try to reach a server (default: the session timeout)")
	f.StringVar(&c.logLevel, "log-level", "error", "log level of the ZooKeeper session on stderr: error, warn, info or debug")
	_ = cmd.RegisterFlagCompletionFunc("log-level", cobra.FixedCompletions([]string{"error", "warn", "info", "debug"}, cobra.ShellCompDirectiveNoFileComp))
	completesNothing(cmd, "servers", "session-timeout", "connect-timeout")
	c.addIdentityFlags(cmd)
}

// addIdentityFlags adds the flags of a command that has no ZooKeeper session, too: the credentials,
// TLS, and the format of messages.
func (c *connection) addIdentityFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&c.authFile, "auth-file", "", "`file` with the credentials, user:password (default $"+envAuth+", the credentials themselves)")
	f.StringVar(&c.sasl, "sasl", "", "authenticate by this SASL `mechanism`: digest, which is DIGEST-MD5, or kerberos (default: ZooKeeper's digest scheme, without SASL)")
	f.StringVar(&c.login.Keytab, "keytab", "", "`file` with the key of --principal, for Kerberos (default: the ticket cache of kinit)")
	f.StringVar(&c.login.Principal, "principal", "", "the principal with the key in the keytab: `name`@REALM")
	f.StringVar(&c.login.Config, "krb5-conf", "", "`file` of Kerberos's settings (default $KRB5_CONFIG, or /etc/krb5.conf)")
	f.BoolVar(&c.login.HostAsGiven, "krb5-host-as-given", false, "take the host of the servers' Kerberos name from --servers, and not from DNS (default: as set in krb5.conf)")
	f.StringVar(&c.login.ServerPrincipal, "server-principal", "", "the servers' Kerberos `name` (default: zookeeper/_HOST, where _HOST is the host's name)")
	f.BoolVar(&c.tls, "tls", false, "connect over TLS; the other --tls flags imply it")
	f.StringVar(&c.tlsCA, "tls-ca", "", "`file` with the PEM certificates to trust instead of the system's")
	f.StringVar(&c.tlsCert, "tls-cert", "", "`file` with the client's PEM certificate")
	f.StringVar(&c.tlsKey, "tls-key", "", "`file` with the client's PEM key")
	f.StringVar(&c.tlsServerName, "tls-server-name", "", "`name` that the servers' certificates must have (default: the host's name in --servers)")
	f.StringVar(&c.logFormat, "log-format", logText, "format of zklock's and the ZooKeeper session's lines on stderr: text, or json, one object per line")
	_ = cmd.RegisterFlagCompletionFunc("log-format", cobra.FixedCompletions([]string{logText, logJSON}, cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.RegisterFlagCompletionFunc("sasl", cobra.FixedCompletions([]string{saslDigest, saslKerberos}, cobra.ShellCompDirectiveNoFileComp))
	completesNothing(cmd, "principal", "server-principal", "tls-server-name")
}

// completesNothing keeps the shell from completing the values of flags, by default to files.
func completesNothing(cmd *cobra.Command, flags ...string) {
	for _, flag := range flags {
		_ = cmd.RegisterFlagCompletionFunc(flag, cobra.NoFileCompletions)
	}
}

// options checks the flags and turns them into options for Connect. All its errors are usage
// errors.
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
	// A run has its own guardian, which first ends the processes that COMMAND left.
	opts := []zklock.Option{zklock.WithSessionTimeout(c.sessionTimeout), zklock.WithLogger(slog.New(lines)), zklock.WithGuard("")}
	identity, err := c.identity()
	return append(opts, identity...), err
}

// identity checks the flags of addIdentityFlags, like options.
func (c *connection) identity() ([]zklock.Option, error) {
	creds, err := c.credentials()
	if err != nil {
		return nil, &exitError{exitUsage, err}
	}
	c.creds = func() credentials { return creds }
	overTLS, err := c.tlsOptions()
	if err != nil {
		return nil, &exitError{exitUsage, err}
	}
	return append(creds.options(), overTLS...), nil
}

func (c *connection) connect(ctx context.Context, opts []zklock.Option) (*zklock.Session, error) {
	cctx, cancel := context.WithTimeoutCause(ctx, c.connectTimeout, errNoServer{c.connectTimeout})
	defer cancel()
	hooks := hook.Session{Key: &c.key, File: &c.keep, Unreached: func(f func(error) error) { c.reach.Store(&f) }}
	s, err := zklock.Connect(hook.With(cctx, hooks), c.servers, opts...)
	if err != nil {
		return nil, classify(err)
	}
	return s, nil
}

// unreached adds to an error the result of the last attempt at each server, unless one has accepted
// the session.
func (c *connection) unreached(err error) error {
	if f := c.reach.Load(); f != nil {
		return (*f)(err)
	}
	return err
}

// errNoServer is the cause if connecting took too long.
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
		return &exitError{exitUsage, trimmed{fmt.Sprintf("the chroot %s of --servers does not exist: create it", chrootOf(e.Path)), err}}
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
	case refused(err), errors.Is(err, zklock.ErrNoChroot): // after Connect, the chroot was deleted
		code = exitRefused
	}
	return &exitError{code, trim(err)}
}

// refused reports whether a server has rejected the request: with one of the ZooKeeper client's
// errors, or with a code for which the client has none, such as the code of an exceeded quota.
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

// flagOf replaces the library's options, which its errors name, by the command's flags.
var flagOf = strings.NewReplacer("WithSessionTimeout", "--session-timeout", "QuorumLease", "--leader-ping",
	"SingleServerLease()", "--lease single", "WithDigest", "--auth-file", "DigestMD5Func", "--auth-file", "DigestMD5", "--auth-file", "another Connect with WithCreateChroot", "another run with --create-chroot")

// trim removes our package's name from the beginning of a message, because the command's own name
// is there already, and replaces options by flags.
func trim(err error) error {
	for _, name := range []string{"zklock: ", "zktest: "} {
		if s, ok := strings.CutPrefix(err.Error(), name); ok {
			return trimmed{flagOf.Replace(s), err}
		}
	}
	return err
}

// trimmed is an error with another text.
type trimmed struct {
	s   string
	err error
}

func (t trimmed) Error() string { return t.s }
func (t trimmed) Unwrap() error { return t.err }

func none(c *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("%s takes no argument: leave out %q", c.CommandPath(), args[0])
	}
	return nil
}

// one accepts one argument, which its error describes.
func one(what string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) != 1 {
			return fmt.Errorf("%d arguments instead of one: give %s", len(args), what)
		}
		return nil
	}
}
