package zklock

// These tests attack lockdata.go: owners, and which calls re-enter, wait or are notified.

import (
	"bytes"
	"context"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock/internal/clock"
	"github.com/zklock/zklock/internal/eventlog"
	"github.com/zklock/zklock/internal/lease"
	"github.com/zklock/zklock/internal/link"
	"github.com/zklock/zklock/internal/mux"
	"github.com/zklock/zklock/internal/node"
	"github.com/zklock/zklock/internal/queue"
	"github.com/zklock/zklock/internal/wire"
)

// tableTest is a lock table without a server: the test plays the attempts.
type tableTest struct {
	*testing.T
	table *lockTable
	m     *Mutex
}

func newTableTest(t *testing.T) *tableTest {
	s := &Session{clock: clock.New(nil), log: eventlog.New(slog.New(slog.DiscardHandler)), opts: newSessionOptions(nil), sessionState: new(sessionState)}
	t.Cleanup(s.log.Close)
	s.opts.mode = SingleServerLease()
	s.link = link.New(s.linkOptions([]string{"zk1:2181"}))
	s.locks.byKey = make(map[lockKey]*lockData)
	m, err := NewMutex(s, "/locks/a")
	require.NoError(t, err)
	return &tableTest{t, &s.locks, m}
}

// enter is a call of the owner.
func (t *tableTest) enter(o Owner, try bool) (h *Hold, a *acquisition, err error) {
	h = newHold(t.Context(), try, nil)
	a, err = t.table.enter(h, &t.m.root, caller{owner: o}, nil, plain{}.admitLocked)
	return h, a, err
}

// begin begins an acquisition of the owner.
func (t *tableTest) begin(o Owner, try bool) (*acquisition, *Hold) {
	t.Helper()
	h, a, err := t.enter(o, try)
	require.NoError(t, err)
	require.NotNil(t, a)
	return a, h
}

// onlyConn is a connection over which a ZooKeeper session is attached, 0 for none.
type onlyConn struct {
	conn  uint64
	sends func(*mux.Request) bool // nil: nothing can be sent
	work  sync.WaitGroup
}

func (c *onlyConn) Send(_ *link.ZKSession, r *mux.Request) bool { return c.sends != nil && c.sends(r) }
func (c *onlyConn) AttachedConn(*link.ZKSession) (uint64, <-chan struct{}, error) {
	return c.conn, nil, nil
}
func (c *onlyConn) Spawn(f func()) bool         { c.work.Go(f); return true }
func (c *onlyConn) ClosedErr() error            { return ErrClosed }
func (c *onlyConn) Lost(*link.ZKSession, error) {}
func (c *onlyConn) Nudge()                      {}
func (c *onlyConn) Because(err error) error     { return err }
func (*onlyConn) Executed(wire.Op)              {}

// zkSessionOver returns a ZKSession that is attached over the carrier.
func zkSessionOver(c link.Carrier, conn uint64) *node.ZKSession {
	r := mux.Response{Timeout: 10 * time.Second, SessionID: 7}
	z := link.NewZKSession(c, &eventlog.Log{}, clock.New(nil), lease.SingleServer(), r, "10.0.0.1:2181", conn, lease.Exchange{})
	e := node.NewZKSession(z, 10)
	z.Inside = e
	return e
}

// aZKSession returns a ZKSession without any events.
func aZKSession() *node.ZKSession { return zkSessionOver(&onlyConn{}, 0) }

// grant makes the acquisition succeed.
func (t *tableTest) grant(a *acquisition, h *Hold) *Hold {
	t.Helper()
	t.table.prepare(a.d, grantBasis{e: aZKSession(), token: 7, state: noState{}}, []string{"/locks/a/n"})
	require.True(t, t.table.grant(a, 0))
	require.NoError(t, <-h.outcome)
	return h
}

