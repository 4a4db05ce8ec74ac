package zklock_test

// These tests stop all servers under many Sessions, and count the Sessions' dials: they become
// rare, and cost no hold.

import (
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/internal/hook"
	"github.com/zklock/zklock/zktest"
)

// dialled counts dials by the second in which they were made, from begin on. While down is set,
// each is refused.
type dialled struct {
	net *zktest.Network

	mu    sync.Mutex
	down  bool
	begin time.Time
	each  []int
}

func (d *dialled) dialer() zklock.Option {
	return zklock.WithDialer(func(network, addr string, timeout time.Duration) (net.Conn, error) {
		d.mu.Lock()
		if down := d.down; down {
			second := int(time.Since(d.begin) / time.Second)
			for len(d.each) <= second {
				d.each = append(d.each, 0)
			}
			d.each[second]++
			d.mu.Unlock()
			return nil, syscall.ECONNREFUSED
		}
		d.mu.Unlock()
		return d.net.Dial(network, addr, timeout)
	})
}

func (d *dialled) stop() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.down, d.begin, d.each = true, time.Now(), nil
}

// between returns how many dials there were from one second to another, and the most in one second.
func (d *dialled) between(from, to int) (sum, most int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := from; i < min(to, len(d.each)); i++ {
		sum, most = sum+d.each[i], max(most, d.each[i])
	}
	return sum, most
}

// storm connects so many Sessions that do something, stops all servers, and lets the outage last.
func storm(t *testing.T, sessions int, lasts time.Duration, do string, f func(d *dialled)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		d := &dialled{net: zktest.NewNetwork()}
		ens := zktest.StartEnsemble(t, 3, zktest.WithNetwork(d.net))
		_, err := ens.Create("/job", nil, 0)
		require.NoError(t, err)
		for i := range sessions {
			s := hooked(t, hook.Session{}, strings.Join(ens.Addrs(), ","), zklock.WithSessionTimeout(30*time.Second), d.dialer(), zklock.WithLogger(slog.New(slog.DiscardHandler)))
			switch m := newMutex(t, s, fmt.Sprintf("/job/%d", i)); do {
			case "wait":
				h := acquire(t, m)
				go func() { _, _ = newMutex(t, s, "/job").Acquire(t.Context()) }()
				release(t, h)
			case "hold":
				_ = acquire(t, m)
			}
		}
		time.Sleep(time.Minute)
		d.stop()
		for _, m := range ens.Members() {
			m.Stop()
		}
		time.Sleep(lasts)
		f(d)
	})
}

// R50: an outage of all servers under 300 Sessions. Each Session moves to another server at once,
// and then they dial less and less often: as long as a hold or a position in a queue can be lost,
// no more often than before, and afterwards so rarely that the servers can start.
func TestVirtual_Outage_DialsGrowRare(t *testing.T) {
	const servers = 3
	sessions := 300 / oneIn(3)
	for _, tt := range []struct {
		do   string
		most int // in the average second and of 300 Sessions, once nothing can be lost
	}{
		{"nothing", 15}, {"hold", 45}, {"wait", 220},
	} {
		t.Run(tt.do, func(t *testing.T) {
			storm(t, sessions, 3*time.Minute, tt.do, func(d *dialled) {
				first, _ := d.between(0, 1)
				require.GreaterOrEqual(t, first, sessions, "each at once")
				for _, span := range [][2]int{{0, 1}, {1, 10}, {10, 30}, {30, 60}, {60, 120}, {120, 180}} {
					sum, most := d.between(span[0], span[1])
					t.Logf("%s, from second %d to %d: %d dials a second, %d at the most", tt.do, span[0], span[1], sum/(span[1]-span[0]), most)
					require.LessOrEqual(t, most, sessions*servers)
				}
				early, _ := d.between(1, 10)
				require.Less(t, early, 9*sessions*servers*2/3)
				late, most := d.between(45, 180)
				allowed := tt.most * sessions / 300
				require.Less(t, late/135, allowed)
				require.Less(t, most, 2*allowed+30, "and not in step")
				require.Positive(t, late)
			})
		})
	}
}

// An hour of it, of fewer Sessions: the dials of one do not depend on the other ones.
func TestVirtual_OutageOfAnHour_Dials(t *testing.T) {
	storm(t, 15, time.Hour, "nothing", func(d *dialled) {
		late, _ := d.between(600, 3600)
		t.Logf("of one Session idle: %.3f dials a second", float64(late)/3000/15)
		require.InDelta(t, 3000*15/22.5, late, 3000*15/22.5/10, "one each 15 to 30 seconds")
	})
}

// When a call needs a server, an idle Session does not complete its pause of thirty seconds: a call
// that waits, for moments or for most of the hour, has the lock soon after the servers are back,
// and so has a call that tries again.
func TestVirtual_OutageOfAnHour_ACallEndsTheRest(t *testing.T) {
	for range 5 / oneIn(5) {
		inVirtualTime(t, func(t *testing.T, v *virtual) {
			waits, waitsLong := v.connect(), v.connect()
			var tries []*zklock.Mutex
			for i := range 5 { // some end a pause just now anyway
				tries = append(tries, newMutex(t, v.connect(), fmt.Sprintf("/other/%d", i)))
			}
			v.srv.Stop()
			time.Sleep(10 * time.Minute)
			long := v.queueUp(newMutex(t, waitsLong, "/job"))
			time.Sleep(50 * time.Minute)
			for _, m := range tries {
				_, err := m.TryAcquire(t.Context())
				require.ErrorIs(t, err, zklock.ErrNotConnected)
			}
			time.Sleep(2 * time.Second) // the rest that was under way is cut short
			require.NoError(t, v.srv.Start())
			began := time.Now()
			release(t, long.granted2(t, 5*time.Second))
			release(t, acquire(t, newMutex(t, waits, "/job")))
			time.Sleep(time.Until(began.Add(5 * time.Second)))
			for _, m := range tries {
				h, err := m.TryAcquire(t.Context())
				require.NoError(t, err)
				release(t, h)
			}
		})
	}
}

// F22, I5: the servers return 1.7 seconds before the lease of a hold ends. The client's pause takes
// one of them at most, and our pauses do not take the rest. The session has much longer.
func TestVirtual_OutageOfNearlyTheLease_HoldRemains(t *testing.T) {
	for phase := range 30 {
		inVirtualTime(t, func(t *testing.T, v *virtual) {
			h := acquire(t, newMutex(t, v.connect(zklock.WithSessionTimeout(30*time.Second)), "/job"))
			time.Sleep(time.Minute + time.Duration(phase)*100*time.Millisecond)
			v.srv.Stop()
			time.Sleep(time.Until(h.Deadline()) - 1700*time.Millisecond)
			require.NoError(t, v.srv.Start())
			time.Sleep(10 * time.Second)
			require.NoError(t, h.Err())
			release(t, h)
		})
	}
}

// A client that uses Session.Conn for itself is notified within two seconds that there is no
// server, however long the Session's pause is.
func TestVirtual_OutageOfAnHour_ConnAnswers(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		s := v.connect()
		v.srv.Stop()
		time.Sleep(time.Hour)
		for range 20 {
			began := time.Now()
			_, _, err := s.Conn().Get("/job")
			require.ErrorIs(t, err, zk.ErrNoServer)
			require.LessOrEqual(t, time.Since(began), 2*time.Second+time.Millisecond)
			time.Sleep(1700 * time.Millisecond)
		}
		began := time.Now()
		require.NoError(t, s.Close())
		require.LessOrEqual(t, time.Since(began), 4*time.Second)
	})
}
