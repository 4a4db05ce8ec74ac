package zklockprom

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/shards"
)

type groups struct {
	mu      sync.Mutex
	watched map[*shards.Group]struct{}
}

// groupMetric is a metric of a group: a gauge or a counter.
type groupMetric struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(s *shards.Stats) float64
}

func groupGauge(name, help string, value func(s *shards.Stats) float64) groupMetric {
	return groupMetric{describe(name, help, "lock"), prometheus.GaugeValue, value}
}

func groupCounter(name, help string, value func(s *shards.Stats) float64) groupMetric {
	return groupMetric{describe(name, help, "lock"), prometheus.CounterValue, value}
}

var byGroup = []groupMetric{
	groupGauge("zklock_shards", "Shards of the group, of all its members.", func(s *shards.Stats) float64 { return float64(s.Shards) }),
	groupGauge("zklock_shards_wanted", "Shards that the plan gives to this process.", func(s *shards.Stats) float64 { return float64(s.Wanted) }),
	groupGauge("zklock_shards_rejected", "Of those, the ones for which the servers rejected this process.",
		func(s *shards.Stats) float64 { return float64(s.Rejected) }),
	groupGauge("zklock_shards_working", "Shards on which a function works.", func(s *shards.Stats) float64 { return float64(s.Working) }),
	groupGauge("zklock_shards_unwanted", "Working shards that wait for another process to take them over.",
		func(s *shards.Stats) float64 { return float64(s.Unwanted) }),
	groupGauge("zklock_shards_returning", "Shards whose function was asked to end and has not returned.",
		func(s *shards.Stats) float64 { return float64(s.Returning) }),
	groupGauge("zklock_shards_longest_wait_seconds", "The longest time for which a shard has been wanted and not worked on.",
		func(s *shards.Stats) float64 { return s.Waiting.Seconds() }),
	groupGauge("zklock_shards_longest_return_seconds", "The longest time since a function that has not returned was asked to end.",
		func(s *shards.Stats) float64 { return s.LongestReturn.Seconds() }),
	groupGauge("zklock_shards_name_taken", "Whether another member of the group has the name of this one, which gets no shards.",
		func(s *shards.Stats) float64 { return isTrue(s.NameTaken) }),
	groupCounter("zklock_shards_unserved_seconds_total", "For how long shards were wanted and not worked on, added up over the shards.",
		func(s *shards.Stats) float64 { return s.Unserved.Seconds() }),
	groupCounter("zklock_shards_failed_total", "Functions that returned early or panicked.", func(s *shards.Stats) float64 { return float64(s.Failed) }),
	groupCounter("zklock_shards_lost_total", "Holds that were lost while a function worked.", func(s *shards.Stats) float64 { return float64(s.Lost) }),
	groupCounter("zklock_shards_plans_total", "Plans that this process has written.", func(s *shards.Stats) float64 { return float64(s.Plans) }),
	groupCounter("zklock_shards_moves_total", "Moves of shards in those plans.", func(s *shards.Stats) float64 { return float64(s.Moves) }),
}

// Each idle shard has a series of its own. The limits keep their number small: a shard that moves
// is idle for less than idleFor.
const (
	idleFor = time.Second
	maxIdle = 20 // of a process
)

var idleDesc = describe("zklock_shards_idle_seconds", "How long a shard that the plan gives to this process has not been worked on, by the reason.", "lock", "shard", "reason")

type idleKey struct{ lock, shard, reason string }

func isTrue(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

// WatchGroup adds the Stats of a group of shards to the metrics, as long as m is used. A Group is
// counted once, however often it is watched. WatchGroup panics if g is nil.
func (m *Metrics) WatchGroup(g *shards.Group) {
	g.Path() // panics at the caller's mistake
	m.groups.mu.Lock()
	defer m.groups.mu.Unlock()
	m.groups.watched[g] = struct{}{}
}

// collectGroups adds up the numbers of the groups that have one label. Of durations, and of the
// numbers of shards, it takes the largest.
func (m *Metrics) collectGroups(ch chan<- prometheus.Metric) {
	sums, now := map[string]*shards.Stats{}, time.Now()
	idle := map[idleKey]time.Duration{}
	m.groups.mu.Lock()
	for g := range m.groups.watched {
		m.mu.Lock()
		label := m.names.label(zklock.AcquireInfo{Path: g.Path()}) // the label of the group's locks
		m.mu.Unlock()
		s := g.Stats()
		for _, i := range s.Idle[:min(maxIdle, len(s.Idle))] { // the oldest of this group
			key := idleKey{label, strconv.Itoa(i.Shard), i.Reason}
			idle[key] = max(idle[key], now.Sub(i.Since))
		}
		sum := sums[label]
		if sum == nil {
			sums[label] = &s
			continue
		}
		sum.Shards, sum.Rejected = max(sum.Shards, s.Shards), sum.Rejected+s.Rejected
		sum.Wanted, sum.Working, sum.Unwanted, sum.Returning = sum.Wanted+s.Wanted, sum.Working+s.Working, sum.Unwanted+s.Unwanted, sum.Returning+s.Returning
		sum.Waiting, sum.LongestReturn, sum.NameTaken = max(sum.Waiting, s.Waiting), max(sum.LongestReturn, s.LongestReturn), sum.NameTaken || s.NameTaken
		sum.Unserved, sum.Failed, sum.Lost, sum.Plans, sum.Moves = sum.Unserved+s.Unserved, sum.Failed+s.Failed, sum.Lost+s.Lost, sum.Plans+s.Plans, sum.Moves+s.Moves
	}
	m.groups.mu.Unlock()
	for label, sum := range sums {
		for _, metric := range byGroup {
			ch <- prometheus.MustNewConstMetric(metric.desc, metric.kind, metric.value(sum), label)
		}
	}
	oldest := slices.SortedFunc(maps.Keys(idle), func(a, b idleKey) int { return cmp.Compare(idle[b], idle[a]) })
	for _, key := range oldest[:min(maxIdle, len(oldest))] {
		if idle[key] >= idleFor {
			ch <- gauge(idleDesc, idle[key].Seconds(), key.lock, key.shard, key.reason)
		}
	}
}
