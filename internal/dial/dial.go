// Package dial connects to the servers. It chooses the next server and the pause before it,
// resolves names, recognizes a server that does not speak ZooKeeper's protocol by its first bytes,
// and reports rejected certificates. It promises that each try ends by its deadline, that a lap
// tries each address once, with a pause between servers and between laps, and that a server that
// does not respond costs no hold while other servers do.
//
// It must not depend on ZooKeeper sessions or locks, and it starts goroutines only with the spawn
// function that it is given.
//
// Read dial.go first, then hosts.go, names.go, dialerror.go and refusal.go.
package dial

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/zklock/internal/certs"
	"github.com/zklock/zklock/internal/clock"
	"github.com/zklock/zklock/internal/eventlog"
)

// Config configures the connections.
type Config struct {
	TLS    *tls.Config  // nil for plain text, unless there are files
	Files  *certs.Files // the files of TLS's trusted and own certificates, read again at each dial; nil if TLS has them
	Dialer zk.Dialer    // replaces Lookup and Connect; nil to use these
	Lookup func(ctx context.Context, host string) ([]string, error)
	// Connect connects to one address, as net.Dialer does.
	Connect func(ctx context.Context, network, addr string) (net.Conn, error)
	Log     *eventlog.Log // for reports about certificates
}

func (c Config) overTLS() bool { return c.TLS != nil || c.Files != nil }

// Dialer makes connections to the servers, one try after the other, and keeps the outcome of each
// try.
type Dialer struct {
	how   Config
	hosts *hosts
	spawn func(func()) bool
	ctx   context.Context // ends with the Session: the client cannot interrupt a dial
	stop  context.CancelFunc

	names struct {
		sync.Mutex // never held across a lookup
		byHost     map[string]*hostName
	}
	mu struct {
		sync.Mutex
		tried map[string]error  // by the label of an address, since a server accepted the session
		label map[string]string // by server: the label of the address that was tried last
		said  map[string]error  // by the same label: the rejection that was logged since the last response to a request
	}
}

// New returns a Dialer for the servers at addrs. It must be closed. spawn runs a function on a
// goroutine that its owner waits for, and reports whether it could.
func New(how Config, clk *clock.Clock, addrs []string, spawn func(func()) bool) *Dialer {
	d := &Dialer{how: how, hosts: newHosts(addrs, clk), spawn: spawn}
	d.ctx, d.stop = context.WithCancel(context.Background())
	d.names.byHost = make(map[string]*hostName)
	d.mu.tried, d.mu.label, d.mu.said = make(map[string]error), make(map[string]string), make(map[string]error)
	return d
}

// Hosts returns the client's host provider, which chooses the next server.
func (d *Dialer) Hosts() zk.HostProvider { return d.hosts }

// Forgive begins a new lap, with the server that the client was given last: a server that responds
// "expired" works, so the client should request a new session from it at once.
func (d *Dialer) Forgive() { d.hosts.forgive() }

// Close ends the dials in progress, and makes the client pause before each further one.
func (d *Dialer) Close() {
	d.hosts.close()
	d.stop()
}

// Limit returns how long each step of a try may take in this lap: the lookup of a name whose
// addresses are known from before, the dial, TLS, and the handshake. It is one heartbeat interval,
// doubled in each lap. So an unresponsive server costs a hold little time, whether its machine
// still accepts connections or not, and a slow server is given the time that it needs.
func (d *Dialer) Limit(beat time.Duration) time.Duration { return beat << min(d.hosts.lap(), 10) }

// Dial tries one address of a server that this lap has not tried. It returns the connection to use
// and the underlying one, which closes without delay.
func (d *Dialer) Dial(to To) (tapped, raw net.Conn, err error) {
	ctx, cancel := context.WithDeadline(d.ctx, to.Deadline)
	defer cancel()
	d.Note(to.Addr, notYet("no answer to the dial yet"))
	at, err := d.nextAddress(ctx, to)
	if err != nil {
		d.Note(to.Addr, err)
		return nil, nil, err
	}
	label := d.begin(to.Addr, at)
	c, raw, ours, err := d.dialRaw(ctx, to, at)
	if err != nil {
		d.Note(label, err)
		return nil, nil, err
	}
	d.Note(label, notYet("connected, and no answer to the handshake yet: if that lasts, no quorum, or not a ZooKeeper server"))
	return &greeting{Conn: c, overTLS: d.how.overTLS(), ours: ours, tell: func(err error) { d.Note(label, err) }}, raw, nil
}

// Until returns a context that ends at the deadline, and with the Dialer.
func (d *Dialer) Until(deadline time.Time) (context.Context, context.CancelFunc) {
	return context.WithDeadline(d.ctx, deadline)
}

// Addresses returns the addresses of a server in random order, also after Close. While the name
// server does not respond, it returns older ones after half of the time until ctx ends.
func (d *Dialer) Addresses(ctx context.Context, server string) ([]string, error) {
	deadline, _ := ctx.Deadline()
	addrs, err := d.addresses(ctx, server, time.Until(deadline)/2)
	rand.Shuffle(len(addrs), func(i, j int) { addrs[i], addrs[j] = addrs[j], addrs[i] })
	return addrs, err
}

// Once connects to one address of a server until ctx ends, also after Close. It returns the same as
// Dial, and does not change which server the client tries next.
func (d *Dialer) Once(ctx context.Context, server, at string) (c, raw net.Conn, err error) {
	deadline, _ := ctx.Deadline()
	c, raw, _, err = d.dialRaw(ctx, To{Network: "tcp", Addr: server, Limit: time.Until(deadline)}, at)
	return c, raw, err
}

