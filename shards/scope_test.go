package shards

// F62: each znode of a group, with each fault that a znode can have, while the group is at rest or
// changes. An error ends the work of its scope alone, which is another member, one shard or the
// planning: no other shard is without an owner, and the group recovers without a restart when the
// fault is repaired.

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
)

// scope is what an error may end.
type scope int

const (
	nothing  scope = iota
	planning       // shards of a member that departs stay without an owner
	aShard         // the shard of the faulty znode does
)

// scene is a group of four members in which one znode has a fault.
type scene struct {
	*world
	admin                  *zklock.Session
	planner, owner, fourth *proc
	shard                  int // its root is the faulty one; owner works on it
}

// node returns the faulty znode.
func (s *scene) node(name string) string {
	switch name {
	case "a candidate":
		for _, c := range s.srv.Children(groupPath + "/members") {
			node := groupPath + "/members/" + c
			if st, ok := s.srv.Stat(node); ok && st.EphemeralOwner == s.fourth.s.Stats().SessionID && !strings.Contains(c, s.fourth.g.run.id) {
				return node
			}
		}
	case "a shard":
		return fmt.Sprintf("%s/shards/%04d", groupPath, s.shard)
	}
	return groupPath + name
}

// without has the servers reject the permissions.
func without(perms int32) func(s *scene, node string) (repair func()) {
	return func(s *scene, node string) func() {
		set := func(perms int32) {
			_, err := s.admin.Conn().SetACL(node, zk.WorldACL(perms), -1)
			require.NoError(s.t, err)
		}
		set(zk.PermAll &^ perms)
		return func() {
			if _, exists := s.srv.Stat(node); exists { // its owner may have left
				set(zk.PermAll)
			}
		}
	}
}

// withData replaces the data.
func withData(change func(data string) string) func(s *scene, node string) func() {
	return func(s *scene, node string) func() {
		data, _ := s.srv.Get(node)
		require.NoError(s.t, s.srv.SetData(node, []byte(change(string(data)))))
		return func() {
			if _, exists := s.srv.Stat(node); exists {
				require.NoError(s.t, s.srv.SetData(node, data))
			}
		}
	}
}

// withForeign creates a node of another client in the queue.
func withForeign(s *scene, node string) func() {
	path, err := s.admin.Conn().CreateProtectedEphemeralSequential(node+"/lock-", []byte("another"), zk.WorldACL(zk.PermAll))
	require.NoError(s.t, err)
	return func() { require.NoError(s.t, s.admin.Conn().Delete(path, -1)) }
}

func gone(s *scene, node string) func() {
	require.NoError(s.t, s.srv.Delete(node))
	return func() {}
}

var (
	scopeFaults = []struct {
		name  string
		begin func(s *scene, node string) (repair func())
	}{
		{"READ rejected", without(zk.PermRead)},
		{"WRITE and CREATE rejected", without(zk.PermWrite | zk.PermCreate)},
		{"DELETE rejected", without(zk.PermDelete)},
		{"missing", gone},
		{"garbage", withData(func(string) string { return "hello" })},
		{"truncated", withData(func(data string) string { return data[:len(data)/2] })},
		{"of another number", withData(func(string) string { return `{"format":1,"members":[],"shards":[-1,-1,-1]}` })},
		{"another client's node", withForeign},
	}
	scopeNodes  = []string{"", "/members", "a candidate", "/plan", "a shard"}
	scopeEvents = []string{"at rest", "a join", "a leave", "a crash", "the planner dies"}
)

