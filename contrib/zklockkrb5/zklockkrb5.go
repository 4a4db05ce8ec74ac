// Package zklockkrb5 authenticates a Session by Kerberos (SASL with GSSAPI), for servers whose JAAS
// file has Krb5LoginModule:
//
//	locker, err := zklockkrb5.Keytab("locker@EXAMPLE.COM", "/etc/locker.keytab")
//	…
//	s, err := zklock.Connect(ctx, servers, zklock.WithSASL(locker))
//
// The mechanism asks the KDCs of krb5.conf, over TCP, when a connection is made and it has no
// ticket for that server. It then reads its files again, so a keytab, a ticket cache and krb5.conf
// may be replaced at any time. It keeps tickets until they expire, and does nothing between
// connections. A connection needs a KDC only if there was no connection to that server within the
// life of a ticket, or if the server rejected the ticket. Only one goroutine at a time asks, within
// the time limit of its connection.
//
// A KDC that rejects us (an unknown principal, another key than the keytab's, an expired password)
// causes zklock.ErrAuthFailed, and so does a server that rejects a new ticket. That error is final
// only for Connect: see zklock.WithSASL. No other failure counts as a rejection: no KDC responds, a
// file is missing, the ticket cache has expired, the KDC does not have the server. If a server
// rejects a kept ticket because its key has changed, the next connection uses a new ticket.
//
// The server proves its identity, too: it must have the key of its principal. After that, nothing
// is signed or encrypted: use TLS for that. Tickets need AES. Printed values, errors and log lines
// contain no keys.
package zklockkrb5

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jcmturner/gokrb5/v8/config"

	"github.com/zklock/zklock/sasl"
)

// Option is an option of Keytab and TicketCache.
type Option func(*login)

// WithConfig sets a file other than $KRB5_CONFIG or /etc/krb5.conf. These settings of the file
// count: default_realm, KDCs, domain_realm, dns_lookup_kdc, dns_canonicalize_hostname, rdns,
// ticket_lifetime, clockskew and enctypes. Files that it includes are not read.
func WithConfig(file string) Option { return func(l *login) { l.config = file } }

// WithServerPrincipal sets the principal of the servers, as zookeeper.server.principal does in
// Java; the default is "zookeeper/_HOST". _HOST is replaced by the name of the server. For a
// service other than zookeeper (zookeeper.sasl.client.username), use "service/_HOST". If the
// principal has no realm, the realm from domain_realm is used, or else the client's.
func WithServerPrincipal(principal string) Option {
	return func(l *login) { l.server = principal }
}

// WithHostAsGiven takes _HOST from the connection string, regardless of krb5.conf. In Java,
// zookeeper.sasl.client.canonicalize.hostname=false has this effect.
//
// Without the option, _HOST is the name that DNS has for the server's address, if that name has
// this address. With rdns = false in krb5.conf it is the canonical name of the host in the
// connection string, and an address there is not replaced. If the KDC does not have the first name,
// the host as given is tried. With dns_canonicalize_hostname = fallback the host as given is tried
// first, and with dns_canonicalize_hostname = false it is the only one. If the addresses of a host
// have several names, only the host as given is tried: list each server in the connection string.
func WithHostAsGiven() Option { return func(l *login) { l.asGiven = true } }

// Keytab returns the mechanism of a principal, such as "locker@EXAMPLE.COM", whose key is in a
// keytab file. A principal without a realm is in default_realm. Keytab fails if krb5.conf or the
// keytab cannot be read, or the keytab has no key of the principal. It does not ask a KDC.
func Keytab(principal, file string, opts ...Option) (sasl.Mechanism, error) {
	l, err := newLogin("Keytab", opts)
	if err != nil {
		return nil, err
	}
	file = strings.TrimPrefix(file, "FILE:")
	l.obtain = func(ctx context.Context, conf *config.Config) (ticket, error) {
		k, err := readKeytab(file, principal, conf)
		if err != nil {
			return ticket{}, err
		}
		return l.logIn(ctx, conf, k)
	}
	conf, _, err := readConfig(l.config)
	if err == nil {
		_, err = readKeytab(file, principal, conf)
	}
	return l.mechanism("Keytab", err)
}

// TicketCache returns the mechanism of the principal for whom kinit made a ticket cache. If file is
// "", it is the file of $KRB5CCNAME, or /tmp/krb5cc_UID. Another program, such as kinit or k5start,
// must renew the cache before its tickets expire. TicketCache fails if krb5.conf or the cache
// cannot be read; it does not check that the tickets are valid.
func TicketCache(file string, opts ...Option) (sasl.Mechanism, error) {
	l, err := newLogin("TicketCache", opts)
	if err != nil {
		return nil, err
	}
	if file, err = cacheFile(file); err == nil {
		_, err = readCache(file)
	}
	l.obtain = func(context.Context, *config.Config) (ticket, error) {
		t, err := readCache(file)
		if err == nil && !t.isValid() {
			err = fmt.Errorf("the ticket cache %s ended at %v: run kinit", file, t.end)
		}
		return t, err
	}
	l.rereads = true
	if err == nil {
		_, _, err = readConfig(l.config)
	}
	return l.mechanism("TicketCache", err)
}

func newLogin(caller string, opts []Option) (*login, error) {
	l := &login{config: configFile(), server: "zookeeper/" + hostPlace, asking: make(chan struct{}, 1), answered: map[string]string{}}
	l.mu.tickets = map[string]ticket{}
	for _, o := range opts {
		o(l)
	}
	name, _ := splitPrincipal(l.server)
	if service, host, ok := strings.Cut(name, "/"); !ok || service == "" || host == "" {
		return nil, fmt.Errorf("zklockkrb5: %s: the server principal %q has not the form service/host: give one such as zookeeper/%s", caller, l.server, hostPlace)
	}
	return l, nil
}

func (l *login) mechanism(caller string, err error) (sasl.Mechanism, error) {
	if err != nil {
		return nil, fmt.Errorf("zklockkrb5: %s: %w", caller, err)
	}
	return mechanism(l.authenticate), nil
}

// mechanism is a function so that no printer finds a key in it.
type mechanism func(ctx context.Context, host string) (exchange, []byte, error)

// Name implements sasl.Mechanism.
func (mechanism) Name() string { return "GSSAPI" }

// Authenticate implements sasl.Mechanism.
func (m mechanism) Authenticate(ctx context.Context, host string) (sasl.Exchange, []byte, error) {
	x, first, err := m(ctx, host)
	if err != nil {
		return nil, nil, err
	}
	return x, first, nil
}

func (l *login) authenticate(ctx context.Context, host string) (exchange, []byte, error) {
	t, wasKept, err := l.ticketFor(ctx, host)
	if err != nil {
		return exchange{}, nil, err
	}
	challenge, first, err := begin(t)
	return exchange{challenge, func() bool { l.discard(host, t); return wasKept }}, first, err
}

var errNoServerKey = errors.New("the server did not prove that it has the key of its principal")
