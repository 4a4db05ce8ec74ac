package zklock

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

// tableTest is a lock table without a server: the test plays the attempts.
type tableTest struct {
	*testing.T
	table *lockTable
	m     *Mutex
}

func newTableTest(t *testing.T) *tableTest {
	s := &Session{clock: newClock()}
	s.locks.byKey = make(map[lockKey]*lockData)
	return &tableTest{t, &s.locks, &Mutex{s: s, path: "/locks/a", root: "/locks/a"}}
}

// begin has the owner begin an attempt.
func (t *tableTest) begin(o Owner, try bool) (*attempt, *joiner) {
	t.Helper()
	hold, a, j, isNew, err := t.table.enter(t.Context(), t.m, asker{owner: o}, try)
	require.NoError(t, err)
	require.Nil(t, hold)
	require.True(t, isNew)
	return a, j
}

// grant has the attempt succeed.
func (t *tableTest) grant(a *attempt, j *joiner) *Hold {
	t.Helper()
	t.table.prepare(a, &era{zkSession: &zkSession{over: make(chan struct{})}}, "/locks/a/n", 7)
	require.True(t, t.table.grant(a))
	r := <-j.result
	require.NoError(t, r.err)
	return r.hold
}

func TestOwner(t *testing.T) {
	a := NewOwner("x")
	require.NotEqual(t, a, NewOwner("x"), "a name makes no owner")
	require.Regexp(t, `^x/[0-9a-f]{8}$`, a.String())
	require.Regexp(t, `^[0-9a-f]{8}$`, NewOwner("").String())
	require.Equal(t, "nobody", Owner{}.String())

	_, ok := OwnerFrom(t.Context())
	require.False(t, ok)
	_, ok = OwnerFrom(WithOwner(t.Context(), Owner{}))
	require.False(t, ok, "the zero Owner is nobody")
	o, ok := OwnerFrom(WithOwner(WithOwner(t.Context(), NewOwner("y")), a))
	require.True(t, ok)
	require.Equal(t, a, o)
}

// I2: an owner that holds re-enters; another owner does not.
func TestLockTable_ReentryIsPerOwner(t *testing.T) {
	tt := newTableTest(t)
	a, b := NewOwner("a"), NewOwner("b")
	first := tt.grant(tt.begin(a, false))

	again, at, _, _, err := tt.table.enter(t.Context(), tt.m, asker{owner: a}, false)
	require.NoError(t, err)
	require.Nil(t, at, "no attempt, so nothing is sent")
	require.Equal(t, first.Path(), again.Path())
	require.Equal(t, first.Token(), again.Token())
	require.Len(t, tt.table.byKey, 1)

	tt.begin(b, false)
	require.Len(t, tt.table.byKey, 2)
}

// R63, R3: each handle is released once, in any order, and the node goes with the last.
func TestLockTable_ReleaseCountsHandles(t *testing.T) {
	tt := newTableTest(t)
	o := NewOwner("")
	h1 := tt.grant(tt.begin(o, false))
	h2, _, _, _, _ := tt.table.enter(t.Context(), tt.m, asker{owner: o}, true)

	first, last, lost := tt.table.release(h1)
	require.True(t, first)
	require.False(t, last)
	require.NoError(t, lost)
	first, last, _ = tt.table.release(h1)
	require.False(t, first, "the second time is nothing")
	require.False(t, last)
	require.True(t, tt.table.heldBy(tt.m.root, asker{owner: o}))

	first, last, _ = tt.table.release(h2)
	require.True(t, first)
	require.True(t, last)
	require.False(t, tt.table.heldBy(tt.m.root, asker{owner: o}))
	require.Empty(t, tt.table.byKey, "I7")
}

// R17: local ownership ends before the node is deleted. Who comes during the last release starts afresh.
func TestLockTable_AcquireDuringTheLastRelease_StartsAfresh(t *testing.T) {
	tt := newTableTest(t)
	o := NewOwner("")
	h := tt.grant(tt.begin(o, false))
	tt.table.release(h)
	a, j := tt.begin(o, false)
	h2 := tt.grant(a, j)
	_, last, _ := tt.table.release(h)
	require.False(t, last, "the old handle cannot touch the new hold")
	require.True(t, tt.table.heldBy(tt.m.root, asker{owner: o}))
	tt.table.release(h2)
}

