// Package zklockprom provides Prometheus metrics of a process's locks.
//
//	metrics := zklockprom.New()
//	prometheus.MustRegister(metrics)
//	s, err := zklock.Connect(ctx, servers, metrics.Option())
//	...
//	metrics.Watch(s)
//
// rules.yml in this directory has alerts on them.
//
// # By lock
//
//	zklock_acquire_duration_seconds  histogram  lock, kind, outcome: how long acquires took,
//	                                            including failed ones
//	zklock_hold_duration_seconds     histogram  lock, kind: from the grant to the release
//	zklock_overrun_seconds           histogram  lock: from a loss to the release; in that time
//	                                            work may have overlapped with the next holder
//	zklock_holds_lost_total          counter    lock, reason: holds that ended without a release;
//	                                            the reason is HoldInfo.Reason
//	zklock_longest_wait_seconds      gauge      lock, kind: how long the longest acquire under
//	                                            way has waited; 0 without one
//	zklock_longest_hold_seconds      gauge      lock, kind: how long the longest hold has not
//	                                            been released; 0 without one
//	zklock_is_leader                 gauge      lock: 1 if a candidate of this process leads now,
//	                                            by Hold.Err, else 0; missing without a
//	                                            candidate. After an error ended Run or
//	                                            Campaign, it is 0 until all watched Sessions
//	                                            are closed or the process campaigns again
//	zklock_holds_lost_unreleased     gauge      lost holds that are not released: overruns that
//	                                            have not ended
//
// kind is AcquireInfo.Kind: mutex, read, write, semaphore or election. outcome is the result of
// AcquireEndInfo.Outcome: acquired, not_acquired, canceled, deadline, not_connected, closed
// or error.
//
// A re-entry does not count as an acquire, nor its handle as a hold: a hold is counted once, and
// ends when its last handle is released. Closing a Session ends its holds. They count as lost until
// they are released, because work may continue under them.
//
// # By process
//
// These gauges and counters come from Session.Stats at each scrape, so they cannot drift. They
// are sums over the watched Sessions.
//
//	zklock_waiting             gauge    acquires under way
//	zklock_holds               gauge    valid holds
//	zklock_deletions_pending   gauge    deletions of lock nodes that no server has confirmed
//	zklock_sessions            gauge    Sessions
//	zklock_sessions_attached   gauge    Sessions that are attached to a server
//	zklock_sessions_guarded    gauge    Sessions that are connected to a guard
//	zklock_lease_left_seconds  gauge    the shortest lease of a Session that has a hold; missing
//	                                    without a hold
//	zklock_reconnects_total    counter  how often Sessions were attached again, also closed ones
//	zklock_releases_unconfirmed_total
//	                           counter  releases that no server confirmed in time, likewise
//
// # By group of shards
//
// These come from Group.Stats of the groups that were passed to WatchGroup. lock is the path of the
// group, as it is for the locks of the group above: zklock_is_leader shows the process that plans,
// and the mutexes of the shards share one line. Counters start at 0 with each call of Run.
//
//	zklock_shards                         gauge    lock: shards of the group, of all its members
//	zklock_shards_wanted                  gauge    lock: shards that the plan gives this process
//	zklock_shards_rejected                gauge    lock: wanted shards for which the servers
//	                                               rejected this process
//	zklock_shards_idle_seconds            gauge    lock, shard, reason: how long a wanted shard
//	                                               has not been worked on, from 1 s on; of the 20
//	                                               oldest of this process. The reason is that of
//	                                               shards.Idle
//	zklock_shards_working                 gauge    lock: shards on which a function works
//	zklock_shards_unwanted                gauge    lock: working shards that wait for another
//	                                               process to take them over
//	zklock_shards_returning               gauge    lock: shards whose function was asked to end
//	                                               and has not returned
//	zklock_shards_longest_wait_seconds    gauge    lock: the longest time for which a shard has
//	                                               been wanted and not worked on
//	zklock_shards_longest_return_seconds  gauge    lock: the longest time since a function that
//	                                               has not returned was asked to end
//	zklock_shards_name_taken              gauge    lock: 1 if another member has the name of
//	                                               this one, which gets no shards
//	zklock_shards_unserved_seconds_total  counter  lock: how long shards were wanted and not
//	                                               worked on, added up over the shards
//	zklock_shards_failed_total            counter  lock: functions that returned early or panicked
//	zklock_shards_lost_total              counter  lock: holds lost while a function worked
//	zklock_shards_plans_total             counter  lock: plans that this process has written
//	zklock_shards_moves_total             counter  lock: moves of shards in those plans
//
// A process has no data about shards that the plan gives to others. How many shards have no owner
// is the largest zklock_shards, less the sum of zklock_shards_working over all processes.
//
// # Cardinality
//
// lock is the name from WithName, otherwise the path as given. The first 100 names (WithMaxLocks)
// have series of their own; all later ones are combined in "_others". The package does not guess
// which part of a path is an id: if paths have ids, give those locks one name.
//
// A lock has 71 series: four histograms of 12 buckets, for successful acquires, failed acquires,
// holds and overruns; a counter for each reason of a loss; and two gauges. Each further outcome
// adds 15, and a read/write lock has 47 for its other side. So a process with more than 100 names
// has some 7,200 series, and 16,000 if each mutex has had every outcome. Each histogram is also a
// native one. A Prometheus that stores only native histograms has 15 series for each lock, and 1
// for each further outcome.
package zklockprom

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/shards"
)

