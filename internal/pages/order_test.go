package pages

// This test compares the library's files with their order in docs/design.md: each file uses only
// declarations of those before it, so there is no cycle.

import (
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestDesign_EachFileUsesOnlyThoseBeforeIt(t *testing.T) {
	_, order, found := strings.Cut(readFile(t, "docs/design.md"), "each step uses only earlier steps:\n")
	require.True(t, found)
	order, _, _ = strings.Cut(order, "\n#")
	place, named, step := map[string]int{"doc.go": -1}, regexp.MustCompile(`([a-z]+)(;|,|\.| \+)`), 0
	for _, name := range named.FindAllStringSubmatch(order, -1) {
		place[name[1]+".go"] = step
		if name[2] != " +" { // the next file is of the same step
			step++
		}
	}

	fset := token.NewFileSet()
	var files []*ast.File
	names, err := filepath.Glob("*.go")
	require.NoError(t, err)
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		require.Contains(t, place, filepath.Base(name))
		f, err := parser.ParseFile(fset, name, nil, 0)
		require.NoError(t, err)
		files = append(files, f)
	}
	require.Len(t, place, len(files), "each that is named is there")
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}}
	conf := types.Config{Importer: compiled(t, fset)}
	pkg, err := conf.Check("github.com/zklock/zklock", fset, files, info)
	require.NoError(t, err)
	fileOf := func(p token.Pos) string { return filepath.Base(fset.Position(p).Filename) }
	for id, used := range info.Uses {
		if used.Pkg() == pkg {
			require.LessOrEqual(t, place[fileOf(used.Pos())], place[fileOf(id.Pos())], "%s uses %s of %s", fset.Position(id.Pos()), used.Name(), fileOf(used.Pos()))
		}
	}
}

// compiled returns an importer of the library, of other packages and of those that they use, as the
// compiler has them.
func compiled(t *testing.T, fset *token.FileSet, others ...string) types.Importer {
	list, err := exec.Command("go", append([]string{"list", "-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}", "."}, others...)...).Output()
	require.NoError(t, err)
	files := map[string]string{}
	for line := range strings.Lines(string(list)) {
		pkg, file, _ := strings.Cut(strings.TrimSpace(line), " ")
		files[pkg] = file
	}
	return importer.ForCompiler(fset, "gc", func(pkg string) (io.ReadCloser, error) { return os.Open(files[pkg]) })
}