// A second Acquire of an owner joins the attempt under way, and both get a handle on one node (I2).
func TestLockTable_SecondAcquireOfAnOwnerJoins(t *testing.T) {
	tt := newTableTest(t)
	o := NewOwner("")
	a, j1 := tt.begin(o, false)
	_, a2, j2, isNew, err := tt.table.enter(t.Context(), tt.m, asker{owner: o}, false)
	require.NoError(t, err)
	require.False(t, isNew)
	require.Same(t, a, a2)
	h1 := tt.grant(a, j1)
	h2 := (<-j2.result).hold
	require.NotSame(t, h1, h2)
	require.Same(t, h1.d, h2.d)
}

// A try that meets a waiting attempt of its owner is sent away; one that came before is, when it turns out to wait.
func TestLockTable_TriesDoNotWait(t *testing.T) {
	tt := newTableTest(t)
	o := NewOwner("")
	a, waits := tt.begin(o, false)
	_, _, tries, _, err := tt.table.enter(t.Context(), tt.m, asker{owner: o}, true)
	require.NoError(t, err, "it is not known yet that somebody is ahead")

	require.True(t, tt.table.behind(a, standing{place: 2}), "one joiner waits")
	require.ErrorIs(t, (<-tries.result).err, ErrNotAcquired)
	require.Empty(t, waits.result)

	_, _, _, _, err = tt.table.enter(t.Context(), tt.m, asker{owner: o}, true)
	require.ErrorIs(t, err, ErrNotAcquired)
	tt.grant(a, waits)
}

func TestLockTable_OnlyTries_EndTheAttempt(t *testing.T) {
	tt := newTableTest(t)
	o := NewOwner("")
	a, j := tt.begin(o, true)
	require.False(t, tt.table.behind(a, standing{place: 2}))
	require.Empty(t, tt.table.byKey, "it takes no more joiners: the next call begins its own")
	tt.begin(o, true)
	tt.table.fail(a, ErrNotAcquired) // when its node is deleted
	require.ErrorIs(t, (<-j.result).err, ErrNotAcquired)
	require.Len(t, tt.table.byKey, 1, "the next call's attempt is not forgotten with it")
}

// F33: a joiner that leaves at the moment of the grant has either left or is granted. Never both, never neither.
func TestLockTable_LeaveRacesWithGrant(t *testing.T) {
	for range 2000 {
		tt := newTableTest(t)
		o := NewOwner("")
		a, j := tt.begin(o, false)
		tt.table.prepare(a, &era{zkSession: &zkSession{over: make(chan struct{})}}, "/locks/a/n", 7)
		granted := make(chan bool, 1)
		go func() { granted <- tt.table.grant(a) }()
		left, last := tt.table.leave(a, j)
		got := <-granted
		require.NotEqual(t, got, left)
		if left {
			require.True(t, last)
			require.ErrorIs(t, context.Cause(a.ctx), errAbandoned)
			require.Empty(t, j.result)
			require.Empty(t, tt.table.byKey)
			continue
		}
		require.NotNil(t, (<-j.result).hold)
		require.True(t, tt.table.heldBy(tt.m.root, asker{owner: o}))
	}
}

// F33, the other order on its own: a joiner whose context ends after the grant is granted, and the hold is held.
func TestLockTable_LeaveAfterTheGrant_IsGranted(t *testing.T) {
	tt := newTableTest(t)
	o := NewOwner("")
	a, j := tt.begin(o, false)
	tt.table.prepare(a, &era{zkSession: &zkSession{over: make(chan struct{})}}, "/locks/a/n", 7)
	require.True(t, tt.table.grant(a))
	left, last := tt.table.leave(a, j)
	require.False(t, left)
	require.False(t, last)
	require.NotNil(t, (<-j.result).hold)
	require.True(t, tt.table.heldBy(tt.m.root, asker{owner: o}))
}

// The attempt belongs to its owner and not to the call that began it (R24).
func TestLockTable_AttemptEndsWithItsLastJoiner(t *testing.T) {
	tt := newTableTest(t)
	o := NewOwner("")
	a, j1 := tt.begin(o, false)
	_, _, j2, _, _ := tt.table.enter(t.Context(), tt.m, asker{owner: o}, false)
	left, last := tt.table.leave(a, j1)
	require.True(t, left)
	require.False(t, last)
	require.NoError(t, a.ctx.Err())
	left, last = tt.table.leave(a, j2)
	require.True(t, left)
	require.True(t, last)
	require.Error(t, a.ctx.Err())
	require.False(t, tt.table.grant(a), "nobody is there to be granted")
}

