package zklock_test

// This test holds docs/faults.md to the tests that cite its rows.

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
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

var updateFaults = flag.Bool("update-faults", false, "write the tests of each fault into docs/faults.md")

// docs/faults.md explains the faults that tests cite, each one, and says which tests cite them. It reads well in a terminal.
func TestFaultsPage(t *testing.T) {
	const page, columns = "docs/faults.md", 110
	old := readFile(t, page)
	cited := citations(t)
	fault := regexp.MustCompile(`(?ms)^### ([RF]\d+)$.*?^\* \*\*Tests:\*\* (.*?)\n(?:\n|\z)`)
	explained := map[string]bool{}
	var b strings.Builder
	at := 0
	for _, m := range fault.FindAllStringSubmatchIndex(old, -1) {
		id := old[m[2]:m[3]]
		require.False(t, explained[id], "%s has %s twice", page, id)
		explained[id] = true
		require.NotContains(t, old[m[3]:m[1]], "\n### ", "%s: give %s a line that begins with * **Tests:**", page, id)
		tests := "–"
		if names := cited[id]; len(names) > 0 {
			tests = "`" + strings.Join(slices.Sorted(maps.Keys(names)), "`, `") + "`"
		}
		b.WriteString(old[at:m[4]] + wrapped(tests, "  ", len("* **Tests:** "), columns))
		at = m[5]
	}
	updated := b.String() + old[at:]
	require.Len(t, explained, 72+46, "faults of %s", page)
	require.Equal(t, len(explained), strings.Count(old, "\n### "), "%s: a heading without its tests", page)
	for _, id := range slices.Sorted(maps.Keys(cited)) {
		if !explained[id] {
			t.Errorf("tests cite %s, which %s does not explain: %v", id, page, slices.Sorted(maps.Keys(cited[id])))
		}
	}
	for i, line := range strings.Split(updated, "\n") {
		if n := utf8.RuneCountInString(line); n > columns && strings.Contains(strings.TrimSpace(strings.TrimPrefix(line, "* ")), " ") {
			t.Errorf("%s:%d has %d columns: break it after %d", page, i+1, n, columns)
		}
	}
	switch {
	case updated == old:
	case *updateFaults:
		require.NoError(t, os.WriteFile(page, []byte(updated), 0o644))
	default:
		t.Errorf("%s does not say which tests cite the faults: run go test -run TestFaultsPage . -update-faults", page)
	}
}

// wrapped breaks a text whose first line begins at a column. The lines after it are indented.
func wrapped(text, indent string, column, columns int) string {
	var b strings.Builder
	for i, word := range strings.Fields(text) {
		n := utf8.RuneCountInString(word)
		switch {
		case i == 0:
		case column+1+n > columns:
			b.WriteString("\n" + indent)
			column = len(indent)
		default:
			b.WriteString(" ")
			column++
		}
		b.WriteString(word)
		column += n
	}
	return b.String()
}

// citations returns the tests, by the faults that are named in their comments, or in the texts of their cases and
// assertions. What stands outside of a test is its file's.
func citations(t *testing.T) map[string]map[string]bool {
	t.Helper()
	cited := map[string]map[string]bool{}
	var files []string
	for _, dir := range []string{".", "cmd/zklock", "integration", "internal/clock", "internal/conformance", "internal/cutup", "internal/frames", "internal/sim", "internal/tap", "internal/zkserver"} {
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
