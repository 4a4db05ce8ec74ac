package link

import "time"

// Backoff is the pause between tries: it doubles from 20 ms to 5 s. The zero value starts at 20 ms.
type Backoff struct{ last time.Duration }

// Next returns how long to pause now.
func (b *Backoff) Next() time.Duration {
	b.last = min(max(2*b.last, 20*time.Millisecond), 5*time.Second)
	return b.last
}
