package zklock_test

// These tests attack rejected credentials in virtual time: they are final for Connect only (R117),
// and a server that rejects us is tried less and less often.

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/sasl"
	"github.com/zklock/zklock/zktest"
)

// R117: the password is changed on the servers for a moment. The hold and the wait continue, and
// the log has it once.
func TestVirtual_SASL_RefusedLater_HoldGoesOn(t *testing.T) {
	for _, code := range []zktest.Code{authRequired, authFailed} {
		inSASLTime(t, func(t *testing.T, v *virtual) {
			var lines warnings
			s := v.connect(withSASL(), lines.option(), zklock.WithSessionTimeout(30*time.Second))
			h := acquire(t, newMutex(t, s, "/job"))
			waits := v.queueUp(newMutex(t, s, "/job"))
			refused := v.srv.Inject(zktest.After(saslOp).Nth(2).Fail(code))
			v.drop(s)
			time.Sleep(5 * time.Second)
			require.Equal(t, 1, refused.Fired())
			require.NoError(t, h.Err())
			require.Equal(t, zklock.StateReconnected, s.Stats().State)
			require.Equal(t, 1, lines.about(refusedLine, fmt.Sprint(int(code))))
			release(t, h)
			release(t, waits.granted2(t, time.Second))
		})
	}
}

// wrongAt has a wrong password at one server.
type wrongAt struct {
	sasl.Mechanism
	server   string
	rejected int
}

func (m *wrongAt) Authenticate(ctx context.Context, host string) (sasl.Exchange, []byte, error) {
	if host == m.server {
		m.rejected++
		return sasl.DigestMD5(saslUser, "wrong").Authenticate(ctx, host)
	}
	return m.Mechanism.Authenticate(ctx, host)
}

// R117: one server of three has another password. The client moves to the other servers, and keeps
// the hold.
func TestVirtual_SASL_OneServerRefuses_TheOthersServe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := zktest.NewNetwork()
		e := zktest.StartEnsemble(t, 3, zktest.WithNetwork(n), zktest.WithSASLUsers(oddUsers), zktest.WithConfig("sessionRequireClientSASLAuth=true"))
		var lines warnings
		m := &wrongAt{Mechanism: sasl.DigestMD5(saslUser, saslPassword)}
		s := connect(t, strings.Join(e.Addrs(), ","), zklock.WithDialer(n.Dial), zklock.WithSASL(m), lines.option())
		m.server = s.Stats().Server
		h := acquire(t, newMutex(t, s, "/job"))
		for range 12 {
			require.True(t, e.DropConnection(s.Stats().SessionID))
			time.Sleep(5 * time.Second)
			require.NoError(t, h.Err())
			require.NotEmpty(t, s.Stats().Server)
			require.NotEqual(t, m.server, s.Stats().Server)
		}
		require.NotZero(t, m.rejected)
		require.Equal(t, m.rejected, lines.about(refusedLine, m.server))
		release(t, h)
	})
}

// requireRefused requires that a hold is lost, or a call fails, because all servers reject the
// credentials, and that the error is not permanent.
func requireRefused(t *testing.T, err error, why string) {
	t.Helper()
	require.ErrorIs(t, err, zklock.ErrAuthFailed)
	require.ErrorContains(t, err, why)
	require.False(t, zklock.IsFinal(err), "%v", err)
}

// R117: while servers, or a KDC, reject us, a hold ends by its lease with that reason, and no
// earlier. When they accept us again, the Session continues.
func TestVirtual_SASL_RefusedForLong_HoldEndsByItsLease(t *testing.T) {
	for name, refuse := range map[string]func(k *kdc, on bool) (why string){
		"server": func(k *kdc, on bool) (why string) {
			k.wrong.Store(on)
			return "rejected the credentials (code -124)"
		},
		"KDC": func(k *kdc, on bool) (why string) {
			k.refuses.Store(on)
			return "SASL: KDC: authentication failed: principal unknown"
		},
	} {
		t.Run(name, func(t *testing.T) {
			inSASLTime(t, func(t *testing.T, v *virtual) {
				var lines warnings
				k := newKDC()
				traces, lossIs := lossReason()
				s := v.connect(zklock.WithSASL(k), lines.option(), traces)
				h := acquire(t, newMutex(t, s, "/job"))
				next := v.queueUp(newMutex(t, v.connect(withSASL()), "/job"))
				why := refuse(k, true)
				require.True(t, v.srv.DropConnection(s.Stats().SessionID))
				time.Sleep(5 * time.Second)
				require.NoError(t, h.Err())
				lostWithin(t, h, 5*time.Second)
				require.False(t, next.isGranted(), "I5")
				require.ErrorIs(t, h.Err(), zklock.ErrLost)
				requireRefused(t, h.Err(), why)
				require.Equal(t, zklock.LossAuth, <-lossIs)
				synctest.Wait() // for the state
				require.Equal(t, zklock.StateLost, s.Stats().State)
				_, err := newMutex(t, s, "/other").TryAcquire(within(t, soon))
				require.ErrorIs(t, err, zklock.ErrNotConnected)
				requireRefused(t, err, why)
				release(t, next.granted2(t, 12*time.Second+serverTick))
				time.Sleep(time.Minute)
				require.Equal(t, 1, lines.about(refusedLine, ""))
				require.Zero(t, lines.about("no server has accepted the session", ""), "it was logged, and is no outage")
				refuse(k, false)
				release(t, v.queueUp(newMutex(t, s, "/other")).granted2(t, time.Minute))
			})
		})
	}
}

