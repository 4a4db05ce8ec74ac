package zklock_test

// These tests attack SASL in virtual time: each connection is authenticated, and a missing response
// is no rejection. session_sasl_refused_test.go has the rejections.

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/internal/oneway"
	"github.com/zklock/zklock/sasl"
	"github.com/zklock/zklock/zktest"
)

// inSASLTime has a server that responds to nothing without SASL.
func inSASLTime(t *testing.T, f func(t *testing.T, v *virtual)) {
	t.Helper()
	inVirtualTime(t, f, zktest.WithSASLUsers(oddUsers), zktest.WithConfig("sessionRequireClientSASLAuth=true"))
}

// refusedLine is logged when a server rejects the credentials.
const refusedLine = "the server rejected the credentials"

// drop closes a connection that has lasted: the client reconnects without a pause.
func (v *virtual) drop(s *zklock.Session) {
	time.Sleep(2 * time.Second)
	require.True(v.t, v.srv.DropConnection(s.Stats().SessionID))
	synctest.Wait()
}

// I1, I5: every connection is authenticated again, in two requests, and a hold continues.
func TestVirtual_SASL_EachConnection(t *testing.T) {
	inSASLTime(t, func(t *testing.T, v *virtual) {
		s := v.connect(withSASL(), zklock.WithDigest("u", "p"))
		h := acquire(t, newMutex(t, s, "/job"))
		for n := 1; n <= 5; n++ {
			require.Equal(t, 2*n, v.srv.Requests().Of(s.Stats().SessionID, saslOp))
			require.True(t, v.srv.DropConnection(s.Stats().SessionID))
			time.Sleep(3 * time.Second)
			require.NotEmpty(t, s.Stats().Server)
		}
		require.NoError(t, h.Err())
		release(t, h)
	})
}

// A node of scheme auth is for the SASL user only, and so is an ACL of scheme sasl.
func TestVirtual_SASL_ACL(t *testing.T) {
	inSASLTime(t, func(t *testing.T, v *virtual) {
		s, bob := v.connect(withSASL()), v.connect(zklock.WithSASL(sasl.DigestMD5("bob", oddUsers["bob"])))
		h := acquire(t, newMutex(t, s, "/mine", zklock.WithACL(zk.AuthACL(zk.PermAll))))
		acl, _, err := s.Conn().GetACL("/mine")
		require.NoError(t, err)
		require.Equal(t, []zk.ACL{{Perms: zk.PermAll, Scheme: "sasl", ID: saslUser}}, acl)
		_, err = newMutex(t, bob, "/mine").TryAcquire(within(t, soon))
		require.ErrorIs(t, err, zk.ErrNoAuth)
		release(t, h)
		both := []zk.ACL{{Perms: zk.PermAll, Scheme: "sasl", ID: saslUser}, {Perms: zk.PermAll, Scheme: "sasl", ID: "bob"}}
		_, err = s.Conn().Create("/ours", nil, 0, both)
		require.NoError(t, err)
		for _, of := range []*zklock.Session{s, bob} {
			release(t, acquire(t, newMutex(t, of, "/ours", zklock.WithACL(both))))
		}
	})
}

// With zk.AuthACL, each identity of the creator suffices. An ACL of one identity denies clients
// that have only the others.
func TestVirtual_ACL_OfOneOfTwoIdentities(t *testing.T) {
	inSASLTime(t, func(t *testing.T, v *virtual) {
		locker := zklock.WithDigest("locker", "secret")
		host, bob := withSASL(), zklock.WithSASL(sasl.DigestMD5("bob", oddUsers["bob"]))
		both, hostAlone, elsewhere := v.connect(host, locker), v.connect(host), v.connect(bob, locker)
		for path, c := range map[string]struct {
			acl    []zk.ACL
			denied error
		}{
			"/creator": {zk.AuthACL(zk.PermAll), nil},
			"/user":    {zk.DigestACL(zk.PermAll, "locker", "secret"), zk.ErrNoAuth},
		} {
			for _, s := range []*zklock.Session{both, elsewhere} {
				release(t, acquire(t, newMutex(t, s, path, zklock.WithACL(c.acl))))
			}
			h, err := newMutex(t, hostAlone, path).Acquire(within(t, soon))
			require.ErrorIs(t, err, c.denied, path)
			if err == nil {
				release(t, h)
			}
		}
	})
}

