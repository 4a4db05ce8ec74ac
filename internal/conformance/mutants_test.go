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
	old, new string // old occurs exactly once
}

// planted has a mutant for each part that decides: transaction numbers, node numbers, failed
// transactions, and the clients that are notified.
var planted = []mutant{
	{"a failed write takes no zxid", "write",
		"if err != nil { return change{}, err } c.do(tx, ch)", "if err != nil { c.zxid--; tx.zxid--; return change{}, err }; c.do(tx, ch)"},
	{"a deletion does not raise the parent's pzxid", "tree.delete",
		"parent.pzxid = max(pzxid, zxid)", "parent.pzxid = max(pzxid, 0)"},
	{"a failed multi is not taken back", "cluster.rollback",
		"undo()", "_ = undo"},
	{"setWatches tells of what the client has seen", "cluster.setWatches",
		"n.mzxid > ask.RelativeZxid", "n.mzxid >= ask.RelativeZxid"},
	{"whoever watches a node twice is told twice of its deletion", "endpoint.notify",
		"return slices.Contains(told, cn)", "return false"},
}

// plant returns the file's text with the mistake in it.
func (m mutant) plant(t *testing.T) map[string]string {
	t.Helper()
	return mutants.Mutate(t, filepath.Join("..", "..", "zktest"), mutants.Swap{In: m.in, Old: m.old, New: m.new})
}

func TestMutants_FitTheCode(t *testing.T) {
	for _, m := range planted {
		m.plant(t)
	}
}

// TestMutants_AllCaught shows that the differential test finds mistakes; the transcript is enough
// for that. It compiles the server once for each, so it runs only if ZKLOCK_MUTANTS=1.
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
