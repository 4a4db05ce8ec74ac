package frames

// The frames on a real server, behind a proxy that parses frames.

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/internal/zkserver"
	"github.com/zklock/zklock/zktest"
)

var framesReal = flag.Int("frames.real", 3, "TestFrames_RealServer runs one case in so many, and at least one for each frame; 1 for all")

// framesAtOnce is the number of cases in parallel on a real server: they spend their time waiting.
const framesAtOnce = 48

// realFrames runs scenarios on a real server, each behind a proxy of its own and on a lock of its
// own.
type realFrames struct {
	t     *testing.T
	addr  string
	admin *zk.Conn
	below string

	mu   sync.Mutex
	runs int
}

func (rf *realFrames) run(sc frameScenario, cases []frameCase, repeat string) *frameRun {
	rf.mu.Lock()
	rf.runs++
	root := fmt.Sprintf("%s/%d", rf.below, rf.runs)
	rf.mu.Unlock()
	t := rf.t
	proxy, err := zktest.NewProxy(rf.addr)
	if err != nil {
		t.Error(err)
		return nil
	}
	defer proxy.Close()
	if _, err := rf.admin.Create(root, nil, 0, zk.WorldACL(zk.PermAll)); err != nil {
		t.Error(err)
		return nil
	}
	r := newFrameRun(&frameWorld{
		t: t, addr: rf.addr, proxy: proxy, opts: []zklock.Option{silent(), zklock.WithLease(zklock.QuorumLease(time.Second))},
		timeout: 6 * time.Second, tick: time.Second, root: root,
		children: rf.children,
		kill: func(id int64) bool {
			err := zkserver.ExpireSession(rf.addr, id)
			if err != nil && !errors.Is(err, zkserver.ErrNoSession) {
				t.Error(err)
			}
			return err == nil
		},
	}, cases, repeat)
	sc.run(r)
	return r
}

// admin is a plain client, independent of any Session, that ends with the test.
func admin(t *testing.T, srv string) *zk.Conn {
	t.Helper()
	conn, events, err := zk.Connect(strings.Split(srv, ","), 20*time.Second, zk.WithLogger(log.New(io.Discard, "", 0)))
	require.NoError(t, err)
	t.Cleanup(func() {
		conn.Close()
		for range events { // until the client has ended
		}
	})
	return conn
}

func (rf *realFrames) children(root string) []string {
	names, _, err := rf.admin.Children(root)
	if err != nil && err != zk.ErrNoNode {
		rf.t.Error(err)
	}
	return names
}

// record returns a scenario's frames. Two recordings must be equal, except for frames that the
// clock sends: a heartbeat that is in only one of them was sent because the machine was busy, and
// will not be sent again.
func (rf *realFrames) record(sc frameScenario) []recordedFrame {
	show := func() (names, clocks []string, frames []recordedFrame) {
		r := rf.run(sc, nil, "ZKLOCK_TEST_REAL=1 go test -run TestFrames_RealServer ./internal/frames")
		if r == nil {
			return nil, nil, nil
		}
		for _, f := range r.frames {
			if f.timed() {
				clocks = append(clocks, f.String())
			} else {
				names = append(names, f.String())
			}
		}
		return names, clocks, r.frames
	}
	first, _, frames := show()
	second, clocks, _ := show()
	// A reply may arrive before or after a later request that does not wait for it.
	slices.Sort(first)
	slices.Sort(second)
	if !slices.Equal(first, second) {
		rf.t.Errorf("%s: two recordings differ:\n%v\n%v", sc.name, first, second)
	}
	return slices.DeleteFunc(frames, func(f recordedFrame) bool { return f.timed() && !slices.Contains(clocks, f.String()) })
}

// F1, F3, F6, F7, F10, F31–F33, R41, I1–I7: the same list on a real server, behind a proxy that
// parses frames: every frame of acquire, queue, handover and release meets the kinds of fault that
// real time allows, all of them with -frames.real=1.
func TestFrames_RealServer(t *testing.T) {
	if os.Getenv("ZKLOCK_TEST_REAL") != "1" {
		t.Skip("takes a real server: ZKLOCK_TEST_REAL=1; TestVirtual_Frames is the same on the in-process server")
	}
	srv := zkserver.Single(t).Addr()
	rf := &realFrames{t: t, addr: srv, admin: admin(t, srv), below: "/frames-" + uuid.NewString()[:8]}
	_, err := rf.admin.Create(rf.below, nil, 0, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)
	var scenarios []frameScenario
	for _, sc := range frameScenarios {
		if sc.real {
			scenarios = append(scenarios, sc)
		}
	}
	recordings := make([][]recordedFrame, len(scenarios))
	var recording sync.WaitGroup
	for i, sc := range scenarios {
		recording.Go(func() { recordings[i] = rf.record(sc) })
	}
	recording.Wait()
	require.False(t, t.Failed())

	var mu sync.Mutex
	var total frameTallies
	var running sync.WaitGroup
	turns, failed := make(chan struct{}, framesAtOnce), 0
	runThose := func(wanted func(i int, sc frameScenario, c frameCase, tally *frameTally) bool) {
		for s, sc := range scenarios {
			tally := total[s]
			for i, c := range casesFor(recordings[s], false) {
				turns <- struct{}{}
				mu.Lock()
				run := failed < enough && wanted(i, sc, c, tally)
				mu.Unlock()
				if !run {
					<-turns
					continue
				}
				running.Go(func() {
					defer func() { <-turns }()
					r := rf.run(sc, []frameCase{c}, fmt.Sprintf(
						"ZKLOCK_TEST_REAL=1 go test -race -run TestFrames_RealServer ./internal/frames -frames.case='%s: %v'", sc.name, c))
					mu.Lock()
					defer mu.Unlock()
					if r == nil {
						failed++
					} else if tally.ran(c, r); r.failures > 0 {
						failed++
					}
				})
			}
		}
		running.Wait()
	}
	for i := range scenarios {
		total = append(total, newFrameTally(recordings[i]))
	}
	runThose(func(i int, sc frameScenario, c frameCase, _ *frameTally) bool {
		return *frameCaseFlag == sc.name+": "+c.String() || *frameCaseFlag == "" && i%*framesReal == 0
	})
	runThose(func(_ int, _ frameScenario, c frameCase, tally *frameTally) bool { // a sample may have left out a frame
		return *frameCaseFlag == "" && !tally.frames[c.frame.frameID]
	})
	for i, tally := range total {
		tally.check(t)
		t.Logf("%s: %v", scenarios[i].name, tally)
	}
	total.check(t)
	if !t.Failed() {
		t.Logf("frame-exhaustive, a real server through the proxy: %v, 0 violations", total)
	}
}
