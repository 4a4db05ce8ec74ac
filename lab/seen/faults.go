package main

import (
	"fmt"
	"log"
	"net/http"
	"path"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/zklock/internal/zkserver"
)

// fault is a fault of the replica that leads, and the signs that show it.
type fault struct {
	name  string
	do    func(w *world, leader *process) (heal func() error, err error)
	lasts time.Duration // until heal is called
	signs []sign
}

// sign is one way to see a fault: a metric or an alert in Prometheus, or a span. In expr, LEADER
// is replaced by the replica that led.
type sign struct {
	what  string
	expr  string
	rises bool // it is a counter or a sum, which must exceed its value before the fault
	span  func(s span, leader *process) bool
}

// seen is the time after which a sign appeared.
type seen struct {
	what  string
	after time.Duration // less than 0 if it did not appear
}

// patience is how long to wait for a sign.
const patience = 2*time.Minute + 30*time.Second

func metric(expr string) sign { return sign{what: "metric `" + shown(expr) + "`", expr: expr} }
func rises(expr string) sign {
	return sign{what: "metric `" + shown(expr) + "` rises", expr: expr, rises: true}
}
func alert(name, labels string) sign {
	return sign{what: "alert " + name, expr: fmt.Sprintf(`ALERTS{alertname=%q,alertstate="firing"%s}`, name, labels)}
}
func event(name string) sign {
	return sign{what: "span of the leader's hold, event `" + name + "`", span: func(s span, leader *process) bool {
		return s.from == leader && strings.HasPrefix(s.Name, "election ") && s.has(name)
	}}
}

// shown returns expr without the name of the replica.
func shown(expr string) string {
	for _, of := range []string{`instance="LEADER",`, `{instance="LEADER"}`, `{instance!="LEADER"}`} {
		expr = strings.ReplaceAll(expr, of, "")
	}
	return expr
}

var another = sign{what: "metric `zklock_is_leader == 1` of another replica", expr: `zklock_is_leader{instance!="LEADER"} == 1`}

var faults = []fault{
	{"cut off from all servers, for 30 s", cut, 30 * time.Second, []sign{
		metric(`zklock_sessions_attached{instance="LEADER"} == 0`), rises(`zklock_holds_lost_total{instance="LEADER",reason="no_server"}`), another,
		alert("ZklockHoldLost", `,instance="LEADER",reason="no_server"`), alert("ZklockNotAttached", `,instance="LEADER"`), event("suspended"), event("lost"),
	}},
	{"stopped (SIGSTOP), for 20 s", pause, 20 * time.Second, []sign{
		metric(`up{instance="LEADER"} == 0`), another, rises(`zklock_holds_lost_total{instance="LEADER",reason="paused"}`),
		alert("ZklockHoldLost", `,instance="LEADER",reason="paused"`), event("lost"),
	}},
	{"killed", kill, 30 * time.Second, []sign{
		metric(`up{instance="LEADER"} == 0`), another,
		{what: "span `wait` of the next leader", span: func(s span, leader *process) bool {
			return s.from != leader && s.Name == "wait" && s.EndTime.Sub(s.StartTime) > 3*time.Second
		}},
	}},
	{"somebody deletes its node, and its work does not heed its context, for 25 s", deaf, 0, []sign{
		rises(`zklock_holds_lost_total{instance="LEADER",reason="node_deleted"}`), metric(`zklock_holds_lost_unreleased{instance="LEADER"} == 1`), another,
		alert("ZklockHoldLost", `,instance="LEADER",reason="node_deleted"`), alert("ZklockWorkAfterLoss", `,instance="LEADER"`),
		rises(`zklock_overrun_seconds_sum{instance="LEADER",lock="leader"}`), alert("ZklockWorkedAfterLoss", `,instance="LEADER"`), event("lost"),
	}},
	{"the ensemble's leader is killed", killServer, 15 * time.Second, []sign{
		rises(`zklock_reconnects_total{instance="LEADER"}`),
		{what: "span of an acquire that waits, event `back`; no hold is lost", span: func(s span, leader *process) bool { return s.from == leader && s.has("back") }},
	}},
	{"no quorum: two of three servers are down, for 100 s", noQuorum, 100 * time.Second, []sign{
		metric(`zklock_sessions_attached{instance="LEADER"} == 0`), rises(`zklock_holds_lost_total{instance="LEADER",reason="no_server"}`),
		alert("ZklockHoldLost", `,instance="LEADER",reason="no_server"`), alert("ZklockNotAttached", `,instance="LEADER"`), alert("ZklockNoLeader", ""),
		event("suspended"), event("lost"),
	}},
}

