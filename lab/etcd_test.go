package main

// What etcd's mutex promises beyond exclusion: who is told of a loss, and what a majority outlives.

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestEtcd_LeaseRevoked_HolderIsTold_AndTheNextHolds(t *testing.T) {
	c := serve(t, etcdServers, Plan{Size: 1, TTL: 3 * time.Second})
	o := Options{TTL: 3 * time.Second}
	first, second := client(t, "etcd", c.Addrs(), o).(*etcdLock), client(t, "etcd", c.Addrs(), o)
	h := acquire(t, first)
	old, _ := h.Token()
	_, err := first.client.Revoke(t.Context(), first.session.Lease())
	require.NoError(t, err)
	token, _ := acquire(t, second).Token()
	require.Greater(t, token, old)
	select {
	case <-h.Lost():
	case <-time.After(20 * time.Second):
		t.Fatal("it does not tell")
	}
	excluded(t, first) // with a new session
}

func TestEtcd_HolderCrashes_TheLeaseEnds(t *testing.T) {
	const ttl = 3 * time.Second
	c := serve(t, etcdServers, Plan{Size: 1, TTL: ttl})
	first := client(t, "etcd", c.Addrs(), Options{TTL: ttl})
	acquire(t, first)
	require.NoError(t, first.Close())
	second := client(t, "etcd", c.Addrs(), Options{TTL: ttl})
	excluded(t, second)
	acquire(t, second)
}

func TestEtcd_OneOfThreeIsKilled_HolderHolds(t *testing.T) {
	c := serve(t, etcdServers, Plan{Size: 3, TTL: 15 * time.Second})
	o := Options{TTL: 15 * time.Second}
	h := acquire(t, client(t, "etcd", c.Addrs(), o))
	second := client(t, "etcd", c.Addrs(), o)
	for i := range 3 { // one of them leads
		require.NoError(t, c.Kill(i))
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		_, err := second.Acquire(ctx)
		cancel()
		require.Error(t, err)
		require.NoError(t, c.Restart(i))
	}
	select {
	case <-h.Lost():
		t.Fatal("lost")
	default:
	}
	require.NoError(t, h.Release(t.Context()))
	acquire(t, second)
}

// What the minority has, it cannot keep: its lease ends with the majority, and it is told.
func TestEtcd_HolderOnTheMinoritysSide_IsTold_AndTheMajorityGoesOn(t *testing.T) {
	const ttl = 3 * time.Second
	c := serve(t, etcdServers, Plan{Size: 3, TTL: ttl, Split: true})
	for i := range 3 { // one of them leads
		holder := client(t, "etcd", c.Addrs()[i:i+1], Options{TTL: ttl})
		h := acquire(t, holder)
		old, _ := h.Token()
		require.NoError(t, c.(Splitter).Isolate(i))

		next := acquire(t, client(t, "etcd", []string{c.Addrs()[(i+1)%3], c.Addrs()[(i+2)%3]}, Options{TTL: ttl}))
		token, _ := next.Token()
		require.Greater(t, token, old)
		select {
		case <-h.Lost():
		case <-time.After(20 * time.Second):
			t.Fatal("it does not tell")
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		_, err := client(t, "etcd", c.Addrs()[i:i+1], Options{TTL: ttl}).Acquire(ctx)
		cancel()
		require.Error(t, err, "the minority grants nothing")
		require.NotErrorIs(t, err, errBusy)

		require.NoError(t, c.(Splitter).Heal())
		require.NoError(t, next.Release(t.Context()))
	}
}
