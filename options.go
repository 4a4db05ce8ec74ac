package zklock

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/zklock/zklock/internal/certs"
	"github.com/zklock/zklock/internal/dial"
	"github.com/zklock/zklock/internal/guard"
	"github.com/zklock/zklock/internal/lease"
	"github.com/zklock/zklock/internal/queue"
	isasl "github.com/zklock/zklock/internal/sasl"
	"github.com/zklock/zklock/internal/secret"
	"github.com/zklock/zklock/internal/wire"
	"github.com/zklock/zklock/sasl"
)

// A new option is a field of sessionOptions or mutexOptions with its default in new…Options, a rule
// in check whose error names the remedy, and a With… function, whose comment states default, unit
// and cost. The type that it returns decides which functions accept it: LockOption for each recipe,
// otherwise one such as SemaphoreOption, with a line in internal/pages/options_test.go. Test
// default and rejection in options_test.go, and the effect in test/. Add an example with an output
// and a line in CHANGELOG.md, and run scripts/api -update.

// Option configures Connect.
type Option func(*sessionOptions)

type sessionOptions struct {
	timeout       time.Duration
	mode          LeaseMode
	sasl          isasl.Start    // nil for none
	digests       []secret.Bytes // "user:password"
	chrootACL     []wire.ACL     // nil: the chroot is not created
	dial          dial.Config
	tlsFiles      certs.Names // zero: none
	logger        *slog.Logger
	traces        []*Trace
	sessionFile   string        // "" for none
	heartbeat     time.Duration // 0: the default
	maxLockNodes  int
	juteMaxBuffer int    // in bytes
	guard         string // the socket; "": none
	wrong         error  // an option's invalid argument
}

func newSessionOptions(opts []Option) sessionOptions {
	o := sessionOptions{
		timeout:       30 * time.Second,
		mode:          QuorumLease(0),
		logger:        slog.Default(),
		maxLockNodes:  10_000,
		juteMaxBuffer: wire.MaxFrame,
		guard:         os.Getenv(guard.EnvSocket),
		dial:          dial.Config{Lookup: net.DefaultResolver.LookupHost, Connect: new(net.Dialer).DialContext},
	}
	for _, opt := range opts {
		if opt == nil {
			opt = func(o *sessionOptions) { o.wrong = errors.New("nil Option: leave it out") }
		}
		opt(&o)
	}
	o.mode.mode = o.mode.mode.RenewedEvery(o.heartbeat)
	return o
}

func (o *sessionOptions) check() error {
	switch {
	case o.wrong != nil:
		return o.wrong
	case o.timeout < 100*time.Millisecond:
		return fmt.Errorf("WithSessionTimeout: %v is too short; give at least 100ms", o.timeout)
	case o.timeout > 24*24*time.Hour:
		return fmt.Errorf("WithSessionTimeout: %v does not fit the protocol's 32 bits of milliseconds; give at most 576h", o.timeout)
	case o.maxLockNodes < 1:
		return fmt.Errorf("WithMaxLockNodes(%d) allows no lock; give at least 1", o.maxLockNodes)
	case o.logger == nil:
		return errors.New("WithLogger(nil): give slog.New(slog.DiscardHandler) for silence")
	}
	if (o.tlsFiles != certs.Names{}) {
		var err error
		if o.dial.Files, err = certs.Open(o.tlsFiles); err != nil {
			return fmt.Errorf("WithTLSFiles: %w", err)
		}
	}
	return o.mode.mode.Check(o.timeout)
}

