package zklockprom

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/zklock/zklock"
)

type sessions struct {
	mu                      sync.Mutex
	watched                 map[*zklock.Session]struct{}
	reconnects, unconfirmed int // of the closed Sessions
}

var (
	waitingDesc    = describe("zklock_waiting", "Acquires under way.")
	holdsDesc      = describe("zklock_holds", "Holds that stand.")
	deletionsDesc  = describe("zklock_deletions_pending", "Deletions of lock nodes that no server has confirmed.")
	sessionsDesc   = describe("zklock_sessions", "Sessions that are not closed.")
	attachedDesc   = describe("zklock_sessions_attached", "Sessions that are attached to a server.")
	guardedDesc    = describe("zklock_sessions_guarded", "Sessions that are connected to a guard.")
	leaseDesc      = describe("zklock_lease_left_seconds", "The shortest time for which holds may be relied on if no further answer comes.")
	reconnectsDesc = describe("zklock_reconnects_total", "How often Sessions were attached again.")
	releasesDesc   = describe("zklock_releases_unconfirmed_total", "Releases that no server confirmed in time.")

	byProcess = []*prometheus.Desc{waitingDesc, holdsDesc, deletionsDesc, sessionsDesc, attachedDesc, guardedDesc, leaseDesc, reconnectsDesc, releasesDesc}
)

func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

func gauge[N int | float64](d *prometheus.Desc, n N, labels ...string) prometheus.Metric {
	return prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(n), labels...)
}

func (w *sessions) watch(s *zklock.Session) {
	s.Stats() // panics at the caller's mistake
	w.mu.Lock()
	defer w.mu.Unlock()
	w.watched[s] = struct{}{}
}

// sum adds up the Sessions' numbers. LeaseLeft is the shortest of the Sessions that have a hold.
func (w *sessions) sum() (sum zklock.Stats, open, attached, guarded int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	sum.Reconnects, sum.Unconfirmed = w.reconnects, w.unconfirmed
	for s := range w.watched {
		st := s.Stats()
		sum.Reconnects += st.Reconnects
		sum.Unconfirmed += st.Unconfirmed
		if st.State == zklock.StateClosed {
			w.reconnects += st.Reconnects // a counter must never decrease
			w.unconfirmed += st.Unconfirmed
			delete(w.watched, s)
			continue
		}
		open++
		if st.Server != "" {
			attached++
		}
		if st.Guarded {
			guarded++
		}
		if st.Held > 0 && (sum.Held == 0 || st.LeaseLeft < sum.LeaseLeft) {
			sum.LeaseLeft = st.LeaseLeft
		}
		sum.Waiting += st.Waiting
		sum.Held += st.Held
		sum.Deleting += st.Deleting
	}
	return sum, open, attached, guarded
}

// collect reports whether a Session is open.
func (w *sessions) collect(ch chan<- prometheus.Metric) (isOpen bool) {
	sum, open, attached, guarded := w.sum()
	ch <- gauge(waitingDesc, sum.Waiting)
	ch <- gauge(holdsDesc, sum.Held)
	ch <- gauge(deletionsDesc, sum.Deleting)
	ch <- gauge(sessionsDesc, open)
	ch <- gauge(attachedDesc, attached)
	ch <- gauge(guardedDesc, guarded)
	if sum.Held > 0 {
		ch <- gauge(leaseDesc, sum.LeaseLeft.Seconds())
	}
	ch <- prometheus.MustNewConstMetric(reconnectsDesc, prometheus.CounterValue, float64(sum.Reconnects))
	ch <- prometheus.MustNewConstMetric(releasesDesc, prometheus.CounterValue, float64(sum.Unconfirmed))
	return open > 0
}
