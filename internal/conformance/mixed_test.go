package conformance

// These tests run other clients' recipes together with ours while sessions and processes of each
// side are killed.
//
// A client that is in creates a mark below busy, in one transaction that checks its lock node: w if
// it is in alone, r- for a reader, p<k>- for k permits. Then it lists the other marks. It leaves in
// another such transaction, which deletes the mark, and writes to the log. A client that is in
// alone adds one to the count, by a read and a write. Lock node and mark belong to one session and
// end together, so the servers determine which clients are in: a client that has not yet been
// notified that its session was killed cannot enter, and is not in.
//
// The recipe names is the mutex with new lock roots: the participants go on to new names as the log
// grows, and lock, mark and count have the name as a suffix.

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock/internal/zkserver"
)

var mixedGrants = flag.Int("grants", 60, "grants of each recipe in TestInterop_Killed")

// mixed is one recipe's queue.
type mixed struct {
	t         *testing.T
	addr, dir string
	recipe    string
	admin     *zk.Conn
	running   map[*mixedProcess]bool
	kills     map[string]int
}

type mixedProcess struct {
	who   string
	cmd   *exec.Cmd
	said  *bytes.Buffer
	ended chan error
}

// mixedProgram returns the command of a participant.
type mixedProgram func(ctx context.Context) *exec.Cmd

func newMixed(t *testing.T, addr, recipe string) *mixed {
	m := &mixed{t: t, addr: addr, dir: "/mixed-" + recipe, recipe: recipe, running: map[*mixedProcess]bool{}, kills: map[string]int{}}
	m.admin, _ = client(t, addr)
	return m
}

// ours returns this program as the command, as a client of zklock or of go-zookeeper's lock.
func (m *mixed) ours(who string) mixedProgram {
	self, err := os.Executable()
	require.NoError(m.t, err)
	return func(ctx context.Context) *exec.Cmd {
		cmd := exec.CommandContext(ctx, self)
		cmd.Env = append(os.Environ(), mixedWorker+"="+strings.Join([]string{m.addr, m.dir, m.recipe, who}, " "))
		return cmd
	}
}

func (m *mixed) curator(classPath, recipe string) mixedProgram {
	return func(ctx context.Context) *exec.Cmd {
		return exec.CommandContext(ctx, "java", curatorArgs(classPath, "Mixed", m.addr, m.dir, recipe)...)
	}
}

func (m *mixed) start(ctx context.Context, who string, program mixedProgram) {
	p := &mixedProcess{who: who, cmd: program(ctx), said: &bytes.Buffer{}, ended: make(chan error, 1)}
	p.cmd.Stdout, p.cmd.Stderr = p.said, p.said
	require.NoError(m.t, p.cmd.Start())
	m.running[p] = true
	go func() { p.ended <- p.cmd.Wait() }()
}

// alive fails if a participant has ended by itself.
func (m *mixed) alive() {
	m.t.Helper()
	for p := range m.running {
		select {
		case err := <-p.ended:
			delete(m.running, p) // the cleanup does not wait for it
			require.FailNow(m.t, "it has ended by itself", "%s: %v\n%s", p.who, err, lastLines(p.said.Bytes(), 20))
		default:
		}
	}
}

// killProcess kills a process and starts another one. The killed one's session ends when it
// expires.
func (m *mixed) killProcess(ctx context.Context, programs map[string]mixedProgram, who string) {
	for p := range m.running {
		if p.who == who {
			require.NoError(m.t, p.cmd.Process.Kill())
			<-p.ended
			delete(m.running, p)
			m.kills["processes of "+who]++
			m.start(ctx, who, programs[who])
			return
		}
	}
}

// roots returns the parents of the lock nodes.
func (m *mixed) roots() (roots []string) {
	if m.recipe == "semaphore" {
		return []string{m.dir + "/lock/leases", m.dir + "/lock/locks"}
	}
	all, _, err := m.admin.Children(m.dir)
	require.NoError(m.t, err)
	for _, name := range all {
		if strings.HasPrefix(name, "lock") {
			roots = append(roots, m.dir+"/"+name)
		}
	}
	return roots
}

// deleted returns how many lock roots were deleted: by zklock, since the servers remove none here.
func (m *mixed) deleted() int {
	_, dir, err := m.admin.Exists(m.dir)
	require.NoError(m.t, err)
	return (int(dir.Cversion) - int(dir.NumChildren)) / 2 // Cversion counts creates and deletes
}

// counts returns the nodes with the shared counts, one for each name.
func (m *mixed) counts() (counts []string) {
	if m.recipe != "names" {
		return []string{m.dir + "/count"}
	}
	for i := range mixedNames {
		counts = append(counts, fmt.Sprintf("%s/count-%d", m.dir, i))
	}
	return counts
}

