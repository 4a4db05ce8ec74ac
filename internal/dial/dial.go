// Package dial makes connections to the servers: which server is next and after what pause, what addresses a name has, what a
// stranger's first bytes say, and whose certificate was refused. It promises that each try ends by its deadline, that no server is tried
// without a pause in between, and that a dark server among others costs no hold.
//
// It must not know of ZooKeeper sessions or locks, and it starts goroutines only with the spawn that it is given.
//
// Read dial.go first, then hosts.go, names.go, dialerror.go and refusal.go.
package dial

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
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

// Config is how to connect.
type Config struct {
	TLS    *tls.Config  // nil for plain text, unless there are files
	Files  *certs.Files // what TLS trusts and shows, as it is at each dial; nil if TLS says it
	Dialer zk.Dialer    // replaces the look-up of names and net.Dialer; nil for these
	Lookup func(ctx context.Context, host string) ([]string, error)
	Log    *eventlog.Log // hears of certificates
}

func (c Config) overTLS() bool { return c.TLS != nil || c.Files != nil }

// Dialer makes connections to the servers, one try after the other, and keeps the outcome of each try.
type Dialer struct {
	how   Config
	hosts *hosts
	names names
	spawn func(func()) bool
	ctx   context.Context // ends with the Session: the client cannot break a dial off
	stop  context.CancelFunc

	mu struct {
		sync.Mutex
		tried map[string]error // since a server accepted the session
		said  map[string]error // of those, whose certificate was refused when that was last logged
	}
}

// New returns what dials the servers at addrs. It must be closed. spawn runs a function on a goroutine that somebody waits for, and
// says whether it could.
func New(how Config, clk *clock.Clock, addrs []string, spawn func(func()) bool) *Dialer {
	d := &Dialer{how: how, hosts: newHosts(addrs, clk), spawn: spawn}
	d.ctx, d.stop = context.WithCancel(context.Background())
	d.names.lookup, d.names.ctx, d.names.mu.byHost = how.Lookup, d.ctx, make(map[string]*hostName)
	d.mu.tried, d.mu.said = make(map[string]error), make(map[string]error)
	return d
}

// Hosts returns what tells the client which server is next.
func (d *Dialer) Hosts() zk.HostProvider { return d.hosts }

// Forgive begins a new lap, with the server that the client was given last: it is well, and should be asked for a new session at
// once.
func (d *Dialer) Forgive() { d.hosts.forgive() }

// Close ends the dials under way, and has the client pause before each further one.
func (d *Dialer) Close() {
	d.hosts.close()
	d.stop()
}

// Dial tries a server. It returns the connection to speak over and the one underneath, which closes at once. Each of a server's addresses has a
// heartbeat's time, doubled in each lap: a dark server must not cost a hold while there are others, and a network that is well
// again must be noticed soon.
func (d *Dialer) Dial(to To, beat time.Duration) (tapped, raw net.Conn, err error) {
	to.lap = d.hosts.lap()
	to.quick = beat << min(to.lap, 10)
	d.Note(to.Addr, notYet("no answer to the dial yet"))
	c, raw, ours, err := d.dialRaw(d.ctx, to)
	if err != nil {
		d.Note(to.Addr, err)
		return nil, nil, err
	}
	d.Note(to.Addr, notYet("connected, but the server did not answer the handshake: no quorum, or not a ZooKeeper server"))
	return &greeting{Conn: c, overTLS: d.how.overTLS(), ours: ours, tell: func(err error) { d.Note(to.Addr, err) }}, raw, nil
}

// Until returns a context that ends at the deadline, and with the Dialer.
func (d *Dialer) Until(deadline time.Time) (context.Context, context.CancelFunc) {
	return context.WithDeadline(d.ctx, deadline)
}

// Once connects to a server by the deadline, also after Close. It returns what Dial does, and does not change which server the client
// tries next.
func (d *Dialer) Once(addr string, deadline time.Time) (c, raw net.Conn, err error) {
	c, raw, _, err = d.dialRaw(context.Background(), To{Network: "tcp", Addr: addr, Deadline: deadline, quick: time.Until(deadline)})
	return c, raw, err
}

// To is one try to connect to a server.
type To struct {
	Network, Addr string
	Last          string        // the address of the last connection: to try last
	Deadline      time.Time     // when it must be done
	quick         time.Duration // how long each of the server's addresses may take
	lap           int           // how often all servers have been tried before
}