// A rejection at the first connection is returned by Connect, once, and no server is asked again.
func TestVirtual_SASL_Refused(t *testing.T) {
	inSASLTime(t, func(t *testing.T, v *virtual) {
		var lines warnings
		_, err := zklock.Connect(within(t, soon), v.srv.Addr(), zklock.WithDialer(v.net.Dial), lines.option(), zklock.WithSASL(sasl.DigestMD5(saslUser, "wrong")))
		require.ErrorIs(t, err, zklock.ErrAuthFailed)
		require.EqualError(t, err, fmt.Sprintf("zklock: connect %[1]s: authentication failed: %[1]s rejected the credentials (code -124)", v.srv.Addr()))
		time.Sleep(time.Minute)
		require.Equal(t, 1, lines.about(refusedLine, ""))
		require.Equal(t, 2, v.srv.Requests().Total(saslOp))
	})
}

// One of the servers is upgraded to a ZooKeeper without DIGEST-MD5, and rejects the first token,
// which is empty. That is no rejection of our identity: the hold continues, and the Session moves
// to the next server that supports it. If there is none, the error contains the reason.
func TestVirtual_SASL_MechanismRefused_IsNotFinal(t *testing.T) {
	for _, code := range []zktest.Code{authRequired, authFailed} {
		inSASLTime(t, func(t *testing.T, v *virtual) {
			s := v.connect(withSASL())
			h := acquire(t, newMutex(t, s, "/job"))
			refused := v.srv.Inject(zktest.After(saslOp).Nth(1).Fail(code))
			v.drop(s)
			time.Sleep(5 * time.Second)
			require.Equal(t, 1, refused.Fired())
			require.NoError(t, h.Err())
			require.Equal(t, zklock.StateReconnected, s.Stats().State)
			release(t, h)

			v.srv.Inject(zktest.After(saslOp).Fail(code))
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			_, err := zklock.Connect(ctx, v.srv.Addr(), zklock.WithDialer(v.net.Dial), quiet(t), withSASL())
			require.NotErrorIs(t, err, zklock.ErrAuthFailed)
			require.ErrorContains(t, err, fmt.Sprintf("SASL: the server rejected the login before it saw any credentials (code %d)", code))
			require.ErrorContains(t, err, "fips-mode=false")
			time.Sleep(time.Minute) // the Connect in vain ends
		})
	}
}

// I6: a server that stops responding within the exchange has the handshake's time. Then the next
// try is made, and the hold is kept.
func TestVirtual_SASL_Silence(t *testing.T) {
	for step := 1; step <= 2; step++ {
		for name, silence := range map[string]zktest.Fault{
			"lost":     zktest.After(saslOp).Nth(step).DropReply(),
			"late":     zktest.After(saslOp).Nth(step).Delay(time.Minute),
			"not read": zktest.Before(saslOp).Nth(step).Delay(time.Minute),
		} {
			inSASLTime(t, func(t *testing.T, v *virtual) {
				s := v.connect(withSASL(), zklock.WithSessionTimeout(30*time.Second))
				h := acquire(t, newMutex(t, s, "/job"))
				in := v.srv.Inject(silence)
				v.drop(s)
				time.Sleep(4*time.Second - time.Millisecond)
				require.Equal(t, 1, in.Fired(), name)
				require.Empty(t, s.Stats().Server)
				time.Sleep(time.Second + 30*time.Second/8) // the client's pause, and ours
				require.NotEmpty(t, s.Stats().Server, "%s, step %d", name, step)
				release(t, h)
			})
		}
	}
}

// A server without SASL is no rejection, and no server for this Session either. The error contains
// the reason.
func TestVirtual_SASL_ServerHasNone(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_, err := zklock.Connect(ctx, v.srv.Addr(), zklock.WithDialer(v.net.Dial), quiet(t), withSASL())
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NotErrorIs(t, err, zklock.ErrAuthFailed)
		require.ErrorContains(t, err, "SASL: DIGEST-MD5: the server has no challenge: is SASL configured there?")
		require.Greater(t, v.srv.Requests().Total(saslOp), 3, "tried again")
		time.Sleep(time.Minute) // the Connect in vain ends
	})
}

