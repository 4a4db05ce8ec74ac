package zklock_test

// These tests reject requests, or respond with unclear errors: a rejection is reported at once, and
// a request with an unclear error is tried again.

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/zktest"
)

// refusal is an error by which a server permanently rejects a request.
type refusal struct {
	code zktest.Code
	err  error  // the client's; nil where it has none
	says string // in the error's text
}

var refusals = []refusal{
	{-2, nil, "runtime inconsistency"},
	{unimplemented, nil, "unimplemented"},
	{badArguments, zk.ErrBadArguments, "invalid arguments"},
	{zktest.NoAuth, zk.ErrNoAuth, "not authenticated"},
	{-108, zk.ErrNoChildrenForEphemerals, "ephemeral nodes may not have children"},
	{-114, zk.ErrInvalidACL, "invalid ACL"},
	{-115, zk.ErrAuthFailed, "authentication failed"},
	{-120, nil, "local session"},
	{quotaExceeded, nil, "quota exceeded"},
}

// requireSays requires that the error of an acquire names the rejection.
func (r refusal) requireSays(t *testing.T, err error) {
	t.Helper()
	var e *zklock.Error
	require.ErrorAs(t, err, &e, "%v", r.code)
	require.ErrorContains(t, err, r.says, "%v", r.code)
	if r.err != nil {
		require.ErrorIs(t, err, r.err)
	}
}

// Errors that prove nothing about a later try or check.
var unclear = []zktest.Code{
	-1, // system error
	-3, // data inconsistency
	-4, // connection loss
	-5, // marshalling: also for a request that was executed without a response
	zktest.OperationTimeout,
	-100, // API error
	-116, // closing
	zktest.SessionMoved,
	-119, // a server that only reads
	-122, // request timeout
}

// F28, R2, R34: a server rejects the create. Acquire returns the error at once, does not try again,
// and leaves no node; the same applies if the lock root is rejected.
func TestVirtual_CreateRefused_ErrorNamesTheRoot(t *testing.T) {
	for _, r := range refusals {
		for _, used := range []bool{false, true} { // whether the list is sent together with the create
			inVirtualTime(t, func(t *testing.T, v *virtual) {
				v.net.SetLatency(time.Millisecond)
				s := v.connect()
				m := newMutex(t, s, "/job")
				if used {
					release(t, acquire(t, m))
				}
				for _, path := range []string{"/job/*", "/new"} {
					refuses := v.srv.Inject(zktest.Before(zktest.Create).Path(path).Fail(r.code))
					if path == "/new" {
						m = newMutex(t, s, "/new/job")
					}
					for _, enter := range []func(context.Context) (*zklock.Hold, error){m.Acquire, m.TryAcquire} {
						v.srv.ResetRequests()
						before := time.Now()
						_, err := enter(within(t, time.Hour))
						r.requireSays(t, err)
						require.Less(t, time.Since(before), time.Second, "%v: waited with it", r.code)
						time.Sleep(time.Minute)
						require.Equal(t, map[string]int{"/job/*": 1, "/new": 6}[path], v.srv.Requests().Total(zktest.Create), "%v", r.code)
					}
					require.Empty(t, v.srv.Children("/job"), "%v", r.code)
					refuses.Remove()
					release(t, acquire(t, m))
				}
			})
		}
	}
}

// F28, R2, I2, I4: the response to the create is unclear, or reports that the server is overloaded.
// Acquire checks, tries again and is granted, on its one node.
func TestVirtual_CreateUnclear_IsTriedAgain(t *testing.T) {
	for _, code := range append([]zktest.Code{zktest.Throttled}, unclear...) {
		inVirtualTime(t, func(t *testing.T, v *virtual) {
			v.net.SetLatency(time.Millisecond)
			s := v.connect()
			m := newMutex(t, s, "/job")
			most := 2 * time.Second
			if code == zktest.SessionMoved { // each ends the connection, and a server is not dialed again within a second
				most += 3 * time.Second
			}
			for _, done := range []bool{false, true} {
				before := len(nodesOf(v.srv.History(), s.Stats().SessionID))
				switch {
				case !done:
					v.srv.Inject(zktest.Before(zktest.Create).Path("/job/*").Fail(code).Times(3))
				case code != zktest.Throttled: // a throttled request is certainly not executed
					v.srv.Inject(zktest.After(zktest.Create).Path("/job/*").Fail(code).Once())
				}
				start := time.Now()
				h := acquire(t, m)
				require.Less(t, time.Since(start), most, "%v", code)
				require.Len(t, nodesOf(v.srv.History(), s.Stats().SessionID), before+1, "%v: I2, done: %v", code, done)
				st, ok := v.srv.Stat(h.Node())
				require.True(t, ok)
				require.Equal(t, st.Czxid, h.Token())
				release(t, h)
				require.Empty(t, v.srv.Children("/job"), "%v", code)
			}
		})
	}
}

