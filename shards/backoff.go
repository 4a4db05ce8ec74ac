package shards

import (
	"context"
	"time"
)

const (
	pauseMin = 100 * time.Millisecond
	pauseMax = 5 * time.Second // between requests that fail
)

// backoff is a pause that doubles, from pauseMin up to most.
type backoff struct {
	most time.Duration
	last time.Duration
}

func (b *backoff) reset()        { b.last = 0 }
func (b *backoff) isFirst() bool { return b.last == 0 }

func (b *backoff) next() time.Duration {
	b.last = min(max(2*b.last, pauseMin), b.most)
	return b.last
}

func (b *backoff) wait(ctx context.Context) {
	select {
	case <-time.After(b.next()):
	case <-ctx.Done():
	}
}
