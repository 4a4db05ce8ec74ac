package zklock_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/zktest"
)

// R65, F42: the lease ended over a hold, and the server takes no close for it. The session that was given up is touched no
// more: it is gone T and a tick after the network was well, and the Session is in another one before.
func TestVirtual_GivenUpSession_CloseRefused_IsLeftToExpire(t *testing.T) {
	const authRequired = zktest.Code(-124)
	for name, refuse := range map[string]func(zktest.Fault) zktest.Fault{
		"an answer that says no": func(f zktest.Fault) zktest.Fault { return f.Fail(authRequired) },
		"an answer gets lost":    func(f zktest.Fault) zktest.Fault { return f.Fail(authRequired).Once() },
	} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, v *virtual) {
				line := &line{dial: v.net.Dial}
				s := v.connect(zklock.WithDialer(line.Dial), zklock.WithSessionTimeout(8*time.Second), zklock.WithAuth("digest", []byte("u:p")))
				h := acquire(t, newMutex(t, s, "/job"))
				time.Sleep(20 * time.Second)
				old := s.SessionID()
				v.srv.Inject(refuse(zktest.Before(zktest.CloseSession).Session(old)))
				line.silent.Store(true)
				<-h.Lost()
				_, there := v.srv.Stat(h.Path())
				require.True(t, there, "told before the servers end the session")
				line.silent.Store(false)
				healed := time.Now()
				next, err := newMutex(t, v.connect(), "/job").Acquire(within(t, time.Minute))
				require.NoError(t, err)
				// The dial that is under way, the client's pause of a second, the try to end it, and then T and a tick.
				require.LessOrEqual(t, time.Since(healed), 3*time.Second+8*time.Second+v.srv.Tick())
				require.True(t, s.State().Attached())
				require.NotEqual(t, old, s.SessionID())
				release(t, next)
			})
		})
	}
}

// R65: as before, and the server closes the connection without an answer, each time.
func TestVirtual_GivenUpSession_ServersHangUp_IsLeftToExpire(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		line := &line{dial: v.net.Dial}
		s := v.connect(zklock.WithDialer(line.Dial), zklock.WithSessionTimeout(8*time.Second))
		h := acquire(t, newMutex(t, s, "/job"))
		time.Sleep(20 * time.Second)
		old := s.SessionID()
		hangUp := v.srv.Inject(zktest.Before(zktest.CloseSession).Session(old).Close())
		line.silent.Store(true)
		<-h.Lost()
		line.silent.Store(false)
		healed := time.Now()
		next, err := newMutex(t, v.connect(), "/job").Acquire(within(t, time.Minute))
		require.NoError(t, err)
		require.Equal(t, 3, hangUp.Fired())
		// The dial that is under way, three tries with a second's pause before each, and then T and a tick.
		require.LessOrEqual(t, time.Since(healed), 4*time.Second+8*time.Second+v.srv.Tick()+time.Second)
		require.NotEqual(t, old, s.SessionID())
		release(t, next)
	})
}

// R65: what was sent while the network was down, heartbeats and pings, waits in the socket of a connection that has been
// given up. It must not arrive when the network is well again, and touch the session.
func TestVirtual_GivenUpConnection_NothingArrivesLater(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		const host = "10.9.9.9"
		s := v.connect(zklock.WithDialer(v.net.DialFrom(host)), zklock.WithSessionTimeout(8*time.Second))
		h := acquire(t, newMutex(t, s, "/job"))
		time.Sleep(20 * time.Second)
		old := s.SessionID()
		var late atomic.Int32
		v.srv.Inject(zktest.Before(zktest.Multi).Session(old).Call(func() { late.Add(1) }).Optional())
		v.net.Partition(host)
		<-h.Lost()
		require.ErrorIs(t, h.Release(within(t, soon)), zklock.ErrLost)
		synctest.Wait() // the holder is told first, then the connection is cut
		late.Store(0)
		v.srv.Inject(zktest.Before(zktest.CloseSession).Session(old).Fail(zktest.Code(-124)))
		v.net.Heal(host)
		time.Sleep(20 * time.Second)
		require.Zero(t, late.Load(), "a heartbeat of the old connection came")
		require.NotEqual(t, old, s.SessionID())
	})
}

