package zklockotel

// The instruments, and the attributes that distinguish locks.

import (
	"errors"
	"slices"
	"strings"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/zklock/zklock"
)

// instruments has counters and histograms, which record events, and gauges, which are observed at
// each collection.
type instruments struct {
	acquired, held, overrun metric.Float64Histogram
	lost                    metric.Int64Counter
	gauges
}

type gauges struct {
	waiting, holds, lostUnreleased, deletions, sessions, attached metric.Int64ObservableUpDownCounter
	reconnects                                                    metric.Int64ObservableCounter
	leaseLeft                                                     metric.Float64ObservableGauge
	isLeader                                                      metric.Int64ObservableGauge
}

func (g *gauges) all() []metric.Observable {
	return []metric.Observable{g.waiting, g.holds, g.lostUnreleased, g.deletions, g.sessions, g.attached, g.reconnects, g.leaseLeft, g.isLeader}
}

// buckets are the same as in zklockprom: from a round trip to half a day, in seconds.
var buckets = []float64{.001, .005, .025, .1, .5, 2.5, 10, 60, 300, 1800, 7200, 43200}

func newInstruments(m metric.Meter) (in instruments, err error) {
	var errs []error
	histogram := func(name, what string) metric.Float64Histogram {
		h, err := m.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(what), metric.WithExplicitBucketBoundaries(buckets...))
		errs = append(errs, err)
		return h
	}
	count := func(name, unit, what string) metric.Int64ObservableUpDownCounter {
		c, err := m.Int64ObservableUpDownCounter(name, metric.WithUnit(unit), metric.WithDescription(what))
		errs = append(errs, err)
		return c
	}
	in.acquired = histogram("zklock.acquire.duration", "How long acquires took, by outcome.")
	in.held = histogram("zklock.hold.duration", "How long locks were held, until the release.")
	in.overrun = histogram("zklock.overrun", "How long lost holds were not released: work may have run beside the next holder.")
	in.lost, err = m.Int64Counter("zklock.holds.lost", metric.WithUnit("{hold}"), metric.WithDescription("Holds that ended without a release, by reason."))
	errs = append(errs, err)
	in.waiting = count("zklock.waiting", "{acquire}", "Acquires under way.")
	in.holds = count("zklock.holds", "{hold}", "Holds that stand.")
	in.lostUnreleased = count("zklock.holds.lost_unreleased", "{hold}", "Holds that were lost and that nobody has released: work may go on under them.")
	in.deletions = count("zklock.deletions.pending", "{deletion}", "Deletions of lock nodes that no server has confirmed.")
	in.sessions = count("zklock.sessions", "{session}", "Sessions that are not closed.")
	in.attached = count("zklock.sessions.attached", "{session}", "Sessions that are attached to a server.")
	in.reconnects, err = m.Int64ObservableCounter("zklock.reconnects", metric.WithUnit("{reconnect}"), metric.WithDescription("How often the Session was attached again."))
	errs = append(errs, err)
	in.leaseLeft, err = m.Float64ObservableGauge("zklock.lease.left", metric.WithUnit("s"), metric.WithDescription("How long the holds may be relied on if no further answer comes."))
	errs = append(errs, err)
	in.isLeader, err = m.Int64ObservableGauge("zklock.is_leader", metric.WithUnit("1"), metric.WithDescription("1 if this Session leads the election, else 0."))
	return in, errors.Join(append(errs, err)...)
}

const (
	mostLocks = 100
	others    = "_others"
)

// series are the sets of attributes, each made once. There are a few for each lock attribute, which
// has at most mostLocks values and one for all other locks.
type series struct {
	base  []attribute.KeyValue
	alone metric.MeasurementOption // base

	mu    sync.RWMutex
	names map[string]bool
	sets  map[key]metric.MeasurementOption
}

// key is a set of attributes: the lock, its kind unless that is empty, and at most one more
// attribute.
type key struct {
	lock        string
	kind        zklock.Kind
	more, value string
}

func (s *series) init(base []attribute.KeyValue) {
	s.base, s.names, s.sets = base, make(map[string]bool), make(map[key]metric.MeasurementOption)
	s.alone = metric.WithAttributeSet(attribute.NewSet(slices.Clone(base)...))
}

// valid returns the text as UTF-8. An exporter drops the whole batch if one text is not.
func valid(text string) string { return strings.ToValidUTF8(text, "\uFFFD") }

// name returns the lock attribute: the name or the path, up to the limit.
func (s *series) name(a zklock.AcquireInfo) string {
	name := a.Name
	if name == "" {
		name = a.Path
	}
	name = valid(name)
	s.mu.RLock()
	known := s.names[name]
	s.mu.RUnlock()
	if known {
		return name
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.names[name] && len(s.names) >= mostLocks {
		return others
	}
	s.names[name] = true
	return name
}

func (s *series) of(k key) metric.MeasurementOption {
	s.mu.RLock()
	set, ok := s.sets[k]
	s.mu.RUnlock()
	if ok {
		return set
	}
	attrs := append(slices.Clone(s.base), attribute.String("zklock.lock", k.lock))
	if k.kind != "" {
		attrs = append(attrs, attribute.String("zklock.kind", string(k.kind)))
	}
	if k.more != "" {
		attrs = append(attrs, attribute.String(k.more, k.value))
	}
	set = metric.WithAttributeSet(attribute.NewSet(attrs...))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sets[k] = set
	return set
}
