package zklockkrb5

// The principals of servers, which depend on the connection string, krb5.conf and DNS.

import (
	"context"
	"fmt"
	"iter"
	"net"
	"slices"
	"strings"
	"time"
)

// hostPlace is the placeholder for the server's name in its principal.
const hostPlace = "_HOST"

// naming has the settings of krb5.conf for the names of servers. The zero value has the defaults.
type naming struct {
	asGiven    bool // dns_canonicalize_hostname = false: try only the host as given
	givenFirst bool // dns_canonicalize_hostname = fallback: try the host as given first
	noReverse  bool // rdns = false: the canonical name is from the host, not from its address
}

// namingOf reads the settings from the section libdefaults. The first value of a setting counts.
func namingOf(text string) (n naming, err error) {
	section, depth, seen := "", 0, map[string]bool{}
	for line := range strings.Lines(text) {
		if i := strings.IndexAny(line, "#;"); i >= 0 {
			line = line[:i]
		}
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "[") {
			section, depth = line, 0
		}
		name, value, _ := strings.Cut(line, "=")
		name, value = strings.TrimSpace(name), strings.ToLower(strings.TrimSpace(value))
		if section == "[libdefaults]" && depth == 0 && !seen[name] {
			seen[name] = true
			if err := n.set(name, value); err != nil {
				return n, err
			}
		}
		depth += strings.Count(line, "{") - strings.Count(line, "}")
	}
	return n, nil
}

// set applies a setting. It ignores settings that do not concern names.
func (n *naming) set(name, value string) error {
	isNo := slices.Contains([]string{"n", "no", "false", "nil", "0", "off"}, value)
	isYes := slices.Contains([]string{"y", "yes", "true", "t", "1", "on"}, value)
	switch {
	case name == "rdns" && (isNo || isYes):
		n.noReverse = isNo
	case name == "rdns":
		return fmt.Errorf("rdns = %q: give true or false", value)
	case name != "dns_canonicalize_hostname":
	case isNo || isYes:
		n.asGiven = isNo
	case value == "fallback":
		n.givenFirst = true
	default:
		return fmt.Errorf("dns_canonicalize_hostname = %q: give true, false or fallback", value)
	}
	return nil
}

// servers returns the principals that the server at an address may have, best first, and their
// realm: "" if WithServerPrincipal has none.
func (l *login) servers(ctx context.Context, n naming, addr string) (names iter.Seq[string], realm string) {
	name, realm := splitPrincipal(l.server)
	n.asGiven = n.asGiven || l.asGiven || !strings.Contains(name, hostPlace)
	return n.principals(ctx, net.DefaultResolver, name, addr), realm
}

// principals returns the principals that a server may have, best first. It looks up a name in DNS
// only when the caller wants the principal with that name.
func (n naming) principals(ctx context.Context, dns resolver, pattern, addr string) iter.Seq[string] {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		host = addr
	}
	named := func(host string) string {
		return strings.ReplaceAll(pattern, hostPlace, strings.ToLower(strings.TrimSuffix(host, ".")))
	}
	return func(yield func(string) bool) {
		given := named(host)
		if (n.asGiven || n.givenFirst) && !yield(given) || n.asGiven {
			return
		}
		canonical := named(n.canonical(ctx, dns, host))
		switch isSame := canonical == given; {
		case n.givenFirst && !isSame:
			yield(canonical)
		case !n.givenFirst && yield(canonical) && !isSame:
			yield(given)
		}
	}
}

type resolver interface {
	LookupHost(ctx context.Context, host string) ([]string, error)
	LookupCNAME(ctx context.Context, host string) (string, error)
	LookupAddr(ctx context.Context, addr string) ([]string, error)
}

// canonical returns the name that DNS has for a host, or the host if DNS has none. It takes at most
// a third of the time until ctx ends.
func (n naming) canonical(ctx context.Context, dns resolver, host string) string {
	if deadline, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Until(deadline)/3)
		defer cancel()
	}
	if !n.noReverse {
		return reverse(ctx, dns, host)
	}
	if net.ParseIP(host) != nil {
		return host
	}
	if name, err := dns.LookupCNAME(ctx, host); err == nil {
		return name
	}
	return host
}

// reverse returns the name of a host's addresses, if that name has one of them, and otherwise the
// host. Addresses with several names are several servers, and the dialled one is unknown. A server
// rejects a ticket for another server, and a rejection ends Connect.
func reverse(ctx context.Context, dns resolver, host string) string {
	addrs, _ := dns.LookupHost(ctx, host)
	name := ""
	for _, addr := range addrs {
		names, err := dns.LookupAddr(ctx, addr)
		switch {
		case err != nil || len(names) == 0:
		case name == "":
			name = names[0]
		case name != names[0]:
			return host
		}
	}
	if name == "" {
		return host
	}
	back, _ := dns.LookupHost(ctx, name)
	if !slices.ContainsFunc(addrs, func(addr string) bool { return slices.Contains(back, addr) }) {
		return host
	}
	return name
}
