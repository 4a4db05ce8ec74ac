package zklock_test

// These tests attack SetLimit and Limit: two concurrent calls, lost responses, and a node that is
// missing or has other data.

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/zktest"
)

func (v *virtual) withLimit(n int, opts ...zklock.Option) *zklock.Semaphore {
	return newSemaphore(v.t, v.connect(opts...), semPath, n, zklock.WithSharedLimit(semLimit))
}

func limitOf(t testing.TB, sem *zklock.Semaphore) int {
	t.Helper()
	n, err := sem.Limit(within(t, soon))
	require.NoError(t, err)
	return n
}

// Acquires use the limit that was set, at once, in the format of Curator's SharedCount. The node
// and its parents are created.
func TestVirtual_SetLimit_IsWhatAcquiresGoBy(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		sem := v.withLimit(2)
		require.Equal(t, 2, limitOf(t, sem), "what it would start with")
		_, there := v.srv.Stat(semLimit)
		require.False(t, there, "a look makes nothing")
		for _, n := range []int{0, 1 << 24, 1} {
			require.NoError(t, v.withLimit(7).SetLimit(within(t, soon), n))
			require.Equal(t, n, limitOf(t, sem))
		}
		data, _ := v.srv.Get(semLimit)
		require.Equal(t, []byte{0, 0, 0, 1}, data)
		h := take(t, sem.Permits(1))
		w := v.lineUp(v.withLimit(2).Permits(1))
		time.Sleep(time.Minute)
		require.False(t, w.isGranted())
		require.NoError(t, sem.SetLimit(within(t, soon), 2))
		release(t, w.granted2(t, time.Second))
		release(t, h)

		require.NoError(t, v.srv.SetData(semLimit, []byte("1000")))
		_, err := sem.Limit(within(t, soon))
		require.ErrorContains(t, err, semLimit+` has "1000"`)
		require.True(t, zklock.IsFinal(err))
		require.NoError(t, sem.SetLimit(within(t, soon), 3), "what is no limit is replaced")
		require.Equal(t, 3, limitOf(t, sem))
	})
}

// Two concurrent SetLimit calls do not overwrite each other: one of them gets an error with the
// other one's limit, and may try again.
func TestVirtual_SetLimit_TwoAtOnce_OneGetsAnError(t *testing.T) {
	for _, there := range []bool{true, false} {
		inVirtualTime(t, func(t *testing.T, v *virtual) {
			v.net.SetLatency(10 * time.Millisecond)
			if there {
				require.NoError(t, v.withLimit(1).SetLimit(within(t, soon), 1))
			}
			sems := []*zklock.Semaphore{v.withLimit(1), v.withLimit(1)}
			errs := make([]error, 2)
			var all sync.WaitGroup
			for i, sem := range sems {
				all.Go(func() { errs[i] = sem.SetLimit(context.Background(), 5+i) })
			}
			all.Wait()
			lost := 0
			if errs[0] == nil {
				lost = 1
			}
			if there {
				require.NoError(t, errs[1-lost])
				require.ErrorIs(t, errs[lost], zk.ErrBadVersion)
				require.ErrorContains(t, errs[lost], fmt.Sprintf("zklock: set limit %s: ", semPath))
				require.ErrorContains(t, errs[lost], fmt.Sprintf("set %s meanwhile, to %d: ask for the limit", semLimit, 6-lost))
				require.False(t, zklock.IsFinal(errs[lost]))
				require.Equal(t, 6-lost, limitOf(t, sems[0]))
			} else { // one created it, and the other set it afterwards
				require.NoError(t, errs[0])
				require.NoError(t, errs[1])
				require.Contains(t, []int{5, 6}, limitOf(t, sems[0]))
			}
			require.NoError(t, sems[lost].SetLimit(within(t, soon), 9))
			require.Equal(t, 9, limitOf(t, sems[0]))
		})
	}
}