// killSession ends the session of a client in the queue, of ours or of another.
func (m *mixed) killSession(ours bool) {
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); {
		roots := m.roots()
		root := roots[rand.IntN(len(roots))]
		nodes, _, err := m.admin.Children(root)
		if err != nil || len(nodes) == 0 {
			continue
		}
		data, stat, err := m.admin.Get(root + "/" + nodes[rand.IntN(len(nodes))])
		if err != nil || (string(data) == "zklock") != ours || stat.EphemeralOwner == 0 {
			continue
		}
		if err := zkserver.ExpireSession(m.addr, stat.EphemeralOwner); err != nil {
			require.ErrorIs(m.t, err, zkserver.ErrNoSession)
			continue
		}
		m.kills[map[bool]string{true: "sessions of zklock", false: "sessions of others"}[ours]]++
		return
	}
}

// grants returns the log's entries in order.
func (m *mixed) grants() []string {
	names, _, err := m.admin.Children(m.dir + "/log")
	require.NoError(m.t, err)
	slices.SortFunc(names, func(a, b string) int { return strings.Compare(a[len(a)-10:], b[len(b)-10:]) })
	return names
}

// begin creates the nodes that the participants need, and starts them.
func (m *mixed) begin(ctx context.Context, programs map[string]mixedProgram) {
	t := m.t
	for _, p := range []string{"", "/busy", "/log", "/lock"} {
		_, err := m.admin.Create(m.dir+p, nil, 0, zk.WorldACL(zk.PermAll))
		require.NoError(t, err)
	}
	for _, count := range m.counts() {
		_, err := m.admin.Create(count, []byte("0"), 0, zk.WorldACL(zk.PermAll))
		require.NoError(t, err)
	}
	for who, program := range programs {
		m.start(ctx, who, program)
	}
	t.Cleanup(func() {
		for p := range m.running {
			_ = p.cmd.Process.Kill()
			<-p.ended
		}
	})
}

func (m *mixed) run(programs map[string]mixedProgram) {
	t := m.t
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()
	m.begin(ctx, programs)
	all := slices.Sorted(maps.Keys(programs))
	await := func(what string, until func(grants []string) bool) {
		t.Helper()
		for last, seen := time.Now(), 0; ; time.Sleep(20 * time.Millisecond) {
			grants := m.grants()
			if until(grants) {
				return
			}
			m.alive()
			if len(grants) > seen {
				last, seen = time.Now(), len(grants)
			}
			require.Less(t, time.Since(last), 3*time.Minute, "%s: nobody gets in any more: %d grants", what, seen)
		}
	}
	await("all take part", func(grants []string) bool {
		return !slices.ContainsFunc(all, func(who string) bool {
			return !slices.ContainsFunc(grants, func(g string) bool { return strings.HasPrefix(g, who+"-") })
		})
	})
	// A kill of each kind in turn, with so many grants between two.
	kills := max(4, *mixedGrants/100)
	from := len(m.grants())
	for n := range kills {
		await("before a kill", func(grants []string) bool { return len(grants)-from >= n**mixedGrants/(kills+1) })
		if n%2 == 0 {
			m.killSession(n%4 == 0)
		} else {
			m.killProcess(ctx, programs, all[n/2%len(all)])
		}
	}
	await("the rest", func(grants []string) bool {
		served := map[string]int{}
		for _, g := range grants {
			who, _, _ := strings.Cut(strings.Replace(g, "go-z", "go_z", 1), "-")
			served[who]++
		}
		if m.recipe == "names" && m.deleted() == 0 && len(grants) < 10*mixedNames {
			return false
		}
		return len(grants) >= *mixedGrants && slices.Min(slices.Collect(maps.Values(served))) >= *mixedGrants/10
	})
	_, err := m.admin.Create(m.dir+"/over", nil, 0, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)
	for p := range m.running {
		select {
		case err := <-p.ended:
			delete(m.running, p)
			require.NoError(t, err, "%s: %s", p.who, lastLines(p.said.Bytes(), 20))
		case <-time.After(2 * time.Minute):
			require.FailNow(t, "it does not end", "%s: %s", p.who, lastLines(p.said.Bytes(), 20))
		}
	}
	m.verify(all)
}

