package link

import "time"

// Backoff is the pause between tries: it doubles from 20 ms to 5 s.
type Backoff struct{ d time.Duration }

// NewBackoff returns one that begins anew.
func NewBackoff() Backoff { return Backoff{20 * time.Millisecond} }

// Next returns how long to pause now.
func (b *Backoff) Next() time.Duration {
	d := b.d
	b.d = min(2*b.d, 5*time.Second)
	return d
}