// F42, R65: the same on a real server that refuses every request of a connection without credentials.
func TestReal_CredentialsRequired_GivenUpSessionEnds(t *testing.T) {
	srv := requiringCredentials(t)
	const timeout = 8 * time.Second
	creds := zklock.WithAuth("digest", []byte("ann:secret"))
	line := &line{dial: net.DialTimeout}
	s := connect(t, srv, creds, zklock.WithDialer(line.Dial), zklock.WithSessionTimeout(timeout))
	h := acquire(t, newMutex(t, s, "/job"))
	old := s.SessionID()
	line.silent.Store(true)
	select {
	case <-h.Lost():
	case <-time.After(2 * timeout):
		t.Fatal("I5: not told")
	}
	line.silent.Store(false)
	healed := time.Now()
	next, err := newMutex(t, connect(t, srv, creds), "/job").Acquire(within(t, time.Minute))
	require.NoError(t, err, "F42: the node of the session that was given up keeps the lock")
	t.Logf("the next holder was granted %v after the network was well", time.Since(healed).Round(time.Millisecond))
	require.Less(t, time.Since(healed), timeout+2*time.Second+soon)
	release(t, next)
	release(t, acquire(t, newMutex(t, s, "/job")))
	require.NotEqual(t, old, s.SessionID())
}

// darkness is an ensemble of n servers, and a Session with a hold that is attached to the one that role names.
type darkness struct {
	t   *testing.T
	net *zktest.Network
	ens *zktest.Ensemble
	s   *zklock.Session
	h   *zklock.Hold
	at  *zktest.Member // where the Session is attached

	onDial atomic.Pointer[func(addr string)] // called before each dial
}

func inTheDark(t *testing.T, n int, role string, timeout time.Duration, f func(t *testing.T, d *darkness), opts ...zklock.Option) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		d := &darkness{t: t, net: zktest.NewNetwork()}
		d.net.SetLatency(time.Millisecond)
		d.ens = zktest.StartEnsemble(t, n, zktest.WithNetwork(d.net), zktest.WithTick(2*time.Second), zktest.WithSessionTimeouts(4*time.Second, time.Minute))
		_, err := d.ens.Create("/job", nil, 0)
		require.NoError(t, err)
		var addrs []string
		for _, m := range d.ens.Members() {
			if (m == d.ens.Leader()) == (role == "leader") {
				addrs = append(addrs, m.Addr())
			}
		}
		// It dials those of the role first: the others refuse until it is attached.
		var picky atomic.Bool
		picky.Store(true)
		dial := func(network, addr string, timeout time.Duration) (net.Conn, error) {
			if picky.Load() && !strings.Contains(strings.Join(addrs, ","), addr) {
				return nil, syscall.ECONNREFUSED
			}
			if f := d.onDial.Load(); f != nil {
				(*f)(addr)
			}
			return d.net.Dial(network, addr, timeout)
		}
		d.s = connect(t, strings.Join(d.ens.Addrs(), ","), append([]zklock.Option{zklock.WithDialer(dial), zklock.WithSessionTimeout(timeout)}, opts...)...)
		picky.Store(false)
		d.h = acquire(t, newMutex(t, d.s, "/job"))
		for _, m := range d.ens.Members() {
			if m.Addr() == d.s.Conn().Server() {
				d.at = m
			}
		}
		f(t, d)
	})
}

// goDark takes a server from everybody, clients and other servers, and nobody hears of it.
func (d *darkness) goDark(m *zktest.Member) {
	d.net.Partition(m.Addr())
	m.Isolate()
}

// F41: the follower that a holder is attached to goes dark, at any time between two heartbeats, and the others are well. No hold
// is lost, for any usual session timeout with the default lease.
func TestVirtual_FollowerGoesDark_NoHoldIsLost(t *testing.T) {
	for _, timeout := range []time.Duration{8 * time.Second, 10 * time.Second, 15 * time.Second, 20 * time.Second, 30 * time.Second} {
		t.Run(timeout.String(), func(t *testing.T) {
			t.Parallel()
			for moment := range 20 {
				inTheDark(t, 3, "follower", timeout, func(t *testing.T, d *darkness) {
					id := d.s.SessionID()
					time.Sleep(time.Minute + time.Duration(moment)*timeout/20)
					d.goDark(d.at)
					dark, least := time.Now(), time.Until(d.h.Deadline())
					for time.Since(dark) < time.Minute {
						time.Sleep(50 * time.Millisecond)
						least = min(least, time.Until(d.h.Deadline()))
						require.NoError(t, d.h.Err(), "F41: moment %d, %v after the server went dark", moment, time.Since(dark))
					}
					require.Equal(t, id, d.s.SessionID())
					require.NotEqual(t, d.at.Addr(), d.s.Conn().Server())
					if moment == 0 {
						t.Logf("T = %v: the lease came within %v of its end", timeout, least)
					}
					release(t, d.h)
				})
			}
		})
	}
}

