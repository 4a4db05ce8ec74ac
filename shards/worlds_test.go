package shards

// F59: random worlds, in virtual time. Members join, leave, crash, are cut off, lose their
// sessions, come back, take other members' names; functions return slowly; requests, replies and
// events are lost or late; servers restart. An observer that does not know the plan looks for
// shards that two members believe to hold. In the end each group must be complete and even.

import (
	"encoding/json"
	"flag"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock/zktest"
)

var (
	worlds    = flag.Int("shards.worlds", 20, "how many random worlds TestF59_RandomWorlds has")
	worldSeed = flag.Uint64("shards.seed", 0, "the seed of the only world to run; 0: random ones")
	verbose   = flag.Bool("shards.v", false, "print what happens in each world")
)

// total counts over all worlds.
type total struct {
	moves, push, eager, starts, events int
	free                               time.Duration // how long shards had no owner
}

// F59: each world is complete and even when it is quiet, and no shard ever has two functions.
func TestF59_RandomWorlds(t *testing.T) {
	var all total
	run := func(seed uint64) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { randomWorld(t, seed, &all) })
	}
	if *worldSeed != 0 {
		run(*worldSeed)
		return
	}
	if testing.Short() {
		*worlds = min(*worlds, 8)
	}
	for range *worlds {
		run(rand.Uint64()>>1 | 1)
	}
	t.Logf("%d worlds, %d events, %d functions started; %d moves, %.2f × push, %.2f × an eager plan; without an owner %v in all",
		*worlds, all.events, all.starts, all.moves, float64(all.moves)/float64(max(1, all.push)), float64(all.moves)/float64(max(1, all.eager)), all.free)
	if *worlds >= 20 {
		require.LessOrEqual(t, float64(all.moves), 0.65*float64(all.push))
	}
}

func randomWorld(t *testing.T, seed uint64, all *total) {
	r := rand.New(rand.NewPCG(seed, 59))
	n := 4 + r.IntN(45)
	inWorld(t, n, func(t *testing.T, w *world) {
		note := func(format string, args ...any) {
			if *verbose {
				t.Logf("%s %s", time.Now().Format("04:05.000"), fmt.Sprintf(format, args...))
			}
		}
		slow := rand.New(rand.NewPCG(seed, 1))
		w.slowly(slow)
		count := 0
		join := func() {
			name := fmt.Sprintf("m%02d", count)
			count++
			if len(w.procs) > 0 && r.IntN(10) == 0 {
				name = w.procs[r.IntN(len(w.procs))].name
			}
			note("%s joins", name)
			w.join(name)
		}
		for range 1 + r.IntN(6) {
			join()
		}
		events := 0
		for range 2 {
			for range 8 + r.IntN(12) {
				w.pause(r)
				w.event(r, join, note)
				events++
			}
			note("quiet")
			w.calm()
			if len(w.procs) == 0 {
				join()
			}
			time.Sleep(maxProbation + 2*w.quiet + 90*time.Second)
			synctest.Wait()
			require.True(t, w.isEven(), w.describe())
			starts := w.starts
			time.Sleep(time.Minute)
			require.Equal(t, starts, w.starts, "something moves although all is quiet")
			require.True(t, w.isEven(), w.describe())
		}
		before := *all
		w.count(all)
		all.starts += w.starts
		all.events += events
		note("%d moves, push %d, eager %d", all.moves-before.moves, all.push-before.push, all.eager-before.eager)
		for _, p := range slices.Clone(w.procs) {
			p.leave()
		}
	})
}

// slowly has some functions return late, and few very late.
func (w *world) slowly(r *rand.Rand) {
	w.return_ = func(int) time.Duration {
		w.mu.Lock()
		defer w.mu.Unlock()
		switch k := r.IntN(40); {
		case k == 0:
			return time.Duration(r.IntN(30_000)) * time.Millisecond
		case k < 5:
			return time.Duration(r.IntN(3_000)) * time.Millisecond
		}
		return time.Duration(r.IntN(100)) * time.Millisecond
	}
}

