package zklock

import (
	"fmt"
	"slices"
)

// secret is bytes that no log may show: credentials, the password of a ZooKeeper session. It keeps them in a closure, into
// which neither fmt, with any verb, nor a printer that follows pointers by reflection can look (R71).
type secret func() []byte

func newSecret(b []byte) secret {
	b = slices.Clone(b)
	return func() []byte { return b }
}

// reveal returns the bytes, which the caller must not change; nil for the zero secret.
func (s secret) reveal() []byte {
	if s == nil {
		return nil
	}
	return s()
}

// credential is what WithAuth was given.
type credential struct {
	scheme string
	auth   secret
}

// printAs is for types that describe themselves in a few words. As a Format method it leaves no verb that would print what
// is inside, which is of no use, and is read under locks that fmt does not know.
func printAs(f fmt.State, verb rune, words string) {
	fmt.Fprintf(f, fmt.FormatString(f, verb), words)
}