// WithHeartbeat renews the lease every d while the Session has a hold; the default is a tenth of
// the session timeout, and at least 250 ms. Each additional second reduces the margin
// (LeaseMode.Margin) by at least a second, and delays by a second the notification of a hold whose
// node was deleted. A shorter d costs requests: see docs/lease.md. If no margin remains, Connect
// returns ErrSessionTimeoutTooShort. It also rejects values below 250 ms or above a day.
func WithHeartbeat(d time.Duration) Option {
	return func(o *sessionOptions) {
		if o.heartbeat = d; d < lease.LeastHeartbeat || d > 24*time.Hour {
			o.wrong = fmt.Errorf("WithHeartbeat(%v): give at least %v and at most 24h, or leave the option out for a tenth of the session timeout", d, lease.LeastHeartbeat)
		}
	}
}

// WithSessionTimeout requests a session timeout; the default is 30 s. The servers limit it, by
// default to 2 to 20 ticks (Stats.SessionTimeout). If they grant less, the Session logs a warning.
func WithSessionTimeout(d time.Duration) Option { return func(o *sessionOptions) { o.timeout = d } }

// WithLease sets the lease mode; the default is QuorumLease(0).
func WithLease(m LeaseMode) Option { return func(o *sessionOptions) { o.mode = m } }

// WithDigest adds a user of ZooKeeper's digest scheme to each connection. If it is given twice, it
// adds both users. ZooKeeper accepts any credentials: operations that need others fail with
// zk.ErrNoAuth. A rejection is ErrAuthFailed, as with WithSASL. Credentials are never logged or
// printed.
func WithDigest(user, password string) Option {
	digest := secret.Of([]byte(user + ":" + password))
	ok := user != "" && password != "" && !strings.Contains(user, ":")
	return func(o *sessionOptions) {
		if o.digests = append(o.digests, digest); !ok {
			o.wrong = errors.New("WithDigest: give a user without a colon, and a password; neither may be empty") // do not quote a password
		}
	}
}

// WithSASL authenticates each connection by SASL; by default a Session does not. ACLs contain the
// user as sasl:USER, which zk.AuthACL includes.
//
// If the server rejects the credentials on the first connection, Connect returns ErrAuthFailed at
// once. Later a rejection is an ERROR in the log, and the Session tries the other servers, with new
// credentials for each connection. Holds last as long as their lease; if all servers reject the
// credentials, the loss also wraps ErrAuthFailed. If a server does not respond in time, or does not
// support the mechanism, the Session tries the next one, after pauses of up to 30 s. The mechanism
// must not call Session.Close.
func WithSASL(mechanism sasl.Mechanism) Option {
	return func(o *sessionOptions) {
		if mechanism == nil {
			o.wrong = errors.New("WithSASL(nil): give sasl.DigestMD5(user, password), or leave the option out")
			return
		}
		if checked, ok := mechanism.(interface{ Check() error }); ok && checked.Check() != nil {
			o.wrong = checked.Check()
		}
		o.sasl = startWith(mechanism)
	}
}

// startWith adapts the mechanism to internal/sasl. No printer finds the secrets in its closure
// (R71).
func startWith(m sasl.Mechanism) isasl.Start {
	return func(ctx context.Context, addr string) (isasl.Exchange, error) {
		var session sasl.Exchange
		begin := isasl.Begin(func(ctx context.Context, addr string) (next isasl.Step, first []byte, err error) {
			session, first, err = m.Authenticate(ctx, addr)
			switch {
			case err != nil:
				return nil, nil, fmt.Errorf("%s: %w", m.Name(), err)
			case session == nil:
				return nil, nil, fmt.Errorf("%s: Authenticate returned neither a session nor an error", m.Name())
			}
			return func(challenge []byte) (bool, []byte, error) {
				done, next, err := session.Challenge(challenge)
				if err != nil {
					err = fmt.Errorf("%s: %w", m.Name(), err)
				}
				return done, next, err
			}, first, nil
		})
		exchange, err := begin.Start(ctx, addr)
		return exchange.Notifying(session), err
	}
}

