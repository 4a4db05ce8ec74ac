// Package faults has the table of faults that tests cite, and compares it with the tests. It has no
// code but its test.
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

// Each fault that a test cites is in the table, with the tests that cite it. The table has no fault
// that no test cites.
func TestTable(t *testing.T) {
	const page = "faults.md"
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	old := strings.ReplaceAll(string(text), "\r\n", "\n")
	cited := citations(t)
	known := map[string]bool{}
	row := regexp.MustCompile(`(?m)^(\| ([RF]\d+) \| .* \|) [^|]* \|$`)
	updated := row.ReplaceAllStringFunc(old, func(line string) string {
		cells := row.FindStringSubmatch(line)
		id := cells[2]
		require.False(t, known[id], "%s has %s twice", page, id)
		require.NotEmpty(t, cited[id], "no test cites %s", id)
		known[id] = true
		return cells[1] + " `" + strings.Join(slices.Sorted(maps.Keys(cited[id])), "`, `") + "` |"
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

// citations returns the tests, by the faults that their comments and texts name.
func citations(t *testing.T) map[string]map[string]bool {
	t.Helper()
	var files []string
	for _, pattern := range []string{"*_test.go", "test/*_test.go", "internal/*/*_test.go", "cmd/zklock/internal/*/*_test.go", "shards/*_test.go"} {
		more, err := filepath.Glob(filepath.Join("../..", pattern))
		require.NoError(t, err)
		files = append(files, more...)
	}
	cited := map[string]map[string]bool{}
	id := regexp.MustCompile(`\b[RF][1-9]\d*\b`)
	for _, name := range files {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		fset := token.NewFileSet()
		f, err := parser.ParseFile(fset, name, text, parser.ParseComments)
		require.NoError(t, err)
		for _, d := range f.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || !strings.HasPrefix(fn.Name.Name, "Test") {
				continue
			}
			from := fn.Pos()
			if fn.Doc != nil {
				from = fn.Doc.Pos()
			}
			for _, row := range id.FindAllString(string(text[fset.Position(from).Offset:fset.Position(fn.End()).Offset]), -1) {
				if cited[row] == nil {
					cited[row] = map[string]bool{}
				}
				cited[row][fn.Name.Name] = true
			}
		}
	}
	return cited
}
