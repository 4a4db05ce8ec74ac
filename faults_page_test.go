package zklock_test

import (
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var updateFaults = flag.Bool("update-faults", false, "write the column of tests in docs/faults.md")

// docs/faults.md explains the rows that tests cite, each one, and says which tests cite them.
func TestFaultsPage(t *testing.T) {
	const page = "docs/faults.md"
	old := readFile(t, page)
	cited := citations(t)
	row := regexp.MustCompile(`(?m)^(\| ([RF]\d+) \|.*\| )[^|]*( \|)$`)
	explained := map[string]bool{}
	updated := row.ReplaceAllStringFunc(old, func(line string) string {
		m := row.FindStringSubmatch(line)
		require.False(t, explained[m[2]], "%s has %s twice", page, m[2])
		explained[m[2]] = true
		tests := "–"
		if names := cited[m[2]]; len(names) > 0 {
			tests = "`" + strings.Join(slices.Sorted(maps.Keys(names)), "`, `") + "`"
		}
		return m[1] + tests + m[3]
	})
	require.Len(t, explained, 72+46, "rows of %s", page)
	for _, id := range slices.Sorted(maps.Keys(cited)) {
		if !explained[id] {
			t.Errorf("tests cite %s, which %s does not explain: %v", id, page, slices.Sorted(maps.Keys(cited[id])))
		}
	}
	switch {
	case updated == old:
	case *updateFaults:
		require.NoError(t, os.WriteFile(page, []byte(updated), 0o644))
	default:
		t.Errorf("%s does not say which tests cite the rows: run go test -run TestFaultsPage . -update-faults", page)
	}
}

// citations returns the tests, by the rows that are named in their comments, or in the texts of their cases and
// assertions. What stands outside of a test is its file's.
func citations(t *testing.T) map[string]map[string]bool {
	t.Helper()
	cited := map[string]map[string]bool{}
	var files []string
	for _, dir := range []string{".", "cmd/zklock", "integration", "internal/clock", "internal/conformance", "internal/cutup", "internal/lossy", "internal/tap"} {
		names, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
		require.NoError(t, err)
		files = append(files, names...)
	}
	id := regexp.MustCompile(`\b[RF][1-9]\d*\b`)
	for _, name := range files {
		fset := token.NewFileSet()
		f, err := parser.ParseFile(fset, name, nil, parser.ParseComments)
		require.NoError(t, err)
		cite := func(n ast.Node, text string) {
			in := filepath.ToSlash(name)
			for _, d := range f.Decls {
				fn, ok := d.(*ast.FuncDecl)
				if !ok || !strings.HasPrefix(fn.Name.Name, "Test") {
					continue
				}
				from := fn.Pos()
				if fn.Doc != nil {
					from = fn.Doc.Pos()
				}
				if from <= n.Pos() && n.Pos() < fn.End() {
					in = fn.Name.Name
				}
			}
			for _, row := range id.FindAllString(text, -1) {
				if cited[row] == nil {
					cited[row] = map[string]bool{}
				}
				cited[row][in] = true
			}
		}
		for _, group := range f.Comments {
			cite(group, group.Text())
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
				cite(lit, lit.Value)
			}
			return true
		})
	}
	return cited
}
