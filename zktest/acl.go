package zktest

// Permissions: the schemes world, digest, ip, auth and sasl, and super.

import (
	"crypto/sha1"
	"encoding/base64"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/zklock/zklock/internal/wire"
)

// Digest returns the ID that ZooKeeper's digest scheme stores for "user:password": the user and the
// base64 of a SHA-1. It is the ID of a digest ACL, and the value of superDigest in [WithConfig].
func Digest(userPassword string) string {
	user, _, _ := strings.Cut(userPassword, ":")
	sum := sha1.Sum([]byte(userPassword))
	return user + ":" + base64.StdEncoding.EncodeToString(sum[:])
}

// allowed is checkACL: super has every permission. For any other id, one entry must grant one of
// the permissions.
func allowed(acl []wire.ACL, perm int32, ids []wire.ID) bool {
	if len(acl) == 0 || slices.ContainsFunc(ids, func(id wire.ID) bool { return id.Scheme == "super" }) {
		return true
	}
	for _, a := range acl {
		if a.Perms&perm == 0 {
			continue
		}
		if a.Scheme == "world" && a.ID.ID == "anyone" {
			return true
		}
		for _, id := range ids {
			if id.Scheme == a.Scheme && matches(id, a.ID) {
				return true
			}
		}
	}
	return false
}

func matches(id, pattern wire.ID) bool {
	switch id.Scheme {
	case "digest":
		return id.ID == pattern.ID
	case "sasl":
		return id.ID == pattern.ID || id.ID == "super"
	case "ip":
		want, ok := parseIP(pattern.ID)
		have, ok2 := parseIP(id.ID)
		return ok && ok2 && want.Contains(have.Addr())
	}
	return false
}

// parseIP parses an address of the scheme ip, such as 10.0.0.0/8. It reads numbers as Java does: 01
// is a valid number in IPv4.
func parseIP(s string) (netip.Prefix, bool) {
	s, mask, masked := strings.Cut(s, "/")
	addr, ok := parseIPv4(s)
	if strings.Contains(s, ":") {
		v6, err := netip.ParseAddr(s)
		addr, ok = v6, err == nil && v6.Zone() == "" && !strings.Contains(s, ".")
	}
	bits := addr.BitLen()
	if masked {
		var err error
		if bits, err = strconv.Atoi(mask); err != nil {
			return netip.Prefix{}, false
		}
	}
	prefix, err := addr.Prefix(bits)
	return prefix, ok && err == nil
}

func parseIPv4(s string) (addr netip.Addr, ok bool) {
	parts := strings.Split(s, ".")
	if len(parts) != 4 {
		return addr, false
	}
	var b [4]byte
	for i, p := range parts {
		v, err := strconv.Atoi(p)
		if err != nil || v < 0 || v > 255 {
			return addr, false
		}
		b[i] = byte(v)
	}
	return netip.AddrFrom4(b), true
}

// fixACL returns the ACL that a create or setACL stores: without duplicates, and with auth replaced
// by the ids of the connection. It returns an error for entries that the server does not accept.
func (r rules) fixACL(acl []wire.ACL, ids []wire.ID) ([]wire.ACL, error) {
	var fixed []wire.ACL
	for i, a := range acl {
		if slices.Contains(acl[:i], a) {
			continue
		}
		switch {
		case a.Null:
			return nil, wire.InvalidACL
		case a.NullID && (a.Scheme == "world" || a.Scheme == "digest" || a.Scheme == "ip"):
			return nil, wire.MarshallingError // a real server's response to its NullPointerException
		case a.Scheme == "world" && a.ID.ID == "anyone",
			a.Scheme == "digest" && validDigest(a.ID.ID),
			r.sasl && a.Scheme == "sasl" && !a.NullID && saslPrincipal.MatchString(a.ID.ID):
			fixed = append(fixed, a)
		case a.Scheme == "auth":
			before := len(fixed)
			for _, id := range ids {
				if id.Scheme == "digest" || id.Scheme == "sasl" {
					fixed = append(fixed, wire.ACL{Perms: a.Perms, ID: id})
				}
			}
			if len(fixed) == before {
				return nil, wire.InvalidACL
			}
		case a.Scheme == "ip":
			if prefix, ok := parseIP(a.ID.ID); !ok || prefix.Addr().Is6() && !r.ipv6 {
				return nil, wire.InvalidACL
			}
			fixed = append(fixed, a)
		default:
			return nil, wire.InvalidACL
		}
	}
	if len(fixed) == 0 {
		return nil, wire.InvalidACL
	}
	return fixed, nil
}

// validDigest is Java's split(":").length == 2, which ignores empty parts at the end.
func validDigest(id string) bool {
	return strings.Count(strings.TrimRight(id, ":"), ":") == 1
}

// hideDigests returns the ACL as it is shown to clients that may not administer the node.
func hideDigests(acl []wire.ACL) []wire.ACL {
	shown := slices.Clone(acl)
	for i, a := range shown {
		if a.Scheme == "digest" {
			user, _, _ := strings.Cut(a.ID.ID, ":")
			shown[i].ID.ID = user + ":x"
		}
	}
	return shown
}

// whoAmI returns the response to a whoAmI request, which contains users but no secrets.
func whoAmI(ids []wire.ID) []wire.ID {
	shown := slices.Clone(ids)
	for i, id := range shown {
		switch id.Scheme {
		case "digest":
			shown[i].ID, _, _ = strings.Cut(id.ID, ":")
		case "super":
			shown[i].ID = ""
		}
	}
	return shown
}
