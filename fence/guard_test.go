package fence_test

// These tests attack the admissions of a Guard: the rule, against a model of it, by many
// goroutines, over stores that fail or are shared.

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock/fence"
)

func exclusive(token int64) fence.Claim { return fence.Claim{Resource: "/locks/a", Token: token} }
func shared(token int64) fence.Claim {
	return fence.Claim{Resource: "/locks/a", Shared: true, Token: token}
}

// stale reports whether err rejects a claim as stale, and fails the test if it is another error.
func stale(t testing.TB, err error) bool {
	t.Helper()
	if err != nil {
		require.ErrorIs(t, err, fence.ErrStale)
	}
	return err != nil
}

// A token is compared only with the tokens of holds that exclude its own.
func TestGuard_ComparesByMode(t *testing.T) {
	for name, row := range map[string]struct {
		before []fence.Claim
		claim  fence.Claim
		known  bool
		seen   int64 // the token by which it is rejected, 0 if it is admitted
	}{
		"the first":                               {nil, exclusive(17), false, 0},
		"the first, shared":                       {nil, shared(17), false, 0},
		"a later one":                             {[]fence.Claim{exclusive(17)}, exclusive(23), true, 0},
		"the same again":                          {[]fence.Claim{exclusive(17)}, exclusive(17), true, 0},
		"an earlier one":                          {[]fence.Claim{exclusive(17)}, exclusive(16), true, 17},
		"a writer after a later reader":           {[]fence.Claim{shared(20)}, exclusive(17), true, 20},
		"a writer after an earlier reader":        {[]fence.Claim{shared(20)}, exclusive(23), true, 0},
		"a reader after a later reader":           {[]fence.Claim{exclusive(17), shared(20)}, shared(18), true, 0},
		"a reader after readers only":             {[]fence.Claim{shared(20)}, shared(18), false, 0},
		"a reader after a later writer":           {[]fence.Claim{exclusive(23)}, shared(20), true, 23},
		"a reader that was the writer":            {[]fence.Claim{exclusive(17)}, shared(17), true, 0},
		"a writer between reader and writer":      {[]fence.Claim{exclusive(17), shared(23)}, exclusive(20), true, 23},
		"an earlier reader lowers no mark":        {[]fence.Claim{shared(20), shared(18)}, exclusive(19), true, 20},
		"a refused one raises no mark":            {[]fence.Claim{exclusive(17), exclusive(16)}, exclusive(17), true, 0},
		"another resource":                        {[]fence.Claim{{Resource: "/locks/b", Token: 99}}, exclusive(17), false, 0},
		"a reader's mark is not the writer's":     {[]fence.Claim{exclusive(17), shared(30)}, shared(20), true, 0},
		"a writer's mark is not lost to a reader": {[]fence.Claim{exclusive(17), shared(17)}, shared(16), true, 17},
	} {
		t.Run(name, func(t *testing.T) {
			g := fence.NewGuard(fence.NewMemory(2))
			for _, c := range row.before {
				_, err := g.Admit(t.Context(), c)
				stale(t, err)
			}
			known, err := g.Admit(t.Context(), row.claim)
			require.Equal(t, row.known, known)
			if row.seen == 0 {
				require.NoError(t, err)
				return
			}
			var why *fence.StaleError
			require.ErrorAs(t, err, &why)
			require.Equal(t, fence.StaleError{Claim: row.claim, Seen: row.seen}, *why)
			require.ErrorIs(t, err, fence.ErrStale)
		})
	}
}

func TestGuard_NoToken_IsInvalid(t *testing.T) {
	g := fence.NewGuard(fence.NewMemory(1))
	for _, token := range []int64{0, -1} {
		_, err := g.Admit(t.Context(), shared(token))
		require.ErrorIs(t, err, fence.ErrInvalid)
	}
}

// model keeps all admitted claims, and judges by the definition.
type model []fence.Claim

func (m *model) stale(c fence.Claim) bool {
	for _, was := range *m {
		if was.Resource == c.Resource && was.Token > c.Token && (!was.Shared || !c.Shared) {
			return true
		}
	}
	*m = append(*m, c)
	return false
}