// WithCreateChroot lets Connect create a missing chroot and its parents, with the given ACL or open
// to all clients.
//
// If the servers lose the chroot later, the Session does not create it again, because the servers
// have lost other holders, too, and new tokens may be lower than earlier ones. Holds are lost, and
// Acquire and Campaign return ErrNoChroot until the chroot exists.
func WithCreateChroot(acl ...zk.ACL) Option {
	if len(acl) == 0 {
		acl = zk.WorldACL(zk.PermAll)
	}
	w := wireACL(acl)
	return func(o *sessionOptions) { o.chrootACL = w }
}

// WithTLS connects over TLS, and verifies the certificate against the connection string's host
// name, or ServerName. The functions of c must not call Session.Close.
func WithTLS(c *tls.Config) Option {
	return func(o *sessionOptions) {
		if o.dial.TLS = c; c == nil {
			o.wrong = errors.New("WithTLS(nil): give &tls.Config{} to trust this machine's authorities, or leave the option out to connect in plain text")
		}
	}
}

// WithTLSFiles connects over TLS with PEM files, which each dial reads again if they have changed.
// ca has the trusted authorities, "" for the system's; cert and key are the client's certificate,
// "" for none. The certificate may be an identity in ACLs ([WithACL]). WithTLS may add settings,
// such as ServerName. Connect returns an error if a file cannot be read. Later such an error is
// logged, and the last valid files remain in use. Reads must not block, because dials wait for
// them.
func WithTLSFiles(ca, cert, key string) Option {
	names := certs.Names{CA: ca, Cert: cert, Key: key}
	return func(o *sessionOptions) {
		if err := names.Check(); err != nil {
			o.wrong = fmt.Errorf("WithTLSFiles: %w", err)
		}
		o.tlsFiles = names
	}
}

// WithDialer replaces name resolution and net.Dialer. d gets host names, must return within the
// given timeout, and may be called concurrently, also during Close. TLS runs over its connections.
// Neither d nor its connections may call Session.Close, which waits for them: call go s.Close().
func WithDialer(d zk.Dialer) Option {
	return func(o *sessionOptions) {
		if o.dial.Dialer = d; d == nil {
			o.wrong = errors.New("WithDialer(nil): leave the option out for the default")
		}
	}
}

// WithLogger sets the log; the default is slog.Default(). docs/operating.md explains each line. The
// handler may block or panic without delaying a lock.
func WithLogger(l *slog.Logger) Option { return func(o *sessionOptions) { o.logger = l } }

// WithTrace adds a Trace, which must not change afterwards. Several Traces are called in the order
// of the options, each AcquireStart with the context that the previous one returned.
func WithTrace(t *Trace) Option {
	return func(o *sessionOptions) {
		if o.traces = append(o.traces, t); t == nil {
			o.wrong = errors.New("WithTrace(nil): leave the option out")
		}
	}
}

// WithGuard connects the Session to a guard (zklock guard), which ends the ZooKeeper session when
// this process has died, so others need not wait for the session timeout. socket is the path of the
// guard's Unix socket; the default is $ZKLOCK_GUARD, and "" is none. The guard must run on the same
// Linux host, under the same user.
//
// The Session waits at most 100 ms for the guard, and tries to connect every second
// (Stats.Guarded). Children of this process that continue its work lose the lock with it: run them
// under zklock run.
func WithGuard(socket string) Option { return func(o *sessionOptions) { o.guard = socket } }

// WithMaxLockNodes limits a Session's lock nodes, waiting and held. Beyond the limit, Acquire
// returns ErrTooManyLockNodes. The default is 10,000, because the end of a session with 13,000
// ephemerals can bring an ensemble down (ZOOKEEPER-4306).
func WithMaxLockNodes(n int) Option { return func(o *sessionOptions) { o.maxLockNodes = n } }

// WithJuteMaxBuffer declares the servers' smallest jute.maxbuffer, in bytes; the default is
// 1,048,575. A longer request, for many permits (some 8,000) or long data, is rejected with a final
// error before it is sent. A server with a smaller limit closes the connection.
func WithJuteMaxBuffer(bytes int) Option {
	return func(o *sessionOptions) {
		if o.juteMaxBuffer = bytes; bytes < 4<<10 || bytes > math.MaxInt32 {
			o.wrong = fmt.Errorf("WithJuteMaxBuffer(%d): give what the servers have, in bytes, at least 4096", bytes)
		}
	}
}

