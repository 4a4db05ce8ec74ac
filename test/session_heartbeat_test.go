package zklock_test

// WithHeartbeat: a fleet that sends more or fewer requests than docs/lease.md states, a lease with
// a smaller margin, and a heartbeat without one.

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
)

// heartbeats are the requests a second of a thousand Sessions that hold, including pings.
// docs/lease.md states them for T = 30 s.
var heartbeats = []struct {
	T, d    time.Duration // d = 0: the default
	room    time.Duration
	asks    float64
	waiting float64 // requests a second of a thousand that wait
}{
	{T: 30 * time.Second, d: time.Second, room: 14500 * time.Millisecond, asks: 1100, waiting: 500},
	{T: 30 * time.Second, room: 12500 * time.Millisecond, asks: 433, waiting: 500},
	{T: 30 * time.Second, d: 5 * time.Second, room: 10500 * time.Millisecond, asks: 300, waiting: 367},
	{T: 30 * time.Second, d: 7500 * time.Millisecond, room: 3 * time.Second, asks: 233, waiting: 367},
	{T: 40 * time.Second, room: 18100 * time.Millisecond, asks: 325, waiting: 375},
	{T: 40 * time.Second, d: 8 * time.Second, room: 11400 * time.Millisecond, asks: 200, waiting: 275},
}

// Ten Sessions hold and ten wait, for ten minutes: their requests are counted, and the leases
// checked all the time.
func TestVirtual_Heartbeat_RequestsAndRoom(t *testing.T) {
	for _, row := range heartbeats {
		t.Run(fmt.Sprintf("T %v, d %v", row.T, row.d), func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, v *virtual) {
				opts := []zklock.Option{zklock.WithSessionTimeout(row.T), zklock.WithLease(zklock.QuorumLease(0))}
				if row.d != 0 {
					opts = append(opts, zklock.WithHeartbeat(row.d))
				}
				var holds []*zklock.Hold
				var waits []*waiting
				asked := make(map[bool]float64) // by whether its Session holds
				who := make(map[int64]bool)
				for i := range 10 {
					s, w := v.connect(opts...), v.connect(opts...)
					who[s.Stats().SessionID], who[w.Stats().SessionID] = true, false
					time.Sleep(row.T / 7)
					path := fmt.Sprintf("/job-%d", i)
					holds = append(holds, acquire(t, newMutex(t, s, path)))
					waits = append(waits, v.queueUp(newMutex(t, w, path)))
				}
				time.Sleep(2 * row.T)
				v.srv.ResetRequests()
				least := time.Hour
				const watched = 10 * time.Minute
				for end := time.Now().Add(watched); time.Now().Before(end); time.Sleep(97 * time.Millisecond) {
					for _, h := range holds {
						least = min(least, time.Until(h.Deadline()))
					}
				}
				synctest.Wait()
				counts := v.srv.Requests()
				for id, kinds := range counts.BySession {
					for _, n := range kinds {
						asked[who[id]] += float64(n)
					}
				}
				pings := 1000 * 3 / row.T.Seconds() // each third of T, regardless of other requests
				require.InDelta(t, 20*watched.Seconds()*pings/1000, counts.Pings, 40)
				for holding, want := range map[bool]float64{true: row.asks, false: row.waiting} {
					require.InEpsilon(t, want, asked[holding]*100/watched.Seconds()+pings, 0.03, "a thousand Sessions, holding %v", holding)
				}
				require.GreaterOrEqual(t, least, row.room)
				for i, h := range holds {
					release(t, h)
					release(t, waits[i].granted(t))
				}
			})
		})
	}
}

// A longer heartbeat does not make a Session wait longer for an unresponsive server, and a shorter
// one does not make it leave sooner.
func TestVirtual_Heartbeat_PatienceStays(t *testing.T) {
	left := make(map[time.Duration]time.Duration)
	for _, every := range []time.Duration{250 * time.Millisecond, 3 * time.Second, 5 * time.Second} {
		inTheDark(t, 3, "follower", 30*time.Second, func(t *testing.T, d *darkness) {
			s := connect(t, strings.Join(d.ens.Addrs(), ","), zklock.WithDialer(d.net.Dial), zklock.WithSessionTimeout(30*time.Second), zklock.WithHeartbeat(every))
			h := acquire(t, newMutex(t, s, "/ours"))
			time.Sleep(time.Minute + 10*time.Millisecond)
			changes := s.Changes(t.Context())
			server, dark := s.Conn().Server(), time.Now()
			d.net.Partition(server)
			for c := range changes {
				if c.State == zklock.StateSuspended {
					left[every] = time.Since(dark)
					break
				}
			}
			d.net.Heal(server)
			release(t, h)
		})
	}
	require.InDelta(t, 6, left[3*time.Second].Seconds(), 0.5, "two tenths of T")
	require.InDelta(t, 6, left[250*time.Millisecond].Seconds(), 0.5, "not half a second")
	require.InDelta(t, 8, left[5*time.Second].Seconds(), 0.5, "a tenth after the question that has no answer")
}

// A heartbeat without a margin is rejected, at once or when the servers grant a shorter session
// timeout.
func TestConnect_Heartbeat_NoRoom(t *testing.T) {
	t.Parallel()
	srv := target(t)
	_, err := zklock.Connect(within(t, soon), srv, zklock.WithHeartbeat(9*time.Second), quiet(t))
	require.ErrorIs(t, err, zklock.ErrSessionTimeoutTooShort)
	require.ErrorContains(t, err, "30s with lease quorum (leader ping 4s), heartbeat 9s; use at least 31.5s for this lease (WithSessionTimeout)")
	require.ErrorContains(t, err, "or a shorter heartbeat (WithHeartbeat)")

	capped := startOwn(t, serverConfig{shortest: time.Second, longest: 10 * time.Second}).Addr()
	_, err = zklock.Connect(within(t, soon), capped, zklock.WithSessionTimeout(time.Minute), zklock.WithHeartbeat(6*time.Second), quiet(t))
	require.ErrorIs(t, err, zklock.ErrSessionTimeoutTooShort)
	require.ErrorContains(t, err, "did not grant the requested 1m0s: session timeout too short for the lease: 10s")
}

// R68: the servers read less of a request than a check of all holds needs. The heartbeat then has
// several requests, and no hold ends.
func TestVirtual_Heartbeat_ShortJuteMaxBuffer(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		s := v.connect(zklock.WithJuteMaxBuffer(4<<10), zklock.WithSessionTimeout(20*time.Second))
		var holds []*zklock.Hold
		for i := range 60 {
			holds = append(holds, acquire(t, newMutex(t, s, fmt.Sprintf("/%0*d", 40+i, i))))
		}
		time.Sleep(time.Minute)
		for _, h := range holds {
			release(t, h)
		}
	})
}
