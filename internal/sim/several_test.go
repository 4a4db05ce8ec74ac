package sim

// A worker of a Multi: it takes some of the world's locks together.

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
)

// several takes one lock or more, each for reading, for writing, or as a mutex, and in any order.
// Each lock has a history of its own: the grant of each is an op.
func (k *worker) several(bound time.Duration) {
	s, first := k.attempt(0, bound)
	var locks []zklock.Lock
	var gs []*op
	for _, i := range k.rnd.Perm(len(k.w.locks))[k.rnd.IntN(len(k.w.locks)):] {
		g := *first
		g.lock, g.amid = i, true
		e, err := takeAny(k, s, &g)
		require.NoError(k.w.t, err)
		locks, gs = append(locks, e.Lock), append(gs, &g)
	}
	m, err := zklock.NewMulti(locks...)
	require.NoError(k.w.t, err)
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	defer cancel()
	enter, try := m.Acquire, k.rnd.IntN(3) == 0
	for _, g := range gs {
		if try {
			k.c.tries(s, g, len(gs))
			enter = m.TryAcquire
		}
		k.w.begun(g)
	}
	all, err := enter(ctx)
	if err != nil {
		for _, g := range gs {
			k.c.got(s, g, nil, err)
		}
		k.c.expects(s, err, try)
		return
	}
	holds := all.Holds()
	if len(holds) != len(gs) {
		k.w.failf("%d holds of %d locks", len(holds), len(gs))
	}
	k.w.count([]string{"", "grants of one lock", "grants of two locks", "grants of three locks"}[len(gs)])
	// The holds are in the order of the paths.
	slices.SortFunc(gs, func(a, b *op) int { return a.lock - b.lock })
	slices.SortFunc(holds, func(a, b *zklock.Hold) int { return slices.Compare([]byte(a.Path()), []byte(b.Path())) })
	for i, g := range gs {
		k.c.got(s, g, holds[i], nil)
		defer k.listen(holds[i], g)()
	}
	pause(all.Context(), k.upTo(k.w.kind.hold))
	k.c.awake()
	k.releaseAll(all, holds, gs)
}

// releaseAll releases a MultiHold. Each lock has its own result.
func (k *worker) releaseAll(all *zklock.MultiHold, holds []*zklock.Hold, gs []*op) {
	ctx, cancel := context.WithTimeout(context.Background(), k.upTo(20*time.Second))
	defer cancel()
	var ops []*op
	for i, g := range gs {
		ops = append(ops, k.releases(holds[i], g, 20*time.Second))
	}
	var err error
	isAsync := k.rnd.IntN(3) == 0
	if !isAsync {
		err = all.Release(ctx)
	}
	for i, o := range ops {
		if isAsync {
			k.releasedAsync(o, holds[i].ReleaseAsync())
		} else {
			k.released(o, errorOf(err, k.w.locks[gs[i].lock]))
		}
		if holds[i].Err() == nil {
			k.w.failf("I6: %s is held after its release", holds[i].Path())
		}
	}
}

// errorOf returns the part of joined errors that is about a path.
func errorOf(err error, path string) error {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return err
	}
	for _, one := range joined.Unwrap() {
		if e := (*zklock.Error)(nil); errors.As(one, &e) && e.Path == path {
			return one
		}
	}
	return nil
}

// once does the present work, unless a call has reported it as done.
func (k *worker) once(bound time.Duration) {
	key := int(time.Since(k.w.start) / k.w.kind.think)
	k.doOnce(key, bound)
}

// doOnce calls Once. The hold under which the work runs is recorded as an acquire and a release.
func (k *worker) doOnce(key int, bound time.Duration) *op {
	w := k.w
	s, g := k.attempt(k.lock, bound)
	m, err := zklock.NewMutex(s, w.locks[k.lock], zklock.WithData([]byte(g.owner)))
	require.NoError(w.t, err)
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	defer cancel()
	o := w.begun(&op{did: once, client: k.c.id, owner: g.owner, lock: k.lock, bound: bound, value: key})
	g.call, g.at = o.call, o.at
	var release *op
	var listening sync.WaitGroup
	ran, err := m.Once(ctx, keyOf(key), func(_ context.Context, h *zklock.Hold) error {
		w.mu.Lock()
		w.rec.ops = append(w.rec.ops, g)
		o.grant, o.point, o.believed = g, w.orderLocked(), h.Err() == nil
		w.mu.Unlock()
		k.c.got(s, g, h, nil)
		end := k.listen(h, g)
		began := time.Now()
		pause(h.Context(), k.upTo(w.kind.hold))
		k.c.awake()
		o.bound += time.Since(began)
		release = k.releases(h, g, time.Minute)
		listening.Go(end)
		return nil
	})
	listening.Wait()
	w.ended(o, func() { o.err = err })
	if release != nil {
		result := err
		if errors.Is(err, zklock.ErrNotMarked) && !errors.Is(err, zklock.ErrLost) { // it may have been released
			result = zklock.ErrNotConfirmed
		}
		k.released(release, result)
	} else if err != nil {
		k.c.expects(s, err, false)
	}
	if ran != (release != nil) {
		w.failf("Once returns that it ran the work: %t", ran)
	}
	return o
}
