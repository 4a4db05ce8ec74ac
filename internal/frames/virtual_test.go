package frames

// The frames in virtual time: single faults, and pairs of them.

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"path"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/zktest"
)

var (
	frameCaseFlag  = flag.String("frames.case", "", "run this one case of TestVirtual_Frames or TestFrames_RealServer")
	framesEvery    = flag.Int("frames.every", 14, "TestVirtual_Frames runs one case in so many, all in which the client goes deaf, and at least one for each frame; 1 for all")
	framePairs     = flag.Int("frames.pairs", 60, "how many pairs TestVirtual_FramePairs runs")
	framePairsSeed = flag.Uint64("frames.seed", 1, "the seed of TestVirtual_FramePairs")
	framePairFlag  = flag.Uint64("frames.pair", 0, "run the one pair of this number of TestVirtual_FramePairs")
)

// runVirtually runs a scenario in a bubble of its own, and compares the server's history with the
// promises.
func runVirtually(t *testing.T, sc frameScenario, cases []frameCase, repeat string) (r *frameRun) {
	synctest.Test(t, func(t *testing.T) {
		n := zktest.NewNetwork()
		n.SetLatency(time.Millisecond)
		server, client := []zktest.Option{zktest.WithNetwork(n), zktest.WithShuffledChildren()}, []zklock.Option{zklock.WithDialer(n.Dial), silent()}
		if sc.sasl {
			server, client = append(server, zktest.WithSASLUsers(saslUsers), zktest.WithConfig("sessionRequireClientSASLAuth=true")), append(client, withSASL())
		}
		srv := zktest.Start(t, server...)
		_, err := srv.Create("/job", nil, 0)
		require.NoError(t, err)
		r = newFrameRun(&frameWorld{
			t: t, virtual: true, addr: srv.Addr(), proxy: zktest.StartProxy(t, srv.Addr(), zktest.WithNetwork(n)), dial: n.Dial,
			opts:    client,
			timeout: 20 * time.Second, tick: 2 * time.Second, root: "/job",
			children: srv.Children, watches: srv.Watches, data: srv.Get,
			kill: srv.ExpireSession, sasl: sc.sasl,
		}, cases, repeat)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			sc.run(r)
		}()
		select {
		case <-ended:
		case <-time.After(20 * r.patience()):
			r.failf("I6: %q hangs", sc.name)
		}
		time.Sleep(time.Minute) // the rest of a failed Connect ends by itself; otherwise the bubble fails
		r.checkHistory(srv.History())
		r.checkDeaf(srv.History())
		if r.failures > 0 {
			for _, f := range r.frames {
				t.Logf("%v %v session %#x", r.began.Add(f.at).Format(time.StampMilli), f.frameID, f.session)
			}
			for _, a := range srv.History() {
				t.Logf("%v %v", a.Time.Format(time.StampMilli), a)
			}
		}
	}) // which waits for every goroutine, or fails (I7)
	return r
}

var protectedName = regexp.MustCompile(`^_c_[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}-(lock-|lease-|__READ__|__WRIT__)\d{10}$`)

// checkHistory replays the server's history: no session ever has more nodes of a lock than owners
// (I2). Each node of a queue has a protection id of its own (R29, R32).
func (r *frameRun) checkHistory(history []zktest.Applied) {
	owners, nodes, ids := map[string]int64{}, map[int64]int{}, map[string]int64{}
	for _, a := range history {
		dir := path.Dir(a.Path)
		switch {
		case r.subs == nil && dir != r.root, r.subs != nil && path.Dir(dir) != r.root:
		case a.Kind == zktest.Created:
			owners[a.Path] = a.Owner
			id := idOf(a.Path)
			// The leases of one call are created in one transaction. The leases of a client in the
			// queue have the id of its node there; a second set has it too, if the first one was
			// created in vain.
			if !protectedName.MatchString(path.Base(a.Path)) || ids[id] != 0 && ids[id] != a.Zxid {
				r.failf("R29, R32: a node is called %s", a.Path)
			}
			ids[id] = a.Zxid
			if nodes[a.Owner]++; nodes[a.Owner] > 1+r.more {
				r.failf("I2: session %#x has %d nodes when %s is made", a.Owner, nodes[a.Owner], a.Path)
			}
		case a.Kind == zktest.Deleted:
			nodes[owners[a.Path]]--
			if strings.Contains(path.Base(a.Path), "-lease-") {
				delete(ids, idOf(a.Path))
			}
		}
	}
}

// idOf returns a node's name up to its protection id, and its parent.
func idOf(node string) string {
	name := path.Base(node)
	return path.Dir(node) + "/" + name[:min(len(name), len("_c_")+36)]
}

// checkDeaf replays the server's history: a client that receives nothing has no node on the server
// for longer than it takes to notice, so it does not block other clients (F51). A second fault may
// delay its end.
func (r *frameRun) checkDeaf(history []zktest.Applied) {
	if len(r.cases) != 1 || !r.cases[0].fault.deaf || r.hits[0].IsZero() {
		return
	}
	ours := map[int64]bool{}
	for _, f := range r.frames {
		ours[f.session] = f.session != 0
	}
	since := func(t time.Time) time.Duration { return t.Sub(r.hits[0]) }
	made := map[string]time.Time{}
	stays := func(node string, until time.Time) {
		from, there := made[node]
		if delete(made, node); there && since(from) < r.deafDelay() && since(until) > r.noticed() {
			r.failf("F51: %s of a client that hears nothing was there from %v to %v after the fault", node, since(from), since(until))
		}
	}
	for _, a := range history {
		switch {
		case a.Kind == zktest.Created && ours[a.Owner]:
			made[a.Path] = a.Time
		case a.Kind == zktest.Deleted:
			stays(a.Path, a.Time)
		}
	}
	for node := range made {
		stays(node, time.Now())
	}
}

