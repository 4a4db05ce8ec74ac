package sasl

import (
	"fmt"
	"strings"
)

// directives is the content of a DIGEST-MD5 token (RFC 2831, section 7): names in lower case, each
// with all of its values.
type directives map[string][]string

// errMalformed quotes nothing: the password could be guessed from a client's token.
func errMalformed(at int) error {
	return fmt.Errorf("a token is malformed at byte %d", at)
}

const space = " \t\r\n"

// parse splits a token into its directives, in linear time. A value is a word, or a quoted string
// in which a backslash escapes the next byte. The caller has checked the token's length.
func parse(token []byte) (directives, error) {
	found := directives{}
	s := string(token)
	for rest := strings.TrimLeft(s, space+","); rest != ""; rest = strings.TrimLeft(rest, space+",") {
		name, after, hasValue := strings.Cut(rest, "=")
		name = strings.ToLower(strings.Trim(name, space))
		if !hasValue || name == "" || strings.ContainsAny(name, space+`,"`) {
			return nil, errMalformed(len(s) - len(rest))
		}
		rest = strings.TrimLeft(after, space)
		value, n, ok := valueOf(rest)
		if rest = strings.TrimLeft(rest[n:], space); !ok || rest != "" && rest[0] != ',' {
			return nil, errMalformed(len(s) - len(rest))
		}
		found[name] = append(found[name], value)
	}
	return found, nil
}

// valueOf returns the value that s begins with, and its length there.
func valueOf(s string) (value string, n int, ok bool) {
	if s == "" || s[0] != '"' {
		if n = strings.IndexAny(s, space+","); n < 0 {
			n = len(s)
		}
		return s[:n], n, n > 0
	}
	var b strings.Builder
	for i := 1; i < len(s); i++ {
		switch {
		case s[i] == '"':
			return b.String(), i + 1, true
		case s[i] == '\\' && i+1 < len(s):
			i++
		}
		b.WriteByte(s[i])
	}
	return "", len(s), false
}

func quoted(value string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(value) + `"`
}

// one returns the value of a directive that must occur once.
func (d directives) one(name string) (string, error) {
	if len(d[name]) != 1 {
		return "", fmt.Errorf("%s is there %d times in place of once", name, len(d[name]))
	}
	return d[name][0], nil
}

// first returns the first value of a directive, or "".
func (d directives) first(name string) string {
	if len(d[name]) == 0 {
		return ""
	}
	return d[name][0]
}