// kdc is a mechanism that asks a server of its own before it can begin, as Kerberos does.
type kdc struct {
	sasl.Mechanism  // what follows
	silent, refuses atomic.Bool
	wrong           atomic.Bool // its tickets are no good to a server
	asked           atomic.Int32
	hosts           chan string
}

func (k *kdc) Name() string { return "KDC" }

func (k *kdc) Authenticate(ctx context.Context, host string) (sasl.Exchange, []byte, error) {
	k.asked.Add(1)
	select {
	case k.hosts <- host:
	default:
	}
	switch {
	case k.refuses.Load():
		return nil, nil, fmt.Errorf("%w: principal unknown", zklock.ErrAuthFailed)
	case k.silent.Load():
		<-ctx.Done()
		return nil, nil, errors.New("no KDC has answered")
	case k.wrong.Load():
		return sasl.DigestMD5(saslUser, "wrong").Authenticate(ctx, host)
	}
	return k.Mechanism.Authenticate(ctx, host)
}

func newKDC() *kdc {
	return &kdc{Mechanism: sasl.DigestMD5(saslUser, saslPassword), hosts: make(chan string, 1)}
}

// A KDC that does not respond for a while costs no hold.
func TestVirtual_SASL_KDCIsSilent_HoldRemains(t *testing.T) {
	inSASLTime(t, func(t *testing.T, v *virtual) {
		k := newKDC()
		s := v.connect(zklock.WithSASL(k), zklock.WithSessionTimeout(30*time.Second))
		require.Equal(t, v.srv.Addr(), <-k.hosts)
		h := acquire(t, newMutex(t, s, "/job"))
		k.silent.Store(true)
		v.drop(s)
		time.Sleep(8 * time.Second)
		require.Empty(t, s.Stats().Server)
		k.silent.Store(false)
		time.Sleep(6 * time.Second) // the try in vain ends after 10 s
		require.NotEmpty(t, s.Stats().Server)
		require.NoError(t, h.Err())
		require.Equal(t, int32(3), k.asked.Load(), "at Connect, in vain, and again")
		release(t, h)
	})
}

// A KDC that is away for longer costs the hold: the lease notifies the holder in time, because
// nothing keeps the session alive on the servers meanwhile. When the KDC is back, the Session
// continues.
func TestVirtual_SASL_KDCIsAway_HoldIsLost(t *testing.T) {
	inSASLTime(t, func(t *testing.T, v *virtual) {
		k := newKDC()
		s := v.connect(zklock.WithSASL(k))
		h := acquire(t, newMutex(t, s, "/job"))
		old := s.Stats().SessionID
		k.silent.Store(true)
		v.srv.DropConnection(old)
		next := v.queueUp(newMutex(t, v.connect(withSASL()), "/job"))
		lostWithin(t, h, 10*time.Second)
		require.False(t, next.isGranted(), "I5")
		require.NotErrorIs(t, h.Err(), zklock.ErrAuthFailed)
		release(t, next.granted2(t, 10*time.Second+serverTick))
		k.silent.Store(false)
		release(t, acquire(t, newMutex(t, s, "/job")))
		require.NotEqual(t, old, s.Stats().SessionID)
	})
}

// I6: Close and Connect do not wait for a KDC.
func TestVirtual_SASL_KDCIsSilent_CallsReturn(t *testing.T) {
	inSASLTime(t, func(t *testing.T, v *virtual) {
		k := newKDC()
		k.silent.Store(true)
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_, err := zklock.Connect(ctx, v.srv.Addr(), zklock.WithDialer(v.net.Dial), quiet(t), zklock.WithSASL(k), zklock.WithSessionTimeout(8*time.Second))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "SASL: KDC: no KDC has answered")
		require.Zero(t, v.srv.Requests().Total(saslOp))
		time.Sleep(time.Minute) // the Connect in vain ends

		k.silent.Store(false)
		s := v.connect(zklock.WithSASL(k))
		k.silent.Store(true)
		v.drop(s)
		time.Sleep(5 * time.Second)
		began := time.Now()
		require.NoError(t, s.Close())
		require.LessOrEqual(t, time.Since(began), 4*time.Second)
	})
}

