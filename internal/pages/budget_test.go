package pages

// This test compares the size of the repository with the numbers of BUDGET.

import (
	"go/ast"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Nothing is larger than BUDGET permits, and each number has a reason.
func TestBudget(t *testing.T) {
	measured := map[string]int{"library lines": libraryLines(t), "Go lines": goLines(t), "page words": pageWords(t)}
	measured["root files"], measured["exported names"], measured["comment words"] = surface(t)
	for line := range strings.Lines(readFile(t, "BUDGET")) {
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		name, rest, _ := strings.Cut(line, ": ")
		number, reason, _ := strings.Cut(rest, ", because ")
		most, err := strconv.Atoi(number)
		require.NoError(t, err, "BUDGET: write %q as \"NAME: NUMBER, because REASON\"", line)
		require.NotEmpty(t, reason, "BUDGET: give the reason for the number of %s", name)
		require.Contains(t, measured, name, "BUDGET: remove the line of %s, which nothing measures or which is there twice", name)
		is := measured[name]
		delete(measured, name)
		t.Logf("%s: %d of %d", name, is, most)
		if is > most {
			t.Errorf("%s: there are %d, and BUDGET permits %d, because %s.\nRemove %d. If the change is worth more than that, write %d into BUDGET in the same commit, and list in its message what it removes.",
				name, is, most, reason, is-most, is)
		}
	}
	require.Empty(t, measured, "BUDGET has no number for these: add a line for each")
}

// libraryLines counts the lines of the root and of the packages that it is built on, without tests.
func libraryLines(t *testing.T) (n int) {
	_, files := sources(t)
	for name := range files {
		n += strings.Count(readFile(t, name), "\n")
	}
	return n
}

// goFiles returns all Go files, those of the tests and of the other modules too.
func goFiles(t *testing.T) (names []string) {
	require.NoError(t, filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && len(path) > 1 && (path[0] == '.' || path == "bin" || path == "dist"): // what git does not track
			return fs.SkipDir
		case strings.HasSuffix(path, ".go"):
			names = append(names, path)
		}
		return nil
	}))
	return names
}

func goLines(t *testing.T) (n int) {
	for _, name := range goFiles(t) {
		n += strings.Count(readFile(t, name), "\n")
	}
	return n
}

// pageWords counts the words of the README, of docs, and of the two READMEs that an auditor reads.
func pageWords(t *testing.T) (n int) {
	names, err := filepath.Glob("docs/*.md")
	require.NoError(t, err)
	for _, name := range append(names, "README.md", "internal/README.md", "lab/README.md") {
		n += len(strings.Fields(readFile(t, name)))
	}
	return n
}

// surface counts the files of the root, their exported names, and the words in the comments of
// these names, of exported fields and of the package. A method counts as a name, also one that
// seals an interface. A field does not.
func surface(t *testing.T) (rootFiles, names, words int) {
	_, files := sources(t, "zklock")
	add := func(comments ...*ast.CommentGroup) {
		for _, c := range comments {
			words += len(strings.Fields(c.Text()))
		}
	}
	for _, f := range files {
		add(f.Doc)
		for _, d := range f.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Name.IsExported() && (d.Recv == nil || exportedReceiver(d)) {
					names++
					add(d.Doc)
				}
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					switch spec := spec.(type) {
					case *ast.TypeSpec:
						if spec.Name.IsExported() {
							names++
							add(d.Doc, spec.Doc)
							names += members(spec.Type, add)
						}
					case *ast.ValueSpec:
						for _, name := range spec.Names {
							if name.IsExported() {
								names++
								add(spec.Doc, spec.Comment)
							}
						}
					}
				}
			}
		}
	}
	return len(files), names, words
}

// members adds the comments of a type's exported fields or of its methods, and returns the number
// of methods.
func members(typ ast.Expr, add func(...*ast.CommentGroup)) (methods int) {
	switch typ := typ.(type) {
	case *ast.StructType:
		for _, field := range typ.Fields.List {
			for _, name := range field.Names {
				if name.IsExported() {
					add(field.Doc, field.Comment)
				}
			}
		}
	case *ast.InterfaceType:
		for _, method := range typ.Methods.List {
			add(method.Doc, method.Comment)
			for _, name := range method.Names {
				if name.IsExported() {
					methods++
				}
			}
		}
	}
	return methods
}
