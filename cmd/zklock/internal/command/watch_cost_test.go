package command

// These tests count what a change costs ls --watch, in requests and events.

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/zktest"
)

// With 1,000 waiters a change costs one event and one list, and a read if somebody came: the figures of docs/command.md. A node is read once.
func TestWatch_ThousandWaiters_WhatAChangeCosts(t *testing.T) {
	const waiters = 1000
	inWatch(t, func(t *testing.T, w *watching) {
		var nodes []string
		create := func() {
			node, err := w.srv.Create(fmt.Sprintf("/job/_c_8b4041d7-3154-4c53-836b-%012d-lock-", len(nodes)), []byte("db1:4711"), 2)
			require.NoError(t, err)
			nodes = append(nodes, node)
		}
		_, err := w.srv.Create("/job", nil, 0)
		require.NoError(t, err)
		for range 1 + waiters {
			create()
		}
		w.watch(nil, "/job")
		require.Len(t, w.out.take(), 1+waiters)
		for _, tt := range []struct {
			name                 string
			change               func()
			lines, events, reads int
		}{
			{"somebody comes", create, 1, 1, 1},
			{"somebody gives up", func() { require.NoError(t, w.srv.Delete(nodes[waiters/2])) }, 1, 1, 0},
			{"the holder goes, and the next holds", func() { require.NoError(t, w.srv.Delete(nodes[0])) }, 2, 1, 0},
			{"somebody's data changes", func() { require.NoError(t, w.srv.SetData(nodes[1], []byte("x"))) }, 0, 0, 0},
		} {
			w.srv.ResetRequests()
			tt.change()
			synctest.Wait()
			require.Len(t, w.out.take(), tt.lines, tt.name)
			counts := w.srv.Requests()
			require.Equal(t, tt.events, counts.Events, tt.name)
			require.Equal(t, tt.reads, counts.Of(w.s.SessionID(), zktest.GetData), tt.name)
			require.Equal(t, tt.events+tt.reads, counts.Of(w.s.SessionID()), "%s: %v", tt.name, counts)
		}
		w.srv.ResetRequests()
		time.Sleep(time.Hour)
		require.Zero(t, w.srv.Requests().Of(w.s.SessionID(), zktest.GetChildren, zktest.GetData), "it does not poll")
	})
}

// Of a semaphore, and of a lock with a lock-delay, a change costs a few more.
func TestWatch_OtherRecipes_WhatAChangeCosts(t *testing.T) {
	inWatch(t, func(t *testing.T, w *watching) {
		sem, err := zklock.NewSemaphore(w.connect(), "/sem", 2, named("a"))
		require.NoError(t, err)
		w.acquire(sem.Permits(1)).release()
		const d = time.Minute
		first := w.acquire(w.mutex("a", "/job", zklock.WithLockDelay(d)))
		w.acquire(w.mutex("b", "/job", zklock.WithLockDelay(d)))
		other := w.mutex("c", "/job", zklock.WithLockDelay(d))
		w.watch(nil, "/sem", "/job")
		costs := func(most int, change func()) {
			t.Helper()
			w.srv.ResetRequests()
			change()
			synctest.Wait()
			require.LessOrEqual(t, w.srv.Requests().Of(w.s.SessionID()), most)
			require.NotEmpty(t, w.out.take())
		}
		var taken *taker
		costs(5, func() { taken = w.acquire(sem.Permits(1)) })
		costs(2, func() { taken.release() })
		costs(3, func() { w.acquire(other) })
		costs(6, first.release)
	})
}