// F41: two servers go dark together, the one that the holder is attached to and the one that it tries next.
func TestVirtual_TwoServersGoDark_NoHoldIsLost(t *testing.T) {
	for _, timeout := range []time.Duration{10 * time.Second, 30 * time.Second} {
		inTheDark(t, 5, "follower", timeout, func(t *testing.T, d *darkness) {
			time.Sleep(time.Minute)
			d.goDark(d.at)
			var second sync.Once
			darken := func(addr string) { second.Do(func() { d.net.Partition(addr) }) }
			d.onDial.Store(&darken)
			time.Sleep(time.Minute)
			require.NoError(t, d.h.Err(), "F41, T = %v", timeout)
			release(t, d.h)
		})
	}
}

// F41, I5: the leader goes dark. Until another one is elected nothing is written, and nothing proves that the session lives: a
// hold with a lease that is longer than that stands, any other is told before the next is granted.
func TestVirtual_LeaderGoesDark_HoldStandsOrIsToldInTime(t *testing.T) {
	for _, role := range []string{"leader", "follower"} {
		for _, timeout := range []time.Duration{10 * time.Second, 15 * time.Second, 20 * time.Second, 30 * time.Second} {
			t.Run(fmt.Sprintf("attached to a %s, T = %v", role, timeout), func(t *testing.T) {
				lost := 0
				for moment := range 10 {
					inTheDark(t, 3, role, timeout, func(t *testing.T, d *darkness) {
						next := startAcquireOf(t, connect(t, strings.Join(d.ens.Addrs(), ","), zklock.WithDialer(d.net.Dial), zklock.WithSessionTimeout(timeout)))
						time.Sleep(time.Minute + time.Duration(moment)*timeout/20)
						var told time.Time
						var watch sync.WaitGroup
						watch.Go(func() { <-d.h.Context().Done(); told = time.Now() })
						d.goDark(d.ens.Leader())
						time.Sleep(2 * time.Minute)
						if d.h.Err() == nil {
							select {
							case <-next.done:
								t.Fatal("I1: two hold")
							default:
							}
							release(t, d.h)
							watch.Wait()
							return
						}
						lost++
						watch.Wait()
						h2, err := next.get(t)
						require.NoError(t, err)
						require.True(t, told.Before(next.at), "I5: told %v after the next was granted", told.Sub(next.at))
						release(t, h2)
						require.ErrorIs(t, d.h.Release(within(t, soon)), zklock.ErrLost)
					})
				}
				t.Logf("%d of 10 holds were lost, in time", lost)
				// syncLimit × tick is 10 s, and then comes the election.
				if timeout < 20*time.Second {
					require.Positive(t, lost)
				}
				if timeout == 30*time.Second {
					require.Zero(t, lost, "F41: the lease outlasts the outage")
				}
			})
		}
	}
}

// grantedAt is an Acquire in the background that notes when it was granted.
type grantedAt struct {
	hold *zklock.Hold
	err  error
	at   time.Time
	done chan struct{}
}

func startAcquireOf(t *testing.T, s *zklock.Session) *grantedAt {
	w := &grantedAt{done: make(chan struct{})}
	m := newMutex(t, s, "/job")
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		defer close(w.done)
		w.hold, w.err = m.Acquire(ctx)
		w.at = time.Now()
	}()
	t.Cleanup(func() { cancel(); <-w.done })
	synctest.Wait()
	return w
}

func (w *grantedAt) get(t *testing.T) (*zklock.Hold, error) {
	t.Helper()
	select {
	case <-w.done:
	case <-time.After(time.Minute):
		t.Fatal("Acquire did not return")
	}
	return w.hold, w.err
}

// F41: a server that is silent is left also by one that only waits. The waiter keeps its place.
func TestVirtual_WaitersServerGoesDark_IsLeft(t *testing.T) {
	inTheDark(t, 3, "follower", 30*time.Second, func(t *testing.T, d *darkness) {
		s := connect(t, strings.Join(d.ens.Addrs(), ","), zklock.WithDialer(d.net.Dial), zklock.WithSessionTimeout(30*time.Second))
		w := startAcquireOf(t, s)
		time.Sleep(time.Minute)
		id, server := s.SessionID(), s.Conn().Server()
		dark := time.Now()
		d.net.Partition(server)
		for s.Conn().Server() == server || !s.State().Attached() {
			time.Sleep(100 * time.Millisecond)
			require.Less(t, time.Since(dark), 13*time.Second, "the client's own limit is 20 s")
		}
		require.Equal(t, id, s.SessionID())
		release(t, d.h)
		h, err := w.get(t)
		require.NoError(t, err)
		release(t, h)
	})
}