func TestOwner(t *testing.T) {
	m := newTableTest(t).m
	a := NewOwner("x")
	require.NotEqual(t, a, NewOwner("x"), "a name makes no owner")
	require.Regexp(t, `^x/[0-9a-f]{8}$`, a.String())
	require.Regexp(t, `^[0-9a-f]{8}$`, NewOwner("").String())
	require.Equal(t, "none", Owner{}.String())

	require.Zero(t, m.caller(t.Context(), "", 0).owner)
	require.Zero(t, m.caller(WithOwner(t.Context(), Owner{}), "", 0).owner, "the zero Owner sets none")
	require.Equal(t, a, m.caller(WithOwner(WithOwner(t.Context(), NewOwner("y")), a), "", 0).owner)
}

// R63, R3: each handle is released once, in any order, and the last release deletes the node.
func TestLockTable_ReleaseCountsHandles(t *testing.T) {
	tt := newTableTest(t)
	o := NewOwner("")
	h1 := tt.grant(tt.begin(o, false))
	h2, _, _ := tt.enter(o, true)

	first, last, lost := tt.table.release(h1)
	require.True(t, first)
	require.False(t, last)
	require.NoError(t, lost)
	first, last, _ = tt.table.release(h1)
	require.False(t, first, "the second time is nothing")
	require.False(t, last)
	require.True(t, tt.table.heldBy(&tt.m.root, caller{owner: o}))

	first, last, _ = tt.table.release(h2)
	require.True(t, first)
	require.True(t, last)
	require.False(t, tt.table.heldBy(&tt.m.root, caller{owner: o}))
	require.Empty(t, tt.table.byKey, "I7")
}

// R17: local ownership ends before the node is deleted. A call during the last release begins a new
// acquisition.
func TestLockTable_AcquireDuringTheLastRelease_StartsAfresh(t *testing.T) {
	tt := newTableTest(t)
	o := NewOwner("")
	h := tt.grant(tt.begin(o, false))
	tt.table.release(h)
	a, next := tt.begin(o, false)
	h2 := tt.grant(a, next)
	_, last, _ := tt.table.release(h)
	require.False(t, last, "the old handle cannot touch the new hold")
	require.True(t, tt.table.heldBy(&tt.m.root, caller{owner: o}))
	tt.table.release(h2)
}

// I2: an owner has one acquisition at a time. Its other calls do not join that acquisition but
// wait; a try does not wait once another node is known to be ahead.
func TestLockTable_OneCallAtATime(t *testing.T) {
	tt := newTableTest(t)
	o := NewOwner("")
	for _, first := range []bool{true, false} {
		a, h := tt.begin(o, first)
		_, busy, err := tt.enter(o, true)
		require.ErrorIs(t, err, errBusy, "nobody has said that somebody is ahead")
		require.Same(t, a, busy)
		require.Equal(t, !first, tt.table.noteBehind(a, position{rank: 2}), "a try does not wait")
		_, busy, err = tt.enter(o, true)
		require.ErrorIs(t, err, ErrNotAcquired)
		require.Same(t, a, busy)
		_, busy, err = tt.enter(o, false)
		require.ErrorIs(t, err, errBusy)
		require.Same(t, a, busy)
		tt.table.fail(a, ErrNotAcquired)
		require.ErrorIs(t, <-h.outcome, ErrNotAcquired)
		require.Empty(t, tt.table.byKey)
	}
}

// F33: a call that leaves at the moment of the grant has either left or is granted. Never both,
// never neither.
func TestLockTable_LeaveRacesWithGrant(t *testing.T) {
	for range 2000 {
		tt := newTableTest(t)
		o := NewOwner("")
		a, h := tt.begin(o, false)
		tt.table.prepare(a.d, grantBasis{e: aZKSession(), token: 7, state: noState{}}, []string{"/locks/a/n"})
		granted := make(chan bool, 1)
		go func() { granted <- tt.table.grant(a, 0) }()
		left := tt.table.leave(a)
		got := <-granted
		require.NotEqual(t, got, left)
		if left {
			require.Error(t, a.ctx.Err())
			require.Empty(t, h.outcome)
			require.Empty(t, tt.table.byKey)
			continue
		}
		require.NoError(t, <-h.outcome)
		require.True(t, tt.table.heldBy(&tt.m.root, caller{owner: o}))
	}
}