// LockOption configures a lock of any recipe. An option for fewer recipes has a narrower type, such
// as [SemaphoreOption].
type LockOption interface {
	MutexOption
	RWMutexOption
	SemaphoreOption
	ElectionOption
}

// MutexOption configures NewMutex: a [LockOption], [WithLockDelay], [WithKeptRuns] or
// [WithMinHold].
type MutexOption interface {
	option
	forMutex()
}

// RWMutexOption configures NewRWMutex: a [LockOption] or [WithKeptRuns].
type RWMutexOption interface {
	option
	forRWMutex()
}

// SemaphoreOption configures NewSemaphore: a [LockOption] or [WithSharedLimit].
type SemaphoreOption interface {
	option
	forSemaphore()
}

// ElectionOption configures NewElection: a [LockOption], [WithLockDelay] or [WithLatchNodes].
type ElectionOption interface {
	option
	forElection()
}

// MutexOrRWMutexOption configures NewMutex or NewRWMutex.
type MutexOrRWMutexOption interface {
	MutexOption
	RWMutexOption
}

// MutexOrElectionOption configures NewMutex or NewElection.
type MutexOrElectionOption interface {
	MutexOption
	ElectionOption
}

// option is the common part of the options of all recipes.
type option interface{ apply(*lockOptions) }

// lockOption implements each option. The type that a With function returns decides which New
// functions take it.
type lockOption func(*lockOptions)

func (f lockOption) apply(o *lockOptions) { f(o) }
func (lockOption) forMutex()              {}
func (lockOption) forRWMutex()            {}
func (lockOption) forSemaphore()          {}
func (lockOption) forElection()           {}

func newLockOptions[O option](opts []O) lockOptions {
	o := lockOptions{data: defaultData(), acl: wireACL(zk.WorldACL(zk.PermAll)), name: queue.MutexName, keptRuns: 100}
	for _, opt := range opts {
		if any(opt) == nil {
			o.wrong = errors.New("nil option: leave it out")
			continue
		}
		opt.apply(&o)
	}
	return o
}

func (o *lockOptions) check() error {
	if o.wrong != nil {
		return o.wrong
	}
	if len(o.acl) == 0 {
		return errors.New("WithACL: the ACL is empty, so no client could use the lock")
	}
	if o.delay > 0 && o.container {
		return errors.New("WithLockDelay and WithContainer: the servers remove an empty container, and the delay with it: leave one of them out")
	}
	if len(o.data) > 512<<10 {
		return fmt.Errorf("WithData: %d bytes; give at most 512 KiB", len(o.data))
	}
	return nil
}

// defaultData is "host:pid", for `zklock ls` and its readers.
func defaultData() []byte {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return []byte(host + ":" + strconv.Itoa(os.Getpid()))
}

// WithContainer creates the lock root and its missing parents as containers, so a lock for each
// order leaves no nodes. The release of a mutex deletes the root that its acquire has created, even
// if the root's ACL was changed, unless another node is in it. The servers remove all other empty
// containers: they look once a minute, and remove 126 a second. By default, and before ZooKeeper
// 3.5.3, the nodes are persistent.
//
// Existing nodes do not change. So if a node must remain, such as a folder with its own ACL, create
// it before. After Semaphore.SetLimit, the limit's node (WithSharedLimit) and its parents remain.
// kazoo's Lock creates its root only once, so it must not share the path.
func WithContainer() LockOption {
	return lockOption(func(o *lockOptions) { o.container = true })
}