// recordVirtually records a scenario without faults, twice: in virtual time both are the same, to
// the instant.
func recordVirtually(t *testing.T, sc frameScenario) []recordedFrame {
	t.Helper()
	show := func() (lines []string, frames []recordedFrame) {
		r := runVirtually(t, sc, nil, "go test -run TestVirtual_Frames ./internal/frames")
		for _, f := range r.frames {
			lines = append(lines, fmt.Sprintf("%v %v", f.at, f.frameID))
		}
		return lines, r.frames
	}
	first, frames := show()
	second, _ := show()
	require.Equal(t, first, second, "a recording that differs from the next is no list of cases")
	require.NotEmpty(t, frames)
	return frames
}

// enough is the number of failed cases after which a scenario is stopped.
const enough = 5

// F1, F3, F5–F10, F15, F16, F30–F33, R10, R22, R41, R53, R61, R62, R64, I1–I7: in each scenario,
// every frame on the client's connection meets every kind of fault.
func TestVirtual_Frames(t *testing.T) {
	every := *framesEvery
	if testing.Short() {
		every *= 2
	}
	var mu sync.Mutex
	var total frameTallies
	t.Run("scenarios", func(t *testing.T) {
		for _, sc := range frameScenarios {
			t.Run(sc.name, func(t *testing.T) {
				t.Parallel()
				recording := recordVirtually(t, sc)
				tally, failed := newFrameTally(recording), 0
				run := func(c frameCase) {
					r := runVirtually(t, sc, []frameCase{c}, fmt.Sprintf("go test -race -run '%s' ./internal/frames -frames.case='%v'", t.Name(), c))
					if tally.ran(c, r); r.failures > 0 {
						failed++
					}
				}
				cases := casesFor(recording, true)
				for i, c := range cases {
					if failed < enough && (*frameCaseFlag == c.String() || *frameCaseFlag == "" && (i%every == 0 || c.fault.deaf)) {
						run(c)
					}
				}
				for _, c := range cases { // a sample may have left out a frame
					if failed < enough && *frameCaseFlag == "" && !tally.frames[c.frame.frameID] {
						run(c)
					}
				}
				tally.check(t)
				t.Logf("%v", tally)
				mu.Lock()
				defer mu.Unlock()
				total = append(total, tally)
			})
		}
	})
	total.check(t)
	if !t.Failed() {
		t.Logf("frame-exhaustive: %v, 0 violations", total)
	}
}

// framePair runs the pair of faults of that number: a fault in a scenario, and another at one of
// the frames that follow it, if there are any.
func framePair(t *testing.T, seed, n uint64, recordings [][]recordedFrame) *frameRun {
	rnd := rand.New(rand.NewPCG(seed, n))
	i := rnd.IntN(len(frameScenarios))
	sc := frameScenarios[i]
	repeat := fmt.Sprintf("go test -race -run TestVirtual_FramePairs ./internal/frames -frames.seed=%d -frames.pair=%d", seed, n)
	first := pickCase(rnd, recordings[i])
	alone := runVirtually(t, sc, []frameCase{first}, repeat)
	following := alone.frames[min(alone.struck, len(alone.frames)):]
	if len(following) == 0 {
		return alone
	}
	return runVirtually(t, sc, []frameCase{first, pickCase(rnd, following)}, repeat)
}

// F6, R33, I1–I7: pairs of faults, the second at a frame that follows the first.
func TestVirtual_FramePairs(t *testing.T) {
	var recordings [][]recordedFrame
	for _, sc := range frameScenarios {
		recordings = append(recordings, recordVirtually(t, sc))
	}
	if *framePairFlag != 0 {
		framePair(t, *framePairsSeed, *framePairFlag, recordings)
		return
	}
	var next, both, failed atomic.Int64
	t.Run("pairs", func(t *testing.T) {
		for worker := range 4 {
			t.Run(fmt.Sprint(worker), func(t *testing.T) {
				t.Parallel()
				for n := next.Add(1); n <= int64(*framePairs) && failed.Load() < enough; n = next.Add(1) {
					r := framePair(t, *framePairsSeed, uint64(n), recordings)
					if r.failures > 0 {
						failed.Add(1)
					}
					if len(r.cases) == 2 && r.injections[1].Fired() == 1 {
						both.Add(1)
					}
				}
			})
		}
	})
	if n := int64(*framePairs); n >= 50 && both.Load() < n/2 && !t.Failed() {
		t.Errorf("only of %d of %d pairs both faults struck", both.Load(), n)
	}
	t.Logf("frame pairs: seed %d, %d pairs run, both faults struck in %d, violations in %d",
		*framePairsSeed, min(next.Load(), int64(*framePairs)), both.Load(), failed.Load())
}