// R2, R16, F28, I4: whatever request of an acquire fails after the create, and however it fails, no
// node is left. A rejection is reported. An unclear error is tried again while a caller waits, with
// growing pauses (R25).
func TestVirtual_RequestFailsAfterTheCreate_LeavesNothing(t *testing.T) {
	requests := []struct {
		op   zktest.Op
		path string
	}{
		{zktest.GetChildren, "/job"},
		{zktest.GetData, "/job/*"}, // both watches
		{zktest.Multi, "/job/*"},   // a lease that went stale is renewed before the grant
	}
	all := refusals
	for _, code := range append([]zktest.Code{zktest.Throttled}, unclear...) {
		all = append(all, refusal{code: code})
	}
	for _, request := range requests {
		for _, r := range all {
			inVirtualTime(t, func(t *testing.T, v *virtual) {
				v.net.SetLatency(time.Millisecond)
				h := acquire(t, newMutex(t, v.connect(), "/job"))
				s := v.connect()
				fails := v.srv.Inject(zktest.Before(request.op).Path(request.path).Session(s.Stats().SessionID).Fail(r.code))
				w := v.queueUp(newMutex(t, s, "/job"))
				time.Sleep(20 * time.Second)
				release(t, h)
				time.Sleep(10 * time.Second)
				polls := request.op == zktest.GetData && errors.Is(r.err, zk.ErrNoAuth) // F27
				if r.says != "" && !polls {
					require.True(t, w.isGranted(), "%v: %v is not told", request.op, r.code)
					r.requireSays(t, w.err)
				}
				asked := v.srv.Requests().Of(s.Stats().SessionID, zktest.Create, zktest.GetChildren, zktest.GetData, zktest.Sync, zktest.Multi)
				require.LessOrEqual(t, asked, 80, "%v: %v", request.op, r.code)
				w.stop()
				next, err := w.get(t)
				if err == nil {
					require.True(t, polls || r.says == "")
					release(t, next)
				}
				time.Sleep(10 * time.Second)
				require.Empty(t, v.srv.Children("/job"), "%v: %v", request.op, r.code)
				fails.Remove()
				release(t, acquire(t, newMutex(t, s, "/job")))
			})
		}
	}
}

// F28, R25, I6, I7: a create with unclear errors is tried again with a back-off, and only while a
// caller waits.
func TestVirtual_CreateFailsForEver_BacksOff(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		v.net.SetLatency(time.Millisecond)
		s := v.connect()
		m := newMutex(t, s, "/job")
		v.srv.Inject(zktest.Before(zktest.Create).Session(s.Stats().SessionID).Fail(zktest.OperationTimeout))
		v.srv.ResetRequests()
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_, err := m.Acquire(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		time.Sleep(time.Minute)
		require.LessOrEqual(t, v.srv.Requests().Total(zktest.Create), 12)
		require.Empty(t, v.srv.Children("/job"))
	})
}

// R10: an acquire that gives up returns the reason, although the deletion of its node is rejected
// as well.
func TestVirtual_CleanUpFails_FirstErrorIsReturned(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		h := acquire(t, newMutex(t, v.connect(), "/job"))
		s := v.connect()
		refuses := v.srv.Inject(zktest.Before(zktest.Delete).Session(s.Stats().SessionID).Fail(zktest.NoAuth))
		_, err := newMutex(t, s, "/job").Acquire(within(t, 10*time.Second))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NotErrorIs(t, err, zk.ErrNoAuth)
		_, err = newMutex(t, s, "/job").TryAcquire(within(t, 10*time.Second))
		require.ErrorIs(t, err, zklock.ErrNotAcquired)
		refuses.Remove()
		time.Sleep(6 * time.Second)
		require.Len(t, v.srv.Children("/job"), 1)
		release(t, h)
	})
}
