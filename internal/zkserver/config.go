package zkserver

// The configuration of a server, and its zoo.cfg: pure.

import (
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Config describes how to run a server. The zero value suits tests: a tick of 500 ms, session
// timeouts from 1 s to 60 s, and a data directory that is deleted with the server.
type Config struct {
	TickTime          time.Duration     // 500 ms when zero
	MinSessionTimeout time.Duration     // two ticks when zero
	MaxSessionTimeout time.Duration     // 60 s when zero
	InitLimit         int               // in ticks; 20 when zero
	SyncLimit         int               // in ticks; 5 when zero
	Lines             []string          // further lines of zoo.cfg; a later line wins over an earlier one
	Properties        map[string]string // Java system properties
	SASLUsers         map[string]string // passwords for DIGEST-MD5; no SASL when empty
	DataDir           string            // kept after Close; a temporary directory when empty
	StartTimeout      time.Duration     // two minutes when zero
	Hosts             []Host            // the host of each server; 127.0.0.1 with separate ports when empty
}

// Host is a network host for one server, for example a network namespace. Its servers use
// ZooKeeper's usual ports.
type Host struct {
	IP      string
	Command []string // prefix of the server's command line
	Dial    func(network, addr string, timeout time.Duration) (net.Conn, error)
	Lines   []string // further lines of this server's zoo.cfg
}

// NewConfig returns the configuration that the options describe.
func NewConfig(opts ...Option) Config {
	var c Config
	for _, o := range opts {
		o(&c)
	}
	return c
}

// Option changes a Config.
type Option func(*Config)

// Own requests a server of the test's own, with the default configuration. The test may stop, kill
// and pause it.
func Own() Option { return func(*Config) {} }

// TickTime sets the tick, ZooKeeper's unit of time.
func TickTime(d time.Duration) Option { return func(c *Config) { c.TickTime = d } }

// SessionTimeouts sets the range to which the server limits session timeouts.
func SessionTimeouts(lo, hi time.Duration) Option {
	return func(c *Config) { c.MinSessionTimeout, c.MaxSessionTimeout = lo, hi }
}

// InitLimit sets how many ticks a follower may take to connect and sync to the leader.
func InitLimit(ticks int) Option { return func(c *Config) { c.InitLimit = ticks } }

// SyncLimit sets for how many ticks a follower and its leader may receive nothing from each other.
func SyncLimit(ticks int) Option { return func(c *Config) { c.SyncLimit = ticks } }

// Line adds a line to zoo.cfg.
func Line(line string) Option { return func(c *Config) { c.Lines = append(c.Lines, line) } }

// Property sets a Java system property.
func Property(key, value string) Option {
	return func(c *Config) {
		if c.Properties == nil {
			c.Properties = make(map[string]string)
		}
		c.Properties[key] = value
	}
}

// SASLUsers makes the servers accept SASL with DIGEST-MD5 from these users, with their passwords.
func SASLUsers(passwords map[string]string) Option {
	return func(c *Config) { c.SASLUsers = passwords }
}

// SASLRequired makes the servers reject every request without SASL.
func SASLRequired() Option { return Property("zookeeper.sessionRequireClientSASLAuth", "true") }

// TLS has a server take TLS at addr, besides its own port, from clients with a certificate of the
// authorities in caFile. keyFile has its key and its certificate, as PEM.
func TLS(addr, keyFile, caFile string) Option {
	host, port, _ := net.SplitHostPort(addr)
	return func(c *Config) {
		Property("zookeeper.serverCnxnFactory", "org.apache.zookeeper.server.NettyServerCnxnFactory")(c)
		c.Lines = append(c.Lines, "secureClientPort="+port, "secureClientPortAddress="+host, "ssl.keyStore.location="+keyFile,
			"ssl.trustStore.location="+caFile, "ssl.hostnameVerification=false")
	}
}

// jaas renders the JAAS file with the users.
func (c Config) jaas() string {
	var b strings.Builder
	b.WriteString("Server {\n  org.apache.zookeeper.server.auth.DigestLoginModule required")
	for _, user := range slices.Sorted(maps.Keys(c.SASLUsers)) {
		fmt.Fprintf(&b, "\n  %s=%s", javaQuoted("user_"+user), javaQuoted(c.SASLUsers[user]))
	}
	b.WriteString(";\n};\n")
	return b.String()
}

func javaQuoted(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s) + `"`
}

// DataDir makes the server keep its data in dir, which Close does not delete. An ensemble's servers
// use dir/1, dir/2 and so on.
func DataDir(dir string) Option { return func(c *Config) { c.DataDir = dir } }

// On runs the servers on the given hosts, the first server on the first host. Each server needs
// one.
func On(hosts ...Host) Option { return func(c *Config) { c.Hosts = hosts } }

// withDefaults replaces zero values by the defaults.
func (c Config) withDefaults() Config {
	if c.TickTime == 0 {
		c.TickTime = 500 * time.Millisecond
	}
	if c.MinSessionTimeout == 0 {
		c.MinSessionTimeout = 2 * c.TickTime
	}
	if c.MaxSessionTimeout == 0 {
		c.MaxSessionTimeout = 60 * time.Second
	}
	if c.InitLimit == 0 {
		c.InitLimit = 20
	}
	if c.SyncLimit == 0 {
		c.SyncLimit = 5
	}
	if c.StartTimeout == 0 {
		c.StartTimeout = 2 * time.Minute // a busy machine needs long to start three JVMs
	}
	return c
}

// member is one server's number, host and ports.
type member struct {
	id                       int
	host                     Host // the zero value is 127.0.0.1
	client, quorum, election int
}

func (m member) ip() string {
	if m.host.IP == "" {
		return "127.0.0.1"
	}
	return m.host.IP
}

func (m member) addr() string { return net.JoinHostPort(m.ip(), strconv.Itoa(m.client)) }

func (m member) dial(addr string) (net.Conn, error) {
	if m.host.Dial == nil {
		return net.DialTimeout("tcp", addr, askTimeout)
	}
	return m.host.Dial("tcp", addr, askTimeout)
}

// zooCfg renders the configuration file of self. An ensemble's file lists all its members; a single
// server's lists none.
func (c Config) zooCfg(self member, all []member, dataDir string) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("tickTime=%d", c.TickTime.Milliseconds())
	line("minSessionTimeout=%d", c.MinSessionTimeout.Milliseconds())
	line("maxSessionTimeout=%d", c.MaxSessionTimeout.Milliseconds())
	line("initLimit=%d", c.InitLimit)
	line("syncLimit=%d", c.SyncLimit)
	// In a properties file a backslash starts an escape, so write a Windows path with slashes.
	line("dataDir=%s", strings.ReplaceAll(dataDir, `\`, "/"))
	line("clientPortAddress=%s", self.ip())
	line("clientPort=%d", self.client)
	line("maxClientCnxns=0")
	line("admin.enableServer=false")
	line("4lw.commands.whitelist=*")
	for _, m := range all {
		line("server.%d=%s:%d:%d", m.id, m.ip(), m.quorum, m.election)
	}
	if len(c.SASLUsers) > 0 {
		line("authProvider.1=org.apache.zookeeper.server.auth.SASLAuthenticationProvider")
	}
	for _, l := range c.Lines {
		line("%s", l)
	}
	for _, l := range self.host.Lines {
		line("%s", l)
	}
	return b.String()
}