// pause waits: mostly less than a second, sometimes long enough to be quiet.
func (w *world) pause(r *rand.Rand) {
	switch r.IntN(6) {
	case 0:
		time.Sleep(time.Duration(r.IntN(20_000)) * time.Millisecond)
	case 1, 2:
		time.Sleep(time.Duration(r.IntN(4_000)) * time.Millisecond)
	default:
		time.Sleep(time.Duration(r.IntN(600)) * time.Millisecond)
	}
}

// event does one thing to the group.
func (w *world) event(r *rand.Rand, join func(), note func(string, ...any)) {
	if len(w.procs) == 0 {
		join()
		return
	}
	p := w.procs[r.IntN(len(w.procs))]
	ms := func(most int) time.Duration { return time.Duration(r.IntN(most)) * time.Millisecond }
	switch k := r.IntN(28); k {
	case 0, 1, 2, 3, 4:
		if len(w.procs) < 9 {
			join()
		}
	case 5, 6, 7:
		note("%s leaves", p.name)
		p.cancel()
		p.gone()
		go func() { <-p.done; p.s.Close() }()
	case 8, 9:
		note("%s crashes", p.name)
		p.crash()
	case 10, 11:
		d := ms(int(2 * sessionTimeout / time.Millisecond))
		note("%s is cut off for %v", p.name, d)
		w.net.Partition(p.host)
		time.AfterFunc(d, func() { w.net.Heal(p.host) })
	case 12, 13:
		note("%s loses its session", p.name)
		p.loseSession()
	case 14:
		note("%s is restarted", p.name)
		p.crash()
		time.Sleep(ms(3000))
		w.join(p.name)
	case 15:
		note("%s is restarted in order", p.name)
		p.leave()
		w.join(p.name)
	case 16:
		note("all lose their sessions")
		for _, p := range w.procs {
			p.loseSession()
		}
	case 17:
		d := ms(int(2 * sessionTimeout / time.Millisecond))
		note("the server is down for %v", d)
		w.srv.Stop()
		time.Sleep(d)
		require.NoError(w.t, w.srv.Start())
	case 18:
		note("%s flaps", p.name)
		for range 3 {
			p.leave()
			time.Sleep(ms(2000))
			p = w.join(p.name)
			time.Sleep(ms(2000))
		}
	case 19:
		lives, pause := ms(25_000), ms(10_000)
		note("%s crashes, and again each %v, %v later", p.name, lives, pause)
		name := p.name
		for range 2 + r.IntN(5) {
			p.crash()
			time.Sleep(pause)
			if r.IntN(2) == 0 {
				name += "'"
			}
			p = w.join(name)
			time.Sleep(lives)
		}
	default:
		f := w.fault(r, ms)
		if id := p.s.Stats().SessionID; r.IntN(2) == 0 && id != 0 { // it has none between two ZooKeeper sessions
			f = f.Session(id)
		}
		note("%v", f)
		w.faults = append(w.faults, w.srv.Inject(f.Nth(1+r.IntN(3)).Optional()))
	}
}

// fault is something that goes wrong once.
func (w *world) fault(r *rand.Rand, ms func(int) time.Duration) zktest.Fault {
	paths := []string{groupPath + "/plan", groupPath + "/members", groupPath + "/members/*", groupPath + "/shards/*/*", groupPath + "/shards/*"}
	ops := []zktest.Op{zktest.Multi, zktest.Create, zktest.GetData, zktest.GetChildren, zktest.Delete}
	path, op := paths[r.IntN(len(paths))], ops[r.IntN(len(ops))]
	switch r.IntN(8) {
	case 6, 7:
		return zktest.Before(op).Path(path).Fail(zktest.NoAuth)
	case 0:
		return zktest.OnEvent(zktest.NodeDataChanged).Path(groupPath + "/plan").Delay(ms(3000))
	case 1:
		return zktest.OnEvent(zktest.NodeChildrenChanged).Delay(ms(3000))
	case 2:
		return zktest.Before(op).Path(path).Close()
	case 3:
		return zktest.After(op).Path(path).DropReply().Close()
	case 4:
		return zktest.Before(zktest.Multi).Path(groupPath + "/plan").Delay(ms(10_000))
	}
	return zktest.Before(op).Path(path).Delay(ms(3000))
}

