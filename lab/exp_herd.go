package main

import (
	"errors"
	"fmt"
	"time"
)

func init() {
	for _, n := range []int{10, 100, 500} {
		e := Experiment{
			Name: fmt.Sprintf("herd-%d", n), Title: fmt.Sprintf("The herd: %d wait", n), Alone: true, Runs: 1, TTL: longEnough,
			Says:  fmt.Sprintf("A holds, and %d clients wait, each with a connection of its own, in one process. For 3 s nothing happens: what the waiting costs. Then A releases; each that is granted releases at once, until all have had their turn, or 20 s are over. Counted between the waiting clients and the servers; a request or an answer is what was written in one piece.", n),
			Steps: func(t *trial) { herd(t, n) },
			Columns: []column{{"requests", "requests for each release", number}, {"answers", "answers and events", number}, {"bytes", "bytes", number}, {"rate", "grants a second", number}, {"grants", "grants", number},
				{"idle requests", "waiting: requests for each waiter and minute", number}, {"idle cpu", "server CPU, ms", number}, {"connections", "connections", number}},
			Cell: func(r *Result) string {
				return fmt.Sprintf("%s requests, %s bytes a release, n=%s", amount(r.median("requests")), amount(r.median("bytes")), amount(r.median("grants")))
			},
		}
		e.Long = n != 100
		e.Skip = func(s *System) string {
			switch {
			case n >= 100 && s.Server == gossipRouter:
				return "a hundred members take more than two minutes to join one group here"
			case n == 500 && s.External != nil:
				return "500 threads with a connection each are more than its runtime takes here"
			}
			return ""
		}
		experiment(e)
	}
}

func herd(t *trial, n int) {
	a, crowd := t.client("A"), t.client("B")
	a.acquire()
	crowd.tell("crowd %d 0 0", n)
	_, err := crowd.agent.await(2*time.Minute, "waiting")
	t.must(err)
	tr := &crowd.agent.traffic
	t.pause(2 * time.Second)

	const idle = 3 * time.Second
	up, used := tr.Up.Load(), cpu(t.cluster.Pids())
	t.pause(idle)
	each := float64(n) * idle.Minutes()
	t.figure("idle requests", float64(tr.Up.Load()-up)/each)
	t.figure("idle cpu", float64((cpu(t.cluster.Pids())-used).Milliseconds())/each)
	t.figure("connections", float64(tr.Conns.Load()))

	up, down, bytes := tr.Up.Load(), tr.Down.Load(), tr.UpBytes.Load()+tr.DownBytes.Load()
	began := t.zero(time.Now())
	a.release()
	took := 20 * time.Second
	switch s, err := crowd.agent.await(took, "done", "failed"); {
	case err == nil && s.Word == "failed":
		t.failf("a waiter: %s", s.text())
	case err == nil:
		took = s.At.Sub(began)
	case !errors.Is(err, errQuiet):
		t.must(err)
	}
	grants := 0
	for _, e := range t.ledger.read() {
		if e.What == enter && e.Who != "A" {
			grants++
		}
	}
	t.figure("grants", float64(grants))
	if grants == 0 {
		return
	}
	per := float64(grants)
	t.figure("rate", per/took.Seconds())
	t.figure("requests", float64(tr.Up.Load()-up)/per)
	t.figure("answers", float64(tr.Down.Load()-down)/per)
	t.figure("bytes", float64(tr.UpBytes.Load()+tr.DownBytes.Load()-bytes)/per)
}
