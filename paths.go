package zklock

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"net/url"
	"regexp"
	"strconv"
	"strings"

	"github.com/go-zookeeper/zk"
)

// errCredentialsInServers does not quote the connection string. An error around it must not either.
var errCredentialsInServers = errors.New("no credentials in the connection string (it has an @): give them with WithDigest, " +
	"and the servers as host:port,host:port/chroot")

// parseServers splits a connection string as Java clients write it, "host:port,host:port/chroot",
// into addresses and an absolute chroot without a trailing slash ("" for none). A chroot may
// contain an @. Any other string with an @ is taken for a URL with a password.
func parseServers(s string) (addrs []string, chroot string, err error) {
	addrs, chroot, err = splitServers(s)
	if hosts, _, _ := strings.Cut(s, "/"); strings.Contains(hosts, "@") || err != nil && strings.Contains(s, "@") {
		return nil, "", errCredentialsInServers
	}
	return addrs, chroot, err
}

// serverInChroot matches a chroot with a comma, or with a part that ends in a port.
var serverInChroot = regexp.MustCompile(`,|:[0-9]+(/|$)`)

func splitServers(s string) (addrs []string, chroot string, err error) {
	hosts := s
	if i := strings.Index(s, "://"); i >= 0 {
		return nil, "", fmt.Errorf("connection string %q is a URL: give host:port,host:port/chroot without %s", s, s[:i+3])
	}
	if strings.Contains(s, ";") {
		return nil, "", fmt.Errorf("connection string %q: separate the servers with commas, host:port,host:port/chroot", s)
	}
	if i := strings.IndexByte(s, '/'); i >= 0 {
		hosts, chroot = s[:i], strings.TrimSuffix(s[i:], "/")
		if strings.HasSuffix(strings.TrimSpace(hosts), ",") { // for example, an unset variable
			return nil, "", fmt.Errorf("connection string %q: there is a comma before the chroot: is a server missing? Give host:port,host:port/chroot", s)
		}
		if serverInChroot.MatchString(chroot) {
			// Clients with another list of servers would have another chroot, and another lock.
			return nil, "", fmt.Errorf("connection string %q: put the chroot once, at the end: host:port,host:port/chroot", s)
		}
		if chroot != "" {
			if err := checkPath(chroot); err != nil {
				return nil, "", fmt.Errorf("chroot: %w", err)
			}
		}
	}
	for _, h := range strings.Split(hosts, ",") {
		h = strings.TrimSpace(h)
		if h == "" {
			continue
		}
		addr, err := hostPort(h)
		if err != nil {
			return nil, "", err
		}
		addrs = append(addrs, addr)
	}
	if len(addrs) == 0 {
		return nil, "", fmt.Errorf("no server in connection string %q: give host:port,host:port/chroot", s)
	}
	return addrs, chroot, nil
}

// hostPort completes a host with the default port. An IPv6 address must be in brackets: without
// them, its last part may be a port, and Java clients take it for one.
func hostPort(h string) (string, error) {
	host, port := h, strconv.Itoa(zk.DefaultPort)
	switch {
	case strings.HasPrefix(h, "["):
		end := strings.IndexByte(h, ']')
		if end < 0 {
			return "", fmt.Errorf("server %q: the bracket is not closed", h)
		}
		host = h[1:end]
		if rest := h[end+1:]; rest != "" {
			if rest[0] != ':' {
				return "", fmt.Errorf("server %q: expected a colon and a port after the bracket", h)
			}
			port = rest[1:]
		}
	case strings.ContainsAny(h, "[]"):
		return "", fmt.Errorf("server %q: a bracket has no counterpart: write an IPv6 address as [::1]:2181", h)
	case strings.Count(h, ":") > 1:
		return "", fmt.Errorf("server %q: put an IPv6 address in brackets, as in [::1]:2181, to separate it from the port", h)
	default:
		if before, after, ok := strings.Cut(h, ":"); ok {
			host, port = before, after
		}
	}
	if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 || port != strconv.Itoa(n) {
		return "", fmt.Errorf("server %q: port %q is not a number from 1 to 65535", h, port)
	}
	if host == "" {
		return "", fmt.Errorf("server %q has no host", h)
	}
	if strings.ContainsAny(host, " \t\r\n") {
		return "", fmt.Errorf("server %q has white space in it", h)
	}
	return net.JoinHostPort(host, port), nil
}

// ValidatePath returns the error that NewMutex would return for a lock path, or nil.
func ValidatePath(path string) error { return checkPath(path) }

// checkPath rejects paths that ZooKeeper would reject, paths with a trailing slash, and the
// servers' own paths, before a request is sent. The same paths are valid with and without a chroot.
func checkPath(p string) error {
	bad := func(why string) error { return badArgument{fmt.Errorf("path %q %s", p, why)} }
	switch {
	case p == "":
		return bad("is empty: give an absolute path such as /locks/orders")
	case p[0] != '/':
		return bad("is relative: it must begin with a slash")
	case p == "/":
		return bad("is the root of the tree: give a path below it")
	case strings.HasSuffix(p, "/"):
		return bad("ends in a slash")
	case p == "/zookeeper", strings.HasPrefix(p, "/zookeeper/"):
		return bad("is at or below /zookeeper, where the servers keep their own: give another")
	}
	for _, part := range strings.Split(p[1:], "/") {
		switch part {
		case "":
			return bad("has an empty part (two slashes)")
		case ".", "..":
			return bad("has a relative part")
		}
	}
	for _, r := range p {
		if r <= 0x1f || r >= 0x7f && r <= 0x9f || r >= 0xd800 && r <= 0xf8ff || r >= 0xfff0 {
			return bad(fmt.Sprintf("has the character %U, which ZooKeeper does not allow", r))
		}
	}
	return nil
}

// PathOf returns the lock path for an untrusted name, such as a customer's: one node below root.
// root must not be a lock. Every name is valid, different names have different paths, and no name
// leads out of root.
//
// Names are escaped as by Python's quote(name, safe=""), and url.PathUnescape reverses that.
// Exceptions: the first byte of ".", ".." and "zookeeper" is escaped, the empty name is "%", and an
// escaped name above 200 bytes is cut to 134, followed by "%~" and the name's SHA-256.
func PathOf(root, name string) string {
	s := strings.ReplaceAll(url.QueryEscape(name), "+", "%20") // only a space becomes a plus
	switch {
	case name == ".", name == "..", name == "zookeeper":
		s = fmt.Sprintf("%%%02X", name[0]) + name[1:]
	case s == "":
		s = "%"
	case len(s) > maxEscaped:
		hash := fmt.Sprintf("%%~%x", sha256.Sum256([]byte(name)))
		s = s[:maxEscaped-len(hash)] + hash
	}
	return strings.TrimSuffix(root, "/") + "/" + s
}

const maxEscaped = 200

// nameOf returns the last part of a path.
func nameOf(path string) string { return path[strings.LastIndexByte(path, '/')+1:] }

func namesOf(paths []string) (names []string) {
	for _, p := range paths {
		names = append(names, nameOf(p))
	}
	return names
}

// parentOf returns the path of the parent node.
func parentOf(path string) string { return path[:max(1, strings.LastIndexByte(path, '/'))] }
