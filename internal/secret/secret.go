// Package secret keeps bytes out of logs: no printer of a value, even one that follows pointers,
// shows them.
package secret

import "slices"

// Bytes contains bytes that no log may show: credentials, the password of a ZooKeeper session. It
// keeps them in a closure. Neither fmt, with any verb, nor a printer that follows pointers by
// reflection can look into one (R71).
type Bytes func() []byte

// Of returns a secret with a copy of the bytes.
func Of(b []byte) Bytes {
	b = slices.Clone(b)
	return func() []byte { return b }
}

// Reveal returns the bytes, which the caller must not change; nil for the zero secret.
func (s Bytes) Reveal() []byte {
	if s == nil {
		return nil
	}
	return s()
}
