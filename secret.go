package zklock

import "slices"

// secret is bytes that no log may show: credentials, the password of a ZooKeeper session. It keeps them in a closure. Neither
// fmt, with any verb, nor a printer that follows pointers by reflection can look into one (R71).
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