// F3: the response is lost, after or before the limit was set or the node created. The call finds
// out, and sets the limit once. If another client sets it before the call has found out, it is not
// set back.
func TestVirtual_SetLimit_AnswerLost_IsSetOnce(t *testing.T) {
	for name, f := range map[string]zktest.Fault{
		"set": zktest.After(zktest.SetData).DropReply().Close(), "not set": zktest.Before(zktest.SetData).Close(),
		"made": zktest.After(zktest.Multi).DropReply().Close(), "not made": zktest.Before(zktest.Multi).Close(),
	} {
		for _, other := range []bool{false, true} {
			inVirtualTime(t, func(t *testing.T, v *virtual) {
				sem := v.withLimit(1)
				if name == "set" || name == "not set" {
					v.setLimitNode(t, 1)
				}
				if f = f.Once(); name == "set" || name == "not set" {
					f = f.Path(semLimit)
				}
				if other {
					f = f.Call(func() { v.setLimitNode(t, 7) })
				}
				fault := v.srv.Inject(f)
				err := sem.SetLimit(within(t, time.Minute), 4)
				require.Equal(t, 1, fault.Fired(), name)
				if !other {
					require.NoError(t, err, name)
					require.Equal(t, 4, limitOf(t, sem), name)
					return
				}
				if err != nil {
					require.ErrorIs(t, err, zk.ErrBadVersion, name)
					require.Equal(t, 7, limitOf(t, sem), "%s: what somebody else has set since stays", name)
				} else { // the node did not exist when the call began, so it replaces the value that it finds
					require.Contains(t, []string{"made", "not made"}, name)
					require.Equal(t, 4, limitOf(t, sem), name)
				}
			})
		}
	}
}

// setLimitNode has another client write the limit, whether the node exists or not.
func (v *virtual) setLimitNode(t *testing.T, n byte) {
	t.Helper()
	if v.srv.SetData(semLimit, []byte{0, 0, 0, n}) == nil {
		return
	}
	if _, there := v.srv.Stat("/job/limits"); !there {
		_, err := v.srv.Create("/job/limits", nil, 0)
		require.NoError(t, err)
	}
	_, err := v.srv.Create(semLimit, []byte{0, 0, 0, n}, 0)
	require.NoError(t, err)
}

// I6: both calls end with their context if no server responds, and SetLimit reports that the result
// is unknown. Bad input is final, and sends nothing.
func TestVirtual_SetLimit_EndsWithItsContext(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		sem := v.withLimit(1)
		require.NoError(t, sem.SetLimit(within(t, soon), 1))
		before := v.srv.Zxid()
		fixed := newSemaphore(t, v.connect(), semPath, 3)
		_, err := fixed.Limit(within(t, soon))
		var none context.Context
		for says, err := range map[string]error{
			"the limit is fixed, 3: give NewSemaphore WithSharedLimit":     err,
			"set limit " + semPath + ": the limit is fixed":                fixed.SetLimit(within(t, soon), 1),
			"a limit of -1 permits: give 0 to 16777216":                    sem.SetLimit(within(t, soon), -1),
			"a limit of 16777217 permits":                                  sem.SetLimit(within(t, soon), 1<<24+1),
			"nil context":                                                  sem.SetLimit(none, 1),
			"nil or zero Semaphore: use the one that NewSemaphore returns": (*zklock.Semaphore)(nil).SetLimit(within(t, soon), 1),
		} {
			require.ErrorContains(t, err, says)
			require.True(t, zklock.IsFinal(err), says)
		}
		require.Equal(t, before+1, v.srv.Zxid(), "the other session's own")

		v.srv.Inject(zktest.Before(zktest.SetData).Path(semLimit).Hold())
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		err = sem.SetLimit(ctx, 2)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "the limit may or may not be set")
		v.srv.Freeze()
		_, err = sem.Limit(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NotContains(t, err.Error(), "may or may not")
		ctx2, cancel2 := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel2()
		_, err = sem.Limit(ctx2)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.LessOrEqual(t, time.Since(began), 11*time.Second)
	})
}

// Without WRITE the error names the permission, and is final. The same applies to CREATE on a node
// above the limit's missing parent.
func TestVirtual_SetLimit_NoWrite(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		v.net.SetLatency(time.Millisecond)
		sem := v.withLimit(1)
		require.NoError(t, sem.SetLimit(within(t, soon), 1))
		_, err := v.connect().Conn().SetACL(semLimit, zk.WorldACL(zk.PermRead), -1)
		require.NoError(t, err)
		err = sem.SetLimit(within(t, soon), 2)
		require.ErrorContains(t, err, "set: no WRITE permission on "+semLimit)
		require.True(t, zklock.IsFinal(err))
		require.Equal(t, 1, limitOf(t, sem))
		err = newSemaphore(t, v.connect(), semPath, 3, zklock.WithSharedLimit(semLimit+"/a/b")).SetLimit(within(t, soon), 2)
		require.ErrorContains(t, err, "create: no CREATE permission on "+semLimit)
		require.True(t, zklock.IsFinal(err))
	})
}