// expected returns the scope of an error in an event, and whether a member that starts is rejected.
func expected(node, fault, event string) (s scope, isRejected, exists bool) {
	isData := slices.Contains([]string{"garbage", "truncated", "of another number"}, fault)
	departs := event == "a leave" || event == "a crash" || event == "the planner dies"
	switch node {
	case "": // only its own data count: PATH has no owner among the members
		if fault == "missing" || fault == "another client's node" || fault == "of another number" {
			return 0, false, false // it has children; that is SetShards
		}
		return nothing, event == "a join" && (isData || fault == "READ rejected"), true
	case "/members":
		switch fault {
		case "missing", "of another number", "truncated": // it has children, and no data
			return 0, false, false
		case "READ rejected":
			if departs {
				return planning, false, true
			}
			return nothing, event == "a join", true
		case "WRITE and CREATE rejected":
			return nothing, event == "a join", true
		}
	case "a candidate":
		return nothing, false, fault != "another client's node" && fault != "of another number"
	case "/plan":
		isJoin := event == "a join" && (isData || fault == "READ rejected")
		switch {
		case fault == "another client's node":
			return 0, false, false
		case departs && (isData || fault == "READ rejected" || fault == "WRITE and CREATE rejected"):
			return planning, false, true
		}
		return nothing, isJoin, true
	case "a shard":
		switch fault {
		case "missing", "truncated", "of another number": // it has a node in its queue, and no data
			return 0, false, false
		case "garbage":
			return nothing, false, true
		}
		return aShard, false, true
	}
	return nothing, false, true
}

// F62, R127.
func TestVirtual_Scopes(t *testing.T) {
	table := map[string][]string{}
	if testing.Short() {
		defer func(all []string) { scopeEvents = all }(scopeEvents)
		scopeEvents = []string{"at rest", "the planner dies"}
	}
	for _, node := range scopeNodes {
		for _, fault := range scopeFaults {
			for _, event := range scopeEvents {
				want, isRejected, exists := expected(node, fault.name, event)
				if !exists {
					continue
				}
				name := fmt.Sprintf("PATH%s, %s, %s", node, fault.name, event)
				t.Run(name, func(t *testing.T) {
					idle := inScene(t, node, fault.begin, event, want, isRejected)
					row := fmt.Sprintf("%-12s %s", "PATH"+node, fault.name)
					table[row] = append(table[row], fmt.Sprintf("%s %d", event, idle))
				})
			}
		}
	}
	for _, row := range slices.Sorted(maps.Keys(table)) {
		t.Logf("%-50s %s", row, strings.Join(table[row], ", "))
	}
}

// inScene returns how many shards have no owner when the group has settled.
func inScene(t *testing.T, node string, begin func(*scene, string) func(), event string, want scope, isRejected bool) (idle int) {
	inWorld(t, 24, func(t *testing.T, w *world) {
		s := &scene{world: w}
		s.admin, _ = w.connect()
		defer s.admin.Close()
		w.started(4)
		time.Sleep(w.quiet + time.Second) // then all are ready
		s.planner = w.planner()
		others := slices.DeleteFunc(slices.Clone(w.procs), func(p *proc) bool { return p == s.planner })
		s.owner, s.fourth = others[0], others[1]
		for s.shard = range w.n {
			if w.running[s.shard][0].p == s.owner {
				break
			}
		}
		repair := begin(s, s.node(node))

		departed, joiner := 0, (*proc)(nil)
		depart := func(p *proc, do func()) {
			loads, _ := w.loads()
			departed = loads[p.name]
			do()
		}
		switch event {
		case "a join":
			joiner = w.join("new")
		case "a leave":
			depart(s.owner, s.owner.leave)
		case "a crash":
			depart(s.owner, s.owner.crash)
		case "the planner dies":
			depart(s.planner, s.planner.crash)
		}
		time.Sleep(40 * time.Second)
		synctest.Wait()
		_, idle = w.loads()
		rejected := 0
		for _, p := range slices.Clone(w.procs) {
			if p == joiner && isRejected {
				require.True(t, isClosed(p.done), "the new member")
				require.True(t, zklock.IsFinal(p.err) || strings.Contains(p.err.Error(), errPlan.Error()), p.err)
				p.gone()
				p.s.Close()
				continue
			}
			require.False(t, isClosed(p.done), "%s: %v", p.name, p.err)
			rejected += p.g.Stats().Rejected
		}
		switch want {
		case nothing:
			require.Zero(t, idle)
		case planning:
			require.Equal(t, departed, idle)
			require.NotEmpty(t, w.logs.about("level=WARN"))
		case aShard:
			require.LessOrEqual(t, idle, 1)
			require.LessOrEqual(t, rejected, 1)
			if idle > rejected { // another client holds it, or its previous owner's node cannot be deleted
				require.NotEqual(t, "at rest", event)
			}
		}
		repair()
		w.within(time.Minute, "recovered", w.isEven)
	})
	return idle
}