// In any order of claims, a claim is rejected if and only if a claim was admitted whose hold was
// granted later and excludes its own. A claim that does not fit into the memory is rejected, and
// changes nothing.
func FuzzGuard(f *testing.F) {
	f.Add([]byte{17, 23, 16, 145, 151, 144, 200})
	for seed := range uint64(50) {
		rnd, claims := rand.New(rand.NewPCG(1, seed)), make([]byte, 60)
		for i := range claims {
			claims[i] = byte(rnd.Uint32())
		}
		f.Add(claims)
	}
	f.Fuzz(func(t *testing.T, claims []byte) {
		const limit = 3
		g, m, resources := fence.NewGuard(fence.NewMemory(limit)), model{}, map[string]bool{}
		for i, b := range claims { // a byte is a mode, one of four resources, a token
			c := fence.Claim{Resource: fmt.Sprint(b >> 5 & 3), Shared: b&128 != 0, Token: int64(b&31) + 1}
			_, err := g.Admit(t.Context(), c)
			if !resources[c.Resource] && len(resources) == limit {
				require.ErrorIs(t, err, fence.ErrFull)
				continue
			}
			resources[c.Resource] = true
			require.Equal(t, m.stale(c), stale(t, err), "claim %d: %+v", i, c)
		}
	})
}

// yielding lets other goroutines run between the Load and the Swap of a Guard.
type yielding struct{ fence.Store }

func (y yielding) Load(ctx context.Context, resource string) (fence.Marks, error) {
	m, err := y.Store.Load(ctx, resource)
	runtime.Gosched()
	return m, err
}

// Admitted claims are compared with all that are admitted afterwards, by many goroutines and by two
// Guards over one store.
func TestGuard_ManyGoroutines_NoStaleOneIsAdmitted(t *testing.T) {
	for round := range uint64(20) {
		crowd(t, round)
	}
}

func crowd(t *testing.T, round uint64) {
	const goroutines, claims = 16, 100
	store := yielding{fence.NewMemory(1)}
	guards := []*fence.Guard{fence.NewGuard(store), fence.NewGuard(store)}
	type admission struct {
		fence.Claim
		begun, ended int64
	}
	var clock, refused atomic.Int64
	var mu sync.Mutex
	var admitted []admission
	var all sync.WaitGroup
	for i := range goroutines {
		rnd := rand.New(rand.NewPCG(round, uint64(i)))
		all.Go(func() {
			for n := range claims {
				c := fence.Claim{Resource: "/locks/a", Shared: rnd.IntN(2) == 0, Token: int64(n+1) + rnd.Int64N(20)}
				a := admission{Claim: c, begun: clock.Add(1)}
				_, err := guards[i%2].Admit(context.Background(), c)
				a.ended = clock.Add(1)
				if err != nil {
					refused.Add(1)
					continue
				}
				mu.Lock()
				admitted = append(admitted, a)
				mu.Unlock()
			}
		})
	}
	all.Wait()
	require.Positive(t, refused.Load(), "nobody was late")
	require.NotEmpty(t, admitted)
	for _, late := range admitted {
		for _, was := range admitted {
			if was.ended < late.begun && was.Token > late.Token && (!was.Shared || !late.Shared) {
				t.Fatalf("round %d: %+v was admitted after %+v", round, late, was)
			}
		}
	}
	marks, err := store.Load(t.Context(), "/locks/a")
	require.NoError(t, err)
	var want fence.Marks
	for _, a := range admitted {
		if a.Shared {
			want.Shared = max(want.Shared, a.Token)
		} else {
			want.Exclusive = max(want.Exclusive, a.Token)
		}
	}
	require.Equal(t, want, marks, "a mark was lowered")
}

// between runs a function once, after the next Load has returned.
type between struct {
	fence.Store
	do func()
}

func (b *between) Load(ctx context.Context, resource string) (fence.Marks, error) {
	m, err := b.Store.Load(ctx, resource)
	if do := b.do; do != nil {
		b.do = nil
		do()
	}
	return m, err
}