// shares says whether all of a server's addresses share the time of this lap. In every other lap the first may have all of it:
// among many addresses, a share is too short for a long way.
func (to To) shares() bool { return to.lap%2 == 0 }

// inTurn returns a server's addresses in the order in which to try them: that of the last connection last, or each first in turn.
func (to To) inTurn(addrs []string, port string) []string {
	if to.shares() {
		return lastInLine(addrs, func(a string) bool { return net.JoinHostPort(a, port) == to.Last })
	}
	first := to.lap / 2 % len(addrs)
	return slices.Concat(addrs[first:], addrs[:first])
}

// limit returns how long the next of n addresses may take.
func (to To) limit(n int) time.Duration {
	left := time.Until(to.Deadline)
	if to.shares() {
		left /= time.Duration(n)
	}
	return min(to.quick, left)
}

// dialRaw returns the connection to speak over, the one underneath, which closes at once, and which certificate of ours it showed.
func (d *Dialer) dialRaw(ctx context.Context, to To) (c, raw net.Conn, ours string, err error) {
	ctx, cancel := context.WithDeadline(ctx, to.Deadline)
	defer cancel()
	limit := min(to.quick, time.Until(to.Deadline))
	if limit <= 0 { // many dialers take that for "no limit"
		return nil, nil, "", os.ErrDeadlineExceeded
	}
	if d.how.Dialer != nil {
		raw, err = d.how.Dialer(to.Network, to.Addr, limit)
	} else {
		raw, err = d.dialName(ctx, to)
	}
	if errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) { // it was accepted, and closed before the dial had returned
		err = hungUp(err, d.how.overTLS())
	}
	if err != nil || !d.how.overTLS() {
		return raw, raw, "", err
	}
	config, ours := d.config(to.Addr)
	tc := tls.Client(raw, config)
	if err := tc.HandshakeContext(ctx); err != nil {
		_ = raw.Close()
		return nil, nil, "", tlsError(err, ours)
	}
	return tc, raw, ours, nil
}

// config returns the configuration of TLS to a server, with the certificates as they are now, and says which is ours.
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

// dialName connects to one of the addresses that a server's name has.
func (d *Dialer) dialName(ctx context.Context, to To) (net.Conn, error) {
	host, port, err := net.SplitHostPort(to.Addr)
	if err != nil {
		return nil, err
	}
	addrs := []string{host}
	if net.ParseIP(host) == nil {
		if addrs, err = d.names.resolve(ctx, d.spawn, host, to.quick); err != nil {
			return nil, err
		}
	}
	addrs = to.inTurn(addrs, port)
	var errs []error
	for i, a := range addrs {
		dctx, cancel := context.WithTimeout(ctx, to.limit(len(addrs)-i))
		c, err := new(net.Dialer).DialContext(dctx, to.Network, net.JoinHostPort(a, port))
		cancel()
		if err == nil {
			return c, nil
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

// lastInLine moves the addresses for which last is true to the end.
func lastInLine(addrs []string, last func(string) bool) []string {
	var first, rest []string
	for _, a := range addrs {
		if last(a) {
			rest = append(rest, a)
		} else {
			first = append(first, a)
		}
	}
	return append(first, rest...)
}

// Alternatives says whether the client could try another address than the one it is connected to.
func (d *Dialer) Alternatives() bool { return d.hosts.Len() > 1 || d.names.most() > 1 }

// notYet says how far an unfinished try has come.
type notYet string

func (n notYet) Error() string { return string(n) }

// Note notes what came of a try, or how far it has come. It keeps the end of the last try until the present one has
// ended too.
func (d *Dialer) Note(addr string, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var now, before notYet
	if last := d.mu.tried[addr]; last != nil && errors.As(err, &now) && !errors.As(last, &before) {
		return
	}
	d.mu.tried[addr] = err
	d.sayRefusedLocked(addr, err)
}

// Forget is called when a server has accepted the session.
func (d *Dialer) Forget() {
	d.mu.Lock()
	defer d.mu.Unlock()
	clear(d.mu.tried)
	clear(d.mu.said)
}

// Tried says for each server what happened last. It is for the error of a Connect that found no server.
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