// Metrics counts the acquires and holds of the Sessions that were connected with its Option, and
// reads the Stats of the Sessions that it watches. It is a prometheus.Collector. All its methods
// may be called from any goroutine.
//
// Several Sessions may share one Metrics: their numbers are added up. To distinguish them, give
// each a Metrics of its own, and register those with prometheus.WrapRegistererWith and a label,
// such as the ensemble.
type Metrics struct {
	trace    zklock.Trace
	acquires *prometheus.HistogramVec
	held     *prometheus.HistogramVec
	overrun  *prometheus.HistogramVec
	lost     *prometheus.CounterVec

	sessions sessions
	groups   groups

	mu    sync.Mutex // guards what follows, and the contents of the lines; not held during a call of a Hold
	names names
	lines map[lineKey]*line
}

// buckets are for waits and holds, from a millisecond to half a day.
var buckets = []float64{.001, .005, .025, .1, .5, 2.5, 10, 60, 300, 1800, 7200, 43200}

// Option configures New.
type Option func(*Metrics)

// WithMaxLocks sets how many lock names have series of their own; the default is 100. With 0 or
// less, all names are "_others".
func WithMaxLocks(n int) Option { return func(m *Metrics) { m.names.limit = n } }

// New returns a Metrics that counts from zero. Register it once. New panics if an option is nil.
func New(opts ...Option) *Metrics {
	histogram := func(name, help string, labels ...string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: name, Help: help, Buckets: buckets,
			NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 100, NativeHistogramMinResetDuration: time.Hour,
		}, labels)
	}
	m := &Metrics{
		acquires: histogram("zklock_acquire_duration_seconds", "How long acquires took, by their outcome.", "lock", "kind", "outcome"),
		held:     histogram("zklock_hold_duration_seconds", "How long locks were held, until the release.", "lock", "kind"),
		overrun:  histogram("zklock_overrun_seconds", "How long lost holds were not released: work may have run beside the next holder.", "lock"),
		lost: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "zklock_holds_lost_total", Help: "Holds that ended without a release, by the reason.",
		}, []string{"lock", "reason"}),
		names: names{limit: 100, known: make(map[string]struct{})},
		lines: make(map[lineKey]*line),
	}
	m.sessions.watched, m.groups.watched = make(map[*zklock.Session]struct{}), make(map[*shards.Group]struct{})
	m.trace = zklock.Trace{AcquireStart: m.acquireStart, AcquireEnd: m.acquireEnd, HoldLost: m.holdLost, HoldEnd: m.holdEnd}
	for _, opt := range opts {
		if opt == nil {
			panic("zklockprom: nil Option: leave it out")
		}
		opt(m)
	}
	return m
}

// Option is an option for Connect that has the Session's acquires and holds counted. It can be
// combined with other traces. While another trace's HoldLost blocks, a loss may be counted only
// when its hold is released; zklock_holds_lost_unreleased shows it at once.
func (m *Metrics) Option() zklock.Option { return zklock.WithTrace(&m.trace) }

// Watch adds the Session's Stats to the metrics of the process until it is closed. A Session is
// counted once, however often it is watched. Watch panics if s is nil or zero.
func (m *Metrics) Watch(s *zklock.Session) { m.sessions.watch(s) }

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, c := range []prometheus.Collector{m.acquires, m.held, m.overrun, m.lost} {
		c.Describe(ch)
	}
	for _, d := range byLine {
		ch <- d
	}
	for _, d := range byProcess {
		ch <- d
	}
	for _, metric := range byGroup {
		ch <- metric.desc
	}
	ch <- idleDesc
}

// Collect implements prometheus.Collector. It reads the current state of the Sessions and of the
// holds of elections, and sends nothing to a server.
func (m *Metrics) Collect(ch chan<- prometheus.Metric) {
	isOpen := m.sessions.collect(ch) // first, because a lease that has expired ends its holds
	m.collectLines(ch, isOpen)
	m.collectGroups(ch)
	for _, c := range []prometheus.Collector{m.acquires, m.held, m.overrun, m.lost} {
		c.Collect(ch)
	}
}