func cut(_ *world, leader *process) (func() error, error) {
	for _, way := range leader.ways {
		way.Freeze()
	}
	return func() error {
		for _, way := range leader.ways {
			way.Thaw()
		}
		return nil
	}, nil
}

func pause(_ *world, leader *process) (func() error, error) {
	err := leader.cmd.Process.Signal(syscall.SIGSTOP)
	return func() error { return leader.cmd.Process.Signal(syscall.SIGCONT) }, err
}

func kill(_ *world, leader *process) (func() error, error) {
	err := leader.cmd.Process.Kill()
	_ = leader.cmd.Wait()
	return leader.start, err
}

func deaf(w *world, leader *process) (func() error, error) {
	resp, err := http.Post("http://"+leader.instance+"/deaf?for=25s", "", nil)
	if err != nil {
		return nil, err
	}
	_ = resp.Body.Close()
	c, _, err := zk.Connect(w.ensemble.Addrs(), 10*time.Second, zk.WithLogger(log.New(discard{}, "", 0)))
	if err != nil {
		return nil, err
	}
	defer c.Close()
	names, _, err := c.Children("/leader")
	if err != nil {
		return nil, err
	}
	front := slices.MinFunc(names, func(a, b string) int { return strings.Compare(a[len(a)-10:], b[len(b)-10:]) })
	return func() error { return nil }, c.Delete(path.Join("/leader", front), -1)
}

type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }

func killServer(w *world, _ *process) (func() error, error) {
	s, err := w.ensemble.Leader()
	if err != nil {
		return nil, err
	}
	return s.Start, s.Kill()
}

func noQuorum(w *world, _ *process) (func() error, error) {
	down := w.ensemble.Servers()[:2]
	each := func(do func(*zkserver.Server) error) error {
		for _, s := range down {
			if err := do(s); err != nil {
				return err
			}
		}
		return nil
	}
	return func() error { return each((*zkserver.Server).Launch) }, each((*zkserver.Server).Kill)
}

// inject injects the fault, and returns when each of its signs appeared.
func (w *world) inject(f fault) ([]seen, error) {
	leader, err := w.leader()
	if err != nil {
		return nil, err
	}
	got := make([]seen, len(f.signs))
	before := make([]float64, len(f.signs))
	value := func(s sign) (v float64, ok bool) {
		for _, sample := range w.query(strings.ReplaceAll(s.expr, "LEADER", leader.instance)) {
			v, ok = v+sample.value, true
		}
		return v, ok
	}
	for i, s := range f.signs {
		got[i] = seen{s.what, -1}
		if s.rises {
			before[i], _ = value(s)
		}
	}
	began := time.Now()
	heal, err := f.do(w, leader)
	if err != nil {
		return nil, err
	}
	healed := false
	for left := len(f.signs); left > 0 && time.Since(began) < patience || !healed; time.Sleep(100 * time.Millisecond) {
		if !healed && time.Since(began) >= f.lasts {
			if err := heal(); err != nil {
				return nil, err
			}
			healed = true
		}
		for i, s := range f.signs {
			if got[i].after >= 0 {
				continue
			}
			shows := false
			if s.span != nil {
				shows = slices.ContainsFunc(w.endedSince(began), func(sp span) bool { return s.span(sp, leader) })
			} else {
				v, ok := value(s)
				shows = ok && (!s.rises || v > before[i])
			}
			if shows {
				got[i].after = time.Since(began)
				left--
			}
		}
	}
	return got, nil
}
