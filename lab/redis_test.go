package main

// The faults of the locks on Redis, each staged step by step, and where the same steps do no harm.

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// step is a hook of the Redis client: it runs functions before the client sends a command of that name, and when it has the answer.
// An error of the first is the command's, which is not sent.
type step struct {
	command string
	before  func() error
	after   func()
}

func (s step) DialHook(next redis.DialHook) redis.DialHook { return next }
func (s step) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (s step) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() != s.command {
			return next(ctx, cmd)
		}
		if s.before != nil {
			if err := s.before(); err != nil {
				cmd.SetErr(err)
				return err
			}
		}
		err := next(ctx, cmd)
		if s.after != nil {
			s.after()
		}
		return err
	}
}

// server connects to a server beside the locks.
func server(t *testing.T, addr string) *redis.Client {
	c := redisClient(addr)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

// vanished waits until the server has the key no more.
func vanished(t *testing.T, c *redis.Client, key string) {
	t.Helper()
	require.Eventually(t, func() bool {
		n, err := c.Exists(t.Context(), key).Result()
		return err == nil && n == 0
	}, 20*time.Second, 5*time.Millisecond)
}

var errCrash = errors.New("crashed")

func TestRedis_CrashBetweenSetnxAndExpire_HeldForEver(t *testing.T) {
	c := serve(t, redisServers, Plan{Size: 1})
	o := Options{TTL: 100 * time.Millisecond}
	crashes := client(t, "redis-setnx-expire", c.Addrs(), o).(*naiveLock)
	crashes.client.AddHook(step{command: "pexpire", before: func() error { return errCrash }})

	_, err := crashes.Acquire(t.Context())
	require.ErrorIs(t, err, errCrash)
	require.NoError(t, crashes.Close())

	ttl, err := server(t, c.Addrs()[0]).PTTL(t.Context(), t.Name()).Result()
	require.NoError(t, err)
	require.EqualValues(t, -1, ttl, "the key has no time")
	excluded(t, client(t, "redis-setnx-expire", c.Addrs(), o)) // four times the lock's time
}

func TestRedis_Getset_TheLoserMovesTheWinnersTime(t *testing.T) {
	c := serve(t, redisServers, Plan{Size: 1})
	crashed := client(t, "redis-setnx-getset", c.Addrs(), Options{TTL: 50 * time.Millisecond})
	acquire(t, crashed)
	require.NoError(t, crashed.Close())

	winner := client(t, "redis-setnx-getset", c.Addrs(), Options{TTL: time.Minute}).(*naiveLock)
	loser := client(t, "redis-setnx-getset", c.Addrs(), Options{TTL: time.Hour}).(*naiveLock)
	var won Hold
	loser.client.AddHook(step{command: "getset", before: func() error { // it has seen the old time
		if won == nil {
			won = acquire(t, winner)
		}
		return nil
	}})
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err := loser.Acquire(ctx)
	require.ErrorIs(t, err, errBusy)
	require.NotNil(t, won)

	value, err := server(t, c.Addrs()[0]).Get(t.Context(), t.Name()).Int64()
	require.NoError(t, err)
	require.Greater(t, time.Until(time.UnixMilli(value)), 30*time.Minute, "the winner asked for a minute")
}

// late has one hold beyond its time, a second take the lock, and the first release. It returns the second's key in the server.
func late(t *testing.T, name string, release func(first Lock, h Hold)) (second Lock, exists bool) {
	c := serve(t, redisServers, Plan{Size: 1})
	s := server(t, c.Addrs()[0])
	first := client(t, name, c.Addrs(), Options{TTL: 50 * time.Millisecond})
	h := acquire(t, first)
	vanished(t, s, t.Name())
	second = client(t, name, c.Addrs(), Options{TTL: time.Minute})
	acquire(t, second)
	release(first, h)
	n, err := s.Exists(t.Context(), t.Name()).Result()
	require.NoError(t, err)
	return second, n == 1
}

func TestRedis_DelWithoutALook_FreesTheNext(t *testing.T) {
	_, exists := late(t, "redis-del", func(_ Lock, h Hold) { require.NoError(t, h.Release(t.Context())) })
	require.False(t, exists)
}

func TestRedis_LookBeforeTheDel_SparesTheNext(t *testing.T) {
	_, exists := late(t, "redis-look-del", func(_ Lock, h Hold) { require.ErrorIs(t, h.Release(t.Context()), errNotOurs) })
	require.True(t, exists)
}

func TestRedis_TimeEndsBetweenLookAndDel_FreesTheNext(t *testing.T) {
	c := serve(t, redisServers, Plan{Size: 1})
	s := server(t, c.Addrs()[0])
	first := client(t, "redis-look-del", c.Addrs(), Options{TTL: time.Minute}).(*naiveLock)
	second := client(t, "redis-look-del", c.Addrs(), Options{TTL: time.Minute})
	first.client.AddHook(step{command: "del", before: func() error {
		require.NoError(t, s.PExpire(t.Context(), t.Name(), time.Millisecond).Err()) // its time ends now
		vanished(t, s, t.Name())
		acquire(t, second)
		return nil
	}})
	require.NoError(t, acquire(t, first).Release(t.Context()))
	n, err := s.Exists(t.Context(), t.Name()).Result()
	require.NoError(t, err)
	require.Zero(t, n, "the second's key is deleted")
}

func TestRedis_CompareAndDelete_SparesTheNext(t *testing.T) {
	for _, name := range []string{"redis-px", "redis-setnx-expire"} {
		t.Run(name, func(t *testing.T) {
			_, exists := late(t, name, func(_ Lock, h Hold) { require.Error(t, h.Release(t.Context())) })
			require.True(t, exists)
		})
	}
}

func TestRedis_WatchdogExtends_AndTellsOfALoss(t *testing.T) {
	c := serve(t, redisServers, Plan{Size: 1})
	s := server(t, c.Addrs()[0])
	for _, name := range []string{"redis-px-watchdog", "redisson"} {
		t.Run(name, func(t *testing.T) {
			h := acquire(t, client(t, name, c.Addrs(), Options{TTL: 3 * time.Second}))
			extended := func() bool { // its time grows again, which it does not by itself
				was, err := s.PTTL(t.Context(), t.Name()).Result()
				require.NoError(t, err)
				time.Sleep(100 * time.Millisecond)
				now, err := s.PTTL(t.Context(), t.Name()).Result()
				require.NoError(t, err)
				return now > was
			}
			require.Eventually(t, extended, 20*time.Second, time.Millisecond)

			require.NoError(t, s.Del(t.Context(), t.Name()).Err())
			if name == "redisson" {
				require.Nil(t, h.Lost()) // it does not tell
			} else {
				select {
				case <-h.Lost():
				case <-time.After(20 * time.Second):
					t.Fatal("it does not tell")
				}
			}
			require.Error(t, h.Release(t.Context()))
		})
	}
}

func TestRedisson_CountsReentry(t *testing.T) {
	c := serve(t, redisServers, Plan{Size: 1})
	l := client(t, "redisson", c.Addrs(), Options{TTL: time.Minute})
	other := client(t, "redisson", c.Addrs(), Options{TTL: time.Minute})
	first, second := acquire(t, l), acquire(t, l)
	require.NoError(t, second.Release(t.Context()))
	excluded(t, other)
	require.NoError(t, first.Release(t.Context()))
	acquire(t, other)
}

// A waiter asks twice: at once, and when it is subscribed. Then it waits for a message, or for the holder's time to be over.
func TestRedisson_Waiter_IsWokenByTheMessageAlone(t *testing.T) {
	c := serve(t, redisServers, Plan{Size: 1})
	s := server(t, c.Addrs()[0])
	o := Options{TTL: time.Hour}
	for _, message := range []bool{true, false} {
		holder := client(t, "redisson", c.Addrs(), o).(*redissonLock)
		h := acquire(t, holder)
		waiter := client(t, "redisson", c.Addrs(), o).(*redissonLock)
		answered := make(chan struct{}, 100)
		waiter.client.AddHook(step{command: "evalsha", after: func() { answered <- struct{}{} }})
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		result := make(chan error, 1)
		go func() {
			_, err := waiter.Acquire(ctx)
			result <- err
		}()
		<-answered
		<-answered
		if message {
			require.NoError(t, h.Release(t.Context()))
			require.NoError(t, <-result)
			require.NoError(t, s.Del(t.Context(), t.Name()).Err())
		} else {
			require.NoError(t, s.Del(t.Context(), t.Name()).Err()) // as if the message were lost
			select {
			case err := <-result:
				t.Fatalf("it waits no more: %v", err)
			case <-time.After(time.Second):
			}
			cancel()
			require.ErrorIs(t, <-result, errBusy)
		}
	}
}

func TestRedlock_AMajorityIsEnough_AndNeeded(t *testing.T) {
	c := serve(t, redisServers, Plan{Size: 5})
	o := Options{TTL: 2 * time.Second}
	for i := range 2 {
		require.NoError(t, c.Kill(i))
	}
	h := acquire(t, client(t, "redlock", c.Addrs(), o))
	require.NoError(t, h.(Looker).Look())
	excluded(t, client(t, "redlock", c.Addrs(), o))
	require.NoError(t, h.Release(t.Context()))

	require.NoError(t, c.Kill(2))
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err := client(t, "redlock", c.Addrs(), o).Acquire(ctx)
	require.Error(t, err)
	require.NotErrorIs(t, err, errBusy)

	require.NoError(t, c.Restart(2))
	acquire(t, client(t, "redlock", c.Addrs(), o))
}

// Three of five that start again without what they had are a majority for a second holder.
func TestRedlock_ThreeServersForget_TwoHold(t *testing.T) {
	c := serve(t, redisServers, Plan{Size: 5})
	o := Options{TTL: time.Minute}
	first := acquire(t, client(t, "redlock", c.Addrs(), o))
	second := client(t, "redlock", c.Addrs(), o)
	for i := range 3 {
		excluded(t, second)
		require.NoError(t, c.Kill(i))
		require.NoError(t, c.Restart(i))
	}
	acquire(t, second)
	require.NoError(t, first.(Looker).Look(), "the first believes that it holds")
}

func TestRedlock_ClocksJump(t *testing.T) {
	clocks, err := newClocks(t.Context(), t.TempDir(), 5)
	installed(t, err)
	c := serve(t, redisServers, Plan{Size: 5, Env: clocks.env})
	o := Options{TTL: time.Minute}
	first := acquire(t, client(t, "redlock", c.Addrs(), o))
	second := client(t, "redlock", c.Addrs(), o)
	for i := range 3 {
		excluded(t, second)
		require.NoError(t, clocks.jump(i, 2*time.Minute))
	}
	// A try whose context ends in its middle leaves its keys on the servers that it has reached, for a minute.
	for i := range 3 {
		require.NoError(t, clocks.jump(i, 4*time.Minute))
	}
	acquire(t, second)
	require.NoError(t, first.(Looker).Look(), "the first believes that it holds")
}

func TestClocks_Jump(t *testing.T) {
	clocks, err := newClocks(t.Context(), t.TempDir(), 1)
	installed(t, err)
	c := serve(t, redisServers, Plan{Size: 1, Env: clocks.env})
	s := server(t, c.Addrs()[0])
	for _, d := range []time.Duration{0, 90*time.Minute + 999999*time.Microsecond, -(90*time.Minute + 999999*time.Microsecond), 0} {
		require.NoError(t, clocks.jump(0, d))
		earliest := time.Now().Add(d)
		var now time.Time
		require.Eventually(t, func() bool { // the server keeps the time of its last round for a moment
			var err error
			now, err = s.Time(t.Context()).Result()
			return err == nil && !now.Before(earliest.Truncate(time.Microsecond)) && !now.After(time.Now().Add(d))
		}, 10*time.Second, time.Millisecond, d)
	}
}

func TestReplica_PromotedBeforeItHasTheWrite_TwoHold(t *testing.T) {
	for _, cut := range []bool{false, true} {
		c := serve(t, redisWithReplica, Plan{Size: 2})
		replica := server(t, c.Addrs()[1])
		o := Options{TTL: time.Minute}
		if cut {
			require.NoError(t, c.(Replica).CutReplication())
		}
		acquire(t, client(t, "redis-px-replica", c.Addrs(), o))
		if !cut {
			require.Eventually(t, func() bool { return replica.Exists(t.Context(), t.Name()).Val() == 1 }, 10*time.Second, time.Millisecond)
		}
		require.NoError(t, c.(Replica).Promote())
		after := client(t, "redis-px-replica", c.Addrs()[1:], o) // as its relay would lead it
		if cut {
			acquire(t, after)
		} else {
			excluded(t, after)
		}
	}
}

func TestRedis_Killed_RemembersWhatIsOnDisk(t *testing.T) {
	for _, kind := range []*ServerKind{redisServers, redisOnDisk} {
		t.Run(kind.Name, func(t *testing.T) {
			c := serve(t, kind, Plan{Size: 1})
			acquire(t, client(t, "redis-px", c.Addrs(), Options{TTL: time.Minute}))
			require.NoError(t, c.Kill(0))
			require.Equal(t, []int{0}, c.Pids())
			require.NoError(t, c.Restart(0))
			after := client(t, "redis-px", c.Addrs(), Options{TTL: time.Minute})
			if kind == redisOnDisk {
				excluded(t, after)
			} else {
				acquire(t, after)
			}
		})
	}
}

func TestServers_StopAndCont(t *testing.T) {
	for _, kind := range []*ServerKind{redisServers, postgresServers, mariadbServers, etcdServers} {
		t.Run(kind.Name, func(t *testing.T) {
			c := serve(t, kind, Plan{Size: 1})
			var s *System
			for _, s = range systems {
				if s.Server == kind && s.Sizes[0] == 1 {
					break
				}
			}
			l := client(t, s.Name, c.Addrs(), Options{Client: "one", TTL: time.Minute})
			require.NoError(t, acquire(t, l).Release(t.Context())) // its connection is there
			require.NoError(t, c.Stop(0))
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err := l.Acquire(ctx)
			require.Error(t, err)
			require.NoError(t, c.Cont(0))
			again := client(t, s.Name, c.Addrs(), Options{Client: "one again", TTL: time.Minute})
			require.NotNil(t, again)
			require.NoError(t, c.Kill(0))
			_, err = net.Dial("tcp", c.Addrs()[0])
			require.Error(t, err)
			require.NoError(t, c.Restart(0))
			require.NotContains(t, c.Pids(), 0)
		})
	}
}
