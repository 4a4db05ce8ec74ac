// Package faults has the table of faults that tests cite, and holds it to the tests. It has no code but its test.
package faults

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

var update = flag.Bool("update", false, "write the tests that cite each fault into faults.md")

// Each fault that a test cites is in the table, and the table says which tests cite it.
func TestTable(t *testing.T) {
	const page = "faults.md"
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	old := strings.ReplaceAll(string(text), "\r\n", "\n")
	cited := citations(t)
	known := map[string]bool{}
	row := regexp.MustCompile(`(?m)^\| ([RF]\d+) \| (.*) \| (.*) \| (.*) \|$`)
	updated := row.ReplaceAllStringFunc(old, func(line string) string {
		cells := row.FindStringSubmatch(line)
		id, tests := cells[1], "–"
		require.False(t, known[id], "%s has %s twice", page, id)
		known[id] = true
		if names := cited[id]; len(names) > 0 {
			tests = "`" + strings.Join(slices.Sorted(maps.Keys(names)), "`, `") + "`"
		}
		return "| " + id + " | " + cells[2] + " | " + cells[3] + " | " + tests + " |"
	})
	for _, id := range slices.Sorted(maps.Keys(cited)) {
		require.True(t, known[id], "%v cite %s, which %s does not have", slices.Sorted(maps.Keys(cited[id])), id, page)
	}
	if *update {
		require.NoError(t, os.WriteFile(page, []byte(updated), 0o644))
		return
	}
	require.Equal(t, updated, old, "%s does not say which tests cite the faults: run go test ./internal/faults -update", page)
}

// citations returns the tests, by the faults that are named in their comments, or in the texts of their cases and
// assertions.
func citations(t *testing.T) map[string]map[string]bool {
	t.Helper()
	cited := map[string]map[string]bool{}
	var files []string
	for _, dir := range []string{".", "cmd/zklock", "integration", "internal/clock", "internal/conformance", "internal/cutup", "internal/frames", "internal/sim", "internal/tap", "internal/zkserver"} {
		names, err := filepath.Glob(filepath.Join("../..", dir, "*_test.go"))
		require.NoError(t, err)
		files = append(files, names...)
	}
	id := regexp.MustCompile(`\b[RF][1-9]\d*\b`)
	for _, name := range files {
		fset := token.NewFileSet()
		f, err := parser.ParseFile(fset, name, nil, parser.ParseComments)
		require.NoError(t, err)
		cite := func(n ast.Node, text string) {
			in := ""
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
			if in == "" {
				return
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
