package shards

// These tests attack a group by a member that crashes again and again, in virtual time, alone and
// while the other members are restarted or new ones join. It costs little, and starves no other
// member.

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
)

const (
	loopTimeout = 30 * time.Second // the sessions', so that dead ones remain for long
	loopShards  = 60
)

// loop is a member that lives for some time, crashes, and is started again after a pause.
type loop struct {
	w            *world
	lives, pause time.Duration
	isStable     bool
	p            *proc // nil in a pause
	n            int
	next         time.Time
}

// step does what is due.
func (l *loop) step() {
	if l == nil || time.Now().Before(l.next) {
		return
	}
	if l.p != nil {
		l.p.crash()
		l.p, l.next = nil, time.Now().Add(l.pause)
		return
	}
	name := "loop"
	if l.n++; !l.isStable {
		name = fmt.Sprintf("loop-%d", l.n)
	}
	l.p, l.next = l.w.join(name), time.Now().Add(l.lives)
}

// freeFor returns how long shards were without an owner in the time, added up, and how many at
// most.
func (w *world) freeFor(d time.Duration, l *loop) (free time.Duration, most int) {
	const step = 100 * time.Millisecond
	for range d / step {
		l.step()
		time.Sleep(step)
		_, n := w.loads()
		free, most = free+time.Duration(n)*step, max(most, n)
	}
	return free, most
}

// inLoop is inWorld with three members that are ready.
func inLoop(t *testing.T, m int, f func(t *testing.T, w *world)) {
	inWorld(t, loopShards, func(t *testing.T, w *world) {
		w.session = []zklock.Option{zklock.WithSessionTimeout(loopTimeout)}
		w.started(m)
		time.Sleep(w.quiet + time.Second)
		f(t, w)
	})
}

// R128: the member has a third of the shards when it crashes for the first time. That costs its
// session timeout. From then on its shards have an owner nearly always.
func TestVirtual_CrashLoop(t *testing.T) {
	for _, c := range []struct {
		lives, pause time.Duration
		percent      float64 // of its shards' time without an owner, at most
	}{
		{5 * time.Second, 8 * time.Second, 3},
		{20 * time.Second, 8 * time.Second, 3},
		{3 * time.Second, 100 * time.Millisecond, 3},
		{time.Minute, 8 * time.Second, 12},
	} {
		for name, isStable := range map[string]bool{"stable name": true, "new names": false} {
			if testing.Short() && !isStable {
				continue
			}
			t.Run(fmt.Sprintf("lives %v, %v later again, %s", c.lives, c.pause, name), func(t *testing.T) {
				inLoop(t, 3, func(t *testing.T, w *world) {
					p := w.other(w.planner())
					had, _ := w.loads()
					p.crash()
					l := &loop{w: w, lives: c.lives, pause: c.pause, isStable: isStable, next: time.Now().Add(c.pause)}
					w.freeFor(loopTimeout+2*tick+settle, l)
					const d = 30 * time.Minute
					free, _ := w.freeFor(d, l)
					percent := 100 * free.Seconds() / (d.Seconds() * float64(had[p.name]))
					t.Logf("its %d shards: %.1f %%", had[p.name], percent)
					require.LessOrEqual(t, percent, c.percent)
				})
			})
		}
	}
}

// R128: the other members are restarted one after the other, as a deploy does, beside the loop.
func TestVirtual_CrashLoop_Deploy(t *testing.T) {
	for _, m := range []int{3, 6} {
		for _, lives := range []time.Duration{3 * time.Second, 5 * time.Second} {
			t.Run(fmt.Sprintf("%d members, lives %v", m, lives), func(t *testing.T) {
				inLoop(t, m, func(t *testing.T, w *world) {
					olds := append([]*proc(nil), w.procs...)
					l := &loop{w: w, lives: lives, pause: 100 * time.Millisecond}
					w.freeFor(time.Minute, l)
					worst := 0
					for _, p := range olds {
						p.leave()
						_, most := w.freeFor(3*time.Second, l)
						w.join(p.name)
						_, then := w.freeFor(12*time.Second, l)
						worst = max(worst, most, then)
					}
					_, after := w.freeFor(30*time.Second, l)
					_, left := w.freeFor(time.Minute, l)
					t.Logf("%d of %d shards without an owner at most, %d in the half minute after the last restart, %d later", worst, loopShards, after, left)
					require.LessOrEqual(t, max(worst, after), 20)
					require.Zero(t, left)
				})
			})
		}
	}
}