// F33, the other order on its own: a call whose context ends after the grant is granted, and the
// hold is held.
func TestLockTable_LeaveAfterTheGrant_IsGranted(t *testing.T) {
	tt := newTableTest(t)
	o := NewOwner("")
	a, h := tt.begin(o, false)
	tt.table.prepare(a.d, grantBasis{e: aZKSession(), token: 7, state: noState{}}, []string{"/locks/a/n"})
	require.True(t, tt.table.grant(a, 0))
	require.False(t, tt.table.leave(a))
	require.NoError(t, <-h.outcome)
	require.True(t, tt.table.heldBy(&tt.m.root, caller{owner: o}))
}

// R24: an acquisition ends with its call. It is not granted after that, and the owner's next call
// begins another one.
func TestLockTable_AcquisitionEndsWithItsCall(t *testing.T) {
	tt := newTableTest(t)
	o := NewOwner("")
	a, _ := tt.begin(o, false)
	require.True(t, tt.table.leave(a))
	require.Error(t, a.ctx.Err())
	require.False(t, tt.table.grant(a, 0), "nobody is there to be granted")
	next, _ := tt.begin(o, false)
	require.NotSame(t, a, next)
	require.Equal(t, []*acquisition{a}, next.earlier, "a try must not take its node for somebody's")
	tt.table.fail(a, ErrClosed)
	require.Len(t, tt.table.byKey, 1, "the next one is not forgotten with it")
	next.finished()
	require.Empty(t, next.earlier, "I7: what has ended keeps nothing")
}

// A lost hold notifies each handle once, is never re-entered, and blocks its owner until all
// handles are released.
func TestLockTable_LostHoldIsNotReentered(t *testing.T) {
	tt := newTableTest(t)
	o := NewOwner("")
	h1 := tt.grant(tt.begin(o, false))
	h2, _, _ := tt.enter(o, false)

	require.False(t, h1.d.loseNode("/locks/a/earlier", link.ErrExpired, 0), "who comes late means another node")
	require.NoError(t, h1.d.lost)
	require.True(t, h1.d.loseNode(h1.d.node, link.ErrExpired, 0))
	require.False(t, h1.d.loseNode(h1.d.node, link.ErrNodeGone, 0), "R40")
	for _, h := range []*Hold{h1, h2} {
		<-h.Lost()
		cause := context.Cause(h.ctx.Context)
		require.ErrorIs(t, cause, ErrLost)
		require.ErrorIs(t, cause, link.ErrExpired)
		require.NotErrorIs(t, cause, link.ErrNodeGone)
	}
	require.False(t, tt.table.held(&tt.m.root))
	require.False(t, tt.table.heldBy(&tt.m.root, caller{owner: o}))

	_, _, err := tt.enter(o, false)
	require.ErrorIs(t, err, ErrLost)
	_, _, lost := tt.table.release(h1)
	require.ErrorIs(t, lost, ErrLost)
	_, _, err = tt.enter(o, true)
	require.ErrorIs(t, err, ErrLost, "one handle is left")
	tt.table.release(h2)
	tt.begin(o, false)
}

// A caller that checks its hold while the session ends may mark the loss before the session reports
// it. The loss is still logged, once (R91).
func TestLockTable_SeenBeforeTheNotification_IsLoggedOnce(t *testing.T) {
	tt := newTableTest(t)
	h := tt.grant(tt.begin(NewOwner(""), false))
	var lines bytes.Buffer
	log := eventlog.New(slog.New(slog.NewTextHandler(&lines, nil)))
	h.d.e.Log = log
	h.d.e.Lose(link.ErrExpired) // which is to tell its holds next
	require.ErrorIs(t, h.Err(), ErrLost)
	require.False(t, h.d.Lose(h.d.node, link.ErrExpired, 0), "it was told")
	require.ErrorIs(t, h.Err(), ErrLost)
	log.Close() // waits until all is written
	require.Equal(t, 1, strings.Count(lines.String(), "hold lost"), lines.String())
}