// F41: with one address there is nobody to go to. The connection is kept: a server that stalls for long ends no hold that it
// would not have ended before.
func TestVirtual_OneServer_IsNotLeft(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		var changes []zklock.State
		s := v.connect(zklock.WithSessionTimeout(30*time.Second), zklock.WithLease(zklock.SingleServerLease()))
		h := acquire(t, newMutex(t, s, "/job"))
		time.Sleep(time.Minute)
		var told sync.WaitGroup
		ctx, cancel := context.WithCancel(context.Background())
		told.Go(func() {
			for c := range s.Changes(ctx) {
				changes = append(changes, c.State)
			}
		})
		synctest.Wait()
		v.srv.Freeze()
		time.Sleep(15 * time.Second)
		v.srv.Thaw()
		time.Sleep(15 * time.Second)
		require.NoError(t, h.Err())
		cancel()
		told.Wait()
		require.Empty(t, changes)
		release(t, h)
	})
}

// F16, R50: all servers are slow, by more than a heartbeat. The connection is left once, found no better, and kept.
func TestVirtual_AllServersSlow_AreNotLeftAgainAndAgain(t *testing.T) {
	inTheDark(t, 3, "follower", time.Minute, func(t *testing.T, d *darkness) {
		time.Sleep(time.Minute)
		var left atomic.Int32
		ctx, cancel := context.WithCancel(context.Background())
		var told sync.WaitGroup
		told.Go(func() {
			for c := range d.s.Changes(ctx) {
				if c.State == zklock.Suspended {
					left.Add(1)
				}
			}
		})
		synctest.Wait()
		slow := d.ens.Inject(zktest.Before(zktest.Multi).Delay(13 * time.Second)) // h is 6 s
		time.Sleep(10 * time.Minute)
		require.NoError(t, d.h.Err(), "F16")
		require.Positive(t, left.Load(), "or this shows nothing")
		require.LessOrEqual(t, left.Load(), int32(2), "R50")
		slow.Remove()
		cancel()
		told.Wait()
		release(t, d.h)
	}, zklock.WithLease(zklock.SingleServerLease())) // a quorum lease does not live on answers that take a fifth of T
}

// F18, F41: the process was paused, and the server's answer waits to be read. It is not the server that was silent.
func TestVirtual_PausedProcess_DoesNotLeaveItsServer(t *testing.T) {
	var asleep atomic.Int64
	inTheDark(t, 3, "follower", 30*time.Second, func(t *testing.T, d *darkness) {
		time.Sleep(time.Minute)
		held := d.ens.Inject(zktest.After(zktest.Multi).Session(d.s.SessionID()).Hold().Once())
		require.NoError(t, held.Wait(within(t, soon)))
		time.Sleep(time.Second)
		asleep.Add(int64(8 * time.Second))
		require.NoError(t, d.h.Err())
		time.Sleep(2*time.Second + 30*time.Millisecond) // the Session has just looked: by its clock it was 11 s
		held.Release()
		time.Sleep(5 * time.Second)
		require.Equal(t, zklock.Connected, d.s.State())
		release(t, d.h)
	}, zklock.WithSuspendedTime(func() time.Duration { return time.Duration(asleep.Load()) }))
}

// WithEndOnSuspend: to leave a server would end the holds. The client's own limit counts.
func TestVirtual_EndOnSuspend_SilentServerIsNotLeft(t *testing.T) {
	inTheDark(t, 3, "follower", 30*time.Second, func(t *testing.T, d *darkness) {
		time.Sleep(time.Minute)
		d.net.Partition(d.at.Addr())
		time.Sleep(15 * time.Second)
		require.NoError(t, d.h.Err())
		require.Equal(t, d.at.Addr(), d.s.Conn().Server())
		<-d.h.Lost()
		require.ErrorIs(t, d.h.Release(within(t, soon)), zklock.ErrLost)
	}, zklock.WithEndOnSuspend())
}