// A lost hold is told once to all handles, is never re-entered, and stands in the way until all are released.
func TestLockTable_LostHoldIsNotReentered(t *testing.T) {
	tt := newTableTest(t)
	o := NewOwner("")
	h1 := tt.grant(tt.begin(o, false))
	h2, _, _, _, _ := tt.table.enter(t.Context(), tt.m, asker{owner: o}, false)

	require.False(t, tt.table.lose(h1.d, "/locks/a/earlier", lostBecause(errExpired)), "who comes late means another node")
	require.NoError(t, h1.d.lost)
	require.True(t, tt.table.lose(h1.d, h1.d.node, lostBecause(errExpired)))
	require.False(t, tt.table.lose(h1.d, h1.d.node, lostBecause(errNodeGone)), "R40")
	for _, h := range []*Hold{h1, h2} {
		<-h.Lost()
		cause := context.Cause(h.ctx.Context)
		require.ErrorIs(t, cause, ErrLost)
		require.ErrorIs(t, cause, errExpired)
		require.NotErrorIs(t, cause, errNodeGone)
	}
	require.False(t, tt.table.held(tt.m.root))
	require.False(t, tt.table.heldBy(tt.m.root, asker{owner: o}))

	_, _, _, _, err := tt.table.enter(t.Context(), tt.m, asker{owner: o}, false)
	require.ErrorIs(t, err, ErrLost)
	_, _, lost := tt.table.release(h1)
	require.ErrorIs(t, lost, ErrLost)
	_, _, _, _, err = tt.table.enter(t.Context(), tt.m, asker{owner: o}, true)
	require.ErrorIs(t, err, ErrLost, "one handle is left")
	tt.table.release(h2)
	tt.begin(o, false)
}

// A node that was lost before anybody had a handle on it grants nobody, and does not taint the attempt's next node.
func TestLockTable_LostBeforeTheGrant(t *testing.T) {
	tt := newTableTest(t)
	o := NewOwner("")
	a, j := tt.begin(o, false)
	tt.table.prepare(a, &era{zkSession: &zkSession{over: make(chan struct{})}}, "/locks/a/n1", 7)
	require.False(t, tt.table.lose(a.d, "/locks/a/n1", lostBecause(errExpired)), "there was nobody to tell")
	require.False(t, tt.table.grant(a))

	_, a2, _, isNew, err := tt.table.enter(t.Context(), tt.m, asker{owner: o}, false)
	require.NoError(t, err, "the attempt goes on")
	require.False(t, isNew)
	require.Same(t, a, a2)

	h := tt.grant(a, j)
	require.NoError(t, h.d.lost)
	select {
	case <-h.Lost():
		t.Fatal("lost, with the node before")
	default:
	}
}

func TestLockTable_FailTellsEverybody(t *testing.T) {
	tt := newTableTest(t)
	o, bad := NewOwner(""), errors.New("bad")
	a, j1 := tt.begin(o, false)
	_, _, j2, _, _ := tt.table.enter(t.Context(), tt.m, asker{owner: o}, false)
	tt.table.fail(a, bad)
	require.ErrorIs(t, (<-j1.result).err, bad)
	require.ErrorIs(t, (<-j2.result).err, bad)
	require.Empty(t, tt.table.byKey)
	left, _ := tt.table.leave(a, j1)
	require.False(t, left, "the outcome was there before")
}

// The hold's context has the values of Acquire's, not its end: the usual cancel of the wait must not end the hold.
func TestHoldContext_OutlivesTheWait(t *testing.T) {
	type key struct{}
	tt := newTableTest(t)
	o := NewOwner("")
	ctx, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, "v"))
	_, a, j, _, _ := tt.table.enter(ctx, tt.m, asker{owner: o}, false)
	h := tt.grant(a, j)
	cancel()
	require.Equal(t, "v", h.ctx.Value(key{}))
	require.NoError(t, h.ctx.Context.Err())
	got, ok := OwnerFrom(h.ctx)
	require.True(t, ok)
	require.Equal(t, o, got)
}
