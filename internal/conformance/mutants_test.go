package conformance

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock/internal/mutants"
)

// mutant is a plausible mistake in the server.
type mutant struct {
	name     string
	in       string // a declaration of zktest
	old, new string // old stands there exactly once
}

var planted = []mutant{
	{"a failed write takes no zxid", "write",
		"\tif err != nil {\n\t\treturn change{}, err\n\t}\n\tc.do(tx, ch)", "\tif err != nil {\n\t\tc.zxid--\n\t\ttx.zxid--\n\t\treturn change{}, err\n\t}\n\tc.do(tx, ch)"},
	{"a deletion does not raise the parent's pzxid", "tree.delete",
		"parent.pzxid = max(pzxid, zxid)", "parent.pzxid = max(pzxid, 0)"},
	{"cversion counts creates only", "node.stat",
		"n.creates*2 - children", "n.creates"},
	{"exists leaves no watch on a missing node", "cluster.exists",
		"\tif ask.Watch {\n\t\treq.conn.ep.data.add(ask.Path, req.conn, oneShot)\n\t}\n\tif n == nil {", "\tif ask.Watch && n != nil {\n\t\treq.conn.ep.data.add(ask.Path, req.conn, oneShot)\n\t}\n\tif n == nil {"},
	{"a failed getData leaves a watch", "cluster.read",
		"if err == nil && ask.Watch {", "if ask.Watch {"},
	{"whoever watches a node twice is told twice of its deletion", "endpoint.notify",
		"return slices.Contains(told, cn)", "return false"},
	{"only sequential creates use up numbers", "rules.create",
		"if creates++; creates", "if req.Flags == 2 || req.Flags == 3 {\n\t\tcreates++\n\t}\n\tif creates"},
	{"persistent watches go when they fire", "watchTable.fire",
		"case mode == oneShot:", "case mode != recursing:"},
	{"recursive watches tell of children", "watchTable.fire",
		"case mode == recursing && event == NodeChildrenChanged:", "case false:"},
	{"setWatches tells of what the client has seen", "cluster.setWatches",
		"n.mzxid > ask.RelativeZxid", "n.mzxid >= ask.RelativeZxid"},
	{"a failed multi is not taken back", "cluster.rollback",
		"\t\ttx.undo[i]()\n", "\t\t_ = tx.undo[i]\n"},
	{"operations after the one that failed report 0", "cluster.multi",
		"if j > i {", "if false {"},
	{"a container made in a multi answers without a stat", "cluster.multiOp",
		"kind, as = wire.OpCreateContainer, wire.OpCreate2", "kind, as = wire.OpCreateContainer, wire.OpCreate"},
	{"delete asks the node's ACL", "rules.delete",
		"if !allowed(parent.acl, wire.PermDelete, ids) {", "if n := r.tree.nodes[req.Path]; n != nil && !allowed(n.acl, wire.PermDelete, ids) {"},
	{"a wrong password leaves the old connection alone", "cluster.connect",
		"if old := cn.ep.attached[ask.SessionID]; old != nil {", "if old := cn.ep.attached[ask.SessionID]; old != nil && s != nil && bytes.Equal(ask.Password, s.password) {"},
	{"a watch of another connection does for nobody", "watchTable.contains",
		"found := len(w.byPath[path]) > 0", "found := len(w.byPath[path]) > 1"},
	{"events go to those who may not read", "endpoint.tell",
		"if allowed(readers, wire.PermRead, cn.ids) {", "if true {"},
	{"an ephemeral may have children", "rules.create",
		"if parent.kind == ephemeral {", "if false {"},
	{"an auth reply carries the zxid", "cluster.auth",
		"wire.ReplyHeader{Xid: req.xid, Err: code}", "wire.ReplyHeader{Xid: req.xid, Zxid: c.zxid, Err: code}"},
	{"events carry no zxid in 3.9", "cluster.event",
		"if !c.cfg.since(\"3.9.3\") {", "if true {"},
	{"exists asks for no permission in 3.9", "cluster.exists",
		"if n != nil && c.cfg.since(\"3.9.3\") &&", "if n != nil && false &&"},
	{"setWatches tells whoever may not read in 3.9.6", "cluster.setWatches",
		"!c.cfg.since(\"3.9.6\") ||", "true ||"},
}

// plant returns what the file would be with the mistake in it.
func (m mutant) plant(t *testing.T) map[string]string {
	t.Helper()
	return mutants.Mutate(t, filepath.Join("..", "..", "zktest"), mutants.Swap{In: m.in, Old: m.old, New: m.new})
}

func TestMutants_FitTheCode(t *testing.T) {
	for _, m := range planted {
		m.plant(t)
	}
}

// TestMutants_AllCaught shows that the differential test finds mistakes; the transcript will do for that. It compiles the
// server once for each, so it runs only if ZKLOCK_MUTANTS=1.
func TestMutants_AllCaught(t *testing.T) {
	if os.Getenv("ZKLOCK_MUTANTS") != "1" {
		t.Skip("mutants are planted only with ZKLOCK_MUTANTS=1")
	}
	for _, m := range planted {
		t.Run(m.name, func(t *testing.T) {
			list := mutants.Overlay(t, m.plant(t))
			cmd := exec.Command("go", "test", "-overlay", list, "-count=1", "-run", "TestDifferential_Transcript$", ".")
			cmd.Env = append(os.Environ(), "ZKLOCK_MUTANTS=0")
			out, err := cmd.CombinedOutput()
			require.Error(t, err, "the mutant was not caught:\n%s", out)
			require.Contains(t, string(out), "the servers differ", "it failed for another reason:\n%s", out)
			for line := range strings.Lines(string(out)) {
				if strings.Contains(line, "operation ") {
					t.Log("caught at " + strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(line), "Messages:")))
					break
				}
			}
		})
	}
}