// WithACL sets the ACL of lock nodes, and of roots and parents that are created; the default is
// world:anyone with all permissions. The process needs READ on the root and its nodes, and CREATE
// and DELETE on the root. A hold without READ on its node is lost at the first heartbeat. Every
// client with DELETE on the lock root can break the lock.
//
// zk.DigestACL(zk.PermAll, user, password) admits the user of [WithDigest] alone. zk.AuthACL admits
// each identity of this Session, and one suffices: its users, and its client certificate.
func WithACL(acl []zk.ACL) LockOption {
	return lockOption(func(o *lockOptions) { o.acl = wireACL(acl) })
}

// WithData sets the data of the lock nodes; the default is "host:pid".
func WithData(data []byte) LockOption {
	return lockOption(func(o *lockOptions) { o.data = slices.Clone(data) })
}

// WithName names the lock in traces and metrics; the default is its path. Give all locks of a kind
// the same name.
func WithName(name string) LockOption {
	return lockOption(func(o *lockOptions) { o.label = name })
}

// WithRevocation calls f, on its own goroutine and at most once for each hold, when a client
// requests the lock with Session.Revoke or Curator's Revoker. f should end the work, then release
// the hold; if it panics, the hold continues. The option costs two requests for each acquire
// without re-entry, and for each permit.
func WithRevocation(f func(*Hold)) LockOption {
	return lockOption(func(o *lockOptions) {
		if o.revoke = f; f == nil {
			o.wrong = errors.New("WithRevocation(nil): give the function to call, or leave the option out")
		}
	})
}

// WithMinHold keeps the lock node for at least d after the grant, even if the lock is released
// earlier. So a short job that several hosts start by their own clocks is not repeated: d must
// exceed the difference of the clocks, and be shorter than the interval between runs. Use it with
// TryDo. For runs with names, such as days, see [Mutex.Once].
//
// After Release, Held is false and the owner waits behind the node, but other clients, Hold.Checks
// and CheckSequencer still find a holder. The node is deleted before d if another client deletes
// it, if the Session is closed, or if the ZooKeeper session ends, for example with the lease of
// another hold. So the process must not exit before d.
func WithMinHold(d time.Duration) MutexOption {
	return lockOption(func(o *lockOptions) {
		if o.minHold = d; d <= 0 || d > 365*24*time.Hour {
			o.wrong = fmt.Errorf("WithMinHold(%v): give how long the node stays after a grant, a year at most, or leave the option out", d)
		}
	})
}

// DoOption configures one call of Do.
type DoOption func(*doOptions)

type doOptions struct {
	wait  time.Duration
	async bool
}

// newDoOptions also checks that Do has work.
func newDoOptions(opts []DoOption, hasWork bool) (doOptions, error) {
	o := doOptions{wait: forever}
	for _, opt := range opts {
		if opt == nil {
			return o, errors.New("nil DoOption")
		}
		opt(&o)
	}
	if o.wait < 0 {
		return o, fmt.Errorf("WaitAtMost(%v): give 0 for a try, or how long to wait", o.wait)
	}
	if !hasWork {
		return o, errors.New("nil function: give Do the work")
	}
	return o, nil
}

// WaitAtMost limits how long Do waits for the lock. It does not limit the work, and 0 is a try. The
// default is no limit. Within half a second after d, Do returns ErrNotAcquired if the Session is
// connected and a client is ahead, and otherwise ErrNotConnected.
func WaitAtMost(d time.Duration) DoOption { return func(o *doOptions) { o.wait = d } }

// AsyncRelease makes Do release the lock as [Hold.ReleaseAsync] does. [Mutex.Once] rejects it,
// because its caller has to learn of a loss.
func AsyncRelease() DoOption { return func(o *doOptions) { o.async = true } }

func wireACL(acl []zk.ACL) []wire.ACL {
	w := make([]wire.ACL, len(acl))
	for i, a := range acl {
		w[i] = wire.ACL{Perms: a.Perms, ID: wire.ID{Scheme: a.Scheme, ID: a.ID}}
	}
	return w
}