// R128: members that join beside the loop get their shards, and a line names the member that comes
// and goes.
func TestVirtual_CrashLoop_Join(t *testing.T) {
	for _, c := range []struct{ lives, pause time.Duration }{
		{5 * time.Second, time.Second}, {20 * time.Second, 8 * time.Second}, {time.Minute, 8 * time.Second},
	} {
		t.Run(c.lives.String(), func(t *testing.T) {
			inLoop(t, 3, func(t *testing.T, w *world) {
				l := &loop{w: w, lives: c.lives, pause: c.pause}
				w.freeFor(2*time.Minute, l)
				var joiners []*proc
				for i := range 3 {
					joiners = append(joiners, w.join(fmt.Sprintf("new-%d", i)))
				}
				took := w.within(5*time.Minute, "their share", func() bool {
					l.step()
					return !slices.ContainsFunc(joiners, func(p *proc) bool { return p.g.Stats().Working < loopShards/7 })
				})
				t.Logf("after %v", took)
				require.NotEmpty(t, w.logs.about("loop-"))
			})
		})
	}
}

// R128: after a loop, all members crash, or end in order, and start again under their names. No
// member is ready then, so all get shards.
func TestVirtual_CrashLoop_RestartOfAll(t *testing.T) {
	for _, how := range []string{"they crash", "they leave"} {
		t.Run(how, func(t *testing.T) {
			inLoop(t, 3, func(t *testing.T, w *world) {
				l := &loop{w: w, lives: time.Minute, pause: 8 * time.Second}
				w.freeFor(12*time.Minute, l)
				p, err := parsePlan(w.plan(), w.n)
				require.NoError(t, err)
				require.Greater(t, p.Crashes, trustReturns)
				for len(w.procs) > 0 {
					p := w.procs[0]
					if how == "they leave" {
						p.leave()
						continue
					}
					p.loseSession() // as a guard does
					p.crash()
				}
				time.Sleep(3 * time.Second)
				w.joinAll(3)
				w.within(10*time.Second, "complete", w.isComplete)
			})
		})
	}
}

func (w *world) plan() []byte {
	data, _ := w.srv.Get(groupPath + "/plan")
	return data
}

// R128: the only member that is ready has weight 0. The others get the shards.
func TestVirtual_CrashLoop_OnlyAWeightOf0IsReady(t *testing.T) {
	inLoop(t, 2, func(t *testing.T, w *world) {
		w.join("observer", WithWeight(0))
		time.Sleep(2 * w.quiet)
		for _, p := range slices.Clone(w.procs[:2]) {
			p.loseSession()
			p.crash()
		}
		w.join("c")
		w.join("d")
		w.within(settleMax+time.Second, "complete", w.isComplete)
	})
}

// R128: the number of crashes falls, although the planners change.
func TestVirtual_CrashLoop_IsForgiven(t *testing.T) {
	inLoop(t, 3, func(t *testing.T, w *world) {
		w.freeFor(time.Minute, &loop{w: w, lives: 3 * time.Second, pause: time.Minute})
		for range 4 {
			p, err := parsePlan(w.plan(), w.n)
			require.NoError(t, err)
			require.Equal(t, 1, p.Crashes)
			time.Sleep(forgiven / 5)
			q := w.planner()
			q.leave()
			w.join(q.name)
			time.Sleep(2 * w.quiet)
		}
		time.Sleep(forgiven / 2)
		p, err := parsePlan(w.plan(), w.n)
		require.NoError(t, err)
		require.Zero(t, p.Crashes)
	})
}

// Members are balanced never, if Quiet is endless.
func TestVirtual_Quiet_Endless(t *testing.T) {
	inWorld(t, 12, func(t *testing.T, w *world) {
		w.quiet = math.MaxInt64
		w.started(2)
		w.join("new")
		time.Sleep(time.Hour)
		loads, free := w.loads()
		require.Zero(t, free)
		require.Zero(t, loads["new"])
	})
}
