package pages

// This test compiles programs that give an option to each New function: only a function of the
// option's own recipes takes it.

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOptions_OfAnotherRecipe_DoNotCompile(t *testing.T) {
	all := []string{"NewMutex", "NewRWMutex", "NewSemaphore", "NewElection"}
	takes := map[string][]string{ // the functions that take an option
		"WithACL(nil)": all, "WithContainer()": all, "WithData(nil)": all, `WithName("")`: all, "WithRevocation(nil)": all, "nil": all,
		"WithLockDelay(1)": {"NewMutex", "NewElection"},
		"WithKeptRuns(1)":  {"NewMutex", "NewRWMutex"},
		"WithMinHold(1)":   {"NewMutex"},

		`WithSharedLimit("/limit")`: {"NewSemaphore"},
		"WithLatchNodes()":          {"NewElection"},
		"WithTrace(nil)":            {}, // an Option of Connect
	}
	fset := token.NewFileSet()
	conf := types.Config{Importer: compiled(t, fset)}
	for opt, of := range takes {
		for _, f := range all {
			limit := map[string]string{"NewSemaphore": "1, "}[f]
			program := fmt.Sprintf("package p\nimport . %q\nvar _, _ = %s(nil, `/x`, %s%s)", "github.com/zklock/zklock", f, limit, opt)
			file, err := parser.ParseFile(fset, "p.go", program, 0)
			require.NoError(t, err)
			_, err = conf.Check("p", fset, []*ast.File{file}, nil)
			if slices.Contains(of, f) {
				require.NoError(t, err, program)
			} else {
				require.ErrorContains(t, err, "does not implement", program)
			}
		}
	}
}