// To is one try to connect to a server.
type To struct {
	Network, Addr string
	Last          string        // the address of the last connection: each lap tries it last
	Limit         time.Duration // how long each step may take
	Deadline      time.Time     // when all of it must be done
}

// nextAddress returns the address of a server to try next. The addresses are resolved at the
// server's first try in a lap.
func (d *Dialer) nextAddress(ctx context.Context, to To) (string, error) {
	if at := d.hosts.nextUntried(); at != "" {
		return at, nil
	}
	addrs, err := d.addresses(ctx, to.Addr, to.Limit)
	if err != nil {
		return "", err
	}
	d.forgetOthers(to.Addr, addrs)
	d.hosts.setUntried(lastInLine(addrs, to.Last))
	return d.hosts.nextUntried(), nil
}

func (d *Dialer) addresses(ctx context.Context, addr string, patience time.Duration) ([]string, error) {
	if d.how.Dialer != nil {
		return []string{addr}, nil
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	if net.ParseIP(host) != nil {
		return []string{addr}, nil
	}
	found, err := d.resolve(ctx, host, patience)
	var addrs []string
	for _, a := range found {
		addrs = append(addrs, net.JoinHostPort(a, port))
	}
	return addrs, err
}

// dialRaw connects to an address of a server. It returns the connection to use, the underlying one,
// which closes without delay, and the name of our certificate that it presented.
func (d *Dialer) dialRaw(ctx context.Context, to To, at string) (c, raw net.Conn, ours string, err error) {
	deadline, _ := ctx.Deadline()
	limit := min(to.Limit, time.Until(deadline))
	if limit <= 0 { // many dialers treat that as "no limit"
		return nil, nil, "", os.ErrDeadlineExceeded
	}
	if d.how.Dialer != nil {
		raw, err = d.how.Dialer(to.Network, at, limit)
	} else {
		dctx, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		raw, err = d.how.Connect(dctx, to.Network, at)
	}
	// A connection that was accepted, and closed before the dial had returned.
	if errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) {
		err = hungUp(err, d.how.overTLS())
	}
	if err != nil || !d.how.overTLS() {
		return raw, raw, "", err
	}
	ctx, cancel := context.WithTimeout(ctx, to.Limit)
	defer cancel()
	config, ours := d.config(to.Addr)
	tc := tls.Client(raw, config)
	if err := tc.HandshakeContext(ctx); err != nil {
		_ = raw.Close()
		return nil, nil, "", tlsError(err, ours)
	}
	return tc, raw, ours, nil
}

// config returns the TLS configuration for a server, with the certificates as they are now, and the
// name of our own certificate.
func (d *Dialer) config(addr string) (config *tls.Config, ours string) {
	if d.how.Files == nil {
		config = d.how.TLS.Clone()
	} else {
		var news certs.News
		config, news = d.how.Files.Config(d.how.TLS)
		ours = news.Cert
		d.sayFiles(news)
	}
	if config.ServerName == "" {
		config.ServerName, _, _ = net.SplitHostPort(addr)
	}
	return config, ours
}

func lastInLine(addrs []string, last string) []string {
	i := slices.Index(addrs, last)
	if i < 0 {
		return addrs
	}
	return slices.Concat(addrs[:i], addrs[i+1:], addrs[i:i+1])
}

// notYet describes the progress of an unfinished try.
type notYet string

func (n notYet) Error() string { return string(n) }

// label names an address of a server in records and logs.
func label(server, at string) string {
	if ip, _, err := net.SplitHostPort(at); err == nil && at != server {
		return server + " at " + ip
	}
	return server
}

// begin notes that an address of a server is being tried, and returns its label.
func (d *Dialer) begin(server, at string) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mu.label[server] = label(server, at)
	d.noteLocked(d.mu.label[server], notYet("no answer to the dial yet"))
	return d.mu.label[server]
}

// forgetOthers drops the results of tries at addresses that a server no longer has.
func (d *Dialer) forgetOthers(server string, addrs []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	maps.DeleteFunc(d.mu.tried, func(l string, _ error) bool {
		return (l == server || strings.HasPrefix(l, server+" at ")) &&
			!slices.ContainsFunc(addrs, func(at string) bool { return label(server, at) == l })
	})
}

// Note records the result of the last try at a server, or at an address with that label, or its
// progress. Until the try has ended, the result of the previous one at the same address is kept.
func (d *Dialer) Note(server string, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.noteLocked(cmp.Or(d.mu.label[server], server), err)
}

func (d *Dialer) noteLocked(label string, err error) {
	var now, before notYet
	if last := d.mu.tried[label]; last != nil && errors.As(err, &now) && !errors.As(last, &before) {
		return
	}
	d.mu.tried[label] = err
	d.sayRefusedLocked(label, err)
}

// Forget is called when a server has accepted the session.
func (d *Dialer) Forget() {
	d.mu.Lock()
	defer d.mu.Unlock()
	clear(d.mu.tried)
}

// Served is called when a connection has its first response to a request.
func (d *Dialer) Served() {
	d.hosts.served()
	d.mu.Lock()
	defer d.mu.Unlock()
	clear(d.mu.said)
}

// Tried returns the last result at each server. It is for the error of a Connect that found no
// server.
func (d *Dialer) Tried() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var parts []string
	for addr, err := range d.mu.tried {
		parts = append(parts, fmt.Sprintf("%s (%v)", addr, err))
	}
	slices.Sort(parts)
	return strings.Join(parts, ", ")
}
