package conformance

// These tests compare docs/curator/parity.md with the names in it: our API and our tests, and the
// public methods of the installed Curator.

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock/internal/zkserver"
)

// curatorTests is how many tests the two packages have in Curator's source,
// TestInterProcessMutexBase's counted once.
const curatorTests = 87

// parityTables returns the rows of the page: Curator's method or test, and ours.
func parityTables(t *testing.T) (methods, tests [][2]string) {
	t.Helper()
	text, err := os.ReadFile("../../docs/curator/parity.md")
	require.NoError(t, err)
	before, after, ok := strings.Cut(strings.ReplaceAll(string(text), "\r\n", "\n"), "\n## Tests\n")
	require.True(t, ok)
	rows := func(part string) (all [][2]string) {
		for line := range strings.Lines(part) {
			if !strings.HasPrefix(line, "| `") {
				continue
			}
			cells := strings.Split(strings.TrimSpace(line), "|")
			require.Len(t, cells, 4, line)
			row := [2]string{strings.TrimSpace(cells[1]), strings.TrimSpace(cells[2])}
			require.NotEmpty(t, row[1], line)
			all = append(all, row)
		}
		return all
	}
	return rows(before), rows(after)
}

var quoted = regexp.MustCompile("`([^`]+)`")

func names(cell string) (all []string) {
	for _, m := range quoted.FindAllStringSubmatch(cell, -1) {
		all = append(all, m[1])
	}
	return all
}

// Each row of both tables names our counterpart, or the reason why there is none. All named methods
// and tests exist.
func TestParity(t *testing.T) {
	methods, tests := parityTables(t)
	exported, tested := declared(t)
	for _, row := range methods {
		here := names(row[1])
		require.True(t, len(here) > 0 || strings.Contains(row[1], "none: ") || strings.Contains(row[1], "the same"), "%s: %s", row[0], row[1])
		for _, name := range here {
			require.True(t, exported[name], "%s: the library has no %s", row[0], name)
		}
	}
	theirs := map[string]bool{}
	for _, row := range tests {
		for _, name := range names(row[0]) {
			require.False(t, theirs[name], "%s is there twice", name)
			theirs[name] = true
		}
		here := names(row[1])
		require.True(t, len(here) > 0 || strings.HasPrefix(row[1], "does not apply: "), "%s: %s", row[0], row[1])
		for _, name := range here {
			require.True(t, tested[name], "%s: there is no test %s", row[0], name)
		}
	}
	require.Len(t, theirs, curatorTests)
	t.Logf("parity: %d tests of Curator's in %d rows", len(theirs), len(tests))
}

// Every public method of the installed Curator's two packages is listed.
func TestParity_NoMethodIsLeftOut(t *testing.T) {
	methods, _ := parityTables(t)
	known := map[string]bool{}
	for _, row := range methods {
		for _, name := range names(row[0]) {
			require.False(t, known[name], "%s is there twice", name)
			known[name] = true
		}
	}
	theirs := publicMethods(t)
	for _, name := range theirs {
		require.True(t, known[name], "docs/curator/parity.md says nothing of %s", name)
	}
	t.Logf("parity: %d public methods of Curator %s, and %d of other versions", len(theirs), curatorVersion(t), len(known)-len(theirs))
	require.Greater(t, len(theirs), 100)
}

// publicMethods returns the public methods of Curator's locks and leader packages, as javap prints
// them, without packages and type arguments.
func publicMethods(t *testing.T) (all []string) {
	t.Helper()
	if _, err := exec.LookPath("javap"); err != nil {
		lacking(t, "Curator's methods are read by a javap: "+err.Error())
	}
	jars, err := zkserver.ClassPath(curatorLibraries...)
	if err != nil {
		lacking(t, "Curator's methods: "+err.Error())
	}
	const recipes = "org.apache.curator.framework.recipes."
	list, err := exec.Command("jar", "tf", curatorRecipes(t)).Output()
	require.NoError(t, err)
	args := []string{"-cp", strings.Join(jars, ":"), "-public"}
	for name := range strings.Lines(string(list)) {
		name, isClass := strings.CutSuffix(strings.ReplaceAll(strings.TrimSpace(name), "/", "."), ".class")
		if isClass && (strings.HasPrefix(name, recipes+"locks.") || strings.HasPrefix(name, recipes+"leader.")) {
			args = append(args, name)
		}
	}
	out, err := exec.Command("javap", args...).Output()
	require.NoError(t, err)
	class, method := regexp.MustCompile(`^public .*?(?:class|interface) ([\w.$]+)`), regexp.MustCompile(`^  public .*?([\w.$]+)\((.*)\)`)
	short := func(name string) string {
		return strings.ReplaceAll(name[strings.LastIndex(name, ".")+1:], "$", ".")
	}
	arguments, of := regexp.MustCompile(`<[^<>]*>`), ""
	for line := range strings.Lines(string(out)) {
		if strings.HasSuffix(strings.TrimSpace(line), "{") {
			of = ""
			if m := class.FindStringSubmatch(line); m != nil {
				of = short(m[1])
			}
			continue
		}
		for arguments.MatchString(line) {
			line = arguments.ReplaceAllString(line, "")
		}
		m := method.FindStringSubmatch(line)
		if m == nil || of == "" {
			continue
		}
		params := strings.Split(m[2], ",")
		for i, p := range params {
			params[i] = short(strings.TrimSpace(p))
		}
		name := of + "." + m[1]
		if strings.Contains(m[1], ".") { // a constructor has its class's name in full
			name = "new " + of
		}
		all = append(all, name+"("+strings.Join(params, ", ")+")")
	}
	return all
}

// declared returns the exported names of the library, and all tests of the tree.
func declared(t *testing.T) (exported, tested map[string]bool) {
	t.Helper()
	exported, tested = map[string]bool{}, map[string]bool{}
	for _, pattern := range []string{"*.go", "*/*_test.go", "*/*/*_test.go"} {
		files, err := filepath.Glob(filepath.Join("../..", pattern))
		require.NoError(t, err)
		for _, file := range files {
			f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
			require.NoError(t, err)
			for _, d := range f.Decls {
				if strings.HasSuffix(file, "_test.go") {
					if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && strings.HasPrefix(fn.Name.Name, "Test") {
						tested[fn.Name.Name] = true
					}
					continue
				}
				export(exported, d)
			}
		}
	}
	return exported, tested
}

func export(exported map[string]bool, d ast.Decl) {
	switch d := d.(type) {
	case *ast.FuncDecl:
		name := d.Name.Name
		if d.Recv != nil {
			of := d.Recv.List[0].Type
			if p, ok := of.(*ast.StarExpr); ok {
				of = p.X
			}
			name = of.(*ast.Ident).Name + "." + name
		}
		exported[name] = d.Name.IsExported()
	case *ast.GenDecl:
		for _, s := range d.Specs {
			if s, ok := s.(*ast.TypeSpec); ok {
				exported[s.Name.Name] = s.Name.IsExported()
			}
		}
	}
}
