package zktest

// Who may do what: the schemes world, digest, ip, auth and sasl, and super.

import (
	"crypto/sha1"
	"encoding/base64"
	"slices"
	"strconv"
	"strings"

	"github.com/zklock/zklock/internal/wire"
)

// Digest returns what ZooKeeper's digest scheme stores for "user:password": the user and the base64 of a
// SHA-1. It is the ID of a digest ACL and the argument of [WithSuperDigest].
func Digest(userPassword string) string {
	user, _, _ := strings.Cut(userPassword, ":")
	sum := sha1.Sum([]byte(userPassword))
	return user + ":" + base64.StdEncoding.EncodeToString(sum[:])
}

// allowed is checkACL: super may do everything; for all others one entry must grant one of the permissions.
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
		want, bits, ok := parseIP(pattern.ID)
		have, _, ok2 := parseIP(id.ID)
		return ok && ok2 && want>>(32-bits) == have>>(32-bits)
	}
	return false
}

// parseIP reads the ip scheme's "a.b.c.d" or "a.b.c.d/bits". Like the server it knows IPv4 only.
func parseIP(s string) (addr uint64, bits int, ok bool) {
	s, mask, masked := strings.Cut(s, "/")
	parts := strings.Split(s, ".")
	if len(parts) != 4 {
		return 0, 0, false
	}
	for _, p := range parts {
		v, err := strconv.Atoi(p)
		if err != nil || v < 0 || v > 255 {
			return 0, 0, false
		}
		addr = addr<<8 | uint64(v)
	}
	bits = 32
	if masked {
		v, err := strconv.Atoi(mask)
		if err != nil || v < 0 || v > 32 {
			return 0, 0, false
		}
		bits = v
	}
	return addr, bits, true
}

// fixACL is what a create or setACL stores: duplicates gone, auth replaced by what the connection has
// authenticated as. It fails on entries no server accepts; hasSASL says whether this one knows the scheme sasl.
func fixACL(acl []wire.ACL, ids []wire.ID, hasSASL bool) ([]wire.ACL, error) {
	var fixed []wire.ACL
	for i, a := range acl {
		if slices.Contains(acl[:i], a) {
			continue
		}
		switch {
		case a.Null:
			return nil, wire.InvalidACL
		case a.NullID && (a.Scheme == "world" || a.Scheme == "digest" || a.Scheme == "ip"):
			return nil, wire.MarshallingError // what a real server makes of its NullPointerException
		case a.Scheme == "world" && a.ID.ID == "anyone":
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
		case a.Scheme == "digest" && validDigest(a.ID.ID):
			fixed = append(fixed, a)
		case hasSASL && a.Scheme == "sasl" && !a.NullID && saslPrincipal.MatchString(a.ID.ID):
			fixed = append(fixed, a)
		case a.Scheme == "ip":
			if _, _, ok := parseIP(a.ID.ID); !ok {
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
	parts := strings.Split(id, ":")
	for len(parts) > 0 && parts[len(parts)-1] == "" {
		parts = parts[:len(parts)-1]
	}
	return len(parts) == 2
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

// whoAmI is what the whoAmI request tells: users, not secrets.
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