// verify checks the log and the count, and that no node is left.
func (m *mixed) verify(all []string) {
	t := m.t
	served, alone, last := map[string]int{}, 0, ""
	for _, g := range m.grants() {
		fields := strings.Split(strings.Replace(g, "go-zookeeper", "go_zookeeper", 1), "-")
		who, kind, number := strings.Replace(fields[0], "_", "-", 1), fields[1], fields[2]
		served[who]++
		if kind == "w" {
			alone++
			// A writer may be in before readers that precede it in the log. A new root numbers from 0.
			if m.recipe != "readwrite" && m.recipe != "names" {
				require.Greater(t, number, last, "I1: %s", g)
			}
			last = number
		}
	}
	sum := 0
	for _, count := range m.counts() {
		data, _, err := m.admin.Get(count)
		require.NoError(t, err)
		n, err := strconv.Atoi(string(data))
		require.NoError(t, err)
		sum += n
	}
	require.Equal(t, alone, sum, "I1: an addition is lost")
	for _, who := range all {
		require.Positive(t, served[who], who)
	}
	roots := m.roots()
	for _, root := range append(roots, m.dir+"/busy") {
		var left []string
		var err error
		for end := time.Now().Add(2*mixedSession + 4*time.Second); ; time.Sleep(100 * time.Millisecond) {
			if left, _, err = m.admin.Children(root); errors.Is(err, zk.ErrNoNode) {
				err = nil
			}
			require.NoError(t, err)
			if len(left) == 0 || time.Now().After(end) {
				break
			}
		}
		require.Empty(t, left, "I4: %s", root)
	}
	t.Logf("interop: %s: %d grants %v, %d of them alone, none beside another; killed %v", m.recipe, len(m.grants()), served, alone, m.kills)
	if m.recipe == "names" {
		t.Logf("interop: names: %d roots were deleted together with the node, %d are left", m.deleted(), len(roots)-1)
		require.Positive(t, m.deleted())
	}
}

// F36, I1, I4: each recipe that Curator, kazoo and go-zookeeper share with us, while sessions and
// processes of each side are killed: the servers never see two in that exclude each other, no
// addition to a shared count is lost, never more permits are in use than exist, no reader is in
// together with a writer, and no node is left.
func TestInterop_Killed(t *testing.T) {
	suites(t)
	classPath := compileCurator(t)
	script, err := filepath.Abs("kazoo/mixed.py")
	require.NoError(t, err)
	if out, err := exec.Command(debianPython, "-c", "import kazoo.recipe.lock").CombinedOutput(); err != nil {
		lacking(t, "kazoo's lock needs Debian's python3-kazoo: "+lastLines(out, 1))
	}
	addr := startReal(t)
	for _, recipe := range []string{"mutex", "names", "readwrite", "semaphore", "selector", "latch"} {
		t.Run(recipe, func(t *testing.T) {
			t.Parallel() // most of it waits for sessions that have to run out
			m := newMixed(t, addr, recipe)
			programs := map[string]mixedProgram{"zklock": m.ours("zklock"), "curator": m.curator(classPath, recipe)}
			if recipe == "mutex" || recipe == "names" {
				programs["go-zookeeper"] = m.ours("go-zookeeper")
				programs["kazoo"] = func(ctx context.Context) *exec.Cmd {
					return exec.CommandContext(ctx, debianPython, script, m.addr, m.dir, recipe)
				}
			}
			m.run(programs)
		})
	}
	t.Logf("interop: Curator %s", curatorVersion(t))
}

// The checks can detect a violation: Curator's read/write lock and our mutex on one path do not
// exclude each other, as docs/curator.md warns, and one of them soon finds the other in.
func TestInterop_Killed_SeesTwo(t *testing.T) {
	suites(t)
	classPath := compileCurator(t)
	m := newMixed(t, startReal(t), "mutex")
	m.begin(t.Context(), map[string]mixedProgram{"zklock": m.ours("zklock"), "curator": m.curator(classPath, "readwrite")})
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(10 * time.Millisecond) {
		for p := range m.running {
			select {
			case err := <-p.ended:
				delete(m.running, p)
				require.Error(t, err)
				require.Contains(t, p.said.String(), errBeside.Error())
				return
			default:
			}
		}
		require.True(t, time.Now().Before(end), "nobody has found another in: %v", m.grants())
	}
}

// An older Curator breaks exclusion by itself: a writer that continues as a reader also admits the
// next writer, because its read node is behind the queue. From 5.5 on it has the writer's number.
// No other client takes part.
func TestInterop_CuratorDowngrade_ByItself(t *testing.T) {
	suites(t)
	classPath := compileCurator(t)
	version := curatorVersion(t)
	out, err := exec.CommandContext(t.Context(), "java", curatorArgs(classPath, "Downgrade", startReal(t))...).CombinedOutput()
	require.NoError(t, err, "%s", out)
	beside := strings.TrimSpace(string(out))
	t.Logf("interop: Curator %s alone, a writer that goes on as a reader and the next writer: %s", version, beside)
	require.Equal(t, "beside "+strconv.FormatBool(zkserver.Older(version, "5.5")), beside)
}