// calm removes the faults that have not occurred, and ends the second of two members with one name.
// It fails if a Run has ended, except by a rejection.
func (w *world) calm() {
	for _, f := range w.faults {
		f.Remove()
	}
	time.Sleep(time.Second) // a fault may just have occurred
	seen := map[string]bool{}
	for _, p := range slices.Clone(w.procs) {
		if isClosed(p.done) {
			require.ErrorIs(w.t, p.err, zk.ErrNoAuth)
		}
		if seen[p.name] || isClosed(p.done) {
			p.leave()
			continue
		}
		seen[p.name] = true
	}
}

func (w *world) describe() string {
	loads, free := w.loads()
	data, _ := w.srv.Get(groupPath + "/plan")
	var stats []string
	for _, p := range w.procs {
		stats = append(stats, fmt.Sprintf("%+v %v", p.g.Stats(), p.hasEnded()))
	}
	return fmt.Sprintf("loads %v, without an owner %d, members %v\n%.2000s\n%s\n%s", loads, free, w.srv.Children(groupPath+"/members"), data,
		strings.Join(stats, "\n"), strings.Join(lastOf(w.logs.all(), 20), ""))
}

// count compares the plans that were written with what a pure function of the members would have
// moved (push: rendezvous hashing with a cap, at each change), and with a plan that is balanced at
// each change.
func (w *world) count(all *total) {
	members := map[string]string{} // names by node
	var plan, push, eager = plan{}, make([]string, w.n), plan{}
	for _, a := range w.srv.History() {
		node, isMember := strings.CutPrefix(a.Path, groupPath+"/members/")
		switch {
		case isMember && a.Kind == zktest.Created && !strings.HasPrefix(node, leftPrefix):
			var c candidate
			if json.Unmarshal(a.Data, &c) != nil {
				continue
			}
			members[node] = c.Name
		case isMember && a.Kind == zktest.Deleted && members[node] != "":
			delete(members, node)
		case a.Path == groupPath+"/plan" && a.Kind == zktest.DataSet:
			p, err := parsePlan(a.Data, w.n)
			if err == nil && len(plan.Shards) > 0 {
				all.moves += p.movesFrom(plan)
			}
			plan = p
			continue
		default:
			continue
		}
		var ms []Member
		for _, name := range members {
			ms = append(ms, Member{Name: name, Weight: 1})
		}
		if len(ms) == 0 {
			continue
		}
		for shard, owner := range capped(ms, w.n) {
			if push[shard] != "" && push[shard] != owner {
				all.push++
			}
			push[shard] = owner
		}
		p := next(eager, w.n, ms, nil, true)
		if len(eager.Shards) > 0 {
			all.eager += p.movesFrom(eager)
		}
		eager = p
	}
	for _, gap := range w.gaps {
		all.free += gap
	}
}

// capped is rendezvous hashing with a cap of n/m, rounded up.
func capped(ms []Member, n int) (owners []string) {
	names := map[string]uint64{}
	for _, m := range ms {
		h := fnv.New64a()
		h.Write([]byte(m.Name))
		names[m.Name] = h.Sum64()
	}
	load, most := map[string]int{}, (n+len(names)-1)/len(names)
	for shard := range n {
		best := ""
		for name, h := range names {
			if load[name] < most && (best == "" || mix(h, shard) > mix(names[best], shard)) {
				best = name
			}
		}
		load[best]++
		owners = append(owners, best)
	}
	return owners
}