// A mechanism that returns nothing is an error, and no panic.
func TestVirtual_SASL_MechanismWithoutSession(t *testing.T) {
	inSASLTime(t, func(t *testing.T, v *virtual) {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_, err := zklock.Connect(ctx, v.srv.Addr(), zklock.WithDialer(v.net.Dial), quiet(t), zklock.WithSASL(nothing{}))
		require.ErrorContains(t, err, "NOTHING: Authenticate returned neither a session nor an error")
		time.Sleep(time.Minute) // the Connect in vain ends
	})
}

type nothing struct{}

func (nothing) Name() string { return "NOTHING" }
func (nothing) Authenticate(context.Context, string) (sasl.Exchange, []byte, error) {
	return nil, nil, nil
}

// F42, R65: a session that was given up is ended with SASL when the network has healed, and not
// left to expire.
func TestVirtual_SASL_GivenUpSession_IsEnded(t *testing.T) {
	inSASLTime(t, func(t *testing.T, v *virtual) {
		line := &line{dial: v.net.Dial}
		s := v.connect(withSASL(), zklock.WithDialer(line.Dial), zklock.WithSessionTimeout(30*time.Second))
		h := acquire(t, newMutex(t, s, "/job"))
		old := s.Stats().SessionID
		line.silent.Store(true)
		<-h.Lost()
		line.silent.Store(false)
		time.Sleep(12 * time.Second) // the dial that is under way, and the client's pause
		_, there := v.srv.Stat(h.Node())
		require.False(t, there, "I4")
		require.False(t, slices.ContainsFunc(v.srv.Sessions(), func(s zktest.Session) bool { return s.ID == old }))
		require.NotEmpty(t, s.Stats().Server)
	})
}

// F51: a client that receives nothing cannot authenticate, so its session expires. It blocks no
// other client for longer than that takes.
func TestVirtual_SASL_AnswersLost(t *testing.T) {
	for _, timeout := range []time.Duration{10 * time.Second, 30 * time.Second} {
		inSASLTime(t, func(t *testing.T, v *virtual) { answersLost(t, v, timeout) })
	}
}

func answersLost(t *testing.T, v *virtual, timeout time.Duration) {
	way := oneway.New(v.net.Dial)
	s := v.connect(withSASL(), zklock.WithSessionTimeout(timeout), zklock.WithDialer(way.Dial))
	h := acquire(t, newMutex(t, s, "/job"))
	next := v.queueUp(newMutex(t, v.connect(withSASL()), "/job"))
	way.LoseAnswers()
	cut := time.Now()
	<-h.Lost()
	release(t, next.granted2(t, time.Minute))
	t.Logf("the next holder was granted %v after answers were lost (T = %v)", time.Since(cut), timeout)
	// The client touches the session as long as it holds, and once more to end it.
	require.LessOrEqual(t, time.Since(cut), timeout+time.Second+timeout+serverTick)
	way.Heal()
	release(t, acquire(t, newMutex(t, s, "/job")))
}

// cutToAnswer returns how long a client is without a response when its connection is cut, at a
// latency of 5 ms each way.
func cutToAnswer(t *testing.T, v *virtual, opts ...zklock.Option) time.Duration {
	v.net.SetLatency(5 * time.Millisecond)
	w := &wire{dial: v.net.Dial}
	s := v.connect(append(opts, w.dialer())...)
	m := newMutex(t, s, "/job")
	release(t, acquire(t, m))
	time.Sleep(5 * time.Second) // a connection that lasted: the client does not pause
	w.cut()
	cut := time.Now()
	changes := s.Changes(context.Background())
	for c := range changes {
		if c.State == zklock.StateReconnected {
			break
		}
	}
	_, _, err := s.Conn().Get("/job")
	require.NoError(t, err)
	return time.Since(cut)
}

// docs/lease.md: SASL adds two round trips to the time from a cut to the first response, and
// nothing else.
func TestVirtual_SASL_CutToAnswer(t *testing.T) {
	var without, with time.Duration
	inVirtualTime(t, func(t *testing.T, v *virtual) { without = cutToAnswer(t, v) })
	inSASLTime(t, func(t *testing.T, v *virtual) { with = cutToAnswer(t, v, withSASL()) })
	t.Logf("round trips of 10 ms, from a cut to the first answer: %v without SASL, %v with", without, with)
	require.Equal(t, 20*time.Millisecond, with-without)
}
