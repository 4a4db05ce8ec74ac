package zklock

import (
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
	"github.com/zklock/zklock/internal/lease"
	"github.com/zklock/zklock/internal/queue"
	"github.com/zklock/zklock/internal/sasl"
	"github.com/zklock/zklock/internal/secret"
	"github.com/zklock/zklock/internal/wire"
)

// Option configures Connect.
type Option func(*sessionOptions)

type sessionOptions struct {
	timeout       time.Duration
	mode          LeaseMode
	sasl          sasl.Start     // nil for none
	digests       []secret.Bytes // "user:password"
	chrootACL     []zk.ACL       // nil: the chroot is not made
	dial          dial.Config
	tlsFiles      certs.Names // zero: none
	logger        *slog.Logger
	traces        []*Trace
	heartbeat     time.Duration // 0: the default
	maxLockNodes  int
	juteMaxBuffer int   // in bytes
	wrong         error // what an option was given that it cannot take
}

func newSessionOptions(opts []Option) sessionOptions {
	o := sessionOptions{
		timeout:       30 * time.Second,
		mode:          QuorumLease(0),
		logger:        slog.Default(),
		maxLockNodes:  10_000,
		juteMaxBuffer: wire.MaxFrame,
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
		return fmt.Errorf("WithMaxLockNodes(%d) lets nobody acquire; give at least 1", o.maxLockNodes)
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

// WithHeartbeat has the Session renew its lease every d while it holds something; the default is a
// tenth of the session timeout, and at least 250 ms. A longer d asks less of the servers, and every
// second that it adds is a second less room (LeaseMargin): an outage that ends a hold is shorter by
// that. From a sixth of the session timeout on, a quorum lease loses three seconds for each. A hold
// is also notified that much later when somebody deletes its node. A shorter d gives room, and asks
// more. Connect refuses a d that leaves no room, with ErrSessionTimeoutTooShort, and one of less
// than 250 ms or more than a day. docs/lease.md has the requests a second of a fleet.
//
// Waiting Sessions ask less often with a longer d as well, down to once in a sixth of the session timeout, but no more often with a shorter one.
// What this documentation counts in heartbeats otherwise, such as when a try gives up or a silent server is left, stays as it is by default.
func WithHeartbeat(d time.Duration) Option {
	return func(o *sessionOptions) {
		if o.heartbeat = d; d < lease.LeastHeartbeat || d > 24*time.Hour {
			o.wrong = fmt.Errorf("WithHeartbeat(%v): give at least %v and at most 24h, or leave the option out for a tenth of the session timeout", d, lease.LeastHeartbeat)
		}
	}
}

// WithSessionTimeout asks the servers for a session timeout; the default is 30 s. The servers clamp it, by
// default to between 2 and 20 ticks. What they grant counts: Session.Timeout returns it.
func WithSessionTimeout(d time.Duration) Option { return func(o *sessionOptions) { o.timeout = d } }

// WithLease chooses the lease mode; the default is QuorumLease(0).
func WithLease(m LeaseMode) Option { return func(o *sessionOptions) { o.mode = m } }

// WithDigest adds a user and a password of ZooKeeper's digest scheme, and sends them first on every
// connection. Given twice, the Session is both users. ZooKeeper does not check them by themselves:
// an operation that needs the right ones fails with zk.ErrNoAuth. A server that rejects them is
// ErrAuthFailed, as with WithSASL. No error, no log line and no printed value of this package shows
// them.
func WithDigest(user, password string) Option {
	digest := secret.Of([]byte(user + ":" + password))
	ok := user != "" && password != "" && !strings.Contains(user, ":")
	return func(o *sessionOptions) {
		if o.digests = append(o.digests, digest); !ok {
			o.wrong = errors.New("WithDigest: give a user without a colon, and a password; neither may be empty") // do not quote a password
		}
	}
}

// WithCreateChroot has Connect make the chroot of the connection string, and the nodes above it, if they are not there: with
// the ACL that is given, or else open to everybody. Without it, Connect returns ErrNoChroot.
//
// The Session does not make the chroot a second time. If the servers lose it, because somebody deleted it or they were started empty,
// holds below it are lost, and Acquire and Campaign return ErrNoChroot until it is there again: servers that have lost data have also
// forgotten who holds, and their tokens may begin again lower. The next Connect with the option makes it.
func WithCreateChroot(acl ...zk.ACL) Option {
	if len(acl) == 0 {
		acl = zk.WorldACL(zk.PermAll)
	}
	acl = slices.Clone(acl)
	return func(o *sessionOptions) { o.chrootACL = acl }
}

// WithTLS connects over TLS. It verifies the certificate against the host name of the connection string, also after the
// name was resolved again; set ServerName to verify another name. The functions of c must not call
// Session.Close (see WithDialer).
func WithTLS(c *tls.Config) Option {
	return func(o *sessionOptions) {
		if o.dial.TLS = c; c == nil {
			o.wrong = errors.New("WithTLS(nil): give &tls.Config{} to trust this machine's authorities, or leave the option out to connect in plain text")
		}
	}
}

// WithTLSFiles connects over TLS with certificates that are renewed: the files, in PEM, are read at each dial if they have changed. ca has
// the authorities to trust, "" for this machine's; cert and key are our own certificate, both "" for none. All else is as WithTLS says, if
// that is given too: ServerName, say. Connect returns an error if a file cannot be read. Later a file that is missing or half
// written is logged, and the last good ones go on. The files must not lie where reading can hang: a dial waits for it.
//
// A connection outlives the certificate that it was made with. A certificate that is refused is logged once, and the Session tries on: see
// ErrCertificate.
func WithTLSFiles(ca, cert, key string) Option {
	names := certs.Names{CA: ca, Cert: cert, Key: key}
	return func(o *sessionOptions) {
		if err := names.Check(); err != nil {
			o.wrong = fmt.Errorf("WithTLSFiles: %w", err)
		}
		o.tlsFiles = names
	}
}

// WithDialer replaces the look-up of names and net.Dialer. The dialer gets host names, not
// addresses, and must return within the timeout it is given. It may be called from several
// goroutines at a time, and once more by Close. With WithTLS, the TLS handshake runs over the
// connection that it returns. Neither the dialer nor a method of its connections may call
// Session.Close, because Close waits for them: call go s.Close().
func WithDialer(d zk.Dialer) Option {
	return func(o *sessionOptions) {
		if o.dial.Dialer = d; d == nil {
			o.wrong = errors.New("WithDialer(nil): leave the option out for the default")
		}
	}
}

// WithLogger sets where the Session logs; the default is slog.Default(). Losses are warnings,
// connection changes and long waits are informational, and the ZooKeeper client's own lines have
// debug level. docs/operating.md explains each line. The handler may block or panic: neither holds
// up a lock. A record with which it panics is written to stderr, after the panic.
func WithLogger(l *slog.Logger) Option { return func(o *sessionOptions) { o.logger = l } }

// WithTrace has the Session call the functions of t, which must not change any more. Given more than once, each is called, in that order, and
// the context that one AcquireStart returns is what the next one is given.
func WithTrace(t *Trace) Option {
	return func(o *sessionOptions) {
		if o.traces = append(o.traces, t); t == nil {
			o.wrong = errors.New("WithTrace(nil): leave the option out")
		}
	}
}

// WithMaxLockNodes caps how many lock nodes, waiting and held, one Session has at a time. Beyond the cap, Acquire returns
// ErrTooManyWaiters. A writer that reads, too, has two nodes, from its first read on until it has released both. The default is 10,000:
// closing a session with some 13,000 long-named ephemerals can bring an ensemble down (ZOOKEEPER-4306).
func WithMaxLockNodes(n int) Option { return func(o *sessionOptions) { o.maxLockNodes = n } }

// WithJuteMaxBuffer says up to how many bytes the servers read of a request, where their jute.maxbuffer is not the default, 1,048,575: give the
// smallest among them. A longer request is refused before it is sent, with an error for which IsFinal is true; only many permits in one
// hold, or long data, make such. Servers that read less than this close the connection, as Acquire says. The option changes nothing at
// the servers.
func WithJuteMaxBuffer(bytes int) Option {
	return func(o *sessionOptions) {
		if o.juteMaxBuffer = bytes; bytes < 4<<10 || bytes > math.MaxInt32 {
			o.wrong = fmt.Errorf("WithJuteMaxBuffer(%d): give what the servers have, in bytes, at least 4096", bytes)
		}
	}
}

// LockOption configures a lock of any recipe: NewMutex, NewRWMutex, NewSemaphore and NewElection take
// it. An option that not all of them take has a narrower type, such as [SemaphoreOption], and does not
// compile elsewhere. A nil option is an error of the New function.
type LockOption interface {
	MutexOption
	RWMutexOption
	SemaphoreOption
	ElectionOption
}

// MutexOption configures NewMutex: a [LockOption], [WithoutReentry], [WithLockDelay], [WithKeptRuns] or
// [WithMinHold].
type MutexOption interface {
	option
	forMutex()
}

// RWMutexOption configures NewRWMutex: a [LockOption], [WithoutReentry] or [WithKeptRuns].
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

// option is the part that the options of all recipes have in common.
type option interface{ apply(*lockOptions) }

// lockOption is behind each option. The type that a With function returns decides which New
// functions take it.
type lockOption func(*lockOptions)

func (f lockOption) apply(o *lockOptions) { f(o) }
func (lockOption) forMutex()              {}
func (lockOption) forRWMutex()            {}
func (lockOption) forSemaphore()          {}
func (lockOption) forElection()           {}

type lockOptions struct {
	nodeOptions
	container bool
	acl       []zk.ACL
	name      string // of the nodes
	label     string
	limit     string // the node that has a semaphore's limit
	delay     time.Duration
	keptRuns  int // of Once's marks; 0: the default
	noReentry bool
	wrong     error // what an option was given that it cannot take
}

func newLockOptions[O option](opts []O) lockOptions {
	o := lockOptions{nodeOptions: nodeOptions{data: defaultData()}, acl: zk.WorldACL(zk.PermAll), name: queue.MutexName}
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
		return errors.New("WithACL: the ACL is empty, and nobody could use the lock")
	}
	if o.delay > 0 && o.container {
		return errors.New("WithLockDelay and WithContainer: the servers remove an empty container, and the delay with it: leave one of them out")
	}
	if len(o.data) > 512<<10 {
		return fmt.Errorf("WithData: %d bytes; give at most 512 KiB", len(o.data))
	}
	return nil
}

// defaultData is "host:pid", for `zklock ls` and the person who reads it.
func defaultData() []byte {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return []byte(host + ":" + strconv.Itoa(os.Getpid()))
}

// WithContainer creates the lock root and its missing parents as containers, so a lock for each
// order leaves nothing behind: the servers remove a container that has had children and has none.
// They look once a minute, so a parent is removed a minute after its last child. By default, and on
// servers before 3.5.3, these nodes are persistent.
//
// Nodes that exist already stay as they are. So create a node that has to stay beforehand: a folder
// with an ACL of its own, or the chroot of another client. The first acquire after a removal takes
// up to two more round trips, and up to four for a semaphore; tokens still grow. Up to ZooKeeper
// 3.9, a container that never had a child stays. A crash between two requests can leave one, and so
// can a call that gives up just as its connection is lost.
//
// With WithSharedLimit, acquires create no node for the limit: until a client sets one, each client
// uses the number that it gave to NewSemaphore. The node of a limit that was set stays, with the
// nodes above it, until it is deleted.
func WithContainer() LockOption {
	return lockOption(func(o *lockOptions) { o.container = true })
}

// WithACL sets the ACL of the lock nodes, of the lock root, and of parents that are created. The
// default is world:anyone with all permissions. The ACL must give the process READ, and CREATE and
// DELETE on the lock root. Without READ on its node, a hold cannot be confirmed: it ends with
// ErrLost at its first heartbeat, while the Session's other holds continue. Every client that may
// DELETE on the lock root can break the lock.
func WithACL(acl []zk.ACL) LockOption {
	return lockOption(func(o *lockOptions) { o.acl = slices.Clone(acl) })
}

// WithData sets the data of the lock nodes; the default is "host:pid".
func WithData(data []byte) LockOption {
	return lockOption(func(o *lockOptions) { o.data = slices.Clone(data) })
}

// WithName names the lock in traces and metrics. The default is its path. If paths contain ids, as
// /orders/4711 does, give locks of one kind one name, because metrics need few names.
func WithName(name string) LockOption {
	return lockOption(func(o *lockOptions) { o.label = name })
}

// WithRevocation calls f, at most once a hold, when a client asks for the lock with Session.Revoke or with
// Curator's Revoker. f runs on a goroutine of its own. To give way, f ends the work and releases
// the hold. If f panics, the panic is logged, and the hold lasts until it is released or lost. Read
// locks under one write hold share a node, but a request to one of them is not repeated to the
// next. The option costs two requests for each acquire that is not a re-entry, and for each permit
// of a semaphore.
func WithRevocation(f func(*Hold)) LockOption {
	return lockOption(func(o *lockOptions) {
		if o.revoke = f; f == nil {
			o.wrong = errors.New("WithRevocation(nil): give the function to call, or leave the option out")
		}
	})
}

// WithMinHold keeps the lock node for at least d after the grant, also if the lock is released
// before. It is for jobs of milliseconds that several hosts start by their own clocks: without it,
// a host whose clock is behind by more than the job takes runs the job once more. Give a d that is
// longer than the clocks may differ and shorter than the time between two runs, and call TryDo. For
// runs that have a name, such as a day, see [Mutex.Once].
//
// Release returns as soon as the servers have confirmed that the node exists. From then on the
// Session does not hold the lock: Held is false, and the same owner queues behind the node like
// every other caller. For other clients the node still holds it: Participants shows it, and
// Hold.Check and CheckSequencer find it. The node is not under the lease. But if the Session holds
// something else in an outage, the end of that lease ends the ZooKeeper session, and this node with
// it.
//
// The node is deleted after d, or earlier by another client, by Session.Close or by the end of its
// ZooKeeper session: a process that has to keep other clients out must not end before. If the
// function of Do, Multi.Do or Once was not called, or a Multi did not get another lock, the node is
// deleted at the release.
func WithMinHold(d time.Duration) MutexOption {
	return lockOption(func(o *lockOptions) {
		if o.minHold = d; d <= 0 || d > 365*24*time.Hour {
			o.wrong = fmt.Errorf("WithMinHold(%v): give how long the node stays after a grant, a year at most, or leave the option out", d)
		}
	})
}

// DoOption configures one call of Do.
type DoOption func(*doOptions)

type doOptions struct{ wait time.Duration }

func newDoOptions(opts []DoOption) (doOptions, error) {
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
	return o, nil
}

// WaitAtMost bounds how long Do waits for the lock, and not the work. 0 is a try, as TryAcquire
// makes it. By default Do waits as long as its context lasts. When d is over, Do returns within
// half a second: ErrNotAcquired if a client was ahead by the last report of a server, and
// ErrNotConnected if no server can be reached, or none has reported a client ahead.
func WaitAtMost(d time.Duration) DoOption { return func(o *doOptions) { o.wait = d } }

// WithoutReentry makes a call fail at once if its context carries a hold of this lock, or an owner
// that holds it: with an error for which IsFinal is true, because the call would wait for itself.
// By default the call re-enters that hold, so goroutines that share a context do not exclude each
// other. A writer may still read, because its read lock is no re-entry. Permits and candidates
// never re-enter, so a Semaphore or an Election does not take the option.
func WithoutReentry() interface {
	MutexOption
	RWMutexOption
} {
	return lockOption(func(o *lockOptions) { o.noReentry = true })
}