// I6: Connect returns when its context ends and at most half a second later, whatever the servers do meanwhile.
func TestVirtual_Connect_ReturnsWithItsContext(t *testing.T) {
	for name, dial := range map[string]zk.Dialer{
		"dark": func(_, _ string, d time.Duration) (net.Conn, error) {
			time.Sleep(min(d, 300*time.Millisecond))
			return nil, os.ErrDeadlineExceeded
		},
		"refusing": func(string, string, time.Duration) (net.Conn, error) { return nil, syscall.ECONNREFUSED },
		"silent": func() zk.Dialer {
			n := zktest.NewNetwork()
			return func(network, addr string, d time.Duration) (net.Conn, error) {
				l, err := n.Listen(addr)
				if err == nil {
					defer l.Close()
				}
				return n.Dial(network, addr, d)
			}
		}(),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				for i := range 20 {
					ctx, cancel := context.WithTimeout(context.Background(), time.Second+time.Duration(i)*97*time.Millisecond)
					_, err := zklock.Connect(ctx, "10.0.0.1,10.0.0.2", zklock.WithDialer(dial), quiet(t))
					end, _ := ctx.Deadline()
					require.ErrorIs(t, err, context.DeadlineExceeded)
					require.LessOrEqual(t, time.Since(end), 500*time.Millisecond, "I6")
					cancel()
				}
				time.Sleep(10 * time.Second) // what is left ends by itself, or the bubble says so
			})
		})
	}
}

// Connect waits for servers that are away: it says so, once after some seconds, then seldom, and names what was tried.
func TestVirtual_Connect_NoServer_IsSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log syncBuffer
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
		defer cancel()
		var said []time.Duration
		start := time.Now()
		log.onLine = func(line string) {
			if strings.Contains(line, "no server has accepted the session") {
				require.Contains(t, line, "10.0.0.1:2181")
				require.Contains(t, line, "connection refused")
				said = append(said, time.Since(start).Round(time.Second))
			}
		}
		_, err := zklock.Connect(ctx, "10.0.0.1", zklock.WithLogger(slog.New(slog.NewTextHandler(&log, nil))),
			zklock.WithDialer(func(string, string, time.Duration) (net.Conn, error) { return nil, syscall.ECONNREFUSED }))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		time.Sleep(10 * time.Second) // the Close that the Connect left behind ends
		log.mu.Lock()
		defer log.mu.Unlock()
		require.Equal(t, []time.Duration{3 * time.Second, 33 * time.Second, 132 * time.Second}, said)
	})
}

// syncBuffer takes a log's lines, one write each.
type syncBuffer struct {
	mu     sync.Mutex
	buf    bytes.Buffer
	onLine func(string)
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.onLine(string(p))
	return b.buf.Write(p)
}

// F46: the name server answers after three seconds, and one name of three has no address. The Session gets there through the
// others, and to a name's other addresses when one goes dark.
func TestConnect_SlowNameServer(t *testing.T) {
	srv := zktest.Start(t)
	_, port, err := net.SplitHostPort(srv.Addr())
	require.NoError(t, err)
	var asked atomic.Int32
	lookup := func(ctx context.Context, host string) ([]string, error) {
		asked.Add(1)
		if host == "nowhere.test" {
			return nil, errors.New("no such host")
		}
		select {
		case <-time.After(3 * time.Second):
			return []string{"127.0.0.1"}, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	servers := fmt.Sprintf("nowhere.test:%s,slow.test:%s", port, port)
	for _, timeout := range []time.Duration{30 * time.Second, 12 * time.Second} {
		s := connect(t, servers, zklock.WithLookup(lookup), zklock.WithSessionTimeout(timeout))
		require.NoError(t, s.Close())
	}
	require.Positive(t, asked.Load())
}

// F41, I6: the server goes dark when the node is made and its token is being read. The Session looks for another all the same.
func TestVirtual_ServerGoesDark_WhileTheTokenIsRead(t *testing.T) {
	const timeout = 30 * time.Second
	inTheDark(t, 3, "follower", timeout, func(t *testing.T, d *darkness) {
		require.NoError(t, d.h.Release(within(t, soon)))
		s := connect(t, strings.Join(d.ens.Addrs(), ","), zklock.WithDialer(d.net.Dial), zklock.WithSessionTimeout(timeout))
		server := s.Conn().Server()
		dark := d.ens.Inject(zktest.Before(zktest.Exists).Path("/job/*").Session(s.SessionID()).Call(func() { d.net.Partition(server) }).Once())
		start := time.Now()
		h := acquire(t, newMutex(t, s, "/job"))
		require.Equal(t, 1, dark.Fired())
		require.Less(t, time.Since(start), timeout/2, "the client's own limit is two thirds of the session timeout")
		release(t, h)
	})
}