// A node that was lost before any caller had a handle on it grants no call, and does not affect the
// attempt's next node.
func TestLockTable_LostBeforeTheGrant(t *testing.T) {
	tt := newTableTest(t)
	o := NewOwner("")
	a, h := tt.begin(o, false)
	tt.table.prepare(a.d, grantBasis{e: aZKSession(), token: 7, state: noState{}}, []string{"/locks/a/n1"})
	require.False(t, a.d.loseNode("/locks/a/n1", link.ErrExpired, 0), "there was nobody to tell")
	require.False(t, tt.table.grant(a, 0))

	_, a2, err := tt.enter(o, false)
	require.ErrorIs(t, err, errBusy, "the attempt goes on")
	require.Same(t, a, a2)

	tt.grant(a, h)
	require.NoError(t, h.d.lost)
	select {
	case <-h.Lost():
		t.Fatal("lost, with the node before")
	default:
	}
}

// I7: another client deletes the node of a hold. The caller's next acquire may need the capacity
// that the node took. The node no longer counts when the hold's context ends.
func TestLockTable_DeletedNode_FreesItsPlaceFirst(t *testing.T) {
	tt := newTableTest(t)
	for range 500 {
		h := tt.grant(tt.begin(NewOwner(""), false))
		e, node := h.d.e, h.d.node
		require.NoError(t, e.Own.Claim(node))
		ok, err := e.Hold(node, h.d)
		require.NoError(t, err)
		require.True(t, ok)
		room := make(chan error)
		go func() {
			for h.ctx.Context.Err() == nil { // it is awake when the context ends, as if on another processor
				runtime.Gosched()
			}
			_, err := e.Own.Reserve(10, 0)
			room <- err
		}()
		e.LoseNode(node, link.ErrNodeGone)
		require.NoError(t, <-room)
		tt.table.release(h)
	}
}

// Under a write hold, the next read may begin before the last one has ended (I1).
func TestLeavePair_TheNextSecondStays(t *testing.T) {
	table := new(lockTable)
	first, next := &lockData{table: table}, &lockData{table: table}
	p := &pair{first: first, second: next}
	last := &lockData{table: table}
	require.Nil(t, p.leavePair(last, nil), "the next one needs the second's node")
	require.Same(t, next, p.second)
}

// I1: under a write hold, a read lock is lost, and its handles are released before its loss has
// been dealt with. The writer's next read finds the loss: another client could delete the new node,
// too.
func TestPair_SecondLost_NextReadIsLost(t *testing.T) {
	tt := newTableTest(t)
	w := &lockData{table: tt.table, key: lockKey{path: "/locks/a", share: queue.WriteName}, root: &tt.m.root}
	p := &pair{first: w, byFirst: true, second: &lockData{lost: ErrLost}}
	w.grantBasis = grantBasis{e: aZKSession(), node: "/locks/a/n", state: p}
	tt.table.byKey[w.key] = w
	_, err := readSide{}.admitLocked(tt.table, &lockData{key: lockKey{path: "/locks/a", share: queue.ReadName}, root: &lockRoot{other: queue.WriteName}})
	require.ErrorIs(t, err, ErrLost)
}

// The hold's context has the values of Acquire's context, but does not end with it: the usual
// cancel of the wait must not end the hold.
func TestHoldContext_OutlivesTheWait(t *testing.T) {
	type key struct{}
	tt := newTableTest(t)
	o := NewOwner("")
	ctx, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, "v"))
	h := newHold(ctx, false, nil)
	a, err := tt.table.enter(h, &tt.m.root, caller{owner: o}, nil, plain{}.admitLocked)
	require.NoError(t, err)
	tt.grant(a, h)
	cancel()
	require.Equal(t, "v", h.ctx.Value(key{}))
	require.NoError(t, h.ctx.Context.Err())
	require.Same(t, h, heldIn(h.ctx, holdKey{table: tt.table, root: tt.m.root.Path()}))
	require.Equal(t, o, h.Owner())
}
