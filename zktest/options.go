package zktest

import (
	"crypto/tls"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/zklock/zklock/internal/wire"
)

// Option configures a server.
type Option func(*config)

// config is the result of the options; it does not change during the server's life.
type config struct {
	settings       []string // WithConfig's
	tick           time.Duration
	minTimeout     time.Duration // 0: two ticks
	maxTimeout     time.Duration // 0: twenty ticks
	containerCheck time.Duration
	zxid           int64
	snapshot       Snapshot
	clockOffset    time.Duration
	ttl            bool
	superDigest    string
	saslUsers      map[string]string // passwords; nil: no SASL
	saslRequired   bool
	network        *Network // nil: TCP
	addrs          []string // one for each server; empty: any
	syncLimit      int
	seed           uint64
	version        string
	build          string // as the four-letter words report it
	shuffled       bool
	whitelist      []string
	quotas         bool
	maxConns       int // of one client address at one server; 0: no limit
	maxFrame       int // the longest request, in bytes
	sessionless    time.Duration
	tls            *tls.Config
}

// versions lists the supported versions, oldest first.
var versions = []string{"3.8.0", "3.9.3", "3.9.6"}

// builds holds the build text that the releases of these versions return to the four-letter words.
var builds = map[string]string{
	"3.8.0": "5a02a05eddb59aee6ac762f7ea82e92a68eb9c0f, built on 2022-02-25 08:49 UTC",
	"3.9.3": "c26634f34490bb0ea7a09cc51e05ede3b4e320ee, built on 2024-10-17 23:21 UTC",
	"3.9.6": "a355171b081b5b60749db8f19cca1528b0df936f, built on 2026-09-03 19:29 UTC",
}

// since reports whether the server has that version or a later one.
func (c config) since(version string) bool {
	return slices.Index(versions, c.version) >= slices.Index(versions, version)
}

// millis returns the time of nodes that a transaction at t creates or writes.
func (c config) millis(t time.Time) int64 { return t.Add(c.clockOffset).UnixMilli() }

func (c config) fullVersion() string { return c.version + "-" + c.build }

// answers reports whether the server may respond to a four-letter word.
func (c config) answers(word string) bool {
	return word == "srvr" || slices.Contains(c.whitelist, word) || slices.Contains(c.whitelist, "*")
}

func newConfig(opts []Option, servers int) (config, error) {
	cfg := config{
		tick:           2 * time.Second,
		containerCheck: time.Minute,
		syncLimit:      5,
		maxConns:       60,
		maxFrame:       wire.MaxFrame,
		sessionless:    10 * time.Second,
		version:        versions[len(versions)-1],
	}
	for _, opt := range opts {
		opt(&cfg)
	}
	if err := cfg.set(); err != nil {
		return cfg, err
	}
	if cfg.addrs == nil {
		cfg.addrs = make([]string, servers)
	}
	if len(cfg.addrs) != servers {
		return cfg, fmt.Errorf("zktest: %d addresses by WithAddr for %d servers", len(cfg.addrs), servers)
	}
	var built bool
	if cfg.version, cfg.build, built = strings.Cut(cfg.version, "-"); !built {
		cfg.build = builds[cfg.version]
	}
	if !slices.Contains(versions, cfg.version) {
		return cfg, fmt.Errorf("zktest: version %q; it can be one of %q", cfg.version, versions)
	}
	if cfg.saslRequired && cfg.saslUsers == nil {
		return cfg, errNoSASLUsers
	}
	if cfg.minTimeout == 0 {
		cfg.minTimeout = 2 * cfg.tick
	}
	if cfg.maxTimeout == 0 {
		cfg.maxTimeout = 20 * cfg.tick
	}
	if cfg.minTimeout > cfg.maxTimeout {
		return cfg, fmt.Errorf("zktest: minSessionTimeout is %v, and maxSessionTimeout is only %v", cfg.minTimeout, cfg.maxTimeout)
	}
	return cfg, nil
}

// WithZxid sets the zxid that the server starts from; its first transaction gets the next zxid.
func WithZxid(zxid int64) Option { return func(c *config) { c.zxid = zxid } }

// WithSnapshot gives the server the nodes of the snapshot before any client connects, as
// [Server.Restore] does later.
func WithSnapshot(s Snapshot) Option { return func(c *config) { c.snapshot = s } }

// WithClockOffset sets the server's clock ahead of this machine's by d, or behind it if d is
// negative. It affects the times of nodes.
func WithClockOffset(d time.Duration) Option { return func(c *config) { c.clockOffset = d } }

// WithVersion selects ZooKeeper 3.9.6, the default, or 3.9.3, or 3.8.0. In 3.9.3, unlike 3.9.6,
// setWatches sends an event even to a client that may not read the node, and the scheme ip has no
// IPv6. In 3.8.0, in addition, an event has no zxid, exists needs no permission, and a connection
// has only one watch on a path. Text after a hyphen replaces the build that the four-letter words
// return: with "3.8.0-x, built on 01/01/2022 00:00 GMT", the form of ZooKeeper 3.4, go-zookeeper's
// FLWSrvr can parse them.
func WithVersion(version string) Option { return func(c *config) { c.version = version } }

// WithShuffledChildren lists children in a different order each time. Without the option, as on a
// real server, the order remains the same until the children change. With it, code that relies on
// any order fails sooner.
func WithShuffledChildren() Option { return func(c *config) { c.shuffled = true } }

// WithTLS makes the server accept only TLS on its port, as secureClientPort does. With ClientAuth
// and ClientCAs in the config, it accepts only clients with a certificate. It has no ACLs of the
// scheme x509.
func WithTLS(conf *tls.Config) Option { return func(c *config) { c.tls = conf } }

// WithSeed sets the seed that decides about writes in doubt: the writes that the leader of an
// [Ensemble] had received when it lost its majority. The next election finds the first few of them,
// none or all, and the same seed makes the same choices. The default is 0. A client can find out
// whether a write in doubt was executed only by reading.
func WithSeed(seed uint64) Option { return func(c *config) { c.seed = seed } }

// WithNetwork makes the server listen on n instead of TCP, so that it works in a synctest bubble.
func WithNetwork(n *Network) Option { return func(c *config) { c.network = n } }

// WithAddr sets the address to listen on, or one address for each member of an ensemble. The
// default is a free port of 127.0.0.1, or, on a [Network], its next address.
func WithAddr(addrs ...string) Option { return func(c *config) { c.addrs = addrs } }
