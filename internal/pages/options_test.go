package pages

// These tests compile programs that give an option to each New function, because only a function of
// the option's own recipes takes it, and compare the options with docs/service.md.

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"regexp"
	"slices"
	"strings"
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

// Each option is in a row of docs/service.md with its type.
func TestOptions_EachIsInTheTable(t *testing.T) {
	root, _, _ := strings.Cut(readFile(t, "internal/pages/testdata/api.txt"), "\npackage fence")
	options := regexp.MustCompile(`(?m)^func (\w+)\(.*\) (\w*Option)$`).FindAllStringSubmatch(root, -1)
	require.Greater(t, len(options), 20)
	for _, o := range options {
		require.Regexp(t, "(?m)^\\|.*`"+o[1]+"`.*\\| `"+o[2]+"` \\|", readFile(t, "docs/service.md"))
	}
}