// A claim that read the marks before another raised them writes nothing back, and is judged by the
// present marks.
func TestGuard_AnotherIsFaster_NoMarkIsLowered(t *testing.T) {
	memory := fence.NewMemory(1)
	for _, row := range []struct {
		claim, faster fence.Claim
		stale         bool
		marks         fence.Marks
	}{
		{exclusive(17), exclusive(23), true, fence.Marks{Exclusive: 23}},
		{shared(30), exclusive(33), true, fence.Marks{Exclusive: 33}},
		{shared(40), exclusive(39), false, fence.Marks{Exclusive: 39, Shared: 40}},
		{exclusive(45), shared(50), true, fence.Marks{Exclusive: 39, Shared: 50}},
	} {
		slow := fence.NewGuard(&between{memory, func() {
			_, err := fence.NewGuard(memory).Admit(t.Context(), row.faster)
			require.NoError(t, err)
		}})
		_, err := slow.Admit(t.Context(), row.claim)
		require.Equal(t, row.stale, stale(t, err), "%+v", row.claim)
		marks, err := memory.Load(t.Context(), "/locks/a")
		require.NoError(t, err)
		require.Equal(t, row.marks, marks)
	}
}

// In memory, the first claim after a restart reports that there was nothing to compare with. Over a
// store, no mark is lost.
func TestGuard_Restart_ReportsWhatItCannotKnow(t *testing.T) {
	store := fence.NewMemory(1)
	_, err := fence.NewGuard(store).Admit(t.Context(), exclusive(23))
	require.NoError(t, err)

	known, err := fence.NewGuard(fence.NewMemory(1)).Admit(t.Context(), exclusive(17))
	require.NoError(t, err, "it cannot know")
	require.False(t, known, "and says so")

	_, err = fence.NewGuard(store).Admit(t.Context(), exclusive(17))
	require.True(t, stale(t, err))
}

// A full memory rejects new resources, and continues with the known ones. It loses no mark.
func TestMemory_Full_ForgetsNothing(t *testing.T) {
	g := fence.NewGuard(fence.NewMemory(2))
	claim := func(resource string, token int64) error {
		_, err := g.Admit(t.Context(), fence.Claim{Resource: resource, Token: token})
		return err
	}
	require.NoError(t, claim("a", 10))
	require.NoError(t, claim("b", 20))
	require.ErrorIs(t, claim("c", 30), fence.ErrFull)
	require.ErrorIs(t, claim("c", 31), fence.ErrFull, "the first time left nothing")
	require.NoError(t, claim("a", 11))
	require.ErrorIs(t, claim("a", 10), fence.ErrStale)
	require.ErrorIs(t, claim("b", 19), fence.ErrStale)
}

// broken is a store whose calls fail.
type broken struct {
	fence.Store
	load, swap error
}

func (b broken) Load(ctx context.Context, resource string) (fence.Marks, error) {
	if b.load != nil {
		return fence.Marks{}, b.load
	}
	return b.Store.Load(ctx, resource)
}

func (b broken) Swap(context.Context, string, fence.Marks, fence.Marks) (bool, error) {
	return false, b.swap
}

// Nothing is admitted without being recorded: neither with a store that cannot be read, nor with
// one that cannot be written.
func TestGuard_StoreFails_NothingIsAdmitted(t *testing.T) {
	down := errors.New("the store is down")
	for _, store := range []broken{{fence.NewMemory(1), down, nil}, {fence.NewMemory(1), nil, down}} {
		_, err := fence.NewGuard(store).Admit(t.Context(), exclusive(17))
		require.ErrorIs(t, err, down)
		require.NotErrorIs(t, err, fence.ErrStale)
		require.ErrorContains(t, err, "/locks/a")
	}
}

// A claim that other claims overtake repeatedly ends with its context.
func TestGuard_NeverItsTurn_EndsWithTheContext(t *testing.T) {
	gone := errors.New("the client has gone")
	ctx, cancel := context.WithCancelCause(t.Context())
	loads := 0
	g := fence.NewGuard(&counting{broken{Store: fence.NewMemory(1)}, func() {
		loads++
		require.LessOrEqual(t, loads, 5, "it goes on")
		if loads == 5 {
			cancel(gone)
		}
	}})
	_, err := g.Admit(ctx, exclusive(17))
	require.ErrorIs(t, err, gone)
	require.Equal(t, 5, loads)
}

type counting struct {
	broken
	loaded func()
}

func (c *counting) Load(ctx context.Context, resource string) (fence.Marks, error) {
	c.loaded()
	return c.broken.Load(ctx, resource)
}
