package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestSequencer_TheResourceTakesAHoldersWriteAndNoOther(t *testing.T) {
	c := serve(t, zooKeeper, Plan{Size: 1, Tick: zkTick})
	s, err := find("zklock-sequencer")
	require.NoError(t, err)
	o := Options{Client: "one", TTL: 20 * time.Second, Size: 1, Tick: zkTick}
	stands, end, err := s.Resource(t.Context(), c.Addrs(), t.Name(), o)
	require.NoError(t, err)
	defer func() { require.NoError(t, end()) }()

	h := acquire(t, client(t, s.Name, c.Addrs(), o))
	_, hasToken := h.Token()
	require.False(t, hasToken, "else it is the token that refuses")
	sequencer := h.(Sequenced).Sequenced()
	yes, err := stands(sequencer)
	require.NoError(t, err)
	require.True(t, yes)
	require.NoError(t, h.Release(t.Context()))
	yes, err = stands(sequencer)
	require.NoError(t, err)
	require.False(t, yes)
	_, err = stands("rubbish")
	require.Error(t, err, "no verdict")
}

func TestLockDelay_AfterACloseInTheMiddleTheNextWaits_AfterAReleaseNot(t *testing.T) {
	c := serve(t, zooKeeper, Plan{Size: 1, Tick: zkTick})
	open := func(who string) Lock {
		return client(t, "zklock-delay", c.Addrs(), Options{Client: who, TTL: 20 * time.Second, Size: 1, Tick: zkTick})
	}
	one, two := open("one"), open("two")
	require.NoError(t, acquire(t, one).Release(t.Context()))
	began := time.Now()
	require.NoError(t, acquire(t, two).Release(t.Context()))
	require.Less(t, time.Since(began), lockDelay, "a release is no failure")
	acquire(t, one)
	began = time.Now()
	require.NoError(t, one.Close())
	require.NoError(t, acquire(t, two).Release(t.Context()))
	require.GreaterOrEqual(t, time.Since(began), lockDelay)
}