// R117: the function of DigestMD5Func is called for each connection, so that a password may be
// changed on servers and clients one after the other. An error of the function fails a connection,
// and is no rejection.
func TestVirtual_SASL_PasswordOfAFunction_IsReadAtEachConnection(t *testing.T) {
	inSASLTime(t, func(t *testing.T, v *virtual) {
		var password atomic.Value
		password.Store(saslPassword)
		asked := 0
		mechanism := sasl.DigestMD5Func(func(ctx context.Context) (string, string, error) {
			asked++
			if _, ok := ctx.Deadline(); !ok {
				return "", "", errors.New("no deadline")
			}
			if password.Load() == "unreadable" {
				return "", "", errors.New("the file is not there")
			}
			return saslUser, password.Load().(string), nil
		})
		s := v.connect(zklock.WithSASL(mechanism), zklock.WithSessionTimeout(40*time.Second))
		require.Equal(t, 1, asked)
		h := acquire(t, newMutex(t, s, "/job"))
		for _, bad := range []string{"old", "unreadable", ""} {
			password.Store(bad)
			v.drop(s)
			time.Sleep(3 * time.Second)
			require.Empty(t, s.Stats().Server)
			_, err := newMutex(t, s, "/other").TryAcquire(within(t, soon))
			require.Equal(t, bad == "old", errors.Is(err, zklock.ErrAuthFailed), "%v", err)
			password.Store(saslPassword)
			time.Sleep(7 * time.Second)
			require.NotEmpty(t, s.Stats().Server)
			require.NoError(t, h.Err())
		}
		release(t, h)

		password.Store("old")
		_, err := zklock.Connect(within(t, soon), v.srv.Addr(), zklock.WithDialer(v.net.Dial), quiet(t), zklock.WithSASL(mechanism))
		require.ErrorIs(t, err, zklock.ErrAuthFailed)
		require.True(t, zklock.IsFinal(err))
		time.Sleep(time.Minute) // the Connect in vain ends
	})
}

// ticketed is a mechanism that keeps a ticket, as Kerberos does.
type ticketed struct {
	sasl.Mechanism
	kept, asked int
}

type ticketShown struct {
	sasl.Exchange
	m      *ticketed
	wasOld bool
}

func (m *ticketed) Authenticate(ctx context.Context, host string) (sasl.Exchange, []byte, error) {
	wasOld := m.kept > 0
	if !wasOld {
		m.asked++
		m.kept = m.asked
	}
	s, first, err := m.Mechanism.Authenticate(ctx, host)
	return ticketShown{s, m, wasOld}, first, err
}

func (s ticketShown) Rejected() bool {
	s.m.kept = 0
	return s.wasOld
}

// R117: a mechanism is notified of a rejection, so that it discards a kept ticket. That is not
// final for Connect either: it is tried again, once.
func TestVirtual_SASL_KeptTicketRefused_ANewOneIsShown(t *testing.T) {
	inSASLTime(t, func(t *testing.T, v *virtual) {
		m := &ticketed{Mechanism: sasl.DigestMD5(saslUser, saslPassword)}
		s := v.connect(zklock.WithSASL(m))
		require.Equal(t, 1, m.asked)
		v.drop(s)
		time.Sleep(3 * time.Second)
		require.Equal(t, 1, m.asked, "it is kept")

		refused := v.srv.Inject(zktest.After(saslOp).Nth(2).Fail(authFailed))
		v.connect(zklock.WithSASL(m))
		require.Equal(t, 1, refused.Fired())
		require.Equal(t, 2, m.asked)

		m.Mechanism = sasl.DigestMD5(saslUser, "wrong")
		_, err := zklock.Connect(within(t, soon), v.srv.Addr(), zklock.WithDialer(v.net.Dial), quiet(t), zklock.WithSASL(m))
		require.ErrorIs(t, err, zklock.ErrAuthFailed, "a new ticket was rejected, too")
		require.Equal(t, 3, m.asked)
		time.Sleep(time.Minute) // the Connect in vain ends
	})
}

// A server without SASL is tried with growing pauses, and keeps none of the sessions that it
// created for us.
func TestVirtual_SASL_ServerHasNone_PausesGrow(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
		defer cancel()
		seen := make(chan int)
		go func() {
			most := 0
			for ctx.Err() == nil {
				time.Sleep(100 * time.Millisecond)
				most = max(most, len(v.srv.Sessions()))
			}
			seen <- most
		}()
		_, err := zklock.Connect(ctx, v.srv.Addr(), zklock.WithDialer(v.net.Dial), quiet(t), withSASL())
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Less(t, v.srv.Requests().Total(saslOp), 60)
		require.Zero(t, <-seen)
		time.Sleep(time.Minute) // the Connect in vain ends
	})
}

// A server that rejects the password accepts no close of the session that it created, so the pauses
// grow, also while a caller waits.
func TestVirtual_SASL_Refused_PausesGrow(t *testing.T) {
	inSASLTime(t, func(t *testing.T, v *virtual) {
		k := newKDC()
		s := v.connect(zklock.WithSASL(k))
		k.wrong.Store(true)
		v.drop(s)
		v.srv.ResetRequests()
		_, err := newMutex(t, s, "/job").Acquire(within(t, 10*time.Minute))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Less(t, v.srv.Requests().Total(saslOp)/2, 50)
		require.Less(t, len(v.srv.Sessions()), 3)
	})
}

// A Session without SASL where it is required: whatever is sent first, a call, an idle read or a
// ping, the first error is ErrAuthFailed, and it is final, because no server has ever served this
// Session.
func TestVirtual_SASL_NotGiven_FirstErrorReportsIt(t *testing.T) {
	for name, first := range map[string]func(m *zklock.Mutex, ctx context.Context) (*zklock.Hold, error){
		"acquire": (*zklock.Mutex).Acquire, "try": (*zklock.Mutex).TryAcquire,
		"idle": func(m *zklock.Mutex, ctx context.Context) (*zklock.Hold, error) {
			time.Sleep(10 * time.Second)
			return m.Acquire(ctx)
		},
	} {
		for _, lease := range []zklock.LeaseMode{zklock.QuorumLease(0), zklock.SingleServerLease()} {
			for _, opt := range []zklock.Option{zklock.WithLease(lease), zklock.WithDigest("ann", "secret")} {
				inSASLTime(t, func(t *testing.T, v *virtual) {
					v.net.SetLatency(time.Millisecond)
					var lines warnings
					s := v.connect(zklock.WithLease(lease), opt, lines.option())
					m := newMutex(t, s, "/job")
					for range 2 {
						_, err := first(m, within(t, soon))
						require.ErrorIs(t, err, zklock.ErrAuthFailed, name)
						require.ErrorContains(t, err, "-124")
						require.True(t, zklock.IsFinal(err))
					}
					synctest.Wait() // for the state and the log
					require.Equal(t, zklock.StateClosed, s.Stats().State)
					require.Equal(t, 1, lines.about(refusedLine, "-124"))
				})
			}
		}
	}
}

// R117: servers that have served a Session without SASL begin to require it. The Session is
// rejected at its first request on each connection: it tries less and less often, and continues
// when they serve it again.
func TestVirtual_SASL_RequiredLater_IsTriedAgain(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		var lines warnings
		s := v.connect(lines.option())
		h := acquire(t, newMutex(t, s, "/job"))
		var heal []func()
		for _, op := range []zktest.Op{zktest.AnyOp, zktest.Ping} {
			heal = append(heal, v.srv.Inject(zktest.Before(op).Fail(authRequired).Optional()).Remove)
		}
		lostWithin(t, h, 15*time.Second) // a heartbeat, and the lease
		requireRefused(t, h.Err(), "code -124")
		v.srv.ResetRequests()
		waits := v.queueUp(newMutex(t, s, "/other"))
		time.Sleep(10 * time.Minute)
		require.False(t, waits.isGranted())
		require.Less(t, v.srv.Requests().Total(zktest.Connect), 60)
		require.Equal(t, 1, lines.about(refusedLine, "-124"))
		for _, f := range heal {
			f()
		}
		release(t, waits.granted2(t, time.Minute))
	})
}

// R117, I6: servers begin to reject a Session that waits in a queue, and still attach it. Its node
// does not block the clients behind it: the ZooKeeper session is given up as if no server
// responded, and has expired a session timeout later.
func TestVirtual_RejectedWaiter_BlocksNobody(t *testing.T) {
	const timeout = 10 * time.Second
	for code, ops := range map[zktest.Code][]zktest.Op{
		authRequired: {zktest.AnyOp, zktest.Ping},
		authFailed:   {authOp},
	} {
		inVirtualTime(t, func(t *testing.T, v *virtual) {
			var lines warnings
			h := acquire(t, newMutex(t, v.connect(), "/job"))
			s := v.connect(zklock.WithDigest("ann", "secret"), zklock.WithSessionTimeout(timeout), lines.option())
			v.queueUp(newMutex(t, s, "/job"))
			next := v.queueUp(newMutex(t, v.connect(), "/job"))
			for _, op := range ops {
				v.srv.Inject(zktest.Before(op).Session(s.Stats().SessionID).Fail(code).Optional())
			}
			require.True(t, v.srv.DropConnection(s.Stats().SessionID))
			time.Sleep(time.Second)
			release(t, h)
			release(t, next.granted2(t, timeout*7/6+time.Second+3*time.Second+timeout+serverTick)) // 3 s: pauses of dials
			require.Equal(t, 1, lines.about(refusedLine, fmt.Sprint(int(code))))
		})
	}
}
